package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if told := os.Getenv(recoderVariable); told != "" {
		log.Fatal(recoder(told)) // this process is a peer in a test
	}
	goleak.VerifyTestMain(m)
}

// needNginx fails in CI, where setup has run, and elsewhere skips with the way to get nginx.
func needNginx(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("nginx"); err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("nginx is missing: run `make setup`")
	}
	t.Skip("nginx is missing: run `make setup`")
}

// A short run of everything. It asserts what was answered, counted and explained, never how fast.
func TestSmoke(t *testing.T) {
	needNginx(t)
	file := filepath.Join(t.TempDir(), "RESULTS.md")
	o, err := parse([]string{"--rounds", "1", "--seconds", "0.3", "--streams", "300", "--write", file}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.cells = o.cells[:len(o.cells)-1] // one that holds streams is enough, and so are some
	o.cells[len(o.cells)-1].held = 50
	o.cells = slices.DeleteFunc(o.cells, func(c cell) bool { return c.name == "unhurried" || c.name == "tls-paced" || c.name == "h2-paced" }) // each is two of the others together
	var out bytes.Buffer
	if err := bench(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	report, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), string(report)) {
		t.Errorf("the report written is not the one shown:\n%s", out.String())
	}
	for _, c := range o.cells {
		want := len(targets)
		if c.held > 0 {
			want--
		}
		if got := strings.Count(out.String(), "  "+c.name+" "); got < want {
			t.Errorf("cell %s was run on %d targets, want %d:\n%s", c.name, got, want, out.String())
		}
	}
	for _, problem := range []string{"NaN", "e+", " 0 requests/s", " 0 events/s", "Wrong:"} {
		if strings.Contains(out.String(), problem) {
			t.Errorf("the output holds %q:\n%s", problem, out.String())
		}
	}
}

// A run that is stopped while it starts leaves nothing.
func TestStoppedAtOnce(t *testing.T) {
	needNginx(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b, err := newBed(ctx, cells, false)
	if b != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("newBed: %v, %v, want that it was cancelled", b, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestEndsWhatItStarted(t *testing.T) {
	p, err := start(t.TempDir(), "sleeper", "sh", "-c", `sh -c "sleep 1000 & echo ready; wait"; :`)
	if err != nil {
		t.Fatal(err)
	}
	if err := eventually(t.Context(), p, func() bool { return p.output() == "ready\n" }); err != nil {
		t.Fatal(err)
	}
	all := descendantsOf(p.cmd.Process.Pid)
	if len(all) != 2 || !slices.Equal(descendantsOf(all[0]), all[1:]) {
		t.Fatalf("descendants %v, want the inner sh and its sleep", all)
	}
	u, err := p.usage()
	if err != nil || u.rss == 0 {
		t.Errorf("usage %+v, %v, want some memory", u, err)
	}
	for _, pid := range all {
		descendant, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		defer descendant.Kill() // the outer sh leaves it behind; nginx and evenkeel leave nothing
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	select {
	case <-p.done:
	default:
		t.Error("it still runs after stop")
	}
	if err := eventually(t.Context(), p, func() bool { return false }); err == nil || !strings.Contains(err.Error(), "has ended; the end of its output:\nready") {
		t.Errorf("waiting for what has ended: %v", err)
	}
}

func TestParse(t *testing.T) {
	f := func(args, want string) {
		t.Helper()
		_, err := parse(strings.Fields(args), io.Discard)
		if got := errorText(err); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("parse(%s): %q, want %q", args, got, want)
		}
	}
	f("", "")
	f("--cells small,burst --rounds 2 --seconds 0.5 --streams 10 --write x", "")
	f("--cells smal", `there is no cell "smal"; there are small, rate, paced, unhurried, burst, `)
	f("--rounds 0", "--rounds 0: at least 1")
	f("--seconds 0", "--seconds 0: use 0.1 to 3600")
	f("--seconds NaN", "--seconds NaN")
	f("--streams -3", "--streams -3: it cannot be negative")
	f("extra", `"extra": there are only flags`)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParseStat(t *testing.T) {
	f := func(in string, want stat, problem string) {
		t.Helper()
		got, err := parseStat([]byte(in))
		if problem != "" {
			if err == nil || !strings.Contains(err.Error(), problem) {
				t.Errorf("parseStat(%q): error %v, want %q", in, err, problem)
			}
			return
		}
		if err != nil || got != want {
			t.Errorf("parseStat(%q) = %+v, %v, want %+v", in, got, err, want)
		}
	}
	const rest = " 9 9 0 -1 4194560 1 2 3 4 250 50 70 30 20 0 4 0 100 5000000 321 18446744073709551615 1 1"
	want := stat{parent: 12, cpu: 3 * time.Second, ended: time.Second, pages: 321}
	f("77 (nginx) S 12"+rest, want, "")
	f("77 (a) S 1 (b c) S 12"+rest, want, "")
	f("77 nginx S 12"+rest, stat{}, "no name")
	f("77 (nginx) S 12 9 9", stat{}, "4 fields")
	f("77 (nginx) S x"+rest, stat{}, "field 4")

	own, err := os.ReadFile("/proc/self/stat")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no /proc here")
	}
	s, err := parseStat(own)
	if err != nil || s.parent != os.Getppid() || s.pages <= 0 || s.cpu < 0 || s.cpu > 24*time.Hour {
		t.Errorf("our own stat: %+v, %v", s, err)
	}
	// Ticks are rounded down, for user and system time each; the test's other threads go on meanwhile.
	if fine := onCPU("/proc/self"); fine != 0 && (fine < s.cpu-tick || fine > s.cpu+time.Second) {
		t.Errorf("our own CPU time: %v, in ticks %v", fine, s.cpu)
	}
}

func TestStatistics(t *testing.T) {
	if m := median([]float64{5, 1, 3}); m != 3 {
		t.Errorf("median of three: %v", m)
	}
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("median of four: %v", m)
	}
	d := make([]time.Duration, 200)
	for i := range d {
		d[i] = time.Duration(200 - i)
	}
	if q := quantile(d, 0.99); q != 198 {
		t.Errorf("p99 of 1 to 200: %v", q)
	}
	if q := quantile(d[:1], 0.99); q != 1 {
		t.Errorf("p99 of one: %v", q)
	}
	for figure, want := range map[float64]string{1.2: "stretch met", 1.25: "stretch met", 1.3: "met", 1.4: "met", 1.41: "missed", math.NaN(): "missed"} {
		if got := verdict(figure, 1.4, 1.25); got != want {
			t.Errorf("verdict of %v: %s, want %s", figure, got, want)
		}
	}
	if got := verdict(9, 0, 0); got != "–" {
		t.Errorf("verdict without a bound: %s", got)
	}
	if m := mean([]time.Duration{1, 2, 6}); m != 3 {
		t.Errorf("mean: %v", m)
	}
	if got := figure(ratio(1, 0)); got != "–" {
		t.Errorf("a ratio to nothing: %q", got)
	}
	if a, b, c := rotated(targets, 0), rotated(targets, 1), rotated(targets, 3); a[0] != direct || b[0] != nginx || b[2] != direct || c[0] != direct {
		t.Errorf("orders of the targets: %v %v %v", a, b, c)
	}
}

func TestMeasureEndsWithItsContext(t *testing.T) {
	asked, over := make(chan struct{}, 100), make(chan struct{})
	address := serve(t, func(io.Writer) bool {
		asked <- struct{}{}
		<-over
		return false
	})
	defer close(over)
	for _, c := range []cell{{model: "m", concurrency: 32, stream: true}, {model: "m", concurrency: 32, rate: 1000}} {
		ctx, cancel := context.WithCancel(t.Context())
		to := way{addresses: []string{address}}
		l := newLoad(c, to, nil)
		defer l.close()
		b := &bed{places: map[string]place{"m": {direct: to}}}
		result := make(chan error, 1)
		go func() {
			_, err := b.measure(ctx, time.Hour, l, direct)
			result <- err
		}()
		<-asked
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("measure: %v, want that it was cancelled", err)
		}
		if sum := l.tally(); sum.asked() != 0 {
			t.Errorf("what we broke off ourselves counts: %+v", sum)
		}
	}
}

// Profiles are taken under load and say which functions they saw.
func TestProfile(t *testing.T) {
	dir := t.TempDir()
	o, err := parse([]string{"--cells", "small,held-2k", "--seconds", "1", "--profile", dir}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.cells[1].held = 20
	if err := profile(t.Context(), o, io.Discard); err != nil {
		t.Fatal(err)
	}
	f := func(cell string, wants ...string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, cell, "top20.txt"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !bytes.Contains(text, []byte(want)) {
				t.Errorf("top20.txt lacks %q:\n%s", want, text)
			}
		}
	}
	f("small", "Type: cpu", "Type: alloc_space", "Type: alloc_objects", "Type: inuse_space", "Type: delay", "http1.(*conn).serve")
	f("held-2k", "20 streams are open", "process_resident_memory_bytes", "go_memstats_stack_inuse_bytes", "Type: inuse_space", "Type: goroutine", "http1.(*conn).serve")
}

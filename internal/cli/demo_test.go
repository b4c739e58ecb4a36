package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/app"
	"evenkeel/internal/mock"
	"evenkeel/internal/sim"
)

// watcher keeps what is written and calls seen, once, when text is in it.
type watcher struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	text string
	seen func(all string)
}

func (w *watcher) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(b)
	if w.seen != nil && strings.Contains(w.buf.String(), w.text) {
		seen := w.seen
		w.seen = nil
		seen(w.buf.String())
	}
	return len(b), nil
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// runCommand runs a command line until it ends or ctx does.
func runCommand(ctx context.Context, stdout io.Writer, args ...string) error {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stdout)
	return root.ExecuteContext(ctx)
}

func mustContain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("the output lacks %q:\n%s", part, text)
		}
	}
}

// TestDemoInMiniature runs all of it, short, and then asks the balancer that --keep leaves running.
func TestDemoInMiniature(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asked error
	out := &watcher{text: "evenkeel serve http://gpu-1:8000"}
	done := make(chan struct{})
	out.seen = func(all string) {
		go func() { // ends by itself, with or without answers
			defer close(done)
			defer stop()
			asked = tryOut(ctx, all)
		}()
	}
	log := filepath.Join(t.TempDir(), "demo.log")
	if err := runCommand(ctx, out, "demo", "--duration", "4s", "--keep", "--log", log); err != nil {
		t.Errorf("the demo ended with %v, want none", err)
	}
	text := out.String()
	mustContain(t, text, "1 of 2: round_robin", "2 of 2: predicted_wait", "round_robin  predicted_wait", "share of slow", " 0 failed.", "What this would have been", "p2c_ewma")
	for _, twice := range []string{"medium is killed", "medium is started again"} {
		if n := strings.Count(text, twice); n != 2 {
			t.Errorf("%q is there %d times, want 2:\n%s", twice, n, text)
		}
	}
	if out.seen == nil {
		<-done
	}
	if asked != nil || out.seen != nil {
		t.Errorf("what --keep leaves running: %v\n%s", asked, text)
	}
	logged, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(logged), "msg=exchange") || strings.Contains(text, "msg=") {
		t.Errorf("the balancer's log belongs into the file (%v) and nowhere else:\n%s", err, text)
	}
}

// tryOut does what the demo proposes: a request, and a look at why it went where it went.
func tryOut(ctx context.Context, printed string) error {
	urls := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	data := urls.FindString(printed[strings.LastIndex(printed, "curl -N"):])
	admin := urls.FindString(printed[strings.LastIndex(printed, "--admin-url"):])
	c := &demoClient{http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, url: data}
	a := c.ask(ctx, arrival{prompt: 20, output: 5}.body(0), 5, func(string, time.Duration) {})
	if a.verdict != answerComplete {
		return errors.New("the answer is not complete: " + a.reason)
	}
	story, err := adminClient{url: admin}.explain(ctx, "last", false)
	if err == nil && !strings.Contains(story, a.engine) {
		err = errors.New("explain does not name " + a.engine + ":\n" + story)
	}
	return err
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := &watcher{text: "medium is killed", seen: func(string) { stop() }}
	err := runCommand(ctx, out, "demo", "--duration", "6s")
	var quiet quietError
	if !errors.As(err, &quiet) {
		t.Errorf("an interrupted demo ended with %v, want a failure that is reported already", err)
	}
	mustContain(t, out.String(), "Interrupted", "dropped when interrupted", "Nothing can be compared")
	if strings.Contains(out.String(), "2 of 2") {
		t.Errorf("it went on:\n%s", out)
	}
}

// TestDemoFails when a stream is cut that the kill does not explain.
func TestDemoFails(t *testing.T) {
	t.Parallel()
	f, err := startFleet(app.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.engine("fast").SetFault(mock.Fault{Kind: "die", After: 4, Count: 2}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	d := newDemoRun(f, newScreen(&out), time.Second)
	if err := d.run(t.Context(), false); !errors.Is(err, errDemoFailed) {
		t.Errorf("the demo ended with %v, want %v", err, errDemoFailed)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
	mustContain(t, out.String(), " 2 failed.", "2 failed under round_robin: cut although its engine was not killed")
}

// The simulator's half of the demo has the same requests, and the kill; and round robin is what the demo says it is.
func TestDemoSimulated(t *testing.T) {
	t.Parallel()
	f, err := startFleet(app.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}()
	p := newPlan(15 * time.Second)
	results := map[string]*sim.Result{}
	for _, name := range []string{"round_robin", "predicted_wait"} {
		r, err := f.simulate(name, p)
		if err != nil {
			t.Fatal(err)
		}
		results[name] = r
		if c := r.Counts; c.Arrived != len(p.traffic) || c.Done+c.Failed != c.Arrived || c.Failed == 0 || c.Failed > 20 {
			t.Errorf("%s: %+v of %d requests, want all, and those that the kill cut", name, c, len(p.traffic))
		}
	}
	if slow, quick := results["round_robin"].TTFT.Quantile(0.99), results["predicted_wait"].TTFT.Quantile(0.99); slow < 3*quick {
		t.Errorf("p99 of TTFT: %.2f s under round_robin, and %.2f s under predicted_wait", slow, quick)
	}
}

func TestDemoFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		var stderr bytes.Buffer
		if code := Main(append([]string{"demo"}, args...), io.Discard, &stderr); code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: exit %d, want %d with %q:\n%s", args, code, exitUsage, want, &stderr)
		}
	}
	f("--duration 1s: the demo takes from 2s to 10m0s", "--duration", "1s")
	f("--duration 1h0m0s: the demo takes from 2s to 10m0s", "--duration", "1h")
	f("--log: open ", "--log", filepath.Join(t.TempDir(), "none", "demo.log"))
	f(`takes no arguments, got ["http://127.0.0.1:8000"]`, "http://127.0.0.1:8000")
}

//go:build !race

package soak

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/mock"
	"evenkeel/tests/harness"
)

// world is the program, the engines behind it and what its clients have seen.
type world struct {
	url, admin string
	client     *http.Client

	serial   atomic.Int64 // no two requests are equal
	complete atomic.Int64
	left     atomic.Int64 // requests whose client left
	turned   atomic.Int64 // requests that were turned away as they should be
	failed   atomic.Int64
	mu       sync.Mutex
	examples []string // of what failed; guarded by mu
}

var listening = regexp.MustCompile(`\bmsg=listening for=(\w+) addr=(127\.0\.0\.1:\d+)`)

// newWorld builds and starts everything. The log goes to a file, as it would.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	config := "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nexplain: {ring_mib: 2}\nendpoints:\n" // a ring that is full soon
	for _, m := range []struct {
		name       string
		interToken time.Duration
	}{{"fast", 0}, {"paced", 2 * time.Millisecond}} {
		for i := range 3 {
			e, err := mock.New(mock.Config{Name: m.name + strconv.Itoa(i), Models: []string{m.name}, InterToken: m.interToken, OutputTokens: 20, Seed: uint64(i)})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(e.Kill)
			config += fmt.Sprintf("  %s: {url: %q}\n", e.Name(), e.URL())
		}
	}
	file := filepath.Join(dir, "evenkeel.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "evenkeel")
	build := exec.Command("go", "build", "-o", binary, "./cmd/evenkeel")
	build.Dir = harness.Root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/evenkeel: %v\n%s", err, out)
	}
	w := &world{client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}}}
	w.start(t, filepath.Join(dir, "log"), binary, "serve", "--config", file)
	harness.Eventually(t, 20*time.Second, "evenkeel knows all engines", func() bool {
		status, body, err := harness.Get(w.admin + "/deployments")
		return err == nil && status == http.StatusOK && strings.Count(string(body), `"id":`) >= 6
	})
	return w
}

// start runs the program until the test ends, and finds its addresses in its log.
func (w *world) start(t *testing.T, log string, args ...string) {
	t.Helper()
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() // the program has its own
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		text, err := os.ReadFile(log)
		if err != nil || strings.Contains(string(text), "panic") {
			t.Errorf("evenkeel's log tells of a panic, or cannot be read (%v)", err)
		}
		if t.Failed() {
			t.Logf("the end of evenkeel's log:\n%s", text[max(0, len(text)-4000):])
		}
	})
	harness.Eventually(t, 20*time.Second, "evenkeel listens", func() bool {
		text, err := os.ReadFile(log)
		for _, m := range listening.FindAllSubmatch(text, -1) {
			switch string(m[1]) {
			case "data":
				w.url = "http://" + string(m[2])
			case "admin":
				w.admin = "http://" + string(m[2])
			}
		}
		return err == nil && w.url != "" && w.admin != ""
	})
}

// sample is what the program says of itself at one time.
type sample struct {
	rss        float64 // bytes
	goroutines float64
	files      float64
	cpu        float64 // seconds, so far
	requests   float64 // that ended so far
	inFlight   float64
}

// sample reads the metrics.
func (w *world) sample(t *testing.T) sample {
	t.Helper()
	status, body, err := harness.Get(w.admin + "/metrics")
	if err != nil || status != http.StatusOK {
		t.Fatalf("metrics: status %d, %v", status, err)
	}
	var s sample
	into := map[string]*float64{
		"process_resident_memory_bytes": &s.rss, "go_goroutines": &s.goroutines, "process_open_fds": &s.files,
		"process_cpu_seconds_total": &s.cpu, "evenkeel_requests_total": &s.requests, "evenkeel_in_flight": &s.inFlight,
	}
	for line := range strings.Lines(string(body)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if i := strings.LastIndexByte(line, '}'); i >= 0 {
			name, value = name[:max(0, strings.IndexByte(name, '{'))], strings.TrimSpace(line[i+1:])
		}
		if sum := into[name]; sum != nil {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("metrics: %q: %v", line, err)
			}
			*sum += n
		}
	}
	if s.rss == 0 || s.goroutines == 0 || s.files == 0 {
		t.Fatalf("metrics: %+v; the process does not tell of itself:\n%s", s, body)
	}
	return s
}

// watch takes samples at even distances.
func (w *world) watch(t *testing.T, duration time.Duration) []sample {
	t.Helper()
	tick := time.NewTicker(duration / samples)
	defer tick.Stop()
	var taken []sample
	for range samples {
		<-tick.C
		taken = append(taken, w.sample(t))
	}
	return taken
}

func (w *world) fail(format string, args ...any) {
	w.failed.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.examples) < 5 {
		w.examples = append(w.examples, fmt.Sprintf(format, args...))
	}
}

func (w *world) summary() string {
	return fmt.Sprintf("%d complete, %d left by their client, %d turned away, %d failed", w.complete.Load(), w.left.Load(), w.turned.Load(), w.failed.Load())
}

// mustHaveServed demands traffic of every kind, and that nobody was let down.
func (w *world) mustHaveServed(t *testing.T) {
	t.Helper()
	if w.complete.Load() == 0 || w.left.Load() == 0 || w.turned.Load() == 0 {
		t.Errorf("no traffic of some kind: %s", w.summary())
	}
	for _, example := range w.examples {
		t.Errorf("a client was let down: %s", example)
	}
}

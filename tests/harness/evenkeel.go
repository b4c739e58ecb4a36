package harness

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Balancer is a running evenkeel.
type Balancer struct {
	URL      string // of the data listener, http://127.0.0.1:PORT
	AdminURL string
	process  *Process
}

// Evenkeel runs `evenkeel serve` with the arguments on free loopback ports
// until the test ends, and returns when it is ready. The program is built once,
// with the race detector if the tests have it; a data race or a panic in it
// fails the test. The package's TestMain must be Main.
func Evenkeel(t testing.TB, args ...string) *Balancer {
	t.Helper()
	return Limited(t, 0, nil, args...)
}

// Limited is Evenkeel in a process that may have that many open files (0 = as
// many as the test process), and with more variables in its environment.
func Limited(t testing.TB, files int, env []string, args ...string) *Balancer {
	t.Helper()
	binary := Program(t)
	serve := append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)
	cmd := exec.Command(binary, serve...)
	if files > 0 { // the shell becomes the program, under the same process id
		cmd = exec.Command("sh", append([]string{"-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(files), binary}, serve...)...)
	}
	cmd.Env = append(os.Environ(), env...)
	b := &Balancer{process: Start(t, cmd)}
	t.Cleanup(func() { // before the one of Start, so the program still runs
		for _, alarm := range []string{"WARNING: DATA RACE", "panic: ", "panic serving"} {
			if strings.Contains(b.Log(), alarm) {
				t.Errorf("evenkeel wrote %q:\n%s", alarm, b.Log())
			}
		}
	})
	for range 2 {
		switch m := b.process.Await(t, listening, 20*time.Second); m[1] {
		case "data":
			b.URL = "http://" + m[2]
		case "admin":
			b.AdminURL = "http://" + m[2]
		}
	}
	Eventually(t, 10*time.Second, "evenkeel is ready", func() bool {
		status, _, err := Get(b.URL + "/readyz")
		return err == nil && status == http.StatusOK
	})
	return b
}

// Program returns the path of the program, which is built once. The package's
// TestMain must be Main.
func Program(t testing.TB) string {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// Main is the TestMain of packages that use Evenkeel: it also fails the run if
// goroutines are left.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(buildDir)
		os.Exit(code)
	}))
}

// buildDir holds the program once it is built; Main removes it.
var buildDir string

var build = sync.OnceValues(func() (string, error) {
	root, err := root()
	if err != nil {
		return "", err
	}
	if buildDir, err = os.MkdirTemp("", "evenkeel-test-"); err != nil {
		return "", err
	}
	binary := filepath.Join(buildDir, "evenkeel")
	cmd := exec.Command("go", "build", "-race="+strconv.FormatBool(raceDetector), "-o", binary, "./cmd/evenkeel")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/evenkeel: %w\n%s", err, out)
	}
	return binary, nil
})

// listening matches the log line that names a listener and its address.
var listening = regexp.MustCompile(`\bmsg=listening for=(\w+) addr=(127\.0\.0\.1:\d+)`)

// InFlight returns the sum of the gauge evenkeel_in_flight.
func (b *Balancer) InFlight(t testing.TB) float64 {
	t.Helper()
	status, body, err := Get(b.AdminURL + "/metrics")
	if err != nil || status != http.StatusOK {
		t.Fatalf("GET %s/metrics: status %d, %v", b.AdminURL, status, err)
	}
	sum := 0.0
	for _, m := range inFlight.FindAllSubmatch(body, -1) {
		value, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatalf("metrics: %q: %v", m[0], err)
		}
		sum += value
	}
	return sum
}

var inFlight = regexp.MustCompile(`(?m)^evenkeel_in_flight(?:\{[^}]*\})? (\S+)$`)

// Stop sends SIGTERM, waits up to the limit for the balancer to drain, and
// returns its exit code.
func (b *Balancer) Stop(t testing.TB, limit time.Duration) int {
	t.Helper()
	return b.process.Terminate(t, limit)
}

// PID returns the process id.
func (b *Balancer) PID() int { return b.process.PID() }

// Log returns what the balancer has logged so far.
func (b *Balancer) Log() string { return b.process.Output() }

// Get fetches a URL on a connection of its own.
func Get(url string) (status int, body []byte, err error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Close = true
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// Eventually asks every 10 ms whether the condition holds and fails the test
// if it does not within the limit.
func Eventually(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

//go:build linux

// Package overload runs the real program short of what the system has: file descriptors and memory.
package overload

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	chatPath = "/v1/chat/completions"
	patience = 30 * time.Second
)

// engine is an endpoint whose streams run until they are told to end.
type engine struct {
	url  string
	end  chan struct{} // closed: streams end well
	once sync.Once
	held atomic.Int64 // requests that wait for the end before they answer anything
}

const (
	head   = "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"a\"},\"finish_reason\":null}]}\n\n"
	tail   = "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	answer = `{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`
)

// newEngine serves the model m: a request with "stream":true gets a stream that waits for the end, one with "hold":true
// its answer at the end, others at once. Bodies are read whole.
func newEngine(t testing.TB) *engine {
	e := &engine{end: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(e.serve)}
	var work sync.WaitGroup
	work.Go(func() { _ = s.Serve(l) }) // ends with Close
	e.url = "http://" + l.Addr().String()
	t.Cleanup(func() {
		e.finish()
		s.Close()
		work.Wait()
	})
	return e
}

func (e *engine) finish() { e.once.Do(func() { close(e.end) }) }

func (e *engine) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	front := body[:min(len(body), 200)]
	switch {
	case bytes.Contains(front, []byte(`"stream":true`)):
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, head)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-e.end:
		case <-r.Context().Done():
			return
		}
		_, _ = io.WriteString(w, tail)
	default:
		if bytes.Contains(front, []byte(`"hold":true`)) {
			e.held.Add(1)
			select {
			case <-e.end:
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}
}

// config writes a configuration with the engine as its only endpoint.
func (e *engine) config(t testing.TB, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "evenkeel.yaml")
	text := "endpoints:\n  up: {url: " + e.url + ", kind: openai-compatible, models: [m]}\n" + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func chat(members string) string {
	return `{"model":"m",` + members + `"messages":[{"role":"user","content":"hi"}]}`
}

func dial(b *harness.Balancer) (net.Conn, error) {
	return net.DialTimeout("tcp", strings.TrimPrefix(b.URL, "http://"), patience)
}

// connect dials the balancer until the test ends.
func connect(t testing.TB, b *harness.Balancer) net.Conn {
	t.Helper()
	c, err := dial(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a request and reads the head of its answer.
func ask(c net.Conn, body string) (*http.Response, error) {
	_ = c.SetDeadline(time.Now().Add(patience)) // a TCP connection has deadlines
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(c), nil)
}

// cpu is what the process has used of the CPU so far.
func cpu(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	ticks := 0
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100 on Linux
}

// memory is what the process holds of the machine's memory, in bytes: now, and at most so far.
func memory(t testing.TB, pid int) (now, most int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) int64 {
		m := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+) kB$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("no %s in %s", name, text)
		}
		n, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n << 10
	}
	return of("VmRSS"), of("VmHWM")
}

// metric is the sum of a metric's series that have all these labels.
func metric(t testing.TB, b *harness.Balancer, name string, labels ...string) float64 {
	t.Helper()
	status, body, err := harness.Get(b.AdminURL + "/metrics")
	if err != nil || status != http.StatusOK {
		t.Fatalf("metrics: %d, %v", status, err)
	}
	sum := 0.0
lines:
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:len(line)-1], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		sum += v
	}
	return sum
}

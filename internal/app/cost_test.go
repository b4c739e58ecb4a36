package app

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// engineAtRest answers requests over raw sockets, in memory that it has: what is allocated meanwhile is the balancer's.
func engineAtRest(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	answer := func(body string) []byte {
		return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nServer: engine\r\nDate: Sun, 01 Mar 2026 12:00:00 GMT\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	models := answer(`{"object":"list","data":[{"id":"model-a","object":"model"}]}`)
	chat := answer(`{"id":"c","object":"chat.completion","model":"model-a","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`)
	go func() { // ends with l
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with c, which the balancer closes
				defer c.Close()
				b := make([]byte, 16<<10)
				for n := 0; ; {
					size := messageSize(b[:n])
					if size == 0 || size > n {
						m, err := c.Read(b[n:])
						if err != nil {
							return
						}
						n += m
						continue
					}
					reply := chat
					if b[0] == 'G' {
						reply = models
					}
					if _, err := c.Write(reply); err != nil {
						return
					}
					n = copy(b, b[size:n])
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

var (
	headEnd     = []byte("\r\n\r\n")
	lengthField = []byte("Content-Length: ")
)

// messageSize returns the size of the message that b begins with, 0 if its head is not there whole.
func messageSize(b []byte) int {
	head := bytes.Index(b, headEnd)
	if head < 0 {
		return 0
	}
	size := head + len(headEnd)
	if at := bytes.Index(b[:head], lengthField); at >= 0 {
		value := b[at+len(lengthField):]
		n, err := strconv.Atoi(string(value[:bytes.IndexByte(value, '\r')]))
		if err != nil {
			panic(err)
		}
		size += n
	}
	return size
}

// requestBudget is the most allocations that a request may cost, with everything on: net/http's server (about 19 of
// them), routing over three deployments, metering, metrics, the ring, the trace and the log. The request has the three header lines
// that any client sends; net/http takes one allocation for each more.
const requestBudget = 25

func TestRequestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates too; make test runs this without it")
	}
	engines := [3]string{engineAtRest(t), engineAtRest(t), engineAtRest(t)}
	settings := fromURLs(t, "", engines[:]...)
	settings.Trace.Path = filepath.Join(t.TempDir(), "trace.jsonl")
	w := start(t, settings)
	w.await("the model is served", func() bool { return w.get(w.url+"/readyz").status == 200 })
	c, err := net.Dial("tcp", w.url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"model":"model-a","messages":[{"role":"user","content":"Say hello."}],"temperature":0.2,"max_tokens":16}`
	request := fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: balancer\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	b := make([]byte, 16<<10)
	ask := func() {
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
		for n := 0; n == 0 || messageSize(b[:n]) == 0 || messageSize(b[:n]) > n; {
			m, err := c.Read(b[n:])
			if n += m; err != nil && (err != io.EOF || m == 0) {
				t.Fatalf("%v after %q", err, b[:n])
			}
		}
		if !bytes.HasPrefix(b, []byte("HTTP/1.1 200 OK\r\n")) {
			t.Fatalf("got %q", b[:200])
		}
	}
	const requests = 3000
	for range requests / 3 { // so that pools and maps are filled
		ask()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range requests {
		ask()
	}
	runtime.ReadMemStats(&after)
	objects, size := float64(after.Mallocs-before.Mallocs)/requests, (after.TotalAlloc-before.TotalAlloc)/requests
	t.Logf("a request costs %.1f allocations, %d bytes", objects, size)
	if objects > requestBudget {
		t.Errorf("a request costs %.1f allocations, want at most %d", objects, requestBudget)
	}
}

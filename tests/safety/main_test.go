// Package safety holds what attackers do, as tests: raw sockets against the real program, with a recording raw-socket
// endpoint behind it. The tests carry the numbers of the rows in README.md.
package safety

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/tests/harness"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the parallel ones wait for limits of a minute, all at once
		panic(err)
	}
	harness.Main(m)
}

const (
	chatPath = "/v1/chat/completions"
	chatBody = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	// patience is how long something may take that should happen at once, on a machine that is busy with other tests.
	patience = 30 * time.Second
)

// serveBefore runs evenkeel with the endpoint as its only one, and more lines of configuration.
func serveBefore(t testing.TB, b *backend, more ...string) *harness.Balancer {
	t.Helper()
	config := "endpoints:\n  up: {url: " + b.url + ", kind: openai-compatible, models: [m]}\n" + strings.Join(more, "\n") + "\n"
	path := filepath.Join(t.TempDir(), "evenkeel.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return harness.Evenkeel(t, "--config", path)
}

// client is a raw connection to evenkeel.
type client struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func dial(t testing.TB, url string) *client {
	t.Helper()
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(5 * time.Minute)) // no test hangs
	return &client{Conn: c, t: t, r: bufio.NewReader(c)}
}

// send writes raw bytes. That the other side does not want them all shows in what it answers.
func (c *client) send(raw string) { io.WriteString(c, raw) }

// answer is one answer as it came.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // what ended the connection instead of an answer
}

// next reads one answer.
func (c *client) next(method string) answer {
	c.SetReadDeadline(time.Now().Add(patience))
	res, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body), err}
}

// closed reports whether nothing more comes but the connection's end.
func (c *client) closed() bool {
	c.SetReadDeadline(time.Now().Add(patience))
	n, err := c.r.Read(make([]byte, 1))
	timeout, ok := err.(net.Error)
	return n == 0 && err != nil && !(ok && timeout.Timeout())
}

// serves reports whether the connection takes another request, and answers it and nothing else first.
func (c *client) serves() bool {
	c.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	a := c.next("GET")
	return a.status == 200 && a.body == "ok\n"
}

// ask sends one request on a connection of its own and returns its answer.
func ask(t testing.TB, url, raw string) answer {
	t.Helper()
	c := dial(t, url)
	defer c.Close()
	c.send(raw)
	method, _, _ := strings.Cut(raw, " ")
	return c.next(method)
}

// post is a request with a body and its length, and more header lines.
func post(path, body string, lines ...string) string {
	return request("POST "+path+" HTTP/1.1", body, append([]string{"Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body))}, lines...)...)
}

// request is a request with a Host and these header lines.
func request(line, body string, lines ...string) string {
	var b strings.Builder
	b.WriteString(line + "\r\nHost: x\r\n")
	for _, l := range lines {
		b.WriteString(l + "\r\n")
	}
	return b.String() + "\r\n" + body
}

// chunked frames a body in one chunk.
func chunked(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }

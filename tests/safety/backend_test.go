package safety

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// backend is an endpoint that records what it gets byte by byte: it forgives nothing that a lenient server would.
type backend struct {
	url    string
	answer func(*received) string // the whole answer; "" closes the connection
	serve  func(*received, net.Conn) bool

	mu       sync.Mutex
	got      []*received // without what evenkeel asks on its own
	conns    int
	wrong    []string // what no correct client sends
	open     map[net.Conn]bool
	finished bool
}

// received is one request.
type received struct {
	conn   int // number of the connection
	line   string
	header []string // lines as they came
	body   string
}

// values returns the values of a header.
func (r *received) values(name string) []string {
	var out []string
	for _, l := range r.header {
		n, v, _ := strings.Cut(l, ":")
		if strings.EqualFold(n, name) {
			out = append(out, strings.TrimSpace(v))
		}
	}
	return out
}

func (r *received) text() string { return r.line + "\n" + strings.Join(r.header, "\n") }

const goodAnswer = `{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

// jsonAnswer is an answer with a length.
func jsonAnswer(status int, body string, lines ...string) string {
	more := ""
	for _, l := range lines {
		more += l + "\r\n"
	}
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", status, more, len(body), body)
}

// newBackend starts an endpoint that answers every request well. The test fails if evenkeel sends what is no request.
func newBackend(t testing.TB) *backend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{url: "http://" + l.Addr().String(), open: map[net.Conn]bool{}}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if n, ok := b.took(c); ok {
				work.Go(func() { b.converse(c, n) })
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		b.mu.Lock()
		b.finished = true
		for c := range b.open {
			c.Close()
		}
		b.mu.Unlock()
		work.Wait()
		for _, w := range b.wrong {
			t.Errorf("the endpoint got what no correct client sends: %s", w)
		}
	})
	return b
}

func (b *backend) took(c net.Conn) (number int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finished {
		c.Close()
		return 0, false
	}
	b.open[c] = true
	b.conns++
	return b.conns, true
}

func (b *backend) converse(c net.Conn, number int) {
	defer func() {
		c.Close()
		b.mu.Lock()
		delete(b.open, c)
		b.mu.Unlock()
	}()
	r := bufio.NewReader(c)
	for {
		req, problem := readRequest(r)
		if req == nil {
			if problem != "" {
				b.fault(problem)
			}
			return
		}
		req.conn = number
		if problem != "" {
			b.fault(problem + " in\n" + req.text())
		}
		if agents := req.values("User-Agent"); len(agents) == 1 && agents[0] == "evenkeel" { // discovery
			if _, err := io.WriteString(c, jsonAnswer(200, `{"object":"list","data":[{"id":"m"}]}`)); err != nil {
				return
			}
			continue
		}
		b.mu.Lock()
		b.got = append(b.got, req)
		answer, serve := b.answer, b.serve
		b.mu.Unlock()
		if serve != nil {
			if !serve(req, c) {
				return
			}
			continue
		}
		text := jsonAnswer(200, goodAnswer)
		if answer != nil {
			text = answer(req)
		}
		if _, err := io.WriteString(c, text); err != nil || text == "" {
			return
		}
	}
}

func (b *backend) fault(what string) {
	b.mu.Lock()
	b.wrong = append(b.wrong, what)
	b.mu.Unlock()
}

// answers sets what is answered from now on.
func (b *backend) answers(f func(*received) string) {
	b.mu.Lock()
	b.answer = f
	b.mu.Unlock()
}

// take returns what was received since the last call.
func (b *backend) take() []*received {
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.got
	b.got = nil
	return got
}

// connections returns how many are open.
func (b *backend) connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// readRequest reads one request and says what is wrong with it; nil where none came.
func readRequest(r *bufio.Reader) (req *received, problem string) {
	line, err := r.ReadString('\n')
	if err != nil {
		if line != "" {
			problem = fmt.Sprintf("half a request: %q", line)
		}
		return nil, problem
	}
	req = &received{line: strings.TrimSuffix(line, "\r\n")}
	if !strings.HasSuffix(line, "\r\n") || !strings.HasSuffix(req.line, " HTTP/1.1") || strings.Count(req.line, " ") != 2 {
		problem = fmt.Sprintf("the request line %q", line)
	}
	for {
		if line, err = r.ReadString('\n'); err != nil {
			return nil, fmt.Sprintf("half a head: %q", line)
		}
		if line == "\r\n" {
			break
		}
		field := strings.TrimSuffix(line, "\r\n")
		name, value, ok := strings.Cut(field, ":")
		if !strings.HasSuffix(line, "\r\n") || !ok || name == "" || strings.ContainsAny(name, " \t_") || strings.ContainsAny(value, "\x00\r\n\v") {
			problem = fmt.Sprintf("the header line %q", line)
		}
		req.header = append(req.header, field)
	}
	lengths := req.values("Content-Length")
	method, _, _ := strings.Cut(req.line, " ")
	switch {
	case len(req.values("Transfer-Encoding")) > 0:
		problem = "a transfer encoding"
	case len(lengths) > 1:
		problem = "two lengths"
	case len(lengths) == 0 && (method == "POST" || method == "PUT" || method == "PATCH"):
		problem = "no length"
	case len(req.values("Host")) != 1:
		problem = "not one Host"
	}
	if len(lengths) == 1 {
		n, err := strconv.ParseUint(lengths[0], 10, 32)
		if err != nil {
			return nil, fmt.Sprintf("the length %q", lengths[0])
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, "half a body"
		}
		req.body = string(body)
	}
	return req, problem
}

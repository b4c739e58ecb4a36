package drill

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// fake is an endpoint that answers as a row says, for what no engine does: it has the raw connection. Models are listed as
// usual, so that it joins the fleet.
type fake struct {
	name   string
	addr   string
	answer func(c *fakeConn, n int)
	open   atomic.Int64 // connections
	asked  atomic.Int64 // API calls
	whole  atomic.Int64 // answers that were whole and clean
	bytes  atomic.Int64 // sent

	mu    sync.Mutex
	conns map[net.Conn]int // API calls on each
}

// fakeConn is one connection of a fake while a request is answered.
type fakeConn struct {
	net.Conn
	f     *fake
	req   *http.Request
	body  []byte
	close bool // the answer ends the connection
}

func (c *fakeConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.f.bytes.Add(int64(n))
	return n, err
}

// say writes a formatted text.
func (c *fakeConn) say(format string, args ...any) error {
	_, err := fmt.Fprintf(c, format, args...)
	return err
}

// first reports whether this is the first API call on the connection.
func (f *fake) first(nc net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.conns[nc]
	f.conns[nc] = n + 1
	return n == 0
}

// json answers with a whole body.
func (c *fakeConn) json(status int, body string) {
	if c.say("HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", status, http.StatusText(status), len(body), body) == nil && status == http.StatusOK {
		c.f.whole.Add(1)
	}
}

// sse begins a chunked event stream.
func (c *fakeConn) sse() {
	c.say("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
}

func (c *fakeConn) chunk(text []byte) error {
	return c.say("%x\r\n%s\r\n", len(text), text)
}

// end ends a chunked stream cleanly.
func (c *fakeConn) end() {
	if c.say("0\r\n\r\n") == nil {
		c.f.whole.Add(1)
	}
}

// reset ends the connection with a TCP RST.
func (c *fakeConn) reset() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // else it would end politely
	}
	c.Conn.Close()
	c.close = true
}

// chat is a whole answer as engines give it.
const chatAnswer = `{"id":"1","object":"chat.completion","created":1,"model":"` + model + `","choices":[{"index":0,"message":{"role":"assistant","content":"[fake] yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`

// fake starts one. answer is called for each API call with its number, from 1 on.
func (b *Bench) fake(name string, answer func(c *fakeConn, n int)) *fake {
	return b.fakeTLS(name, nil, answer)
}

func (b *Bench) fakeTLS(name string, secure *tls.Config, answer func(c *fakeConn, n int)) *fake {
	l := b.listen()
	f := &fake{name: name, addr: l.Addr().String(), answer: answer, conns: map[net.Conn]int{}}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	b.fakes = append(b.fakes, f)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return // closed with the row
			}
			f.mu.Lock()
			f.conns[nc] = 0
			f.mu.Unlock()
			f.open.Add(1)
			running.Go(func() {
				f.serve(nc)
				nc.Close()
				f.open.Add(-1)
				f.mu.Lock()
				delete(f.conns, nc)
				f.mu.Unlock()
			})
		}
	})
	b.later(func() {
		l.Close()
		f.mu.Lock()
		for nc := range f.conns {
			nc.Close()
		}
		f.mu.Unlock()
		running.Wait()
	})
	return f
}

func (f *fake) url() string { return "http://" + f.addr }

func (f *fake) serve(nc net.Conn) {
	in := bufio.NewReader(nc)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		c := &fakeConn{Conn: nc, f: f, req: req, body: body}
		if req.Method == http.MethodGet {
			f.list(c)
		} else {
			f.answer(c, int(f.asked.Add(1)))
		}
		if c.close {
			return
		}
	}
}

// list answers what is asked without a body: the models, and that there is nothing else.
func (f *fake) list(c *fakeConn) {
	body, status := `{"object":"list","data":[{"id":"`+model+`","object":"model","created":1,"owned_by":"drill"}]}`, http.StatusOK
	if c.req.URL.Path != "/v1/models" {
		body, status = `{"error":{"message":"nothing here","type":"invalid_request_error"}}`, http.StatusNotFound
	}
	c.say("HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", status, http.StatusText(status), len(body), body)
}

// wait keeps the connection until the client has gone, or the time is over; it reports whether it has gone.
func (c *fakeConn) wait(d time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(d)) // if it cannot be set the connection is gone
	_, err := c.Conn.Read(make([]byte, 1))
	e, slow := err.(net.Error)
	return err != nil && !(slow && e.Timeout())
}

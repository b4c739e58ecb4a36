package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"evenkeel/internal/llm"
)

const (
	// inOneWrite is the size up to which head and body go out in one write, by the goroutine that then waits for
	// the answer. A larger body is written beside that, since the server may answer before it has read all.
	inOneWrite = 64 << 10
	// mostInterim bounds 1xx answers to one request.
	mostInterim = 5
)

var (
	errHeadTooLarge = fmt.Errorf("the head of the answer is larger than %d bytes", maxHeaderBytes)
	errInterim      = fmt.Errorf("more than %d interim answers", mostInterim)
	errUpgrade      = errors.New("the answer switches protocols, which was not asked for")
	errStatus       = errors.New("the answer's status is below 100")
)

// plain is a pool of HTTP/1.1 connections to one address. A request is written and its answer read by the
// goroutine that wants it: no goroutines stand between, unlike in net/http's Transport, which costs about
// half of a small request's time. The framing of answers is the standard library's.
type plain struct {
	dialer      *net.Dialer
	addr        string
	idleTimeout time.Duration

	mu       sync.Mutex
	idle     []*conn     // the one used last at the end
	sweeping *time.Timer // set while there are idle connections
}

func newPlain(d *net.Dialer, base *url.URL) *plain {
	port := base.Port()
	if port == "" {
		port = "80"
	}
	return &plain{dialer: d, addr: net.JoinHostPort(base.Hostname(), port), idleTimeout: idleTimeout}
}

// conn is one connection. It is used by one request at a time.
type conn struct {
	net.Conn
	pool      *plain
	br        *bufio.Reader
	probe     prober
	used      bool // has carried a request before
	idleSince time.Time

	// Of the running request.
	inHead   bool       // the head of the answer is being read
	headLeft int        // bytes it may still have
	sent     bool       // some of the request was
	answered bool       // some of the answer came
	broke    bool       // nothing more comes
	written  chan error // the result of a body written beside; nil if there is none
}

// Read is what br reads from: it bounds heads and notes whether something came, and whether more can.
func (c *conn) Read(b []byte) (int, error) {
	if c.inHead {
		if c.headLeft <= 0 {
			return 0, errHeadTooLarge
		}
		b = b[:min(len(b), c.headLeft)]
	}
	n, err := c.Conn.Read(b)
	c.headLeft -= n
	c.answered = c.answered || n > 0
	c.broke = c.broke || err != nil
	return n, err
}

func (p *plain) do(ctx context.Context, req *http.Request, body [3][]byte) (*http.Response, error) {
	c, err := p.get(ctx)
	if err != nil {
		return nil, &Error{Class: llm.Connect, Unreachable: true, Err: err}
	}
	release := context.AfterFunc(ctx, func() { _ = c.Conn.Close() }) // whoever reads or writes sees it
	c.sent, c.answered, c.written = false, false, nil
	c.send(req, body)
	res, err := c.receiveHead(req)
	if err != nil {
		release()
		_ = c.Conn.Close() // broken already
		return nil, &Error{Class: brokenWhile(c.broke, c.used, c.answered), Sent: c.sent, Err: err}
	}
	b := &answerBody{conn: c, body: res.Body, release: release, reusable: !res.Close}
	if res.Body == http.NoBody {
		b.ended()
	}
	res.Body = b
	return res, nil
}

// heads are buffers for what is sent in one write.
var heads = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// send writes the request. An error is not reported: an endpoint that refuses a body early answers and closes
// while it is written, and its answer matters more. What happened shows when the answer is read.
func (c *conn) send(req *http.Request, body [3][]byte) {
	buf := heads.Get().(*[]byte)
	b := appendHead((*buf)[:0], req)
	if req.ContentLength <= inOneWrite {
		for _, part := range body {
			b = append(b, part...)
		}
		n, _ := c.Conn.Write(b)
		c.sent = n > 0
	} else {
		c.written = make(chan error, 1)
		n, err := c.Conn.Write(b)
		c.sent = n > 0
		go func(written chan<- error) { // ends with the body, or when the connection is closed
			pieces := net.Buffers{body[0], body[1], body[2]}
			if err == nil {
				_, err = pieces.WriteTo(c.Conn)
			}
			written <- err
		}(c.written)
	}
	if cap(b) <= 2*inOneWrite {
		*buf = b
		heads.Put(buf)
	}
}

// appendHead writes the head. Header values were checked when they were parsed; what could split the head all
// the same is left out, and so is an empty User-Agent.
func appendHead(b []byte, req *http.Request) []byte {
	b = append(b, req.Method...)
	b = append(b, ' ')
	b = append(b, req.URL.RequestURI()...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, req.Host...)
	b = append(b, "\r\n"...)
	for name, values := range req.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue // the framing is ours alone
		}
		for _, v := range values {
			if !fieldValue(v) || v == "" && name == "User-Agent" {
				continue
			}
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, v...)
			b = append(b, "\r\n"...)
		}
	}
	if req.ContentLength > 0 || req.Method == http.MethodPost || req.Method == http.MethodPut || req.Method == http.MethodPatch {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, req.ContentLength, 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// fieldValue reports whether v can be a header's value (RFC 9110 §5.5).
func fieldValue(v string) bool {
	for i := range len(v) {
		if v[i] < ' ' && v[i] != '\t' || v[i] == 0x7f {
			return false
		}
	}
	return true
}

func (c *conn) receiveHead(req *http.Request) (*http.Response, error) {
	c.inHead, c.headLeft = true, maxHeaderBytes
	defer func() { c.inHead = false }()
	for range mostInterim + 1 {
		res, err := http.ReadResponse(c.br, req)
		switch {
		case err != nil:
			return nil, err
		case res.StatusCode == http.StatusSwitchingProtocols:
			return nil, errUpgrade
		case res.StatusCode < 100: // the standard library lets 099 and +20 pass
			return nil, errStatus
		case res.StatusCode >= 200:
			return res, nil
		}
	}
	return nil, errInterim
}

// answerBody is a response's body. At its end the connection goes back to the pool; before that, Close or an
// error ends the connection.
type answerBody struct {
	conn     *conn // nil once it was given away or closed
	body     io.ReadCloser
	release  func() bool // ends the watch over the context; false if that has closed the connection
	reusable bool
	err      error // what a Read returns once conn is nil
}

func (b *answerBody) Read(p []byte) (int, error) {
	c := b.conn
	if c == nil {
		return 0, b.err
	}
	n, err := b.body.Read(p)
	switch {
	case err == io.EOF:
		b.ended()
	case err != nil:
		if c.broke && !connectionBroke(err) {
			err = io.ErrUnexpectedEOF // it only looks malformed because it was cut
		}
		_ = b.Close()
		b.err = err
	}
	return n, err
}

// ended gives the connection back if nothing speaks against using it again: the whole request was read, and
// nothing came after the answer.
func (b *answerBody) ended() {
	c := b.conn
	b.conn, b.err = nil, io.EOF
	reusable := b.release() && b.reusable && c.br.Buffered() == 0
	if c.written != nil {
		select {
		case err := <-c.written:
			reusable = reusable && err == nil
		default:
			reusable = false
		}
	}
	if !reusable {
		_ = c.Conn.Close() // done with
		return
	}
	c.pool.put(c)
}

// Close ends the connection unless the body was read to its end.
func (b *answerBody) Close() error {
	if b.conn == nil {
		return nil
	}
	c := b.conn
	b.conn, b.err = nil, http.ErrBodyReadAfterClose
	b.release()
	_ = c.Conn.Close() // its answer is not wanted any more
	return nil
}

// get returns an idle connection that the server has not closed, or a new one.
func (p *plain) get(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		c := p.pop()
		if c == nil {
			break
		}
		if time.Since(c.idleSince) < p.idleTimeout && c.probe.alive() {
			return c, nil
		}
		_ = c.Conn.Close() // too old, or closed by the server
	}
	raw, err := p.dialer.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, pool: p}
	c.br = bufio.NewReader(c)
	if s, ok := raw.(syscall.Conn); ok {
		c.probe = newProber(s)
	}
	return c, nil
}

func (p *plain) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	c := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	return c
}

func (p *plain) put(c *conn) {
	c.used, c.idleSince = true, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) >= maxIdle {
		_ = c.Conn.Close() // enough of them
		return
	}
	p.idle = append(p.idle, c)
	if p.sweeping == nil {
		p.sweeping = time.AfterFunc(p.idleTimeout, p.sweep)
	}
}

// sweep closes connections that were not used for long, and comes back while any are left.
func (p *plain) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeping == nil {
		return // closed meanwhile
	}
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].idleSince) >= p.idleTimeout {
		_ = p.idle[old].Conn.Close() // unused
		old++
	}
	p.idle = append(p.idle[:0], p.idle[old:]...)
	clear(p.idle[len(p.idle):cap(p.idle)])
	if len(p.idle) == 0 {
		p.sweeping = nil
		return
	}
	p.sweeping.Reset(p.idleTimeout - time.Since(p.idle[0].idleSince))
}

func (p *plain) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		_ = c.Conn.Close() // unused
	}
	p.idle = nil
	if p.sweeping != nil {
		p.sweeping.Stop()
		p.sweeping = nil
	}
}

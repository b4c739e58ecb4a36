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
	"sync"
	"syscall"
	"time"

	"evenkeel/internal/llm"
)

const (
	// inOneWrite is the size up to which head and body go out in one write, by the goroutine that then waits for
	// the answer. A larger body is written beside that, since the server may answer before it has read all.
	inOneWrite = 64 << 10
	// trusted is how long a connection may have been idle to be used without a look at its socket, a system call:
	// a server that keeps connections does not close them that soon. One that did is watched for waryFor.
	trusted = 20 * time.Millisecond
	waryFor = time.Minute
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
	wary     time.Time   // until when no idle connection is trusted
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

func (p *plain) do(stop *Stop, t *target, r *Request) (*http.Response, error) {
	c, err := p.get(stop)
	if err != nil {
		return nil, &Error{Class: llm.Connect, Unreachable: true, Err: err}
	}
	c.sent, c.answered, c.written = false, false, nil
	if !stop.enter(c) {
		p.put(c) // nothing was sent
		return nil, &Error{Class: llm.None, Err: context.Canceled}
	}
	c.send(t, r)
	res, err := c.receiveHead(r.Method)
	if err != nil {
		stop.leave()
		c.end()
		if stop.Cancelled() {
			err = context.Canceled
		}
		return nil, &Error{Class: brokenWhile(c.broke, c.used, c.answered), Sent: c.sent, Err: err}
	}
	b := &answerBody{conn: c, body: res.Body, stop: stop, reusable: !res.Close}
	if res.Body == http.NoBody {
		b.ended()
	}
	res.Body = b
	return res, nil
}

// interrupt ends the connection; whoever reads or writes it sees that.
func (c *conn) interrupt() { _ = c.Conn.Close() }

// end closes the connection and waits until nothing is written to it any more, which is soon.
func (c *conn) end() {
	_ = c.Conn.Close() // nothing is wanted of it
	if c.written != nil {
		<-c.written
	}
}

// heads are buffers for what is sent in one write.
var heads = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// send writes the request. An error is not reported: an endpoint that refuses a body early answers and closes
// while it is written, and its answer matters more. What happened shows when the answer is read.
func (c *conn) send(t *target, r *Request) {
	buf := heads.Get().(*[]byte)
	b := t.appendHead((*buf)[:0], r)
	if r.length() <= inOneWrite {
		for _, part := range r.Body {
			b = append(b, part...)
		}
		n, _ := c.Conn.Write(b)
		c.sent = n > 0
	} else {
		c.written = make(chan error, 1)
		n, err := c.Conn.Write(b)
		c.sent = n > 0
		go func(written chan<- error, pieces net.Buffers) { // ends with the body, or when the connection is closed
			if err == nil {
				_, err = pieces.WriteTo(c.Conn)
			}
			written <- err
			close(written)
		}(c.written, net.Buffers{r.Body[0], r.Body[1], r.Body[2]})
	}
	if cap(b) <= 2*inOneWrite {
		*buf = b
		heads.Put(buf)
	}
}

func (c *conn) receiveHead(method string) (*http.Response, error) {
	c.inHead, c.headLeft = true, maxHeaderBytes
	defer func() { c.inHead = false }()
	req := &http.Request{Method: method}
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
	stop     *Stop
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
	reusable := b.stop.leave() && b.reusable && c.br.Buffered() == 0
	if c.written != nil {
		select {
		case err := <-c.written:
			reusable = reusable && err == nil
		default:
			reusable = false
		}
	}
	if !reusable {
		c.end()
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
	b.stop.leave()
	c.end() // its answer is not wanted any more
	return nil
}

// get returns an idle connection that the server has not closed, or a new one.
func (p *plain) get(stop *Stop) (*conn, error) {
	if stop.Cancelled() {
		return nil, context.Canceled
	}
	for {
		c, look := p.pop()
		if c == nil {
			break
		}
		idle := time.Since(c.idleSince)
		if idle < p.idleTimeout && (idle < trusted && !look || c.probe.alive()) {
			return c, nil
		}
		_ = c.Conn.Close() // too old, or closed by the server
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !stop.enter(interruptFunc(cancel)) {
		return nil, context.Canceled
	}
	defer stop.leave()
	raw, err := p.dialer.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		if stop.Cancelled() {
			err = context.Canceled
		}
		return nil, err
	}
	c := &conn{Conn: raw, pool: p}
	c.br = bufio.NewReader(c)
	if s, ok := raw.(syscall.Conn); ok {
		c.probe = newProber(s)
	}
	return c, nil
}

// pop takes the idle connection that was used last, and tells whether it must be looked at however short it
// was idle.
func (p *plain) pop() (c *conn, look bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil, false
	}
	c = p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	return c, c.idleSince.Before(p.wary)
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

// stale notes that a connection died just when it was used again: its siblings are likely as old.
func (p *plain) stale() {
	p.closeIdle()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wary = time.Now().Add(waryFor)
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

package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"evenkeel/internal/llm"
)

const (
	// inOnePiece is how much of a request goes out in one write, head and body together. Copying that costs less
	// than another system call; for more it comes out even.
	inOnePiece = 32 << 10
	// sealed is the size up to which a request over TLS is written by the goroutine that then waits for the answer.
	// A socket whose last request was answered has room for that, so that the write does not wait.
	sealed = 16 << 10
)

// conn is one connection. It is used by one request at a time.
type conn struct {
	sock      *socket
	tls       *tls.Conn // over sock; nil if it speaks plain
	wire      net.Conn  // whichever of both HTTP is spoken over
	pool      *pool
	in        buffer
	used      bool          // has carried a request before
	keep      time.Duration // how long it may be idle
	idleSince time.Time
	look      [1]byte // where a look reads to, and TLS while it waits

	// Of the running request.
	sent     bool         // some of the request was
	answered bool         // some of the answer came
	broke    error        // why nothing more comes; nil while something may
	failed   bool         // not all of the request could be written
	bodied   bool         // it has a body
	writing  chan written // of what is written beside; nil if nothing is
}

// written is how writing went.
type written struct {
	n   int // bytes
	err error
}

func newConn(p *pool, s *socket, secured *tls.Conn) *conn {
	c := &conn{sock: s, tls: secured, wire: s, pool: p, keep: p.idleTimeout}
	if secured != nil {
		c.wire = secured
	}
	return c
}

// read takes some of what came, and waits for it if nothing did.
func (c *conn) read(b []byte) (int, error) {
	if c.in.empty() {
		if len(b) >= bufferSize && c.broke == nil { // as good as a buffer, and nothing to copy
			return c.came(c.wire.Read(b))
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.in.bytes())
	c.in.skip(n)
	return n, nil
}

// fill waits until something comes. Everything that came before must have been read.
func (c *conn) fill() error {
	if c.broke != nil {
		return c.broke // a socket tells of a reset once, and of an end after that
	}
	var n int
	var err error
	if c.tls != nil {
		n, err = c.came(c.fillSecured())
	} else {
		n, err = c.came(c.sock.fill(&c.in))
	}
	if n > 0 {
		return nil
	}
	return err
}

// fillSecured waits for TLS, which wants memory for that: a byte will do. What it has beyond that comes without a
// system call.
func (c *conn) fillSecured() (int, error) {
	n, err := c.tls.Read(c.look[:])
	if n == 0 {
		return 0, err
	}
	room := c.in.room()
	room[0] = c.look[0]
	c.sock.pry = shut
	for m := 0; err == nil && n < len(room); n += m {
		m, err = c.tls.Read(room[n:])
	}
	c.sock.pry = waits
	c.in.filled(n)
	if err == errNothing {
		err = nil
	}
	return n, err
}

// came notes whether something came, and whether more can.
func (c *conn) came(n int, err error) (int, error) {
	c.answered = c.answered || n > 0
	c.broke = err
	return n, err
}

// alive reports whether an idle connection may be used: it is not too old, the server has not closed it, and has
// not said anything that nobody asked for.
// It looks each time: what an endpoint says too much would be taken for the answer to the next request.
func (c *conn) alive() bool {
	if time.Since(c.idleSince) >= c.keep {
		return false
	}
	var err error
	if c.tls == nil {
		_, err = c.sock.readNow(c.look[:])
	} else { // which may hold records that it has not been asked for
		c.sock.pry = looks
		_, err = c.tls.Read(c.look[:])
		c.sock.pry = waits
	}
	return err == errNothing
}

// do sends a request and reads the head of its answer.
func (p *pool) do(stop *Stop, t *target, r *Request) (*http.Response, error) {
	c, err := p.get(stop)
	switch {
	case err == errHTTP2:
		return nil, err
	case err != nil:
		return nil, &Error{Class: llm.Connect, Unreachable: true, Err: err}
	}
	c.sent, c.answered, c.failed, c.writing = false, false, false, nil
	if !stop.enter(c.sock) {
		p.put(c) // nothing was sent
		return nil, &Error{Class: llm.None, Err: context.Canceled}
	}
	c.send(t, r)
	a, err := c.receive(r.Method, stop)
	if err != nil {
		if !stop.leave() {
			err = context.Canceled
		}
		c.end()
		broke := connectionBroke(err) || errors.Is(err, c.broke) // and not only seen to be at its end, after what is wrong
		return nil, &Error{Class: brokenWhile(broke, c.used, c.answered), Sent: c.sent, Err: err}
	}
	return a, nil
}

// end closes the connection and waits until nothing is written to it any more, which is soon.
func (c *conn) end() {
	c.sock.interrupt()
	if c.writing != nil {
		c.wrote(<-c.writing)
		c.writing = nil
	}
	c.pool.freed()
}

// wrote notes how writing beside ended.
func (c *conn) wrote(w written) {
	c.sent, c.failed = c.sent || w.n > 0, c.failed || w.err != nil
}

// heads are buffers for what is sent in one piece.
var heads = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// send writes the request, as far as the socket takes it at once. What is left is written beside, since the
// server may answer before it has read all, or never read it. An error is not reported: an endpoint that refuses
// a body early answers and closes while it is written, and its answer matters more. What happened shows when the
// answer is read.
func (c *conn) send(t *target, r *Request) {
	buf := heads.Get().(*[]byte)
	b := t.appendHead((*buf)[:0], r)
	left := [4][]byte{1: r.Body[0], r.Body[1], r.Body[2]}
	for i := 1; i < len(left); i++ {
		n := min(len(left[i]), max(inOnePiece-len(b), 0))
		b, left[i] = append(b, left[i][:n]...), left[i][n:]
	}
	left[0], *buf = b, b
	c.bodied = r.length() > 0
	if c.begin(&left) {
		c.writing = make(chan written, 1)
		go c.finish(c.writing, left, buf) // ends with the body, or when the connection is closed
		return
	}
	keepHead(buf)
}

// begin writes what the socket takes without waiting and reports whether there is more to write.
func (c *conn) begin(left *[4][]byte) bool {
	if c.tls != nil {
		if len(left[0]) > sealed {
			return true
		}
		n, err := c.tls.Write(left[0])
		c.wrote(written{n, err})
		return false
	}
	for i, b := range left {
		if len(b) == 0 {
			continue
		}
		n, err := c.sock.writeNow(b)
		if c.wrote(written{n, err}); err != nil {
			return false
		}
		if left[i] = b[n:]; n < len(b) {
			return true
		}
	}
	return false
}

// finish writes what is left. buf holds the first of it.
func (c *conn) finish(done chan<- written, left [4][]byte, buf *[]byte) {
	var w written
	for i := 0; i < len(left) && w.err == nil; i++ {
		if len(left[i]) > 0 {
			var n int
			n, w.err = c.wire.Write(left[i])
			w.n += n
		}
	}
	keepHead(buf)
	done <- w
}

func keepHead(buf *[]byte) {
	if cap(*buf) <= 2*inOnePiece {
		heads.Put(buf)
	}
}

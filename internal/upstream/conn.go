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
	// inOnePiece is up to what size of body it is copied behind the head, which then costs less than naming both.
	inOnePiece = 4 << 10
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
	used      bool          // was idle: the server may have closed it
	keep      time.Duration // how long it may be idle
	idleSince time.Time
	look      [1]byte // where a look reads to, and TLS while it waits

	// Of the running request.
	out      outgoing
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

// young reports whether an idle connection is not too old to be used.
func (c *conn) young() bool { return time.Since(c.idleSince) < c.keep }

// silent reports that the server has not closed an idle connection over TLS, and has not said anything that nobody
// asked for. TLS may hold records that it has not been asked for.
func (c *conn) silent() bool {
	c.sock.pry = looks
	n, err := c.tls.Read(c.look[:])
	c.sock.pry = waits
	if n > 0 {
		c.pool.distrust()
	}
	return err == errNothing
}

// do sends a request and reads the head of its answer.
func (p *pool) do(stop *Stop, t *target, r *Request) (*http.Response, error) {
	c, err := p.ask(stop, t, r)
	if err != nil {
		return nil, err
	}
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

// ask sends a request by an idle connection that the server has not closed, or by a new one. stop is at the
// connection then.
func (p *pool) ask(stop *Stop, t *target, r *Request) (*conn, error) {
	for {
		c, err := p.get(stop, r.Fresh)
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
		if c.send(t, r) {
			return c, nil
		}
		stop.leave()
		c.end()
	}
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

// outgoing is a request on its way.
type outgoing struct {
	left [4][]byte // what was not written yet: the head, and the body's pieces
	head *[]byte   // the memory of left[0]
	n    int       // bytes written
	err  error
}

// heads are buffers for heads, and the bodies that are copied behind them.
var heads = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// fill makes o a request. Bodies of at most some bytes are part of its first piece.
func (o *outgoing) fill(t *target, r *Request, inOnePiece int) {
	o.head, o.n, o.err = heads.Get().(*[]byte), 0, nil
	*o.head = t.appendHead((*o.head)[:0], r)
	o.left = [4][]byte{1: r.Body[0], r.Body[1], r.Body[2]}
	if r.length() <= int64(inOnePiece) {
		for i, piece := range r.Body {
			*o.head, o.left[i+1] = append(*o.head, piece...), nil
		}
	}
	o.left[0] = *o.head
}

// over reports whether everything was written.
func (o *outgoing) over() bool {
	return len(o.left[0]) == 0 && len(o.left[1]) == 0 && len(o.left[2]) == 0 && len(o.left[3]) == 0
}

// wrote notes that the next n bytes were written.
func (o *outgoing) wrote(n int) {
	o.n += n
	for i := range o.left {
		m := min(n, len(o.left[i]))
		o.left[i], n = o.left[i][m:], n-m
	}
}

// release gives the memory back. Nothing more can be written.
func (o *outgoing) release() {
	o.left = [4][]byte{}
	if o.head != nil && cap(*o.head) <= 4*sealed {
		heads.Put(o.head)
	}
	o.head = nil
}

// send writes the request, as far as the socket takes it at once, and waits for the answer. What the socket does not
// take is written beside, since the server may answer before it has read all, or never read it. An error is not
// reported: an endpoint that refuses a body early answers and closes while it is written, and its answer matters
// more. What happened shows when the answer is read.
//
// It returns false if the connection cannot be used any more. Nothing was sent then.
func (c *conn) send(t *target, r *Request) bool {
	c.bodied = r.length() > 0
	o := &c.out
	if c.tls != nil {
		if c.used && !c.silent() {
			return false
		}
		o.fill(t, r, sealed)
		if len(o.left[0]) > sealed || r.length() > sealed {
			c.sendBeside()
			return true
		}
		n, err := c.tls.Write(o.left[0])
		c.wrote(written{n, err})
		o.release()
		return true
	}
	o.fill(t, r, inOnePiece)
	n, err := c.sock.ask(c.used, o, &c.in)
	if err == errSpoke || err == errClosed {
		if err == errSpoke {
			c.pool.distrust()
		}
		o.release()
		return false
	}
	c.wrote(written{o.n, o.err})
	switch {
	case o.over():
		c.came(n, err)
	case o.err != nil:
		o.release()
	default:
		c.sendBeside()
	}
	return true
}

// sendBeside writes what is left.
func (c *conn) sendBeside() {
	o := c.out
	c.out = outgoing{}
	done := make(chan written, 1)
	c.writing = done
	go func() { // ends with the body, or when the connection is closed
		var w written
		for i := 0; i < len(o.left) && w.err == nil; i++ {
			if len(o.left[i]) > 0 {
				var n int
				n, w.err = c.wire.Write(o.left[i])
				w.n += n
			}
		}
		o.release()
		done <- w
	}()
}

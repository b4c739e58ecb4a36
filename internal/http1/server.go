// Package http1 serves the usual HTTP/1.1 request over a plain connection at a fraction of net/http's cost, and hands
// everything else to net/http: a connection on which a request comes that is not of the plainest form goes over to a
// net/http server with all that was read of it. So the usual case is cheap, and of the others nothing is read here.
//
// The files: server.go (connections), parse.go (which requests are usual), body.go and response.go (one exchange).
package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves one listener. Std must have a Handler; its timeouts, ConnContext, ConnState (new and closed connections
// only) and ErrorLog hold here too. Methods may be called concurrently.
type Server struct {
	Std *http.Server

	mu      sync.Mutex
	conns   map[*conn]struct{}
	socket  net.Listener
	others  *handed
	closing atomic.Bool
	last    atomic.Bool // no connection is kept after its request
}

// acceptPause is how long Serve waits at most after the system could not give a connection.
const acceptPause = time.Second

// Serve accepts connections until the server is closed, and then returns http.ErrServerClosed. The caller closes l by
// Close or Shutdown.
func (s *Server) Serve(l net.Listener) error {
	others := &handed{addr: l.Addr(), conns: make(chan net.Conn), done: make(chan struct{})}
	s.mu.Lock()
	if s.closing.Load() {
		s.mu.Unlock()
		return http.ErrServerClosed
	}
	s.conns, s.socket, s.others = map[*conn]struct{}{}, l, others
	s.mu.Unlock()
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { _ = s.Std.Serve(others) }) // ends with others: it says nothing that nobody knows
	defer others.Close()
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		switch passing, ok := err.(interface{ Temporary() bool }); {
		case err == nil:
			pause = 0
			s.start(c)
		case s.closing.Load():
			return http.ErrServerClosed
		case ok && passing.Temporary(): // a lack of file descriptors, mostly
			pause = min(max(2*pause, 5*time.Millisecond), acceptPause)
			time.Sleep(pause)
		default:
			return err
		}
	}
}

// start serves a connection.
func (s *Server) start(nc net.Conn) {
	ctx := context.Background()
	if s.Std.ConnContext != nil {
		ctx = s.Std.ConnContext(ctx, nc)
	}
	c := newConn(s, nc, ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		_ = nc.Close() // the server ends
		s.told(nc, http.StateClosed)
		return
	}
	s.conns[c] = struct{}{}
	go c.serve() // ends with the connection
}

func (s *Server) told(c net.Conn, state http.ConnState) {
	if s.Std.ConnState != nil {
		s.Std.ConnState(c, state)
	}
}

// forget lets a connection go that is closed, or net/http's.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// SetKeepAlivesEnabled says whether connections are kept after their request.
func (s *Server) SetKeepAlivesEnabled(on bool) {
	s.last.Store(!on)
	s.Std.SetKeepAlivesEnabled(on)
}

// ending reports whether connections end with their answer.
func (s *Server) ending() bool { return s.last.Load() || s.closing.Load() }

// Close closes the listener and all connections.
func (s *Server) Close() error {
	s.end(func(*conn) bool { return true })
	return s.Std.Close()
}

// shutdownLook is how often Shutdown looks for connections that have become idle.
const shutdownLook = 10 * time.Millisecond

// Shutdown closes the listener, and each connection that had a request as soon as none runs on it. It returns when none
// is left, or with the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	look := time.NewTicker(shutdownLook)
	defer look.Stop()
	for s.end((*conn).idle) > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
	return s.Std.Shutdown(ctx)
}

// end closes the listener and those connections, and returns how many are left.
func (s *Server) end(which func(*conn) bool) int {
	s.closing.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket != nil {
		_ = s.socket.Close() // Serve sees it
		_ = s.others.Close()
	}
	for c := range s.conns {
		if which(c) {
			_ = c.net.Close() // its goroutine sees it, and forgets it
			delete(s.conns, c)
		}
	}
	return len(s.conns)
}

// handed is the listener by which net/http gets its connections.
type handed struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *handed) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

func (h *handed) Addr() net.Addr { return h.addr }

// give reports whether net/http has taken the connection.
func (h *handed) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.done:
		return false
	}
}

// replayed is a connection of which something was read already.
type replayed struct {
	net.Conn
	read []byte
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.read) > 0 {
		n := copy(p, r.read)
		if r.read = r.read[n:]; len(r.read) == 0 {
			r.read = nil
		}
		return n, nil
	}
	return r.Conn.Read(p)
}

// Unwrap returns the connection itself.
func (r *replayed) Unwrap() net.Conn { return r.Conn }

// CloseWrite is for net/http, which ends a connection with it where the client may still be sending.
func (r *replayed) CloseWrite() error {
	if c, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// conn is a connection that is served here.
type conn struct {
	server *Server
	net    net.Conn
	busy   atomic.Bool // a request runs
	begun  atomic.Bool // there was a request

	in   *buffer // what was read and not used: in[from:to]; nil if nothing was
	from int
	to   int

	req *http.Request
	target
	body  body
	reply response
}

func newConn(s *Server, c net.Conn, ctx context.Context) *conn {
	k := &conn{server: s, net: c}
	k.req = (&http.Request{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, RemoteAddr: c.RemoteAddr().String(),
	}).WithContext(ctx)
	k.reply.conn, k.reply.header, k.body.conn = k, http.Header{}, k
	return k
}

// idle reports whether a connection may be closed when the server ends. A new one is not idle: a request may be on its way.
func (c *conn) idle() bool { return c.begun.Load() && !c.busy.Load() }

// serve serves requests until the connection ends or is handed over.
func (c *conn) serve() {
	wait := c.server.Std.ReadHeaderTimeout
	for {
		if c.from == c.to {
			if err := c.wait(wait); err != nil {
				c.close()
				return
			}
		}
		wait = c.server.Std.IdleTimeout
		c.busy.Store(true)
		c.begun.Store(true)
		size := c.parse(c.in[c.from:c.to])
		if size == 0 {
			c.handOver()
			return
		}
		c.from += size
		c.dropInput()
		if !c.exchange() || c.server.ending() {
			c.close()
			return
		}
		c.busy.Store(false)
	}
}

// wait reads the beginning of the next request.
func (c *conn) wait(limit time.Duration) error {
	var until time.Time
	if limit > 0 {
		until = time.Now().Add(limit)
	}
	_ = c.net.SetReadDeadline(until) // fails on a closed connection, which Read tells too
	if c.in == nil {
		c.in = buffers.Get().(*buffer)
	}
	n, err := c.net.Read(c.in[:])
	c.from, c.to = 0, n
	if n > 0 {
		return nil
	}
	return err
}

// dropInput gives the input's buffer back once it is used up.
func (c *conn) dropInput() {
	if c.in != nil && c.from == c.to {
		buffers.Put(c.in)
		c.in, c.from, c.to = nil, 0, 0
	}
}

// handOver gives the connection to net/http, which begins with what was read of the request.
func (c *conn) handOver() {
	c.server.forget(c)
	read := append([]byte(nil), c.in[c.from:c.to]...)
	c.from = c.to
	c.dropInput()
	_ = c.net.SetReadDeadline(time.Time{}) // net/http has its own
	if !c.server.others.give(&replayed{Conn: c.net, read: read}) {
		_ = c.net.Close() // the server ends
		c.server.told(c.net, http.StateClosed)
	}
}

func (c *conn) close() {
	c.server.forget(c)
	c.from = c.to
	c.dropInput()
	_ = c.net.Close() // nothing can be lost: what was written was flushed
	c.server.told(c.net, http.StateClosed)
}

// exchange runs the handler for the request that was parsed and reports whether the connection can go on.
func (c *conn) exchange() (keep bool) {
	w := &c.reply
	w.reset(c.req.Method, c.closes)
	done := false
	defer func() {
		if done {
			return
		}
		w.drop()
		if fault := recover(); fault != nil && fault != http.ErrAbortHandler {
			c.logf("http: panic serving %s: %v\n%s", c.req.RemoteAddr, fault, debug.Stack())
		}
	}()
	c.server.Std.Handler.ServeHTTP(w, c.req)
	keep = w.finish()
	done = true
	if w.deadline {
		_ = c.net.SetWriteDeadline(time.Time{}) // the next answer has its own
	}
	if c.body.left > 0 && !w.drained {
		c.lingerClose()
		keep = false
	}
	clear(c.req.Header)
	c.req.Body, c.body.left = nil, 0
	return keep
}

func (c *conn) logf(format string, args ...any) {
	if l := c.server.Std.ErrorLog; l != nil {
		l.Printf(format, args...)
	}
}

// lingers is how long a client may take to see an answer that came before it had sent its whole request: a connection
// that is closed with bytes unread is reset, and the answer may be lost. net/http's value.
const lingers = 500 * time.Millisecond

func (c *conn) lingerClose() {
	half, ok := c.net.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	// Reading lets a client that sends first and reads then come to reading, and ends with the client or the server.
	_ = c.net.SetReadDeadline(time.Now().Add(lingers))
	_, _ = io.Copy(io.Discard, c.net)
}

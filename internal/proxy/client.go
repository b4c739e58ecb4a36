package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Listener wraps the listener that clients connect to. With ConnContext in the same http.Server, requests cost less:
// net/http watches for a client that leaves by a goroutine that reads from its connection, and sets seven deadlines
// for each request. Where the system has better means, the first is done by epoll, for requests that take longer than
// an instant, and the second when a read finds that it has to wait. Connections that are no TCP, and systems without
// epoll, are left as they are.
func Listener(l net.Listener) net.Listener {
	if !canWatch {
		return l
	}
	return clientListener{l}
}

// ConnContext makes connections of Listener's known to requests; it is for http.Server.ConnContext.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if client, ok := c.(*clientConn); ok {
		return context.WithValue(ctx, connKey{}, client)
	}
	return ctx
}

type connKey struct{}

// clientOf returns the connection that a request came by, nil if it is not one of Listener's, or not the request's alone
// as with HTTP/2.
func clientOf(r *http.Request) *clientConn {
	if r.ProtoMajor != 1 {
		return nil
	}
	c, _ := r.Context().Value(connKey{}).(*clientConn)
	return c
}

type clientListener struct{ net.Listener }

func (l clientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return &clientConn{TCPConn: tcp}, nil
	}
	return c, err
}

// clientConn is a client's connection under net/http's server.
type clientConn struct {
	*net.TCPConn

	mu      sync.Mutex
	watched bool      // a handler sees for itself whether the client leaves
	reading bool      // a Read is under way
	wanted  time.Time // the deadline for reading that was asked for
	set     time.Time // the one that the socket has: wanted or, while nobody waits, any
}

// watch says whether the running handler looks after the client itself. It is switched off before the handler ends.
func (c *clientConn) watch(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = on
}

// Read reads, with the deadline wanted.
func (c *clientConn) Read(p []byte) (int, error) {
	for {
		if !c.begin(p) {
			return 0, nil
		}
		n, err := c.TCPConn.Read(p)
		if !c.again(n, err) {
			return n, err
		}
	}
}

// begin makes ready for a read. It reports false for the read that net/http makes beside a handler, of one byte, only
// to see whether the client leaves: that it got nothing ends its watch without harm.
func (c *clientConn) begin(p []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched && len(p) == 1 {
		return false
	}
	c.reading = true
	if !c.set.IsZero() && c.set.Before(c.wanted) {
		return true // if it passes first, again sets the later one
	}
	if !c.set.Equal(c.wanted) {
		c.apply()
	}
	return true
}

// again ends a read and reports whether it has to be repeated, since only an older, earlier deadline passed.
func (c *clientConn) again(n int, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || c.set.Equal(c.wanted) {
		return false
	}
	if !c.wanted.IsZero() && !time.Now().Before(c.wanted) {
		return false
	}
	c.apply()
	return true
}

func (c *clientConn) apply() {
	c.set = c.wanted
	_ = c.TCPConn.SetReadDeadline(c.set) // fails on a closed connection, which a read sees
}

// SetReadDeadline sets the deadline for reading. A read that waits heeds it at once.
func (c *clientConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wanted = t; c.reading {
		c.apply()
	}
	return nil
}

// SetDeadline sets both deadlines.
func (c *clientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

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

// Listener wraps the listener that clients connect to. With ConnContext in the same server, requests cost less: a
// deadline for reading is given to the socket only when a read has to wait and would not end in time, and a client that
// leaves is noticed by epoll, without anybody who reads, and one that takes nothing for clientPatience is given up whatever is written to it.
// Connections that are no TCP, and systems without epoll, are left as they are.
func Listener(l net.Listener) net.Listener {
	if !canWatch {
		return l
	}
	return clientListener{l, clientPatience}
}

// ConnContext makes connections of Listener's known to requests; it is for http.Server.ConnContext.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if inner, ok := c.(interface{ Unwrap() net.Conn }); ok { // handed over to net/http
		c = inner.Unwrap()
	}
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

type clientListener struct {
	net.Listener
	patience time.Duration
}

func (l clientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return newClientConn(tcp, l.patience), nil
	}
	return c, err
}

// clientConn is a client's connection under net/http's server.
type clientConn struct {
	*net.TCPConn

	mu      sync.Mutex
	reading bool      // a Read is under way
	wanted  time.Time // the deadline for reading that was asked for
	set     time.Time // the one that the socket has: wanted or, while nobody waits, any
	writeBy time.Time // the deadline for writing that was asked for

	patience time.Duration
	writing  sync.Mutex // held by a Write
	out      atOnce
}

func newClientConn(c *net.TCPConn, patience time.Duration) *clientConn {
	client := &clientConn{TCPConn: c, patience: patience}
	client.out.init(c)
	return client
}

// Write writes p. Most writes find room at once. One that does not waits for patience at most, unless a deadline was set.
func (c *clientConn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.out.write(p)
	if err != nil || n == len(p) {
		return n, err
	}
	c.limitWrite(time.Now().Add(c.patience))
	m, err := c.TCPConn.Write(p[n:])
	c.limitWrite(time.Time{})
	return n + m, err
}

// limitWrite gives the socket a deadline for writing if none was asked for.
func (c *clientConn) limitWrite(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writeBy.IsZero() {
		_ = c.TCPConn.SetWriteDeadline(t) // fails on a closed connection, which a write sees
	}
}

// SetWriteDeadline sets the deadline for writing.
func (c *clientConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy = t
	return c.TCPConn.SetWriteDeadline(t)
}

// Read reads, with the deadline wanted.
func (c *clientConn) Read(p []byte) (int, error) {
	for {
		c.begin()
		n, err := c.TCPConn.Read(p)
		if !c.again(n, err) {
			return n, err
		}
	}
}

// begin makes ready for a read.
func (c *clientConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = true
	sooner := !c.set.IsZero() && c.set.Before(c.wanted) // if it passes first, again sets the later one
	if !sooner && !c.set.Equal(c.wanted) {
		c.apply()
	}
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

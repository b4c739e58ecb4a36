package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"evenkeel/internal/llm"
)

// transport is net/http's Transport: HTTP/2 where the server speaks it, HTTP/1.1 elsewhere. It carries TLS, and
// everything on systems where a connection cannot be probed.
type transport struct{ std *http.Transport }

func newTransport(dialer *net.Dialer) *transport {
	return &transport{&http.Transport{
		Proxy: nil, // never from the environment by surprise
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &patientConn{Conn: c}, nil
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialer.Timeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // bytes pass as they come
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}}
}

func (t *transport) closeIdle() { t.std.CloseIdleConnections() }

func (t *transport) do(ctx context.Context, req *http.Request, body [3][]byte) (*http.Response, error) {
	var seen trace
	if req.ContentLength > 0 {
		req.Body = &pieces{parts: body}
		req.GetBody = func() (io.ReadCloser, error) { return &pieces{parts: body}, nil }
	}
	if req.Header["User-Agent"] == nil {
		req.Header["User-Agent"] = []string{""} // keeps net/http from adding its own
	}
	res, err := t.std.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, seen.hooks())))
	if err != nil {
		return nil, seen.classify(err)
	}
	return res, nil
}

// pieces reads byte slices one after another without joining them.
type pieces struct {
	parts [3][]byte
	at    int
}

func (p *pieces) Read(b []byte) (int, error) {
	for p.at < len(p.parts) {
		if n := copy(b, p.parts[p.at]); n > 0 {
			p.parts[p.at] = p.parts[p.at][n:]
			return n, nil
		}
		p.at++
	}
	return 0, io.EOF
}

func (p *pieces) Close() error { return nil }

// trace notes how far a request came.
type trace struct {
	connected, reused, wrote, answered atomic.Bool
}

func (t *trace) hooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			t.connected.Store(true)
			t.reused.Store(i.Reused)
			t.wrote.Store(false) // the transport itself may start over on a new connection
		},
		WroteHeaders:         func() { t.wrote.Store(true) },
		GotFirstResponseByte: func() { t.answered.Store(true) },
	}
}

func (t *trace) classify(err error) *Error {
	if !t.connected.Load() {
		return &Error{Class: llm.Connect, Unreachable: true, Err: err}
	}
	return &Error{Class: brokenWhile(connectionBroke(err), t.reused.Load(), t.answered.Load()), Sent: t.wrote.Load(), Err: err}
}

// streamReset has the shape in which net/http shows, to errors.As, that the server gave an HTTP/2 stream up.
type streamReset struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (s streamReset) Error() string { return "the stream was reset" }

// patientConn does not report that a write failed: an endpoint that refuses a large body early answers and
// closes while we still write, and its answer would be lost. What happened shows when the answer is read.
type patientConn struct {
	net.Conn
	broken atomic.Bool
}

func (c *patientConn) Write(b []byte) (int, error) {
	if c.broken.Load() {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	if err == nil || errors.Is(err, net.ErrClosed) {
		return n, err
	}
	c.broken.Store(true)
	return len(b), nil
}

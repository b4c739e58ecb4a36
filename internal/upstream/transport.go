package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"evenkeel/internal/llm"
)

// transport is net/http's Transport: HTTP/2 where the server speaks it, HTTP/1.1 elsewhere. It carries TLS, and
// everything on systems where a connection cannot be probed.
type transport struct {
	std  *http.Transport
	base url.URL
}

func newTransport(dialer *net.Dialer, base *url.URL) *transport {
	return &transport{base: *base, std: &http.Transport{
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

func (t *transport) stale() { t.closeIdle() }

func (t *transport) do(stop *Stop, to *target, r *Request) (*http.Response, error) {
	var seen trace
	ctx, cancel := context.WithCancel(context.Background())
	if !stop.enter(interruptFunc(cancel)) {
		cancel()
		return nil, &Error{Class: llm.None, Err: context.Canceled}
	}
	up := &upload{parts: r.Body}
	res, err := t.std.RoundTrip(t.request(httptrace.WithClientTrace(ctx, seen.hooks()), to, r, up))
	if err != nil {
		stop.leave()
		cancel()
		up.end()
		return nil, seen.classify(err)
	}
	res.Body = &transportBody{ReadCloser: res.Body, stop: stop, cancel: cancel, up: up}
	return res, nil
}

func (t *transport) request(ctx context.Context, to *target, r *Request, up *upload) *http.Request {
	u := t.base
	u.Path, u.RawQuery, _ = strings.Cut(to.uri(r), "?")
	if path, err := url.PathUnescape(u.Path); err == nil {
		u.Path, u.RawPath = path, u.Path
	}
	req := &http.Request{Method: r.Method, URL: &u, Header: to.header(r.Header), Host: to.host, ContentLength: r.length(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if req.Header["User-Agent"] == nil {
		req.Header["User-Agent"] = []string{""} // keeps net/http from adding its own
	}
	if req.ContentLength > 0 {
		req.Body = up.reader()
		req.GetBody = func() (io.ReadCloser, error) { return up.reader(), nil }
	}
	return req.WithContext(ctx)
}

// interruptFunc makes the end of a context that of a call.
type interruptFunc context.CancelFunc

func (f interruptFunc) interrupt() { f() }

// transportBody is an answer's body. With its end, the call is over.
type transportBody struct {
	io.ReadCloser
	stop   *Stop // nil when the call is over
	cancel context.CancelFunc
	up     *upload
}

func (b *transportBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.over()
	}
	return n, err
}

func (b *transportBody) Close() error {
	if b.stop == nil {
		return nil
	}
	b.over()
	return b.ReadCloser.Close()
}

func (b *transportBody) over() {
	if b.stop == nil {
		return
	}
	b.stop.leave()
	b.stop = nil
	b.cancel()
	b.up.end()
}

var errUploadEnded = errors.New("the call is over")

// upload is a request's body in the hands of net/http, which may read it after the answer came.
type upload struct {
	mu    sync.Mutex
	ended bool
	parts [3][]byte
}

// end returns when the parts are not read any more.
func (u *upload) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended, u.parts = true, [3][]byte{}
}

func (u *upload) reader() io.ReadCloser {
	u.mu.Lock()
	defer u.mu.Unlock()
	return &pieces{from: u, rest: u.parts}
}

// pieces reads byte slices one after another without joining them.
type pieces struct {
	from *upload
	rest [3][]byte
	at   int
}

func (p *pieces) Read(b []byte) (int, error) {
	p.from.mu.Lock()
	defer p.from.mu.Unlock()
	if p.from.ended {
		return 0, errUploadEnded
	}
	for p.at < len(p.rest) {
		if n := copy(b, p.rest[p.at]); n > 0 {
			p.rest[p.at] = p.rest[p.at][n:]
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

package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/internal/llm"
)

const (
	// idleHTTP2 is how long an unused HTTP/2 connection is kept: its server says so before it closes it.
	idleHTTP2 = 90 * time.Second
	// quiet is how long an HTTP/2 connection may be silent before it is asked whether it still lives, and how long it
	// has to answer that.
	quiet = 15 * time.Second
)

// transport is net/http's Transport. It carries HTTP/2, over connections that were made as all others; and
// everything on systems where a connection cannot be looked into.
type transport struct {
	std    *http.Transport
	base   url.URL
	dialer *dialer
	other  *pool // for what turns out not to speak HTTP/2; nil: it is carried here too

	mu   sync.Mutex
	made *conn // speaks HTTP/2 and is not used yet
}

func newTransport(d *dialer, base, proxy *url.URL) *transport {
	t := &transport{base: *base, dialer: d}
	t.std = &http.Transport{
		Proxy: http.ProxyURL(proxy), // never from the environment
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			if d.proxy == "" {
				addr = d.addr
			}
			raw, err := d.connect(ctx, addr)
			if err != nil {
				return nil, err
			}
			s, err := newSocket(raw)
			if err == nil {
				s.patient = true
			}
			return s, err
		},
		DialTLSContext:         t.dialTLS,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: quiet, PingTimeout: quiet},
		DisableCompression:     true, // bytes pass as they come
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	if base.Scheme == "https" {
		t.std.Proxy = nil // the dialer knows
	}
	return t
}

// takeOver makes t carry only what speaks HTTP/2 and p the rest: each gives the other what it found.
func (t *transport) takeOver(p *pool) {
	t.other, p.handOver = p, t.take
	t.std.IdleConnTimeout = idleHTTP2
}

// take keeps a connection that speaks HTTP/2 for the request that comes next. One is enough for many.
func (t *transport) take(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made != nil {
		c.sock.interrupt()
		return
	}
	t.made = c
}

func (t *transport) taken() *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.made
	t.made = nil
	return c
}

func (t *transport) dialTLS(ctx context.Context, _, _ string) (net.Conn, error) {
	if c := t.taken(); c != nil {
		c.sock.patient = true
		return c.tls, nil
	}
	s, secured, err := t.dialer.dial(ctx)
	if err != nil {
		return nil, err
	}
	if t.other != nil && secured.ConnectionState().NegotiatedProtocol != "h2" {
		t.other.add(newConn(t.other, s, secured))
		return nil, errNotHTTP2
	}
	s.patient = true
	return secured, nil
}

// dropUnused ends a connection that was made for a request which then found another one.
func (t *transport) dropUnused() {
	if c := t.taken(); c != nil {
		c.sock.interrupt()
	}
}

func (t *transport) closeIdle() {
	t.dropUnused()
	t.std.CloseIdleConnections()
}

func (t *transport) do(stop *Stop, to *target, r *Request) (*http.Response, error) {
	var seen trace
	ctx, cancel := context.WithCancel(context.Background())
	if !stop.enter(interruptFunc(cancel)) {
		cancel()
		return nil, &Error{Class: llm.None, Err: context.Canceled}
	}
	up := &upload{parts: r.Body}
	res, err := t.std.RoundTrip(t.request(ctx, &seen, to, r, up))
	t.dropUnused()
	if err != nil {
		stop.leave()
		cancel()
		up.end()
		switch {
		case errors.Is(err, errNotHTTP2):
			return nil, err
		case errors.Is(err, errRefused):
			return nil, &Error{Class: llm.Reset, Err: errRefused}
		}
		return nil, seen.classify(err)
	}
	if n := len(res.Header); n > maxFields {
		_ = res.Body.Close() // unread
		stop.leave()
		cancel()
		up.end()
		return nil, &Error{Class: llm.Malformed, Sent: true, Err: errTooManyFields}
	}
	res.Body = &transportBody{ReadCloser: res.Body, stop: stop, cancel: cancel, up: up}
	return res, nil
}

func (t *transport) request(ctx context.Context, seen *trace, to *target, r *Request, up *upload) *http.Request {
	u := t.base
	u.Path, u.RawQuery, _ = strings.Cut(to.uri(r), "?")
	if path, err := url.PathUnescape(u.Path); err == nil {
		u.Path, u.RawPath = path, u.Path
	}
	req := &http.Request{Method: r.Method, URL: &u, Header: to.header(r), Host: to.host, ContentLength: r.length(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if req.Header["User-Agent"] == nil {
		req.Header["User-Agent"] = []string{""} // keeps net/http from adding its own
	}
	if req.ContentLength > 0 {
		req.Body = up.reader()
		req.GetBody = func() (io.ReadCloser, error) {
			if seen.heads.Load() > 1 { // net/http would go on for a minute
				return nil, errRefused
			}
			return up.reader(), nil
		}
	}
	return req.WithContext(httptrace.WithClientTrace(ctx, seen.hooks()))
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

// errRefused says that a request was not looked at, and not when it was sent again either: the endpoint is too busy, or goes.
var errRefused = errors.New("the endpoint refused the request twice, without looking at it")

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

	heads atomic.Int32 // that were written, on one connection after another
}

func (t *trace) hooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			t.connected.Store(true)
			t.reused.Store(i.Reused)
			t.wrote.Store(false) // the transport itself may start over on a new connection
		},
		WroteHeaders: func() {
			t.wrote.Store(true)
			t.heads.Add(1)
		},
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

// Package upstream holds the connections to model endpoints: it sends one request to one endpoint and says,
// when that fails, what kind of failure it was and whether anything had been sent.
package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/secret"
)

const (
	// idleTimeout is how long an unused connection is kept: shorter than the 5 s after which llama.cpp and
	// Python's servers close theirs, so that a request rarely meets a connection that is just being closed.
	idleTimeout = 4 * time.Second
	// maxIdle bounds unused connections per endpoint.
	maxIdle = 1024
	// maxHeaderBytes bounds the head of an answer.
	maxHeaderBytes = 256 << 10
)

// Options describe one endpoint.
type Options struct {
	Name           string
	URL            string // base, without a final slash and without /v1
	Kind           llm.Kind
	APIKey         secret.String // sent with every request; zero sends none
	ConnectTimeout time.Duration // TCP and TLS handshakes, each; 0 = 2 s
}

// Endpoint sends requests to one base URL. Safe for concurrent use.
type Endpoint struct {
	name      string
	base      *url.URL
	kind      llm.Kind
	key       secret.String
	transport *http.Transport
}

// New prepares an endpoint; nothing is connected yet.
func New(o Options) (*Endpoint, error) {
	base, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: URL: %w", o.Name, err)
	}
	timeout := o.ConnectTimeout
	if timeout == 0 {
		timeout = 2 * time.Second
	}
	dialer := &net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second}
	return &Endpoint{
		name: o.Name, base: base, kind: o.Kind, key: o.APIKey,
		transport: &http.Transport{
			Proxy: nil, // never from the environment by surprise
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dialer.DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return &patientConn{Conn: c}, nil
			},
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    timeout,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // bytes pass as they come
			MaxIdleConns:           0,
			MaxIdleConnsPerHost:    maxIdle,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
	}, nil
}

// Name returns the endpoint's configured name.
func (e *Endpoint) Name() string { return e.name }

// Kind returns what the endpoint was configured or found to be.
func (e *Endpoint) Kind() llm.Kind { return e.kind }

// RoundTripper returns the transport, for probes of the same endpoint.
func (e *Endpoint) RoundTripper() http.RoundTripper { return e.transport }

// Close drops unused connections. Running requests go on.
func (e *Endpoint) Close() { e.transport.CloseIdleConnections() }

// Request is what goes upstream.
type Request struct {
	Method string
	Path   string      // escaped, begins with a slash
	Query  string      // raw, without the question mark
	Header http.Header // already filtered, owned by this request; the credential is added to it
	Body   [3][]byte   // sent one after another; all empty = no body
}

// Error says why there is no response.
type Error struct {
	Class       llm.Class // Connect, Reset, Stale, Malformed; None if the context ended
	Unreachable bool      // nothing answers at the address
	Sent        bool      // part of the request may have reached the endpoint
	Err         error
}

func (e *Error) Error() string { return e.Class.String() + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Do sends a request and returns when the response's head has come. The error is an *Error. Cancelling ctx
// ends it at once, also while the body is read. Redirects are not followed.
func (e *Endpoint) Do(ctx context.Context, r *Request) (*http.Response, error) {
	var seen trace
	req := &http.Request{
		Method: r.Method,
		URL:    e.target(r),
		Header: r.Header,
		Host:   e.base.Host,
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	e.authorize(r.Header)
	setBody(req, r.Body)
	res, err := e.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, seen.hooks())))
	if err == nil {
		return res, nil
	}
	failed := seen.classify(err)
	if ctx.Err() != nil {
		failed.Class, failed.Unreachable = llm.None, false
	}
	if failed.Class == llm.Stale {
		e.transport.CloseIdleConnections() // its siblings are likely as old
	}
	return nil, failed
}

// authorize adds the endpoint's own credential and what its kind always wants to see.
func (e *Endpoint) authorize(h http.Header) {
	for _, d := range e.kind.DefaultHeaders {
		if h.Get(d.Name) == "" {
			h.Set(d.Name, d.Value)
		}
	}
	if !e.key.IsZero() {
		h.Set(e.kind.CredentialHeader, e.kind.CredentialPrefix+e.key.Reveal())
	}
}

func (e *Endpoint) target(r *Request) *url.URL {
	u := *e.base
	raw := u.EscapedPath() + r.Path
	if path, err := url.PathUnescape(raw); err == nil {
		u.Path, u.RawPath = path, raw
	} else {
		u.Path = raw
	}
	u.RawQuery = r.Query
	return &u
}

// joinBelow is the size up to which a body in pieces is joined: net/http sends the head and a body that it
// knows to be in memory in one write, which saves more than the copy costs.
const joinBelow = 64 << 10

func setBody(req *http.Request, parts [3][]byte) {
	total := 0
	for _, p := range parts {
		total += len(p)
	}
	if total == 0 {
		return
	}
	req.ContentLength = int64(total)
	if len(parts[0]) < total && total > joinBelow {
		req.Body = &pieces{parts: parts}
		req.GetBody = func() (io.ReadCloser, error) { return &pieces{parts: parts}, nil }
		return
	}
	whole := parts[0]
	if len(whole) < total {
		whole = slices.Concat(parts[0], parts[1], parts[2])
	}
	req.Body = io.NopCloser(bytes.NewReader(whole))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }
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
	e := &Error{Err: err, Sent: t.wrote.Load()}
	switch {
	case !t.connected.Load():
		e.Class, e.Unreachable, e.Sent = llm.Connect, true, false
	case t.answered.Load() && !connectionBroke(err):
		e.Class = llm.Malformed
	case t.reused.Load() && !t.answered.Load():
		e.Class = llm.Stale
	default:
		e.Class = llm.Reset
	}
	return e
}

func connectionBroke(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// BrokenBody names the class of an error met while a response's body is read.
func BrokenBody(err error) llm.Class {
	var netErr net.Error
	if connectionBroke(err) || errors.As(err, &netErr) {
		return llm.Reset
	}
	return llm.Malformed
}

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

// Same reports whether two Options make endpoints that behave alike.
func (o Options) Same(p Options) bool {
	return o.Name == p.Name && o.URL == p.URL && o.Kind.Name == p.Kind.Name &&
		o.APIKey.Reveal() == p.APIKey.Reveal() && o.ConnectTimeout == p.ConnectTimeout
}

// Package upstream holds the connections to model endpoints: it sends one request to one endpoint and says,
// when that fails, what kind of failure it was and whether anything had been sent.
package upstream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/secret"
)

// Options describe one endpoint.
type Options struct {
	Name           string
	URL            string // base, without a final slash and without /v1
	Address        string // host:port to connect to in place of the URL's, which stays what is asked for; empty = the URL's
	Kind           llm.Kind
	APIKey         secret.String // sent with every request; zero sends none
	ConnectTimeout time.Duration // for name, TCP, proxy and TLS together; 0 = 2 s
	TLS            TLS           // for https
	// Proxy is the egress proxy on the way, http://host:port: https goes through it by CONNECT, http in absolute
	// form. Empty = none; the environment's is never used.
	Proxy string
	// MaxConnections bounds the HTTP/1.1 connections that are open at one time: a request over it waits for its turn,
	// until it is cancelled. 0 = no bound. It does not hold for an endpoint that chooses HTTP/2, where one connection
	// carries many requests and the server says how many.
	MaxConnections int
}

// Same reports whether two Options make endpoints that behave alike.
func (o Options) Same(p Options) bool {
	return o.Name == p.Name && o.URL == p.URL && o.Address == p.Address && o.Kind.Name == p.Kind.Name && o.APIKey.Reveal() == p.APIKey.Reveal() &&
		o.ConnectTimeout == p.ConnectTimeout && o.TLS == p.TLS && o.Proxy == p.Proxy && o.MaxConnections == p.MaxConnections
}

// Endpoint sends requests to one base URL. Safe for concurrent use.
type Endpoint struct {
	target target
	key    secret.String
	finder secret.Finder // of key
	pool   *pool         // HTTP/1.1; nil where only net/http can keep connections
	std    *transport    // HTTP/2; nil where there is none
	http2  atomic.Bool   // what the endpoint chose last
}

// New prepares an endpoint; nothing is connected yet. Certificates are read.
func New(o Options) (*Endpoint, error) {
	e, err := o.endpoint()
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", o.Name, err)
	}
	return e, nil
}

func (o Options) endpoint() (*Endpoint, error) {
	base, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("URL: %w", err)
	}
	proxy, err := o.proxy()
	if err != nil {
		return nil, err
	}
	if o.MaxConnections < 0 {
		return nil, fmt.Errorf("max_connections is %d, must be 0 (no bound) or more", o.MaxConnections)
	}
	var secure *credentials
	switch {
	case base.Scheme == "https":
		if secure, err = newCredentials(o.TLS, base.Hostname()); err != nil {
			return nil, err
		}
	case o.TLS != TLS{}:
		return nil, fmt.Errorf("tls is set, but the URL %s is not https", base.Redacted())
	}
	timeout := o.ConnectTimeout
	if timeout == 0 {
		timeout = 2 * time.Second
	}
	e := &Endpoint{target: newTarget(base, o.Kind, o.APIKey.Reveal()), key: o.APIKey, finder: secret.NewFinder(o.APIKey)}
	d := newDialer(base, proxy, secure, timeout)
	if o.Address != "" {
		d.addr = o.Address
	}
	if !ownConns {
		e.std = newTransport(d, base, proxy)
		return e, nil
	}
	e.pool = &pool{dialer: d, idleTimeout: idleTimeout, most: o.MaxConnections}
	if secure != nil {
		e.std = newTransport(d, base, nil)
		e.std.takeOver(e.pool)
	} else if proxy != nil {
		e.target.form = base.Scheme + "://" + e.target.host
	}
	return e, nil
}

func (o Options) proxy() (*url.URL, error) {
	if o.Proxy == "" {
		return nil, nil
	}
	u, err := url.Parse(o.Proxy)
	switch {
	case err != nil:
		return nil, errors.New("proxy is not a URL; write http://host:port")
	case u.User != nil:
		return nil, errors.New("proxy holds a user or password, which is not supported; write http://host:port")
	case u.Scheme != "http" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "":
		return nil, fmt.Errorf("proxy %s: write http://host:port", o.Proxy)
	}
	return u, nil
}

// HasKey reports whether requests carry a credential of the endpoint's own.
func (e *Endpoint) HasKey() bool { return !e.key.IsZero() }

// Leaks reports whether an answer holds the endpoint's own credential, as some servers' complaints do, in whatever spelling.
func (e *Endpoint) Leaks(h http.Header, body []byte) bool {
	if e.key.IsZero() {
		return false
	}
	for _, values := range h {
		for _, v := range values {
			if e.finder.In([]byte(v)) {
				return true
			}
		}
	}
	return e.finder.In(body)
}

// Close drops unused connections. Running requests go on.
func (e *Endpoint) Close() {
	if e.pool != nil {
		e.pool.closeIdle()
	}
	if e.std != nil {
		e.std.closeIdle()
	}
}

// Error says why there is no response.
type Error struct {
	Class       llm.Class // Connect, Reset, Stale, Malformed; None if the call was cancelled
	Unreachable bool      // nothing answers at the address
	Sent        bool      // part of the request may have reached the endpoint
	Err         error
}

func (e *Error) Error() string { return e.Class.String() + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Do sends a request and returns when the response's head has come. The error is an *Error. Cancelling stop
// ends it at once, also while the body is read; stop is in use until then. Redirects are not followed. The
// response's body must be closed.
func (e *Endpoint) Do(stop *Stop, r *Request) (*http.Response, error) {
	res, err := e.carry(stop, r)
	if err == nil {
		return res, nil
	}
	var failed *Error
	if !errors.As(err, &failed) {
		failed = &Error{Class: llm.Connect, Unreachable: true, Err: err}
	}
	switch {
	case stop.Cancelled():
		failed.Class, failed.Unreachable = llm.None, false
	case failed.Class == llm.Stale && e.pool != nil:
		e.pool.closeIdle()
	}
	return nil, failed
}

var (
	errHTTP2    = errors.New("the endpoint chose HTTP/2")
	errNotHTTP2 = errors.New("the endpoint did not choose HTTP/2")
	errFickle   = errors.New("the endpoint chooses HTTP/2 and HTTP/1.1 by turns")
)

// carry sends a request by the protocol that the endpoint chose last. Where it chooses another one now, a
// connection is there already and nothing was sent.
func (e *Endpoint) carry(stop *Stop, r *Request) (*http.Response, error) {
	for range 4 {
		if e.pool == nil || e.http2.Load() {
			res, err := e.std.do(stop, &e.target, r)
			if !errors.Is(err, errNotHTTP2) {
				return res, err
			}
			e.http2.Store(false)
		}
		res, err := e.pool.do(stop, &e.target, r)
		if err != errHTTP2 {
			return res, err
		}
		e.http2.Store(true)
	}
	return nil, errFickle
}

// brokenWhile classifies a failure after the connection was made, where an answer is not whole because the
// connection broke, or else is not what it may be.
func brokenWhile(broke, reused, answered bool) llm.Class {
	switch {
	case !answered && reused:
		return llm.Stale
	case answered && !broke:
		return llm.Malformed
	}
	return llm.Reset
}

func connectionBroke(err error) bool {
	var socket net.Error
	var stream streamReset
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &socket) || errors.As(err, &stream)
}

// BrokenBody names the class of an error met while a response's body is read.
func BrokenBody(err error) llm.Class {
	if connectionBroke(err) {
		return llm.Reset
	}
	return llm.Malformed
}

// Package upstream holds the connections to model endpoints: it sends one request to one endpoint and says,
// when that fails, what kind of failure it was and whether anything had been sent.
package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
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

// Same reports whether two Options make endpoints that behave alike.
func (o Options) Same(p Options) bool {
	return o.Name == p.Name && o.URL == p.URL && o.Kind.Name == p.Kind.Name &&
		o.APIKey.Reveal() == p.APIKey.Reveal() && o.ConnectTimeout == p.ConnectTimeout
}

// Endpoint sends requests to one base URL. Safe for concurrent use.
type Endpoint struct {
	target  target
	key     secret.String
	carrier carrier
}

// carrier brings a request to an address and returns the answer, whose body must be closed. It fails with an
// *Error.
type carrier interface {
	do(stop *Stop, t *target, r *Request) (*http.Response, error)
	closeIdle()
	stale() // a connection died just when it was used again
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
	e := &Endpoint{target: newTarget(base, o.Kind, o.APIKey.Reveal()), key: o.APIKey}
	if base.Scheme == "https" || !canProbe {
		e.carrier = newTransport(dialer, base)
	} else {
		e.carrier = newPlain(dialer, base)
	}
	return e, nil
}

// HasKey reports whether requests carry a credential of the endpoint's own.
func (e *Endpoint) HasKey() bool { return !e.key.IsZero() }

// Leaks reports whether an answer holds the endpoint's own credential, as some servers' complaints do.
func (e *Endpoint) Leaks(h http.Header, body []byte) bool {
	key := e.key.Reveal()
	if key == "" {
		return false
	}
	for _, values := range h {
		for _, v := range values {
			if strings.Contains(v, key) {
				return true
			}
		}
	}
	return bytes.Contains(body, []byte(key))
}

// Close drops unused connections. Running requests go on.
func (e *Endpoint) Close() { e.carrier.closeIdle() }

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
	res, err := e.carrier.do(stop, &e.target, r)
	if err == nil {
		return res, nil
	}
	var failed *Error
	if errors.As(err, &failed) {
		if stop.Cancelled() {
			failed.Class, failed.Unreachable = llm.None, false
		}
		if failed.Class == llm.Stale {
			e.carrier.stale()
		}
	}
	return nil, err
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

package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
)

// The headers of ours.
const (
	headerPrefix     = "X-Evenkeel-"
	headerID         = "X-Evenkeel-Id"
	headerModel      = "X-Evenkeel-Model"
	headerDepth      = "X-Evenkeel-Fallback-Depth"
	headerDeployment = "X-Evenkeel-Deployment"
	headerAttempts   = "X-Evenkeel-Attempts"
	headerDecision   = "X-Evenkeel-Decision"
	headerTimeout    = "X-Evenkeel-Timeout"
	headerFallback   = "X-Evenkeel-Fallback"
	headerPin        = "X-Evenkeel-Pin"
	headerExclude    = "X-Evenkeel-Exclude"
	headerSession    = "X-Evenkeel-Session"
	headerHops       = "X-Evenkeel-Hops" // how many of us the request has passed; to upstream only
)

// forwarded are the request headers that go upstream. Everything else stays here: a header that is not known
// to be harmless may carry a credential or change the framing.
var forwarded = set(
	"Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "User-Agent",
	"Idempotency-Key", "If-None-Match", "Range", "Traceparent", "Tracestate", "X-Request-Id", "X-Client-Request-Id",
	"X-Session-Id", "X-Data-Parallel-Rank", "Endpoint-Load-Metrics-Format", "Http-Referer", "X-Title", "Priority",
	"X-App",
)

// forwardedPrefixes are families of request headers that go upstream.
var forwardedPrefixes = []string{"Anthropic-", "Openai-", "X-Stainless-"}

// frequent are the members of these families that SDKs send with every request: known by name, they need no search.
var frequent = set(
	"Anthropic-Version", "Anthropic-Beta", "Openai-Organization", "Openai-Project", "Openai-Beta",
	"X-Stainless-Arch", "X-Stainless-Async", "X-Stainless-Lang", "X-Stainless-Os", "X-Stainless-Package-Version", "X-Stainless-Read-Timeout",
	"X-Stainless-Retry-Count", "X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Timeout",
)

// neverForwarded go upstream under no configuration but `credentials: client`, or not at all.
var neverForwarded = set(
	"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Proxy-Authorization", "Cookie",
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
	"Host", "Expect", "Proxy-Authenticate",
)

// withheld are the response headers that stay here: they speak of the connection to upstream, or of us.
var withheld = set(
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Proxy-Authenticate", "Proxy-Authorization", "Content-Length", "Alt-Svc", "Strict-Transport-Security", "Set-Cookie",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials",
)

// verdict is what becomes of a request header.
type verdict uint8

const (
	unknown verdict = iota // it goes if it is of a family, or if forward_headers names it
	goes
	stays
)

// verdicts are those on the headers that have a name here.
var verdicts = func() map[string]verdict {
	m := map[string]verdict{}
	for name := range forwarded {
		m[name] = goes
	}
	for name := range frequent {
		m[name] = goes
	}
	for name := range neverForwarded {
		m[name] = stays
	}
	return m
}()

// hopsSent are the values of headerHops by how many of us came before. They are shared and never changed.
var hopsSent = [mostHops][]string{{"1"}, {"2"}, {"3"}}

// HeaderSet is a set of header names.
type HeaderSet map[string]bool

// NewHeaderSet returns the set of the names, whatever their case.
func NewHeaderSet(names []string) HeaderSet { return set(names...) }

func set(names ...string) HeaderSet {
	m := make(HeaderSet, len(names))
	for _, n := range names {
		m[textproto.CanonicalMIMEHeaderKey(n)] = true
	}
	return m
}

// requestHeader puts into out, which is empty, what goes upstream of a client's header, and returns it; nil makes a
// new one. The values are shared with in.
func (g *Generation) requestHeader(out, in http.Header) http.Header {
	if out == nil {
		out = make(http.Header, len(in)+1)
	}
	dropped := named(in)
	for name, values := range in {
		if g.forwards(name) && !dropped[name] {
			out[name] = values
		}
	}
	if g.PassCredential {
		for _, name := range keyHeaders {
			if v := in[name]; v != nil {
				out[name] = v
			}
		}
	}
	if n, ok := hops(in); ok {
		out[headerHops] = hopsSent[n]
	}
	return out
}

// forwards reports whether a request header, by its canonical name, goes upstream.
func (g *Generation) forwards(name string) bool {
	switch verdicts[name] {
	case goes:
		return true
	case stays:
		return false
	}
	if strings.HasPrefix(name, headerPrefix) {
		return false
	}
	if g.Forward[name] {
		return true
	}
	for _, p := range forwardedPrefixes {
		if strings.HasPrefix(name, p) {
			// CGI and what descends from it reads an underscore as a hyphen: such a name could pass for another.
			return !secretWords(name) && strings.IndexByte(name, '_') < 0
		}
	}
	return false
}

// secretWords reports whether a header of a forwarded family sounds like a credential.
func secretWords(name string) bool {
	for _, w := range []string{"Key", "Token", "Auth", "Secret"} {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// responseHeader copies what the client sees of upstream's header.
func responseHeader(out, in http.Header) {
	dropped := named(in)
	for name, values := range in {
		if !withheld[name] && !dropped[name] && !strings.HasPrefix(name, headerPrefix) {
			out[name] = values
		}
	}
}

// named returns the headers of h that Connection declares to be for this hop only.
func named(h http.Header) map[string]bool {
	var names map[string]bool
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.TrimSpace(name)
			if strings.EqualFold(name, "keep-alive") || strings.EqualFold(name, "close") {
				continue
			}
			name = textproto.CanonicalMIMEHeaderKey(name)
			// A client must not be able to strip what routing, framing or authentication rests on.
			if h[name] == nil || neverForwarded[name] || name == "Content-Type" {
				continue
			}
			if names == nil {
				names = map[string]bool{}
			}
			names[name] = true
		}
	}
	return names
}

// idBytes are what makes an id unique, before it is hexadecimal.
const idBytes = 12

// randoms is a stock of random bytes for ids: to ask for many at once costs hardly more than to ask for a few.
type randoms struct {
	all  [40 * idBytes]byte
	left []byte
}

var stocks = sync.Pool{New: func() any { return new(randoms) }}

// newID returns a fresh id for an exchange.
func newID() string {
	s := stocks.Get().(*randoms)
	if len(s.left) == 0 {
		_, _ = rand.Read(s.all[:]) // never fails (crypto/rand)
		s.left = s.all[:]
	}
	id := [len("ek-") + 2*idBytes]byte{'e', 'k', '-'}
	hex.Encode(id[len("ek-"):], s.left[:idBytes])
	s.left = s.left[idBytes:]
	stocks.Put(s)
	return string(id[:])
}

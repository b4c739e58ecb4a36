package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/textproto"
	"strings"
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

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[textproto.CanonicalMIMEHeaderKey(n)] = true
	}
	return m
}

// requestHeader returns what goes upstream of a client's header.
func (g *Generation) requestHeader(in http.Header) http.Header {
	out := make(http.Header, len(in))
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
	return out
}

func (g *Generation) forwards(name string) bool {
	if neverForwarded[name] || strings.HasPrefix(name, headerPrefix) {
		return false
	}
	if forwarded[name] {
		return true
	}
	for _, p := range forwardedPrefixes {
		if strings.HasPrefix(name, p) {
			return !secretWords(name)
		}
	}
	for _, f := range g.Forward {
		if textproto.CanonicalMIMEHeaderKey(f) == name {
			return true
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

// named returns the headers that Connection declares to be for this hop only.
func named(h http.Header) map[string]bool {
	lines := h["Connection"]
	if len(lines) == 0 {
		return nil
	}
	names := map[string]bool{}
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
			// A client must not be able to strip what routing, framing or authentication rests on.
			if !neverForwarded[name] && name != "Content-Type" {
				names[name] = true
			}
		}
	}
	return names
}

// newID returns a fresh id for an exchange.
func newID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return "ek-" + hex.EncodeToString(b[:])
}

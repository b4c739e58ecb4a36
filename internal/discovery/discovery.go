// Package discovery asks each configured URL which engine answers there and which models it serves, and keeps that
// fresh while the endpoint comes and goes. It only sends cheap GETs, believes nothing that it cannot check, and never
// takes an endpoint for down because a page is missing: unknown is not down.
package discovery

import (
	"context"
	"net/http"
	"time"

	"evenkeel/internal/secret"
)

// Target is one endpoint to ask.
type Target struct {
	// Name is what the operator calls the endpoint; it appears in errors.
	Name string
	// URL is canonical: without a final slash and without a final /v1.
	URL string
	// Kind is a name of the kinds table, or empty: then the endpoint is asked what it is.
	Kind string
	// APIKey is sent with every GET, to this URL only.
	APIKey secret.String
	// Models are those that the operator listed. If there are any, they are what is served, whatever the endpoint lists.
	Models []string
}

// Report is what is known of an endpoint after a probe. It is a value that nobody changes any more.
type Report struct {
	Target Target
	// Reachable is true if something answered HTTP at the address, with any status. A failed dial or TLS handshake, a
	// reset, an answer that is no HTTP and a timeout before the status line make it false.
	Reachable bool
	// Kind is the configured one, else as found; a server that gives no sign is openai-compatible. Empty: not known yet.
	Kind string
	// Version is the engine's own word for it, or empty.
	Version string
	// Models are in the order of the list. They stay as last known while the endpoint is down or gives no list. Nil: not
	// known; empty: it says that it serves none.
	Models []ModelInfo
	// KVTokens is how many tokens the engine's KV cache holds, over all its ranks; 0 if it does not say. For llama.cpp it
	// is slots × context, which is too much by the number of slots if the slots share one cache (its --kv-unified).
	KVTokens int
	// Ranks is how many data-parallel ranks are behind the server; 0 if it does not say.
	Ranks int
	// Refused is true if it did not list its models for want of a credential that it accepts (401, 403). Models that it
	// listed before stay.
	Refused bool
	// Err says what was not as expected, for people: with the path, the status and what to do. It never holds the key. It
	// may be set on a reachable endpoint.
	Err error
}

// ModelInfo is one model of an endpoint.
type ModelInfo struct {
	ID            string
	ContextWindow int    // tokens; 0 if unknown
	OwnedBy       string // owned_by as listed; may be empty
	Parent        string // of an adapter (LoRA), the model that it belongs to, as listed; empty if it is none
}

const (
	getTimeout   = 5 * time.Second  // for one GET with its body
	probeTimeout = 15 * time.Second // for all GETs of one probe
)

// Probe asks an endpoint everything once. It returns after 15 s at the latest, and as soon as ctx ends. A nil rt is
// http.DefaultTransport. Redirects are not followed.
func Probe(ctx context.Context, rt http.RoundTripper, t Target) Report {
	p := newProber(t, rt, getTimeout)
	p.round(ctx, false, func(Report) {})
	return p.last
}

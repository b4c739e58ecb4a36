package route

import (
	"time"

	"evenkeel/internal/prefix"
)

// Facts is all that routing may know about one client request. It is a value; it holds no body.
type Facts struct {
	ID           string    // the exchange's id, for people
	Seed         uint64    // the only source of randomness for this request's decisions
	Model        string    // the model the client asked for
	API          string    // what the path means: "chat", "embeddings", ...
	Tenant       string    // name of the virtual key, "" without authentication
	Arrived      time.Time // when the request came
	Stream       bool      // the client asked for a streamed answer
	PromptBytes  int       // bytes of text that become prompt tokens
	Prefix       []uint64  // hash chain of the prompt (llm.Prompt.AppendPrefix), valid while the request runs
	PrefixBytes  int       // bytes of text that one hash of Prefix stands for
	Text         uint64    // hash of the whole prompt (llm.Prompt.Text), by which a request that comes back is known
	Session      uint64    // keyed hash of what names the client's session (llm.Session), 0 = nothing does
	MaxOutput    int       // the request's own limit on output tokens, 0 = none given
	ClientRetry  int       // the client's own count of retries before this request
	Pin          string    // only this deployment or endpoint may serve, "" = any
	ExcludeNames []string  // deployments or endpoints that may not serve
}

// Query asks the Router for one attempt of a request.
type Query struct {
	Facts *Facts
	Model string    // the model of this attempt: the one asked for, or a fallback
	Draw  int       // ordinal of this decision within the request; seeds it together with Facts.Seed
	Tried []string  // IDs of deployments that this request already tried for this model
	Away  []string  // failure domains to stay out of, if there is another
	Until time.Time // who cannot be served by then need not wait, zero = waits for ever
	Held  *Refusal  // Wait: the refusal that it follows, if that was Held

	// Beside is where another attempt of the request is at work, nil = none is. What shares a scope with it may not serve:
	// a hedge to the same endpoint or account would wait for the same fault.
	Beside *Deployment

	released bool           // it was held, and is not again
	matches  []prefix.Match // what is found of the prompt, by memory.holder

	// Memory for the answer, so that who asks often need not allocate it; nil allocates. What was in it is lost. The
	// Lease must have ended before its memory is given again; a Decision is never changed once it was returned.
	Lease    *Lease
	Decision *Decision
}

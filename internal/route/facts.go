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
	Turns        Turns
	Text         uint64   // hash of the whole prompt (llm.Prompt.Text), by which a request that comes back is known
	Previous     uint64   // keyed hash of the id of the answer that the request goes on from, which only who gave it knows; 0 = it names none
	Session      uint64   // keyed hash of what names the client's session (llm.Session), 0 = nothing does
	MaxOutput    int      // the request's own limit on output tokens, 0 = none given
	ClientRetry  int      // the client's own count of retries before this request
	Pin          string   // only this deployment or endpoint may serve, "" = any
	ExcludeNames []string // deployments or endpoints that may not serve
}

// Turns says where in a prompt a model has spoken, or is to. It tells the turns of a conversation from other prompts that begin alike. The
// zero value is that of a prompt that is no conversation. Hashes depend on all that stands before.
type Turns struct {
	Opening uint64          // of all before the first answer: the same in all turns of a conversation. 0 = not known
	End     uint64          // of the whole prompt
	Text    int             // bytes of text that the whole prompt has, as blocks and turns count it: what is around it does not; 0 = not known
	Past    [PastTurns]Turn // places where an answer stands, the last first
}

// PastTurns is how many answers of a conversation are known by their places: the last, and those that it may go on from instead, as when
// one was given by another deployment.
const PastTurns = 2

// Turn is a place in a prompt where an answer stands: what stood before it was once the whole prompt. The zero value is none.
type Turn struct {
	Hash   uint64 // of what stands before: Turns.End of the turn before
	Blocks int32  // hashes of Facts.Prefix that are of what stands before alone
	Rest   int32  // bytes of text before it that these do not stand for
	Answer int32  // bytes of text that the answer has
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

	released bool // it was held, and is not again
	began    prefix.Beginnings
	matches  []prefix.Match // what is found of the prompt, by memory.holder

	// Memory for the answer, so that who asks often need not allocate it; nil allocates. What was in it is lost. The
	// Lease must have ended before its memory is given again; a Decision is never changed once it was returned.
	Lease    *Lease
	Decision *Decision
}

// Package trace is the format in which a balancer records its traffic: one line of JSON for each exchange, for the simulator to
// replay and for people to read. docs/trace.md describes it. It holds sizes, times, decisions and hashes, never text and never a
// key. The package is pure: who writes files is package ledger.
//
// How prompts begin alike is what a replay needs most, and what would take most room: a prompt of 100,000 tokens has 1,500
// blocks with a hash each. A line has but some of them (see Prefix): none that a line before has told, and of the rest all at
// first and then eight for each doubling of the length, and the last one. So a turn of a conversation costs two to five
// hashes of eight characters, and a new prompt of any length at most 80. What two prompts share is exact where the later one goes
// on where the earlier one ended, and within the first 16 blocks; where they part further on, it is at most an eighth too short.
package trace

import (
	"time"

	"evenkeel/internal/exchange"
)

// Version is that of the format. A reader refuses others.
const Version = 1

// Header stands before the lines of one process, and first in each file.
type Header struct {
	Version    int
	Program    string // version of the program that wrote it
	Key        string // stands for the secret that prefixes are hashed with: only hashes of one Key can be compared
	BlockBytes int    // bytes of prompt text that one block of a prefix is
}

// Entry is one exchange.
type Entry struct {
	At        time.Time // arrival, to the microsecond
	ID        string
	API       string
	Model     string // that was asked for
	Served    string // that answered, if it is another one: a fallback
	Tenant    string // name of the virtual key, "" = none
	Session   uint64 // keyed hash of the client's name for its session, 0 = it gave none
	Stream    bool
	Bytes     int // of text that becomes prompt tokens
	MaxOutput int // the request's own limit in tokens, 0 = none
	Retry     int // the client's own count of retries

	// What was expected, in tokens, when it was first decided on; 0 where the engine reported what it was.
	ExpectedInput, ExpectedOutput int

	Prefix Prefix

	Result   exchange.Result
	Status   int           // HTTP status that the client saw
	Code     string        // of our own error, "" = none
	Queued   time.Duration // waited for room, over all attempts
	First    time.Duration // from arrival to the first content that went to the client, 0 = none did
	Total    time.Duration // from arrival to the end
	Attempts []Attempt     // in order of their begin
}

// Attempt is one use of one deployment.
type Attempt struct {
	Deployment string
	Strategy   string // that chose it
	Eligible   int    // how many deployments it was chosen from
	InFlight   int    // requests that the balancer had running there before
	Trial      bool   // it was chosen to see whether it is well again, without the strategy
	Hedge      bool   // it began beside another one
	Waste      bool   // and was given up since the other one had content first

	Sent time.Duration // from arrival to dispatch
	TTFT time.Duration // from dispatch to first content, 0 = not streamed, or none came
	Took time.Duration // from dispatch to the end

	Input, Cached, Output int    // tokens
	Estimated             bool   // the numbers are estimates, since the engine reported none
	Class                 string // of error, "" = it succeeded
}

// Last returns the attempt that answered, or the last one if none did; nil if there was none.
func (e *Entry) Last() *Attempt {
	for i := len(e.Attempts) - 1; i >= 0; i-- {
		if !e.Attempts[i].Waste {
			return &e.Attempts[i]
		}
	}
	return nil
}

// From fills e with a record but for Prefix and Session. It uses the memory that e.Attempts has.
func (e *Entry) From(r *exchange.Record) {
	f := &r.Facts
	*e = Entry{
		At: r.Started, ID: f.ID, API: f.API, Model: f.Model, Tenant: f.Tenant, Stream: f.Stream, Bytes: f.PromptBytes, MaxOutput: f.MaxOutput,
		Retry: f.ClientRetry, Prefix: e.Prefix, Result: r.Result, Status: r.Status, Queued: r.Queued, Total: r.Ended.Sub(r.Started), Attempts: e.Attempts[:0],
	}
	if r.Model != f.Model && r.Depth > 0 {
		e.Served = r.Model
	}
	if r.Failure != nil {
		e.Code = r.Failure.Code
	}
	if !r.Content.IsZero() {
		e.First = r.Content.Sub(r.Started)
	}
	reported := false
	for i := range r.Attempts {
		a := attempt(r, &r.Attempts[i])
		reported = reported || !a.Estimated
		e.Attempts = append(e.Attempts, a)
	}
	if !reported {
		e.expect(r)
	}
}

// expect notes what the first decision counted with.
func (e *Entry) expect(r *exchange.Record) {
	switch {
	case len(r.Attempts) > 0 && r.Attempts[0].Decision != nil:
		e.ExpectedInput, e.ExpectedOutput = r.Attempts[0].Decision.Prompt, r.Attempts[0].Decision.Output
	case len(r.Refusals) > 0 && r.Refusals[0].Decision != nil:
		e.ExpectedInput, e.ExpectedOutput = r.Refusals[0].Decision.Prompt, r.Refusals[0].Decision.Output
	}
}

func attempt(r *exchange.Record, a *exchange.Attempt) Attempt {
	o := &a.Outcome
	t := Attempt{
		Deployment: a.Deployment, Hedge: a.Hedge, Waste: a.Waste, Sent: a.Started.Sub(r.Started), TTFT: o.TTFT, Took: a.Ended.Sub(a.Started),
		Input: o.InputTokens, Cached: o.CachedTokens, Output: o.OutputTokens, Estimated: !o.Reported, Class: o.Class,
	}
	if d := a.Decision; d != nil {
		t.Strategy, t.Eligible, t.Trial = d.Strategy, d.Eligible, d.Trial
		for i := range d.Candidates {
			if d.Candidates[i].ID == d.Chosen {
				t.InFlight = d.Candidates[i].InFlight
				break
			}
		}
	}
	return t
}

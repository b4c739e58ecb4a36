package exchange

import (
	"time"
	"unsafe"

	"evenkeel/internal/route"
)

// Result says how an exchange ended.
type Result string

// The results. Each accepted request ends in exactly one of them.
const (
	Complete      Result = "complete"       // the whole answer went to the client
	ClientFault   Result = "client_fault"   // upstream refused the request as it was; its answer was passed on
	UpstreamError Result = "upstream_error" // upstream's own error answer was passed on
	Rejected      Result = "rejected"       // turned away on sight: a bad key, path or body, an unknown model; nobody was asked
	Refused       Result = "refused"        // no deployment could take it
	Failed        Result = "failed"         // attempts were made, none answered; the error is ours
	Cut           Result = "cut"            // the answer broke after content had been sent; the client was told
	ClientGone    Result = "client_gone"    // the client left
	Aborted       Result = "aborted"        // the shell ended early (a panic, shutdown)
)

// Record is one client request, told whole: what was known, every attempt's decision and outcome, what came
// of it. It is owned by the exchange until it ends and immutable afterwards. It refers to nothing of the exchange's, so
// that it may be kept long.
type Record struct {
	Facts    route.Facts // without Prefix
	Blocks   int         // length of Facts.Prefix
	Started  time.Time
	Ended    time.Time
	Queued   time.Duration // time spent waiting for room, over all attempts
	Attempts []Attempt
	Refusals []*route.Refusal // queries that got no lease, in order
	Depth    int              // fallback depth: models tried − 1
	Model    string           // the model of the last attempt
	Result   Result
	Status   int       // what the client saw, 0 if it left before
	Failure  *Failure  // our own error, if the result is one
	Content  time.Time // when the first content went to the client, zero if none did
	Bytes    int64     // of the answer's body that went to the client

	decisive int // number of the attempt that Last returns, from 1; 0 = the last

	// Memory for the first attempt, so that a usual request's record is one allocation.
	attempts   [1]Attempt
	decision   route.Decision
	candidates [usualCandidates]route.Candidate
}

// usualCandidates is for how many deployments of a model a record has room in itself.
const usualCandidates = 4

// newRecord returns the record of a request that has just come, in spare's memory if that is not nil.
func newRecord(f *route.Facts, spare *Record) *Record {
	if spare == nil {
		spare = &Record{}
		spare.Attempts, spare.decision.Candidates = spare.attempts[:0], spare.candidates[:0]
	}
	attempts, d := spare.Attempts[:0], &spare.decision
	*spare = Record{
		Facts: *f, Started: f.Arrived, Attempts: attempts,
		decision: route.Decision{Candidates: d.Candidates[:0], Omitted: d.Omitted[:0]},
	}
	return spare
}

// Attempt is one use of one deployment.
type Attempt struct {
	Model      string
	Deployment string
	Decision   *route.Decision
	Started    time.Time
	Ended      time.Time
	Outcome    route.Outcome
	Hedge      bool   // it began while another attempt ran, which took long
	Waste      bool   // it was given up since another attempt had content first
	Drift      string // what the answer names differently than the deployment's last one did, "" = nothing
}

// Last returns the attempt that decided how the request ended, which is the last one unless two ran at one time; nil if
// there was none.
func (r *Record) Last() *Attempt {
	switch n := len(r.Attempts); {
	case n == 0:
		return nil
	case r.decisive > 0:
		return &r.Attempts[r.decisive-1]
	default:
		return &r.Attempts[n-1]
	}
}

// Memory estimates how many bytes keeping the record takes. Names of deployments and models are shared with the fleet,
// cuts and terms are constants: they do not count.
func (r *Record) Memory() int {
	n := int(unsafe.Sizeof(*r))
	if cap(r.Attempts) > len(r.attempts) {
		n += cap(r.Attempts) * int(unsafe.Sizeof(Attempt{}))
	}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		n += len(a.Outcome.Detail) + len(a.Outcome.ServedModel) + len(a.Outcome.Fingerprint) + len(a.Drift) + r.decisionBytes(a.Decision)
	}
	n += cap(r.Refusals) * int(unsafe.Sizeof((*route.Refusal)(nil)))
	for _, f := range r.Refusals {
		n += int(unsafe.Sizeof(*f)) + r.decisionBytes(f.Decision)
	}
	if f := r.Failure; f != nil {
		n += int(unsafe.Sizeof(*f)) + len(f.Message)
	}
	f := &r.Facts
	n += len(f.ID) + len(f.Model) + len(f.Pin) + cap(f.ExcludeNames)*int(unsafe.Sizeof(""))
	for _, s := range f.ExcludeNames {
		n += len(s)
	}
	return n
}

// decisionBytes counts a decision but for what is in the record itself.
func (r *Record) decisionBytes(d *route.Decision) int {
	if d == nil {
		return 0
	}
	n := cap(d.Omitted) * int(unsafe.Sizeof(route.CutCount{}))
	if d != &r.decision {
		n += int(unsafe.Sizeof(*d))
	}
	if c := d.Candidates[:cap(d.Candidates)]; len(c) > 0 && &c[0] != &r.candidates[0] {
		n += len(c) * int(unsafe.Sizeof(route.Candidate{}))
	}
	for i := range d.Candidates {
		n += len(d.Candidates[i].CutBy) // composed for each cut
	}
	return n
}

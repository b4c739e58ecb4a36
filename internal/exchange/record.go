package exchange

import (
	"time"

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
// of it. It is owned by the exchange until it ends and immutable afterwards.
type Record struct {
	Facts    route.Facts
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
}

// Attempt is one use of one deployment.
type Attempt struct {
	Model      string
	Deployment string
	Decision   *route.Decision
	Started    time.Time
	Ended      time.Time
	Outcome    route.Outcome
}

// Last returns the last attempt, nil if there was none.
func (r *Record) Last() *Attempt {
	if len(r.Attempts) == 0 {
		return nil
	}
	return &r.Attempts[len(r.Attempts)-1]
}

package exchange

import (
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// Deadlines bound the phases of an exchange; 0 means none.
type Deadlines struct {
	Deadline      time.Duration // arrival to first content, over queue, attempts and back-off
	FirstToken    time.Duration // dispatch to first content of a streamed answer
	BetweenTokens time.Duration // between two pieces of content of a streamed answer
	Response      time.Duration // dispatch to the end of an answer that is not streamed
	Hold          time.Duration // how long the first events of a stream are held back without content
}

// Plan is what an exchange may do.
type Plan struct {
	Models         []string // the model asked for, then its fallbacks in order
	Repeatable     bool     // may be sent again after bytes were sent
	MaxAttempts    int
	Deadlines      Deadlines
	ClientDeadline time.Duration // what the client asked for, bounds Deadline; 0 = nothing
	Notify         func()        // called without locks when Granted is to be reported
}

// Pauses before the only deployment there is gets another try.
const (
	firstPause  = 100 * time.Millisecond
	pauseFactor = 3
)

type state uint8

const (
	fresh state = iota
	waiting
	paused
	running
	over
)

// Exchange is one client request. It is not safe for concurrent use: the shell serialises events.
type Exchange struct {
	router *route.Router
	budget *Budget
	plan   Plan
	rec    *Record

	state      state
	model      int // index in plan.Models
	draw       int
	tried      []string
	ticket     *route.Ticket
	lease      *route.Lease // in leases
	waitSince  time.Time
	pauseUntil time.Time
	pause      time.Duration
	actions    []Action
	leases     [1]route.Lease
	first      [2]Action // backing of actions

	// Of the running attempt.
	heldAt      time.Time
	contentAt   time.Time // first content
	lastContent time.Time
	blocked     time.Duration // by the client
	tokens      int
	committed   bool
	timeout     string // the deadline that passed, or "shutdown"; "" if none did
	gone        bool

	last    *End // of the last attempt that ended without commit
	counted bool // the budget counts this request as in flight
	charged bool // the present try took a retry from the budget
	stale   int  // attempts that met a stale connection
	failed  *route.Refusal
}

// New prepares an exchange. Nothing happens until Started; Close must be deferred.
func New(r *route.Router, b *Budget, p Plan, f route.Facts) *Exchange {
	x := new(Exchange)
	x.Reset(r, b, &p, &f)
	return x
}

// Reset makes an exchange that was forgotten, or the zero value, a new one, as New does.
func (x *Exchange) Reset(r *route.Router, b *Budget, p *Plan, f *route.Facts) {
	x.router, x.budget, x.plan, x.state, x.pause = r, b, *p, fresh, firstPause
	x.rec = &Record{Facts: *f, Started: f.Arrived}
	x.rec.Attempts = x.rec.attempts[:0]
	x.rec.decision.Candidates = x.rec.candidates[:0]
	x.actions = x.first[:0]
}

// Forget lets go of all that a closed exchange refers to.
func (x *Exchange) Forget() {
	clear(x.tried[:cap(x.tried)])
	*x = Exchange{tried: x.tried[:0], state: over}
}

// Record returns the record, final once the exchange is over.
func (x *Exchange) Record() *Record { return x.rec }

// Over reports whether the exchange has ended.
func (x *Exchange) Over() bool { return x.state == over }

// Committed reports whether the answer may no longer move.
func (x *Exchange) Committed() bool { return x.committed }

// Next takes one event and returns what to do about it. The slice is valid until the next call.
func (x *Exchange) Next(now time.Time, e Event) []Action {
	x.actions = x.first[:0]
	if x.state == over {
		return nil
	}
	switch e.Kind {
	case Started:
		x.budget.begin(x.rec.Facts.ClientRetry == 0)
		x.counted = true
		x.try(now)
	case Granted:
		x.granted(now)
	case Held:
		if x.heldAt.IsZero() {
			x.heldAt = now
		}
	case Release:
		x.commit()
	case Content:
		x.content(now)
	case Ended:
		x.ended(now, e.End)
	case Timer:
		x.timer(now)
	case Gone:
		x.left(now)
	case Shutdown:
		x.shutdown(now)
	}
	return x.actions
}

// Progress reports content after the first. It is cheap and may be called for every chunk.
func (x *Exchange) Progress(now time.Time, tokens int) {
	x.lastContent, x.tokens = now, tokens
	if x.lease != nil {
		x.lease.Progress(now, tokens)
	}
}

// Streamed says that the answer is streamed though the request did not ask for it: the deadlines of streams
// hold from now on.
func (x *Exchange) Streamed() { x.rec.Facts.Stream = true }

// Blocked reports that the client took d to accept a piece of the answer. Upstream had to wait meanwhile, so
// the time counts towards none of its deadlines.
func (x *Exchange) Blocked(d time.Duration) {
	x.blocked += d
	if !x.lastContent.IsZero() {
		x.lastContent = x.lastContent.Add(d)
	}
}

// Close ends what is still open, whatever happened: it gives the lease or the place in the queue back. It
// must be deferred; after a normal end it does nothing.
func (x *Exchange) Close(now time.Time) {
	if x.state == over {
		return
	}
	if x.ticket != nil {
		x.ticket.Cancel(now)
		x.ticket = nil
	}
	if x.lease != nil {
		x.release(now, route.Outcome{Verdict: route.NotDeploymentFault, Class: "aborted"})
	}
	x.finish(now, Aborted)
}

// Wake returns when Timer is to be reported, the zero time if never. It changes with every event and with
// progress: a shell may call it lazily, when its timer fires.
func (x *Exchange) Wake() time.Time {
	var at time.Time
	soonest := func(from time.Time, d time.Duration) {
		if d > 0 && !from.IsZero() {
			if t := from.Add(d); at.IsZero() || t.Before(at) {
				at = t
			}
		}
	}
	d := &x.plan.Deadlines
	switch x.state {
	case waiting:
		soonest(x.rec.Started, x.deadline())
	case paused:
		at = x.pauseUntil
		soonest(x.rec.Started, x.deadline())
	case running:
		if x.timeout != "" || x.gone {
			return time.Time{} // already being cancelled
		}
		begun := x.lease.Begun()
		if !x.committed {
			soonest(x.heldAt, d.Hold)
		}
		switch {
		case !x.rec.Facts.Stream:
			soonest(begun.Add(x.blocked), d.Response)
			if !x.committed {
				soonest(x.rec.Started, x.deadline())
			}
		case x.contentAt.IsZero():
			soonest(begun, d.FirstToken)
			soonest(x.rec.Started, x.deadline())
		default:
			soonest(x.lastContent, d.BetweenTokens)
		}
	}
	return at
}

func (x *Exchange) deadline() time.Duration {
	d := x.plan.Deadlines.Deadline
	if c := x.plan.ClientDeadline; c > 0 && (d == 0 || c < d) {
		return c
	}
	return d
}

func (x *Exchange) deadlinePassed(now time.Time) bool {
	d := x.deadline()
	return d > 0 && !now.Before(x.rec.Started.Add(d))
}

// try asks for a deployment of the present model, then of its fallbacks.
func (x *Exchange) try(now time.Time) {
	// Only a request that an engine may have seen costs a retry: after a refused connection the next attempt
	// is the first that anybody has to work for.
	again := x.last != nil && x.last.Sent && x.last.Class != llm.Stale
	if again && !x.budget.take() {
		x.giveUp(now)
		return
	}
	x.charged = again
	for {
		q := route.Query{Facts: &x.rec.Facts, Model: x.plan.Models[x.model], Draw: x.draw, Tried: x.tried, Lease: &x.leases[0]}
		if x.draw == 0 {
			q.Decision = &x.rec.decision
		}
		x.draw++
		lease, refusal := x.router.Pick(now, q)
		if refusal != nil && refusal.Kind == route.Saturated {
			x.rec.Refusals = append(x.rec.Refusals, refusal) // says who was full
			x.ticket, refusal = x.router.Wait(now, q, x.plan.Notify)
			if refusal == nil {
				x.state, x.waitSince = waiting, now
				x.act(Action{Kind: Wait})
				return
			}
		}
		if lease != nil {
			x.dispatch(now, lease)
			return
		}
		if !x.refused(refusal) {
			break
		}
	}
	if again {
		x.budget.refund()
	}
	if x.mayPause(now) {
		x.state, x.pauseUntil = paused, now.Add(x.pause)
		x.pause *= pauseFactor
		x.act(Action{Kind: Wait})
		return
	}
	x.giveUp(now)
}

// refused moves on to the next model of the chain and reports whether there is one.
func (x *Exchange) refused(f *route.Refusal) bool {
	x.failed = f
	x.rec.Refusals = append(x.rec.Refusals, f)
	if x.model+1 >= len(x.plan.Models) {
		return false
	}
	x.model++
	x.rec.Depth = x.model
	x.tried = nil
	return true
}

// mayPause reports whether the deployment that failed last is the only one left and well enough to be
// tried once more after a pause.
func (x *Exchange) mayPause(now time.Time) bool {
	if x.last == nil || x.failed == nil || now.Add(x.pause).After(x.rec.Started.Add(x.deadline())) && x.deadline() > 0 {
		return false
	}
	for _, c := range x.failed.Decision.Candidates {
		if c.Cut == route.CutTried {
			return true
		}
	}
	return false
}

func (x *Exchange) dispatch(now time.Time, l *route.Lease) {
	x.state, x.lease = running, l
	x.heldAt, x.contentAt, x.lastContent, x.tokens, x.timeout = time.Time{}, time.Time{}, time.Time{}, 0, ""
	x.blocked = 0
	x.last, x.failed = nil, nil
	x.rec.Model = x.plan.Models[x.model]
	x.rec.Attempts = append(x.rec.Attempts, Attempt{
		Model: x.rec.Model, Deployment: l.Deployment().ID, Decision: l.Decision(), Started: now,
	})
	x.act(Action{Kind: Dispatch, Lease: l})
}

func (x *Exchange) granted(now time.Time) {
	if x.state != waiting {
		return
	}
	lease, refusal := x.ticket.Result()
	switch {
	case lease != nil:
		x.endWait(now)
		x.dispatch(now, lease)
	case refusal != nil:
		x.endWait(now)
		if x.charged {
			x.budget.refund() // try takes it again
		}
		if x.refused(refusal) {
			x.try(now)
			return
		}
		x.giveUp(now)
	}
}

func (x *Exchange) endWait(now time.Time) {
	x.rec.Queued += now.Sub(x.waitSince)
	x.ticket = nil
}

func (x *Exchange) commit() {
	if !x.committed {
		x.committed = true
		x.act(Action{Kind: Commit})
	}
}

func (x *Exchange) content(now time.Time) {
	if x.state != running || !x.contentAt.IsZero() {
		return
	}
	x.contentAt, x.lastContent = now, now
	x.rec.Content = now
	x.lease.FirstToken(now)
	x.commit()
}

// timer acts on the deadline that passed, if one did.
func (x *Exchange) timer(now time.Time) {
	at := x.Wake()
	if at.IsZero() || now.Before(at) {
		return
	}
	switch x.state {
	case waiting:
		x.ticket.Cancel(now)
		x.endWait(now)
		x.giveUp(now)
	case paused:
		if x.deadlinePassed(now) {
			x.giveUp(now)
			return
		}
		x.tried = nil
		x.try(now)
	case running:
		if !x.committed && !x.heldAt.IsZero() && x.plan.Deadlines.Hold > 0 && !now.Before(x.heldAt.Add(x.plan.Deadlines.Hold)) {
			x.commit()
			return
		}
		x.timeout = x.passed(now)
		x.act(Action{Kind: Cancel})
	}
}

// passed names the deadline of the running attempt that is over.
func (x *Exchange) passed(now time.Time) string {
	switch {
	case x.rec.Facts.Stream && !x.contentAt.IsZero():
		return "between_tokens"
	case x.deadlinePassed(now):
		return "deadline"
	case x.rec.Facts.Stream:
		return "first_token"
	}
	return "response"
}

func (x *Exchange) left(now time.Time) {
	x.gone = true
	switch x.state {
	case waiting:
		x.ticket.Cancel(now)
		x.endWait(now)
		x.finish(now, ClientGone)
	case paused, fresh:
		x.finish(now, ClientGone)
	case running:
		x.act(Action{Kind: Cancel})
	}
}

func (x *Exchange) leaveBudget() {
	if x.counted { // a client can leave before it has begun
		x.counted = false
		x.budget.end()
	}
}

// shutdown ends the exchange with an error of ours: nothing was anybody's fault.
func (x *Exchange) shutdown(now time.Time) {
	switch x.state {
	case waiting:
		x.ticket.Cancel(now)
		x.endWait(now)
		x.fail(now, Failed, shuttingDown())
	case paused, fresh:
		x.fail(now, Failed, shuttingDown())
	case running:
		x.timeout = "shutdown"
		x.act(Action{Kind: Cancel})
	}
}

func shuttingDown() *Failure {
	return &Failure{Status: 503, Code: "evenkeel_shutting_down", RetryIn: 1000, Message: "The balancer is shutting down."}
}

func (x *Exchange) act(a Action) { x.actions = append(x.actions, a) }

func (x *Exchange) finish(now time.Time, r Result) {
	x.conclude(now, r)
	x.act(Action{Kind: Finish})
}

func (x *Exchange) conclude(now time.Time, r Result) {
	x.state = over
	x.rec.Ended, x.rec.Result = now, r
	x.rec.Blocks, x.rec.Facts.Prefix = len(x.rec.Facts.Prefix), nil // the memory is the request's
	x.leaveBudget()
}

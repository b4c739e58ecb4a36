package exchange

import (
	"slices"
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
	Hedge          bool          // a second attempt may begin when the first takes long, and no harm comes of it
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
	flying // attempts run
	over
)

// Exchange is one client request. It is not safe for concurrent use: the shell serialises events.
type Exchange struct {
	// Of the answer that was committed to. What Progress needs comes first, side by side: it is called most.
	won         Lane // the lane that it is on
	tokens      int
	lastContent time.Time
	contentAt   time.Time      // first content
	blocked     time.Duration  // by the client
	flights     [lanes]flight  // attempts that run
	leases      [1]route.Lease // of the main lane

	router *route.Router
	budget *Budget
	plan   Plan
	rec    *Record
	spare  *Record // to be used again, see Recycle

	state      state
	model      int // index in plan.Models
	draw       int
	tried      []string // IDs of deployments of the present model
	away       []string // failure domains of all that were tried
	ticket     *route.Ticket
	waitSince  time.Time
	pauseUntil time.Time
	pause      time.Duration
	actions    []Action
	first      [2]Action // backing of actions

	// Of the attempts that run.
	hedgeAt   time.Time // when a second one is to begin, zero = not
	hedged    bool      // the chance was taken
	committed bool
	ending    bool       // nothing more is tried
	closing   conclusion // what comes of the exchange once all have ended

	last     *End          // of the last attempt that ended without commit
	lastLane Lane          // where that one was
	timeout  string        // why that one was stopped, "" = it was not
	soonest  time.Duration // of the pauses that upstreams asked for; 0 = none did
	counted  bool          // the budget counts this request as in flight
	charged  bool          // the present try took a retry from the budget
	stale    int           // attempts that met a stale connection
	nobody   int           // and endpoints where nobody answers
	failed   *route.Refusal
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
	x.rec, x.spare = newRecord(f, x.spare), nil
	x.actions = x.first[:0]
}

// Forget lets go of all that a closed exchange refers to.
func (x *Exchange) Forget() {
	clear(x.tried[:cap(x.tried)])
	clear(x.away[:cap(x.away)])
	*x = Exchange{tried: x.tried[:0], away: x.away[:0], state: over}
}

// Recycle is Forget for who has kept nothing of the record, nor anything that it refers to: the next request's record is made of it.
func (x *Exchange) Recycle() {
	rec := x.rec
	x.Forget()
	x.spare = rec
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
		x.budget.begin()
		x.counted = true
		x.try(now)
	case Granted:
		x.granted(now)
	case Held:
		if f := &x.flights[e.Lane]; f.heldAt.IsZero() {
			f.heldAt = now
		}
	case Release:
		if x.flights[e.Lane].live() {
			x.commit(e.Lane)
		}
	case Content:
		x.content(now, e.Lane)
	case Ended:
		x.ended(now, e.Lane, e.End)
	case Timer:
		x.timer(now)
	case Gone:
		x.left(now)
	case Shutdown:
		x.shutdown(now)
	}
	return x.actions
}

// Progress reports content after the first, of the answer that was committed to. It is cheap and may be called for every chunk.
func (x *Exchange) Progress(now time.Time, tokens int) {
	x.lastContent, x.tokens = now, tokens
	if l := x.flights[x.won].lease; l != nil {
		l.Progress(now, tokens)
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
		x.unqueue(now)
	}
	for lane := range lanes {
		if x.flights[lane].lease != nil {
			x.release(now, &x.flights[lane], &route.Outcome{Verdict: route.NotDeploymentFault, Class: "aborted"})
		}
	}
	x.settle(now, Aborted)
}

// Wake returns when Timer is to be reported, the zero time if never. It changes with every event and with
// progress: a shell may call it lazily, when its timer fires.
func (x *Exchange) Wake() time.Time {
	var at time.Time
	if d := x.deadline(); d > 0 {
		at = x.rec.Started.Add(d)
	}
	switch x.state {
	case waiting:
		return at
	case paused:
		if at.IsZero() || x.pauseUntil.Before(at) {
			at = x.pauseUntil
		}
		return at
	case flying:
		return x.wakeFlying()
	}
	return time.Time{}
}

func (x *Exchange) deadline() time.Duration {
	d := x.plan.Deadlines.Deadline
	if c := x.plan.ClientDeadline; c > 0 && (d == 0 || c < d) {
		return c
	}
	return d
}

// until is when the deadline passes, zero if there is none.
func (x *Exchange) until() time.Time {
	if d := x.deadline(); d > 0 {
		return x.rec.Started.Add(d)
	}
	return time.Time{}
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
	back := -1 // the first model of which a deployment is left that was tried, and is well
	for {
		q := route.Query{Facts: &x.rec.Facts, Model: x.plan.Models[x.model], Draw: x.draw, Tried: x.tried, Away: x.away, Until: x.until(), Lease: &x.leases[0]}
		if x.draw == 0 {
			q.Decision = &x.rec.decision
		}
		x.draw++
		lease, refusal := x.router.Pick(now, q)
		if refusal != nil && (refusal.Kind == route.Saturated || refusal.Kind == route.Held) {
			if refusal.Kind == route.Held {
				q.Held = refusal
			}
			x.rec.Refusals = append(x.rec.Refusals, refusal) // says who was full
			x.ticket, refusal = x.router.Wait(now, q, x.plan.Notify)
			if refusal == nil {
				x.state, x.waitSince = waiting, now
				x.act(Action{Kind: Wait})
				return
			}
		}
		if lease != nil {
			x.dispatch(now, Main, lease)
			return
		}
		if back < 0 && slices.ContainsFunc(refusal.Decision.CutCounts(), func(c route.CutCount) bool { return c.Cut == route.CutTried }) {
			back = x.model
		}
		if !x.refused(refusal) {
			break
		}
	}
	x.uncharge()
	if back >= 0 && x.mayPause(now) {
		x.model, x.rec.Depth = back, back
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

// mayPause reports whether there is time for a pause before the deployment that failed is tried once more.
func (x *Exchange) mayPause(now time.Time) bool {
	return x.last != nil && !x.last.Once && (x.deadline() == 0 || !now.Add(x.pause).After(x.until()))
}

func (x *Exchange) granted(now time.Time) {
	if x.state != waiting {
		return
	}
	lease, refusal := x.ticket.Result()
	switch {
	case lease != nil:
		x.endWait(now)
		x.dispatch(now, Main, lease)
	case refusal != nil:
		x.endWait(now)
		x.uncharge() // try takes it again
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

// unqueue leaves the queue without a lease.
func (x *Exchange) unqueue(now time.Time) {
	x.ticket.Cancel(now)
	x.endWait(now)
	x.uncharge()
}

// uncharge gives back what the present try took from the budget, since nothing came of it.
func (x *Exchange) uncharge() {
	if x.charged {
		x.charged = false
		x.budget.refund()
	}
}

// timer acts on the deadline that passed, if one did.
func (x *Exchange) timer(now time.Time) {
	at := x.Wake()
	if at.IsZero() || now.Before(at) {
		return
	}
	switch x.state {
	case waiting:
		x.unqueue(now)
		x.giveUp(now)
	case paused:
		if x.deadlinePassed(now) {
			x.giveUp(now)
			return
		}
		x.tried = nil
		x.try(now)
	case flying:
		x.timerFlying(now)
	}
}

func (x *Exchange) left(now time.Time) {
	switch x.state {
	case waiting:
		x.unqueue(now)
		x.conclude(now, ClientGone, nil)
	case paused, fresh:
		x.conclude(now, ClientGone, nil)
	case flying:
		x.stopAll(stoppedGone)
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
		x.unqueue(now)
		x.conclude(now, Failed, shuttingDown())
	case paused, fresh:
		x.conclude(now, Failed, shuttingDown())
	case flying:
		x.stopAll(stoppedShutdown)
	}
}

func shuttingDown() *Failure {
	return &Failure{Status: 503, Code: "evenkeel_shutting_down", RetryIn: 1000, Message: "The balancer is shutting down."}
}

func (x *Exchange) act(a Action) { x.actions = append(x.actions, a) }

// settle makes the record final.
func (x *Exchange) settle(now time.Time, r Result) {
	x.state = over
	x.rec.Ended, x.rec.Result = now, r
	x.rec.Blocks, x.rec.Facts.Prefix = len(x.rec.Facts.Prefix), nil // the memory is the request's
	x.leaveBudget()
}

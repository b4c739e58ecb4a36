package exchange

import (
	"slices"
	"time"

	"evenkeel/internal/route"
)

// flight is an attempt that runs.
type flight struct {
	lease   *route.Lease // nil: none runs on this lane
	attempt int          // index in Record.Attempts
	heldAt  time.Time    // since when the start of its answer is held back
	stopped string       // why it was cancelled: the deadline that passed, or one of the reasons below; "" = it was not
}

// Reasons why an attempt was cancelled, beside the deadlines.
const (
	stoppedGone     = "gone"     // the client left
	stoppedShutdown = "shutdown" // the process ends
	stoppedLost     = "lost"     // the attempt on the other lane had content first
)

// live reports whether the attempt runs and may still win.
func (f *flight) live() bool { return f.lease != nil && f.stopped == "" }

// running reports whether any attempt is.
func (x *Exchange) running() bool {
	return x.flights[Main].lease != nil || x.flights[Hedge].lease != nil
}

func (x *Exchange) dispatch(now time.Time, lane Lane, l *route.Lease) {
	x.state = flying
	x.flights[lane] = flight{lease: l, attempt: len(x.rec.Attempts)}
	x.rec.Model, x.rec.decisive = x.plan.Models[x.model], 0
	x.rec.Attempts = append(x.rec.Attempts, Attempt{
		Model: x.rec.Model, Deployment: l.Deployment().ID, Decision: l.Decision(), Started: now, Hedge: lane == Hedge,
	})
	x.act(Action{Kind: Dispatch, Lane: lane, Lease: l})
	if len(x.rec.Attempts) == 1 && x.rec.Facts.ClientRetry == 0 { // who is turned away adds no load, and a client's retry is none of ours
		x.budget.earn()
	}
	if lane == Hedge {
		return
	}
	x.contentAt, x.lastContent, x.tokens, x.timeout, x.blocked = time.Time{}, time.Time{}, 0, "", 0
	x.last, x.failed, x.hedgeAt = nil, nil, time.Time{}
	if p := l.Patience(); x.plan.Hedge && !x.hedged && p > 0 {
		x.hedgeAt = l.Begun().Add(p)
	}
}

// hedge begins a second attempt beside the first, if there is a deployment elsewhere and the budget allows it.
func (x *Exchange) hedge(now time.Time) {
	x.hedgeAt, x.hedged = time.Time{}, true
	if x.attempts() >= x.plan.MaxAttempts || !x.budget.takeHedge() {
		return
	}
	at := x.flights[Main].lease.Deployment()
	q := route.Query{
		Facts: &x.rec.Facts, Model: x.plan.Models[x.model], Draw: x.draw, Beside: at,
		Tried: append(slices.Clip(x.tried), at.ID), Away: x.away,
	}
	if at.Domain != "" {
		q.Away = append(slices.Clip(q.Away), at.Domain)
	}
	x.draw++
	lease, refusal := x.router.Pick(now, q)
	if refusal != nil { // it is no reason to wait, or to go on to another model: the first attempt runs
		x.budget.refundHedge()
		return
	}
	x.dispatch(now, Hedge, lease)
}

// attempts counts those that the limit holds for. Where it allows only one, nothing is asked twice but a stale connection.
func (x *Exchange) attempts() int {
	n := len(x.rec.Attempts) - min(x.stale, mostStale)
	if x.plan.MaxAttempts > 1 {
		n -= min(x.nobody, mostNobody)
	}
	return n
}

// content takes the first content of an answer. Who has it first wins.
func (x *Exchange) content(now time.Time, lane Lane) {
	f := &x.flights[lane]
	if !f.live() || !x.contentAt.IsZero() {
		return
	}
	x.contentAt, x.lastContent = now, now
	x.rec.Content = now
	f.lease.FirstToken(now)
	x.commit(lane)
}

// commit decides that the answer on a lane goes to the client. The other one is given up.
func (x *Exchange) commit(lane Lane) {
	if x.committed {
		return
	}
	x.committed, x.won, x.hedgeAt = true, lane, time.Time{}
	x.rec.decisive = x.flights[lane].attempt + 1
	x.act(Action{Kind: Commit, Lane: lane})
	other := lane ^ Hedge
	if f := &x.flights[other]; f.live() {
		x.rec.Attempts[f.attempt].Waste = true
		x.stop(other, stoppedLost)
	}
}

// stop cancels what runs on a lane. Its end comes later.
func (x *Exchange) stop(lane Lane, why string) {
	x.flights[lane].stopped = why
	x.act(Action{Kind: Cancel, Lane: lane})
}

// stopAll cancels all that runs, for a reason that overrules a deadline.
func (x *Exchange) stopAll(why string) {
	for lane := range lanes {
		f := &x.flights[lane]
		switch {
		case f.live():
			x.stop(lane, why)
		case f.lease != nil && f.stopped != stoppedLost:
			f.stopped = why
		}
	}
}

// alone returns the only attempt that may still win, nil if there are two or none.
func (x *Exchange) alone() (Lane, *flight) {
	main, hedge := &x.flights[Main], &x.flights[Hedge]
	switch {
	case main.live() && !hedge.live():
		return Main, main
	case hedge.live() && !main.live():
		return Hedge, hedge
	}
	return Main, nil
}

// holdEnds returns when what is held back of the only answer must go, zero if there is no such time. Of two answers
// nothing goes before content.
func (x *Exchange) holdEnds() (Lane, time.Time) {
	lane, f := x.alone()
	if x.committed || f == nil || f.heldAt.IsZero() || x.plan.Deadlines.Hold <= 0 {
		return lane, time.Time{}
	}
	return lane, f.heldAt.Add(x.plan.Deadlines.Hold)
}

// limits calls found with each deadline that holds for an attempt now: when it passes, and what it is called.
func (x *Exchange) limits(f *flight, found func(at time.Time, name string)) {
	d := &x.plan.Deadlines
	limit := func(from time.Time, d time.Duration, name string) {
		if d > 0 {
			found(from.Add(d), name)
		}
	}
	switch {
	case !x.contentAt.IsZero() && x.rec.Facts.Stream:
		limit(x.lastContent, d.BetweenTokens, "between_tokens")
		return
	case !x.committed || x.rec.Facts.Stream:
		limit(x.rec.Started, x.deadline(), "deadline")
	}
	if x.rec.Facts.Stream {
		limit(f.lease.Begun(), d.FirstToken, "first_token")
	} else {
		limit(f.lease.Begun().Add(x.blocked), d.Response, "response")
	}
}

// wakeFlying is Wake while attempts run.
func (x *Exchange) wakeFlying() (at time.Time) {
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for lane := range lanes {
		if f := &x.flights[lane]; f.live() {
			x.limits(f, func(t time.Time, _ string) { sooner(t) })
		}
	}
	_, held := x.holdEnds()
	sooner(held)
	if _, f := x.alone(); f != nil {
		sooner(x.hedgeAt)
	}
	return at
}

// timerFlying acts on what is due while attempts run.
func (x *Exchange) timerFlying(now time.Time) {
	if lane, held := x.holdEnds(); !held.IsZero() && !now.Before(held) {
		x.commit(lane)
		return
	}
	for lane := range lanes {
		f := &x.flights[lane]
		if !f.live() {
			continue
		}
		passed := ""
		x.limits(f, func(t time.Time, name string) {
			if passed == "" && !now.Before(t) {
				passed = name
			}
		})
		if passed != "" {
			x.stop(lane, passed)
		}
	}
	if lane, f := x.alone(); f != nil && lane == Main && !x.hedgeAt.IsZero() && !now.Before(x.hedgeAt) {
		x.hedge(now)
	}
}

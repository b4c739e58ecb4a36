package route

import "time"

// The basic breaker: certain outages and runs of faults take a unit out for a time that doubles.
const (
	faultsToOpen = 3                // consecutive deployment faults
	firstOut     = time.Second      // the first time out
	longestOut   = 30 * time.Second // the longest
)

// BreakerState is what a breaker lets through.
type BreakerState uint8

// The states of a breaker.
const (
	Closed   BreakerState = iota // all requests
	Open                         // none until its time is over
	HalfOpen                     // one trial at a time
)

func (s BreakerState) String() string {
	return [...]string{"closed", "open", "half_open"}[s]
}

// breaker is guarded by Router.mu. The zero value is closed.
type breaker struct {
	tripped bool          // open or half-open
	trial   bool          // a trial is outstanding
	faults  int           // consecutive faults while closed
	gen     uint32        // counts trips and recoveries; results of requests begun in an older one change nothing
	out     time.Duration // length of the present or last time out, 0 after a success
	until   time.Time     // when it becomes half-open
	since   time.Time     // when it tripped
	reason  string
}

func (b *breaker) state(now time.Time) BreakerState {
	switch {
	case !b.tripped:
		return Closed
	case now.Before(b.until):
		return Open
	}
	return HalfOpen
}

// admits reports whether a request may pass now; trial says that it would be the one trial.
func (b *breaker) admits(now time.Time) (ok, trial bool) {
	switch b.state(now) {
	case Closed:
		return true, false
	case HalfOpen:
		return !b.trial, true
	}
	return false, false
}

// trip opens the breaker, or opens it again for twice as long.
func (b *breaker) trip(now time.Time, reason string) {
	if b.out = 2 * b.out; b.out == 0 {
		b.out = firstOut
	}
	b.out = min(b.out, longestOut)
	b.open(now, now.Add(b.out), reason)
}

func (b *breaker) open(now, until time.Time, reason string) {
	if !b.tripped {
		b.since = now
	}
	b.tripped, b.trial, b.faults = true, false, 0
	b.until, b.reason = until, reason
	b.gen++
}

// hold keeps the unit out for as long as upstream asked for.
func (b *breaker) hold(now, until time.Time, reason string) {
	if b.until.Before(until) {
		b.open(now, until, reason)
	}
}

// close lets everything through again. How long the last time out was is remembered until an answer ends
// well: a unit that begins well and then breaks again is out for longer each time.
func (b *breaker) close() {
	*b = breaker{gen: b.gen + 1, out: b.out}
}

// evidence is what one finished request says about a unit.
type evidence uint8

const (
	nothing   evidence = iota // teaches nothing: the client left, the request was at fault
	promising                 // the answer has begun well: ends a trial, proves no more
	good
	fault  // counts towards a trip
	outage // trips at once
)

// learn takes the evidence of a request that was admitted in generation gen, as a trial or not.
func (b *breaker) learn(now time.Time, e evidence, gen uint32, trial bool, reason string) {
	if gen != b.gen {
		return
	}
	if trial {
		b.trial = false
	}
	switch e {
	case promising:
		if b.tripped && trial {
			b.close()
		}
	case good:
		switch {
		case !b.tripped:
			b.faults, b.out = 0, 0
		case trial:
			b.close()
			b.out = 0
		}
	case fault:
		if trial {
			b.trip(now, reason)
			return
		}
		if b.faults++; !b.tripped && b.faults >= faultsToOpen {
			b.trip(now, reason)
		}
	case outage:
		b.trip(now, reason)
	case nothing:
	}
}

package route

import (
	"cmp"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"
)

// breaker decides what a unit lets through. It is guarded by Router.mu. The zero value is closed.
//
//	closed ─▶ open ─▶ half-open ─▶ slow start ─▶ closed
//	            ▲         │
//	            └─────────┘ the trial failed: open for longer
type breaker struct {
	// Of calm and well, which every decision asks for.
	tripped      bool // open or half-open
	order        Override
	slow         slowness
	ramp         time.Duration // of the slow start since it closed last, 0 = none
	cool         time.Time     // upstream asked to be left alone until then
	missed, page string        // what probes, and the page about health, are not content with, "" = nothing
	well         time.Time     // since when nothing has kept requests out, zero if nothing ever did; in the future during a pause

	window window
	row    int // failures in a row while closed, since rowAt
	rowAt  time.Time

	trials  int       // outstanding; see trialLeft
	tried   time.Time // when the last one began
	gen     uint32    // counts openings and returns; results of requests begun in an older one change nothing
	rule    Rule
	reason  string
	since   time.Time     // when it tripped
	until   time.Time     // when it becomes half-open
	out     time.Duration // length of the present or last time out, without jitter
	nth     int           // openings in a row
	opened  uint64        // openings in all
	last    string        // reason of the last one
	outages int           // outages in a row, without an answer between them
	away    uint32        // times that nobody answered at the address: who answers later is perhaps somebody else

	back       time.Time // when it closed last, zero if it was never out
	coolReason string
	limited    bool // the pause that upstream asked for was for a quota that is used up

	probesFailed, probesGood int // in a row
}

// smallestShare is the least share of its traffic that a unit gets while it is not out: without any, nobody would see it
// recover.
const smallestShare = 0.01

// missedShare is the share of what probes are not content with.
const missedShare = 0.25

// calm reports whether nothing is the matter, nor was lately: it is closed then, which is nearly always.
func (b *breaker) calm() bool {
	return !b.tripped && b.order == Automatic && b.ramp <= 0 && b.cool.IsZero() && b.missed == "" && b.page == "" &&
		!b.slow.own.slow && !b.slow.threshold.slow
}

func (b *breaker) state(now time.Time) BreakerState {
	switch {
	case b.calm():
		return Closed
	case b.order == Drain:
		return Drained
	case b.order == Disable:
		return Disabled
	case b.order == Force:
		return Closed
	case b.tripped && now.Before(b.until):
		return Open
	case now.Before(b.cool):
		return Cooling
	case b.tripped:
		return HalfOpen
	case b.share(now) == 1:
		return Closed
	case b.rampShare(now) < 1:
		return SlowStart
	}
	return Degraded
}

// admits reports whether a request may pass now; trial says that it would be the one trial.
func (b *breaker) admits(now time.Time) (ok, trial bool) {
	switch s := b.state(now); {
	case s == HalfOpen:
		return b.trialLeft(now) == 0, true
	default:
		return !s.Out(), false
	}
}

// share is the part of its usual traffic that a unit that admits requests is to get, from smallestShare to 1.
func (b *breaker) share(now time.Time) float64 { return min(b.rampShare(now), b.degradedShare()) }

// rampShare grows evenly over the slow start.
func (b *breaker) rampShare(now time.Time) float64 {
	if b.ramp <= 0 || b.order == Force {
		return 1
	}
	return min(1, max(smallestShare, now.Sub(b.back).Seconds()/b.ramp.Seconds()))
}

func (b *breaker) degradedShare() float64 {
	share := b.slow.share()
	if b.missed != "" || b.page != "" {
		share = min(share, missedShare)
	}
	if b.order == Force {
		return 1
	}
	return share
}

// trip opens the breaker for a time that grows with each opening in a row. u seeds the jitter.
func (b *breaker) trip(now time.Time, h *Health, rule Rule, reason string, u *unit) {
	if !b.tripped && !b.back.IsZero() && now.Sub(b.back) >= h.LongestReset {
		b.nth = 0
	}
	b.opened++
	b.last = reason
	switch rule {
	case RuleUnreachable, RuleReset:
		b.out = min(firstOutage<<min(b.outages, 16), h.ResetAfter)
		b.outages++
		if rule == RuleUnreachable {
			b.away++
		}
	case RuleCredential:
		b.out = h.CredentialRetry
	default:
		b.nth++
		b.out = min(time.Duration(b.nth)*h.ResetAfter, h.LongestReset)
	}
	if !b.tripped {
		b.since = now
	}
	b.tripped, b.trials, b.row, b.probesGood = true, 0, 0, 0
	b.rule, b.reason = rule, reason
	b.gen++
	b.until = now.Add(b.out + time.Duration(jitter(h.seed, u.key, b.gen)*float64(b.out)))
}

// mostJitter is the largest part that is added to a time out, so that replicas and deployments that went out together do
// not come back together.
const mostJitter = 0.1

// jitter is a number from 0 to mostJitter that is the same whenever it is computed, and another one for each seed.
func jitter(seed uint64, k key, gen uint32) float64 {
	f := fnv.New64a()
	f.Write([]byte{k.kind})
	f.Write([]byte(k.name))
	f.Write([]byte(k.url))
	f.Write([]byte{byte(gen), byte(gen >> 8), byte(gen >> 16), byte(gen >> 24)})
	return rand.New(rand.NewPCG(seed, f.Sum64())).Float64() * mostJitter
}

// hold leaves the unit alone for as long as upstream asked for.
func (b *breaker) hold(now time.Time, h *Health, d time.Duration, reason string, limited bool) {
	if until := now.Add(min(d, h.LongestRetryAfter)); b.cool.Before(until) {
		b.cool, b.well, b.coolReason, b.limited = until, until, reason, limited
	}
}

// close lets requests through again, slowly at first. Unless it is proved that they succeed, the next failure opens again.
func (b *breaker) close(now time.Time, h *Health, ramp time.Duration, proved bool) {
	b.tripped, b.trials, b.row, b.probesFailed = false, 0, 0, 0
	if !proved {
		b.row = h.TripAfter - 1
	}
	b.rule, b.reason, b.since, b.until = RuleNone, "", time.Time{}, time.Time{}
	b.window, b.slow = window{}, slowness{}
	b.back, b.well, b.ramp = now, now, ramp
	b.gen++
}

// settle forgets a pause and a slow start that are over, so that the breaker is calm.
func (b *breaker) settle(now time.Time) {
	if !now.Before(b.cool) {
		b.cool = time.Time{}
	}
	if b.ramp > 0 && b.rampShare(now) == 1 && b.order != Force {
		b.ramp = 0
	}
}

// rampAfter is how long the slow start lasts that follows the present outage. Who was out of reach for a moment has not
// even been started anew since.
func (b *breaker) rampAfter(now time.Time, h *Health) time.Duration {
	if b.rule == RuleUnreachable || b.rule == RuleReset {
		return min(h.SlowStart, now.Sub(b.since))
	}
	return h.SlowStart
}

// evidence is what one finished request says about a unit.
type evidence uint8

const (
	nothing   evidence = iota // teaches nothing: the client left, the request was at fault, a quota is used up
	promising                 // the answer has begun well: ends a trial, proves no more
	good
	limited // a 429 that names no time
	failure // counts
	outage  // opens at once
)

// finding is evidence with what it rests on.
type finding struct {
	evidence evidence
	rule     Rule // of an outage, or of a run of failures if it is not the usual one
	reason   string
	spare    bool      // rates may take nobody else out of the pool
	begun    time.Time // the request; zero = long ago
}

// oldSuccess is for how long after the first of a row of failures a success does not end it whose request began before: many
// requests run when a deployment breaks, and what they come to says nothing about those that begin now.
const oldSuccess = time.Second

// learn takes the finding of a request that was admitted in generation gen, as a trial or not.
func (b *breaker) learn(now time.Time, h *Health, f finding, gen uint32, trial bool, u *unit) {
	if gen != b.gen {
		return
	}
	if trial {
		b.trials--
	}
	switch f.evidence {
	case promising, good:
		if b.tripped && trial {
			b.close(now, h, b.rampAfter(now, h), f.evidence == good)
		}
		if f.evidence == good {
			b.window.at(now, h.Window).OK++
			if b.outages = 0; !f.begun.Before(b.rowAt) || now.Sub(b.rowAt) >= oldSuccess {
				b.row = 0
			}
			b.settle(now)
		}
	case limited:
		b.window.at(now, h.Window).Limited++
		if trial {
			b.trip(now, h, RuleRateLimited, f.reason, u)
			return
		}
		if s := b.window.sum(now, h.Window); !b.tripped && s.Total() >= h.MinRequests && float64(s.Limited) >= limitedShare*float64(s.Total()) {
			b.trip(now, h, RuleRateLimited, f.reason, u)
		}
	case failure:
		b.window.at(now, h.Window).Failed++
		if b.row++; b.row == 1 {
			b.rowAt = now
		}
		if trial {
			b.trip(now, h, b.rule, f.reason, u)
			return
		}
		if b.tripped {
			return
		}
		s := b.window.sum(now, h.Window)
		switch {
		case b.row >= h.TripAfter:
			b.trip(now, h, cmp.Or(f.rule, RuleConsecutive), f.reason, u)
		case !f.spare && s.Total() >= h.MinRequests && s.Failed >= minFailures && float64(s.Failed) >= h.ErrorRate*float64(s.Total()):
			b.trip(now, h, RuleErrorRate, f.reason, u)
		}
	case outage:
		b.trip(now, h, f.rule, f.reason, u)
	case nothing:
	}
}

// trialLeast is how long a trial may take at least before another one may begin beside it.
const trialLeast = 10 * time.Second

// trialLeft is how long nobody else may pass because a trial runs, 0 if none does. One that hangs, or makes a long answer,
// does not shut out everybody until it ends: after the time that its failure would have cost, another one may try.
func (b *breaker) trialLeft(now time.Time) time.Duration {
	if b.trials == 0 {
		return 0
	}
	return max(0, b.tried.Add(max(b.out, trialLeast)).Sub(now))
}

// left is how long until the unit may be asked again, for one that is out by time.
func (b *breaker) left(now time.Time) time.Duration {
	at := b.cool
	if b.tripped && b.until.After(at) {
		at = b.until
	}
	return max(0, at.Sub(now))
}

// decayed is a count that halves every penaltyHalfLife.
type decayed struct {
	value float64
	at    time.Time
}

// penaltyHalfLife is how fast a failure is forgotten where it counts as load.
const penaltyHalfLife = 10 * time.Second

// leastPenalty is the least that counts: among idle deployments any difference would decide.
const leastPenalty = 0.5

func (d *decayed) now(now time.Time) float64 {
	if d.value == 0 {
		return 0
	}
	v := d.value * math.Exp2(-float64(max(now.Sub(d.at), 0))/float64(penaltyHalfLife))
	if v < leastPenalty {
		return 0
	}
	return v
}

func (d *decayed) add(now time.Time) {
	d.value = d.now(now) + 1
	d.at = now
}

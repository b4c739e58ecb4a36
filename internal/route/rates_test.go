package route

import (
	"fmt"
	"testing"
	"time"
)

// spread ends requests with outcomes, evenly over a time.
func spread(t testing.TB, r *Router, from time.Time, over time.Duration, id string, outcomes ...Outcome) time.Time {
	t.Helper()
	now := from
	for i, o := range outcomes {
		now = from.Add(over * time.Duration(i) / time.Duration(len(outcomes)))
		end(t, r, now, id, 1, o)
	}
	return now
}

// mixed is n outcomes of which the failures come evenly between the others.
func mixed(n, failures int) (os []Outcome) {
	for i := range n {
		if (i+1)*failures/n > i*failures/n {
			os = append(os, broken())
		} else {
			os = append(os, success())
		}
	}
	return os
}

// TestErrorRate opens from 10 results, 5 failures and half of them on; of results in the window.
func TestErrorRate(t *testing.T) {
	f := func(want Rule, n, failures int) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
		now := spread(t, r, start, 10*second, "a/m", mixed(n, failures)...)
		b := node1(t, r, now, "a/m").Breaker
		if b.Rule != want || (b.State == Open) != (want != RuleNone) {
			t.Errorf("%d failures of %d: %+v, want rule %q", failures, n, b, want)
		}
	}
	f(RuleNone, 9, 5)
	f(RuleNone, 10, 4)
	f(RuleErrorRate, 10, 5)
	f(RuleNone, 11, 5)
	f(RuleNone, 40, 19)
}

// TestWindowSlides: results 31 s old do not count, results 26 s old do; that takes no request to happen.
func TestWindowSlides(t *testing.T) {
	f := func(age time.Duration, want Rule) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
		spread(t, r, start, second, "a/m", mixed(10, 4)...)
		if got := node1(t, r, at(age), "a/m").Recent.Total(); (got > 0) != (want != RuleNone) {
			t.Errorf("after %v the window holds %d results", age, got)
		}
		end(t, r, at(age), "a/m", 2, broken()) // the sixth of twelve
		if got := node1(t, r, at(age), "a/m").Breaker.Rule; got != want {
			t.Errorf("after %v: rule %q, want %q", age, got, want)
		}
	}
	f(2*second, RuleErrorRate)
	f(26*second, RuleErrorRate)
	f(31*second, RuleNone)
	f(time.Hour, RuleNone)
}

// TestWindowOfAnotherLength: a reload that makes the window longer or shorter starts it anew; it must not stop sliding.
func TestWindowOfAnotherLength(t *testing.T) {
	for _, length := range []time.Duration{second, 10 * time.Minute} {
		r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
		now := spread(t, r, start, time.Hour, "a/m", mixed(3600, 36)...)
		r.Configure(Options{Health: Health{Window: length}})
		end(t, r, now, "a/m", 3, broken())
		now = now.Add(length + length/windowCells)
		end(t, r, now, "a/m", 1, success())
		if got := node1(t, r, now, "a/m").Recent; got != (Tally{OK: 1}) {
			t.Errorf("window of %v: %+v, want only the last success", length, got)
		}
	}
}

// TestNeutralResultsAreNoResults of a rate.
func TestNeutralResultsAreNoResults(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	end(t, r, start, "a/m", 3, broken())
	end(t, r, start, "a/m", 1, success())
	end(t, r, start, "a/m", 20, left())
	end(t, r, start, "a/m", 4, broken())
	if d := node1(t, r, start, "a/m"); d.Breaker.State != Closed || d.Recent != (Tally{OK: 1, Failed: 7}) {
		t.Errorf("%+v, window %+v; want closed with 8 results", d.Breaker, d.Recent)
	}
}

// TestRateLimitedShare: half of at least 10 results are 429s that name no time, then it opens. Each pauses for a second.
func TestRateLimitedShare(t *testing.T) {
	f := func(want Rule, limited, good int) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{}))) // even alone: it is certain
		end(t, r, start, "a/m", good, success())
		now := start
		for range limited {
			end(t, r, now, "a/m", 1, asked(RateLimited, 0))
			if b := node1(t, r, now, "a/m").Breaker; b.State == Cooling && b.Until != now.Add(second) {
				t.Fatalf("a 429 without a time: %+v, want a pause of 1s", b)
			}
			now = now.Add(second)
		}
		if b := node1(t, r, now, "a/m").Breaker; b.Rule != want || want != RuleNone && b.Out != 30*second {
			t.Errorf("%d 429s and %d others: %+v, want rule %q", limited, good, b, want)
		}
	}
	f(RuleNone, 9, 0)
	f(RuleRateLimited, 10, 0)
	f(RuleNone, 5, 6)
	f(RuleRateLimited, 6, 6)
	f(RuleRateLimited, 5, 5)
	f(RuleNone, 4, 5)
}

// TestCapOfRates: rates take out at most half of a pool, and never the only one; what is out already counts.
func TestCapOfRates(t *testing.T) {
	fleet := func(n int) (ids []string, spec PoolSpec) {
		spec = pool1("m")
		for i := range n {
			ids = append(ids, fmt.Sprintf("e%d/m", i))
			spec.Deployments = append(spec.Deployments, dep(ids[i], Limits{}))
		}
		return ids, spec
	}
	f := func(n, want int, before func(r *Router)) {
		t.Helper()
		ids, spec := fleet(n)
		r := newRouter(t, spec)
		if before != nil {
			before(r)
		}
		out := 0
		for _, id := range ids {
			if state(t, r, start, id) != Closed {
				continue
			}
			if spread(t, r, start, second, id, mixed(10, 5)...); state(t, r, at(second), id) == Open {
				out++
			}
		}
		if out != want {
			t.Errorf("of %d rates took out %d, want %d", n, out, want)
		}
	}
	f(1, 0, nil)
	f(2, 1, nil)
	f(3, 1, nil)
	f(4, 2, nil)
	f(5, 2, nil)
	f(10, 5, nil)
	f(4, 1, func(r *Router) { open(t, r, start, "e0/m") })
	f(4, 0, func(r *Router) { open(t, r, start, "e0/m"); open(t, r, start, "e1/m") })
	f(2, 0, func(r *Router) { order(t, r, "deployment", "e0/m", Drain) }) // it is the only one left
	f(4, 2, func(r *Router) { end(t, r, start, "e0/m", 1, asked(RateLimited, 0)) })
}

// TestCapLeavesOutWeightZero: who is never picked is no reason why the other could be spared.
func TestCapLeavesOutWeightZero(t *testing.T) {
	off := dep("off/m", Limits{})
	off.Weight = 0
	r := newRouter(t, pool1("m", off, dep("a/m", Limits{})))
	now := spread(t, r, start, second, "a/m", mixed(40, 20)...)
	if s := state(t, r, now, "a/m"); s != Closed {
		t.Errorf("the only one in use is %v, want closed", s)
	}
}

// TestCapOfAllPools: a deployment that is the only one of another model is not spared for this one's sake.
func TestCapOfAllPools(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})), pool1("alias", dep("a/m", Limits{})))
	now := spread(t, r, start, second, "a/m", mixed(40, 20)...)
	if s := state(t, r, now, "a/m"); s != Closed {
		t.Errorf("the only one of another model is %v, want closed", s)
	}
}

// TestConsecutiveFailuresAreNotCapped: the whole fleet may go out so, and answers are fast refusals with a time.
func TestConsecutiveFailuresAreNotCapped(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	open(t, r, start, "a/m")
	open(t, r, start, "b/m")
	soonest := min(node1(t, r, start, "a/m").Breaker.Until.Sub(start), node1(t, r, start, "b/m").Breaker.Until.Sub(start))
	if got := mustRefuse(t, r, start, query("m"), Unavailable).RetryIn; got != soonest {
		t.Errorf("RetryIn %v, want %v", got, soonest)
	}
}

// TestPanic: below the threshold breakers are passed over, but for those that are certain, and pauses and orders.
func TestPanic(t *testing.T) {
	fleet := func(threshold float64) *Router {
		r := newRouterWith(t, Health{PanicThreshold: threshold},
			pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{}), dep("c/m", Limits{}), dep("d/m", Limits{})))
		open(t, r, start, "a/m")
		end(t, r, start, "b/m", 1, fault(NotServed))
		end(t, r, start, "c", 1, unreachable())
		return r
	}
	f := func(threshold float64, now time.Time, want string) {
		t.Helper()
		d := mustPick(t, fleet(threshold), now, query("m")).Decision()
		var got string
		for _, c := range d.Candidates {
			got += fmt.Sprintf("%c%s ", c.ID[0], c.Cut)
		}
		if got != want+" " {
			t.Errorf("below %v: %s, want %s", threshold, got, want)
		}
		if d.Panic == (threshold <= 0.25) {
			t.Errorf("below %v: panic %v", threshold, d.Panic)
		}
	}
	f(0, start, "d aopen bopen copen")
	f(0.25, start, "d aopen bopen copen")
	f(0.26, start, "a c d bopen")
	f(1, start, "a c d bopen")

	r := fleet(0.5)
	order(t, r, "deployment", "d/m", Drain)
	end(t, r, start, "a/m", 1, success())
	if s := state(t, r, start, "a/m"); s != Open {
		t.Errorf("an answer while it is out by time: %v, want open", s)
	}
	if d := mustPick(t, r, start, query("m")).Decision(); cutOf(t, d, "d/m") != CutDrained {
		t.Errorf("in a panic d is cut by %q, want drained", cutOf(t, d, "d/m"))
	}
}

// TestPanicIsAboutWhoIsMeantToBeUsed: deployments of weight 0, and drained ones, neither hide a panic nor make one.
func TestPanicIsAboutWhoIsMeantToBeUsed(t *testing.T) {
	spare := func(id string) Deployment { d := dep(id, Limits{}); d.Weight = 0; return d }
	h := Health{PanicThreshold: 0.5}
	r := newRouterWith(t, h, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{}), spare("c/m"), spare("d/m")))
	open(t, r, start, "a/m")
	open(t, r, start, "b/m")
	if l := mustPick(t, r, start, query("m")); !l.Decision().Panic {
		t.Error("no panic though all that are used are out")
	}
	r = newRouterWith(t, h, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{}), dep("c/m", Limits{}), dep("d/m", Limits{})))
	open(t, r, start, "a/m")
	order(t, r, "deployment", "c/m", Drain)
	order(t, r, "deployment", "d/m", Disable)
	if d := mustPick(t, r, start, query("m")).Decision(); d.Panic || d.Chosen != "b/m" {
		t.Errorf("panic %v, chosen %s, though half of those that are meant to be used are", d.Panic, d.Chosen)
	}
}

// TestPanicHonoursPauses: who asked to be left alone is, also if its breaker is open beside that.
func TestPanicHonoursPauses(t *testing.T) {
	r := newRouterWith(t, Health{PanicThreshold: 1}, pool1("m", dep("a/m", Limits{})))
	running := mustPick(t, r, start, query("m"))
	running.Done(start, asked(RateLimited, 50*time.Second))
	order(t, r, "deployment", "a/m", Force)
	open(t, r, start, "a/m")
	order(t, r, "deployment", "a/m", Automatic)
	mustRefuse(t, r, at(20*time.Second), query("m"), Unavailable)
	mustRefuse(t, r, at(49*time.Second), query("m"), Unavailable)
	mustPick(t, r, at(50*time.Second), query("m"))
}

// TestPanicStartsNoSecondTrial, and the end of a request that passed beside the trial does not end the trial.
func TestPanicStartsNoSecondTrial(t *testing.T) {
	r := newRouterWith(t, Health{PanicThreshold: 1}, pool1("m", dep("a/m", Limits{})))
	open(t, r, start, "a/m")
	now := node1(t, r, start, "a/m").Breaker.Until
	trial, beside := mustPick(t, r, now, query("m")), mustPick(t, r, now, query("m"))
	beside.Done(now, success())
	if s := state(t, r, now, "a/m"); s != HalfOpen {
		t.Errorf("after a request beside the trial: %v, want half_open", s)
	}
	trial.Done(now, success())
	if s := state(t, r, now, "a/m"); s != SlowStart {
		t.Errorf("after the trial: %v, want slow_start", s)
	}
	mustBeIdle(t, r, now)
}

func order(t testing.TB, r *Router, kind, name string, o Override) {
	t.Helper()
	if err := r.Override(start, kind, name, o); err != nil {
		t.Fatal(err)
	}
}

// TestPenaltyIsForgotten: half of it every 10 s, and all of it when less than half a failure is left.
func TestPenaltyIsForgotten(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	f := func(after time.Duration, want float64) {
		t.Helper()
		l := mustPick(t, r, at(after), query("m"))
		if got := l.Decision().Candidates[0].Penalty; got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
		l.Done(at(after), left())
	}
	f(0, 0)
	end(t, r, start, "a/m", 2, broken())
	f(0, 2)
	f(10*second, 1)
	end(t, r, at(10*second), "a/m", 1, broken())
	f(10*second, 2)
	f(30*second, 0.5)
	f(31*second, 0)
}

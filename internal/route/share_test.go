package route

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// slowStart takes a deployment out and in again; it returns when it was back.
func slowStart(t testing.TB, r *Router, now time.Time, id string) time.Time {
	t.Helper()
	open(t, r, now, id)
	back := node1(t, r, now, id).Breaker.Until
	end(t, r, back, id, 1, success())
	return back
}

// picksOf counts whom n requests go to that come at one time, each with a seed of its own.
func picksOf(t testing.TB, r *Router, now time.Time, n int) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for i := range n {
		q := query("m")
		q.Facts.Seed = uint64(i)
		l := mustPick(t, r, now, q)
		counts[l.Deployment().ID]++
		l.Done(now, left())
	}
	return counts
}

// mustBeAbout fails if a count is further from its expectation than chance brings it once in ten thousand times.
func mustBeAbout(t testing.TB, what string, count, n int, p float64) {
	t.Helper()
	if off := math.Abs(float64(count) - p*float64(n)); off > 3.9*math.Sqrt(float64(n)*p*(1-p)) {
		t.Errorf("%s: %d of %d, want about %.1f", what, count, n, p*float64(n))
	}
}

// TestSlowStart: the share grows evenly, a quarter at 15 s of 60, and all of it at the end.
func TestSlowStart(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	back := slowStart(t, r, start, "a/m")
	f := func(after time.Duration, share float64, want BreakerState) {
		t.Helper()
		b := node1(t, r, back.Add(after), "a/m").Breaker
		if b.Share != share || b.State != want {
			t.Errorf("after %v: share %v, %v, want %v, %v", after, b.Share, b.State, share, want)
		}
		if want == SlowStart && (b.Since != back || b.Until != back.Add(time.Minute)) {
			t.Errorf("after %v: slow start from %v to %v, want a minute from %v", after, b.Since, b.Until, back)
		}
	}
	f(0, smallestShare, SlowStart)
	f(3*second, 0.05, SlowStart)
	f(15*second, 0.25, SlowStart)
	f(30*second, 0.5, SlowStart)
	f(45*second, 0.75, SlowStart)
	f(57*second, 0.95, SlowStart)
	f(time.Minute, 1, Closed)
	if c := mustPick(t, r, back.Add(15*second), pinned("m", "a")).Decision().Candidates[0]; c.Share != 0.25 || c.Healthy != 15*second {
		t.Errorf("as a candidate: share %v, healthy for %v, want 0.25, 15s", c.Share, c.Healthy)
	}
}

// TestSlowStartIsConfigured: its length, and none at all.
func TestSlowStartIsConfigured(t *testing.T) {
	f := func(set, want time.Duration) {
		t.Helper()
		r := newRouterWith(t, Health{SlowStart: set, ResetAfter: 10 * second}, pool1("m", dep("a/m", Limits{})))
		back := slowStart(t, r, start, "a/m")
		if want > 0 && state(t, r, back.Add(want-1), "a/m") != SlowStart {
			t.Errorf("set to %v: over before %v", set, want)
		}
		if s := state(t, r, back.Add(want), "a/m"); s != Closed {
			t.Errorf("set to %v: %v after %v, want closed", set, s, want)
		}
	}
	f(0, 20*second)
	f(7*second, 7*second)
	f(-1, 0)
}

// TestSlowStartGetsItsPart by a seeded coin: a quarter of its share by weight, whatever the strategy would choose.
func TestSlowStartGetsItsPart(t *testing.T) {
	const n = 20000
	f := func(s Strategy, weight, want float64) {
		t.Helper()
		spec := pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{}), dep("c/m", Limits{}))
		spec.Strategy, spec.Deployments[0].Weight = s, weight
		r := newRouter(t, spec)
		now := slowStart(t, r, start, "a/m").Add(15 * second)
		counts := picksOf(t, r, now, n)
		mustBeAbout(t, fmt.Sprintf("%T, weight %v", s, weight), counts["a/m"], n, want)

		q := query("m")
		d := mustPick(t, r, now, q).Decision()
		for ; d.Chosen == "a/m"; d = mustPick(t, r, now, q).Decision() {
			q.Facts.Seed++
		}
		if cutOf(t, d, "a/m") != CutSlowStart || d.Trial {
			t.Errorf("when another is chosen, a is cut by %q, trial %v", cutOf(t, d, "a/m"), d.Trial)
		}
	}
	f(first{}, 1, 0.25/3)
	f(last{}, 1, 0.25/3)
	f(seeded{}, 1, 0.25/3)
	f(last{}, 4, 0.25*4/6)
}

// TestAllJustBack share the traffic as their strategy likes; only differences between them count.
func TestAllJustBack(t *testing.T) {
	const n = 10000
	spec := pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{}))
	spec.Strategy = seeded{}
	r := newRouterWith(t, Health{SlowStart: 5 * time.Minute}, spec)
	open(t, r, start, "a/m")
	open(t, r, start, "b/m")
	now := at(33 * second)
	for range 2 {
		mustPick(t, r, now, query("m")).Done(now, success()) // each has its trial
	}
	counts := picksOf(t, r, now, n)
	mustBeAbout(t, "both back at once", counts["a/m"], n, 0.5)

	now = slowStart(t, r, now, "a/m")
	now = slowStart(t, r, now, "b/m").Add(10 * second)
	a, b := node1(t, r, now, "a/m").Breaker.Share, node1(t, r, now, "b/m").Breaker.Share
	if !(a > b && a < 1) {
		t.Fatalf("shares %v and %v, want a ahead of b and both below 1", a, b)
	}
	counts = picksOf(t, r, now, n)
	mustBeAbout(t, "b behind a", counts["b/m"], n, b/a/2)
}

// TestSlowStartOfTokens: while it lasts, only a growing part of the limit of tokens may be in use.
func TestSlowStartOfTokens(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{Tokens: 1000})))
	back := slowStart(t, r, start, "a/m")
	now := back.Add(15 * second) // 250 tokens
	huge := mustPick(t, r, now, tokens("m", 900))
	mustRefuse(t, r, now, tokens("m", 1), Saturated)
	huge.Done(now, success())
	one := mustPick(t, r, now, tokens("m", 200))
	if c := mustRefuse(t, r, now, tokens("m", 51), Saturated).Decision.Candidates[0].Cut; c != CutTokens {
		t.Errorf("cut is %q, want %q", c, CutTokens)
	}
	two := mustPick(t, r, now, tokens("m", 50))
	now = back.Add(time.Minute)
	three := mustPick(t, r, now, tokens("m", 750))
	for _, l := range []*Lease{one, two, three} {
		l.Done(now, success())
	}
	mustBeIdle(t, r, now)
}

// TestNewcomerStartsSlowly beside those who serve already, but not in a fleet that begins.
func TestNewcomerStartsSlowly(t *testing.T) {
	one, two := pool1("m", dep("a/m", Limits{})), pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{}))
	f := func(served bool, want BreakerState) {
		t.Helper()
		r := newRouter(t, one)
		if served {
			end(t, r, start, "a/m", 1, success())
		}
		adopt(t, r, at(second), two)
		if s := state(t, r, at(second), "b/m"); s != want {
			t.Errorf("others have served: %v; the newcomer is %v, want %v", served, s, want)
		}
		if s := state(t, r, at(second), "a/m"); s != Closed {
			t.Errorf("the other is %v", s)
		}
		adopt(t, r, at(2*second), two)
		if s := state(t, r, at(2*time.Minute), "b/m"); s != Closed {
			t.Errorf("two minutes later the newcomer is %v, want closed", s)
		}
	}
	f(true, SlowStart)
	f(false, Closed)
}

// TestMissedProbeLeavesAQuarter, and one good probe gives all back.
func TestMissedProbeLeavesAQuarter(t *testing.T) {
	const n = 20000
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	r.Probed(start, "a/m", Probe{OK: true, Missed: "probe_expect"})
	if b := node1(t, r, start, "a/m").Breaker; b.State != Degraded || b.Share != 0.25 || b.Reason != "probe_expect" {
		t.Fatalf("%+v, want degraded to 0.25 for probe_expect", b)
	}
	mustPick(t, r, start, pinned("m", "a")).Done(start, left()) // so that it is not overdue
	counts := picksOf(t, r, start, n)
	mustBeAbout(t, "a quarter of one half", counts["a/m"], n, 0.125)
	r.Probed(start, "a/m", Probe{OK: true})
	if s := state(t, r, start, "a/m"); s != Closed {
		t.Errorf("after a good probe: %v", s)
	}
	if counts := picksOf(t, r, start, 100); counts["a/m"] != 100 {
		t.Errorf("after a good probe the first gets %v", counts)
	}
}

// TestMostDegraded: when more than half of a pool are, there is nobody to spare them, and their strategy decides.
func TestMostDegraded(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{}), dep("c/m", Limits{})))
	for _, id := range []string{"a/m", "b/m"} {
		r.Probed(start, id, Probe{OK: true, Missed: "probe_expect"})
	}
	if counts := picksOf(t, r, start, 100); counts["a/m"] != 100 {
		t.Errorf("the first of three gets %v, want all 100", counts)
	}
}

// TestSlowOneIsLookedAt every 15 s, if at least 20 requests have gone elsewhere meanwhile.
func TestSlowOneIsLookedAt(t *testing.T) {
	f := func(gap time.Duration, minutes int, least, most int) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
		r.nodes[key{'d', "a/m", "http://a"}].breaker.slow.own = gauge{ratio: 100, slow: true, at: start}
		if s := node1(t, r, start, "a/m").Breaker.Share; s != smallestShare {
			t.Fatalf("share %v", s)
		}
		looks := 0
		for now := start; now.Before(at(time.Duration(minutes) * time.Minute)); now = now.Add(gap) {
			q := query("m")
			q.Facts.Seed = uint64(now.Sub(start))
			l := mustPick(t, r, now, q)
			if l.Deployment().ID == "a/m" {
				looks++
			}
			l.Done(now, left())
		}
		if looks < least || looks > most {
			t.Errorf("a request every %v for %d minutes: %d looks, want %d to %d", gap, minutes, looks, least, most)
		}
	}
	f(100*time.Millisecond, 10, 40, 40+60) // 6000 requests: 40 by time, and some of 30 by the coin
	f(10*second, 60, 17, 17+8)             // 360 requests: one in 21, and some of 2 by the coin
}

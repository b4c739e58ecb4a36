package route

import (
	"testing"
	"time"
)

const second = time.Second

// open takes a deployment out by failures in a row.
func open(t testing.TB, r *Router, now time.Time, id string) {
	t.Helper()
	end(t, r, now, id, DefaultHealth.TripAfter, broken())
}

func TestDefaultsOfHealth(t *testing.T) {
	want := DefaultHealth
	want.SlowStart = time.Minute
	if got := (Health{}).withDefaults(); got != want {
		t.Errorf("zero: %+v, want %+v", got, want)
	}
	got := Health{ResetAfter: 10 * time.Minute, SlowStart: -1}.withDefaults()
	if got.LongestReset != 10*time.Minute || got.SlowStart != 0 {
		t.Errorf("longest reset %v, want at least reset_after, 10m; slow start %v, want none", got.LongestReset, got.SlowStart)
	}
}

func TestFailuresInARow(t *testing.T) {
	f := func(want BreakerState, outcomes ...Outcome) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{})))
		now := start
		for _, o := range outcomes {
			now = now.Add(2 * second)
			r.Observe(now, scope("a"), true)
			mustPick(t, r, now, query("m")).Done(now, o)
		}
		b := node1(t, r, now, "a/m").Breaker
		if b.State != want || want == Open && (b.Rule != RuleConsecutive || b.Reason != "upstream_5xx" || b.Since != now) {
			t.Errorf("after %d outcomes the breaker is %+v, want %v", len(outcomes), b, want)
		}
	}
	no := broken()
	f(Closed, no, no, no, no)
	f(Open, no, no, no, no, no)
	f(Closed, no, no, no, no, success(), no, no, no, no)
	f(Open, no, no, left(), no, left(), no, no) // a client that leaves is no evidence either way
	f(Closed, left(), left(), left(), left(), left(), left())
	f(Open, no, no, no, no, asked(RateLimited, 0), no) // a quota is neither
	busy := broken()
	busy.RetryAfter = second
	f(Cooling, busy, busy, busy, busy, busy, busy) // who says when to come back is busy, not ill
	f(Closed, no, no, no, no, unreachable())       // its endpoint's matter
}

// TestTimesOut: exactly 30, 60, 90 ... 300 s, plus at most a tenth that differs from one deployment to another.
func TestTimesOut(t *testing.T) {
	h := Health{LongestReset: 300 * second}
	r := newRouterWith(t, h, pool1("m", dep("a/m", Limits{})), pool1("n", dep("b/n", Limits{})))
	now := start
	open(t, r, now, "a/m")
	for range DefaultHealth.TripAfter {
		mustPick(t, r, now, query("n")).Done(now, broken())
	}
	if a, b := node1(t, r, now, "a/m").Breaker, node1(t, r, now, "b/n").Breaker; a.Out != b.Out || a.Until == b.Until {
		t.Errorf("two that went out together come back at %v and %v after %v and %v", a.Until, b.Until, a.Out, b.Out)
	}
	out := func(want time.Duration) time.Time {
		t.Helper()
		b := node1(t, r, now, "a/m").Breaker
		if extra := b.Until.Sub(now) - want; b.Out != want || extra < 0 || extra > want/10 {
			t.Fatalf("out for %v until %v later, want %v and at most a tenth more", b.Out, b.Until.Sub(now), want)
		}
		last := b.Until.Add(-time.Nanosecond)
		refusal := mustRefuse(t, r, last, query("m"), Unavailable)
		if refusal.RetryIn != time.Nanosecond || refusal.Decision.Candidates[0].Cut != CutOpen {
			t.Fatalf("a nanosecond before the end: %q, RetryIn %v", refusal.Decision.Candidates[0].Cut, refusal.RetryIn)
		}
		return b.Until
	}
	for _, seconds := range []time.Duration{30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300} {
		now = out(seconds * second)
		mustPick(t, r, now, query("m")).Done(now, broken()) // the trial
	}
	now = out(300 * second)
	mustPick(t, r, now, query("m")).Done(now, success())
	if b := node1(t, r, now, "a/m").Breaker; b.State != SlowStart || b.Rule != RuleNone || b.Reason != "" || b.Out != 0 {
		t.Fatalf("after a good trial: %+v", b)
	}

	// Failing again right away is one more of the row; after LongestReset of health the count starts anew.
	back := now
	now = back.Add(300*second - 1)
	open(t, r, now, "a/m")
	now = out(300 * second)
	mustPick(t, r, now, query("m")).Done(now, success())
	now = now.Add(300 * second)
	open(t, r, now, "a/m")
	out(30 * second)
}

// TestLongestResetIsNotResetAfter: a zero LongestReset is the default of 300 s, not ResetAfter.
func TestLongestResetIsNotResetAfter(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	open(t, r, start, "a/m")
	now := node1(t, r, start, "a/m").Breaker.Until
	end(t, r, now, "a/m", 1, broken())
	if out := node1(t, r, now, "a/m").Breaker.Out; out != time.Minute {
		t.Errorf("the second time it is out for %v, want 1m", out)
	}
}

func TestJitterIsSpreadEvenly(t *testing.T) {
	const cells = 10
	var counts [cells]int
	for gen := range uint32(1000) {
		for _, name := range []string{"gpu-1/llama", "gpu-2/llama", "gpu-3/llama"} {
			j := jitter(7, key{'d', name, "http://10.0.0.1:8000"}, gen)
			if j < 0 || j >= mostJitter {
				t.Fatalf("jitter %v", j)
			}
			counts[int(j/mostJitter*cells)]++
		}
	}
	for i, n := range counts {
		if n < 225 || n > 375 { // 300, 4.5 standard deviations
			t.Errorf("cell %d has %d of 3000: %v", i, n, counts)
		}
	}
}

func TestOneTrialAtATime(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	open(t, r, start, "a/m")
	now := at(33 * second)
	if s := state(t, r, now, "a/m"); s != HalfOpen {
		t.Fatalf("%v, want half-open", s)
	}
	trial := mustPick(t, r, now, query("m"))
	refusal := mustRefuse(t, r, now, query("m"), Unavailable)
	if c := refusal.Decision.Candidates[0].Cut; c != CutTrial {
		t.Errorf("cut is %q, want %q", c, CutTrial)
	}
	for after, want := range map[time.Duration]time.Duration{0: 30 * second, 10 * second: 20 * second, 29 * second: second} {
		if f := mustRefuse(t, r, now.Add(after), query("m"), Unavailable); f.RetryIn != want {
			t.Errorf("RetryIn when a trial has run for %v is %v, want %v", after, f.RetryIn, want)
		}
	}
	late := now.Add(29 * second)
	trial.FirstToken(late) // content has come: that is proof enough
	mustPick(t, r, late, query("m")).Done(late, success())

	// What was the trial is an ordinary request from then on.
	trial.Done(late, broken())
	if s := state(t, r, late, "a/m"); s != SlowStart {
		t.Errorf("one failure after the recovery: %v, want slow_start", s)
	}
	end(t, r, late, "a/m", 3, broken())
	if s := state(t, r, late, "a/m"); s != SlowStart {
		t.Errorf("four failures after the recovery: %v, want slow_start", s)
	}
	end(t, r, late, "a/m", 1, broken())
	if s := state(t, r, late, "a/m"); s != Open {
		t.Errorf("five failures after the recovery, that of the trial's end among them: %v, want open", s)
	}
	mustBeIdle(t, r, late)
}

// TestTrialThatHangsGivesWay: another one may begin after the time that a failure would have cost, at least 10 s; the first
// that ends decides, and what the others come to changes nothing.
func TestTrialThatHangsGivesWay(t *testing.T) {
	f := func(reset, want time.Duration, second Outcome, state1 BreakerState) {
		t.Helper()
		r := New(Options{Health: Health{ResetAfter: reset}})
		adopt(t, r, start, pool1("m", dep("a/m", Limits{})))
		open(t, r, start, "a/m")
		now := node1(t, r, start, "a/m").Breaker.Until
		hangs := mustPick(t, r, now, query("m"))
		mustRefuse(t, r, now.Add(want-time.Millisecond), query("m"), Unavailable)
		now = now.Add(want)
		other := mustPick(t, r, now, query("m"))
		mustRefuse(t, r, now, query("m"), Unavailable)
		other.Done(now, second)
		if s := state(t, r, now, "a/m"); s != state1 {
			t.Errorf("after the second trial: %v, want %v", s, state1)
		}
		hangs.Done(now, Outcome{Verdict: NotDeploymentFault})
		if s := state(t, r, now, "a/m"); s != state1 {
			t.Errorf("after the end of the first: %v, want %v", s, state1)
		}
		mustBeIdle(t, r, now)
	}
	f(time.Second, 10*time.Second, success(), SlowStart)
	f(30*time.Second, 30*time.Second, success(), SlowStart)
	f(30*time.Second, 30*time.Second, broken(), Open)
}

// last takes the last candidate: a strategy that never chooses the first of several.
type last struct{}

func (last) Pick(r *Round) int { return len(r.Candidates) - 1 }

// TestTrialGoesFirst whatever the strategy would choose, is said so, and recomputes.
func TestTrialGoesFirst(t *testing.T) {
	spec := pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{}), dep("c/m", Limits{}))
	spec.Strategy = last{}
	r := newRouter(t, spec)
	open(t, r, start, "a/m")
	now := at(33 * second)
	l := mustPick(t, r, now, query("m"))
	if d := l.Decision(); d.Chosen != "a/m" || !d.Trial || d.Recompute(last{}, query("m").Facts) != "a/m" {
		t.Errorf("chose %q, trial %v", d.Chosen, d.Trial)
	}
	next := mustPick(t, r, now, query("m")).Decision()
	if next.Chosen != "c/m" || next.Trial || cutOf(t, next, "a/m") != CutTrial {
		t.Errorf("beside the trial: chose %q, trial %v, a is cut by %q", next.Chosen, next.Trial, cutOf(t, next, "a/m"))
	}
}

// TestRetriesStayAwayFromTrials unless nobody else is left: a request that failed once is not to prove anything.
func TestRetriesStayAwayFromTrials(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{}), dep("c/m", Limits{})))
	open(t, r, start, "a/m")
	now := at(33 * second)
	q := query("m")
	q.Draw, q.Tried = 1, []string{"b/m"}
	d := mustPick(t, r, now, q).Decision()
	if d.Chosen != "c/m" || cutOf(t, d, "a/m") != CutOnTrial {
		t.Errorf("chose %q, a is cut by %q", d.Chosen, cutOf(t, d, "a/m"))
	}
	q.Tried = []string{"b/m", "c/m"}
	if d := mustPick(t, r, now, q).Decision(); d.Chosen != "a/m" {
		t.Errorf("with nobody else left: chose %q, want a/m", d.Chosen)
	}
}

func TestLostTrialIsGivenBack(t *testing.T) {
	f := func(name string, lose func(*Router, time.Time)) {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, pool1("m", dep("a/m", Limits{})))
			open(t, r, start, "a/m")
			now := at(33 * second)
			lose(r, now)
			end(t, r, now, "a/m", 1, success())
			if s := state(t, r, now, "a/m"); s != SlowStart {
				t.Errorf("after the second trial: %v, want slow_start", s)
			}
			mustBeIdle(t, r, now)
		})
	}
	f("client left", func(r *Router, now time.Time) { end(t, r, now, "a/m", 1, left()) })
	f("granted to a waiter who had gone", func(r *Router, now time.Time) {
		wait(t, r, now, query("m")).Cancel(now)
	})
	f("endpoint unreachable, which is its scope's matter", func(r *Router, now time.Time) {
		end(t, r, now, "a/m", 1, unreachable())
		now = scopeView(t, r, now, "a").Breaker.Until
		l := mustPick(t, r, now, query("m")) // the trial of both
		mustRefuse(t, r, now, query("m"), Unavailable)
		l.Done(now, success())
	})
	f("the fleet changed meanwhile", func(r *Router, now time.Time) {
		l := mustPick(t, r, now, query("m"))
		adopt(t, r, now)
		adopt(t, r, now, pool1("m", dep("a/m", Limits{})))
		mustRefuse(t, r, now, query("m"), Unavailable) // the trial still runs
		l.Done(now, left())
	})
}

// TestLateResultsChangeNothing: requests begun before a trip or a recovery say nothing about what came after.
func TestLateResultsChangeNothing(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	var old []*Lease
	for range 20 {
		old = append(old, mustPick(t, r, start, query("m")))
	}
	late := func(now time.Time, o Outcome) {
		old[0].Done(now, o)
		old = old[1:]
	}
	for range 5 {
		late(start, broken())
	}
	tripped := node1(t, r, start, "a/m").Breaker
	if tripped.Out != 30*second {
		t.Fatalf("out for %v, want 30s", tripped.Out)
	}
	for _, o := range []Outcome{broken(), success(), left(), broken(), asked(RateLimited, time.Minute)} {
		late(at(100*time.Millisecond), o)
		if b := node1(t, r, start, "a/m").Breaker; b != tripped {
			t.Fatalf("a late %v changed the breaker from %+v to %+v", o.Verdict, tripped, b)
		}
	}
	now := tripped.Until
	trial := mustPick(t, r, now, query("m"))
	late(now, success()) // an old success is no trial
	mustRefuse(t, r, now, query("m"), Unavailable)
	late(now, broken()) // nor an old failure
	mustRefuse(t, r, now, query("m"), Unavailable)
	trial.Done(now, success())

	for range 5 {
		late(now, broken())
	}
	if s := state(t, r, now, "a/m"); s != SlowStart {
		t.Errorf("failures of requests begun before the recovery: %v, want slow_start", s)
	}
}

// TestBeginningWellIsNoRecovery: a deployment whose answers begin and then break is out for longer each time, though
// its first tokens end each trial; and once it has been out, a single request shows that.
func TestBeginningWellIsNoRecovery(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	now := start
	for i, want := range []time.Duration{30, 60, 90, 120} {
		for n := 0; n < 5 && (i == 0 || n < 1); n++ {
			l := mustPick(t, r, now, query("m"))
			l.FirstToken(now)
			l.Done(now, broken())
		}
		b := node1(t, r, now, "a/m").Breaker
		if b.Out != want*second {
			t.Fatalf("out for %v, want %v", b.Out, want)
		}
		now = b.Until
	}
}

// TestTrialOfARateLimit: a 429 that names no time fails the trial; one that does only moves it.
func TestTrialOfARateLimit(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	open(t, r, start, "a/m")
	now := node1(t, r, start, "a/m").Breaker.Until
	end(t, r, now, "a/m", 1, asked(RateLimited, 7*second))
	if b := node1(t, r, now, "a/m").Breaker; b.State != Cooling || b.Until != now.Add(7*second) || b.Out != 30*second {
		t.Fatalf("%+v, want cooling for 7s", b)
	}
	now = now.Add(7 * second)
	end(t, r, now, "a/m", 1, asked(RateLimited, 0))
	if b := node1(t, r, now, "a/m").Breaker; b.State != Open || b.Rule != RuleRateLimited || b.Out != time.Minute {
		t.Fatalf("%+v, want open for 1m by the rule rate_limited", b)
	}
}

// TestProbesOpenAndClose: so many failed probes in a row open, so many good ones close before the time out is over.
func TestProbesOpenAndClose(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	now := start
	probe := func(p Probe, want BreakerState) {
		t.Helper()
		now = now.Add(second)
		r.Probed(now, "a/m", p)
		if b := node1(t, r, now, "a/m").Breaker; b.State != want || want == Open && b.Rule != RuleProbe {
			t.Fatalf("after %+v the breaker is %+v, want %v", p, b, want)
		}
	}
	good, bad := Probe{OK: true}, Probe{Reason: "timeout"}
	probe(bad, Closed)
	probe(bad, Closed)
	probe(good, Closed)
	probe(bad, Closed)
	probe(bad, Closed)
	probe(bad, Open)
	probe(good, Open)
	probe(bad, Open)
	probe(good, Open)
	probe(good, SlowStart)
}

// TestRunningAnswersOutweighProbes: an engine that is busy with long answers is not down because a probe waits there.
func TestRunningAnswersOutweighProbes(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	l := mustPick(t, r, start, query("m"))
	l.FirstToken(start)
	now := start
	probe := func(want BreakerState) {
		t.Helper()
		r.Probed(now, "a/m", Probe{Reason: "timeout"})
		if b := node1(t, r, now, "a/m").Breaker; b.State != want {
			t.Fatalf("%v after the first token: %+v, want %v", now.Sub(start), b, want)
		}
	}
	for i := range 60 {
		now = now.Add(second)
		l.Progress(now, i)
		probe(Closed)
	}
	now = now.Add(DefaultHealth.Window - 1)
	probe(Closed)
	now = now.Add(1)
	probe(Open)
}

// TestHealthPage: a page that complains degrades whatever else is known, and closes nothing when it does not.
func TestHealthPage(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	now := start
	probe := func(p Probe, want BreakerState, reason string) {
		t.Helper()
		now = now.Add(second)
		r.Probed(now, "a/m", p)
		if b := node1(t, r, now, "a/m").Breaker; b.State != want || b.Reason != reason {
			t.Fatalf("after %+v the breaker is %+v, want %v for %q", p, b, want, reason)
		}
	}
	ill, well := Probe{Page: true, Missed: "health_page"}, Probe{Page: true}
	for range 10 {
		probe(ill, Degraded, "health_page")
	}
	probe(Probe{OK: true}, Degraded, "health_page")
	probe(Probe{OK: true, Missed: "probe_expect"}, Degraded, "probe_expect")
	probe(well, Degraded, "probe_expect")
	probe(Probe{OK: true}, Closed, "")
	for range DefaultHealth.UnhealthyProbes {
		r.Probed(now, "a/m", Probe{Reason: "server_error"})
	}
	for range 10 {
		probe(well, Open, "server_error")
	}
}

// TestOldSuccessesHideNoBreak: when a deployment breaks, requests that run there may end well for a while; five failures of
// newer ones open all the same. But a success a second later, or of a newer request, shows that not all fails.
func TestOldSuccessesHideNoBreak(t *testing.T) {
	f := func(want BreakerState, after time.Duration, newer bool) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{})))
		old := mustPick(t, r, start, query("m"))
		end(t, r, at(time.Millisecond), "a/m", 4, broken())
		if newer {
			end(t, r, at(after), "a/m", 1, success())
		} else {
			old.Done(at(after), success())
		}
		end(t, r, at(after+time.Millisecond), "a/m", 1, broken())
		if s := state(t, r, at(after+time.Millisecond), "a/m"); s != want {
			t.Errorf("after %v, newer %v: %v, want %v", after, newer, s, want)
		}
	}
	f(Open, 10*time.Millisecond, false)
	f(Closed, 10*time.Millisecond, true)
	f(Closed, 1001*time.Millisecond, false)
}

// TestReplicasComeBackApart: the same deployment that went out at the same time is tried at other times by other replicas.
func TestReplicasComeBackApart(t *testing.T) {
	var first, last time.Duration
	for seed := range uint64(100) {
		r := New(Options{Seed: seed})
		adopt(t, r, start, pool1("m", dep("a/m", Limits{})))
		open(t, r, start, "a/m")
		d := node1(t, r, start, "a/m").Breaker.Until.Sub(start)
		if seed == 0 || d < first {
			first = d
		}
		last = max(last, d)
	}
	if first < 30*time.Second || last > 33*time.Second || last-first < 2500*time.Millisecond {
		t.Errorf("tried again from %v to %v, want spread over 30 to 33 s", first, last)
	}
}

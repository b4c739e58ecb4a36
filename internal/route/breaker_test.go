package route

import (
	"testing"
	"time"
)

// at is the time d after start.
func at(d time.Duration) time.Time { return start.Add(d) }

// fail ends a trial or an ordinary request with a fault of the deployment.
func fail(t *testing.T, r *Router, now time.Time) {
	t.Helper()
	mustPick(t, r, now, query("m")).Done(now, broken())
}

func TestThreeFaultsInARowTakeADeploymentOut(t *testing.T) {
	f := func(outcomes []Outcome, want BreakerState) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{})))
		for _, o := range outcomes {
			mustPick(t, r, start, query("m")).Done(start, o)
		}
		if got := node1(t, r, start, "a/m").Breaker.State; got != want {
			t.Errorf("after %d outcomes the breaker is %v, want %v", len(outcomes), got, want)
		}
	}
	f([]Outcome{broken(), broken()}, Closed)
	f([]Outcome{broken(), broken(), broken()}, Open)
	f([]Outcome{broken(), broken(), success(), broken(), broken()}, Closed)
	f([]Outcome{broken(), broken(), left(), broken()}, Open) // a client that leaves is no evidence either way
	f([]Outcome{left(), left(), left(), left()}, Closed)
}

// TestTimesOut: exactly 1, 2, 4, 8, 16, 30, 30 s; after a recovery it begins at 1 s again.
func TestTimesOut(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	now := start
	f := func(want time.Duration) {
		t.Helper()
		b := node1(t, r, now, "a/m").Breaker
		if b.Out != want || b.Until != now.Add(want) || b.Reason != "upstream_5xx" {
			t.Fatalf("out for %v until %v because of %q, want %v until %v", b.Out, b.Until, b.Reason, want, now.Add(want))
		}
		last := now.Add(want - time.Nanosecond)
		if got := mustRefuse(t, r, last, query("m"), Unavailable).RetryIn; got != time.Nanosecond {
			t.Fatalf("a nanosecond before the end: RetryIn %v", got)
		}
		now = now.Add(want)
	}
	for range 3 {
		fail(t, r, now)
	}
	for _, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
		f(time.Duration(seconds) * time.Second)
		fail(t, r, now)
	}
	f(30 * time.Second)
	mustPick(t, r, now, query("m")).Done(now, success())
	if b := node1(t, r, now, "a/m").Breaker; b != (BreakerView{}) {
		t.Fatalf("after a good trial the breaker is %+v, want closed", b)
	}
	for range 3 {
		fail(t, r, now)
	}
	f(time.Second)
}

func TestOneTrialAtATime(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	for range 3 {
		fail(t, r, start)
	}
	now := at(time.Second)
	trial := mustPick(t, r, now, query("m"))
	refusal := mustRefuse(t, r, now, query("m"), Unavailable)
	if c := refusal.Decision.Candidates[0].Cut; c != CutTrial {
		t.Errorf("cut is %q, want %q", c, CutTrial)
	}
	if refusal.RetryIn != time.Second {
		t.Errorf("RetryIn while a trial runs is %v, want 1s", refusal.RetryIn)
	}
	mustRefuse(t, r, at(time.Hour), query("m"), Unavailable) // however long it takes
	trial.FirstToken(at(time.Hour))                          // content has come: that is proof enough
	mustPick(t, r, at(time.Hour), query("m")).Done(at(time.Hour), success())

	// What was the trial is an ordinary request from then on.
	trial.Done(at(time.Hour), broken())
	if s := node1(t, r, at(time.Hour), "a/m").Breaker.State; s != Closed {
		t.Errorf("one fault after the recovery: %v, want closed", s)
	}
	fail(t, r, at(time.Hour))
	fail(t, r, at(time.Hour))
	if s := node1(t, r, at(time.Hour), "a/m").Breaker.State; s != Open {
		t.Errorf("three faults after the recovery, that of the trial's end among them: %v, want open", s)
	}
	mustBeIdle(t, r, at(time.Hour))
}

func TestLostTrialIsGivenBack(t *testing.T) {
	f := func(name string, lose func(*Router, time.Time)) {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, pool1("m", dep("a/m", Limits{})))
			for range 3 {
				fail(t, r, start)
			}
			now := at(time.Second)
			lose(r, now)
			mustPick(t, r, now, query("m")).Done(now, success())
			if s := node1(t, r, now, "a/m").Breaker.State; s != Closed {
				t.Errorf("after the second trial: %v, want closed", s)
			}
			mustBeIdle(t, r, now)
		})
	}
	f("client left", func(r *Router, now time.Time) { mustPick(t, r, now, query("m")).Done(now, left()) })
	f("granted to a waiter who had gone", func(r *Router, now time.Time) {
		wait(t, r, now, query("m")).Cancel(now)
	})
	f("endpoint unreachable, which is its scope's matter", func(r *Router, now time.Time) {
		mustPick(t, r, now, query("m")).Done(now, unreachable())
		r.Observe(now, scope("a"), true)
		l := mustPick(t, r, now, query("m")) // the trial of both
		mustRefuse(t, r, now, query("m"), Unavailable)
		l.Done(now, left())
	})
	f("the fleet changed meanwhile", func(r *Router, now time.Time) {
		l := mustPick(t, r, now, query("m"))
		adopt(t, r, now)
		adopt(t, r, now, pool1("m", dep("a/m", Limits{})))
		mustRefuse(t, r, now, query("m"), Unavailable) // the trial still runs
		l.Done(now, left())
	})
}

// TestUnreachableTakesTheEndpointOut: one failed connect, and all its models are out, but no other endpoint.
func TestUnreachableTakesTheEndpointOut(t *testing.T) {
	r := newRouter(t,
		pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})),
		pool1("n", dep("a/n", Limits{})))
	mustPick(t, r, start, pinned("m", "a")).Done(start, unreachable())

	refusal := mustRefuse(t, r, start, query("n"), Unavailable)
	if c := refusal.Decision.Candidates[0]; c.Cut != CutOpen || c.CutBy != "endpoint a" || c.Until != time.Second {
		t.Errorf("n at a is cut by %q %q for %v, want open, endpoint a, 1s", c.Cut, c.CutBy, c.Until)
	}
	mustRefuse(t, r, start, pinned("m", "a/m"), Unavailable)
	if l := mustPick(t, r, start, query("m")); l.Deployment().ID != "b/m" {
		t.Errorf("picked %s, want b/m", l.Deployment().ID)
	}
	if !r.Out(start, scope("a")) || r.Out(start, scope("b")) {
		t.Error("want endpoint a out and b not")
	}
	if own := node1(t, r, start, "a/m").Breaker.State; own != Closed {
		t.Errorf("the deployment's own breaker is %v, want closed", own)
	}

	// The trial of one model brings the endpoint back for all. A status is an answer, even a bad one.
	now := at(time.Second)
	trial := mustPick(t, r, now, query("n"))
	mustRefuse(t, r, now, pinned("m", "a"), Unavailable)
	trial.Done(now, broken())
	mustPick(t, r, now, pinned("m", "a")).Done(now, success())
}

func TestRetryAfter(t *testing.T) {
	f := func(asked, want time.Duration) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{})))
		o := broken()
		o.RetryAfter = asked
		mustPick(t, r, start, query("m")).Done(start, o)
		if want == 0 {
			mustPick(t, r, start, query("m"))
			return
		}
		if got := mustRefuse(t, r, start, query("m"), Unavailable).RetryIn; got != want {
			t.Errorf("asked for %v: RetryIn %v, want %v", asked, got, want)
		}
		mustRefuse(t, r, at(want-1), query("m"), Unavailable)
		mustPick(t, r, at(want), query("m")).Done(at(want), success())
		mustPick(t, r, at(want), query("m"))
	}
	f(0, 0)
	f(7*time.Second, 7*time.Second)
	f(time.Hour, time.Minute)
}

// TestRetryAfterOfManyAtOnce: of several answers to requests that ran together the longest counts; one that
// comes after a recovery does not undo it.
func TestRetryAfterOfManyAtOnce(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	var leases []*Lease
	for range 4 {
		leases = append(leases, mustPick(t, r, start, query("m")))
	}
	for i, seconds := range []int{2, 5, 1} {
		o := broken()
		o.RetryAfter = time.Duration(seconds) * time.Second
		leases[i].Done(start, o)
	}
	if got := mustRefuse(t, r, start, query("m"), Unavailable).RetryIn; got != 5*time.Second {
		t.Errorf("RetryIn %v, want the longest, 5s", got)
	}
	now := at(5 * time.Second)
	mustPick(t, r, now, query("m")).Done(now, success())
	o := broken()
	o.RetryAfter = time.Minute
	leases[3].Done(now, o)
	mustPick(t, r, now, query("m"))
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
	for range 3 {
		late(start, broken())
	}
	tripped := node1(t, r, start, "a/m").Breaker
	if tripped.Out != time.Second {
		t.Fatalf("out for %v, want 1s", tripped.Out)
	}
	for _, o := range []Outcome{broken(), success(), left(), broken()} {
		late(at(100*time.Millisecond), o)
		if b := node1(t, r, start, "a/m").Breaker; b != tripped {
			t.Fatalf("a late %v changed the breaker from %+v to %+v", o.Verdict, tripped, b)
		}
	}

	now := at(time.Second)
	trial := mustPick(t, r, now, query("m"))
	late(now, success()) // an old success is no trial
	mustRefuse(t, r, now, query("m"), Unavailable)
	late(now, broken()) // nor an old fault
	mustRefuse(t, r, now, query("m"), Unavailable)
	trial.Done(now, success())

	for range 5 {
		late(now, broken())
	}
	if s := node1(t, r, now, "a/m").Breaker.State; s != Closed {
		t.Errorf("faults of requests begun before the recovery: %v, want closed", s)
	}
}

func TestObserve(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	state := func(now time.Time) BreakerState { return scopeView(t, r, now, "a").Breaker.State }

	r.Observe(start, scope("nobody"), false)
	r.Observe(start, scope("a"), true)
	if s := state(start); s != Closed {
		t.Fatalf("seen to answer: %v, want closed", s)
	}
	r.Observe(start, scope("a"), false)
	if s := state(start); s != Open {
		t.Fatalf("seen not to answer: %v, want open", s)
	}
	r.Observe(at(900*time.Millisecond), scope("a"), false)
	if s := state(at(1800 * time.Millisecond)); s != Open {
		t.Fatalf("seen again not to answer: %v, want it to stay open for another second", s)
	}
	r.Observe(at(1200*time.Millisecond), scope("a"), true)
	if s := state(at(1200 * time.Millisecond)); s != HalfOpen {
		t.Fatalf("seen to answer again: %v, want half-open at once", s)
	}
	now := at(1200 * time.Millisecond)
	trial := mustPick(t, r, now, query("m"))
	r.Observe(now, scope("a"), false) // a probe does not overrule the trial that runs
	trial.Done(now, success())
	if s := state(now); s != Closed {
		t.Errorf("after the trial: %v, want closed", s)
	}
}

// TestRetryInIsWhenAllBreakersLetGo: with a deployment out for 1 s at an endpoint out for 2 s, the soonest
// is 2 s; another that is out for 1.5 s is sooner.
func TestRetryInIsWhenAllBreakersLetGo(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	endpointOut := func(id string) {
		var l = mustPick(t, r, at(time.Second), pinned("m", id))
		l.Done(at(time.Second), unreachable())
	}
	mustPick(t, r, start, pinned("m", "a")).Done(start, unreachable())
	endpointOut("a") // for 2 s, until 3 s
	if got := mustRefuse(t, r, at(2*time.Second), pinned("m", "a"), Unavailable).RetryIn; got != time.Second {
		t.Fatalf("RetryIn %v, want 1s", got)
	}
	r.Observe(at(2*time.Second), scope("a"), true)
	now := at(2 * time.Second)
	mustPick(t, r, now, pinned("m", "a")).Done(now, success()) // closed again
	var own []*Lease
	for range 4 {
		own = append(own, mustPick(t, r, now, pinned("m", "a")))
	}
	for _, l := range own[:3] {
		l.Done(now, broken()) // own breaker: until 3 s
	}
	own[3].Done(at(2500*time.Millisecond), unreachable()) // scope: until 3.5 s
	refusal := mustRefuse(t, r, at(2500*time.Millisecond), pinned("m", "a"), Unavailable)
	if refusal.RetryIn != time.Second {
		t.Errorf("RetryIn %v, want 1s: the endpoint's, not the deployment's 500ms", refusal.RetryIn)
	}
	r.Observe(at(2200*time.Millisecond), scope("b"), false) // until 3.2 s
	if got := mustRefuse(t, r, at(2500*time.Millisecond), query("m"), Unavailable).RetryIn; got != 700*time.Millisecond {
		t.Errorf("RetryIn %v, want 700ms", got)
	}
}

// TestBeginningWellIsNoRecovery: a deployment whose answers begin and then break is out for longer each time, though
// its first tokens end each trial.
func TestBeginningWellIsNoRecovery(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	now := start
	breakOff := func() {
		l := mustPick(t, r, now, query("m"))
		l.FirstToken(now)
		l.Done(now, broken())
	}
	for _, want := range []time.Duration{1, 2, 4, 8} {
		for range 3 {
			breakOff()
		}
		if got := node1(t, r, now, "a/m").Breaker.Out; got != want*time.Second {
			t.Fatalf("out for %v, want %v", got, want*time.Second)
		}
		now = now.Add(want * time.Second)
	}
	l := mustPick(t, r, now, query("m"))
	l.FirstToken(now)
	l.Done(now, success())
	for range 3 {
		breakOff()
	}
	if got := node1(t, r, now, "a/m").Breaker.Out; got != time.Second {
		t.Errorf("out for %v after a good answer, want 1s", got)
	}
}

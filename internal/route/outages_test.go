package route

import (
	"testing"
	"time"
)

// TestUnreachableTakesTheEndpointOut: one failed connect, and all its models are out, but no other endpoint.
func TestUnreachableTakesTheEndpointOut(t *testing.T) {
	r := newRouter(t,
		pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})),
		pool1("n", dep("a/n", Limits{})))
	end(t, r, start, "a", 1, unreachable())

	refusal := mustRefuse(t, r, start, query("n"), Unavailable)
	until := scopeView(t, r, start, "a").Breaker.Until
	if c := refusal.Decision.Candidates[0]; c.Cut != CutOpen || c.CutBy != "endpoint a" || c.Until != until.Sub(start) {
		t.Errorf("n at a is cut by %q %q for %v, want open, endpoint a", c.Cut, c.CutBy, c.Until)
	}
	mustRefuse(t, r, start, pinned("m", "a/m"), Unavailable)
	if l := mustPick(t, r, start, query("m")); l.Deployment().ID != "b/m" {
		t.Errorf("picked %s, want b/m", l.Deployment().ID)
	}
	if !r.Out(scope("a")) || r.Out(scope("b")) {
		t.Error("want endpoint a out and b not")
	}
	if own := state(t, r, start, "a/m"); own != Closed {
		t.Errorf("the deployment's own breaker is %v, want closed", own)
	}

	// The trial of one model brings the endpoint back for all. A status is an answer, even a bad one.
	trial := mustPick(t, r, until, query("n"))
	mustRefuse(t, r, until, pinned("m", "a"), Unavailable)
	trial.Done(until, broken())
	end(t, r, until, "a", 1, success())
}

// TestOutagesDouble: 1, 2, 4, 8, 16, 30 s, each with at most a tenth more; an answer starts anew.
func TestOutagesDouble(t *testing.T) {
	for _, f := range []Fault{Unreachable, Reset} {
		r := newRouter(t, pool1("m", dep("a/m", Limits{})))
		now := start
		out := func(want time.Duration) {
			t.Helper()
			end(t, r, now, "a", 1, fault(f))
			b := scopeView(t, r, now, "a").Breaker
			if extra := b.Until.Sub(now) - b.Out; b.Out != want || extra < 0 || extra > want/10 || b.Reason != f.String() {
				t.Fatalf("%v: %+v, want out for %v", f, b, want)
			}
			now = b.Until
		}
		for _, seconds := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
			out(seconds * second)
		}
		end(t, r, now, "a", 1, success())
		out(second)
	}
}

// TestCertainOutages take out what they are about, at once, even the last of a pool.
func TestCertainOutages(t *testing.T) {
	withCredential := func(id string) Deployment {
		d := dep(id, Limits{})
		d.Scopes = append(d.Scopes, Scope{Kind: CredentialScope, Name: "key", URL: d.URL})
		return d
	}
	f := func(d Deployment, about Fault, kind string, rule Rule, out time.Duration) {
		t.Helper()
		other := d
		other.ID = d.Endpoint + "/other"
		r := newRouter(t, pool1("m", d), pool1("n", other))
		end(t, r, start, d.ID, 1, fault(about))
		var b BreakerView
		if kind == "deployment" {
			b = node1(t, r, start, d.ID).Breaker
		}
		for _, s := range r.View(start).Scopes {
			if s.Kind.String() == kind {
				b = s.Breaker
			}
		}
		if b.State != Open || b.Rule != rule || b.Out != out || b.Reason != about.String() {
			t.Errorf("%v: the %s is %+v, want open by %q for %v", about, kind, b, rule, out)
		}
		mustRefuse(t, r, start, query("m"), Unavailable)
		if kind == "deployment" {
			mustPick(t, r, start, query("n")).Done(start, success())
		} else {
			mustRefuse(t, r, start, query("n"), Unavailable)
		}
		// The trial, when its time has come, brings it back.
		end(t, r, b.Until, d.ID, 1, success())
		end(t, r, b.Until, d.ID, 1, success())
	}
	f(withCredential("a/m"), BadCredential, "credential", RuleCredential, 5*time.Minute)
	f(withCredential("a/m"), Exhausted, "credential", RuleCredential, 5*time.Minute)
	f(dep("a/m", Limits{}), BadCredential, "deployment", RuleCredential, 5*time.Minute)
	f(dep("a/m", Limits{}), Exhausted, "deployment", RuleCredential, 5*time.Minute)
	f(withCredential("a/m"), NotServed, "deployment", RuleNotServed, 30*second)
	f(withCredential("a/m"), Unreachable, "endpoint", RuleUnreachable, second)
	f(withCredential("a/m"), Reset, "endpoint", RuleReset, second)
}

// TestNotServedBacksOff like other openings.
func TestNotServedBacksOff(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	now := start
	for _, want := range []time.Duration{30, 60, 90} {
		end(t, r, now, "a/m", 1, fault(NotServed))
		b := node1(t, r, now, "a/m").Breaker
		if b.Out != want*second {
			t.Fatalf("out for %v, want %v", b.Out, want*second)
		}
		now = b.Until
	}
}

func TestRetryAfter(t *testing.T) {
	f := func(o Outcome, want time.Duration) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{})))
		end(t, r, start, "a/m", 1, o)
		if want == 0 {
			end(t, r, start, "a/m", 1, success())
			return
		}
		refusal := mustRefuse(t, r, start, query("m"), Unavailable)
		if c := refusal.Decision.Candidates[0]; refusal.RetryIn != want || c.Cut != CutCooling {
			t.Errorf("%+v: cut by %q, RetryIn %v, want cooling, %v", o, c.Cut, refusal.RetryIn, want)
		}
		if b := node1(t, r, start, "a/m").Breaker; b.Until != at(want) || b.Rule != RuleNone {
			t.Errorf("%+v: %+v, want until %v and no rule", o, b, at(want))
		}
		mustRefuse(t, r, at(want-1), query("m"), Unavailable)
		// It is no trial that then comes, and no slow start: nothing was ill.
		first, second := mustPick(t, r, at(want), query("m")), mustPick(t, r, at(want), query("m"))
		if first.Decision().Trial || state(t, r, at(want), "a/m") != Closed {
			t.Errorf("%+v: afterwards %v, trial %v", o, state(t, r, at(want), "a/m"), first.Decision().Trial)
		}
		first.Done(at(want), success())
		second.Done(at(want), success())
	}
	busy := broken()
	f(busy, 0)
	busy.RetryAfter = 7 * second
	f(busy, 7*second)
	busy.RetryAfter = time.Hour
	f(busy, time.Minute) // longest_retry_after
	f(asked(RateLimited, 0), second)
	f(asked(RateLimited, 20*second), 20*second)
	f(asked(RateLimited, time.Hour), time.Minute)
	f(asked(Loading, 0), second)
	f(asked(Loading, time.Millisecond), second)
	f(asked(Loading, 20*second), 20*second)
	usedUp := success()
	usedUp.RetryAfter = 3 * second
	f(usedUp, 3*second)
	clients := left()
	clients.RetryAfter = 3 * second
	f(clients, 0)
}

// TestRetryAfterIsNoFailure: however often upstream asks to be left alone, nothing opens.
func TestRetryAfterIsNoFailure(t *testing.T) {
	for _, about := range []Fault{Failure, RateLimited, Loading} {
		r := newRouter(t, pool1("m", dep("a/m", Limits{})))
		now := start
		for range 50 {
			end(t, r, now, "a/m", 1, asked(about, second))
			now = now.Add(second)
		}
		if b := node1(t, r, now, "a/m").Breaker; b.State != Closed {
			t.Errorf("after 50 × %v with a time: %+v, want closed", about, b)
		}
	}
}

// TestRetryAfterOfManyAtOnce: of several answers to requests that ran together the longest counts; one that
// comes after a recovery does not undo it.
func TestRetryAfterOfManyAtOnce(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	var leases []*Lease
	for range 9 {
		leases = append(leases, mustPick(t, r, start, query("m")))
	}
	for i, seconds := range []time.Duration{2, 5, 1} {
		leases[i].Done(start, asked(RateLimited, seconds*second))
	}
	if got := mustRefuse(t, r, start, query("m"), Unavailable).RetryIn; got != 5*second {
		t.Errorf("RetryIn %v, want the longest, 5s", got)
	}
	for _, l := range leases[3:8] {
		l.Done(start, broken())
	}
	back := node1(t, r, start, "a/m").Breaker.Until
	end(t, r, back, "a/m", 1, success())
	leases[8].Done(back, asked(RateLimited, time.Minute))
	end(t, r, back, "a/m", 1, success())
}

// TestEachWaitsForItself: a pause is the deployment's, so of one credential and model; others at the endpoint go on.
func TestEachWaitsForItself(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})), pool1("n", dep("a/n", Limits{})))
	end(t, r, start, "a/m", 1, asked(RateLimited, 9*second))
	mustRefuse(t, r, start, query("m"), Unavailable)
	mustPick(t, r, start, query("n")).Done(start, success())
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
	now := at(1850 * time.Millisecond)
	r.Observe(now, scope("a"), true)
	if b := scopeView(t, r, now, "a").Breaker; b.State != SlowStart || b.Until.Sub(now) != now.Sub(start) {
		t.Fatalf("seen to answer again: %+v, want a slow start as long as it was out", b)
	}
	r.Observe(now, scope("a"), false)
	now = scopeView(t, r, now, "a").Breaker.Until
	trial := mustPick(t, r, now, query("m"))
	r.Observe(now, scope("a"), false) // a probe does not overrule the trial that runs
	trial.Done(now, success())
	if s := state(now); s != SlowStart {
		t.Errorf("after the trial: %v, want slow_start", s)
	}
}

// TestObserveDoesNotUndoAReset: that a connection can be made says nothing about connections that break.
func TestObserveDoesNotUndoAReset(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	end(t, r, start, "a/m", 1, fault(Reset))
	r.Observe(start, scope("a"), true)
	if s := scopeView(t, r, start, "a").Breaker.State; s != Open {
		t.Errorf("after a reset, seen to be reachable: %v, want open", s)
	}
}

// TestRetryInIsWhenAllBreakersLetGo: of a deployment and its endpoint the later counts, of several deployments the soonest.
func TestRetryInIsWhenAllBreakersLetGo(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	var running []*Lease
	for range 6 {
		running = append(running, mustPick(t, r, start, pinned("m", "a")))
	}
	for _, l := range running[1:] {
		l.Done(start, broken()) // the deployment: for 30 s
	}
	running[0].Done(start, unreachable()) // the endpoint: for 1 s
	own := node1(t, r, start, "a/m").Breaker.Until
	if got := mustRefuse(t, r, start, pinned("m", "a"), Unavailable).RetryIn; got != own.Sub(start) {
		t.Errorf("RetryIn %v, want the deployment's, %v", got, own.Sub(start))
	}
	end(t, r, start, "b", 1, asked(RateLimited, 7*second))
	if got := mustRefuse(t, r, start, query("m"), Unavailable).RetryIn; got != 7*second {
		t.Errorf("RetryIn %v, want that of b, 7s", got)
	}
	soon := own.Add(-second / 2)
	r.Observe(soon, scope("a"), false) // the endpoint: for another second
	if got := mustRefuse(t, r, soon, pinned("m", "a"), Unavailable).RetryIn; got != second {
		t.Errorf("RetryIn %v, want the endpoint's, 1s", got)
	}
}

// TestAProcessThatDied: the many streams that it broke off take it out once and briefly; when its endpoint was seen to be
// away and back, it is another process, and in use at once.
func TestAProcessThatDied(t *testing.T) {
	died := func(t *testing.T) *Router {
		r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
		var running []*Lease
		for range 20 {
			running = append(running, mustPick(t, r, start, pinned("m", "a")))
		}
		for _, l := range running {
			l.FirstToken(start)
			l.Done(start, Outcome{Verdict: DeploymentFault, Class: "reset", Fault: BrokeOff, Answered: true, Status: 200})
		}
		if b := node1(t, r, start, "a/m").Breaker; b.State != Open || b.Rule != RuleReset || b.Out != time.Second || b.Openings != 1 {
			t.Fatalf("after 20 streams broke off: %+v, want open once for a second", b)
		}
		return r
	}
	t.Run("back unseen", func(t *testing.T) {
		r := died(t)
		now := at(1100 * time.Millisecond)
		l := mustPick(t, r, now, query("m"))
		if l.Deployment().ID != "a/m" || !l.Decision().Trial {
			t.Fatalf("picked %s, trial %v", l.Deployment().ID, l.Decision().Trial)
		}
		l.Done(now, success())
		if b := node1(t, r, now, "a/m").Breaker; b.State != SlowStart || b.Until.Sub(now) > 1100*time.Millisecond {
			t.Errorf("after a good trial: %+v, want a slow start as long as it was out", b)
		}
	})
	t.Run("seen to go and come", func(t *testing.T) {
		r := died(t)
		r.Observe(at(100*time.Millisecond), scope("a"), false)
		r.Observe(at(600*time.Millisecond), scope("a"), true)
		if b := node1(t, r, at(600*time.Millisecond), "a/m").Breaker; b.State.Out() {
			t.Errorf("after it came back: %+v", b)
		}
	})
	t.Run("breaks off every time", func(t *testing.T) {
		r := died(t)
		now := start
		for _, want := range []time.Duration{2, 4, 8, 16, 30, 30} {
			now = node1(t, r, now, "a/m").Breaker.Until
			l := mustPick(t, r, now, pinned("m", "a"))
			l.Done(now, Outcome{Verdict: DeploymentFault, Class: "reset", Fault: BrokeOff, Answered: true})
			if b := node1(t, r, now, "a/m").Breaker; b.Out != want*time.Second {
				t.Fatalf("out for %v, want %v", b.Out, want*time.Second)
			}
		}
	})
}

// TestAResetEndpointThatWentAway is the endpoint of another process when it comes back.
func TestAResetEndpointThatWentAway(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	mustPick(t, r, start, query("m")).Done(start, Outcome{Verdict: DeploymentFault, Class: "reset", Fault: Reset})
	state := func(d time.Duration) BreakerState { return scopeView(t, r, at(d), "a").Breaker.State }
	r.Observe(at(100*time.Millisecond), scope("a"), true) // pages answer, requests do not
	if s := state(100 * time.Millisecond); s != Open {
		t.Fatalf("it answers pages: %v, want it to stay open", s)
	}
	r.Observe(at(200*time.Millisecond), scope("a"), false)
	r.Observe(at(700*time.Millisecond), scope("a"), true)
	if s := state(700 * time.Millisecond); s.Out() {
		t.Errorf("away and back: %v", s)
	}
}

// TestOutWhenAllDeploymentsAre: an endpoint to which no request goes is looked at as one that is out.
func TestOutWhenAllDeploymentsAre(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})), pool1("n", dep("a/n", Limits{})))
	open(t, r, start, "a/m")
	if r.Out(scope("a")) {
		t.Error("out though another of its deployments is in use")
	}
	for range 5 {
		mustPick(t, r, start, query("n")).Done(start, broken())
	}
	if !r.Out(scope("a")) || r.Out(scope("b")) || r.Out(scope("nobody")) {
		t.Error("want a out alone")
	}
	r.Observe(at(time.Second), scope("a"), false)
	r.Observe(at(2*time.Second), scope("a"), true)
	if r.Out(scope("a")) || node1(t, r, at(2*time.Second), "a/m").Breaker.State != SlowStart {
		t.Error("out after it was started anew")
	}
}

// TestAfterARestartNothingIsHeldAgainstIt: with one request at a time nothing is in flight anywhere, and the least penalty
// for what the old process failed would keep the new one from being chosen.
func TestAfterARestartNothingIsHeldAgainstIt(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	for range 4 {
		mustPick(t, r, start, pinned("m", "a")).Done(start, Outcome{Verdict: DeploymentFault, Class: "reset", Fault: BrokeOff, Answered: true})
	}
	penalty := func(now time.Time) float64 {
		l := mustPick(t, r, now, pinned("m", "a"))
		defer l.Done(now, left())
		return l.Decision().Candidates[0].Penalty
	}
	if p := penalty(start); p != 4 {
		t.Fatalf("penalty %v after four failures", p)
	}
	if p := penalty(at(31 * time.Second)); p != 0 { // less than half a request
		t.Errorf("penalty %v after 31 s", p)
	}
	r.Observe(start, scope("a"), false)
	r.Observe(at(time.Second), scope("a"), true)
	if p := penalty(at(time.Second)); p != 0 {
		t.Errorf("penalty %v after a restart", p)
	}
}

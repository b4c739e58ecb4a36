package route

import (
	"testing"
	"time"
)

// TestProbesDoNotUndoWhatIsCertain: a probe that succeeds knows nothing of a refused credential or of a model that is not
// served; what requests that failed opened it closes when its time is over, after two in a row.
func TestProbesDoNotUndoWhatIsCertain(t *testing.T) {
	f := func(want BreakerState, ill ...Outcome) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
		for _, o := range ill {
			end(t, r, start, "a/m", 1, o)
		}
		if s := state(t, r, start, "a/m"); s != Open {
			t.Fatalf("after %+v: %v, want open", ill, s)
		}
		r.Probed(start, "a/m", Probe{OK: true})
		if s := state(t, r, start, "a/m"); s != Open {
			t.Errorf("after one good probe: %v, want open", s)
		}
		for range 5 {
			r.Probed(start, "a/m", Probe{OK: true})
		}
		if s := state(t, r, start, "a/m"); s != Open {
			t.Errorf("after %v and good probes at once: %v, want open: requests know better", ill[0].Fault, s)
		}
		over := at(34 * second) // the reset time and its jitter
		r.Probed(over, "a/m", Probe{OK: true})
		if s := state(t, r, over, "a/m"); s != want {
			t.Errorf("after %v and good probes: %v, want %v", ill[0].Fault, s, want)
		}
	}
	no := broken()
	f(Open, fault(BadCredential))
	f(Open, fault(Exhausted))
	f(HalfOpen, fault(NotServed)) // by time alone
	f(SlowStart, no, no, no, no, no)
	f(SlowStart, no, success(), no, success(), no, success(), no, success(), success(), no)
}

// TestProbesKnowLessThanRequests: failed probes open nothing within a window of an answer.
func TestProbesKnowLessThanRequests(t *testing.T) {
	f := func(since time.Duration, want BreakerState) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{})))
		end(t, r, start, "a/m", 1, success())
		for range 10 {
			r.Probed(at(since), "a/m", Probe{Reason: "timeout"})
		}
		if s := state(t, r, at(since), "a/m"); s != want {
			t.Errorf("ten failed probes %v after an answer: %v, want %v", since, s, want)
		}
	}
	f(second, Closed)
	f(29*second, Closed)
	f(30*second, Open)
}

// TestReturnForgetsProbesThatFailed: one more that fails after a trial has succeeded does not open again.
func TestReturnForgetsProbesThatFailed(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	for range 3 {
		r.Probed(start, "a/m", Probe{Reason: "timeout"})
	}
	back := node1(t, r, start, "a/m").Breaker.Until
	end(t, r, back, "a/m", 1, success())
	now := back.Add(time.Minute)
	r.Probed(now, "a/m", Probe{Reason: "timeout"})
	r.Probed(now, "a/m", Probe{Reason: "timeout"})
	if s := state(t, r, now, "a/m"); s != Closed {
		t.Errorf("two failed probes after the return: %v, want closed", s)
	}
	r.Probed(now, "a/m", Probe{Reason: "timeout"})
	if b := node1(t, r, now, "a/m").Breaker; b.State != Open || b.Out != time.Minute {
		t.Errorf("three: %+v, want open for 1m, for the second time", b)
	}
}

// TestTrialThatSucceedsCounts in the window that begins with it.
func TestTrialThatSucceedsCounts(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	back := slowStart(t, r, start, "a/m")
	if got := node1(t, r, back, "a/m").Recent; got != (Tally{OK: 1}) {
		t.Errorf("the window holds %+v, want the trial", got)
	}
}

// TestProbeOfNobody is no matter.
func TestProbeOfNobody(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	for range 5 {
		r.Probed(start, "b/m", Probe{})
	}
	mustPick(t, r, start, query("m"))
}

// TestHealthySinceTheLastOutageOfAny scope: a deployment whose endpoint was out is just back too.
func TestHealthySinceTheLastOutageOfAny(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	healthy := func(now time.Time) time.Duration {
		return mustPick(t, r, now, pinned("m", "a")).Decision().Candidates[0].Healthy
	}
	if h := healthy(start); h != Always {
		t.Errorf("never out: %v", h)
	}
	end(t, r, start, "a", 1, unreachable())
	r.Observe(at(5*second), scope("a"), true)
	if h := healthy(at(9 * second)); h != 4*second {
		t.Errorf("its endpoint came back 4 s ago: %v", h)
	}
}

// TestHedgesThatWaitDoNotHoldUpOthers: a waiter that may not go to an endpoint does not keep others from it.
func TestHedgesThatWaitDoNotHoldUpOthers(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{InFlight: 1}), dep("b/m", Limits{InFlight: 1})))
	a, b := mustPick(t, r, start, query("m")), mustPick(t, r, start, query("m"))
	q := query("m")
	q.Beside = a.Deployment()
	apart, any := wait(t, r, start, q), wait(t, r, start, query("m"))
	a.Done(start, success())
	any.mustGet(t).Done(start, success())
	apart.mustWait(t)
	b.Done(start, success())
	apart.mustGet(t).Done(start, success())
	mustBeIdle(t, r, start)
}

// TestHedgesShareNoScope with the attempt they run beside: no endpoint, no credential, no limit of a provider.
func TestHedgesShareNoScope(t *testing.T) {
	with := func(id string, scopes ...Scope) Deployment {
		d := dep(id, Limits{})
		d.Scopes = append(d.Scopes, scopes...)
		return d
	}
	key := Scope{Kind: CredentialScope, Name: "key", URL: "http://provider"}
	elsewhere := Scope{Kind: CredentialScope, Name: "key", URL: "http://other"}
	f := func(want string, others ...Deployment) {
		t.Helper()
		first := with("a/m", key)
		r := newRouter(t, pool1("m", append(others, first)...))
		q := query("m")
		q.Beside, q.Tried = &first, []string{first.ID}
		l, refusal := r.Pick(start, q)
		if refusal != nil {
			if want != "" {
				t.Errorf("nobody may serve beside %s, want %s", first.ID, want)
			}
			return
		}
		if got := l.Deployment().ID; got != want {
			t.Errorf("beside %s: %s, want %q", first.ID, got, want)
		}
		l.Done(start, success())
	}
	f("")
	f("", with("a/other"))
	f("", with("b/m", key))
	f("b/m", with("b/m"))
	f("c/m", with("b/m", key), with("c/m", elsewhere))
}

package route

import (
	"strings"
	"testing"
	"time"
)

func TestOrdersByKind(t *testing.T) {
	withKey := func(id string) Deployment {
		d := dep(id, Limits{})
		d.Scopes = append(d.Scopes, Scope{Kind: CredentialScope, Name: "key", URL: d.URL})
		return d
	}
	f := func(kind, name string, o Override, wantCut Cut, by string, models string) {
		t.Helper()
		r := newRouter(t, pool1("m", withKey("a/m")), pool1("n", withKey("a/n")), pool1("o", dep("b/o", Limits{})))
		running := mustPick(t, r, start, query("m"))
		order(t, r, kind, name, o)
		for _, model := range []string{"m", "n", "o"} {
			if !strings.Contains(models, model) {
				mustPick(t, r, start, query(model)).Done(start, success())
				continue
			}
			refusal := mustRefuse(t, r, start, query(model), Unavailable)
			if c := refusal.Decision.Candidates[0]; c.Cut != wantCut || c.CutBy != by || refusal.RetryIn != 0 {
				t.Errorf("%v %s %s: %s is cut by %q %q, RetryIn %v", o, kind, name, model, c.Cut, c.CutBy, refusal.RetryIn)
			}
		}
		running.FirstToken(start)
		running.Done(start, success()) // what runs may finish, and teaches
		adopt(t, r, start, pool1("m", withKey("a/m")), pool1("n", withKey("a/n")))
		mustRefuse(t, r, at(time.Hour), query("m"), Unavailable) // over a reload, and however long
		order(t, r, kind, name, Automatic)
		mustPick(t, r, start, query("m")).Done(start, success())
		mustBeIdle(t, r, start)
	}
	f("deployment", "a/m", Drain, CutDrained, "", "m")
	f("deployment", "a/m", Disable, CutDisabled, "", "m")
	f("endpoint", "a", Drain, CutDrained, "endpoint a", "mn")
	f("endpoint", "a", Disable, CutDisabled, "endpoint a", "mn")
	f("credential", "key", Disable, CutDisabled, "credential key", "mn")
}

func TestOrderAboutNobody(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	for _, o := range [][2]string{{"deployment", "a"}, {"endpoint", "a/m"}, {"credential", "a"}, {"scope", "a"}, {"", ""}} {
		err := r.Override(start, o[0], o[1], Drain)
		if err == nil || !strings.Contains(err.Error(), o[0]) || !strings.Contains(err.Error(), o[1]) {
			t.Errorf("%q: error %v", o, err)
		}
	}
	mustPick(t, r, start, query("m"))
}

// TestForce lets everything in, whatever was measured, and at full share; afterwards what was measured meanwhile holds.
func TestForce(t *testing.T) {
	f := func(ill func(r *Router)) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
		ill(r)
		before := node1(t, r, start, "a/m").Breaker
		order(t, r, "deployment", "a/m", Force)
		order(t, r, "endpoint", "a", Force)
		if b := node1(t, r, start, "a/m").Breaker; b.State != Closed || b.Share != 1 {
			t.Errorf("forced: %+v", b)
		}
		if counts := picksOf(t, r, start, 100); counts["a/m"] != 100 {
			t.Errorf("forced, the first gets %v", counts)
		}
		end(t, r, start, "a/m", 20, broken())
		end(t, r, start, "a/m", 1, unreachable())
		end(t, r, start, "a/m", 1, asked(RateLimited, time.Minute))
		order(t, r, "deployment", "a/m", Automatic)
		order(t, r, "endpoint", "a", Automatic)
		if after := node1(t, r, start, "a/m").Breaker; after.State == Closed || before.State == Open && after.Out != before.Out {
			t.Errorf("after the order: %+v, before: %+v", after, before)
		}
	}
	f(func(r *Router) { open(t, r, start, "a/m") })
	f(func(r *Router) { end(t, r, start, "a/m", 1, fault(BadCredential)) })
	f(func(r *Router) { end(t, r, start, "a/m", 1, asked(RateLimited, 20*second)) })
	f(func(r *Router) { r.Probed(start, "a/m", Probe{OK: true, Missed: "probe_expect"}) })
	f(func(r *Router) {})
}

// TestReset forgets failures, pauses, slow starts and the row of openings; requests from before say nothing any more.
func TestReset(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	old := mustPick(t, r, start, pinned("m", "a"))
	f := func(ill func()) {
		t.Helper()
		ill()
		order(t, r, "deployment", "a/m", ForgetFailure)
		if b := node1(t, r, start, "a/m").Breaker; b.State != Closed || b.Share != 1 || b.Rule != RuleNone {
			t.Errorf("after the reset: %+v", b)
		}
		l := mustPick(t, r, start, query("m"))
		if c := l.Decision().Candidates[0]; l.Deployment().ID != "a/m" || c.Penalty != 0 || c.Healthy != Always {
			t.Errorf("after the reset %s is chosen, a is %+v", l.Deployment().ID, c)
		}
		l.Done(start, left())
	}
	f(func() { open(t, r, start, "a/m") })
	f(func() { end(t, r, start, "a/m", 1, fault(NotServed)) })
	f(func() { end(t, r, start, "a/m", 1, asked(RateLimited, time.Minute)) })
	f(func() { r.Probed(start, "a/m", Probe{OK: true, Missed: "probe_expect"}) })
	f(func() { order(t, r, "deployment", "a/m", Drain) })
	f(func() { end(t, r, start, "a/m", 4, broken()) })
	old.Done(start, broken())
	end(t, r, start, "a/m", 4, broken())
	if s := state(t, r, start, "a/m"); s != Closed {
		t.Errorf("four failures after the reset: %v", s)
	}
	end(t, r, start, "a/m", 1, broken())
	if b := node1(t, r, start, "a/m").Breaker; b.Out != 30*second {
		t.Errorf("opened again: %+v, want out for 30s as if for the first time", b)
	}
}

// TestOrdersServeWaiters, and refuse those who cannot be served any more.
func TestOrdersServeWaiters(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{InFlight: 1}), dep("b/m", Limits{})))
	order(t, r, "deployment", "b/m", Drain)
	running := mustPick(t, r, start, query("m"))
	one := wait(t, r, start, query("m"))
	one.mustWait(t)
	order(t, r, "deployment", "b/m", Automatic)
	one.mustGet(t).Done(start, success())

	order(t, r, "deployment", "b/m", Disable)
	two := wait(t, r, start, query("m"))
	order(t, r, "endpoint", "a", Disable)
	if l, refusal := two.Result(); l != nil || refusal == nil || refusal.Kind != Unavailable {
		t.Errorf("with all disabled the waiter has %v, %+v", l, refusal)
	}
	running.Done(start, success())
	mustBeIdle(t, r, start)
}

// TestResetOfATrial: its end says nothing about what came after the reset.
func TestResetOfATrial(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	open(t, r, start, "a/m")
	now := node1(t, r, start, "a/m").Breaker.Until
	trial := mustPick(t, r, now, query("m"))
	order(t, r, "deployment", "a/m", ForgetFailure)
	trial.Done(now, broken())
	if s := state(t, r, now, "a/m"); s != Closed {
		t.Errorf("%v, want closed", s)
	}
	mustBeIdle(t, r, now)
}

// TestOrdersOutliveAnAbsence: an address that leaves DNS and comes back finds the order about it, for a day; another address,
// or the same name at another URL, does not.
func TestOrdersOutliveAnAbsence(t *testing.T) {
	f := func(kind, name string, o Override, away time.Duration, want bool) {
		t.Helper()
		a, b := dep("pool@10.0.0.7:8000/m", Limits{}), dep("b/m", Limits{})
		r := newRouter(t, pool1("m", a, b))
		order(t, r, kind, name, o)
		adopt(t, r, start, pool1("m", b))
		now := at(away)
		other := dep("pool@10.0.0.8:8000/m", Limits{})
		moved := a
		moved.URL, moved.Scopes = "http://elsewhere", nil
		adopt(t, r, now, pool1("m", b, other), pool1("n", moved))
		if s := state(t, r, now, other.ID); s == Drained || s == Disabled {
			t.Errorf("another address is %v", s)
		}
		mustPick(t, r, now, query("n")).Done(now, success())
		adopt(t, r, now, pool1("m", a, b))
		d, e := node1(t, r, now, a.ID).Breaker.Order, scopeView(t, r, now, a.Endpoint).Breaker.Order
		if held := d == o && kind == "deployment" || e == o && kind == "endpoint"; held != want {
			t.Errorf("%v of %s %s after %v: the deployment has %v, the endpoint %v", o, kind, name, away, d, e)
		}
		if want {
			adopt(t, r, now, pool1("m", b)) // it goes again, and the order is taken back meanwhile
			order(t, r, kind, name, Automatic)
			adopt(t, r, now, pool1("m", a, b))
			if b := node1(t, r, now, a.ID).Breaker; b.Order != Automatic {
				t.Errorf("the order that was taken back holds: %v", b.Order)
			}
			if err := r.Override(now, kind, "pool@10.0.0.8:8000", Drain); err == nil {
				t.Error("an order about one that left without an order")
			}
		}
		if len(r.orders) > 0 {
			t.Errorf("still kept: %v", r.orders)
		}
		mustBeIdle(t, r, now)
	}
	f("endpoint", "pool@10.0.0.7:8000", Drain, time.Second, true)
	f("endpoint", "pool@10.0.0.7:8000", Disable, OrderKept-1, true)
	f("endpoint", "pool@10.0.0.7:8000", Force, time.Hour, true)
	f("deployment", "pool@10.0.0.7:8000/m", Drain, time.Hour, true)
	f("endpoint", "pool@10.0.0.7:8000", Drain, OrderKept, false)
	f("endpoint", "pool@10.0.0.7:8000", ForgetFailure, time.Second, false)
}

// TestAnOrderAboutOneThatIsAway replaces the one that is kept.
func TestAnOrderAboutOneThatIsAway(t *testing.T) {
	a, b := dep("a/m", Limits{}), dep("b/m", Limits{})
	r := newRouter(t, pool1("m", a, b))
	order(t, r, "endpoint", "a", Force)
	adopt(t, r, start, pool1("m", b))
	order(t, r, "endpoint", "a", Disable)
	adopt(t, r, at(time.Hour), pool1("m", a, b))
	if s := scopeView(t, r, at(time.Hour), "a").Breaker.State; s != Disabled {
		t.Errorf("%v, want disabled", s)
	}
}

func TestParseOverride(t *testing.T) {
	for _, o := range []Override{Automatic, Drain, Disable, Force, ForgetFailure} {
		if got, err := ParseOverride(o.String()); got != o || err != nil {
			t.Errorf("%v: %v, %v", o, got, err)
		}
	}
	if _, err := ParseOverride("kill"); err == nil || !strings.Contains(err.Error(), `"kill"`) || !strings.Contains(err.Error(), "drain") {
		t.Errorf("error %v", err)
	}
}

// TestForceLeavesNoPenalty: what fails of late counts as load, but not for one that is to be used by order.
func TestForceLeavesNoPenalty(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	end(t, r, start, "a/m", 3, broken())
	penalty := func() float64 {
		l := mustPick(t, r, start, query("m"))
		defer l.Done(start, left())
		for _, c := range l.Decision().Candidates {
			if c.ID == "a/m" {
				return c.Penalty
			}
		}
		return -1
	}
	if p := penalty(); p != 3 {
		t.Errorf("after three failures: %v, want 3", p)
	}
	order(t, r, "deployment", "a/m", Force)
	if p := penalty(); p != 0 {
		t.Errorf("by order: %v, want 0", p)
	}
}

// TestBackAfterCountsPausesAndOrders: for strategies that go back only to who has been well for a while.
func TestBackAfterCountsPausesAndOrders(t *testing.T) {
	f := func(ill func(r *Router), at1 time.Time, want time.Duration) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
		ill(r)
		l := mustPick(t, r, at1, query("m"))
		defer l.Done(at1, left())
		for _, c := range l.Decision().Candidates {
			if c.ID == "a/m" && c.Healthy != want {
				t.Errorf("well for %v, want %v", c.Healthy, want)
			}
		}
	}
	f(func(*Router) {}, at(5*time.Second), Always)
	f(func(r *Router) { end(t, r, start, "a/m", 1, asked(RateLimited, time.Second)) }, at(5*time.Second), 4*time.Second)
	f(func(r *Router) {
		order(t, r, "deployment", "a/m", Drain)
		order(t, r, "deployment", "a/m", Automatic)
	}, at(5*time.Second), 5*time.Second)
}

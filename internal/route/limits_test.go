package route

import (
	"math"
	"testing"
	"time"
)

// used is a success that took so many tokens in and out.
func used(in, out int) Outcome {
	o := success()
	o.Reported, o.InputTokens, o.OutputTokens = true, in, out
	return o
}

// TestRequestsPerMinute: a minute's worth at once, then one each second; over it the request waits, and is not refused.
func TestRequestsPerMinute(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{RPM: 60})))
	end(t, r, start, "a/m", 60, success())
	refusal := mustRefuse(t, r, start, query("m"), Saturated)
	if c := refusal.Decision.Candidates[0]; c.Cut != CutQuota || c.Until != second || refusal.RetryIn != second {
		t.Errorf("cut by %q for %v, RetryIn %v, want quota for 1s", c.Cut, c.Until, refusal.RetryIn)
	}
	mustRefuse(t, r, at(second-time.Millisecond), query("m"), Saturated)
	end(t, r, at(second), "a/m", 1, success())
	mustRefuse(t, r, at(second), query("m"), Saturated)
	end(t, r, at(31*second), "a/m", 30, success())
	mustRefuse(t, r, at(31*second), query("m"), Saturated)
}

// TestGoesElsewhereBeforeItWaits, and says why not there.
func TestGoesElsewhereBeforeItWaits(t *testing.T) {
	r := newRouter(t, pool1("m", depWith("a/m", Limits{}, Limits{RPM: 1}), dep("b/m", Limits{RPM: 1})))
	for _, want := range []string{"a/m", "b/m"} {
		l := mustPick(t, r, start, query("m"))
		if l.Deployment().ID != want {
			t.Errorf("chose %s, want %s", l.Deployment().ID, want)
		}
		if want == "b/m" {
			if c := l.Decision().Candidates[1]; c.Cut != CutQuota || c.CutBy != "endpoint a" || c.Until != time.Minute {
				t.Errorf("a is cut by %q %q for %v", c.Cut, c.CutBy, c.Until)
			}
		}
		l.Done(start, success())
	}
	mustRefuse(t, r, start, query("m"), Saturated)
}

// TestWaiterIsServedWhenTheMinuteHasRoom: Tick says when, serves then, and in order.
func TestWaiterIsServedWhenTheMinuteHasRoom(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{RPM: 60}), dep("b/m", Limits{RPM: 6})))
	end(t, r, start, "a/m", 60, success())
	end(t, r, start, "b/m", 6, success())
	one, two, pinnedToB := wait(t, r, start, query("m")), wait(t, r, start, query("m")), wait(t, r, start, pinned("m", "b"))
	for i, w := range []*waiter{one, two} {
		due := at(time.Duration(i+1) * second)
		if next := r.Tick(at(time.Duration(i) * second)); next != due {
			t.Fatalf("Tick asks to be called at %v, want %v", next, due)
		}
		r.Tick(due.Add(-time.Millisecond))
		w.mustWait(t)
		r.Tick(due)
		l := w.mustGet(t)
		if l.Deployment().ID != "a/m" {
			t.Errorf("got %s", l.Deployment().ID)
		}
		l.Done(due, success())
	}
	pinnedToB.mustWait(t)
	if next := r.Tick(at(2 * second)); next != at(10*second) {
		t.Errorf("Tick asks to be called at %v, want in 10s", next.Sub(start))
	}
	r.Tick(at(10 * second))
	pinnedToB.mustGet(t).Done(at(10*second), success())
	mustBeIdle(t, r, at(10*second))
}

// TestTokensPerMinute are taken as estimated and settled with what was used.
func TestTokensPerMinute(t *testing.T) {
	f := func(o Outcome, left int) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{TPM: 6000})))
		q := query("m")
		q.Facts.PromptBytes, q.Facts.MaxOutput = 3800, 1000 // 2000 tokens
		l := mustPick(t, r, start, q)
		mustRefuse(t, r, start, tokens("m", 4001), Saturated)
		mustPick(t, r, start, tokens("m", 200)).Done(start, used(0, 200)) // nobody else's is touched
		l.Done(start, o)
		order(t, r, "deployment", "a/m", ForgetFailure) // tokens are the matter here, not health
		order(t, r, "endpoint", "a", ForgetFailure)
		left -= 200 // what the other one used
		if refusal := mustRefuse(t, r, start, tokens("m", left+100), Saturated); refusal.RetryIn != second {
			t.Errorf("%+v: 100 more than what should be left come in %v, want 1s", o, refusal.RetryIn)
		}
		mustPick(t, r, start, tokens("m", left)).Done(start, success())
	}
	f(used(1000, 1000), 4000)
	f(used(500, 100), 5400)
	f(used(1200, 1500), 3300)
	f(unreachable(), 6000)
	f(broken(), 6000)
	f(left(), 6000)
	gone := left()
	gone.InputTokens, gone.OutputTokens = 1000, 50 // it left in the middle of the answer
	f(gone, 4950)
	f(asked(RateLimited, 0), 6000)
}

// TestLargerThanAMinutesTokens passes when the minute is full, and pays for it afterwards.
func TestLargerThanAMinutesTokens(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{TPM: 600})))
	mustPick(t, r, start, tokens("m", 1800)).Done(start, used(0, 1800))
	if got := mustRefuse(t, r, start, tokens("m", 600), Saturated).RetryIn; got != 180*second {
		t.Errorf("the next full minute is there in %v, want 3m", got)
	}
}

// TestRequestIsGivenBack if upstream has never seen it, and only then.
func TestRequestIsGivenBack(t *testing.T) {
	f := func(o Outcome, back bool) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{RPM: 1})))
		end(t, r, start, "a/m", 1, o)
		r.Observe(start, scope("a"), true)
		l, _ := r.Pick(start, query("m"))
		if (l != nil) != back {
			t.Errorf("%+v: another may go: %v, want %v", o, l != nil, back)
		}
	}
	f(unreachable(), true)
	f(success(), false)
	f(broken(), false)
	f(left(), false)
}

// TestGrantNobodyTookCostsNoRequest: it was never sent.
func TestGrantNobodyTookCostsNoRequest(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{RPM: 2, InFlight: 1, TPM: 6000})))
	running := mustPick(t, r, start, query("m"))
	w := wait(t, r, start, query("m"))
	running.Done(start, used(10, 10))
	w.Cancel(start)
	mustPick(t, r, start, tokens("m", 6000-20)).Done(start, success())
	mustBeIdle(t, r, start)
}

// TestLimitsOverAReload: a new limit holds at once, and what was used stays used.
func TestLimitsOverAReload(t *testing.T) {
	spec := func(rpm int) PoolSpec { return pool1("m", dep("a/m", Limits{RPM: rpm})) }
	r := newRouter(t, spec(60))
	end(t, r, start, "a/m", 50, success())
	adopt(t, r, start, spec(60))
	adopt(t, r, start, spec(55))
	end(t, r, start, "a/m", 5, success())
	mustRefuse(t, r, start, query("m"), Saturated)
	adopt(t, r, start, spec(0))
	end(t, r, start, "a/m", 100, success())
	adopt(t, r, start, spec(60)) // 55 were counted
	end(t, r, start, "a/m", 5, success())
	mustRefuse(t, r, start, query("m"), Saturated)
	adopt(t, r, start, spec(120))
	end(t, r, start, "a/m", 60, success())
	mustRefuse(t, r, start, query("m"), Saturated)
}

// TestLimitThatComesWhileRequestsRun: nothing is given back that was never taken, and what they used is taken.
func TestLimitThatComesWhileRequestsRun(t *testing.T) {
	spec := func(tpm int) PoolSpec { return pool1("m", dep("a/m", Limits{TPM: tpm})) }
	r := newRouter(t, spec(0))
	var running []*Lease
	for range 10 {
		running = append(running, mustPick(t, r, start, tokens("m", 5000)))
	}
	adopt(t, r, start, spec(6000))
	for _, l := range running {
		l.Done(start, used(100, 100))
	}
	mustPick(t, r, start, tokens("m", 4000)).Done(start, used(2000, 2000))
	mustRefuse(t, r, start, tokens("m", 100), Saturated)
	mustBeIdle(t, r, start)
}

// TestLimitOfAScopeIsShared over models and keys, as its requests are.
func TestLimitOfAScopeIsShared(t *testing.T) {
	key := Scope{Kind: CredentialScope, Name: "key", URL: "http://a", Limits: Limits{RPM: 3}}
	one, two := dep("a/m", Limits{}), dep("a/n", Limits{})
	one.Scopes, two.Scopes = append(one.Scopes, key), append(two.Scopes, key)
	r := newRouter(t, pool1("m", one), pool1("n", two))
	for _, model := range []string{"m", "n", "n"} {
		mustPick(t, r, start, query(model)).Done(start, success())
	}
	for _, model := range []string{"m", "n"} {
		if c := mustRefuse(t, r, start, query(model), Saturated).Decision.Candidates[0]; c.Cut != CutQuota || c.CutBy != "credential key" {
			t.Errorf("%s is cut by %q %q", model, c.Cut, c.CutBy)
		}
	}
}

// TestAbsurdUsage that an engine reports gives no tokens back, takes a minute's worth more than was estimated at the most, and
// does not make everybody expect such answers.
func TestAbsurdUsage(t *testing.T) {
	for _, n := range []int{math.MaxInt, math.MinInt, -1, 1 << 31, 1 << 62} {
		r := newRouter(t, pool1("m", dep("a/m", Limits{TPM: 6000, Tokens: 100_000})))
		mustPick(t, r, start, tokens("m", 6000)).Done(start, used(n, n))
		l, refusal := r.Pick(start, tokens("m", 6000))
		switch {
		case n > 0 && (l != nil || refusal.RetryIn != 2*time.Minute):
			t.Errorf("%d: %v, %+v", n, l, refusal)
		case n < 0 && l == nil:
			t.Errorf("%d: refused for %v", n, refusal.RetryIn)
		}
	}
	r := newRouter(t, pool1("m", dep("a/m", Limits{Tokens: 100_000})))
	o := used(10, 1<<31)
	o.Reported = true
	mustPick(t, r, start, tokens("m", 10)).Done(start, o)
	one, two := mustPick(t, r, start, query("m")), mustPick(t, r, start, query("m")) // beside each other
	one.Done(start, left())
	two.Done(start, left())
	for range 10 {
		o.OutputTokens = 100
		mustPick(t, r, start, query("m")).Done(start, o)
	}
	if l := mustPick(t, r, start, query("m")); l.expected > 4000 {
		t.Errorf("after ten short answers %d tokens are expected", l.expected)
	}
}

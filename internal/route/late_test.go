package route

import (
	"fmt"
	"testing"
	"time"
)

// TestFailuresFromBeforeAnOutageOfTheEndpoint: what hung when the network broke, and times out long after it is well
// again, says nothing about the deployment that answers now.
func TestFailuresFromBeforeAnOutageOfTheEndpoint(t *testing.T) {
	hang := func(r *Router) (hung []*Lease) {
		for range 20 {
			hung = append(hung, mustPick(t, r, start, pinned("m", "a")))
		}
		return hung
	}
	f := func(name string, outage func(r *Router) time.Time) {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
			hung := hang(r)
			now := outage(r)
			for _, l := range hung {
				l.Done(now, Outcome{Verdict: DeploymentFault, Class: "timeout"})
			}
			l := mustPick(t, r, now, pinned("m", "a"))
			if p := l.Decision().Candidates[0].Penalty; p != 0 {
				t.Errorf("penalty %v for failures from before the outage", p)
			}
			l.Done(now, success())
			if b := node1(t, r, now, "a/m").Breaker; b.Openings != 0 {
				t.Errorf("opened by failures from before the outage: %+v", b)
			}
			mustBeIdle(t, r, now)
		})
	}
	f("seen to come back", func(r *Router) time.Time {
		r.Observe(start, scope("a"), false)
		r.Observe(at(10*time.Second), scope("a"), true)
		return at(120 * time.Second)
	})
	f("found by a trial", func(r *Router) time.Time {
		mustPick(t, r, start, pinned("m", "a")).Done(start, unreachable())
		now := scopeView(t, r, start, "a").Breaker.Until
		mustPick(t, r, now, pinned("m", "a")).Done(now, success())
		return at(120 * time.Second)
	})
}

// TestFailuresAmidResetsCount: a deployment that hangs, at an endpoint that resets a new connection now and then, goes out.
func TestFailuresAmidResetsCount(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	now := start
	for i := range 5 {
		end(t, r, now, "a", 1, Outcome{Class: "client_fault", Answered: true, Status: 400}) // the endpoint is back
		hung := mustPick(t, r, now, pinned("m", "a"))
		mustPick(t, r, now, pinned("m", "a")).Done(now, fault(Reset))
		now = now.Add(30 * time.Second)
		hung.Done(now, Outcome{Verdict: DeploymentFault, Class: "timeout", Answered: true})
		if got := node1(t, r, now, "a/m").Breaker.State == Open; got != (i == 4) {
			t.Errorf("after %d timeouts: open %v", i+1, got)
		}
	}
}

// TestLateFailuresLeaveNoPenalty: the rest of what failed when a deployment went out does not count once it is back.
func TestLateFailuresLeaveNoPenalty(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	var late []*Lease
	for range 20 {
		late = append(late, mustPick(t, r, start, pinned("m", "a")))
	}
	end(t, r, start, "a", 5, broken())
	now := node1(t, r, start, "a/m").Breaker.Until
	end(t, r, now, "a", 1, success())
	for _, l := range late {
		l.Done(now, broken())
	}
	l := mustPick(t, r, now, pinned("m", "a"))
	defer l.Done(now, success())
	if p := l.Decision().Candidates[0].Penalty; p != 0 {
		t.Errorf("penalty %v", p)
	}
}

// TestLateAnswersTeachNoSpeed: how long one took that began before the outage says nothing about what is there now.
func TestLateAnswersTeachNoSpeed(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	late := mustPick(t, r, start, pinned("m", "a"))
	end(t, r, start, "a", 5, broken())
	now := node1(t, r, start, "a/m").Breaker.Until
	end(t, r, now, "a", 1, took(time.Second))
	late.Done(now, took(29*time.Second))
	if d := node1(t, r, now, "a/m"); d.TTFT != time.Second || d.P95 != time.Second {
		t.Errorf("time to first token %v, 95th percentile %v, want 1s for both", d.TTFT, d.P95)
	}
}

// TestRetryAtOnceIsNoTime: an error that says to come back at once, by a zero or a date that is past, says no time. Else
// who fails fast and says so would draw all requests for ever.
func TestRetryAtOnceIsNoTime(t *testing.T) {
	f := func(fault Fault, n int, rule Rule) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
		now := start
		for range n {
			if s := state(t, r, now, "a/m"); s != Closed {
				t.Fatalf("%v: %v too early", fault, s)
			}
			end(t, r, now, "a", 1, asked(fault, time.Nanosecond))
			now = now.Add(time.Millisecond) // it is asked again at once
		}
		if b := node1(t, r, now, "a/m").Breaker; b.State != Open || b.Rule != rule {
			t.Errorf("%v: %+v after %d, want open for %v", fault, b, n, rule)
		}
	}
	f(Failure, 5, RuleConsecutive)
	f(RateLimited, 10, RuleRateLimited)
}

// TestWindowOfNoLength divides by nothing.
func TestWindowOfNoLength(t *testing.T) {
	r := newRouterWith(t, Health{Window: 1}, pool1("m", dep("a/m", Limits{})))
	end(t, r, start, "a", 1, success())
	end(t, r, at(time.Second), "a", 1, broken())
}

// TestAnswers: as long as tokens come, or requests end well, and none has failed since.
func TestAnswers(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	f := func(now time.Time, want bool) {
		t.Helper()
		if got := r.Answers(now, scope("a")); got != want {
			t.Errorf("after %v: answers %v, want %v", now.Sub(start), got, want)
		}
	}
	f(start, false)
	stream := mustPick(t, r, start, query("m"))
	f(start, false)
	stream.FirstToken(start)
	f(at(29*time.Second), true)
	f(at(30*time.Second), false)
	stream.Progress(at(20*time.Second), 5)
	f(at(49*time.Second), true)
	stream.Done(at(49*time.Second), Outcome{Verdict: DeploymentFault, Class: "timeout", Answered: true})
	f(at(49*time.Second), false)
	end(t, r, at(49*time.Second), "a", 1, success())
	f(at(50*time.Second), true)
	open(t, r, at(50*time.Second), "a/m")
	f(at(50*time.Second), false)
	if r.Answers(start, scope("nobody")) {
		t.Error("nobody answers")
	}
}

// TestGrantsNobodyTookSayNothingOfSpeed: when many who wait leave at one time, each is granted the room that the one before
// gave back unused. That is not how fast requests are served.
func TestGrantsNobodyTookSayNothingOfSpeed(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{InFlight: 1})))
	for i := range 20 {
		now := at(time.Duration(i) * 10 * time.Second)
		mustPick(t, r, now, query("m")).Done(now.Add(10*time.Second), success())
	}
	now := at(200 * time.Second)
	running := mustPick(t, r, now, query("m"))
	var waiters []*waiter
	for range 200 {
		waiters = append(waiters, wait(t, r, now, query("m")))
	}
	running.Done(now, left())
	for _, w := range waiters {
		w.Cancel(now)
	}
	mustBeIdle(t, r, now)
	again := mustPick(t, r, now, query("m"))
	defer again.Done(now, success())
	if rate := r.models["m"].overload.drain.perSecond(); rate > 0.2 {
		t.Errorf("%.2f requests a second, want about one in 10 s", rate)
	}
}

// TestModelsThatLeftAreForgotten once nothing runs there any more.
func TestModelsThatLeftAreForgotten(t *testing.T) {
	r := New(Options{})
	var last *Lease
	for i := range 100 {
		name := fmt.Sprintf("m%d", i)
		adopt(t, r, start, pool1(name, dep("a/"+name, Limits{})))
		last = mustPick(t, r, start, query(name))
		if i < 99 {
			last.Done(start, success())
		}
	}
	if len(r.models) != 1 {
		t.Errorf("%d models are remembered, want 1", len(r.models))
	}
	adopt(t, r, start)
	if len(r.models) != 1 {
		t.Errorf("%d models are remembered while a request runs, want 1", len(r.models))
	}
	last.Done(start, success())
	if len(r.models) != 0 {
		t.Errorf("%d models are remembered, want none", len(r.models))
	}
}

// TestThresholdThatIsTakenBack: who is slow by a limit is not slow any more when there is none.
func TestThresholdThatIsTakenBack(t *testing.T) {
	h := Health{TTFTThreshold: time.Second}
	r := newRouterWith(t, h, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
	now := start
	for range 10 {
		now = now.Add(time.Second)
		end(t, r, now, "a", 1, took(5*time.Second))
	}
	if s := state(t, r, now, "a/m"); s != Degraded {
		t.Fatalf("%v, want degraded", s)
	}
	r.Configure(Options{Health: h})
	if s := state(t, r, now, "a/m"); s != Degraded {
		t.Errorf("%v after a reload that changed nothing, want degraded", s)
	}
	r.Configure(Options{})
	if s := state(t, r, now, "a/m"); s != Closed {
		t.Errorf("%v without a threshold, want closed", s)
	}
}

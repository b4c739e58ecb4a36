package exchange

import (
	"testing"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// occupy takes the only room of a deployment and returns what gives it back.
func (b *bench) occupy(id string) func() {
	b.t.Helper()
	l, refusal := b.router.Pick(b.now, route.Query{Model: "m", Facts: &route.Facts{Model: "m", Pin: id}})
	if refusal != nil {
		b.t.Fatalf("no room at %s: %v", id, refusal.Kind)
	}
	return func() { l.Done(b.now, route.Outcome{Class: "client_gone"}) }
}

// TestRetryThatOnlyWaitedCostsNothing: a retry that waits for room until the client leaves, the deadline passes or the
// process ends was never made, so the budget has it again.
func TestRetryThatOnlyWaitedCostsNothing(t *testing.T) {
	f := func(name string, ending func(b *bench)) {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 2, route.Limits{InFlight: 1}))
			defer func(free func()) { free(); b.idle() }(b.occupy("b-m/m"))
			b.do(Event{Kind: Started}, Dispatch)
			full := b.budget.parts
			b.do(ended(llm.ServerError), Wait)
			if b.budget.parts != full-part {
				t.Fatalf("%d parts left of %d while the retry waits, want one retry less", b.budget.parts, full)
			}
			ending(b)
			b.x.Close(b.now)
			if b.budget.parts != full {
				t.Errorf("%d parts left of %d after a retry that was not made", b.budget.parts, full)
			}
		})
	}
	f("the client leaves", func(b *bench) { b.do(Event{Kind: Gone}, Finish) })
	f("the deadline passes", func(b *bench) { b.after(60*time.Second).do(Event{Kind: Timer}, Commit, Finish) })
	f("the process ends", func(b *bench) { b.do(Event{Kind: Shutdown}, Fail) })
	f("the shell panics", func(*bench) {})
}

// TestDeadlineOfWhoWaitedLong: who waited for most of its deadline before a deployment was given to it says nothing about
// that deployment when the rest of the time is too short. Under overload all are like that, and would take it out.
func TestDeadlineOfWhoWaitedLong(t *testing.T) {
	f := func(waited time.Duration, want route.Verdict) {
		t.Helper()
		plan := Plan{Deadlines: Deadlines{Deadline: 10 * time.Second, FirstToken: 30 * time.Second}}
		b := newBench(t, plan, route.Facts{Stream: true}, pool(t, "m", 1, route.Limits{InFlight: 1}))
		free := b.occupy("a-m/m")
		b.do(Event{Kind: Started}, Wait)
		b.after(waited)
		free()
		b.do(Event{Kind: Granted}, Dispatch)
		b.now = epoch.Add(10 * time.Second)
		b.do(Event{Kind: Timer}, Cancel)
		if f := b.do(ended(llm.None), Fail)[0].Failure; f.Status != 504 || f.Code != "evenkeel_deadline_exceeded" {
			t.Errorf("failure %+v", f)
		}
		if got := b.result(Failed).Last().Outcome.Verdict; got != want {
			t.Errorf("after a wait of %v the verdict is %v, want %v", waited, got, want)
		}
	}
	f(8*time.Second, route.NotDeploymentFault)
	f(4*time.Second, route.DeploymentFault)
}

// TestFallbackThatIsOutTakesNoRetry: the only deployment of a model is tried again after a pause also where the model has
// a fallback, if that is out: else a chain would make a model less reliable.
func TestFallbackThatIsOutTakesNoRetry(t *testing.T) {
	plan := Plan{Models: []string{"m", "n"}, Repeatable: true}
	b := newBench(t, plan, route.Facts{}, pool(t, "m", 1, route.Limits{}), pool(t, "n", 1, route.Limits{}))
	b.router.Observe(b.now, route.Scope{Kind: route.EndpointScope, Name: "a-n", URL: "http://a-n"}, false)
	b.do(Event{Kind: Started}, Dispatch)
	b.do(ended(llm.ServerError), Wait)
	b.after(firstPause).do(Event{Kind: Timer}, Dispatch)
	if got := b.lease.Deployment().Model; got != "m" {
		t.Errorf("dispatched to model %s", got)
	}
	b.do(ended(llm.None), Commit, Finish)
	if r := b.result(Complete); r.Depth != 0 || r.Model != "m" || len(r.Attempts) != 2 {
		t.Errorf("depth %d, model %s, %d attempts", r.Depth, r.Model, len(r.Attempts))
	}
}

// TestWholeAnswerWithoutAnEnd: what passed was the wait for the end of an answer that is whole: it counts as one.
func TestWholeAnswerWithoutAnEnd(t *testing.T) {
	f := func(end Event, verdict route.Verdict, result Result, want ActionKind) {
		t.Helper()
		plan := Plan{Deadlines: Deadlines{BetweenTokens: time.Second}}
		b := newBench(t, plan, route.Facts{Stream: true}, pool(t, "m", 1, route.Limits{}))
		b.do(Event{Kind: Started}, Dispatch)
		b.do(Event{Kind: Content}, Commit)
		b.after(time.Second).do(Event{Kind: Timer}, Cancel)
		b.do(end, want)
		if o := b.result(result).Last().Outcome; o.Verdict != verdict {
			t.Errorf("verdict %v, want %v", o.Verdict, verdict)
		}
	}
	f(ended(llm.None), route.Success, Complete, Finish)
	f(ended(llm.Reset), route.DeploymentFault, Cut, Fail)
}

// TestBudgetOfAnySize is never negative.
func TestBudgetOfAnySize(t *testing.T) {
	b := NewBudget(1, 1e300)
	if !b.take() {
		t.Error("a huge budget has nothing")
	}
}

// TestMostOfAFleetHasDied: the first requests still find who is left, though that takes more than the usual attempts.
func TestMostOfAFleetHasDied(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 6, route.Limits{}))
	for b.budget.take() {
	}
	b.do(Event{Kind: Started}, Dispatch)
	for range 5 {
		b.do(ended(llm.Connect), Dispatch)
	}
	b.do(ended(llm.None), Commit, Finish)
	if r := b.result(Complete); len(r.Attempts) != 6 {
		t.Errorf("%d attempts", len(r.Attempts))
	}
}

// TestNobodyIsCountedAtLast: what an engine may have seen is an attempt, one attempt is one, and there is an end to it.
func TestNobodyIsCountedAtLast(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 20, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	for range 2 {
		b.do(ended(llm.Connect), Dispatch)
		b.do(ended(llm.ServerError), Dispatch)
	}
	b.do(ended(llm.ServerError), Commit, Finish)
	b.result(UpstreamError)

	b = newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 20, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	for range mostNobody + 2 {
		b.do(ended(llm.Connect), Dispatch)
	}
	b.do(ended(llm.Connect), Fail)
	b.result(Failed)

	b = newBench(t, Plan{Repeatable: true, MaxAttempts: 1}, route.Facts{}, pool(t, "m", 2, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(ended(llm.Connect), Fail)
	b.result(Failed)
}

// TestOnlyFirstAttemptsEarn: who is turned away, and a client's own retry, leave the budget as it is. Else an overload that
// turns most away would let the others multiply.
func TestOnlyFirstAttemptsEarn(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 2, route.Limits{InFlight: 1}))
	for b.budget.take() {
	}
	free := b.occupy("a-m/m")
	defer b.occupy("b-m/m")()
	for range 10 { // the queue holds as many
		x := b.exchange(Plan{}, route.Facts{})
		x.Next(b.now, Event{Kind: Started})
		defer func() { x.Close(b.now) }()
	}
	f := func(facts route.Facts, earned int64, want ...ActionKind) {
		t.Helper()
		b.x = b.exchange(Plan{}, facts)
		b.do(Event{Kind: Started}, want...)
		b.x.Close(b.now)
		if b.budget.parts != earned {
			t.Errorf("the budget holds %d parts, want %d", b.budget.parts, earned)
		}
	}
	for range 100 {
		f(route.Facts{}, 0, Fail)
	}
	free()
	b = newBench(t, Plan{}, route.Facts{}, pool(t, "m", 1, route.Limits{}))
	for b.budget.take() {
	}
	f(route.Facts{ClientRetry: 1}, 0, Dispatch)
	f(route.Facts{}, part/10, Dispatch)
}

package exchange

import (
	"testing"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

func TestTimeThatTheClientTookIsNotUpstreams(t *testing.T) {
	b := newBench(t, Plan{}, route.Facts{Stream: true}, pool(t, "m", 1, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.after(time.Second).do(Event{Kind: Content}, Commit)
	b.wakesAfter(11 * time.Second)
	b.x.Blocked(30 * time.Second)
	b.wakesAfter(41 * time.Second)
	b.after(30 * time.Second).do(Event{Kind: Timer})
	b.after(2 * time.Second)
	b.x.Progress(b.now, 5)
	b.do(ended(llm.None, func(e *End) { e.Outcome.OutputTokens = 5 }), Finish)
	if o := b.result(Complete).Last().Outcome; o.ITL != 500*time.Millisecond {
		t.Errorf("time between tokens %v, want 500ms", o.ITL)
	}
}

func TestTimeThatTheClientTookExtendsAWholeAnswer(t *testing.T) {
	b := newBench(t, Plan{}, route.Facts{}, pool(t, "m", 1, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(Event{Kind: Release}, Commit)
	b.wakesAfter(40 * time.Second)
	b.x.Blocked(5 * time.Second)
	b.wakesAfter(45 * time.Second)
	b.after(45*time.Second).do(Event{Kind: Timer}, Cancel)
	b.do(ended(llm.Reset), Fail)
	b.result(Cut)
}

// An exchange that a bug stopped while it was starting gives back what the budget counted.
func TestCloseWhileStarting(t *testing.T) {
	b := newBench(t, Plan{}, route.Facts{}, pool(t, "m", 1, route.Limits{}))
	b.x.router = nil
	func() {
		defer func() { _ = recover() }()
		b.x.Next(b.now, Event{Kind: Started})
	}()
	b.x.Close(b.now)
	if b.result(Aborted); b.budget.inFlight != 0 {
		t.Errorf("the budget counts %d requests in flight", b.budget.inFlight)
	}
}

package exchange

import (
	"testing"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/strategy"
)

// TestHeld: an exchange waits while the deployment that is best for it is not ready, goes on when it is, and says so; and who leaves
// while it is held leaves nothing behind.
func TestHeld(t *testing.T) {
	s, err := strategy.New("predicted_wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := pool(t, "m", 1, route.Limits{})
	p.Strategy = s
	facts := route.Facts{Stream: true, PromptBytes: 40_000}
	b := newBench(t, Plan{}, facts, p)
	var before []*route.Lease
	for range 4 {
		f := facts
		l, refusal := b.router.Pick(b.now, route.Query{Model: "m", Facts: &f})
		if refusal != nil {
			t.Fatalf("refused: %v", refusal.Kind)
		}
		before = append(before, l)
	}
	b.router.Signal(b.now, p.Deployments[0].Scopes[0], "", route.Signal{At: b.now, Running: 1, Waiting: 3, KVUse: route.NotTold})
	b.do(Event{Kind: Started}, Wait)
	gone := b.exchange(Plan{}, facts)
	if a := gone.Next(b.now, Event{Kind: Started}); len(a) != 1 || a[0].Kind != Wait {
		t.Fatalf("got %v", a)
	}
	gone.Next(b.now, Event{Kind: Gone})
	b.after(time.Second)
	for _, l := range before {
		l.FirstToken(b.now)
	}
	if b.poked != 1 {
		t.Fatalf("told %d times, want once", b.poked)
	}
	b.do(Event{Kind: Granted}, Dispatch)
	for _, l := range before {
		l.Done(b.now, route.Outcome{Verdict: route.Success, Answered: true, Status: 200})
	}
	b.do(Event{Kind: Content}, Commit)
	b.do(ended(llm.None), Finish)
	r := b.result(Complete)
	if len(r.Refusals) != 1 || r.Refusals[0].Kind != route.Held || r.Queued != time.Second {
		t.Errorf("refusals %v, in the queue for %v", r.Refusals, r.Queued)
	}
	if waiting := b.router.View(b.now).Waiting; len(waiting) != 0 {
		t.Errorf("still waiting: %v", waiting)
	}
}

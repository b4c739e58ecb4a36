package exchange

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// story is all that a record tells.
func story(r *Record) string {
	s := fmt.Sprintln(r.Facts, r.Blocks, r.Started, r.Ended, r.Queued, r.Depth, r.Model, r.Result, r.Status, r.Content, r.Last() == &r.Attempts[len(r.Attempts)-1])
	for _, a := range r.Attempts {
		d := *a.Decision
		a.Decision = nil
		s += fmt.Sprintf("%+v %+v\n", a, d)
	}
	for _, f := range r.Refusals {
		s += fmt.Sprintf("%v %+v\n", f.Kind, *f.Decision)
	}
	if r.Failure != nil {
		s += fmt.Sprintf("%+v\n", *r.Failure)
	}
	return s
}

// TestRecycledRecords: in the memory of requests that failed over, and of more deployments than a record keeps, the next one's record is as in
// new memory.
func TestRecycledRecords(t *testing.T) {
	tell := func(deployments int, again func(*bench)) (stories string) {
		b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", deployments, route.Limits{}))
		for n, class := range []llm.Class{llm.ServerError, llm.None, llm.Connect, llm.ClientFault, llm.None} {
			b.do(Event{Kind: Started}, Dispatch)
			if class == llm.ServerError || class == llm.Connect {
				b.after(time.Second).do(ended(class), Dispatch)
				class = llm.None
			}
			if b.after(time.Second).do(ended(class), Commit, Finish); n == 1 {
				b.now = b.now.Add(time.Minute)
			}
			stories += story(b.x.Record())
			b.x.Close(b.now)
			again(b)
			facts := route.Facts{Model: "m", Arrived: b.now, Seed: uint64(n)}
			plan := b.exchange(Plan{Repeatable: true}, facts).plan
			b.x.Reset(b.router, b.budget, &plan, &facts)
		}
		return stories
	}
	for _, n := range []int{3, 40} {
		if got, want := tell(n, func(b *bench) { b.x.Recycle() }), tell(n, func(b *bench) { b.x.Forget() }); got != want {
			t.Errorf("%d deployments: recycled\n%s\nnew\n%s", n, got, want)
		}
	}
}

// TestRecycledAllocations: who recycles allocates nothing, however many deployments there are.
func TestRecycledAllocations(t *testing.T) {
	b := newBench(t, Plan{}, route.Facts{}, pool(t, "m", 20, route.Limits{}))
	facts, plan := b.x.rec.Facts, b.x.plan
	end := ended(llm.None)
	got := testing.AllocsPerRun(100, func() {
		b.now = b.now.Add(time.Second)
		b.x.Next(b.now, Event{Kind: Started})
		b.x.Next(b.now, end)
		b.x.Close(b.now)
		b.x.Recycle()
		b.x.Reset(b.router, b.budget, &plan, &facts)
	})
	if got > 0 {
		t.Errorf("%v allocations per request, want none", got)
	}
}

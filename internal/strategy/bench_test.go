package strategy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// BenchmarkPickDone measures one whole decision: choose and reserve, then give back.
func BenchmarkPickDone(b *testing.B) {
	for _, e := range table {
		for _, n := range []int{3, 8, 64, 1000} {
			b.Run(fmt.Sprintf("%s/%d", e.name, n), decisions(e.name, n, 0))
		}
	}
	for _, n := range []int{8, 64, 1000} {
		b.Run(fmt.Sprintf("predicted_wait/%d/100k tokens", n), decisions("predicted_wait", n, 1600))
	}
}

// decisions measures whole ones among n deployments. Prompts have so many blocks, half of which others had too; 0 = they are short, and not looked up.
func decisions(strategy string, n, blocks int) func(*testing.B) {
	return func(b *testing.B) {
		r := warmRouter(b, strategy, n)
		f := route.Facts{Model: "m", Stream: true, PromptBytes: max(4000, 256*blocks), PrefixBytes: 256}
		prompts := make([][]uint64, 256)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range prompts {
			for j := range blocks {
				if j < blocks/2 && i >= 16 {
					prompts[i] = append(prompts[i], prompts[i%16][j])
				} else {
					prompts[i] = append(prompts[i], rng.Uint64())
				}
			}
		}
		var lease route.Lease
		var decision route.Decision
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			f.Seed, f.Prefix = uint64(i), prompts[rng.IntN(len(prompts))]
			now := start.Add(time.Duration(i) * time.Millisecond)
			l, _ := r.Pick(now, route.Query{Facts: &f, Model: "m", Lease: &lease, Decision: &decision})
			l.Done(now, route.Outcome{Verdict: route.Success})
		}
	}
}

// TestAllocationBudget holds a decision at 8 deployments to two allocations: the lease and its record.
func TestAllocationBudget(t *testing.T) {
	for _, e := range table {
		r := warmRouter(t, e.name, 8)
		f := route.Facts{Model: "m", PromptBytes: 4000}
		var lease route.Lease
		var decision route.Decision
		i := 0
		got := testing.AllocsPerRun(1000, func() {
			i++
			f.Seed = uint64(i)
			now := start.Add(time.Duration(i) * time.Millisecond)
			l, _ := r.Pick(now, route.Query{Facts: &f, Model: "m", Lease: &lease, Decision: &decision})
			l.Done(now, route.Outcome{Verdict: route.Success, TTFT: 100 * time.Millisecond})
		})
		if got > 0 {
			t.Errorf("%s: %v allocations per decision in memory of the caller's, want none", e.name, got)
		}
	}
}

// warmRouter returns a Router over n deployments of model m, all with a learned TTFT but the last.
func warmRouter(tb testing.TB, strategy string, n int) *route.Router {
	tb.Helper()
	r := route.New(route.Options{})
	spec := route.PoolSpec{Model: "m", Strategy: build(tb, strategy)}
	for i := range n {
		spec.Deployments = append(spec.Deployments, deployment(fmt.Sprintf("e%d/m", i), 1+float64(i%3)))
	}
	adopt(tb, r, spec)
	for i := range n - 1 {
		f := route.Facts{Model: "m", Pin: spec.Deployments[i].ID}
		l, refusal := r.Pick(start, route.Query{Facts: &f, Model: "m"})
		if l == nil {
			tb.Fatal(refusal)
		}
		l.Done(start, route.Outcome{Verdict: route.Success, TTFT: time.Duration(100+i) * time.Millisecond})
	}
	return r
}

package study

import (
	"math"
	"slices"
	"testing"

	"evenkeel/internal/exchange"
	"evenkeel/internal/sim"
)

// TestShortPrompts: their 99th percentile is of short prompts, and of those that are measured.
func TestShortPrompts(t *testing.T) {
	p := mustPrepare(t, Row{Workload: conversation(t), Engine: "fifo", N: 4, Rho: .9, Basis: NoCache}, 1)
	var ttft []float64
	o, err := p.Run(mustPolicy(t, "least_connections"), 1, Hooks{Record: func(r *sim.Request, rec *exchange.Record) {
		if r.At >= p.BurnIn && r.PromptTokens < ShortPrompt {
			ttft = append(ttft, rec.Content.Sub(rec.Started).Seconds())
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ttft)
	if n := len(ttft); n < 20 || n >= o.Requests {
		t.Fatalf("%d short prompts of %d", n, o.Requests)
	}
	if want := ttft[int(math.Ceil(.99*float64(len(ttft))))-1]; o.ShortP99 != want {
		t.Errorf("%v, want %v", o.ShortP99, want)
	}
}

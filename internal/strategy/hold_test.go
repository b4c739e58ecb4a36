//go:build !race

package strategy

import (
	"fmt"
	"testing"
	"time"
)

// TestNobodyIsThrottled: what answers at one address need not be one engine. A provider, or engines behind a balancer of their own, get
// what they would get if nothing were held; holding is for one engine's line.
func TestNobodyIsThrottled(t *testing.T) {
	provider := func(f *farm) time.Duration {
		return time.Duration((0.3 + 0.2*f.rng.ExpFloat64()) * float64(time.Second))
	}
	f := func(what string, held bool, perSec float64, serve func(*server)) {
		t.Helper()
		for _, deployments := range []int{1, 2} {
			for seed := range uint64(3) {
				f := newFarm(t, "predicted_wait", deployments, 1, perSec*float64(deployments), seed)
				f.prompt = func(f *farm) int { return 250 + f.rng.IntN(4000) }
				for _, s := range f.servers {
					serve(s)
				}
				f.scrape()
				f.run(2 * time.Minute)
				if got := f.held > 0; got != held {
					t.Errorf("%s, %d deployments, seed %d: %d held", what, deployments, seed, f.held)
				}
			}
		}
	}
	// A prompt takes half a second of an engine.
	ranks := func(n int) func(*server) {
		return func(s *server) { s.ranks, s.pace = make([]time.Time, n), 5000 }
	}
	f("a provider", false, 100, func(s *server) { s.ttft = provider })
	f("16 engines", false, 0.8*2*16, ranks(16))
	f("2 engines", false, 0.8*2*2, ranks(2))
	f("an engine", true, 0.9*2, ranks(1))
}

// TestLittleToDo is spread over deployments that are alike, so that it is seen how each of them is.
func TestLittleToDo(t *testing.T) {
	for _, streamed := range []bool{true, false} {
		for _, took := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond} {
			for seed := range uint64(3) {
				f := newFarm(t, "predicted_wait", 3, 1, 1, seed)
				if streamed {
					f.prompt = func(f *farm) int { return 50 + f.rng.IntN(1000) }
				}
				for _, s := range f.servers {
					s.ttft = around(took)
				}
				f.run(time.Minute)
				f.forget()
				f.run(10 * time.Minute)
				for i := range 3 {
					if part := f.part(fmt.Sprintf("e%d/m", i)); part < 0.25 {
						t.Errorf("streamed %v, %v, seed %d: one of three gets %.2f", streamed, took, seed, part)
					}
				}
			}
		}
	}
}

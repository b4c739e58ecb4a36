//go:build !race

package strategy

import (
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

//go:build !race

package study

import (
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

// TestSignalsMakeUpForOtherReplicas: four balancers that share nothing answer sooner where engines, whose caches are small, tell each of them
// what the others sent, and no later where what they tell is 5 s old.
func TestSignalsMakeUpForOtherReplicas(t *testing.T) {
	w, err := Find("multi-turn")
	if err != nil {
		t.Fatal(err)
	}
	c, err := engine.Preset("vllm-2048")
	if err != nil {
		t.Fatal(err)
	}
	c.Blocks = 60_000 / c.BlockTokens
	engines := []engine.Config{c, c, c, c, c, c, c, c}
	mean := func(every time.Duration) float64 {
		t.Helper()
		p := mustPrepare(t, Row{
			Workload: w, Engines: engines, Rho: .7, Basis: NoCache, Requests: 4000, Knowledge: Knowledge{Balancers: 4, Scrapes: sim.Scrapes{Every: every}},
		}, 1)
		return mustRun(t, p, mustPolicy(t, "predicted_wait"), 1).TTFTMean
	}
	none, fresh, old := mean(-1), mean(0), mean(5*time.Second)
	t.Logf("mean TTFT without signals %.3f s, %.3f s with those of each second, %.3f s with those of every 5 s", none, fresh, old)
	if fresh > .95*none || old > 1.03*none {
		t.Errorf("mean TTFT without signals %.3f s, %.3f s with those of each second, %.3f s with those of every 5 s", none, fresh, old)
	}
}

//go:build !race

package study

import "testing"

// TestPredictedWaitFindsCaches: on conversations it answers several times sooner than what sees load alone, and no later than the best
// that other routers do there, from nothing but what it learns.
func TestPredictedWaitFindsCaches(t *testing.T) {
	w, err := Find("multi-turn")
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"vllm-8192", "sglang"} {
		p := mustPrepare(t, Row{Workload: w, Engine: engine, N: 8, Rho: .5, Requests: 4000}, 1)
		mean := func(name string) float64 {
			t.Helper()
			return mustRun(t, p, mustPolicy(t, name), 1).TTFTMean
		}
		own, load := mean("predicted_wait"), mean("least_tokens")
		best := mean(PeerPrefix + "llm-d")
		for _, name := range []string{"smetric", "lmetric", "dynamo/prefill-only"} {
			best = min(best, mean(PeerPrefix+name))
		}
		t.Logf("%s: mean TTFT %.3f s, least_tokens %.3f s, best of others %.3f s", engine, own, load, best)
		if own > load/3 || own > 1.1*best {
			t.Errorf("%s: mean TTFT %.3f s, least_tokens %.3f s, best of others %.3f s", engine, own, load, best)
		}
	}
}

package study

import "testing"

// TestCacheGuess: a router that takes caches for far smaller than they are finds fewer prefixes; to take them for larger costs
// next to nothing.
func TestCacheGuess(t *testing.T) {
	w, err := Find("multi-turn")
	if err != nil {
		t.Fatal(err)
	}
	hits := func(guess float64) float64 {
		p := mustPrepare(t, Row{Workload: w, Engine: "vllm-8192", N: 4, Rate: 2, Requests: 1500, Knowledge: Knowledge{CacheGuess: guess}}, 1)
		return mustRun(t, p, mustPolicy(t, "peer:lmetric/llm-d"), 1).HitShare
	}
	usual, small, large := hits(0), hits(.01), hits(16)
	if small > usual-.05 || large < usual-.02 {
		t.Errorf("hit share %.3f, %.3f with caches taken for a hundredth of what they are, %.3f for 16 times", usual, small, large)
	}
}

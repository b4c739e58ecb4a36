//go:build !race

package study

import "testing"

// TestSlownessRuleSparesTheBusy: near saturation first tokens come late, and by far not evenly. No deployment is slow then, and the
// router's rule about those that are must leave all as it is.
func TestSlownessRuleSparesTheBusy(t *testing.T) {
	w, err := Find("multi-turn")
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"fifo", "vllm-8192"} {
		for _, rho := range []float64{.8, .95} {
			p := mustPrepare(t, Row{Workload: w, Engine: engine, N: 8, Rho: rho, Basis: NoCache, Requests: 4000}, 1)
			for _, name := range []string{"least_connections", "least_tokens"} {
				policy := mustPolicy(t, name)
				with := mustRun(t, p, policy, 1).TTFTMean
				policy.Bare = true
				without := mustRun(t, p, policy, 1).TTFTMean
				t.Logf("%s, rho %v, %s: mean TTFT %.3f s, without the rule %.3f s", engine, rho, name, with, without)
				if with > 1.15*without {
					t.Errorf("%s, rho %v, %s: mean TTFT %.3f s, without the rule %.3f s", engine, rho, name, with, without)
				}
			}
		}
	}
}

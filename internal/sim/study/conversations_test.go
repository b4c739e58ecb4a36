package study

import (
	"testing"

	"evenkeel/internal/sim"
)

// TestBalancersMeet: four balancers that tell each other nothing find the conversations that came through the others. Each knows where a
// quarter of the turns went; that alone would find a third of the prompts' tokens.
func TestBalancersMeet(t *testing.T) {
	w, err := Find("multi-turn")
	if err != nil {
		t.Fatal(err)
	}
	r := Row{Workload: w, Engine: "vllm-8192", N: 8, Rho: 0.5, Requests: 4000, Knowledge: Knowledge{Balancers: 4}}
	if o := play(t, r, "predicted_wait"); o.HitShare < 0.5 {
		t.Errorf("%.2f of the prompts' tokens are found, mean TTFT %.2f s", o.HitShare, o.TTFTMean)
	} else {
		t.Logf("%.2f of the prompts' tokens are found, mean TTFT %.2f s", o.HitShare, o.TTFTMean)
	}
}

// TestHotPrefixSpreads: conversations that all begin with one long prompt are not all at the deployment that had it first, and find as much.
func TestHotPrefixSpreads(t *testing.T) {
	hot := Workload{Name: "hot", Reuse: true, Goal: chatGoal, Generate: func(seed uint64, rate float64) (sim.Source, error) {
		o := conversations(rate)
		o.Rate, o.Turns, o.Systems, o.System = rate/3, sim.Law{Mean: 3, CV: 0.8}, 1, sim.Law{Mean: 20_000}
		o.Question, o.Answer = sim.Law{Mean: 400, CV: 1.5}, sim.Law{Mean: 200, CV: 0.5}
		return sim.NewSessions(seed, o)
	}}
	for balancers, most := range map[int]float64{1: 6, 4: 1.5} {
		o := play(t, Row{Workload: hot, Engine: "vllm-8192", N: 8, Rho: 0.05, Requests: 4000, Knowledge: Knowledge{Balancers: balancers}}, "predicted_wait")
		t.Logf("%d balancers: imbalance %.2f, %.3f found, mean TTFT %.3f s", balancers, o.Imbalance, o.HitShare, o.TTFTMean)
		if o.Imbalance > most || o.HitShare < 0.97 {
			t.Errorf("%d balancers: the busiest has %.2f times the mean, %.3f are found", balancers, o.Imbalance, o.HitShare)
		}
	}
}

// play plays a row with one seed.
func play(t *testing.T, r Row, strategy string) *Outcome {
	t.Helper()
	p, err := Prepare(r, 1)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := Strategy(strategy)
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.Run(policy, 1, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

//go:build !race

// Simulations in one goroutine: the race detector would find nothing and take eight times as long.

package study

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"evenkeel/internal/sim"
)

// TestRun: workloads play before engines of each kind, the same each time.
func TestRun(t *testing.T) {
	chats, err := Find("multi-turn")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []Workload{conversation(t), chats} {
		for _, preset := range []string{"fifo", "vllm-2048", "sglang"} {
			p := mustPrepare(t, Row{Workload: w, Engine: preset, N: 4, Rho: .2, Requests: 600}, 1)
			o := mustRun(t, p, mustPolicy(t, "least_tokens"), 1)
			if o.Failed > 0 || o.Result.Counts.Done != 600 || !(o.TTFTMean > 0) || !(o.Goodput > 0) {
				t.Errorf("%s %s: %+v", w.Name, preset, *o)
			}
			if again := mustRun(t, p, mustPolicy(t, "least_tokens"), 1); !reflect.DeepEqual(o, again) {
				t.Errorf("%s %s: two runs differ", w.Name, preset)
			}
		}
	}
}

// TestRhoIsCapacity: below 1 an engine keeps up with requests that have nothing in common, and above 1 it does not.
func TestRhoIsCapacity(t *testing.T) {
	w := Workload{Name: "strangers", Generate: func(seed uint64, rate float64) (sim.Source, error) {
		return sim.NewPoisson(seed, sim.PoissonOptions{Rate: rate, Prompt: sim.Law{Mean: 1500, CV: .5}, Output: sim.Law{Mean: 120, CV: .5}})
	}}
	for _, preset := range []string{"fifo", "vllm-2048", "vllm-8192", "vllm-router", "dynamo-mock", "sglang", "llama.cpp"} {
		f := func(rho float64, keepsUp bool) {
			t.Helper()
			p := mustPrepare(t, Row{Workload: w, Engine: preset, N: 1, Rho: rho, Requests: 3000}, 1)
			if math.Abs(p.Rho-rho) > 1e-9 || math.Abs(p.NoRho-rho) > 1e-9 {
				t.Errorf("%s: rho %v and %v, want %v", preset, p.Rho, p.NoRho, rho)
			}
			o := mustRun(t, p, mustPolicy(t, "round_robin"), 1)
			grows := o.Thirds[2] > 1.3*o.Thirds[1] && o.Thirds[1] > 1.3*o.Thirds[0]
			if grows == keepsUp {
				t.Errorf("%s at rho %v: mean TTFT by thirds %.3f, want that it keeps up: %v", preset, rho, o.Thirds, keepsUp)
			}
		}
		f(.85, true)
		f(1.2, false)
	}
}

// TestPolicies: all that have a name play a row, to the same requests, and none is faster than requests alone on idle engines.
func TestPolicies(t *testing.T) {
	p := mustPrepare(t, Row{Workload: conversation(t), Engine: "fifo", N: 4, Rho: .7, Requests: 300}, 1)
	least := alone(t, p)
	all := append(Peers(), References()...)
	for _, name := range []string{"round_robin", "least_tokens", "p2c_ewma"} {
		all = append(all, mustPolicy(t, name))
	}
	names := map[string]bool{}
	for _, policy := range all {
		if names[policy.Name] {
			t.Errorf("two policies are called %s", policy.Name)
		}
		names[policy.Name] = true
		o := mustRun(t, p, policy, 1)
		if o.Failed > 0 || o.Result.Counts.Done != 300 || o.TTFTMean < least {
			t.Errorf("%s: %d of 300 are done, %d failed, mean TTFT %.4f s, want at least %.4f", policy.Name, o.Result.Counts.Done, o.Failed, o.TTFTMean, least)
		}
	}
	for name, want := range map[string]string{"nobody": "nobody", "peer:nobody": "sglang"} {
		if _, err := Strategy(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

// alone is the mean time to the first token of the measured requests on idle engines that have all but one token in their caches.
func alone(t *testing.T, p *Prepared) float64 {
	t.Helper()
	requests, err := p.Requests(1)
	if err != nil {
		t.Fatal(err)
	}
	sum, n := 0.0, 0
	for _, r := range requests {
		if r.At >= p.BurnIn {
			sum += p.Row.Engines[0].PrefillTime(r.PromptTokens, r.PromptTokens-1).Seconds()
			n++
		}
	}
	return sum / float64(n)
}

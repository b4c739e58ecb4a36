package study

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
	"evenkeel/internal/strategy"
)

// TestLastToken: where nobody sees an answer before it is whole, what counts is when the last token comes. Half of a fleet takes three times
// as long for the tokens of answers, and as long as the others for prompts: least_connections and times to the first token see little of it.
func TestLastToken(t *testing.T) {
	fast, err := engine.Preset("vllm-8192")
	if err != nil {
		t.Fatal(err)
	}
	slow := fast
	for _, x := range []*float64{&slow.Timing.Base, &slow.Timing.Sequence, &slow.Timing.Context} {
		*x *= 3
	}
	w, err := Find("reasoning")
	if err != nil {
		t.Fatal(err)
	}
	mixed, alike := []engine.Config{fast, slow, fast, slow}, []engine.Config{fast, fast, fast, fast}
	for _, c := range []struct {
		engines   []engine.Config
		rho, most float64 // of the others' means
	}{{mixed, .3, .8}, {mixed, .6, .9}, {mixed, .8, .92}, {alike, .6, 1.01}} {
		last, lastP99 := unstreamed(t, w, c.engines, c.rho, "predicted_wait", "last_token")
		if auto, _ := unstreamed(t, w, c.engines, c.rho, "predicted_wait", ""); auto != last {
			t.Errorf("ρ %v: auto has %.2f s, last_token %.2f s: of answers that are not streamed it is the same", c.rho, auto, last)
		}
		first, _ := unstreamed(t, w, c.engines, c.rho, "predicted_wait", "first_token")
		fewest, fewestP99 := unstreamed(t, w, c.engines, c.rho, "least_connections", "")
		t.Logf("ρ %v: mean %.2f s, first_token %.2f s, least_connections %.2f s; p99 %.1f and %.1f s", c.rho, last, first, fewest, lastP99, fewestP99)
		if last > c.most*min(first, fewest) || lastP99 > 1.05*fewestP99 {
			t.Errorf("ρ %v: mean %.2f s, want at most %v of %.2f s with first_token and of %.2f s with least_connections; p99 %.1f and %.1f s", c.rho, last, c.most, first, fewest, lastP99, fewestP99)
		}
	}
}

// unstreamed returns the mean time and the 99th percentile until answers are whole that are not streamed, over three seeds.
func unstreamed(t *testing.T, w Workload, engines []engine.Config, rho float64, name, objective string) (mean, p99 float64) {
	t.Helper()
	const seeds = 3
	for seed := range uint64(seeds) {
		p, err := Prepare(Row{Workload: w, Engines: engines, Rho: rho, Requests: 2000}, seed+1)
		if err != nil {
			t.Fatal(err)
		}
		policy := Policy{Name: name, Scrape: scrapeOwn}
		policy.Strategy, err = strategy.New(name, func(options any) error {
			if objective != "" {
				reflect.ValueOf(options).Elem().FieldByName("Objective").SetString(objective)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		o, err := p.Options(policy, seed+1)
		if err != nil {
			t.Fatal(err)
		}
		o.Stream = false
		fleet, err := sim.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := fleet.Finish(p.Last); err != nil {
			t.Fatal(err)
		}
		mean += fleet.Result().Response.Mean() / seeds
		p99 += fleet.Result().Response.Quantile(.99) / seeds
	}
	return mean, p99
}

// TestSlotsThatNobodySees: behind engines of few slots, of answers that are not streamed, little can be learned: nobody sees when a prompt had
// its turn. Then predicted_wait keeps to work in tokens, and to caches.
func TestSlotsThatNobodySees(t *testing.T) {
	for _, c := range []struct {
		workload string
		slots    int
		most     float64 // of the mean under least_tokens
	}{{"azure-conversation", 1, 1.05}, {"azure-conversation", 4, 1.05}, {"reasoning", 1, 1.05}, {"reasoning", 4, 1.05}, {"multi-turn", 1, .8}, {"multi-turn", 4, 1}} {
		w, err := Find(c.workload)
		if err != nil {
			t.Fatal(err)
		}
		if w.File != "" {
			text, err := os.ReadFile(filepath.Join("..", "testdata", "azure_conv_300.csv"))
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Read(bytes.NewReader(text), w.File); err != nil {
				t.Fatal(err)
			}
		}
		few, err := engine.Preset("llama.cpp")
		if err != nil {
			t.Fatal(err)
		}
		few.Slots = c.slots
		engines := []engine.Config{few, few, few, few}
		tokens, _ := unstreamed(t, w, engines, .5, "least_tokens", "")
		predicted, _ := unstreamed(t, w, engines, .5, "predicted_wait", "")
		t.Logf("%s, %d slots: %.1f s, least_tokens %.1f s", c.workload, c.slots, predicted, tokens)
		if predicted > c.most*tokens {
			t.Errorf("%s, %d slots: the mean answer takes %.1f s, %.1f s under least_tokens", c.workload, c.slots, predicted, tokens)
		}
	}
}

//go:build !race

package fit

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"evenkeel/internal/engine"
)

// bare is c without what is to be found.
func bare(c engine.Config) engine.Config {
	c.Timing = engine.Timing{}
	return c
}

func calibrate(t testing.TB, seen []Observation, engines ...engine.Config) *Result {
	t.Helper()
	r, err := Calibrate(seen, Options{Engines: engines, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", r)
	return r
}

func (r *Result) parameter(name string) Parameter {
	for _, p := range r.Parameters {
		if p.Name == name {
			return p
		}
	}
	panic("BUG: no cost " + name)
}

// means returns the mean TTFT and the mean time between tokens with which engines like c serve requests.
func means(t testing.TB, c engine.Config, requests []Observation) (ttft, itl float64) {
	r := replayed(t, c, requests)
	tokens := 0
	for i, q := range r.requests {
		ttft += (r.first[i] - q.At).Seconds()
		itl += (r.last[i] - r.first[i]).Seconds()
		tokens += q.OutputTokens - 1
	}
	return ttft / float64(len(requests)), itl / float64(tokens)
}

// Engines whose costs are known are fitted to what they served under load, seen with noise of 5 % and with stalls. The costs that
// are said to be identified are near the true ones, and other traffic, at up to one and a half times the load, takes what it
// takes at the true ones.
func TestRecover(t *testing.T) {
	f := func(name, model string, w traffic, tolerance map[string]float64) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := preset(t, model)
			if c.Timing.Decode != nil { // no sum of costs
				c.Timing.Decode, c.Timing.Base, c.Timing.Sequence = nil, 5e-3, 5e-3
			}
			w.deployments, w.noise, w.stalls = 2, 0.05, 0.02
			r := calibrate(t, serve(t, c, w, 1), bare(c))
			for k, p := range r.Parameters {
				want := *parameters[k].of(&c.Timing)
				limit, told := tolerance[p.Name]
				if told && !(math.Abs(p.Value-want) <= limit*want) {
					t.Errorf("%s is %.4g, want %.4g within %v %%", p.Name, p.Value, want, 100*limit)
				}
				if told && p.Missing != "" {
					t.Errorf("%s is said not to be identified: %s", p.Name, p.Missing)
				}
			}
			if q := r.TTFT; !r.HeldOut || q.Requests < w.requests/10 || q.Median > 0.065 {
				t.Errorf("TTFT of requests held out: %+v", q)
			}
			if q := r.ITL; q.Requests < w.requests/10 || q.Median > 0.045 { // 0.67 × 5 % at best
				t.Errorf("ITL of requests held out: %+v", q)
			}
			for _, load := range []float64{0.5, 1, 1.5} {
				other := w
				other.noise, other.stalls, other.rate = 0, 0, load*w.rate
				fresh := serve(t, c, other, 2)
				wantTTFT, wantITL := means(t, c, fresh)
				ttft, itl := means(t, r.Engine, fresh)
				t.Logf("at %v × the load: TTFT %.4g s, want %.4g; ITL %.4g s, want %.4g", load, ttft, wantTTFT, itl, wantITL)
				if math.Abs(ttft/wantTTFT-1) > 0.06 || math.Abs(itl/wantITL-1) > 0.03 {
					t.Errorf("at %v × the load: mean TTFT %.4g s, want %.4g within 6 %%; mean ITL %.4g s, want %.4g within 3 %%", load, ttft, wantTTFT, itl, wantITL)
				}
			}
		})
	}
	f("mixed", "vllm-8192", traffic{requests: 600, rate: 3, prompt: 3000, output: 150, cached: 0.5},
		map[string]float64{"Base": .1, "Token": .1, "Pair": .5})
	f("mixed with a cost of prefill", "vllm-router", traffic{requests: 800, rate: 1, prompt: 3000, output: 100, cached: 0.5},
		map[string]float64{"Base": .05, "Prefill": .1, "Token": .12, "Pair": .2, "Sequence": .3, "Context": .3})
	f("prefill first, half of it not streamed", "sglang", traffic{requests: 600, rate: 3, prompt: 3000, output: 150, cached: 0.5, whole: 0.5},
		map[string]float64{"Base": .1, "Token": .1, "Pair": .5})
	f("slots", "llama.cpp", traffic{requests: 800, rate: 0.25, prompt: 500, output: 30, cached: 0.5},
		map[string]float64{"Base": .1, "Token": .05, "Sequence": .3, "Context": .4})
	f("fifo", "fifo", traffic{requests: 800, rate: 4, prompt: 3000, output: 100, cached: 0.5},
		map[string]float64{"Token": .05, "Pair": .3})
}

// The engine whose scheduler and sizes are the true ones is found among others.
func TestEnginesAreTried(t *testing.T) {
	t.Parallel()
	truth := preset(t, "vllm-2048")
	w := traffic{requests: 400, deployments: 2, rate: 4, prompt: 3000, output: 100, cached: 0.5, noise: 0.03}
	first, wide := truth, truth
	first.Scheduler, wide.StepTokens = engine.PrefillFirst, 16384
	r := calibrate(t, serve(t, truth, w, 5), bare(first), bare(wide), bare(truth))
	if r.Engine.Scheduler != engine.Mixed || r.Engine.StepTokens != 2048 {
		t.Errorf("the best is %v with steps of %d tokens, want mixed with 2048", r.Engine.Scheduler, r.Engine.StepTokens)
	}
	for i, tried := range r.Tried {
		t.Logf("%v, %d: %.4f", tried.Engine.Scheduler, tried.Engine.StepTokens, tried.Error)
		if best := r.Tried[2].Error; i != 2 && tried.Error < 1.1*best {
			t.Errorf("engine %d is off by %.4f in the mean, and the true one by %.4f: they should be told apart", i, tried.Error, best)
		}
	}
	if r.Engine.Blocks != truth.Blocks || r.Engine.Watermark != truth.Watermark {
		t.Errorf("sizes that were given are changed: %+v", r.Engine)
	}
}

// What the traffic does not tell is said, and the rest is right.
func TestNotIdentified(t *testing.T) {
	f := func(name string, w traffic, missing map[string]string, found map[string]float64) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := preset(t, "vllm-router")
			w.requests, w.deployments, w.noise = 400, 1, 0.05
			r := calibrate(t, serve(t, c, w, 9), bare(c))
			for cost, why := range missing {
				if p := r.parameter(cost); p.Missing == "" || !strings.Contains(p.Missing, why) || p.Value != 0 {
					t.Errorf("%s = %.4g ± %.2g is missing because %q, want 0 and %q", cost, p.Value, p.Error, p.Missing, why)
				}
			}
			for cost, want := range found {
				if p := r.parameter(cost); p.Missing != "" || math.Abs(p.Value/want-1) > 0.1 {
					t.Errorf("%s = %.4g, missing because %q, want %.4g within 10 %%", cost, p.Value, p.Missing, want)
				}
			}
		})
	}
	truth := preset(t, "vllm-router").Timing
	f("short prompts", traffic{rate: 1, prompt: 100, output: 50},
		map[string]string{"Pair": "no prompt is long enough"}, nil)
	f("never two at once", traffic{rate: 0.001, prompt: -2000, output: 50}, // alike, too
		map[string]string{"Prefill": "prompts are too much alike", "Pair": "no prompt is long enough", "Context": "no context", "Sequence": "up to 1 requests"},
		map[string]float64{"Base": truth.Base + truth.Sequence + 2025*truth.Context})
	f("one token each", traffic{rate: 0.1, prompt: 2000, output: -1},
		map[string]string{"Sequence": "no time that is known", "Context": "no time that is known"},
		map[string]float64{"Token": truth.Token})
}

// A slow deployment shows beside the others.
func TestPace(t *testing.T) {
	t.Parallel()
	c := preset(t, "vllm-router")
	seen := serve(t, c, traffic{requests: 900, deployments: 3, rate: 0.5, prompt: 2000, output: 50, noise: 0.05}, 11)
	for i := range seen {
		if o := &seen[i]; o.Deployment == "gpu-1" {
			o.TTFT, o.Total = 2*o.TTFT, 2*o.Total
		}
	}
	r := calibrate(t, seen, bare(c))
	for i, want := range []float64{1, 2, 1} {
		if p := r.Deployments[i]; p.Deployment != fmt.Sprint("gpu-", i) || p.Requests != 300 || math.Abs(p.Slower/want-1) > 0.1 {
			t.Errorf("deployment %d: %+v, want %v × as slow within 10 %%", i, p, want)
		}
	}
}

// Requests without times are load: without them, those that waited behind them would make prompts look dear.
func TestRequestsWithoutTimesAreLoad(t *testing.T) {
	t.Parallel()
	c := preset(t, "vllm-router")
	seen := serve(t, c, traffic{requests: 600, deployments: 1, rate: 2, prompt: 2000, output: 50, noise: 0.05}, 13)
	var without []Observation
	for i := range seen {
		if i%3 == 0 {
			seen[i].TTFT, seen[i].Total = 0, 0
		} else {
			without = append(without, seen[i])
		}
	}
	r := calibrate(t, seen, bare(c))
	if got, want := r.parameter("Token").Value, c.Timing.Token; math.Abs(got/want-1) > 0.1 {
		t.Errorf("Token is %.4g, want %.4g within 10 %%", got, want)
	}
	if n := r.TTFT.Requests; n < 150 || n > 250 {
		t.Errorf("the TTFT of %d requests was compared, want half of 400", n)
	}
	if worse := calibrate(t, without, bare(c)); worse.TTFT.Median < 1.1*r.TTFT.Median {
		t.Errorf("TTFT is off by %.3f without a third of the load, and by %.3f with it: the load should matter", worse.TTFT.Median, r.TTFT.Median)
	}
}

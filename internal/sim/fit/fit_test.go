package fit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/engine"
)

// traffic is what the tests let engines serve.
type traffic struct {
	requests    int
	deployments int
	rate        float64 // per second, of each deployment
	prompt      float64 // mean tokens, exponential; negative = all alike
	output      float64 // likewise
	cached      float64 // share of requests that find a part of their prompt
	noise       float64 // standard deviation of the logarithm of times
	stalls      float64 // share of times that are three to ten times as long
	whole       float64 // share of answers that are not streamed
}

// serve lets engines like c answer the traffic, and returns what an observer sees.
func serve(t testing.TB, c engine.Config, w traffic, seed uint64) []Observation {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	length := func(mean float64) int {
		if mean < 0 {
			return int(-mean)
		}
		return 1 + int(mean*rng.ExpFloat64())
	}
	var out []Observation
	for d := range w.deployments {
		at := 0.0
		for range w.requests / w.deployments {
			at += rng.ExpFloat64() / w.rate
			o := Observation{
				Deployment: fmt.Sprint("gpu-", d), At: time.Duration(at * 1e9), PromptTokens: length(w.prompt), OutputTokens: length(w.output),
			}
			if rng.Float64() < w.cached {
				o.CachedTokens = int(rng.Float64() * float64(o.PromptTokens))
			}
			out = append(out, o)
		}
	}
	r := replayed(t, c, out)
	noisy := func(d time.Duration) time.Duration {
		f := math.Exp(w.noise * rng.NormFloat64())
		if rng.Float64() < w.stalls {
			f *= 3 + 7*rng.Float64()
		}
		return time.Duration(f * float64(d))
	}
	for i := range r.requests {
		o := &r.requests[i]
		first, rest := noisy(r.first[i]-o.At), noisy(r.last[i]-r.first[i])
		o.TTFT, o.Total = first, first+rest
		if rng.Float64() < w.whole {
			o.TTFT = 0
		}
	}
	return r.requests
}

func replayed(t testing.TB, c engine.Config, requests []Observation) *replay {
	t.Helper()
	r := newReplay(requests, len(requests))
	if err := r.run(roomy(c)); err != nil {
		t.Fatal(err)
	}
	return r
}

func preset(t testing.TB, name string) engine.Config {
	t.Helper()
	c, err := engine.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDeterministic(t *testing.T) {
	t.Parallel()
	c := preset(t, "vllm-8192")
	seen := serve(t, c, traffic{requests: 100, deployments: 2, rate: 2, prompt: 500, output: 10, noise: 0.1}, 3)
	o := Options{Engines: []engine.Config{c}, Seed: 7}
	a, err := Calibrate(seen, o)
	if err != nil {
		t.Fatal(err)
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(seen), func(i, j int) { seen[i], seen[j] = seen[j], seen[i] })
	if b, err := Calibrate(seen, o); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%v\n%v\nwant\n%v", err, b, a)
	}
	o.Seed = 8
	if b, err := Calibrate(seen, o); err != nil || reflect.DeepEqual(a, b) {
		t.Errorf("another seed holds the same requests out: %v", err)
	}
}

func TestHoldOutAndMost(t *testing.T) {
	t.Parallel()
	c := preset(t, "vllm-8192")
	seen := serve(t, c, traffic{requests: 200, deployments: 1, rate: 1, prompt: 500, output: 10, noise: 0.1}, 3)
	f := func(o Options, requests, ttft int, held bool) {
		t.Helper()
		o.Engines = []engine.Config{c}
		r, err := Calibrate(seen, o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Seen.Requests != requests || r.HeldOut != held || math.Abs(float64(r.TTFT.Requests-ttft)) > 0.2*float64(ttft) {
			t.Errorf("%+v: %d requests, the TTFT of %d compared, held out %v; want %d, about %d, %v", o, r.Seen.Requests, r.TTFT.Requests, r.HeldOut, requests, ttft, held)
		}
	}
	f(Options{}, 200, 100, true)
	f(Options{HoldOut: 0.25}, 200, 50, true)
	f(Options{HoldOut: -1}, 200, 200, false)
	f(Options{Most: 100}, 100, 50, true)
}

func TestErrors(t *testing.T) {
	good := serve(t, preset(t, "vllm-8192"), traffic{requests: 60, deployments: 1, rate: 1, prompt: 1000, output: 50}, 1)
	f := func(change func(*[]Observation, *Options), want string) {
		t.Helper()
		seen, o := append([]Observation(nil), good...), Options{Engines: []engine.Config{preset(t, "vllm-8192")}}
		change(&seen, &o)
		if r, err := Calibrate(seen, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q; result %v", err, want, r)
		}
	}
	f(func(_ *[]Observation, o *Options) { o.Engines = nil }, "no engine to try")
	f(func(_ *[]Observation, o *Options) { o.HoldOut = 1 }, "HoldOut is 1")
	f(func(_ *[]Observation, o *Options) { o.HoldOut = math.NaN() }, "HoldOut is NaN")
	f(func(_ *[]Observation, o *Options) { o.Engines = append(o.Engines, engine.Config{}) }, "engine 1: ")
	f(func(s *[]Observation, _ *Options) { (*s)[7].PromptTokens = 0 }, "observation 7: PromptTokens is 0, expected 1 to")
	f(func(s *[]Observation, _ *Options) { (*s)[7].CachedTokens = -1 }, "observation 7: CachedTokens is -1")
	f(func(s *[]Observation, _ *Options) { (*s)[7].OutputTokens = 1 << 30 }, "observation 7: OutputTokens is 1073741824")
	f(func(s *[]Observation, _ *Options) { (*s)[7].At = -time.Second }, "observation 7: At is -1s")
	f(func(s *[]Observation, _ *Options) { (*s)[7].TTFT = 1 << 62 }, "observation 7: TTFT is ")
	f(func(s *[]Observation, _ *Options) { (*s)[7].TTFT, (*s)[7].Total = 2, 1 }, "observation 7: TTFT 2ns is above Total 1ns")
	f(func(s *[]Observation, _ *Options) { *s = (*s)[:30] }, "and it takes 20: record more traffic")
	f(func(s *[]Observation, _ *Options) { *s = nil }, "0 requests to fit have a TTFT")
}

// Whatever is observed, there is a result or an error.
func TestOddObservations(t *testing.T) {
	c := preset(t, "llama.cpp")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		var seen []Observation
		for range 60 {
			o := Observation{
				At: time.Duration(rng.IntN(4)) * time.Second, PromptTokens: 1 + rng.IntN(1<<rng.IntN(18)), CachedTokens: rng.IntN(1 << rng.IntN(18)),
				OutputTokens: rng.IntN(1 << rng.IntN(6)), TTFT: time.Duration(rng.Int64N(1 << (1 + rng.IntN(40)))),
			}
			o.Total = o.TTFT + time.Duration(rng.Int64N(1<<(1+rng.IntN(40))))
			seen = append(seen, o)
		}
		r, err := Calibrate(seen, Options{Engines: []engine.Config{c}})
		if err != nil {
			t.Log(err)
			continue
		}
		for _, p := range r.Parameters {
			if !(p.Value >= 0 && p.Error >= 0) || math.IsInf(p.Value, 0) || math.IsInf(p.Error, 0) {
				t.Fatalf("%+v of %+v", p, seen)
			}
		}
		if _, err := engine.New(r.Engine); err != nil {
			t.Fatal(err)
		}
	}
}

package peers

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

var traces = flag.String("traces", "", "directory with the whole Mooncake trace (mooncake_conversation_trace.jsonl), to rank the peers on")

func mooncake(t *testing.T, path string) *sim.Trace {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	trace, err := sim.ReadMooncake(f, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// played is a trace before eight FIFO engines: Dynamo's prefill curve, one prompt at a time, 2,000 blocks of 512 tokens. It is
// compressed until prefill without any cache would take the share rho of what the engines can do.
func played(t *testing.T, trace *sim.Trace, copies int, rho float64, seed uint64, id string) *sim.Result {
	t.Helper()
	c, err := engine.Preset("fifo")
	if err != nil {
		t.Fatal(err)
	}
	work := 0.0
	for _, row := range trace.Rows() {
		work += c.PrefillTime(row.PromptTokens, 0).Seconds()
	}
	span := trace.Last().Seconds()
	src, err := sim.NewReplay(seed, trace, sim.ReplayOptions{Scale: float64(copies) * work / (engines * rho * span), Copies: copies, Spread: true})
	if err != nil {
		t.Fatal(err)
	}
	r := served(t, sim.Options{Seed: seed, Source: src}, c, id, src.Length())
	if n := r.Counts.Done; n != copies*trace.Len() {
		t.Fatalf("%s: %d requests of %d", id, n, copies*trace.Len())
	}
	return r
}

const engines = 8

// served is a source before engines, under a policy that reads their metrics every 50 ms. All requests must be answered.
func served(t *testing.T, o sim.Options, c engine.Config, id string, length time.Duration) *sim.Result {
	t.Helper()
	e, err := Find(id)
	if err != nil {
		t.Fatal(err)
	}
	o.Policy, o.Plan, o.Stream = e.New, exchange.Plan{MaxAttempts: 1}, true
	o.Scrapes = sim.Scrapes{Every: 50 * time.Millisecond, Together: true}
	o.Router = route.Options{Health: route.Health{MaxEjection: 1e-9}} // the Router must not keep a peer from whom it picks
	for range engines {
		s, err := sim.NewEngine(c)
		if err != nil {
			t.Fatal(err)
		}
		o.Servers = append(o.Servers, s)
	}
	fleet, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Finish(length); err != nil {
		t.Fatal(err)
	}
	r := fleet.Result()
	if c := r.Counts; c.Done != c.Arrived || c.Failed != 0 {
		t.Fatalf("%s: %+v", id, c)
	}
	return r
}

// TestRanking: on an excerpt of the Mooncake conversation trace, laid over itself, the peers come in the order that an independent
// simulation of the same engines found on the whole trace, as far as so few conversations tell them apart: the longest match alone
// collapses, chance is worse than any count of requests, those that weigh cache against load are better, and seconds of prefill
// are best.
func TestRanking(t *testing.T) {
	trace := mooncake(t, filepath.Join("..", "testdata", "mooncake_conversation_300.jsonl"))
	mean := func(id string) float64 {
		sum := 0.0
		for seed := range uint64(2) {
			sum += played(t, trace, 4, 1, 1+seed, id).TTFT.Mean() / 2
		}
		t.Logf("%-28s mean time to the first token %.2f s", id, sum)
		return sum
	}
	last, name := 0.0, ""
	for _, id := range []string{"dynamo/prefill-only", "llm-d", "sglang", "envoy", "litellm", "production-stack"} {
		ttft := mean(id)
		if ttft <= last {
			t.Errorf("%s: %.2f s, and %s %.2f s: it should be worse", id, ttft, name, last)
		}
		last, name = ttft, id
	}
	blind := mean("litellm/least-busy")
	for _, better := range []string{"dynamo/lmetric", "llm-d/token-load", "lmetric", "smetric"} {
		if ttft := mean(better); ttft > .6*blind {
			t.Errorf("%s: %.2f s, and %.2f s by requests in flight alone", better, ttft, blind)
		}
	}
}

// TestRankingSessions: on conversations before engines that batch, in the order of an early study with the same engines: LMetric's product,
// SGLang, bounded hashing, chance.
func TestRankingSessions(t *testing.T) {
	c, err := engine.Preset("legacy")
	if err != nil {
		t.Fatal(err)
	}
	last, name := 0.0, ""
	for _, id := range []string{"lmetric", "sglang", "kubeai", "litellm"} {
		src, err := sim.NewSessions(1, sim.SessionOptions{
			Rate: 8, Turns: sim.Law{Mean: 6}, Systems: 20, Zipf: 1, System: sim.Law{Mean: 1500}, Question: sim.Law{Mean: 150, CV: 1},
			Answer: sim.Law{Mean: 150, CV: 1}, Gap: sim.Law{Mean: 12, CV: 1}, Block: 20,
		})
		if err != nil {
			t.Fatal(err)
		}
		r := served(t, sim.Options{Seed: 1, Source: src, BurnIn: 60 * time.Second}, c, id, 120*time.Second)
		t.Logf("%-10s mean time to the first token %.3f s, hit share %.3f", id, r.TTFT.Mean(), r.HitShare)
		if r.TTFT.Mean() <= last {
			t.Errorf("%s: %.3f s, and %s %.3f s: it should be worse", id, r.TTFT.Mean(), name, last)
		}
		last, name = r.TTFT.Mean(), id
	}
}

// TestWholeTrace: with -traces, what that simulation published of the whole trace at rho 1, against what comes out here. It seems to have
// counted what is only cached as KV memory in use, which makes decoding slow everywhere and the KV score alike for all: without that
// score llm-d's default is 0.79 s here and not 0.88, and Dynamo's policies that price the blocks of what decodes, published with
// 1.92 s and 0.92 s (lmetric), are 0.96 s and 0.52 s. They are not held against it. Its llm-d with token load was the default profile
// with one more score, and is none of the table.
func TestWholeTrace(t *testing.T) {
	if *traces == "" {
		t.Skip("needs -traces")
	}
	trace := mooncake(t, filepath.Join(*traces, "mooncake_conversation_trace.jsonl"))
	for _, c := range []struct {
		id        string
		ttft, hit float64
		tolerance float64
	}{
		{"dynamo/prefill-only", .63, .164, .20},
		{"llm-d", .76, .258, .20},
		{"sglang", 1.88, .254, .10},
		{"aibrix/readme", 2.00, .232, .20},
		{"kubeai", 2.68, .220, .20},
		{"consistent-hash", 2.91, .267, .25},
		{"litellm/least-busy", 3.71, .077, .10},
		{"envoy", 3.79, .077, .10},
		{"production-stack", 1926, .055, .02},
	} {
		r := played(t, trace, 1, 1, 1, c.id)
		t.Logf("%-22s published %8.2f s, hit share %.3f   here %8.2f s, p99 %.1f s, hit share %.3f", c.id, c.ttft, c.hit, r.TTFT.Mean(), r.TTFT.Quantile(.99), r.HitShare)
		if off := r.TTFT.Mean()/c.ttft - 1; math.Abs(off) > c.tolerance {
			t.Errorf("%s: %.2f s, published %.2f s, %+.0f %%", c.id, r.TTFT.Mean(), c.ttft, 100*off)
		}
		if math.Abs(r.HitShare-c.hit) > .04 {
			t.Errorf("%s: hit share %.3f, published %.3f", c.id, r.HitShare, c.hit)
		}
	}
}

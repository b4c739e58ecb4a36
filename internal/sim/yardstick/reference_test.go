package yardstick

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

// TestReferenceIsAboveTheBound: on random workloads every policy of the portfolio answers everything and stays above the bound.
func TestReferenceIsAboveTheBound(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 25
	}
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 3))
		requests, engines := instance(r, 5+r.IntN(60), 1+r.IntN(4))
		b := mustBound(t, requests, engines, Options{})
		runs, err := Reference(requests, engines, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range runs {
			if c := x.Result.Counts; c.Done != len(requests) {
				t.Fatalf("round %d, %s: %+v of %d requests", round, x.Name, c, len(requests))
			}
			if ttft := x.Result.TTFT.Mean(); b.Beaten(ttft) {
				t.Fatalf("round %d, %s: %v s, bound %+v", round, x.Name, ttft, b)
			}
		}
	}
}

// conversation returns requests of the excerpt that the repository has, at a multiple of its speed, laid over itself.
func conversation(tb testing.TB, speed float64, copies int) []sim.Request {
	tb.Helper()
	file := filepath.Join("..", "testdata", "mooncake_conversation_300.jsonl")
	f, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	trace, err := sim.ReadMooncake(f, file, nil)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := sim.NewReplay(1, trace, sim.ReplayOptions{Scale: 1 / speed, Copies: copies, Spread: true})
	if err != nil {
		tb.Fatal(err)
	}
	return Collect(p, 1<<30)
}

// chats returns turns of conversations.
func chats(tb testing.TB, rate float64, n int) []sim.Request {
	tb.Helper()
	s, err := sim.NewSessions(1, sim.SessionOptions{
		Rate: rate, Turns: sim.Law{Mean: 6, CV: .5}, Systems: 20, Zipf: 1, System: sim.Law{Mean: 1500}, Question: sim.Law{Mean: 200, CV: 1},
		Answer: sim.Law{Mean: 200, CV: 1}, Gap: sim.Law{Mean: 20, CV: .5}, Block: 16,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return Collect(s, n)
}

func presets(tb testing.TB, name string, n int) []engine.Config {
	tb.Helper()
	c, err := engine.Preset(name)
	if err != nil {
		tb.Fatal(err)
	}
	var all []engine.Config
	for range n {
		all = append(all, c)
	}
	return all
}

// TestReferenceOnTraffic says how loose the bound is.
func TestReferenceOnTraffic(t *testing.T) {
	for _, c := range []struct {
		name     string
		requests []sim.Request
		engines  []engine.Config
	}{
		{"conversation, fifo", conversation(t, 3, 1), presets(t, "fifo", 4)},
		{"conversation, vllm-8192", conversation(t, 2, 1), presets(t, "vllm-8192", 4)},
		{"chats, vllm-2048", chats(t, 10, 800), presets(t, "vllm-2048", 4)},
		{"chats, sglang", chats(t, 10, 800), presets(t, "sglang", 4)},
	} {
		o := Options{BurnIn: c.requests[len(c.requests)/5].At}
		b := mustBound(t, c.requests, c.engines, o)
		start := time.Now()
		runs, err := Reference(c.requests, c.engines, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: bound %.4f (alone %.4f, pooled %.4f, priced %.4f), work %.4f; %v", c.name, b.TTFT(), b.Alone, b.Pooled, b.Priced, b.Work, time.Since(start))
		for _, x := range runs {
			ttft := x.Result.TTFT.Mean()
			t.Logf("  %-14s %.4f p99 %.3f hit %.3f itl p99 %.3f", x.Name, ttft, x.Result.TTFT.Quantile(.99), x.Result.HitShare, x.Result.ITL.Quantile(.99))
			if b.Beaten(ttft) {
				t.Errorf("%s, %s: %v s, bound %+v", c.name, x.Name, ttft, b)
			}
		}
	}
}

// TestReferenceIsDeterministic: equal requests give equal results, whatever was played before.
func TestReferenceIsDeterministic(t *testing.T) {
	requests, engines := chats(t, 20, 400), presets(t, "vllm-2048", 3)
	play := func() []Run {
		runs, err := Reference(requests, engines, Options{BurnIn: time.Second, Goal: sim.Goal{TTFT: 30 * ms}})
		if err != nil {
			t.Fatal(err)
		}
		return runs
	}
	if !reflect.DeepEqual(results(play()), results(play())) {
		t.Error("two runs differ")
	}
}

// results are what runs came to, by name.
func results(runs []Run) map[string]*sim.Result {
	all := map[string]*sim.Result{}
	for _, r := range runs {
		all[r.Name] = r.Result
	}
	return all
}

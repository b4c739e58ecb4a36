package study

import (
	"math"
	"slices"
	"testing"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

// listed is a source of requests that are known.
type listed []sim.Request

func (l *listed) Next(r *sim.Request) bool {
	if len(*l) == 0 {
		return false
	}
	*r, *l = (*l)[0], (*l)[1:]
	return true
}

// simple is an engine whose steps take 10 ms, and 1 ms for each token of a prompt.
func simple(s engine.Scheduler) engine.Config {
	return engine.Config{
		Timing: engine.Timing{Base: .01, Token: .001}, Scheduler: s, StepTokens: 100, MaxSequences: 10, BlockTokens: 10, Blocks: 1000, MicroBatch: 50, Slots: 4,
	}
}

func TestWork(t *testing.T) {
	f := func(s engine.Scheduler, change func(*engine.Config), want, noCache, hits float64) {
		t.Helper()
		c := simple(s)
		if change != nil {
			change(&c)
		}
		// Two turns of 100 and 150 tokens that are answered with 20 each: the second finds 100 + 20 tokens, if in whole blocks.
		source := &listed{
			{PromptTokens: 100, OutputTokens: 20, BlockTokens: 10, Prompt: []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Output: []uint64{11, 12}},
			{PromptTokens: 150, OutputTokens: 20, BlockTokens: 10, Prompt: []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
		}
		w := measure(&c, source, 10)
		if w.Requests != 2 || math.Abs(w.HitShare-hits) > 1e-9 || w.Prompt != 125 || w.Output != 20 {
			t.Errorf("%s: %+v, want 2 requests of 125 and 20 tokens, hits %v", s, w, hits)
		}
		if math.Abs(w.Seconds-want) > 1e-9 || math.Abs(w.NoCache-noCache) > 1e-9 {
			t.Errorf("%s: work %.6f and %.6f s, want %.6f and %.6f", s, w.Seconds, w.NoCache, want, noCache)
		}
	}
	const hits = 120. / 250
	// 65 or 125 tokens are computed in the mean, and a base for each prompt.
	f(engine.FIFO, nil, .065+.01, .125+.01, hits)
	// 20 of output with 10 sequences at once need 2 steps, which is more than (65 + 20)/100 and (125 + 20)/100 steps need.
	f(engine.Mixed, nil, .065+2*.01, .125+2*.01, hits)
	// With room for 100 sequences the tokens of steps are what is short.
	f(engine.Mixed, func(c *engine.Config) { c.MaxSequences = 100 }, .065+.85*.01, .125+1.45*.01, hits)
	// Memory bounds it: sequences that decode hold 110 and 160 tokens, 135 in the mean: 2 of 270 tokens at once.
	f(engine.Mixed, func(c *engine.Config) { c.Blocks = 27 }, .065+10*.01, .125+10*.01, hits)
	// Prompts have steps of their own.
	f(engine.PrefillFirst, nil, .065+.65*.01+2*.01, .125+1.25*.01+2*.01, hits)
	// 4 slots: 5 steps. A pass takes 50 tokens.
	f(engine.Slots, nil, .065+5*.01, .125+5*.01, hits)
	// Attention: 100² /2 pairs, then 30 tokens after 120: 2·q·(30·120 + 30²/2); without a cache 150²/2.
	f(engine.Mixed, func(c *engine.Config) { c.Timing.Pair = 1e-6 }, .065+2*.01+1e-6*(100*100+2*30*(120+15))/2, .125+2*.01+1e-6*(100*100+150*150)/2, hits)
	// Decoding: 20 tokens at 1 ms and a context of 110 or 160.
	f(engine.Mixed, func(c *engine.Config) { c.Timing.Sequence, c.Timing.Context = .001, 1e-5 }, .065+2*.01+20*(.001+1e-5*135), .125+2*.01+20*(.001+1e-5*135), hits)
	// A curve of decoding counts at a full cache.
	f(engine.Mixed, func(c *engine.Config) { c.Timing.Decode = func(use float64) float64 { return .005 * use } }, .065+2*.015, .125+2*.015, hits)
}

// TestHeterogeneous: engines of half the speed count half.
func TestHeterogeneous(t *testing.T) {
	fast, slow := simple(engine.FIFO), simple(engine.FIFO)
	slow.Timing.Base, slow.Timing.Token = 2*fast.Timing.Base, 2*fast.Timing.Token
	w := Workload{Name: "strangers", Generate: func(seed uint64, rate float64) (sim.Source, error) {
		return sim.NewPoisson(seed, sim.PoissonOptions{Rate: rate, Prompt: sim.Law{Mean: 90}, Output: sim.Law{Mean: 1}})
	}}
	p := mustPrepare(t, Row{Workload: w, Engines: []engine.Config{fast, slow}, Rho: .5, Requests: 100}, 1)
	if want := .5 * (10 + 5); math.Abs(p.Rate-want) > 1e-9 {
		t.Errorf("%v requests per second, want %v", p.Rate, want)
	}
}

// TestLaps: each lap brings each row once, and no lap has a block that another has.
func TestLaps(t *testing.T) {
	w := conversation(t)
	rows := w.Trace.Len()
	for _, whole := range []bool{true, false} {
		const rate = 10
		source, err := w.traffic(3, rate, 1, whole)
		if err != nil {
			t.Fatal(err)
		}
		const laps = 3
		lengths := map[[2]int]int{}
		seen := map[uint64]int{} // the lap in which a block was
		var r sim.Request
		last := r.At
		for i := range laps * rows {
			if !source.Next(&r) || r.At < last {
				t.Fatalf("request %d comes at %v after one at %v", i, r.At, last)
			}
			last = r.At
			lengths[[2]int{r.PromptTokens, r.OutputTokens}]++
			for _, h := range r.Prompt {
				if lap, ok := seen[h]; ok && lap != i/rows {
					t.Fatalf("whole %v: lap %d has a block of lap %d", whole, i/rows, lap)
				}
				seen[h] = i / rows
			}
		}
		for _, row := range w.Trace.Rows() {
			if n := lengths[[2]int{row.PromptTokens, row.OutputTokens}]; n == 0 || n%laps != 0 {
				t.Errorf("whole %v: a row of %d tokens came %d times in %d laps", whole, row.PromptTokens, n, laps)
			}
		}
		if got := float64(laps*rows) / last.Seconds(); math.Abs(got/rate-1) > .02 {
			t.Errorf("whole %v: %.2f requests per second, want %d", whole, got, rate)
		}
	}
}

// TestSeeds: a seed plays a part of the trace of its own, and the same part again.
func TestSeeds(t *testing.T) {
	w := conversation(t)
	p := mustPrepare(t, Row{Workload: w, Engine: "fifo", N: 8, Rho: .5, Requests: 50}, 1)
	lengths := func(seed uint64) (all []int) {
		requests, err := p.Requests(seed)
		if err != nil || len(requests) != 50 {
			t.Fatalf("%d requests, %v", len(requests), err)
		}
		for _, r := range requests {
			all = append(all, r.PromptTokens)
		}
		return all
	}
	if a, b := lengths(1), lengths(1); !slices.Equal(a, b) {
		t.Error("a seed plays something else the second time")
	}
	if a, b := lengths(1), lengths(2); slices.Equal(a, b) {
		t.Error("two seeds play the same")
	}
}

// TestSeedsAreOneWorkload: what a request of the traffic that is played asks of an engine is what the row was prepared for,
// whatever the seed, so that seeds of a row are equally busy.
func TestSeedsAreOneWorkload(t *testing.T) {
	for _, name := range []string{"multi-turn", "tenant-flood"} {
		w, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, seed := range []uint64{1, 2, 3, 24} {
			p := mustPrepare(t, Row{Workload: w, Engine: "vllm-8192", N: 4, Rho: .8, Basis: NoCache, Requests: 4000}, seed)
			source, err := p.Source(seed)
			if err != nil {
				t.Fatal(err)
			}
			played := measure(&p.Row.Engines[0], source, 4000)
			near := func(what string, got, want float64) {
				t.Helper()
				if math.Abs(got/want-1) > .12 { // 4,000 requests are some hundred conversations
					t.Errorf("%s, seed %d: %s is %.4g in the traffic that is played, the row takes it to be %.4g", name, seed, what, got, want)
				}
			}
			near("the mean prompt", played.Prompt, p.Work.Prompt)
			near("the work without any cache", played.NoCache, p.Work.NoCache)
			near("the work with all prefixes in a cache", played.Seconds, p.Work.Seconds)
			near("the mean prompt of Prepared", p.Prompt, played.Prompt)
			near("the mean answer of Prepared", p.Output, played.Output)
		}
	}
}

// TestTraceShare: copies bring as many rows more as they are.
func TestTraceShare(t *testing.T) {
	w := conversation(t)
	rows := w.Trace.Len()
	made, err := Find("reasoning")
	if err != nil {
		t.Fatal(err)
	}
	f := func(w Workload, requests, copies int, want float64) {
		t.Helper()
		p := mustPrepare(t, Row{Workload: w, Engine: "fifo", N: 1, Rate: 1, Requests: requests, Copies: copies}, 1)
		if got := p.TraceShare(); got != want {
			t.Errorf("%d requests of %s, %d copies: %v, want %v", requests, w.Name, copies, got, want)
		}
	}
	f(w, 0, 1, 1)
	f(w, 0, 3, 1)
	f(w, rows/2, 1, .5)
	f(w, 2*rows, 1, 2)
	f(w, 2*rows, 4, .5)
	f(made, 100, 1, 0)
}

// TestFlood: four fifths of the requests are the script's, and prompts of people and script have nothing in common.
func TestFlood(t *testing.T) {
	w, err := Find("tenant-flood")
	if err != nil {
		t.Fatal(err)
	}
	source, err := w.traffic(1, 20, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	script, first := 0, map[uint64]string{}
	var r sim.Request
	const n = 5000
	for last := r.At; script >= 0 && len(first) < n; last = r.At {
		if !source.Next(&r) || r.At < last {
			t.Fatalf("a request at %v after one at %v", r.At, last)
		}
		if r.Tenant == "script" {
			script++
		}
		if len(r.Prompt) > 0 {
			if of, ok := first[r.Prompt[0]]; ok && of != r.Tenant {
				t.Fatalf("a prompt of %s begins as one of %s does", r.Tenant, of)
			}
			first[r.Prompt[0]] = r.Tenant
		}
		if script+len(first) > n {
			break
		}
	}
	if got := float64(script) / (float64(script) + 1250); got < .77 || got > .82 {
		t.Errorf("%d requests of the script", script)
	}
}

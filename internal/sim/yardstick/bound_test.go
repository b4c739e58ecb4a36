package yardstick

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

const ms = time.Millisecond

// plain is an engine with round numbers: a step of 10 ms, 1 ms a prompt token.
func plain(s engine.Scheduler) engine.Config {
	return engine.Config{
		Timing: engine.Timing{Base: 10e-3, Token: 1e-3, Sequence: 1e-3}, Scheduler: s,
		StepTokens: 64, MicroBatch: 32, MaxSequences: 8, Slots: 4, BlockTokens: 4, Blocks: 400,
	}
}

// chat is a request with blocks of 4 tokens.
func chat(at time.Duration, tokens int, chain ...uint64) sim.Request {
	return sim.Request{At: at, PromptTokens: tokens, OutputTokens: 1, BlockTokens: 4, Prompt: chain}
}

func mustBound(tb testing.TB, requests []sim.Request, engines []engine.Config, o Options) Bound {
	tb.Helper()
	b, err := LowerBound(requests, engines, o)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// TestBoundByHand compares the bounds with numbers worked out by hand.
func TestBoundByHand(t *testing.T) {
	fifo := plain(engine.FIFO)
	fifo.Timing.Pair = 1e-3
	slow := plain(engine.Mixed)
	slow.Timing.Base, slow.Timing.Token = 20e-3, 2e-3
	for _, c := range []struct {
		name     string
		engines  []engine.Config
		burnIn   time.Duration
		requests []sim.Request
		alone    float64 // ms, sums over requests
		work     float64
	}{
		{
			name: "nothing shared", engines: []engine.Config{plain(engine.Mixed)},
			requests: []sim.Request{chat(0, 10, 1, 2), chat(0, 10, 3, 4)},
			alone:    20 + 20, work: 2 * (10 + 10*10./64),
		},
		{
			name: "steps", engines: []engine.Config{plain(engine.Mixed)},
			requests: []sim.Request{chat(0, 65)},
			alone:    85, work: 65 + 65*10./64,
		},
		{
			name: "the second finds two blocks", engines: []engine.Config{plain(engine.Mixed)},
			requests: []sim.Request{chat(0, 10, 1, 2), chat(time.Second, 10, 1, 2)},
			alone:    20 + 12, work: 10 + 2 + 12*10./64,
		},
		{
			name: "the last block is computed again", engines: []engine.Config{plain(engine.Mixed)},
			requests: []sim.Request{chat(0, 8, 1, 2), chat(time.Second, 8, 1, 2)},
			alone:    18 + 14, work: 8 + 8*10./64,
		},
		{
			name: "the second comes before the first can be done", engines: []engine.Config{plain(engine.Mixed)},
			requests: []sim.Request{chat(0, 10, 1, 2), chat(5*ms, 10, 1, 2)},
			alone:    20 + 15, work: 10 + 2 + 12*10./64,
		},
		{
			name: "the faster engine", engines: []engine.Config{slow, plain(engine.Mixed)},
			requests: []sim.Request{chat(0, 10, 1, 2)},
			alone:    20, work: 10 + 10*10./64,
		},
		{
			name: "burn-in", engines: []engine.Config{plain(engine.Mixed)}, burnIn: time.Second,
			requests: []sim.Request{chat(0, 10, 1, 2), chat(time.Second, 10, 1, 2)},
			alone:    12, work: 2 + 2*10./64,
		},
		{
			name: "fifo takes a base each", engines: []engine.Config{fifo},
			requests: []sim.Request{chat(0, 10, 1, 2), chat(time.Second, 10, 1, 2)},
			alone:    (10 + 10 + 100) + (10 + 2 + 4), work: 10 + 8 + 64 + 2 + 4 + 10 + 2 + 4,
		},
		{ // alone the first takes 10+16+256 ms; the other one could bring half of it, which spares attention
			name: "fifo may wait for help", engines: []engine.Config{fifo},
			requests: []sim.Request{chat(0, 16, 1, 2, 3, 4), chat(30*ms, 8, 1, 2)},
			alone:    (30 + 10 + 16 + 64 + 64) + (-30 + 10 + 8 + 64), work: (10 + 16 + 64 + 64) + 10,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := mustBound(t, c.requests, c.engines, Options{BurnIn: c.burnIn})
			n := float64(b.Requests)
			if got := b.Alone * n * 1e3; math.Abs(got-c.alone) > 1e-9 {
				t.Errorf("alone %v ms, want %v", got, c.alone)
			}
			if got := b.Work * n * 1e3; math.Abs(got-c.work) > 1e-9 {
				t.Errorf("work %v ms, want %v", got, c.work)
			}
		})
	}
}

// TestAnswersAreFree: a block that an answer brings counts as found.
func TestAnswersAreFree(t *testing.T) {
	first := chat(0, 8, 1, 2)
	first.OutputTokens, first.Output = 8, []uint64{3, 4}
	b := mustBound(t, []sim.Request{first, chat(time.Second, 20, 1, 2, 3, 4, 5)}, []engine.Config{plain(engine.Mixed)}, Options{})
	if got, want := b.Alone*2*1e3, 18+14.; math.Abs(got-want) > 1e-9 {
		t.Errorf("alone %v ms, want %v", got, want)
	}
}

// TestBoundHoldsWherePoliciesWait: it pays to hold a long prompt back until a short one has brought its start, and a next turn finds an
// answer.
func TestBoundHoldsWherePoliciesWait(t *testing.T) {
	fifo := plain(engine.FIFO)
	fifo.Timing.Pair = 1e-3
	quick := plain(engine.Mixed) // an answer's tokens take less than a prompt's
	quick.Timing.Base, quick.Timing.Sequence = 0, 1e-5
	turn := chat(0, 8, 1, 2)
	turn.OutputTokens, turn.Output = 33, []uint64{3, 4, 5, 6, 7, 8, 9, 10}
	for _, c := range []struct {
		name     string
		engine   engine.Config
		requests []sim.Request
		best     float64 // ms, sum over requests
	}{
		{"the long one comes first", fifo, []sim.Request{chat(0, 16, 1, 2, 3, 4), chat(ms, 9, 1, 2)}, (10 + 9 + 81) + (1 + 10 + 9 + 81 + 10 + 8 + 64)},
		{"the long one comes second", fifo, []sim.Request{chat(0, 9, 1, 2), chat(ms, 16, 1, 2, 3, 4)}, (10 + 9 + 81) + (-1 + 10 + 9 + 81 + 10 + 8 + 64)},
		{"a next turn", plain(engine.Mixed), []sim.Request{turn, chat(time.Second, 41, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)}, 18 + 11},
		{"a next turn soon", quick, []sim.Request{turn, chat(20*ms, 41, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)}, 8 + 1},
	} {
		b := mustBound(t, c.requests, []engine.Config{c.engine}, Options{})
		best := math.Inf(1)
		permutations(len(c.requests), func(order []int) {
			for _, late := range []bool{false, true} {
				ttft, _ := play(t, c.requests, []engine.Config{c.engine}, plan{to: make([]int, len(c.requests)), order: order, late: late}, 0)
				best = min(best, ttft)
			}
		})
		if got := best * float64(len(c.requests)) * 1e3; math.Abs(got-c.best) > 1e-5 || b.Beaten(best) {
			t.Errorf("%s: %v ms, want %v; bound %+v", c.name, got, c.best, b)
		}
	}
}

// TestPooled compares the pooled server with numbers worked out by hand.
func TestPooled(t *testing.T) {
	for _, c := range []struct {
		tasks    []task
		speed    float64
		inSystem float64
	}{
		{[]task{{0, 4, 4}}, 1, 4},
		{[]task{{0, 4, 4}}, 4, 1},
		{[]task{{0, 4, 4}, {1, 1, 1}}, 1, 5 + 1}, // the second interrupts the first
		{[]task{{0, 4, 4}, {3, 2, 2}}, 1, 4 + 3}, // here it does not
		{[]task{{0, 0, 1}, {0, 1, 1}, {5, 1, 1}}, 1, 2},
	} {
		if got := pooled(c.tasks, c.speed); math.Abs(got-c.inSystem) > 1e-12 {
			t.Errorf("%v at speed %v: %v in system, want %v", c.tasks, c.speed, got, c.inSystem)
		}
	}
}

// plan is what a policy without any limits decides: where each request goes, in which order, and whether the next one for an
// engine is held back until the one before has its first token.
type plan struct {
	to    []int
	order []int
	late  bool
}

// play returns the mean TTFT in seconds of the requests that come from burnIn on.
func play(tb testing.TB, requests []sim.Request, engines []engine.Config, p plan, burnIn time.Duration) (ttft float64, preemptions uint64) {
	tb.Helper()
	queues := make([][]int, len(engines))
	for _, i := range p.order {
		queues[p.to[i]] = append(queues[p.to[i]], i)
	}
	count := 0
	for e, c := range engines {
		s, err := sim.NewEngine(c)
		if err != nil {
			tb.Fatal(err)
		}
		begun := make([]time.Duration, len(requests))
		step := func(at time.Duration) {
			for _, r := range s.Step(at) {
				if i := int(r.ID); begun[i] == 0 {
					begun[i] = at
				}
			}
		}
		now := time.Duration(0)
		for n, i := range queues[e] {
			now = max(now, requests[i].At)
			for {
				at, busy := s.Next()
				held := n > 0 && p.late && begun[queues[e][n-1]] == 0
				if !busy || at > now && !held {
					break
				}
				now = max(now, at)
				step(at)
			}
			if err := s.Submit(now, sim.Job{ID: uint64(i), Request: &requests[i]}); err != nil {
				tb.Fatal(err)
			}
		}
		for {
			at, busy := s.Next()
			if !busy {
				break
			}
			step(at)
		}
		preemptions += s.Load(now).Preemptions
		for _, i := range queues[e] {
			if requests[i].At >= burnIn {
				ttft += (begun[i] - requests[i].At).Seconds()
				count++
			}
		}
	}
	return ttft / float64(count), preemptions
}

// instance is a random small workload before random engines, in which prompts share, caches are short and times of all kinds matter.
func instance(r *rand.Rand, requests, engines int) ([]sim.Request, []engine.Config) {
	block := 4 << r.IntN(3)
	span := []time.Duration{0, 20 * ms, 200 * ms, 2 * time.Second}[r.IntN(4)]
	var rs []sim.Request
	chains := [][]uint64{nil}
	for i := range requests {
		q := sim.Request{At: time.Duration(r.Int64N(int64(span) + 1)), BlockTokens: block, OutputTokens: 1 + r.IntN(30)}
		from := chains[r.IntN(len(chains))]
		chain := slices.Clone(from[:r.IntN(len(from)+1)])
		for range r.IntN(8) {
			chain = append(chain, r.Uint64()>>1)
		}
		q.Prompt = chain
		q.PromptTokens = max(1, len(chain)*block+r.IntN(block))
		if i%3 == 0 { // the answer has a next turn
			for len(chain) < (q.PromptTokens+q.OutputTokens)/block {
				chain = append(chain, r.Uint64()>>1)
			}
			q.Output = chain[len(q.Prompt):]
			q.Prompt = chain[:len(q.Prompt):len(q.Prompt)]
		}
		chains = append(chains, chain)
		rs = append(rs, q)
	}
	slices.SortStableFunc(rs, func(a, b sim.Request) int { return int(a.At - b.At) })
	alike := r.IntN(3) > 0
	var es []engine.Config
	for i := range engines {
		if alike && i > 0 {
			es = append(es, es[0])
			continue
		}
		c := plain([]engine.Scheduler{engine.Mixed, engine.PrefillFirst, engine.Slots, engine.FIFO, engine.Legacy}[r.IntN(5)])
		c.Timing = engine.Timing{
			Base: float64(r.IntN(3)) * 5e-3, Prefill: float64(r.IntN(2)) * 5e-3, Token: float64(1+r.IntN(3)) * 1e-3, Pair: []float64{0, 1e-5, 1e-3}[r.IntN(3)],
			Sequence: 1e-3, Context: float64(r.IntN(2)) * 1e-5,
		}
		c.StepTokens, c.MicroBatch = 8<<r.IntN(4), 8<<r.IntN(2)
		c.BlockTokens = block
		switch r.IntN(4) {
		case 0:
			c.BlockTokens = block / 2
		case 1:
			c.BlockTokens = block * 2
		}
		longest := 0
		for _, q := range rs {
			longest = max(longest, q.PromptTokens+q.OutputTokens)
		}
		c.Blocks = (longest/c.BlockTokens + 2) * (1 + r.IntN(3))
		if c.Scheduler == engine.Slots {
			c.Slots = 1 + r.IntN(3)
			c.Blocks = (longest/c.BlockTokens + 2) * c.Slots
		}
		es = append(es, c)
	}
	return rs, es
}

// permutations calls f with all orders of 0 to n-1.
func permutations(n int, f func([]int)) {
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	var rec func(int)
	rec = func(k int) {
		if k == n {
			f(p)
			return
		}
		for i := k; i < n; i++ {
			p[k], p[i] = p[i], p[k]
			rec(k + 1)
			p[k], p[i] = p[i], p[k]
		}
	}
	rec(0)
}

// TestBoundHoldsForEveryPlan tries all assignments of few requests to two engines in all orders, at once and held back.
func TestBoundHoldsForEveryPlan(t *testing.T) {
	sizes := []int{2, 3, 3, 4, 4, 4}
	rounds := 60
	if testing.Short() {
		rounds = 12
	}
	var loose []float64
	for round := range rounds {
		n := sizes[round%len(sizes)]
		switch round {
		case 7:
			n = 5
		case 20:
			n = 6
		}
		r := rand.New(rand.NewPCG(uint64(round), 1))
		requests, engines := instance(r, n, 2)
		b := mustBound(t, requests, engines, Options{})
		best := math.Inf(1)
		permutations(n, func(order []int) {
			for to := range 1 << n {
				p := plan{order: order}
				for i := range n {
					p.to = append(p.to, to>>i&1)
				}
				for _, p.late = range []bool{false, true} {
					ttft, preempted := play(t, requests, engines, p, 0)
					if b.Beaten(ttft) || preempted == 0 && ttft < b.Evicting*(1-rounding) {
						t.Fatalf("round %d: %+v takes %v s, bound %+v\n%+v\n%+v", round, p, ttft, b, requests, engines)
					}
					best = min(best, ttft)
				}
			}
		})
		loose = append(loose, best/b.TTFT())
	}
	slices.Sort(loose)
	t.Logf("best plan over bound: %s", spread(loose))
}

// TestBoundHoldsForRandomPlans does so for longer workloads and more engines, with and without a burn-in.
func TestBoundHoldsForRandomPlans(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	var loose []float64
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 2))
		requests, engines := instance(r, 5+r.IntN(60), 1+r.IntN(4))
		burnIn := requests[r.IntN(len(requests))].At * time.Duration(r.IntN(2))
		b := mustBound(t, requests, engines, Options{BurnIn: burnIn})
		best := math.Inf(1)
		for range 10 {
			ttft, preempted := play(t, requests, engines, random(r, requests, len(engines)), burnIn)
			if b.Beaten(ttft) || burnIn == 0 && preempted == 0 && ttft < b.Evicting*(1-rounding) {
				t.Fatalf("round %d: %v s, bound %+v\n%+v", round, ttft, b, engines)
			}
			best = min(best, ttft)
		}
		loose = append(loose, best/b.TTFT())
	}
	slices.Sort(loose)
	t.Logf("best of ten plans over bound: %s", spread(loose))
}

// random is a plan that keeps like prompts together or apart, short ones first or in order.
func random(r *rand.Rand, requests []sim.Request, engines int) plan {
	p := plan{late: r.IntN(2) == 0}
	kind := r.IntN(3)
	salt := r.Uint64()
	for i := range requests {
		p.order = append(p.order, i)
		switch q := &requests[i]; {
		case kind == 0 && len(q.Prompt) > 0:
			p.to = append(p.to, int((q.Prompt[0]^salt)%uint64(engines)))
		case kind == 1:
			p.to = append(p.to, i%engines)
		default:
			p.to = append(p.to, r.IntN(engines))
		}
	}
	switch r.IntN(3) {
	case 0:
		slices.SortStableFunc(p.order, func(a, b int) int { return requests[a].PromptTokens - requests[b].PromptTokens })
	case 1:
		r.Shuffle(len(p.order), func(a, b int) { p.order[a], p.order[b] = p.order[b], p.order[a] })
	}
	return p
}

func spread(sorted []float64) string {
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }
	return fmt.Sprintf("least %.3f, median %.2f, 90 %% %.2f, most %.2f", at(0), at(.5), at(.9), at(1))
}

// TestBadInput: what cannot be bounded is refused by name.
func TestBadInput(t *testing.T) {
	good := []engine.Config{plain(engine.Mixed)}
	warm := plain(engine.Mixed)
	warm.WarmUpSteps, warm.WarmUpFactor = 1, .5
	small, odd := plain(engine.Mixed), plain(engine.Mixed)
	small.Blocks, odd.BlockTokens = 2, 3
	for _, c := range []struct {
		name     string
		requests []sim.Request
		engines  []engine.Config
		want     string
	}{
		{"no engine", []sim.Request{chat(0, 1)}, nil, "yardstick: there is no engine: give one at least"},
		{"warm-up", []sim.Request{chat(0, 1)}, []engine.Config{warm},
			"yardstick: engine 0 has a WarmUpFactor of 0.5: a bound needs one of at least 1, at which a cold engine is no faster than a warm one"},
		{"order", []sim.Request{chat(1, 1), chat(0, 1)}, good, "yardstick: request 1 comes at 0s, before the one in front of it: they must be in order of arrival"},
		{"length", []sim.Request{chat(0, 0)}, good, "yardstick: request 0 has 0 prompt and 1 output tokens: it needs at least one of each"},
		{"hashes", []sim.Request{chat(0, 4, 1, 2)}, good, "yardstick: request 0 has hashes of 2 blocks of 4 tokens for 4 prompt tokens"},
		{"none", nil, good, "yardstick: none of 0 requests came after the burn-in of 0s and can be held by an engine"},
		{"other blocks", []sim.Request{chat(0, 9, 1)}, []engine.Config{odd}, "yardstick: none of 1 requests came after the burn-in of 0s and can be held by an engine"},
		{"too long", []sim.Request{chat(0, 9)}, []engine.Config{small}, "yardstick: none of 1 requests came after the burn-in of 0s and can be held by an engine"},
	} {
		if _, err := LowerBound(c.requests, c.engines, Options{}); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

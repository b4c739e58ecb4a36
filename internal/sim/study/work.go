package study

import (
	"math"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
	"evenkeel/internal/trace"
)

// Work is what the requests of a workload ask of one engine in the mean, in seconds of it.
type Work struct {
	Seconds  float64 // per request, with every prefix in a cache that came before
	NoCache  float64 // per request, without any cache
	HitShare float64 // cached tokens per prompt token in the former case

	Prompt, Output float64 // tokens per request
	Requests       int     // that were looked at
	Span           float64 // seconds from the first to the last of them
}

// sums are totals of requests.
type sums struct {
	requests, prompt, output float64
	computed                 float64 // prompt tokens that no cache has
	prefill                  float64 // seconds that those take beside the base of their steps
	decode                   float64 // seconds that output tokens take beside that
	weight, context          float64 // tokens of context at which output tokens are made, and their number
}

// seenBlocks is how many blocks the cache that forgets nothing holds at least: with that many no fleet is short of memory, and what a
// long trace takes is bounded.
const seenBlocks = 1 << 20

// measure goes through the first n requests of a source.
func measure(c *engine.Config, source sim.Source, n int) Work {
	seen := trace.NewRecent[uint64, struct{}](seenBlocks, nil)
	var best, none sums
	var r sim.Request
	var w Work
	for w.Requests < n && source.Next(&r) {
		hit := 0
		for hit < len(r.Prompt) {
			if _, ok := seen.Get(r.Prompt[hit]); !ok {
				break
			}
			hit++
		}
		for _, chain := range [][]uint64{r.Prompt[hit:], r.Output} {
			for _, h := range chain {
				seen.Put(h, struct{}{})
			}
		}
		cached := min(hit*r.BlockTokens, r.PromptTokens-1) // engines compute the last token always
		best.add(c, &r, cached)
		none.add(c, &r, 0)
		if w.Requests == 0 {
			w.Span = -r.At.Seconds()
		}
		w.Requests++
	}
	if w.Requests == 0 {
		return w
	}
	w.Span += r.At.Seconds()
	w.Seconds, w.NoCache = best.work(c), none.work(c)
	w.HitShare = 1 - best.computed/best.prompt
	w.Prompt, w.Output = best.prompt/best.requests, best.output/best.requests
	return w
}

func (s *sums) add(c *engine.Config, r *sim.Request, cached int) {
	t := &c.Timing
	n, o := float64(r.PromptTokens-cached), float64(r.OutputTokens)
	ctx := float64(cached)
	if c.Scheduler == engine.FIFO {
		ctx = 0
	}
	s.requests++
	s.prompt += float64(r.PromptTokens)
	s.output += o
	s.computed += n
	s.prefill += t.Token*n + 2*t.Pair*n*(ctx+n/2)
	held := float64(r.PromptTokens) + o/2
	if t.Decode == nil {
		s.decode += o * (t.Sequence + t.Context*held)
	}
	s.weight += o
	s.context += o * held
}

// work returns the seconds of an engine that a request takes in the mean when the engine is kept full.
//
// What a step costs beside its base is the sum of what its tokens cost. The base is shared by as many tokens as a step can hold:
// StepTokens of prompts and answers together, and one for each of the B sequences that decode at once, which MaxSequences and
// the memory for their context bound. At the highest rate that the engine keeps up with, λ, all of its time goes by in
// steps, 1/s of them a second: 1 = base/s + λ·(work beside the base), where s is as long as the bounds let it be,
// λ·s·output ≤ B and λ·s·(computed+output) ≤ StepTokens. So 1/λ = work beside the base + base·max(output/B,
// (computed+output)/StepTokens). Where prompts have steps of their own (PrefillFirst), the two bounds add.
func (s *sums) work(c *engine.Config) float64 {
	t := &c.Timing
	n, o := s.computed/s.requests, s.output/s.requests
	marginal := (s.prefill + s.decode) / s.requests
	if c.Scheduler == engine.FIFO { // a prompt at a time, and decoding is free
		return t.Base + t.Prefill + s.prefill/s.requests
	}
	decode := t.Base
	if t.Decode != nil {
		decode += t.Decode(1) // a full cache: the most tokens a second
	}
	perToken := 1 / float64(c.StepTokens)
	if c.Scheduler == engine.Slots {
		perToken = 1 / float64(c.MicroBatch)
	}
	running := s.running(c)
	if c.Scheduler == engine.PrefillFirst {
		return marginal + (t.Base+t.Prefill)*n*perToken + decode*o/running
	}
	return marginal + (decode+t.Prefill)*math.Max(o/running, (n+o)*perToken)
}

// running returns how many sequences can decode at once.
func (s *sums) running(c *engine.Config) float64 {
	if c.Scheduler == engine.Slots {
		return float64(c.Slots)
	}
	most := float64(c.MaxSequences)
	if c.Scheduler == engine.Legacy || s.weight == 0 {
		return most
	}
	room := float64(c.Blocks) * float64(c.BlockTokens)
	return math.Max(1, math.Min(most, room/(s.context/s.weight)))
}

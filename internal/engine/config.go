// Package engine is the timing model of an inference engine: when a request's tokens come, given what else the engine
// computes, holds and remembers. It is pure and deterministic: time is virtual (nanoseconds since the simulation began) and
// handed in, and nothing is drawn at random. An [Engine] is not safe for concurrent use.
//
// # The batching models
//
// [Mixed], [PrefillFirst], [Slots] and [Legacy] work in steps. A step computes chunks of prompts and one token for each
// decoding sequence, and takes
//
//	Base + Prefill (if it computes prompts) + Σ chunks (Token·n + 2·Pair·n·(ctx + n/2)) + Sequence·B + Context·Σ context
//
// so a prefix found in the cache is not computed again, but what comes after it still pays attention to it. While no prompt
// can be computed, consecutive steps are alike: the engine takes them as one span, which ends at the next finished
// sequence, and which a new request cuts at the end of the step it falls into. Spans change no result.
//
// Requests are served first come, first served. The first in the queue that does not fit blocks those behind it. A sequence
// that decodes and finds no free block preempts the one that came last, which returns to the head of the queue and
// computes its prompt and what it had generated again.
//
// What engines do and this does not: a prompt is admitted with the memory for all of it, not chunk by chunk; equal blocks that were
// computed side by side are held once, not twice, from then on; the blocks of an output are found only after its end; a step
// costs the engine's time and nothing else, so what tokenizers and sockets take is not here.
//
// # FIFO
//
// [FIFO] computes one prompt at a time, and decoding slows nothing: the simple second opinion.
package engine

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Scheduler says how an engine composes its steps.
type Scheduler uint8

// The schedulers.
const (
	// Mixed is vLLM's: decoding sequences take their token first, chunks of prompts fill the rest of StepTokens.
	Mixed Scheduler = iota
	// PrefillFirst is SGLang's: while prompts can be computed, decoding sequences stall.
	PrefillFirst
	// Slots is llama.cpp's: Config.Slots sequences, each in a slot that remembers its last sequence and nothing else. A
	// request takes the idle slot that shares the longest prefix.
	Slots
	// FIFO computes one prompt at a time, alone; decoding costs nothing to others.
	FIFO
	// Legacy is Mixed without a limit of memory and with a cache of whole sessions: the model of an early study, kept to
	// check its order of policies.
	Legacy
)

var schedulers = []string{"mixed", "prefill-first", "slots", "fifo", "legacy"}

// String returns the scheduler's name.
func (s Scheduler) String() string {
	if int(s) < len(schedulers) {
		return schedulers[s]
	}
	return fmt.Sprintf("scheduler %d", uint8(s))
}

// Timing is what a step costs, in seconds.
type Timing struct {
	Base     float64 // of a step
	Prefill  float64 // of a step that computes prompt tokens, beside Base
	Token    float64 // per prompt token computed
	Pair     float64 // attention: a chunk of n tokens after ctx others costs 2·Pair·n·(ctx + n/2)
	Sequence float64 // per decoding sequence
	Context  float64 // per token of the decoding sequences' context (prompt and generated)

	// Decode is what one token of the decoding sequences takes at this share (0 to 1) of the KV cache, their context over
	// the capacity. If set, it stands in the place of Sequence and Context. It must be a pure function.
	Decode func(use float64) float64
}

// chunk returns the seconds that n prompt tokens after ctx others cost.
func (t *Timing) chunk(n, ctx int) float64 {
	return t.Token*float64(n) + 2*t.Pair*float64(n)*(float64(ctx)+float64(n)/2)
}

// decode returns the seconds that a token for each of n sequences costs; context is the sum of their tokens, capacity that
// of the cache.
func (t *Timing) decode(n, context, capacity int) float64 {
	if n == 0 {
		return 0
	}
	if t.Decode != nil {
		return t.Decode(min(1, float64(context)/float64(capacity)))
	}
	return t.Sequence*float64(n) + t.Context*float64(context)
}

// Config describes an engine. Start from a preset ([Preset]).
type Config struct {
	Timing    Timing
	Scheduler Scheduler

	// StepTokens is the most tokens of a step (vLLM: max_num_batched_tokens). FIFO has no use for it.
	StepTokens int
	// MicroBatch is how many tokens one pass of Slots computes (llama.cpp: n_ubatch): each pass of a step costs Base.
	MicroBatch int
	// MaxSequences is the most sequences that run at once (vLLM: max_num_seqs); at most StepTokens. FIFO has no limit, and
	// Slots has Slots.
	MaxSequences int
	// Slots is the number of slots of Slots. They share Blocks evenly.
	Slots int

	// BlockTokens is the size of a block of the KV cache in tokens, and Blocks the number of blocks.
	BlockTokens, Blocks int
	// Watermark is the share of the blocks (0 to below 1) that must stay free or evictable when a sequence is admitted beside
	// others, so that it is not preempted at once.
	Watermark float64

	// MaxAdapters is how many adapters (LoRA) are in memory, and so how many different ones those that run may have (vLLM: max_loras); a
	// request that would need one more waits, and others pass it. The one that was not used for longest makes room. AdapterLoad is how long
	// one loads, in which nothing else is computed. 0 is no limit and no loading. For Mixed and PrefillFirst.
	MaxAdapters int
	AdapterLoad time.Duration

	// Load is how long the model loads, from the first request on, before its first step.
	Load time.Duration
	// WarmUpSteps is how many first steps take WarmUpFactor times as long (captured graphs, cold caches).
	WarmUpSteps  int
	WarmUpFactor float64

	span int // tests: the most steps of a span; 0 is maxSpan
}

// maxTokens bounds what an engine holds, and what one request has: sums of tokens and of their times stay far from overflow.
const maxTokens = 1 << 30

// maxSpan bounds the steps of a span: each plan walks through them.
const maxSpan = 256

// Check reports all that is wrong, as [New] does.
func (c *Config) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("engine: "+format, args...)) }

	if int(c.Scheduler) >= len(schedulers) {
		bad("Scheduler is %d: take one of the constants, 0 to %d", c.Scheduler, len(schedulers)-1)
	}
	atLeastOne := func(name string, n int) {
		if n < 1 {
			bad("%s is %d with the scheduler %s: it must be at least 1", name, n, c.Scheduler)
		}
	}
	atLeastOne("BlockTokens", c.BlockTokens)
	atLeastOne("Blocks", c.Blocks)
	if c.Blocks > maxTokens || c.BlockTokens > maxTokens || c.Blocks*c.BlockTokens > maxTokens {
		bad("Blocks %d of BlockTokens %d: an engine holds at most %d tokens", c.Blocks, c.BlockTokens, maxTokens)
	}
	switch c.Scheduler {
	case Mixed, PrefillFirst, Legacy:
		atLeastOne("StepTokens", c.StepTokens)
		atLeastOne("MaxSequences", c.MaxSequences)
		if c.MaxSequences > c.StepTokens {
			bad("MaxSequences %d is above StepTokens %d: a step must hold a token for each decoding sequence", c.MaxSequences, c.StepTokens)
		}
	case Slots:
		atLeastOne("StepTokens", c.StepTokens)
		atLeastOne("MicroBatch", c.MicroBatch)
		atLeastOne("Slots", c.Slots)
		if c.Slots > c.StepTokens {
			bad("Slots %d is above StepTokens %d: a step must hold a token for each slot", c.Slots, c.StepTokens)
		}
		if c.Slots > c.Blocks {
			bad("Slots %d is above Blocks %d: each slot needs a block", c.Slots, c.Blocks)
		}
	}
	if !(c.Watermark >= 0 && c.Watermark < 1) {
		bad("Watermark is %v: a share of the blocks, from 0 to below 1", c.Watermark)
	}
	if c.MaxAdapters < 0 || c.AdapterLoad < 0 || c.AdapterLoad > 0 && c.MaxAdapters == 0 {
		bad("MaxAdapters %d, AdapterLoad %v: they cannot be negative, and what loads needs room", c.MaxAdapters, c.AdapterLoad)
	}
	if c.MaxAdapters > 0 && c.Scheduler != Mixed && c.Scheduler != PrefillFirst {
		bad("MaxAdapters is %d with the scheduler %s: adapters are for mixed and prefill-first", c.MaxAdapters, c.Scheduler)
	}
	if c.Load < 0 {
		bad("Load is %v: it cannot be negative", c.Load)
	}
	if c.WarmUpSteps < 0 || c.WarmUpSteps > 0 && !positive(c.WarmUpFactor) {
		bad("WarmUpSteps %d, WarmUpFactor %v: steps from 0, and a factor above 0", c.WarmUpSteps, c.WarmUpFactor)
	}
	errs = append(errs, c.Timing.check()...)
	return errors.Join(errs...)
}

// check looks for what would let time run backwards or stand still.
func (t *Timing) check() (errs []error) {
	for _, f := range []struct {
		name  string
		value float64
	}{{"Base", t.Base}, {"Prefill", t.Prefill}, {"Token", t.Token}, {"Pair", t.Pair}, {"Sequence", t.Sequence}, {"Context", t.Context}} {
		if !(f.value >= 0 && f.value < 1000) {
			errs = append(errs, fmt.Errorf("engine: Timing.%s is %v: it is in seconds, and not negative", f.name, f.value))
		}
	}
	if t.Base+t.Prefill+t.Token <= 0 {
		errs = append(errs, errors.New("engine: Timing has neither Base nor Prefill nor Token: a prompt must take time"))
	}
	if t.Base+t.Sequence+t.Context <= 0 && t.Decode == nil {
		errs = append(errs, errors.New("engine: Timing has neither Base nor Sequence, Context or Decode: a token must take time"))
	}
	return errs
}

func positive(f float64) bool { return f > 0 && !math.IsInf(f, 1) }

// maxSequences is the most sequences that run at once.
func (c *Config) maxSequences() int {
	if c.Scheduler == Slots {
		return c.Slots
	}
	return c.MaxSequences
}

// room is the most tokens that one sequence can hold.
func (c *Config) room() int {
	switch c.Scheduler {
	case Slots:
		return c.Blocks / c.Slots * c.BlockTokens
	case Mixed, PrefillFirst:
		return c.Blocks * c.BlockTokens
	}
	return maxTokens
}

// duration rounds seconds to nanoseconds, at least one: no step may end when it began.
func duration(seconds float64) time.Duration {
	return max(1, time.Duration(min(seconds*1e9+0.5, 1<<60)))
}

package engine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// dynamoMock is the timing of NVIDIA Dynamo's mock engine, at its published constants: a batch of n uncached prompt tokens takes
// 4.209989e-7·n² + 1.518344e-2·n + 16.50142 ms, a token max(1, -25.74·p² + 54.01·p + 5.74) ms at KV use p.
var dynamoMock = Timing{
	Prefill: 16.50142e-3,
	Token:   1.518344e-5,
	Pair:    4.209989e-10,
	Decode: func(p float64) float64 {
		return max(1, -25.74*p*p+54.01*p+5.74) / 1e3
	},
}

// vllmRouter is the timing that the vLLM router (vllm-project/router) schedules programs by: a prompt of k thousand tokens takes 0.066 +
// 0.0570·k + 0.00441·k² seconds, a step of decoding 10.6 ms + 0.419 ms for each request + 1.42e-7 s for each token of
// context. A step's base is within the 0.066 s.
var vllmRouter = Timing{
	Base:     10.6e-3,
	Prefill:  66e-3 - 10.6e-3,
	Token:    57.0e-6,
	Pair:     4.41e-9,
	Sequence: 0.419e-3,
	Context:  1.42e-7,
}

// h100 is an 8B model (Llama 3.1: 32 layers, 4,096 wide) on one H100, from what its parts can do: a step reads 16 GB of weights at 3.35
// TB/s and costs 1.2 ms on the host; a prompt token is 16 GFLOP, and 0.52 MFLOP with each token before it, at half of 989
// TFLOP/s; decoding reads 128 KiB for each token of context; sampling takes 0.05 ms for each sequence.
var h100 = Timing{
	Base:     6e-3,
	Token:    3.2e-5,
	Pair:     5.3e-10,
	Sequence: 5e-5,
	Context:  4e-8,
}

// legacyTiming is an iteration of 6 ms, 0.06 ms for each sequence and 0.1 ms for each prompt token.
var legacyTiming = Timing{Base: 6e-3, Token: 1e-4, Sequence: 6e-5}

// presets are the engines that have a name. Their capacities are those of one GPU with 80 GB unless the source says another.
var presets = map[string]Config{
	// vLLM at the three usual max_num_batched_tokens, with max_num_seqs 256, blocks of 16 and a watermark of 0.01. 27,000 blocks
	// are 432,000 tokens of 128 KiB.
	"vllm-2048":  vllm(h100, 2048),
	"vllm-8192":  vllm(h100, 8192),
	"vllm-16384": vllm(h100, 16384),
	// The same engine with the constants of the vLLM router.
	"vllm-router": vllm(vllmRouter, 8192),
	// Dynamo's mock: max_num_batched_tokens 8192, max_num_seqs 256; 1,048,576 tokens in blocks of 64.
	"dynamo-mock": {
		Timing: dynamoMock, Scheduler: Mixed, StepTokens: 8192, MaxSequences: 256, BlockTokens: 64, Blocks: 16384, Watermark: 0.01,
	},
	// SGLang: chunked_prefill_size 8192.
	"sglang": {
		Timing: h100, Scheduler: PrefillFirst, StepTokens: 8192, MaxSequences: 256, BlockTokens: 16, Blocks: 27000, Watermark: 0.01,
	},
	// llama.cpp's scheduler at its defaults (n_batch 2048, n_ubatch 512) with 4 slots of 4,096 tokens. The timing is assumed, a small
	// model on a CPU at 250 prompt tokens and 33 tokens a second: fit it to the server at hand.
	"llama.cpp": {
		Timing:    Timing{Base: 25e-3, Token: 4e-3, Pair: 2e-8, Sequence: 5e-3, Context: 2e-6},
		Scheduler: Slots, StepTokens: 2048, MicroBatch: 512, Slots: 4, BlockTokens: 16, Blocks: 1024,
	},
	// The simple second model: Dynamo's curves, one prompt at a time, 2,000 blocks of 512 tokens.
	"fifo": {Timing: dynamoMock, Scheduler: FIFO, BlockTokens: 512, Blocks: 2000},
	// The early study: chunks of 512, a cache of 60,000 tokens.
	"legacy": {
		Timing: legacyTiming, Scheduler: Legacy, StepTokens: 512, MaxSequences: 512, BlockTokens: 20, Blocks: 3000,
	},
}

func vllm(t Timing, stepTokens int) Config {
	return Config{
		Timing: t, Scheduler: Mixed, StepTokens: stepTokens, MaxSequences: 256, BlockTokens: 16, Blocks: 27000, Watermark: 0.01,
	}
}

// Presets returns the names of all presets in order.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// Preset returns the engine of this name. The error lists the names.
func Preset(name string) (Config, error) {
	c, ok := presets[name]
	if !ok {
		return Config{}, fmt.Errorf("engine: no preset %q: there are %s", name, strings.Join(Presets(), ", "))
	}
	return c, nil
}

// PrefillTime returns how long the prompt of a request takes alone on an idle and warm engine, up to its first token, if the cache has this
// many tokens of it: the least that any policy can reach.
func (c *Config) PrefillTime(prompt, cached int) time.Duration {
	t := &c.Timing
	n := prompt - cached
	if c.Scheduler == FIFO {
		return duration(t.Base + t.Prefill + t.chunk(n, 0))
	}
	var sum time.Duration
	for ; n > 0; n -= min(n, c.StepTokens) {
		part := min(n, c.StepTokens)
		sum += duration(c.base(part) + t.Prefill + t.chunk(part, prompt-n))
	}
	return sum
}

// base is what a step of so many tokens costs at least.
func (c *Config) base(tokens int) float64 {
	if c.Scheduler != Slots {
		return c.Timing.Base
	}
	return c.Timing.Base * math.Ceil(float64(tokens)/float64(c.MicroBatch))
}

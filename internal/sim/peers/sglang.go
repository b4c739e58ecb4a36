package peers

import (
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// sglang is the policy cache_aware of SGLang's router, which became smg (model_gateway/src/policies/cache_aware.rs), and of the vLLM
// router, which came from it. Load is requests in flight. If max − min > abs and max > rel·min, the least loaded worker gets the
// request, whatever is cached. Else the worker that the longest matching prefix in a tree of past prompts belongs to, if more of the
// prompt matches than the threshold; else the least loaded one (older versions: the one with the smallest tree). The least loaded is
// the first of equals. A match has one worker, however many have the prefix: the one that was given it last. The tree takes a
// prompt in when it is routed, and every so often loses its least recently used leaves until each worker's part is within the limit.
type sglang struct {
	books
	o sglangOptions
}

type sglangOptions struct {
	threshold float64       // cache_threshold
	abs       int           // balance_abs_threshold
	rel       float64       // balance_rel_threshold
	every     time.Duration // eviction_interval
	chars     int           // max_tree_size
	wait      bool          // the least loaded is that with the least expected wait
}

var (
	// sglangCLI are the defaults of the command line, which users run.
	sglangCLI = sglangOptions{threshold: 0.3, abs: 64, rel: 1.5, every: 120 * time.Second, chars: 1 << 26}
	// sglangLibrary are the defaults of the Rust library.
	sglangLibrary = sglangOptions{threshold: 0.5, abs: 32, rel: 1.1, every: 30 * time.Second, chars: 10000}
	// smgWait is smg since August 2026 (pull request 2341): where the load decides it is the expected wait of its policy least_load,
	// (prompt tokens queued + sent since the last report)/2,000 per second + 0.15·k/(1 − k) at a KV use of k, read every 10 s.
	smgWait = sglangOptions{threshold: 0.3, abs: 64, rel: 1.5, every: 120 * time.Second, chars: 1 << 26, wait: true}
)

const (
	charsPerToken = 4 // of English text, where a source counts characters

	smgThroughput = 2000.0 // tokens per second
	smgPressure   = 0.15   // seconds
	smgFullest    = 0.999  // KV use above it counts as this
	scrapeSMG     = 10 * time.Second
)

func newSGLang(o sglangOptions) func(sim.Vantage) sim.Policy {
	return func(at sim.Vantage) sim.Policy {
		b := newBooks(at, &indexOptions{room: o.chars / charsPerToken, every: o.every})
		return &sglang{b, o}
	}
}

func (*sglang) String() string { return "sglang" }

// Pick implements route.Strategy.
func (p *sglang) Pick(r *route.Round) int {
	a := p.round(r)
	low, high := p.of(0).running, p.of(0).running
	for i := range r.Candidates {
		low, high = min(low, p.of(i).running), max(high, p.of(i).running)
	}
	if high-low > p.o.abs && float64(high) > p.o.rel*float64(low) {
		return p.leastLoaded(r)
	}
	d, matched := p.index.latest(a.request.Prompt, p.eligible)
	if d >= 0 && float64(matched) > p.o.threshold*float64(a.tokens) {
		return p.slot[d]
	}
	return p.leastLoaded(r)
}

func (p *sglang) leastLoaded(r *route.Round) int {
	return first(r, func(i int) float64 {
		w := p.of(i)
		if !p.o.wait {
			r.Note(i, "requests", float64(w.running))
			return float64(w.running)
		}
		k := 0.0
		if w.load.Blocks > 0 {
			k = min(float64(w.load.Used)/float64(w.load.Blocks), smgFullest)
		}
		wait := float64(w.load.WaitingTokens+w.since)/smgThroughput + smgPressure*k/(1-k)
		r.Note(i, "expected_wait_seconds", wait)
		return wait
	})
}

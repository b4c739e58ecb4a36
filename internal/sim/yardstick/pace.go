package yardstick

import (
	"math"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

// pace is how fast engines of one kind compute prompts at best. Times are in seconds.
type pace struct {
	fifo  bool
	slots bool

	base, prefill, token, pair float64 // engine.Timing
	step, micro, block         int     // tokens: engine.Config's StepTokens, MicroBatch and BlockTokens
	room                       int     // the most tokens that one request can have
}

func paceOf(c *engine.Config) pace {
	p := pace{base: c.Timing.Base, prefill: c.Timing.Prefill, token: c.Timing.Token, pair: c.Timing.Pair, block: c.BlockTokens, step: c.StepTokens, room: math.MaxInt}
	switch c.Scheduler {
	case engine.FIFO:
		p.fifo = true
	case engine.Slots:
		p.slots, p.micro = true, c.MicroBatch
		p.room = c.Blocks / c.Slots * c.BlockTokens
	case engine.Mixed, engine.PrefillFirst:
		p.room = c.Blocks * c.BlockTokens
	}
	return p
}

// holds reports whether such an engine takes the request at all: it has room for it, and blocks that fit the request's.
func (p *pace) holds(r *sim.Request) bool {
	fits := len(r.Prompt)+len(r.Output) == 0 || r.BlockTokens > 0 && (r.BlockTokens%p.block == 0 || p.block%r.BlockTokens == 0)
	return fits && r.PromptTokens+r.OutputTokens-1 <= p.room
}

// most is how many tokens of a prompt a cache can spare such an engine: the last token is always computed.
func (p *pace) most(prompt int) int {
	if p.slots {
		return prompt - 1
	}
	return (prompt - 1) / p.block * p.block
}

// time is the least that such an engine takes for tokens of one prompt that are not in its cache, whoever asked for them. pairs is
// Σ (to² - from²) over them.
func (p *pace) time(tokens int, pairs float64) float64 {
	steps := math.Ceil(float64(tokens) / float64(p.step))
	bases := steps
	if p.slots {
		bases = math.Ceil(float64(tokens) / float64(p.micro))
	}
	return p.base*bases + p.prefill*steps + p.token*float64(tokens) + p.pair*pairs
}

// alone is what a FIFO engine takes for a prompt with so many tokens that are not in its cache.
func (p *pace) alone(tokens int) float64 {
	n := float64(tokens)
	return p.base + p.prefill + p.token*n + p.pair*n*n
}

// parted is the least that a FIFO engine takes for that if other prompts may bring parts of it: attention among fewer tokens at a time is
// cheaper, but each prompt costs the base. squares is Σ n² over the parts that no prompt can part.
func (p *pace) parted(tokens int, squares float64) float64 {
	n, each := float64(tokens), p.base+p.prefill
	linear := each + p.token*n
	best := linear + p.pair*n*n
	if each > 0 {
		q := math.Floor(n * math.Sqrt(p.pair/each))
		for _, q := range []float64{q, q + 1} { // the cost is convex in q, and least beside n√(pair/each)
			if q >= 1 {
				best = min(best, q*each+p.token*n+p.pair*n*n/q)
			}
		}
	} else {
		best = p.token * n
	}
	return max(best, linear+p.pair*squares)
}

// work is what computing costs an engine that is never idle: base and prefill are shared by as many tokens as a step can have.
type work struct {
	job, token, pair float64
	context          bool // a token costs attention to what the cache has of its prompt
}

func (p *pace) work() work {
	if p.fifo {
		return work{job: p.base + p.prefill, token: p.token, pair: p.pair}
	}
	shared := (p.base + p.prefill) / float64(p.step)
	if p.slots {
		shared = p.base/float64(p.micro) + p.prefill/float64(p.step)
	}
	return work{token: p.token + shared, pair: p.pair, context: true}
}

// least is the work of the best parts of all paces, and speed what all engines together do of it per second. No engine does more than 1:
// one whose parts are all at least x times as dear does at most 1/x.
func least(engines []pace) (w work, speed float64) {
	w = engines[0].work()
	for i := range engines[1:] {
		o := engines[1+i].work()
		w = work{min(w.job, o.job), min(w.token, o.token), min(w.pair, o.pair), w.context && o.context}
	}
	for i := range engines {
		o := engines[i].work()
		s := 0.0
		for _, part := range [][2]float64{{w.job, o.job}, {w.token, o.token}, {w.pair, o.pair}} {
			if part[1] > 0 {
				s = max(s, part[0]/part[1])
			}
		}
		speed += s
	}
	return w, speed
}

package peers

import (
	"math"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// kong is the algorithm lowest-latency of Kong's AI proxy (ai-proxy-advanced 3.10, balancer/ewma.lua): of all targets the one
// with the lowest moving average of latency per weight, the first of equals. A sample counts 1 − e^(−Δt/10 s), and what is read is
// as if a 0 had come now: a target that gets nothing comes down until it is tried. Requests that run do not count. A sample is
// by latency_strategy the time per output token (tpot, the default) or of the whole answer (e2e). Targets begin at 0.
type kong struct {
	books
	e2e  bool
	ewma []peak
}

const kongDecay = 10 * time.Second // DECAY_TIME

func newKong(e2e bool) func(sim.Vantage) sim.Policy {
	return func(at sim.Vantage) sim.Policy {
		b := newBooks(at, nil)
		return &kong{b, e2e, make([]peak, len(at.IDs))}
	}
}

func (*kong) String() string { return "kong" }

// decayed is the average as if a sample of so many seconds had come.
func (k peak) decayed(now time.Duration, seconds float64) float64 {
	w := math.Exp(-(now - k.at).Seconds() / kongDecay.Seconds())
	return k.cost*w + seconds*(1-w)
}

// Learn implements sim.Policy.
func (p *kong) Learn(n *sim.Notice) {
	c := p.note(n)
	if n.Kind != sim.Over || !n.OK {
		return
	}
	took := (n.At - c.sent).Seconds()
	if !p.e2e {
		took /= float64(max(n.Output, 1))
	}
	k := &p.ewma[n.Deployment]
	*k = peak{k.decayed(n.At, took), n.At}
}

// Pick implements route.Strategy.
func (p *kong) Pick(r *route.Round) int {
	a := p.round(r)
	return first(r, func(i int) float64 {
		v := p.ewma[p.who[i]].decayed(a.now, 0) / r.Candidates[i].Weight
		r.Note(i, "ewma_seconds/weight", v)
		return v
	})
}

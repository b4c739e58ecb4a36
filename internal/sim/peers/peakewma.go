package peers

import (
	"math"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// peakEWMA is the peak-EWMA load with two random choices of Finagle (loadbalancer/PeakEwma.scala), which Tower, Linkerd and Envoy's
// contrib policy took over. A sample above the estimate replaces it; one below is averaged in with the weight 1 − e^(−Δt/τ), and
// so is a 0 whenever the estimate is read: an endpoint that is left alone gets cheaper. Load = cost·(pending + 1). One without an
// estimate that has requests pending costs 2^63 >> 16 ns + pending, so that a newcomer does not take all.
type peakEWMA struct {
	books
	o     peakOptions
	costs []peak
}

type peakOptions struct {
	name  string
	decay time.Duration // τ
	first float64       // seconds that are expected of one without samples; 0 = none are
	ttft  bool          // a sample is the time to the first token, not to the end of the answer
}

type peak struct {
	cost float64 // seconds
	at   time.Duration
}

// finaglePenalty is Long.MaxValue >> 16 nanoseconds, in seconds.
const finaglePenalty = float64(math.MaxInt64>>16) / 1e9

var (
	// finagle is Finagle's default: a decay time of 10 s, and the round trip of an RPC, which is all of it.
	finagle = peakOptions{name: "finagle", decay: 10 * time.Second}
	// helicone is the default strategy of Helicone's AI gateway (latency): the same with a decay of 30 s and a default of 250 ms. It sees
	// the round trip to the response's head, which a streamed answer sends with its first token.
	helicone = peakOptions{name: "helicone", decay: 30 * time.Second, first: 0.25, ttft: true}
)

func newPeakEWMA(o peakOptions) func(sim.Vantage) sim.Policy {
	return func(at sim.Vantage) sim.Policy {
		b := newBooks(at, nil)
		p := &peakEWMA{b, o, make([]peak, len(at.IDs))}
		for d := range p.costs {
			p.costs[d].cost = o.first
		}
		return p
	}
}

func (p *peakEWMA) String() string { return p.o.name }

// Learn implements sim.Policy.
func (p *peakEWMA) Learn(n *sim.Notice) {
	c := p.note(n)
	switch {
	case p.o.ttft && n.Kind == sim.Begun:
		p.costs[n.Deployment].sample(n.At, n.TTFT.Seconds(), p.o.decay)
	case !p.o.ttft && n.Kind == sim.Over && n.OK:
		p.costs[n.Deployment].sample(n.At, (n.At - c.sent).Seconds(), p.o.decay)
	}
}

func (k *peak) sample(now time.Duration, seconds float64, decay time.Duration) {
	if seconds > k.cost {
		k.cost = seconds
	} else {
		w := math.Exp(-(now - k.at).Seconds() / decay.Seconds())
		k.cost = k.cost*w + seconds*(1-w)
	}
	k.at = now
}

// Pick implements route.Strategy.
func (p *peakEWMA) Pick(r *route.Round) int {
	a := p.round(r)
	load := func(i int) float64 {
		k, pending := &p.costs[p.who[i]], float64(p.of(i).running)
		k.sample(a.now, 0, p.o.decay)
		v := k.cost * (pending + 1)
		if k.cost == 0 && pending != 0 {
			v = finaglePenalty + pending
		}
		r.Note(i, "ewma_seconds*(pending+1)", v)
		return v
	}
	x, y := two(r)
	if x != y && load(y) < load(x) {
		return y
	}
	return x
}

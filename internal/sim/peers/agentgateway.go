package peers

import (
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// agentgateway is agentgateway's choice of an endpoint (crates/agentgateway/src/types/loadbalancer.rs, 2026): of two drawn at
// random the one with the higher health / (1 + latency·(1 + 0.1·pending)). Health and latency are moving averages that give a new
// sample a weight of 0.3, and the first one all. Latency is that of whole requests in seconds, of successes alone. Health begins
// at 1: the source has 0 for "no sample", which would make every endpoint that was never used the worst.
type agentgateway struct {
	books
	stats []gatewayStats
}

type gatewayStats struct{ health, latency float64 }

const (
	agentgatewayAlpha   = 0.3
	agentgatewayPending = 0.1
)

func newAgentgateway(at sim.Vantage) sim.Policy {
	b := newBooks(at, nil)
	p := &agentgateway{b, make([]gatewayStats, len(at.IDs))}
	for d := range p.stats {
		p.stats[d].health = 1
	}
	return p
}

func (*agentgateway) String() string { return "agentgateway" }

// Learn implements sim.Policy.
func (p *agentgateway) Learn(n *sim.Notice) {
	c := p.note(n)
	if n.Kind != sim.Over {
		return
	}
	s := &p.stats[n.Deployment]
	if !n.OK {
		s.health *= 1 - agentgatewayAlpha
		return
	}
	s.health += agentgatewayAlpha * (1 - s.health)
	took := (n.At - c.sent).Seconds()
	if s.latency == 0 {
		s.latency = took
	} else {
		s.latency += agentgatewayAlpha * (took - s.latency)
	}
}

// Pick implements route.Strategy.
func (p *agentgateway) Pick(r *route.Round) int {
	p.round(r)
	score := func(i int) float64 {
		s := p.stats[p.who[i]]
		v := s.health / (1 + s.latency*(1+agentgatewayPending*float64(p.of(i).running)))
		r.Note(i, "health/(1+latency*(1+0.1*pending))", v)
		return v
	}
	a, b := two(r)
	if a != b && score(b) > score(a) {
		return b
	}
	return a
}

package peers

import (
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// envoy is Envoy's least-request policy (docs "Supported load balancers", v1.36): of choice_count = 2 hosts drawn at random with
// replacement the one with fewer active requests. If weights are not equal, hosts take turns by weight / (active + 1)^1.0
// (active_request_bias 1.0); here one is drawn in that proportion, which is their share.
type envoy struct{ books }

func newEnvoy(at sim.Vantage) sim.Policy {
	b := newBooks(at, nil)
	return &envoy{b}
}

func (*envoy) String() string { return "envoy" }

// Pick implements route.Strategy.
func (p *envoy) Pick(r *route.Round) int {
	p.round(r)
	n := len(r.Candidates)
	equal := true
	for i := range r.Candidates {
		equal = equal && r.Candidates[i].Weight == r.Candidates[0].Weight
	}
	if !equal {
		return p.drawn(r)
	}
	a, b := r.IntN(n), r.IntN(n)
	if p.of(b).running < p.of(a).running {
		return b
	}
	return a
}

func (p *envoy) drawn(r *route.Round) int {
	share := func(i int) float64 { return r.Candidates[i].Weight / float64(p.of(i).running+1) }
	sum := 0.0
	for i := range r.Candidates {
		sum += share(i)
	}
	x := r.Float64() * sum
	for i := range r.Candidates {
		if x -= share(i); x < 0 {
			return i
		}
	}
	return len(r.Candidates) - 1
}

package peers

import (
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// kubeai is the strategy PrefixHash of KubeAI (internal/loadbalancer/balance_chwbl.go): consistent hashing with bounded loads. The
// key is the first 100 characters (prefixCharLength) of the first user message; each endpoint has 256 places on the ring
// (replication). From the key on, the first endpoint takes the request whose requests with this one are at most 125 %
// (meanLoadPercentage) of what is the mean with this one; if there is none, the first of all does.
//
// The first user message is the same in all turns of a session, and after the system prompt: where a workload has sessions the key
// is the session, else the second block of the prompt.
type kubeai struct {
	books
	ring  ring
	bound float64 // in multiples of the mean; 0 = none
}

const (
	kubeaiPlaces = 256
	kubeaiBound  = 1.25

	vllmRouterPlaces = 160 // virtual nodes of the vLLM router's consistent_hash
)

func newKubeAI(at sim.Vantage) sim.Policy {
	b := newBooks(at, nil)
	return &kubeai{b, newRing(at.IDs, kubeaiPlaces, ""), kubeaiBound}
}

// newConsistentHash returns the policy consistent_hash of the vLLM router (src/policies/consistent_hash.rs): a ring with 160 places each
// and no bound. The key is a session header; where there is none, the one of kubeai.
func newConsistentHash(at sim.Vantage) sim.Policy {
	b := newBooks(at, nil)
	return &kubeai{b, newRing(at.IDs, vllmRouterPlaces, ""), 0}
}

func (*kubeai) String() string { return "kubeai" }

// conversation is what the turns of a conversation have in common, as far as a request shows it.
func conversation(q *sim.Request) uint64 {
	switch {
	case q.Session != 0:
		return scramble(q.Session)
	case len(q.Prompt) > 1:
		return scramble(q.Prompt[1])
	case len(q.Prompt) == 1:
		return scramble(q.Prompt[0])
	}
	return scramble(q.Seed) // nobody else's
}

// Pick implements route.Strategy.
func (p *kubeai) Pick(r *route.Round) int {
	a := p.round(r)
	total := 0
	for i := range r.Candidates {
		total += p.of(i).running
	}
	most := p.bound * float64(total+1) / float64(len(r.Candidates))
	home := -1
	d := p.ring.walk(conversation(a.request), len(p.workers), func(d int) bool {
		if !p.eligible(d) {
			return false
		}
		if home < 0 {
			home = d
		}
		return p.bound == 0 || total == 0 || float64(p.workers[d].running+1) <= most
	})
	if d < 0 {
		d = home
	}
	return p.slot[d]
}

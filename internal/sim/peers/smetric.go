package peers

import (
	"cmp"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// smetric is the policy of that name of the vLLM router (src/policies/smetric.rs, docs/load_balancing, after arXiv 2607.08565).
//
// A session stays at the worker with the longest cached prefix (of equals the one with the least load), if that has more than hit_ratio of
// what the turn before sent, and if its load at its measured speed fits into slack·(1 s + 0.0625 s per 1,000 prompt tokens), or nobody's
// does. Else, and on a first turn, the request goes to the least load·(requests in flight), in turn of equals. Load is the prefill
// cost of requests without a first token and of this one; cost is the uncached tokens n, and with a crossover L also their
// attention, n·(prompt − n/2)/L. A worker whose speed is not known fits.
//
// The router reads turns from messages. Of a trace without sessions it is not known what is a turn: there, one that shares more than
// a first block with an earlier prompt counts as a later turn, and what it shares as its history.
type smetric struct {
	books
	crossover float64 // attention_crossover_tokens, 0 = unset
	queued    []float64
	costs     map[uint64]float64 // of attempts without a first token
	speeds    []speed
	turns     *recent
	picks     int
	tied      []int
}

const (
	smetricHitRatio  = 0.5
	smetricSlack     = 1.0
	smetricSLO       = 1.0     // ttft_slo_secs
	smetricSLOPer1k  = 0.0625  // ttft_slo_secs_per_1k_tokens
	smetricCrossover = 6923.0  // what its documentation gives for Qwen3-30B-A3B
	smetricTree      = 1 << 26 // max_tree_size: characters of a worker
	smetricEvery     = 120 * time.Second
	smetricSessions  = 1 << 16 // how many sessions are told from new ones; the source reads it from the messages
)

func newSMetric(crossover float64) func(sim.Vantage) sim.Policy {
	return func(at sim.Vantage) sim.Policy {
		b := newBooks(at, &indexOptions{room: smetricTree / charsPerToken, every: smetricEvery})
		n := len(at.IDs)
		return &smetric{
			books: b, crossover: crossover, queued: make([]float64, n), costs: map[uint64]float64{}, speeds: make([]speed, n),
			turns: newRecent(smetricSessions),
		}
	}
}

func (*smetric) String() string { return "smetric" }

func (p *smetric) cost(prompt, uncached int) float64 {
	n := float64(uncached)
	if p.crossover > 0 {
		n += n * (float64(prompt) - n/2) / p.crossover
	}
	return n
}

// Learn implements sim.Policy.
func (p *smetric) Learn(n *sim.Notice) {
	c := p.note(n)
	switch n.Kind {
	case sim.Sent:
		cost := p.cost(n.Request.PromptTokens, c.uncached)
		p.queued[n.Deployment] += cost
		p.costs[n.Attempt] = cost
		p.turns.add(n.Request.Session, n.Request.PromptTokens)
	case sim.Begun, sim.Over:
		cost, ok := p.costs[n.Attempt]
		if !ok {
			return
		}
		delete(p.costs, n.Attempt)
		if p.queued[n.Deployment] -= cost; p.workers[n.Deployment].queued == 0 {
			p.queued[n.Deployment] = 0
		}
		if n.Kind == sim.Begun {
			p.speeds[n.Deployment].add(cost, n.TTFT.Seconds())
		}
	}
}

// history returns what the turn before sent, in tokens, 0 on a first turn.
func (p *smetric) history(a ask, r *route.Round) int {
	if a.request.Session != 0 {
		return p.turns.value(a.request.Session)
	}
	longest := 0
	for i := range r.Candidates {
		longest = max(longest, p.cached[p.who[i]])
	}
	if longest <= p.index.size {
		return 0
	}
	return longest
}

// Pick implements route.Strategy.
func (p *smetric) Pick(r *route.Round) int {
	a := p.round(r)
	load := func(i int) float64 { return p.queued[p.who[i]] + p.cost(a.tokens, p.missing(a, i)) }
	budget := smetricSlack * (smetricSLO + smetricSLOPer1k*float64(a.tokens)/1000)
	home, anyFits := 0, false
	for i := range r.Candidates {
		anyFits = anyFits || p.speeds[p.who[i]].takes(load(i)) <= budget
		if cmp.Or(cmp.Compare(p.cached[p.who[i]], p.cached[p.who[home]]), cmp.Compare(load(home), load(i))) > 0 {
			home = i
		}
	}
	p.picks++
	history := p.history(a, r)
	kept := history > 0 && float64(p.cached[p.who[home]]) > smetricHitRatio*float64(history)
	if kept && (p.speeds[p.who[home]].takes(load(home)) <= budget || !anyFits) {
		return home
	}
	p.tied = p.tied[:0]
	lowest := 0.0
	for i := range r.Candidates {
		v := load(i) * float64(p.of(i).running)
		r.Note(i, "prefill_tokens*requests", v)
		if len(p.tied) == 0 || v < lowest {
			p.tied, lowest = p.tied[:0], v
		}
		if v == lowest {
			p.tied = append(p.tied, i)
		}
	}
	return p.tied[p.picks%len(p.tied)]
}

// recent remembers a number for each of the keys that were added last.
type recent struct {
	values map[uint64]int
	keys   []uint64 // a ring once it is full
	next   int
	most   int
}

func newRecent(most int) *recent { return &recent{values: map[uint64]int{}, most: most} }

// add sets a key's number. Key 0 is nobody's.
func (m *recent) add(key uint64, value int) {
	if key == 0 {
		return
	}
	if _, ok := m.values[key]; !ok {
		if len(m.keys) < m.most {
			m.keys = append(m.keys, key)
		} else {
			delete(m.values, m.keys[m.next])
			m.keys[m.next] = key
			m.next = (m.next + 1) % m.most
		}
	}
	m.values[key] = value
}

// value returns a key's number, 0 if it is not remembered.
func (m *recent) value(key uint64) int { return m.values[key] }

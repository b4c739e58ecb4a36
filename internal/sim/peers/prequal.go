package peers

import (
	"cmp"
	"math"
	"slices"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// prequal is Prequal (NSDI '24). Each query sends probes to 3 replicas at random, whose answers are for the queries to come: the
// requests in flight there (RIF), and the latency that requests had that came at that RIF. Answers are kept in a pool of 16, one for each
// replica, for 1 s and for so many uses; each query removes one, the oldest and the worst by turns. A replica is hot if its
// RIF is above the quantile q of the last 64 that were seen. The query goes to the cold one with the lowest latency, else to the one
// with the lowest RIF; at random with fewer than two answers in the pool. A use counts as one more request in the answer.
//
// The latency is that to the first token: what is compared here, and what does not depend on how long answers are. q is 2^-0.25 = 0.84
// in the paper; the port prequal-rs has 0.6, since the paper's herded in its simulation.
type prequal struct {
	books
	q         float64
	pool      []probe
	rifs      []int // of the last prequalHistory probes, a ring once it is full
	nextRIF   int
	latencies []rifLatency
	worst     bool // the next one to be removed is the worst, not the oldest
	sorted    []int
}

// probe is an answer in the pool.
type probe struct {
	deployment int
	at         time.Duration
	rif        int
	latency    float64 // seconds
	uses       int     // left
}

const (
	prequalProbes  = 3
	prequalPool    = 16
	prequalAge     = time.Second
	prequalRemoves = 1.0
	prequalDelta   = 1.0
	prequalReuse   = 16 // max_reuse of the port, where the paper's formula has no positive value
	prequalHistory = 64
	prequalPaper   = 0.8408964152537145 // 2^-0.25
	prequalPort    = 0.6
)

func newPrequal(q float64) func(sim.Vantage) sim.Policy {
	return func(at sim.Vantage) sim.Policy {
		b := newBooks(at, nil)
		return &prequal{books: b, q: q, latencies: make([]rifLatency, len(at.IDs))}
	}
}

func (*prequal) String() string { return "prequal" }

// Learn implements sim.Policy.
func (p *prequal) Learn(n *sim.Notice) {
	c := p.note(n)
	switch {
	case n.Kind == sim.Begun:
		p.latencies[n.Deployment].add(c.rank, n.TTFT.Seconds())
	case n.Kind == sim.Over && !n.OK: // what fails fast looks idle
		p.pool = slices.DeleteFunc(p.pool, func(x probe) bool { return x.deployment == n.Deployment })
	}
}

// Pick implements route.Strategy.
func (p *prequal) Pick(r *route.Round) int {
	a := p.round(r)
	p.pool = slices.DeleteFunc(p.pool, func(x probe) bool { return a.now-x.at > prequalAge })
	limit := p.hotAbove()
	picked := r.IntN(len(r.Candidates))
	if i := p.best(limit); i >= 0 && len(p.pool) >= 2 {
		x := &p.pool[i]
		picked = p.slot[x.deployment]
		r.Note(picked, "rif", float64(x.rif))
		r.Note(picked, "latency_seconds", x.latency)
		x.rif++
		if x.uses--; x.uses == 0 {
			p.pool = slices.Delete(p.pool, i, i+1)
		}
	}
	p.remove(limit)
	for _, d := range p.targets(r) {
		p.probe(a.now, r, d, d == p.who[picked])
	}
	return picked
}

// hotAbove returns the RIF above which a replica is hot.
func (p *prequal) hotAbove() int {
	if len(p.rifs) == 0 {
		return math.MaxInt
	}
	p.sorted = append(p.sorted[:0], p.rifs...)
	slices.Sort(p.sorted)
	return p.sorted[min(int(p.q*float64(len(p.sorted))), len(p.sorted)-1)]
}

// best returns which answer of an eligible replica to use, -1 if there is none.
func (p *prequal) best(limit int) int {
	best := -1
	before := func(x, y *probe) bool {
		hotX, hotY := x.rif > limit, y.rif > limit
		switch {
		case hotX != hotY:
			return hotY
		case hotX:
			return cmp.Or(cmp.Compare(x.rif, y.rif), cmp.Compare(x.latency, y.latency)) < 0
		}
		return cmp.Or(cmp.Compare(x.latency, y.latency), cmp.Compare(x.rif, y.rif)) < 0
	}
	for i := range p.pool {
		if p.eligible(p.pool[i].deployment) && (best < 0 || before(&p.pool[i], &p.pool[best])) {
			best = i
		}
	}
	return best
}

// remove takes the oldest or the worst answer from the pool: of the hot ones that with the highest RIF, else that with the highest latency.
func (p *prequal) remove(limit int) {
	if len(p.pool) > 0 {
		out := 0
		for i := range p.pool {
			x, y := &p.pool[i], &p.pool[out]
			hotX, hotY := x.rif > limit, y.rif > limit
			switch {
			case !p.worst && x.at < y.at,
				p.worst && hotX && (!hotY || x.rif > y.rif),
				p.worst && !hotX && !hotY && x.latency > y.latency:
				out = i
			}
		}
		p.pool = slices.Delete(p.pool, out, out+1)
	}
	p.worst = !p.worst
}

// targets draws whom to probe, all distinct.
func (p *prequal) targets(r *route.Round) []int {
	p.sorted = append(p.sorted[:0], p.who...)
	n := min(prequalProbes, len(p.sorted))
	for i := range n {
		j := i + r.IntN(len(p.sorted)-i)
		p.sorted[i], p.sorted[j] = p.sorted[j], p.sorted[i]
	}
	return p.sorted[:n]
}

// probe asks a replica and pools the answer. It comes when the query that sent it is there: at home if that went to this replica.
func (p *prequal) probe(now time.Duration, r *route.Round, d int, home bool) {
	rif := p.workers[d].running
	if s, ok := p.at.Servers[d].(sim.Scraper); ok {
		l := s.Load(now)
		rif = l.Running + l.Waiting
	}
	if home {
		rif++
	}
	if len(p.rifs) < prequalHistory {
		p.rifs = append(p.rifs, rif)
	} else {
		p.rifs[p.nextRIF] = rif
		p.nextRIF = (p.nextRIF + 1) % prequalHistory
	}
	p.pool = slices.DeleteFunc(p.pool, func(x probe) bool { return x.deployment == d })
	p.pool = append(p.pool, probe{d, now, rif, p.latencies[d].at(rif), p.reuse(r)})
	if len(p.pool) > prequalPool {
		p.pool = slices.Delete(p.pool, 0, 1) // the oldest
	}
}

// reuse is how many queries may use an answer: max(1, 1 + δ/((1 − m/n)·probes − removes)), rounded at random.
func (p *prequal) reuse(r *route.Round) int {
	budget := float64(prequalReuse)
	if d := (1-prequalPool/float64(len(p.workers)))*prequalProbes - prequalRemoves; d > 0 {
		budget = min(1+prequalDelta/d, prequalReuse)
	}
	whole := math.Floor(budget)
	if r.Float64() < budget-whole {
		whole++
	}
	return int(whole)
}

// rifLatency remembers the last latencies of a replica with the RIF at which the requests came.
type rifLatency struct {
	samples []rifSample // the oldest is at next, once there are rifSamples
	next    int
}

type rifSample struct {
	rif     int
	seconds float64
}

const (
	rifSamples = 256
	rifNearest = 16 // an estimate is the median of so many
)

func (l *rifLatency) add(rif int, seconds float64) {
	if len(l.samples) < rifSamples {
		l.samples = append(l.samples, rifSample{rif, seconds})
		return
	}
	l.samples[l.next] = rifSample{rif, seconds}
	l.next = (l.next + 1) % rifSamples
}

// at returns the median latency of the samples that came nearest to an RIF, the latest of equals; 0 if there are none.
func (l *rifLatency) at(rif int) float64 {
	var near [rifNearest]rifSample // by how far off they are
	n := 0
	off := func(s rifSample) int { return max(s.rif-rif, rif-s.rif) }
	for k := range l.samples { // the latest first
		s := l.samples[(l.next+len(l.samples)-1-k)%len(l.samples)]
		if n == rifNearest && off(s) >= off(near[n-1]) {
			continue
		}
		n = min(n+1, rifNearest)
		i := n - 1
		for ; i > 0 && off(s) < off(near[i-1]); i-- {
			near[i] = near[i-1]
		}
		near[i] = s
	}
	if n == 0 {
		return 0
	}
	slices.SortFunc(near[:n], func(a, b rifSample) int { return cmp.Compare(a.seconds, b.seconds) })
	return near[n/2].seconds
}

package report

import (
	"math"

	"evenkeel/internal/sim"
)

// reply is what a Watch keeps of a request that was answered in full, until its run is paired.
type reply struct {
	ttft           float64 // seconds
	to             *Tally  // of its tenant; nil = it does not count, or was not answered in full
	prompt, cached int32   // tokens
}

// pairing is what two runs made of the requests that both answered in full. Who answers only what is easy is no faster for that.
type pairing struct {
	all     pair
	tenants map[string]*pair
}

// pair is what two runs made of the same requests.
type pair struct {
	requests  int
	own, base sums
}

// sums are of one of the two runs.
type sums struct {
	ttft           sim.Series
	prompt, cached int
}

// Add takes a run for each policy, in order, all with one seed.
func (r *Report) Add(runs []Run) {
	for i := range runs {
		if i > 0 {
			runs[i].pairing = pairUp(runs[i].Watch, runs[0].Watch)
		}
		r.Policies[i].Runs = append(r.Policies[i].Runs, runs[i])
	}
	for i := range runs { // they grow with the requests, and are needed no more
		runs[i].Watch.replies = nil
	}
}

// pairUp finds what two Watches made of the same requests.
func pairUp(w, base *Watch) *pairing {
	p := &pairing{tenants: map[string]*pair{}}
	first := -1
	for n := range min(len(w.replies), len(base.replies)) {
		x, y := &w.replies[n], &base.replies[n]
		if x.to == nil || y.to == nil {
			continue
		}
		if first < 0 {
			first = n // batches begin here
		}
		t := p.tenants[x.to.tenant]
		if t == nil {
			t = &pair{}
			p.tenants[x.to.tenant] = t
		}
		p.all.add(n-first, x, y)
		t.add(n-first, x, y)
	}
	return p
}

func (p *pair) add(ordinal int, own, base *reply) {
	p.requests++
	p.own.add(ordinal, own)
	p.base.add(ordinal, base)
}

func (s *sums) add(ordinal int, x *reply) {
	s.ttft.Add(ordinal, x.ttft)
	s.prompt += int(x.prompt)
	s.cached += int(x.cached)
}

// tenant returns the pair of a tenant's requests, an empty one if there are none.
func (p *pairing) tenant(name string) *pair {
	if t := p.tenants[name]; t != nil {
		return t
	}
	return &pair{}
}

// ttft is by how much the mean time to the first token is above the base's, with the standard error of that.
func (p *pair) ttft() (difference, standardError float64) {
	if p.requests == 0 {
		return math.NaN(), math.Inf(1)
	}
	return sim.Paired(&p.own.ttft, &p.base.ttft)
}

// hitShare is how much of the prompts a cache held, NaN if there are none.
func (s *sums) hitShare() float64 { return ratio(s.cached, s.prompt) }

// ratio is NaN where it cannot be told.
func ratio(part, all int) float64 {
	if all == 0 {
		return math.NaN()
	}
	return float64(part) / float64(all)
}

// meanOf is the mean of a series, NaN if it is empty.
func meanOf(s *sim.Series) float64 {
	if s.Count() == 0 {
		return math.NaN()
	}
	return s.Mean()
}

// quantileOf is a quantile of a series, NaN if it is empty.
func quantileOf(s *sim.Series, q float64) float64 {
	if s.Count() == 0 {
		return math.NaN()
	}
	return s.Quantile(q)
}

// minus is the difference of two numbers, nil if one of them is not known.
func minus(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	d := *a - *b
	return &d
}

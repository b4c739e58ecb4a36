package peers

import (
	"cmp"
	"math"
	"slices"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// aibrix is the policy prefix-cache of AIBrix (pkg/plugins/gateway/algorithms/prefix_cache.go). If the running requests of the pods
// are too unequal, the load decides. Else pods that have a part of the prompt are tried in the order of how much they have (in whole
// per cent), the less loaded first and at random of equals: the first with at most mean + f·σ running requests gets the request. If
// there is none it goes to a pod with the fewest, at random. The table of prefixes has 200,000 blocks for all pods, and
// forgets what was not used for 20 minutes; it is looked through each second.
type aibrix struct {
	books
	o     aibrixOptions
	order []int
}

type aibrixOptions struct {
	gap   int     // max − min above it is too unequal
	sigma float64 // f: AIBRIX_PREFIX_CACHE_STANDARD_DEVIATION_FACTOR
	block int     // tokens. The source counts bytes with its default tokenizer, which makes a block a quarter of that
	// gate, of 2026-09: it is too unequal if max > gate·(mean + 1) and max − min ≥ gap, and then only the pods with the fewest requests
	// are looked at. 0 = the load decides alone.
	gate float64
}

var (
	// aibrixCode are the defaults of the code.
	aibrixCode = aibrixOptions{gap: 8, sigma: 1, block: 4}
	// aibrixReadme are the defaults that its README documents.
	aibrixReadme = aibrixOptions{gap: 16, sigma: 2, block: 128}
	// aibrixGate is the code of September 2026, with the documented size of a block.
	aibrixGate = aibrixOptions{gap: 8, sigma: 1, block: 128, gate: 2}
)

const (
	aibrixBlocks = 200_000
	aibrixIdle   = 20 * time.Minute
	aibrixSweep  = time.Second

	scrapeAIBrix = 50 * time.Millisecond // of those of its policies that read metrics
)

func newAIBrix(o aibrixOptions) func(sim.Vantage) sim.Policy {
	return func(at sim.Vantage) sim.Policy {
		b := newBooks(at, &indexOptions{block: o.block, room: aibrixBlocks * o.block, pooled: true, idle: aibrixIdle, every: aibrixSweep})
		return &aibrix{books: b, o: o}
	}
}

func (*aibrix) String() string { return "aibrix" }

// Pick implements route.Strategy.
func (p *aibrix) Pick(r *route.Round) int {
	a := p.round(r)
	n := len(r.Candidates)
	low, high, sum, squares := math.MaxInt, 0, 0.0, 0.0
	for i := range r.Candidates {
		q := p.of(i).running
		low, high = min(low, q), max(high, q)
		sum += float64(q)
		squares += float64(q) * float64(q)
	}
	mean := sum / float64(n)
	most := mean + p.o.sigma*math.Sqrt(max(squares/float64(n)-mean*mean, 0))

	unequal := high-low > p.o.gap
	if p.o.gate > 0 {
		unequal = float64(high) > p.o.gate*(mean+1) && high-low >= p.o.gap
	}
	if unequal && p.o.gate == 0 {
		return p.leastRequests(r)
	}
	p.order = p.order[:0]
	for i := range r.Candidates {
		if p.percent(a, i) > 0 && (!unequal || p.of(i).running == low) {
			p.order = append(p.order, i)
		}
	}
	for i := len(p.order) - 1; i > 0; i-- { // shuffled, so that equals come at random
		j := r.IntN(i + 1)
		p.order[i], p.order[j] = p.order[j], p.order[i]
	}
	slices.SortStableFunc(p.order, func(i, j int) int {
		return cmp.Or(cmp.Compare(p.percent(a, j), p.percent(a, i)), cmp.Compare(p.of(i).running, p.of(j).running))
	})
	for _, i := range p.order {
		if float64(p.of(i).running) <= most {
			return i
		}
	}
	return p.leastRequests(r)
}

func (p *aibrix) percent(a ask, i int) int {
	if whole := p.whole(a); whole > 0 {
		return 100 * p.cached[p.who[i]] / whole
	}
	return 0
}

func (p *aibrix) leastRequests(r *route.Round) int {
	return anyOf(r, func(i int) float64 { return float64(p.of(i).running) })
}

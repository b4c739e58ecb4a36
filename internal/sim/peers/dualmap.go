package peers

import (
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// dualMap chooses as DualMap (arXiv 2602.06502, 2026; AIBrix has it as dualmap.go) does: two hash rings, of 100 places each, give
// each prefix two candidates. The request goes to the one that has more of the prompt, unless that would take longer than a limit to
// the first token; then to the one with the shorter time. Of equals it is the one that uses less of its KV memory, or any.
//
// The key is the first block of the prompt, and one block more where that has more than 6.12 % of the last 200 keys; it shrinks again
// when what a block less would have falls under 2 %.
//
// The time is (uncached tokens that wait there and of this request)/speed, with the speed that is measured: the paper profiles
// it. Moving requests that wait is left out: here, none wait at the router.
type dualMap struct {
	books
	limit  time.Duration
	one    ring
	other  ring
	keys   lazyKeys
	speeds []speed
}

const (
	dualMapPlaces  = 100
	dualMapWindow  = 200
	dualMapHot     = 0.0612
	dualMapCold    = 0.02
	dualMapSamples = 20
	dualMapLimit   = time.Second
	dualMapLimit5  = 5 * time.Second
)

func newDualMap(limit time.Duration) func(sim.Vantage) sim.Policy {
	return func(at sim.Vantage) sim.Policy {
		b := newBooks(at, &indexOptions{block: llmdBlock, room: llmdRoom})
		return &dualMap{
			books: b, limit: limit, one: newRing(at.IDs, dualMapPlaces, "1"), other: newRing(at.IDs, dualMapPlaces, "2"),
			keys: lazyKeys{deeper: map[uint64]bool{}, counts: map[uint64]int{}}, speeds: make([]speed, len(at.IDs)),
		}
	}
}

func (*dualMap) String() string { return "dualmap" }

// Learn implements sim.Policy.
func (p *dualMap) Learn(n *sim.Notice) {
	c := p.note(n)
	switch n.Kind {
	case sim.Sent:
		p.keys.seen(n.Request.Prompt)
	case sim.Begun:
		p.speeds[n.Deployment].add(float64(c.uncached), n.TTFT.Seconds())
	}
}

// Pick implements route.Strategy.
func (p *dualMap) Pick(r *route.Round) int {
	a := p.round(r)
	key := scramble(a.request.Seed) // of a prompt that shares nothing
	if chain := a.request.Prompt; len(chain) > 0 {
		key = scramble(chain[p.keys.depth(chain)-1])
	}
	x := p.one.walk(key, len(p.workers), p.eligible)
	y := p.other.walk(key, len(p.workers), func(d int) bool { return p.eligible(d) && d != x })
	if y < 0 {
		return p.slot[x]
	}
	seconds := func(d int) float64 {
		w := &p.workers[d]
		s := p.speeds[d].takes(float64(w.uncached + a.tokens - p.cached[d]))
		r.Note(p.slot[d], "ttft_seconds", s)
		return s
	}
	sx, sy := seconds(x), seconds(y)
	better := p.better(r, x, y, float64(p.cached[y]), float64(p.cached[x]))
	if s := map[int]float64{x: sx, y: sy}[better]; s > p.limit.Seconds() {
		better = p.better(r, x, y, sx, sy)
	}
	return p.slot[better]
}

// better returns the deployment with the lower number; of equals the one that uses less KV memory, of equals any.
func (p *dualMap) better(r *route.Round, x, y int, forX, forY float64) int {
	if forX == forY {
		forX, forY = p.used(x), p.used(y)
	}
	if forX == forY {
		forX, forY = 0, float64(1-2*r.IntN(2))
	}
	if forY < forX {
		return y
	}
	return x
}

func (p *dualMap) used(d int) float64 {
	l := &p.workers[d].load
	if l.Blocks == 0 {
		return 0
	}
	return float64(l.Used) / float64(l.Blocks)
}

// lazyKeys says how many blocks of a prompt make its key.
type lazyKeys struct {
	deeper map[uint64]bool // prefixes that are too common to be keys
	counts map[uint64]int  // of the last dualMapWindow
	last   []uint64        // a ring once it is full
	next   int
}

// depth returns how many blocks are the key; the chain must have one.
func (k *lazyKeys) depth(chain []uint64) int {
	d := 1
	for d < len(chain) && k.deeper[chain[d-1]] {
		d++
	}
	return d
}

// seen counts a prompt.
func (k *lazyKeys) seen(chain []uint64) {
	if len(chain) == 0 {
		return
	}
	d := k.depth(chain)
	if share := k.observe(chain[d-1]); share >= dualMapHot && d < len(chain) {
		k.deeper[chain[d-1]] = true
	}
	if d > 1 {
		if share := k.observe(chain[d-2]); share < dualMapCold {
			delete(k.deeper, chain[d-2])
		}
	}
}

// observe counts a key and returns its share of the last ones; 0 while they are few.
func (k *lazyKeys) observe(key uint64) float64 {
	if len(k.last) < dualMapWindow {
		k.last = append(k.last, key)
	} else {
		old := k.last[k.next]
		if k.counts[old]--; k.counts[old] == 0 {
			delete(k.counts, old)
		}
		k.last[k.next] = key
		k.next = (k.next + 1) % dualMapWindow
	}
	k.counts[key]++
	if len(k.last) < dualMapSamples {
		return 0
	}
	return float64(k.counts[key]) / float64(len(k.last))
}

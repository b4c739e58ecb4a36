package yardstick

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

// memory finds what must be computed again because caches cannot keep it. Keeping a block from one request for it to the next takes
// room for that long, and all engines together have so much room over the time that is measured. The most that keeping can spare
// is a fractional knapsack.
type memory struct {
	requests []sim.Request
	from     time.Duration // what is measured begins
	keeps    []keep
	nodes    []int32

	room  float64 // token-seconds of all engines
	slack float64 // token-seconds that no cache needs to give: while requests decode in FIFO
	again float64 // seconds of computing if nothing is kept
	most  int     // tokens of the longest prompt that others share
	fifo  bool
	every float64 // the longest time of a token of an answer in FIFO
}

// keep is to keep some blocks from one request to the next.
type keep struct {
	blocks int
	room   float64 // token-seconds
	spare  float64 // seconds of computing
}

func newMemory(engines []engine.Config, requests []sim.Request, burnIn time.Duration) *memory {
	m := &memory{requests: requests, from: burnIn}
	tokens := 0.0
	for i := range engines {
		c := &engines[i]
		tokens += float64(c.Blocks) * float64(c.BlockTokens)
		switch c.Scheduler {
		case engine.FIFO:
			m.fifo = true
			m.every = max(m.every, slowest(&c.Timing))
		case engine.Legacy: // what runs has no limit
			tokens = math.Inf(1)
		}
	}
	if n := len(requests); n > 0 {
		m.from = max(m.from, requests[0].At)
		m.room = tokens * max(0, requests[n-1].At-m.from).Seconds()
	}
	if m.fifo && math.IsInf(m.every, 1) {
		m.room = math.Inf(1)
	}
	return m
}

// slowest returns the longest time between two tokens of an answer of a FIFO engine, if there is one.
func slowest(t *engine.Timing) float64 {
	if t.Decode == nil {
		if t.Context > 0 {
			return math.Inf(1)
		}
		return t.Base + t.Sequence
	}
	longest := 0.0
	const grid = 1000 // Decode is a curve that rises or falls over much more than that
	for i := range grid + 1 {
		longest = max(longest, t.Decode(float64(i)/grid))
	}
	return t.Base + longest
}

// request takes the next request. Blocks that were last asked for by the same request are kept together.
func (m *memory) request(f *fleet, p *prefixes, i int32, measured bool) {
	r := &m.requests[i]
	m.nodes = p.path(r.Prompt, m.nodes[:0])
	found := math.MaxInt // what a cache can spare
	token, pair := math.Inf(1), math.Inf(1)
	for k := range f.kinds {
		kind := &f.kinds[k]
		found = min(found, kind.most(r.PromptTokens))
		token = min(token, kind.token)
		pair = min(pair, kind.pair)
		if kind.fifo {
			pair = 0
		}
	}
	shared := 0
	var part keep
	last := int32(-1)
	for d, at := range m.nodes {
		n := &p.nodes[at]
		if n.passes > 1 {
			shared += r.BlockTokens
		}
		before := n.last
		n.last = i
		if !measured || before < 0 || n.again { // it must be computed, or an answer brings it
			continue
		}
		from, to := d*r.BlockTokens, (d+1)*r.BlockTokens
		cost := token*float64(r.BlockTokens) + pair*(square(to)-square(from))
		if to <= found { // else it is computed in any case
			m.again += cost
		}
		if before != last {
			m.keep(&part)
			last = before
		}
		part.room += float64(r.BlockTokens) * (r.At - max(m.requests[before].At, m.from)).Seconds()
		part.blocks++
		part.spare = float64(part.blocks) * cost // at the price of the dearest, which is the last: the knapsack may take them alone
	}
	m.keep(&part)
	m.most = max(m.most, shared)
	if m.fifo {
		m.slack += float64(shared) * float64(r.OutputTokens-1) * m.every
	}
}

func (m *memory) keep(k *keep) {
	if k.blocks > 0 {
		m.keeps = append(m.keeps, *k)
	}
	*k = keep{}
}

// mean returns the least mean TTFT of n requests that each take own in the mean without what they compute again. What requests wait
// takes part: a block must be kept only from the first token of one to when the next one begins.
func (m *memory) mean(own, n float64) float64 {
	if math.IsInf(m.room, 1) || m.again == 0 {
		return own
	}
	slices.SortFunc(m.keeps, func(a, b keep) int { return cmp.Compare(b.spare*a.room, a.spare*b.room) })
	rooms, spares := make([]float64, len(m.keeps)+1), make([]float64, len(m.keeps)+1)
	for i, k := range m.keeps {
		rooms[i+1], spares[i+1] = rooms[i]+k.room, spares[i]+k.spare
	}
	again := func(room float64) float64 {
		i := sort.Search(len(m.keeps), func(i int) bool { return rooms[i+1] > room })
		spared := spares[i]
		if i < len(m.keeps) {
			spared += m.keeps[i].spare * (room - rooms[i]) / m.keeps[i].room
		}
		return max(0, m.again-spared)
	}
	waiting := float64(m.most) * float64(len(m.requests)) // token-seconds for each second of TTFT
	if m.fifo {                                           // what a request has found may be gone while it is computed, and come back
		waiting *= 2
	}
	low, high := own, own+m.again/n
	for range 60 { // the more they wait, the less is computed again: there is one mean that fits itself
		x := (low + high) / 2
		if own+again(m.room+m.slack+waiting*x)/n >= x {
			low = x
		} else {
			high = x
		}
	}
	return low
}

package peers

import (
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// books are what every router can know: what it sent where and has not been answered, what prefixes that left there, and what the
// last scrape said. Policies embed it; it is their sim.Policy but for Pick.
type books struct {
	at      sim.Vantage
	byID    map[string]int
	workers []worker
	open    map[uint64]charge // attempts that run

	// How it knows what is cached where; with both, it believes the one that tells of more, and with neither it does not look.
	index  *index
	events bool // it takes the engines' KV events

	// Of the round that is ranked.
	who    []int // deployment of each candidate
	slot   []int // candidate of each deployment, -1 = none
	cached []int // tokens of the prompt that each deployment is believed to have
	looked look  // what cached is about
}

// look is what was looked up, and when: what a round has found need not be looked for again when its attempt is sent.
type look struct {
	seed  uint64 // of the request
	now   time.Duration
	clock uint64 // of the index
}

// worker is a deployment in the books.
type worker struct {
	running  int         // requests sent and not over
	queued   int         // of those, that have no first token
	uncached int         // prompt tokens of the queued ones that were not believed to be cached there
	held     int         // those of all running ones
	load     engine.Load // as it was scraped last
	since    int         // tokens of prompts sent since the last scrape
}

// charge is a running attempt in the books.
type charge struct {
	sent     time.Duration
	uncached int
	rank     int // requests that the deployment had, with this one
	begun    bool
}

// ask is the request that a round is about.
type ask struct {
	now     time.Duration
	request *sim.Request
	tokens  int // of the prompt
}

func newBooks(at sim.Vantage, x *indexOptions) books {
	n := len(at.IDs)
	b := books{
		at: at, byID: make(map[string]int, n), workers: make([]worker, n), open: map[uint64]charge{},
		slot: make([]int, n), cached: make([]int, n),
	}
	for i, id := range at.IDs {
		b.byID[id] = i
	}
	if x != nil {
		if x.room > 0 && at.CacheTokens > 0 { // instead of what the router assumes by default
			x.room = at.CacheTokens
			if x.pooled {
				x.room *= n
			}
		}
		b.index = newIndex(n, *x)
	}
	return b
}

// round prepares a ranking.
func (b *books) round(r *route.Round) ask {
	for d := range b.slot {
		b.slot[d] = -1
	}
	b.who = b.who[:0]
	next := 0
	for i := range r.Candidates {
		id := r.Candidates[i].ID
		if next >= len(b.at.IDs) || b.at.IDs[next] != id { // candidates come in order, but some may be missing
			next = b.byID[id]
		}
		b.who = append(b.who, next)
		b.slot[next] = i
		next++
	}
	a := ask{now: r.Now.Sub(sim.Epoch), request: b.at.Request(r.Facts.Seed)}
	a.tokens = a.request.PromptTokens
	b.lookup(a.now, a.request)
	return a
}

// lookup fills cached.
func (b *books) lookup(now time.Duration, q *sim.Request) {
	l := look{seed: q.Seed, now: now}
	if b.index != nil {
		l.clock = b.index.clock
	}
	if l == b.looked && q.Seed != 0 {
		return
	}
	b.looked = l
	if b.index != nil {
		b.index.learn(q.BlockTokens)
		b.index.match(now, q.Prompt, b.cached)
	} else {
		clear(b.cached)
	}
	if !b.events {
		return
	}
	var s engine.Sequence
	size := 0 // of the blocks of s
	for d, server := range b.at.Servers {
		e, ok := server.(*sim.Engine)
		if !ok {
			continue
		}
		if size != e.BlockTokens() {
			var err error
			if s, err = e.Sequence(q); err != nil {
				continue // the engine will refuse it
			}
			size = e.BlockTokens()
		}
		b.cached[d] = max(b.cached[d], e.Cached(&s))
	}
}

// of returns the deployment of candidate i.
func (b *books) of(i int) *worker { return &b.workers[b.who[i]] }

// missing returns how many tokens of the prompt candidate i is believed not to have cached.
func (b *books) missing(a ask, i int) int { return a.tokens - b.cached[b.who[i]] }

// whole returns how many tokens of the prompt are in whole blocks of the index.
func (b *books) whole(a ask) int {
	if b.index.step == 0 {
		return 0
	}
	return len(a.request.Prompt) / b.index.step * b.index.size
}

// eligible reports whether a deployment is a candidate of the round.
func (b *books) eligible(deployment int) bool { return b.slot[deployment] >= 0 }

// Learn implements sim.Policy.
func (b *books) Learn(n *sim.Notice) { b.note(n) }

// note enters a notice, and returns the attempt it is about as it stood before.
func (b *books) note(n *sim.Notice) charge {
	w := &b.workers[n.Deployment]
	switch n.Kind {
	case sim.Scraped:
		w.load, w.since = n.Load, 0
		return charge{}
	case sim.Sent:
		w.running++
		w.queued++
		c := charge{sent: n.At, uncached: n.Request.PromptTokens, rank: w.running}
		b.lookup(n.At, n.Request)
		c.uncached -= b.cached[n.Deployment]
		if b.index != nil {
			b.index.insert(n.At, n.Request.Prompt, n.Deployment)
		}
		w.uncached += c.uncached
		w.held += c.uncached
		w.since += n.Request.PromptTokens
		b.open[n.Attempt] = c
		return c
	}
	c, ok := b.open[n.Attempt]
	if !ok {
		return charge{} // it was sent before the others began to tell
	}
	if !c.begun {
		w.queued--
		w.uncached -= c.uncached
	}
	if n.Kind == sim.Begun {
		begun := c
		begun.begun = true
		b.open[n.Attempt] = begun
		return c
	}
	w.running--
	w.held -= c.uncached
	delete(b.open, n.Attempt)
	return c
}

// first returns the candidate with the lowest score, the first of equals: as a loop with < does.
func first(r *route.Round, score func(i int) float64) int {
	best, lowest := -1, 0.0
	for i := range r.Candidates {
		if s := score(i); best < 0 || s < lowest {
			best, lowest = i, s
		}
	}
	return best
}

// anyOf returns the candidate with the lowest score, and one at random of equals.
func anyOf(r *route.Round, score func(i int) float64) int {
	best, lowest, tied := -1, 0.0, 0
	for i := range r.Candidates {
		switch s := score(i); {
		case best < 0 || s < lowest:
			best, lowest, tied = i, s, 1
		case s == lowest:
			if tied++; r.IntN(tied) == 0 {
				best = i
			}
		}
	}
	return best
}

// two draws two distinct candidates, the only one twice.
func two(r *route.Round) (a, b int) {
	n := len(r.Candidates)
	if n == 1 {
		return 0, 0
	}
	a = r.IntN(n)
	if b = r.IntN(n - 1); b >= a {
		b++
	}
	return a, b
}

package route

import (
	"container/heap"
	"time"
)

// What is promised to those who are turned away.
const (
	// mostPlaces bounds the memory of one model's places.
	mostPlaces = 10_000
	// Who comes back is in time from a part of the wait too early on (a client's clock is not ours) until some of it too
	// late; a client that reads only Retry-After, in whole seconds, comes up to one second late.
	earlyPart = 0.1
	latePart  = 0.25
	lateLeast = 2 * time.Second
	// punctual is how long after its time a client comes that waits for as long as it was told: the way there and back, and
	// what its timer is late by.
	punctual = 100 * time.Millisecond
	// keptWeight is how much one place says about how many come back.
	keptLeast  = 0.05
	keptSample = 200 // how many come back is learned from about so many places,
	keptPrior  = 10  // and so many that are taken for kept
)

// place is a promise to somebody who was turned away: whoever brings the same request between from and until is let in
// before those who come for the first time.
type place struct {
	print           uint64
	from, at, until time.Time
	gone            bool // used
	next            *place
}

// group holds the open places for the same request, in order of promise.
type group struct{ first, last *place }

// places are the outstanding promises of one model. Guarded by Router.mu; the zero value has none.
type places struct {
	byPrint map[uint64]*group
	byEnd   lapses
	open    int     // not used and not lapsed
	missed  float64 // share of those who do not come back
	ended   int     // places that missed rests on
}

// kept is the share of places that are used.
func (p *places) kept() float64 { return max(1-p.missed, keptLeast) }

// lapse frees the places of those who did not come back.
func (p *places) lapse(now time.Time) {
	for len(p.byEnd) > 0 && (p.byEnd[0].gone || now.After(p.byEnd[0].until)) {
		l := heap.Pop(&p.byEnd).(*place)
		if !l.gone {
			p.remove(l)
			p.learn(1)
		}
	}
}

func (p *places) remove(l *place) {
	l.gone = true
	p.open--
	g := p.byPrint[l.print]
	var before *place
	for at := g.first; at != l; at = at.next {
		before = at
	}
	switch {
	case g.first == g.last:
		delete(p.byPrint, l.print)
		return
	case before == nil:
		g.first = l.next
	default:
		before.next = l.next
	}
	if g.last == l {
		g.last = before
	}
}

// mostLooked is how many places of a group are looked at: they become due nearly in order.
const mostLooked = 64

// due returns the place that a request may use now, and if there is none the first that it may use later; nil if it has
// none. Where many have places for the same request, those are known to be of them who say that they come again, or who
// come on time to the moment.
func (p *places) due(now time.Time, print uint64, again bool) (l *place, inTime bool) {
	g := p.byPrint[print]
	if g == nil {
		return nil, false
	}
	again = again || g.first == g.last
	l = g.first
	for range mostLooked {
		if l == nil {
			break
		}
		if late := now.Sub(l.at); again && !now.Before(l.from) || late >= 0 && late < punctual {
			return l, true
		}
		l = l.next
	}
	return g.first, false
}

// use ends a promise that was kept.
func (p *places) use(l *place) {
	p.remove(l)
	p.learn(0)
}

func (p *places) learn(missed float64) {
	p.ended = min(p.ended+1, keptSample)
	p.missed += (missed - p.missed) / float64(min(p.ended+keptPrior, keptSample))
}

// promise gives a request a place after about wait and returns after what time it is, 0 if there was none to give. Where
// others have places for the same request, it is after whole seconds: who comes just then is known by that, whether it
// reads Retry-After or Retry-After-Ms.
func (p *places) promise(now time.Time, print uint64, wait time.Duration) time.Duration {
	if len(p.byEnd) >= mostPlaces {
		return 0
	}
	if p.byPrint[print] != nil {
		wait = (wait + time.Second - 1).Truncate(time.Second)
	}
	late := max(lateLeast, time.Duration(latePart*float64(wait)))
	l := &place{print: print, from: now.Add(wait - time.Duration(earlyPart*float64(wait))), at: now.Add(wait), until: now.Add(wait + late)}
	heap.Push(&p.byEnd, l)
	p.open++
	if p.byPrint == nil {
		p.byPrint = map[uint64]*group{}
	}
	if g := p.byPrint[print]; g != nil {
		g.last.next = l
		g.last = l
	} else {
		p.byPrint[print] = &group{l, l}
	}
	return wait
}

// lapses is a heap of places, the one that ends first on top.
type lapses []*place

func (h lapses) Len() int           { return len(h) }
func (h lapses) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h lapses) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *lapses) Push(x any)        { *h = append(*h, x.(*place)) }
func (h *lapses) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

package yardstick

import (
	"math"
	"time"

	"evenkeel/internal/sim"
)

// exact is the product's rule with exact knowledge: the time until the engine comes to the request and, times factor, what its own
// prompt takes, which others will wait for.
type exact struct{ factor float64 }

// score returns what exact goes by.
func (x exact) score(now time.Duration, m *machine, a *ask) float64 {
	cached := m.found(a)
	return m.backlog(now, a, cached) + x.factor*m.own(a.job.Request.PromptTokens, cached)
}

// best returns the engine with the lowest score; of equals, the one that was given the least.
func (x exact) best(p *Pool, now time.Duration, a *ask) *machine {
	var best *machine
	least := math.Inf(1)
	for _, m := range p.machines {
		if !m.holds(a.job.Request) {
			continue
		}
		if s := x.score(now, m, a); s < least || s == least && m.given < best.given {
			best, least = m, s
		}
	}
	return best
}

func (x exact) arrived(p *Pool, now time.Duration, a *ask) *machine { return x.best(p, now, a) }

func (exact) next(*Pool, time.Duration, *machine) *ask { return nil }

// late keeps all requests until an engine can begin with them.
type late struct {
	shortest bool // the one with the least to compute on that engine goes first, else the one that came first
	// patient, if not nil, leaves a request for an engine that is better by this rule, though it is not free.
	patient *exact
}

func (late) arrived(*Pool, time.Duration, *ask) *machine { return nil }

// horizon bounds how many requests of the queue are looked at.
const horizon = 128

func (l late) next(p *Pool, now time.Duration, m *machine) *ask {
	if m.full() {
		return nil
	}
	var best *ask
	least := math.Inf(1)
	for _, a := range p.queue[:min(len(p.queue), horizon)] {
		if !m.holds(a.job.Request) {
			continue
		}
		cached := m.found(a)
		if m.room(now, a, cached) > 0 || l.patient != nil && l.preferred(p, now, a) != m {
			if l.shortest {
				continue
			}
			return nil
		}
		if !l.shortest {
			return a
		}
		if s := m.own(a.job.Request.PromptTokens, cached); s < least {
			best, least = a, s
		}
	}
	return best
}

// preferred returns where a patient request would be done soonest.
func (l late) preferred(p *Pool, now time.Duration, a *ask) *machine {
	if a.best == nil || a.bestAt != now || a.bestVersion != p.version {
		a.best, a.bestAt, a.bestVersion = l.patient.best(p, now, a), now, p.version
	}
	return a.best
}

const (
	lookahead  = 16 // arrivals
	candidates = 4  // engines that are tried
)

// ahead tries the engines that look best, lets the next arrivals go by the score of exact, and takes the engine for which the scores of
// all of them together are least.
type ahead struct {
	exact
	requests []sim.Request // all, in order of arrival
	arrivals int           // of them that have come
	entered  int           // of them whose caches are known
	hits     [][]int       // by request, at its index modulo lookahead, and engine: tokens that it would find
	free     []float64     // scratch
	loads    []float64
}

func (l *ahead) arrived(p *Pool, now time.Duration, a *ask) *machine {
	for l.arrivals < len(l.requests) && l.requests[l.arrivals].At <= now {
		l.arrivals++
	}
	l.enter(p)
	l.loads = l.loads[:0]
	for _, m := range p.machines {
		l.loads = append(l.loads, m.backlog(now, a, a.job.Request.PromptTokens))
	}
	var best *machine
	least := math.Inf(1)
	for _, m := range l.top(p, now, a) {
		if cost := l.cost(p, now, a, m); cost < least {
			best, least = m, cost
		}
	}
	if best != nil {
		for k := l.arrivals; k < l.entered; k++ {
			hits := l.hits[k%lookahead]
			hits[best.index] = max(hits[best.index], min(common(a.job.Request, &l.requests[k]), best.most(l.requests[k].PromptTokens)))
		}
	}
	return best
}

// enter looks up what the next arrivals would find.
func (l *ahead) enter(p *Pool) {
	for l.entered = max(l.entered, l.arrivals); l.entered < min(len(l.requests), l.arrivals+lookahead); l.entered++ {
		a, err := p.ask(sim.Job{Request: &l.requests[l.entered]})
		for len(l.hits) < lookahead {
			l.hits = append(l.hits, make([]int, len(p.machines)))
		}
		for i, m := range p.machines {
			l.hits[l.entered%lookahead][i] = 0
			if err == nil { // else Submit will refuse it
				l.hits[l.entered%lookahead][i] = m.found(a)
			}
		}
	}
}

// top returns the engines with the lowest scores, the best first.
func (l *ahead) top(p *Pool, now time.Duration, a *ask) []*machine {
	var top []*machine
	var scores []float64
	for _, m := range p.machines {
		if !m.holds(a.job.Request) {
			continue
		}
		s := l.score(now, m, a)
		i := len(top)
		for i > 0 && (s < scores[i-1] || s == scores[i-1] && m.given < top[i-1].given) {
			i--
		}
		if i < candidates {
			top = append(top[:i], append([]*machine{m}, top[i:]...)...)
			scores = append(scores[:i], append([]float64{s}, scores[i:]...)...)
			top, scores = top[:min(len(top), candidates)], scores[:min(len(scores), candidates)]
		}
	}
	return top
}

// cost is the sum of the scores of a, on m, and of the arrivals after it.
func (l *ahead) cost(p *Pool, now time.Duration, a *ask, m *machine) float64 {
	l.free = append(l.free[:0], l.loads...) // when each engine is free, in seconds from now
	cached := m.found(a)
	own := m.own(a.job.Request.PromptTokens, cached)
	l.free[m.index] += own
	sum := m.backlog(now, a, cached) + l.factor*own
	for k := l.arrivals; k < l.entered; k++ {
		r := &l.requests[k]
		at := (r.At - now).Seconds()
		shared := common(a.job.Request, r)
		best, least, end := -1, math.Inf(1), 0.0 // end is its time to first token
		for i, o := range p.machines {
			hit := l.hits[k%lookahead][i]
			if o == m {
				hit = max(hit, min(shared, o.most(r.PromptTokens)))
			}
			wait := max(0, l.free[i]-at)
			own := o.own(r.PromptTokens, hit)
			if !o.fifo && wait == 0 {
				wait = o.step()
			}
			if wait+l.factor*own < least {
				best, least, end = i, wait+l.factor*own, wait+own
			}
		}
		sum += least
		l.free[best] = at + end
	}
	return sum
}

package route

import (
	"math"
	"slices"
	"time"
)

// Holder is implemented by strategies that need not send a request on at once. While the deployment that is best for it is not
// ready to begin, the request is held here instead of in the line there: whoever becomes ready takes the shortest prompt of those it
// is best for, and what was learned meanwhile counts. Requests that have waited long go first, shorter or not.
type Holder interface {
	// Holds reports whether requests are held, with forecasts as good as these. Called with the Router's lock held.
	Holds(o *Outlook) bool
}

const (
	// holdPrompts is how many mean prompts may be before a deployment that is ready, and holdTokens how many tokens of prompts at any
	// rate: the budget of a step is 8,192 tokens in many installations of vLLM and SGLang, and a step that is not full is wasted.
	holdPrompts = 1.0
	holdTokens  = 8192
	// holdAge is how many seconds of a prompt each second of waiting makes up for. Less is better for the mean, more for the slowest.
	holdAge  = 0.3
	holdMost = 4096 // requests held for a model; more go on at once
	// holdLook is how many forecasts are made for those who wait longest, each time a deployment becomes ready, for holdLeast of them at
	// the least; and once more as many for others who waited for one that is ready.
	holdLook  = 1024
	holdLeast = 8
	holdStale = 100 * time.Millisecond // what the index said of a prompt is asked again after that
)

// ready reports whether a deployment would begin with a prompt soon. Who has none of ours before it always is: nothing would say
// when that changes.
func (n *node) ready(now time.Time, p *pool) bool {
	switch t := n.memory.tokens; {
	case n.line.waiting == 0:
		return true
	case t > 0 && n.tokens >= t: // no room in its cache before an answer ends
		return false
	case n.ahead < holdTokens:
		return true
	}
	return n.line.ahead(now)*n.line.part() <= holdPrompts*p.stats.outlook.prefill.value
}

// holds reports whether a query that m is best for had better be held, now that r.round is about it.
func (r *Router) holds(now time.Time, p *pool, q *Query, m *member) bool {
	return p.holder != nil && q.Beside == nil && !q.released && len(r.held[q.Model]) < holdMost && !m.node.ready(now, p) && p.holder.Holds(&r.round.Outlook)
}

// hold makes a Ticket for a query that is held.
func (r *Router) hold(now time.Time, q Query, wakeUp func()) *Ticket {
	t := &Ticket{router: r, query: q, wake: wakeUp, held: true, since: now, matched: now, best: q.Held.best}
	q.Held.best, t.query.Held = nil, nil // what is recorded must not keep a node
	r.held[q.Model] = append(r.held[q.Model], t)
	return t
}

// letGo takes the Ticket out of those that are held.
func (r *Router) letGo(t *Ticket) {
	m := t.query.Model
	t.held = false
	if r.held[m] = slices.DeleteFunc(r.held[m], func(o *Ticket) bool { return o == t }); len(r.held[m]) == 0 {
		delete(r.held, m)
	}
}

// release sends on what was held for deployments that are ready now. Callers hold mu and wake the result after unlocking.
func (r *Router) release(now time.Time, model string) (woken []*Ticket) {
	for len(r.held[model]) > 0 {
		p := r.pools[model]
		if p != nil && !slices.ContainsFunc(p.members, func(m member) bool { return m.node.ready(now, p) }) {
			break
		}
		t := r.next(now, p, r.held[model])
		if t == nil {
			break
		}
		r.letGo(t)
		t.query.released = true
		if t.lease, t.refusal = r.choose(now, t.query, r.claims()); t.lease != nil {
			r.remember(t.lease)
		}
		woken = append(woken, t)
	}
	return woken
}

// claims is the sweep whose claims count.
func (r *Router) claims() uint64 {
	if len(r.queues) == 0 {
		return 0
	}
	return r.sweeps
}

// next returns who is to go first of those for whom a deployment is ready, or whom nobody can serve any more; nil if there is none.
func (r *Router) next(now time.Time, p *pool, held []*Ticket) *Ticket {
	if p == nil {
		return held[0]
	}
	var first *Ticket
	least := math.Inf(1)
	look := max(holdLook/max(len(p.members), 1), holdLeast)
	others := look
	for k, t := range held {
		if k >= look {
			if !t.best.ready(now, p) {
				continue
			}
			if others--; others < 0 {
				break
			}
		}
		q := &t.query
		if now.Sub(t.matched) > holdStale {
			t.matched = now
			r.match(q, q.matches)
		}
		prompt, output := p.stats.promptTokens(q.Facts), p.stats.outputTokens(q.Facts)
		r.sift(now, p, q, prompt+output, r.claims())
		ahead := r.ahead(now, p)
		r.list(now, p)
		if len(r.eligible) == 0 {
			if len(r.full) == 0 {
				return t
			}
			continue
		}
		i, _ := r.rank(now, p, q, prompt, output, ahead, false)
		t.best = r.eligible[i].node
		if ahead == nil && !t.best.ready(now, p) && p.holder != nil && p.holder.Holds(&r.round.Outlook) {
			continue
		}
		if key := r.candidates[i].Forecast.Prefill - holdAge*now.Sub(t.since).Seconds(); key < least {
			first, least = t, key
		}
	}
	return first
}

// releaseAll does so for all models.
func (r *Router) releaseAll(now time.Time) (woken []*Ticket) {
	for model := range r.held {
		woken = append(woken, r.release(now, model)...)
	}
	return woken
}

// wakeHeld notes when deployments become ready by time alone.
func (r *Router) wakeHeld(now time.Time) {
	for model := range r.held {
		if p := r.pools[model]; p != nil {
			for i := range p.members {
				line := &p.members[i].node.line
				if s := line.ahead(now)*line.part() - holdPrompts*p.stats.outlook.prefill.value; s > 0 {
					r.wakeIn(now, time.Duration(s*float64(time.Second))+time.Millisecond) // surely not before
				}
			}
		}
	}
}

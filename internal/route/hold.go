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
	// Before a deployment that is ready may be holdPrompts mean prompts, so that the next one is there when it is done with them, and at any rate
	// holdSteps times what a prompt takes beside the work of its tokens: engines that batch spend that once for all prompts of a step.
	holdPrompts = 0.2
	holdSteps   = 8.0
	// Who is held goes first at the latest after holdLines times the longest line of late and holdOwn times the own prompt; a prompt counts as
	// the shorter the more of that is over. More is better for the mean, less for the slowest.
	holdLines = 1.5
	holdOwn   = 3.0
	lineFades = 60.0 // seconds in which the longest line fades to a third
	holdMost  = 4096 // requests held for a model, at most as many as may wait; more go on at once
	// holdLook is how many forecasts are made for those who wait longest, each time a deployment becomes ready, for holdLeast of them at
	// the least; and once more as many for others who waited for one that is ready.
	holdLook   = 1024
	holdLeast  = 2
	holdStale  = 100 * time.Millisecond // what the index said of a prompt is asked again after that
	oursMemory = 8                      // signals over which hint.ours is a mean
	mostOfOurs = 0.75                   // that one engine tells of; two that share an address tell of a half each
	holdPause  = 10 * time.Millisecond  // between looks at who is held while the same deployments are ready, which none of them wanted
)

// heldLine is the line that those who are held for a model would stand in, if they went in order of arrival.
type heldLine struct {
	longest float64 // seconds until its end, fading
	at      time.Time
}

// note takes how long the line is, in seconds.
func (l *heldLine) note(now time.Time, seconds float64) {
	if age := now.Sub(l.at).Seconds(); age > 0 {
		l.longest *= math.Exp(-age / lineFades)
		l.at = now
	}
	l.longest = max(l.longest, seconds)
}

// key tells who of those that are held goes first, the one with the least: the shorter of prompts (in seconds), and from when its patience
// is over the one for which it is so longest.
func (l *heldLine) key(prompt, waited float64) float64 {
	patience := holdLines*l.longest + holdOwn*prompt
	if waited >= patience {
		return patience - waited
	}
	return prompt * (1 - waited/patience)
}

// look tells of when it was last looked who of those that are held may go.
type look struct {
	at    time.Time
	ready uint64 // a sum that tells who was ready then
}

// oneEngine reports whether it is known that what is sent there is in one engine's line: it tells of as many requests as we have there. From
// times alone that cannot be known: a hundred engines behind one address, or a provider, answer as one does that is a hundred times faster.
func (h *hint) oneEngine(now time.Time) bool {
	return h != nil && !h.ignored && h.ours.n > 0 && h.ours.value >= mostOfOurs && now.Sub(h.told.At) <= signalGone
}

// ready reports whether a deployment would begin with a prompt soon. Who has none of ours before it always is: nothing would say
// when that changes. So is who may have several engines: holding would leave all but one of them idle.
func (n *node) ready(now time.Time, p *pool) bool {
	switch t := n.memory.tokens; {
	case n.line.waiting == 0 || !n.hint.oneEngine(now):
		return true
	case t > 0 && n.held >= t: // no room in its cache before an answer ends
		return false
	}
	return n.tooLong(now, p) <= 0
}

// tooLong is how many seconds of prompts a deployment has before it above those with which it is ready.
func (n *node) tooLong(now time.Time, p *pool) float64 {
	n.speed.begin(now, prefill, &p.stats.speed)
	step := featuresOf(0, 0, max(0, n.running-n.line.waiting))
	return n.line.ahead(now)*n.line.part() - max(holdPrompts*p.stats.outlook.prefill.value, holdSteps*n.speed.of(now, &step))
}

// holds reports whether a query that m is best for had better be held, now that r.round is about it.
func (r *Router) holds(now time.Time, p *pool, q *Query, m *member) bool {
	most := holdMost
	if r.maxWaiting > 0 {
		most = min(most, r.maxWaiting)
	}
	return p.holder != nil && r.home.By != byAnswer && q.Beside == nil && !q.released && len(r.held[q.Model]) < most && r.better(now, p, m)
}

// better reports whether it is better to wait for m, which is best for the request that r.round is about: it is not ready, and no other
// may have several engines, so that its line may be none.
func (r *Router) better(now time.Time, p *pool, m *member) bool {
	return !m.node.ready(now, p) && p.holder.Holds(&r.round.Outlook) &&
		!slices.ContainsFunc(r.eligible, func(o *member) bool { return o.node.line.waiting > 0 && !o.node.hint.oneEngine(now) })
}

// hold makes a Ticket for a query that is held.
func (r *Router) hold(now time.Time, q Query, wakeUp func()) *Ticket {
	r.seq++
	t := &Ticket{router: r, query: q, wake: wakeUp, seq: r.seq, since: now, best: q.Held.best}
	q.Held.best, t.query.Held = nil, nil // what is recorded must not keep a node
	r.keepHeld(now, t)
	return t
}

// keepHeld puts the Ticket behind those that are held.
func (r *Router) keepHeld(now time.Time, t *Ticket) {
	t.held, t.matched = true, now
	r.held[t.query.Model] = append(r.held[t.query.Model], t)
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
		if p != nil && !p.lookWorthwhile(now, &r.health) {
			break
		}
		t := r.next(now, p, r.held[model])
		if t == nil {
			break
		}
		if p != nil {
			p.look = look{} // others may go there too
		}
		r.letGo(t)
		t.query.released = true
		if t.lease, t.refusal = r.choose(now, t.query, r.claims(t)); t.lease != nil {
			r.remember(t.lease)
		}
		woken = append(woken, t)
	}
	return woken
}

// lookWorthwhile reports whether some of who is held may go: somebody is ready, others than a moment ago, or nobody is left to wait for.
func (p *pool) lookWorthwhile(now time.Time, h *Health) bool {
	panicking, used, ready := p.panicking(now, h), false, uint64(0)
	for i := range p.members {
		m := &p.members[i]
		if m.dep.Weight == 0 || m.node.unwell(now, panicking).cut != CutNone {
			continue
		}
		used = true
		if m.node.ready(now, p) {
			ready += (uint64(i) + 1) * 0x9e3779b97f4a7c15
		}
	}
	if !used {
		return true
	}
	if age := now.Sub(p.look.at); ready == 0 || ready == p.look.ready && age >= 0 && age < holdPause {
		return false
	}
	p.look = look{now, ready}
	return true
}

// claims is the sweep whose claims count for a held request: those of who came before it.
func (r *Router) claims(t *Ticket) uint64 {
	for _, q := range r.queues {
		if q.waiting.Front().Value.(*Ticket).seq < t.seq {
			return r.sweeps
		}
	}
	return 0
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
	line := &p.stats.held
	line.note(now, float64(len(held))*p.stats.outlook.prefill.value/float64(max(len(p.members), 1)))
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
		r.sift(now, p, q, prompt+output, r.claims(t))
		ahead := r.ahead(now, p)
		r.list(now, p)
		t.room = time.Time{}
		if len(r.eligible) == 0 {
			if len(r.full) == 0 {
				return t
			}
			if r.soonest > 0 {
				t.room = now.Add(r.soonest)
			}
			continue
		}
		i, _ := r.rank(now, p, q, prompt, output, ahead, false)
		t.best = r.eligible[i].node
		if ahead == nil && p.holder != nil && r.better(now, p, r.eligible[i]) {
			continue
		}
		if key := line.key(r.candidates[i].Forecast.Prefill, now.Sub(t.since).Seconds()); key < least {
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

// wakeHeld notes when held requests may go by time alone: a line has drained, or a limit per minute has room.
func (r *Router) wakeHeld(now time.Time) {
	for model, held := range r.held {
		if p := r.pools[model]; p != nil {
			for i := range p.members {
				if s := p.members[i].node.tooLong(now, p); s > 0 {
					r.wakeIn(now, max(time.Duration(s*float64(time.Second)), holdPause)+time.Millisecond) // surely not before
				}
			}
		}
		for _, t := range held {
			r.wakeIn(now, t.room.Sub(now))
		}
	}
}

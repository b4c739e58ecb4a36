package route

import (
	"container/list"
	"time"
)

// lookPast is how many waiters of one model a sweep looks past when the first cannot be served yet.
const lookPast = 16

// Ticket is a place in the wait queue. Every Ticket must be ended: by taking its Result or by Cancel.
type Ticket struct {
	router  *Router
	query   Query
	wake    func()
	element *list.Element // in queue, nil once resolved
	seq     uint64
	lease   *Lease
	refusal *Refusal
	taken   bool
}

// queue holds the waiters of one model in order of arrival. Guarded by Router.mu.
type queue struct {
	waiting list.List // of *Ticket
}

// Wait puts the query in the queue. wake is called once, without any lock, when the Ticket has a Result;
// that may be before Wait returns. A full queue is a Refusal.
func (r *Router) Wait(now time.Time, q Query, wakeUp func()) (*Ticket, *Refusal) {
	r.mu.Lock()
	queued := r.queues[q.Model]
	if queued == nil {
		queued = &queue{}
		r.queues[q.Model] = queued
	}
	if r.maxWaiting > 0 && queued.waiting.Len() >= r.maxWaiting {
		r.mu.Unlock()
		return nil, &Refusal{Kind: QueueFull, Decision: &Decision{At: now, Epoch: r.epoch, Seed: q.Facts.Seed, Draw: q.Draw, Model: q.Model}}
	}
	r.seq++
	t := &Ticket{router: r, query: q, wake: wakeUp, seq: r.seq}
	t.element = queued.waiting.PushBack(t)
	r.waiters++
	woken := r.sweep(now)
	r.mu.Unlock()
	wake(woken)
	return t, nil
}

// Result takes what the Ticket came to: a Lease, a Refusal, or neither while it still waits. A Lease that
// was taken is the caller's to end.
func (t *Ticket) Result() (*Lease, *Refusal) {
	t.router.mu.Lock()
	defer t.router.mu.Unlock()
	if t.lease != nil || t.refusal != nil {
		t.taken = true
	}
	return t.lease, t.refusal
}

// Cancel gives the place up. If a lease was granted meanwhile and not taken, it is given back unused.
func (t *Ticket) Cancel(now time.Time) {
	r := t.router
	r.mu.Lock()
	if t.element != nil {
		r.drop(t)
		woken := r.sweep(now) // those behind it may have waited for it
		r.mu.Unlock()
		wake(woken)
		return
	}
	lease := t.lease
	if t.taken {
		lease = nil
	}
	t.taken = true
	r.mu.Unlock()
	if lease != nil {
		lease.Done(now, Outcome{Verdict: NotDeploymentFault, Class: "cancelled"})
	}
}

func (r *Router) drop(t *Ticket) {
	q := r.queues[t.query.Model]
	q.waiting.Remove(t.element)
	t.element = nil
	r.waiters--
	if q.waiting.Len() == 0 {
		delete(r.queues, t.query.Model)
	}
}

func (r *Router) resolve(t *Ticket, l *Lease, f *Refusal) {
	r.drop(t)
	t.lease, t.refusal = l, f
}

// sweep serves waiters in order of arrival over all models, as far as there is room, and refuses those who
// can no longer be served. Room that a waiter is entitled to is not given to one who came later, but those
// who wait for other rooms are not held up. Callers hold mu and wake the result after unlocking.
func (r *Router) sweep(now time.Time) (woken []*Ticket) {
	if r.waiters == 0 {
		return nil
	}
	r.sweeps++
	cursors := make([]cursor, 0, len(r.queues))
	for _, q := range r.queues {
		cursors = append(cursors, cursor{at: q.waiting.Front()})
	}
	for {
		first := -1
		for i := range cursors {
			c := &cursors[i]
			if c.at != nil && (first < 0 || c.ticket().seq < cursors[first].ticket().seq) {
				first = i
			}
		}
		if first < 0 {
			return woken
		}
		c := &cursors[first]
		t := c.ticket()
		c.at = c.at.Next()
		lease, refusal := r.choose(now, t.query, r.sweeps)
		switch {
		case lease != nil || refusal.Kind != Saturated:
			r.resolve(t, lease, refusal)
			woken = append(woken, t)
		default:
			r.claim()
			if c.skipped++; c.skipped > lookPast {
				c.at = nil
			}
		}
	}
}

// cursor walks one model's queue during a sweep.
type cursor struct {
	at      *list.Element
	skipped int
}

func (c *cursor) ticket() *Ticket { return c.at.Value.(*Ticket) }

// claim reserves, for this sweep, the next room at every unit whose limit kept a waiter out.
func (r *Router) claim() {
	for _, u := range r.full {
		u.blocked = r.sweeps
	}
}

// Tick serves waiters whose chance comes by time alone (a breaker's time is over) and returns when to call
// again, the zero time if there is no need. It may be called at any time.
func (r *Router) Tick(now time.Time) time.Time {
	r.mu.Lock()
	woken := r.sweep(now)
	var next time.Time
	if r.waiters > 0 {
		for _, u := range r.units {
			if b := &u.breaker; b.tripped && b.until.After(now) && (next.IsZero() || b.until.Before(next)) {
				next = b.until
			}
		}
	}
	r.mu.Unlock()
	wake(woken)
	return next
}

func wake(tickets []*Ticket) {
	for _, t := range tickets {
		t.wake()
	}
}

package route

import (
	"container/list"
	"slices"
	"time"
)

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

// Wait puts the query in the queue. wakeUp is called once, without any lock, when the Ticket has a Result;
// that may be before Wait returns, and while Cancel runs. A full queue is a Refusal.
func (r *Router) Wait(now time.Time, q Query, wakeUp func()) (*Ticket, *Refusal) {
	t, refusal, woken := r.enqueue(now, q, wakeUp)
	wake(woken)
	return t, refusal
}

func (r *Router) enqueue(now time.Time, q Query, wakeUp func()) (*Ticket, *Refusal, []*Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	queued := r.queues[q.Model]
	if queued == nil {
		queued = &queue{}
		r.queues[q.Model] = queued
	}
	if r.maxWaiting > 0 && queued.waiting.Len() >= r.maxWaiting {
		return nil, r.bare(now, &q, QueueFull), nil
	}
	r.seq++
	t := &Ticket{router: r, query: q, wake: wakeUp, seq: r.seq}
	t.element = queued.waiting.PushBack(t)
	r.waiters++
	return t, nil, r.sweep(now)
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

// Cancel gives the place up; after it there is no Result. If a lease was granted meanwhile and not taken, it
// is given back unused.
func (t *Ticket) Cancel(now time.Time) {
	lease, woken := t.withdraw(now)
	wake(woken)
	if lease != nil {
		lease.Done(now, Outcome{Verdict: NotDeploymentFault, Class: "cancelled"})
	}
}

func (t *Ticket) withdraw(now time.Time) (unused *Lease, woken []*Ticket) {
	r := t.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.element != nil {
		r.drop(t)
		return nil, r.sweep(now) // those behind it may have waited for it
	}
	if t.taken {
		return nil, nil
	}
	unused, t.lease, t.refusal = t.lease, nil, nil
	return unused, nil
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
		c := earliest(cursors)
		if c == nil {
			return woken
		}
		t := c.ticket()
		c.at = c.at.Next()
		if c.hopeless(&t.query) {
			continue
		}
		if r.mustWait(now, &t.query) {
			r.claim()
			c.passed(&t.query)
			continue
		}
		lease, refusal := r.choose(now, t.query, r.sweeps)
		r.resolve(t, lease, refusal)
		woken = append(woken, t)
	}
}

// claim reserves, for this sweep, the next room at every unit whose limit kept a waiter out.
func (r *Router) claim() {
	for _, u := range r.full {
		u.blocked = r.sweeps
	}
}

// cursor walks one model's queue during a sweep.
type cursor struct {
	at    *list.Element
	ahead []*Query // waiters passed over, who have claimed every room that they could use
}

func (c *cursor) ticket() *Ticket { return c.at.Value.(*Ticket) }

// earliest returns the cursor at the waiter who came first, nil when all are through.
func earliest(cursors []cursor) (first *cursor) {
	for i := range cursors {
		if c := &cursors[i]; c.at != nil && (first == nil || c.ticket().seq < first.ticket().seq) {
			first = c
		}
	}
	return first
}

// passed notes a waiter who must go on waiting. Behind one who may go anywhere, nobody has a chance.
func (c *cursor) passed(q *Query) {
	if q.anywhere() {
		c.at = nil
		return
	}
	c.ahead = append(c.ahead, q)
}

// hopeless reports whether q could only use rooms claimed by somebody ahead. It spares a queue of pinned
// requests from being ranked one by one.
func (c *cursor) hopeless(q *Query) bool {
	return slices.ContainsFunc(c.ahead, func(a *Query) bool {
		return a.Facts.Pin == q.Facts.Pin &&
			slices.Equal(a.Facts.ExcludeNames, q.Facts.ExcludeNames) && slices.Equal(a.Tried, q.Tried)
	})
}

func (q *Query) anywhere() bool {
	return q.Facts.Pin == "" && len(q.Facts.ExcludeNames) == 0 && len(q.Tried) == 0
}

// Tick serves waiters whose chance comes by time alone (a breaker's time is over) and returns when to call
// again, the zero time if there is no need. It may be called at any time.
func (r *Router) Tick(now time.Time) time.Time {
	next, woken := r.tick(now)
	wake(woken)
	return next
}

func (r *Router) tick(now time.Time) (next time.Time, woken []*Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	woken = r.sweep(now)
	if r.waiters == 0 {
		return next, woken
	}
	for _, u := range r.units {
		if b := &u.breaker; b.state(now) == Open && (next.IsZero() || b.until.Before(next)) {
			next = b.until
		}
	}
	return next, woken
}

func wake(tickets []*Ticket) {
	for _, t := range tickets {
		t.wake()
	}
}

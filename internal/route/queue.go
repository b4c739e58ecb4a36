package route

import (
	"container/list"
	"strings"
	"time"
)

// Ticket is a place in the wait queue. Every Ticket must be ended: by taking its Result or by Cancel.
type Ticket struct {
	router  *Router
	query   Query
	wake    func()
	queue   *queue
	element *list.Element // in queue.waiting, nil once resolved
	seq     uint64
	lease   *Lease
	refusal *Refusal
	taken   bool

	since   time.Time // when it began to wait
	held    bool      // it is in Router.held, not in a queue
	matched time.Time // when the index was last asked
	best    *node     // where it was to go then
	room    time.Time // when a limit per minute that keeps it here has room, zero = there is none
}

// queue holds waiters who could be served by the same deployments, in order of arrival. While the first of
// them has no room, the others have none. Guarded by Router.mu.
type queue struct {
	class   class
	waiting list.List // of *Ticket
}

// class is what decides which deployments may serve a query.
type class struct{ model, pin, excluded, tried, beside string }

func (q *Query) class() class {
	list := func(names []string) string { return strings.Join(names, "\n") }
	c := class{model: q.Model, pin: q.Facts.Pin, excluded: list(q.Facts.ExcludeNames), tried: list(q.Tried)}
	if q.Beside != nil {
		c.beside = q.Beside.ID
	}
	return c
}

// Wait puts the query in the queue. wakeUp is called once, without any lock, when the Ticket has a Result;
// that may be before Wait returns, and while Cancel runs. A Refusal says that the queue is full or too slow.
func (r *Router) Wait(now time.Time, q Query, wakeUp func()) (*Ticket, *Refusal) {
	r.match(&q, nil)
	t, refusal, woken := r.enqueue(now, q, wakeUp)
	wake(woken)
	return t, refusal
}

func (r *Router) enqueue(now time.Time, q Query, wakeUp func()) (*Ticket, *Refusal, []*Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Held != nil {
		return r.hold(now, q, wakeUp), nil, nil
	}
	if refusal := r.turnAway(now, &q); refusal != nil {
		return nil, refusal, nil
	}
	c := q.class()
	if r.queues[c] == nil {
		r.queues[c] = &queue{class: c}
	}
	r.seq++
	t := &Ticket{router: r, query: q, wake: wakeUp, queue: r.queues[c], seq: r.seq, since: now}
	t.element = t.queue.waiting.PushBack(t)
	r.waiting[q.Model]++
	if !q.Until.IsZero() {
		r.timely++
	}
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
		lease.unused = true
		lease.Done(now, Outcome{Verdict: NotDeploymentFault, Class: "cancelled"})
	}
}

func (t *Ticket) withdraw(now time.Time) (unused *Lease, woken []*Ticket) {
	r := t.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.held {
		r.letGo(t)
		return nil, nil
	}
	if t.element != nil {
		r.drop(now, t)
		return nil, r.sweep(now) // those behind it may have waited for it
	}
	if t.taken {
		return nil, nil
	}
	unused, t.lease, t.refusal = t.lease, nil, nil
	return unused, nil
}

func (r *Router) drop(now time.Time, t *Ticket) {
	m := t.query.Model
	if o := r.overloadOf(m); o != nil {
		o.advance(now, r.waiting[m])
	}
	t.queue.waiting.Remove(t.element)
	t.element = nil
	if t.queue.waiting.Len() == 0 {
		delete(r.queues, t.queue.class)
	}
	if !t.query.Until.IsZero() {
		r.timely--
	}
	if r.waiting[m]--; r.waiting[m] == 0 {
		delete(r.waiting, m)
	}
}

// sweep serves waiters in order of arrival over all queues, as far as there is room, and refuses those who
// can no longer be served. Room that a waiter is entitled to is not given to one who came later, but those
// who wait for other rooms are not held up. Callers hold mu and wake the result after unlocking.
func (r *Router) sweep(now time.Time) (woken []*Ticket) {
	woken = r.releaseAll(now) // mostly they came when there was room, so before those who wait for it
	return append(woken, r.serve(now)...)
}

// serve is sweep for those who wait for room.
func (r *Router) serve(now time.Time) (woken []*Ticket) {
	if len(r.queues) == 0 {
		return nil
	}
	r.sweeps++
	r.due = time.Time{}
	woken = r.review(now)
	fronts := make([]*list.Element, 0, len(r.queues))
	for _, q := range r.queues {
		fronts = append(fronts, q.waiting.Front())
	}
	for {
		first := earliest(fronts)
		if first < 0 {
			return woken
		}
		t := fronts[first].Value.(*Ticket)
		if r.mustWait(now, &t.query) {
			r.claim()
			r.wakeIn(now, r.soonest)
			fronts[first] = nil
			continue
		}
		fronts[first] = fronts[first].Next()
		r.drop(now, t)
		t.lease, t.refusal = r.choose(now, t.query, r.sweeps)
		if t.refusal != nil && t.refusal.Kind == Held { // there is room, but others are before it
			t.best, t.refusal = t.refusal.best, nil
			r.keepHeld(now, t)
			continue
		}
		if t.lease != nil {
			t.lease.pool.stats.overload.drain.served++
			r.remember(t.lease)
		}
		woken = append(woken, t)
	}
}

// earliest returns the index of the waiter who came first, -1 if there is none.
func earliest(fronts []*list.Element) int {
	first, seq := -1, uint64(0)
	for i, f := range fronts {
		if f == nil {
			continue
		}
		if s := f.Value.(*Ticket).seq; first < 0 || s < seq {
			first, seq = i, s
		}
	}
	return first
}

// wakeIn notes that waiters are to be looked at again after d, if d is not 0.
func (r *Router) wakeIn(now time.Time, d time.Duration) {
	if at := now.Add(d); d > 0 && (r.due.IsZero() || at.Before(r.due)) {
		r.due = at
	}
}

// claim reserves, for this sweep, the next room at every unit whose limit kept a waiter out.
func (r *Router) claim() {
	for _, u := range r.full {
		u.blocked = r.sweeps
	}
}

// Tick serves waiters whose chance comes by time alone (a breaker's time is over, a limit per minute has room) and returns when to call
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
	if len(r.queues) == 0 {
		r.due = time.Time{}
	}
	r.wakeHeld(now)
	if len(r.queues)+len(r.held) > 0 {
		for _, u := range r.units {
			r.wakeIn(now, u.breaker.left(now))
			r.wakeIn(now, u.breaker.trialLeft(now))
		}
	}
	return r.due, woken
}

func wake(tickets []*Ticket) {
	for _, t := range tickets {
		t.wake()
	}
}

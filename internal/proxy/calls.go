package proxy

import (
	"context"
	"sync"
	"time"

	"evenkeel/internal/exchange"
)

// lastsFrom is from when on a request counts as one that lasts: a shutdown can reach it, and somebody looks whether
// its client leaves. Most requests that cost little have ended by then, and need not pay for that.
const lastsFrom = 100 * time.Millisecond

// calls are those that last, and those that have ended, to be used again.
type calls struct {
	spare sync.Pool // of *call

	mu    sync.Mutex
	first *call
	down  bool
}

// add takes a call in until remove. It reports whether a shutdown has begun.
func (s *calls) add(c *call) (down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.next = s.first; c.next != nil {
		c.next.prev = c
	}
	s.first = c
	return s.down
}

// remove lets a call go that was added.
func (s *calls) remove(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.next != nil {
		c.next.prev = c.prev
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		s.first = c.next
	}
	c.next, c.prev = nil, nil
}

// shutDown tells all calls, and those to come, that the process can wait no longer. It does not wait for them.
func (s *calls) shutDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for c := s.first; c != nil; c = c.next {
		go c.report(exchange.Event{Kind: exchange.Shutdown}) // ends as soon as the call can take it; one may be writing to a slow client
	}
}

// lasting is what a call has once it lasts.
type lasting struct {
	from   time.Time // when the rest is to be done; zero: it is
	listed bool      // in Proxy.calls
	token  uint64    // of the watch over the client in Proxy.leaves, 0 if there is none
	stop   func() bool
}

// lasts sees to a call that lasts, if it does, and reports whether it must be told that the process ends. The client
// is watched only once its body was read. Callers hold mu.
func (c *call) lasts() (down bool) {
	l := &c.lasting
	if c.closed || l.from.IsZero() || time.Now().Before(l.from) {
		return false
	}
	if !l.listed {
		l.listed = true
		down = c.p.calls.add(c)
	}
	if !c.begun {
		return down
	}
	l.from = time.Time{}
	if epoch := c.epoch; c.client != nil {
		l.token = c.p.leaves.add(c.client, c, epoch)
	} else {
		l.stop = context.AfterFunc(c.r.Context(), func() { c.left(epoch) })
	}
	return down
}

// watch makes a call last from now on: it waits, and what it waits for must not be done for a client that has left by then.
func (c *call) watch() {
	c.mu.Lock()
	if l := &c.lasting; !l.from.IsZero() {
		l.from = time.Now()
	}
	down := c.lasts()
	c.mu.Unlock()
	if down {
		c.report(exchange.Event{Kind: exchange.Shutdown})
	}
}

// unlast undoes lasts. Callers hold mu.
func (c *call) unlast() {
	l := &c.lasting
	if l.token != 0 {
		c.p.leaves.remove(c.client, l.token)
	}
	if l.stop != nil {
		l.stop()
	}
	if l.listed {
		c.p.calls.remove(c)
	}
}

// left says that the client of the request with that number has left. It may come when the request is over.
func (c *call) left(epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == epoch {
		c.reportLocked(exchange.Event{Kind: exchange.Gone})
	}
}

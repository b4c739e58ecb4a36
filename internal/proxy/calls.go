package proxy

import (
	"sync"

	"evenkeel/internal/exchange"
)

// calls are those that run, so that a shutdown can reach them, and those that have ended, to be used again. A list
// of our own costs a request less than to derive its context from one that all share.
type calls struct {
	spare sync.Pool // of *call

	mu    sync.Mutex
	first *call
	down  bool
}

// add takes a call in until remove. During a shutdown it is told at once.
func (s *calls) add(c *call) {
	s.mu.Lock()
	if c.next = s.first; c.next != nil {
		c.next.prev = c
	}
	s.first = c
	down := s.down
	s.mu.Unlock()
	if down {
		c.report(exchange.Shutdown)
	}
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
		go c.report(exchange.Shutdown) // ends as soon as the call can take it; one may be writing to a slow client
	}
}

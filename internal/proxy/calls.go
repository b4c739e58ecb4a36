package proxy

import (
	"sync"

	"evenkeel/internal/exchange"
)

// calls are those that run, so that a shutdown can reach them. A set of our own costs a request less than to
// derive its context from one that all share.
type calls struct {
	mu      sync.Mutex
	running map[*call]struct{}
	down    bool
}

// add takes a call in until the returned function is called. During a shutdown it is told at once.
func (s *calls) add(c *call) (remove func()) {
	s.mu.Lock()
	if s.running == nil {
		s.running = map[*call]struct{}{}
	}
	s.running[c] = struct{}{}
	down := s.down
	s.mu.Unlock()
	if down {
		c.report(exchange.Shutdown)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, c)
	}
}

// shutDown tells all calls, and those to come, that the process can wait no longer. It does not wait for them.
func (s *calls) shutDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for c := range s.running {
		go c.report(exchange.Shutdown) // ends as soon as the call can take it; one may be writing to a slow client
	}
}

package upstream

import "sync"

// Stop ends a call from another goroutine, at once and whatever it is at: waiting for a connection, dialling,
// writing, or reading the answer's body. It costs nothing per call, unlike a context. The zero value is ready;
// it may be a field of something else but must not be copied once used. One Stop serves one call at a time.
// Safe for concurrent use.
type Stop struct {
	mu        sync.Mutex
	cancelled bool
	running   interruptible // what the call is at; nil if it is at nothing that lasts
}

// interruptible is something that a call waits for. interrupt returns soon, may be called once the wait is over,
// and takes no Stop's lock.
type interruptible interface{ interrupt() }

// Cancel ends the call that is running, or the one that is about to begin. Calling it again does nothing.
func (s *Stop) Cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancelled {
		return
	}
	s.cancelled = true
	if s.running != nil {
		s.running.interrupt()
	}
}

// Cancelled reports whether Cancel was called since the last Reset.
func (s *Stop) Cancelled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cancelled
}

// Reset makes s ready for another call. The call before must be over: it failed, or its answer was read to its
// end or closed.
func (s *Stop) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		panic("BUG: upstream.Stop reset while its call runs")
	}
	s.cancelled = false
}

// enter notes what the call is at now. It returns false if the call was cancelled; r is not interrupted then.
func (s *Stop) enter(r interruptible) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancelled {
		return false
	}
	s.running = r
	return true
}

// leave notes that the call is at nothing any more. It returns false if it was cancelled. Once it has returned,
// what the call was at is not interrupted.
func (s *Stop) leave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = nil
	return !s.cancelled
}

package mock

import (
	"slices"
	"sync"
)

// slots hands out the engine's places in FIFO order. Safe for concurrent use.
type slots struct {
	limit, queueLimit int // 0 = unlimited

	mu      sync.Mutex
	running int
	queue   []*waiter
}

// waiter stands in the queue. wake is called once, by another goroutine, after its turn came.
type waiter struct {
	wake    func()
	granted bool // guarded by slots.mu
}

// take gives a slot or a place in the queue (second result), or neither if the queue is full.
func (s *slots) take(wake func()) (granted bool, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit == 0 || s.running < s.limit {
		s.running++
		return true, nil
	}
	if s.queueLimit > 0 && len(s.queue) >= s.queueLimit {
		return false, nil
	}
	w = &waiter{wake: wake}
	s.queue = append(s.queue, w)
	return false, w
}

// granted reports whether w's turn came. If so, w holds a slot.
func (s *slots) granted(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.granted
}

// leave gives up w's place in the queue, or the slot if it was granted meanwhile.
func (s *slots) leave(w *waiter) {
	s.mu.Lock()
	i := slices.Index(s.queue, w)
	if i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		s.release()
	}
}

// release gives a slot back: to the first in the queue if there is one.
func (s *slots) release() {
	s.mu.Lock()
	if len(s.queue) == 0 {
		s.running--
		s.mu.Unlock()
		return
	}
	w := s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1)
	w.granted = true
	s.mu.Unlock()
	w.wake()
}

func (s *slots) load() (running, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running, len(s.queue)
}

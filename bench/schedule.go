package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// tooLate is how long after its time a request may be sent without counting as late.
const tooLate = time.Millisecond

// pool hands out the client that came back last, as pools of connections do. Safe for concurrent use.
type pool struct {
	mu   sync.Mutex
	back sync.Cond
	idle []*client // guarded by mu
}

func (p *pool) take() *client {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) == 0 {
		p.back.Wait()
	}
	c := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return c
}

func (p *pool) put(c *client) {
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
	p.back.Signal()
}

// keepRate makes requests at random times of the cell's rate, the same times for each target, whether the ones before
// are answered or not; when all clients are waiting for answers, the next request is late. It waits for all answers.
func (l *load) keepRate(ctx context.Context, next func() bool) {
	// The runtime's own timers round up to a millisecond; a thread that sleeps does not.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := &pool{}
	p.back.L = &p.mu
	var all sync.WaitGroup
	for _, c := range l.clients {
		c.due = make(chan time.Time, 1)
		p.idle = append(p.idle, c)
		all.Go(func() { // ends when due is closed
			for at := range c.due {
				if time.Since(at) > tooLate {
					c.tally.late++
				}
				c.once(ctx)
				p.put(c)
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 1))
	at := time.Now()
	for ctx.Err() == nil && next() {
		at = at.Add(time.Duration(random.ExpFloat64() / float64(l.cell.rate) * float64(time.Second)))
		for wait := time.Until(at); wait > 0; wait = time.Until(at) {
			nap(wait)
		}
		p.take().due <- at
	}
	for _, c := range l.clients {
		close(c.due)
	}
	all.Wait()
}

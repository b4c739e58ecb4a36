package upstream

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// idleTimeout is how long an unused connection is kept: shorter than the 5 s after which llama.cpp and
	// Python's servers close theirs, so that a request rarely meets a connection that is just being closed.
	idleTimeout = 4 * time.Second
	// longestIdle bounds what a server may announce instead (Keep-Alive: timeout).
	longestIdle = time.Minute
	// maxIdle bounds unused connections per endpoint.
	maxIdle = 1024
	// distrusted is for how long no connection is used again to an endpoint that has sent what nobody asked for: the next
	// time it may come a moment after the look, and be taken for the answer to another client.
	distrusted = time.Minute
)

// pool holds the HTTP/1.1 connections to one address. A request is written and its answer read by the goroutine
// that wants it: no goroutines stand between, unlike in net/http's Transport, which costs about half of a small
// request's time.
type pool struct {
	dialer      *dialer
	idleTimeout time.Duration
	most        int         // connections at one time; 0 = any number
	handOver    func(*conn) // takes a new connection that speaks HTTP/2

	mu       sync.Mutex
	open     int         // connections: idle, at work, and being made
	idle     []*conn     // the one used last at the end; none while calls wait
	waiting  list.List   // of *waiter, the one that came first at the front; none while open < most
	sweeping *time.Timer // set while there are idle connections
	trusted  time.Time   // from when on connections are kept again
}

// waiter is a call that waits for its turn.
type waiter struct {
	pool  *pool
	place *list.Element // in pool.waiting; nil once it was granted or gave up
	ready chan grant    // takes one grant without blocking
}

// grant lets a waiter go on: with a connection, with the right to make one, or because it was interrupted.
type grant struct {
	conn        *conn
	interrupted bool
}

// get returns an idle connection, which the server may have closed, or a new one. Over the cap it waits until one is
// free; whoever came first is first. It fails with errHTTP2 after a new connection turned out to speak that.
func (p *pool) get(stop *Stop, fresh bool) (*conn, error) {
	for {
		if stop.Cancelled() {
			return nil, context.Canceled
		}
		c, w := p.take()
		if w != nil {
			var err error
			if c, err = w.wait(stop); err != nil {
				return nil, err
			}
		}
		if c == nil {
			return p.dial(stop)
		}
		if !fresh && c.young() {
			return c, nil
		}
		c.end()
		if fresh && p.room() { // the one that was ended has left its place
			return p.dial(stop)
		}
	}
}

// room takes the right to make a connection, if there is one more.
func (p *pool) room() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.roomLocked()
}

func (p *pool) roomLocked() bool {
	if p.most != 0 && p.open >= p.most {
		return false
	}
	p.open++
	return true
}

// take finds an idle connection, or returns the right to make one (nil, nil), or else a place in the queue.
func (p *pool) take() (c *conn, w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		c = p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		return c, nil
	}
	if p.roomLocked() {
		return nil, nil
	}
	w = &waiter{pool: p, ready: make(chan grant, 1)}
	w.place = p.waiting.PushBack(w)
	return nil, w
}

// wait returns a connection, or nil with the right to make one.
func (w *waiter) wait(stop *Stop) (*conn, error) {
	if !stop.enter(w) {
		w.interrupt()
	}
	g := <-w.ready
	switch {
	case stop.leave() && !g.interrupted:
		return g.conn, nil
	case g.conn != nil: // both at once: the next one may have it
		w.pool.put(g.conn)
	case !g.interrupted:
		w.pool.freed()
	}
	return nil, context.Canceled
}

func (w *waiter) interrupt() {
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	if w.place != nil {
		w.granted(grant{interrupted: true})
	}
}

// granted takes w out of the queue and lets it go on. Callers hold pool.mu.
func (w *waiter) granted(g grant) {
	w.pool.waiting.Remove(w.place)
	w.place = nil
	w.ready <- g
}

// first is who waits for longest, if anybody does. Callers hold mu.
func (p *pool) first() *waiter {
	if e := p.waiting.Front(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// freed is called when a connection is no more: the next one may be made.
func (p *pool) freed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.first(); w != nil {
		w.granted(grant{})
		return
	}
	p.open--
}

func (p *pool) dial(stop *Stop) (*conn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !stop.enter(interruptFunc(cancel)) {
		p.freed()
		return nil, context.Canceled
	}
	s, secured, err := p.dialer.dial(ctx)
	if !stop.leave() {
		if err == nil {
			s.interrupt()
		}
		err = context.Canceled
	}
	if err != nil {
		p.freed()
		return nil, err
	}
	c := newConn(p, s, secured)
	if secured != nil && secured.ConnectionState().NegotiatedProtocol == "h2" {
		p.freed()
		p.handOver(c)
		return nil, errHTTP2
	}
	return c, nil
}

// add takes a connection in that another caller has made.
func (p *pool) add(c *conn) {
	p.mu.Lock()
	fits := p.most == 0 || p.open < p.most
	if fits {
		p.open++
	}
	p.mu.Unlock()
	if !fits {
		c.sock.interrupt()
		return
	}
	p.put(c)
}

// put gives a connection to who waits for one, or keeps it for later.
func (p *pool) put(c *conn) {
	c.used, c.idleSince = true, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	w, kept := p.first(), !c.idleSince.Before(p.trusted) && len(p.idle) < maxIdle
	switch {
	case w != nil && kept:
		w.granted(grant{conn: c})
		return
	case w != nil:
		c.sock.interrupt()
		w.granted(grant{})
		return
	case !kept:
		p.drop(c)
		return
	}
	p.idle = append(p.idle, c)
	if p.sweeping == nil {
		p.sweeping = time.AfterFunc(p.idleTimeout, p.sweep)
	}
}

// drop ends an idle connection. Nobody waits where one is idle. Callers hold mu.
func (p *pool) drop(c *conn) {
	c.sock.interrupt()
	p.open--
}

// sweep closes connections that were not used for long, and comes back while any are left.
func (p *pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeping == nil {
		return // closed meanwhile
	}
	kept, next := p.idle[:0], longestIdle
	for _, c := range p.idle {
		left := c.keep - time.Since(c.idleSince)
		if left <= 0 {
			p.drop(c)
			continue
		}
		kept, next = append(kept, c), min(next, left)
	}
	clear(p.idle[len(kept):])
	if p.idle = kept; len(kept) == 0 {
		p.sweeping = nil
		return
	}
	p.sweeping.Reset(next)
}

// distrust ends all idle connections, and others once they are.
func (p *pool) distrust() {
	p.closeIdle()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trusted = time.Now().Add(distrusted)
}

func (p *pool) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		p.drop(c)
	}
	p.idle = nil
	if p.sweeping != nil {
		p.sweeping.Stop()
		p.sweeping = nil
	}
}

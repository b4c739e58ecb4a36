package proxy

import (
	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// This file is about a second attempt that runs beside the first: on a goroutine of its own, which ends before the
// handler returns.

// race begins the second attempt. Callers hold mu.
func (c *call) race(l *route.Lease) {
	c.hedge = &reply{c: c, lane: exchange.Hedge, done: make(chan struct{})}
	c.hedge.prepareLocked(l)
	go c.hedge.race()
}

// race makes the attempt and reports how it ended. What it leads to is the handler's to do.
func (r *reply) race() {
	defer close(r.done)
	defer func() {
		if fault := recover(); fault != nil { // here it would end the process
			r.c.fail(fault)
		}
	}()
	r.c.report(exchange.Event{Kind: exchange.Ended, Lane: r.lane, End: r.ask()})
}

// fail hands a panic over to the handler.
func (c *call) fail(fault any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
	c.cancel()
	c.poke()
}

// stopRace ends the second attempt, if there is one, and sees to it that none begins any more.
func (c *call) stopRace() {
	c.mu.Lock()
	c.closed = true
	hedge := c.hedge
	if hedge != nil {
		hedge.cancel()
	}
	c.mu.Unlock()
	if hedge != nil {
		<-hedge.done
	}
}

// reply is the one of a lane. Callers hold mu.
func (c *call) reply(lane exchange.Lane) *reply {
	if lane == exchange.Hedge {
		return c.hedge
	}
	return &c.main
}

// rival is the reply beside r, nil if there is none. Callers hold mu.
func (c *call) rival(r *reply) *reply {
	if r == &c.main {
		return c.hedge
	}
	return &c.main
}

// unrivalled reports whether nothing beside r may still read the request. Callers hold mu.
func (c *call) unrivalled(r *reply) bool {
	other := c.rival(r)
	return other == nil || !other.running && other.res == nil
}

// relayed is the reply that the client gets or, before that is decided, the one of the main lane.
func (c *call) relayed() *reply {
	if c.hedge != nil && c.hedge.committed {
		return c.hedge
	}
	return &c.main
}

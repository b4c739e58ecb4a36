package proxy

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/upstream"
)

// statusClientGone is logged where a client left before it had a status. It is nginx's invention, and known.
const statusClientGone = 499

// call is the shell of one exchange. The handler's goroutine runs its actions; the timer, a client that
// leaves and a ticket that is granted come on other goroutines and go through mu. A call is used again for other
// requests: one of those goroutines may come late and find the next request, so what they report must not harm it.
type call struct {
	request // all that begins new with each request

	p      *Proxy
	header http.Header // what goes upstream, before credentials; not changed once an attempt has begun
	prompt *llm.Prompt
	prefix []uint64      // route.Facts.Prefix
	signal chan struct{} // something may have happened while the handler waits
	notify func()        // pokes the handler
	timer  *time.Timer   // calls fired

	next, prev *call // in Proxy.calls, guarded by its lock

	mu    sync.Mutex
	epoch uint64 // counts the requests
	x     exchange.Exchange
	own   []exchange.Action // the handler's; Dispatch and Wait are always the last of a list
	main  reply
	hedge *reply // nil unless a second attempt was made beside another one
}

// request is the part of a call that begins new with each request.
type request struct {
	g    *Generation
	w    http.ResponseWriter
	r    *http.Request
	api  llm.API
	req  llm.Request
	held requestBody
	body []byte // in held; nil once nobody needs it

	facts route.Facts
	plan  exchange.Plan

	client *clientConn // what the request came by; nil if it is another kind, which net/http watches itself
	values [12]string  // of the answer's header
	nvalue int

	ready      time.Time // the request was understood
	dispatched time.Time // the first attempt began

	// Guarded by mu.
	begun   bool // x is this request's
	stale   bool // an attempt met a stale connection
	closed  bool // the handler is done: w may no longer be used
	cut     bool // the process ends, and the exchange did not know it when it began
	armed   time.Time
	lasting lasting
	pending []exchange.Action // found by other goroutines, for the handler
	fault   any               // what another goroutine panicked with; the handler's takes it over
	front   front
}

func newCall(p *Proxy) *call {
	c := &call{p: p, header: http.Header{}, prompt: llm.NewPrompt(p.Prefixes), signal: make(chan struct{}, 1)}
	c.notify, c.main.c = c.poke, c
	c.timer = time.AfterFunc(time.Hour, c.fired)
	c.timer.Stop()
	return c
}

// begin makes a call new for a request.
func (c *call) begin(w http.ResponseWriter, r *http.Request, g *Generation, api llm.API, id, tenant string, arrived time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.g, c.w, c.r, c.api, c.client = g, w, r, api, clientOf(r) // the rest is zero
	c.set(w.Header(), headerID, id)
	c.facts.ID, c.facts.API, c.facts.Tenant, c.facts.Arrived = id, api.Name, tenant, arrived
	c.closed = false
	c.epoch++
	c.armed = arrived.Add(lastsFrom)
	c.lasting.from = c.armed
	c.timer.Reset(lastsFrom)
}

// serve runs the exchange of a request that was begun, from its body to its record.
func (c *call) serve() {
	defer c.close()
	if failure := c.held.read(c.w, c.r, &c.p.bodies, c.g); failure != nil {
		if c.wasCut() {
			failure = &llm.Error{Status: http.StatusServiceUnavailable, Code: "evenkeel_shutting_down", Message: "The balancer is shutting down."}
		}
		linger(c.w, c.r, failure.Status == http.StatusRequestEntityTooLarge || failure.Code == codeBodyMemory)
		c.p.reject(c.w, c.api, &c.facts, failure, false)
		return
	}
	c.body = c.held.bytes()
	if failure := c.understand(); failure != nil {
		c.p.reject(c.w, c.api, &c.facts, failure, false)
		return
	}
	c.header = c.g.requestHeader(c.header, c.r.Header)
	if c.start() {
		c.report(exchange.Event{Kind: exchange.Shutdown})
	}
	c.run()
}

// start makes the exchange and reports whether it must be told at once that the process ends.
func (c *call) start() (cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = time.Now()
	c.x.Reset(c.p.Router, c.p.Budget, &c.plan, &c.facts)
	c.begun = true
	return c.cut
}

// wasCut reports whether the process ended while the body was read.
func (c *call) wasCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// retire lets go of all that belongs to the request and gives the call to the next one.
func (c *call) retire() {
	c.mu.Lock()
	c.request = request{closed: true}
	c.x.Forget()
	c.main.out, c.main.ended, c.main.intake, c.hedge = upstream.Request{}, exchange.End{}, intake{}, nil
	clear(c.own[:cap(c.own)])
	clear(c.header)
	c.mu.Unlock()
	c.p.calls.spare.Put(c)
}

// run performs actions until the exchange is over.
func (c *call) run() {
	actions := c.tell(exchange.Event{Kind: exchange.Started}) // before anybody can report that it is over
	for {
		var follow []exchange.Action
		for _, a := range actions {
			switch a.Kind {
			case exchange.Dispatch:
				end := c.main.attempt(a.Lease)
				follow = c.tell(exchange.Event{Kind: exchange.Ended, Lane: exchange.Main, End: end})
			case exchange.Wait: // below
				c.watch()
			case exchange.Commit, exchange.Cancel:
				c.perform(a)
			case exchange.Fail:
				c.relayed().fail(a.Failure)
				return
			case exchange.Finish:
				c.relayed().finish()
				return
			}
		}
		if actions = follow; len(actions) == 0 {
			actions = c.wait()
		}
		if len(actions) == 0 {
			return
		}
	}
}

// tell reports an event from the handler's goroutine. The result is valid until it does so again.
func (c *call) tell(e exchange.Event) []exchange.Action {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = append(c.own[:0], c.tellLocked(e)...)
	return c.own
}

// tellLocked reports an event. The result is valid while mu is held.
func (c *call) tellLocked(e exchange.Event) []exchange.Action {
	if c.fault != nil {
		panic(c.fault)
	}
	if e.Kind == exchange.Ended {
		r := c.reply(e.Lane)
		r.running, r.stopped = false, false // what is cancelled from here on is the next attempt
		if other := c.rival(r); other != nil && other.committed {
			r.discard()
		}
	}
	now := time.Now()
	actions := c.x.Next(now, e)
	c.arm(now)
	return actions
}

// report is for goroutines beside the handler's: what it leads to is either done here or left for the handler.
func (c *call) report(e exchange.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reportLocked(e)
}

func (c *call) reportLocked(e exchange.Event) {
	if e.Kind == exchange.Shutdown && !c.begun && !c.closed { // the body is read, which may be waited for in vain
		c.cut = true
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Unix(1, 0)) // if not, its own deadline holds
	}
	if c.closed || !c.begun || c.fault != nil {
		return
	}
	defer func() {
		if c.fault = recover(); c.fault != nil { // a panic here would end the process
			c.cancel()
			c.poke()
		}
	}()
	for _, a := range c.tellLocked(e) {
		switch {
		case a.Kind == exchange.Cancel:
			c.performLocked(a)
		case a.Kind == exchange.Commit:
			c.performLocked(a)
			c.relayed().release()
		case a.Kind == exchange.Dispatch && a.Lane == exchange.Hedge:
			c.race(a.Lease)
		default:
			c.pending = append(c.pending, a)
			c.poke()
		}
	}
}

func (c *call) perform(a exchange.Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.performLocked(a)
}

// performLocked does what takes no time. Callers hold mu.
func (c *call) performLocked(a exchange.Action) {
	switch r := c.reply(a.Lane); a.Kind {
	case exchange.Cancel:
		r.cancel()
	case exchange.Commit:
		r.committed = true
		if other := c.rival(r); other != nil && !other.running {
			other.discard()
		}
	}
}

// cancel stops all that runs. Callers hold mu.
func (c *call) cancel() {
	c.main.cancel()
	if c.hedge != nil {
		c.hedge.cancel()
	}
}

// poke wakes the handler if it waits.
func (c *call) poke() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// wait blocks until there is something to do; nothing, if the exchange is over and all is done.
func (c *call) wait() []exchange.Action {
	for {
		if actions, over := c.woken(); len(actions) > 0 || over {
			return actions
		}
		<-c.signal
	}
}

func (c *call) woken() (actions []exchange.Action, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	actions, c.pending = c.pending, nil
	if len(actions) == 0 {
		actions = c.tellLocked(exchange.Event{Kind: exchange.Granted})
	}
	c.own = append(c.own[:0], actions...)
	return c.own, c.x.Over()
}

// arm sets the timer if the call must be woken sooner than it is set for. A later time is left to be found when the
// timer fires, so that progress costs nothing. Callers hold mu.
func (c *call) arm(now time.Time) {
	if c.x.Over() {
		return
	}
	at := c.x.Wake()
	if from := c.lasting.from; !from.IsZero() && (at.IsZero() || from.Before(at)) {
		at = from
	}
	if at.IsZero() || !c.armed.IsZero() && !at.Before(c.armed) {
		return
	}
	c.armed = at
	c.timer.Reset(at.Sub(now))
}

// fired is the timer's. It may come for nothing, even for the request before.
func (c *call) fired() {
	c.mu.Lock()
	c.armed = time.Time{}
	down := c.lasts()
	c.mu.Unlock()
	if down {
		c.report(exchange.Event{Kind: exchange.Shutdown})
	}
	c.report(exchange.Event{Kind: exchange.Timer})
}

// close ends everything, also when the handler panics, and tells what came of it.
func (c *call) close() {
	fault := recover()
	done, begun := c.settle()
	if begun {
		c.p.Done(done)
	}
	abort := c.front.abort || begun && c.front.status == 0 // a client that only closed its own side must not take silence for an answer
	switch {
	case fault != nil && fault != http.ErrAbortHandler:
		c.panicked(fault)
		return
	case fault != nil:
		panic(fault)
	}
	c.retire()
	if abort {
		panic(http.ErrAbortHandler) // breaks the client's connection
	}
}

// settle ends what is still open and finishes the record, if there is one.
func (c *call) settle() (f Finished, begun bool) {
	c.stopRace()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	c.unlast()
	defer c.held.release() // once the last attempt has ended
	if !c.begun {
		return f, false
	}
	if !c.x.Over() {
		c.cancel()
		c.x.Close(time.Now())
	}
	c.main.close()
	if c.hedge != nil {
		c.hedge.close()
	}
	c.front.close(c)
	f = Finished{Record: c.x.Record(), Prefix: c.facts.Prefix, Session: session(c.r.Header)}
	f.Record.Status, f.Record.Bytes = c.front.status, c.front.sent
	if f.Record.Result == exchange.ClientGone && f.Record.Status == 0 {
		f.Record.Status = statusClientGone
	}
	if !c.dispatched.IsZero() {
		f.Overhead = max(c.dispatched.Sub(c.ready)-f.Record.Queued, 0)
	}
	return f, true
}

// panicked answers for a bug: this request fails, the process goes on.
func (c *call) panicked(fault any) {
	c.p.Logger.Error("a request's handler panicked", "id", c.facts.ID, "panic", fmt.Sprint(fault), "stack", string(debug.Stack()))
	if c.front.headSent {
		panic(http.ErrAbortHandler)
	}
	writeError(c.w, c.api, &llm.Error{Status: http.StatusInternalServerError, Code: "evenkeel_internal", Message: "The balancer failed. The log has the details under the id " + c.facts.ID + "."})
}

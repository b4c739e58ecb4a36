package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// codeUnknownModel is the one code of ours without our prefix: applications that use OpenAI's API look for it.
const codeUnknownModel = "model_not_found"

// statusClientGone is logged where a client left before it had a status. It is nginx's invention, and known.
const statusClientGone = 499

// call is the shell of one exchange. The handler's goroutine runs its actions; the timer, a client that
// leaves and a ticket that is granted come on other goroutines and go through mu.
type call struct {
	p    *Proxy
	g    *Generation
	w    http.ResponseWriter
	r    *http.Request
	id   string
	api  llm.API
	req  llm.Request
	held requestBody
	body []byte // in held

	header http.Header // what goes upstream, before credentials; never changed

	signal chan struct{} // something happened while the handler waits

	mu      sync.Mutex
	x       *exchange.Exchange
	timer   *time.Timer
	armed   time.Time
	pending []exchange.Action // found by other goroutines, for the handler
	own     []exchange.Action // the handler's; Dispatch and Wait are always the last of a list
	stop    context.CancelFunc
	stopped bool // the running attempt, or the one about to begin, was cancelled
	closed  bool // the handler is done: w may no longer be used
	fault   any  // what another goroutine panicked with; the handler's takes it over
	reply   reply

	ready      time.Time // the request was understood
	dispatched time.Time // the first attempt began
}

// serveCall runs one exchange from its body to its record.
func (p *Proxy) serveCall(w http.ResponseWriter, r *http.Request, g *Generation, api llm.API, facts route.Facts) {
	c := &call{p: p, g: g, w: w, r: r, id: facts.ID, api: api, signal: make(chan struct{}, 1)}
	defer c.held.release() // once close has ended the last attempt
	defer c.close()
	if failure := c.held.read(w, r, &p.bodies, g); failure != nil {
		linger(w, r, failure.Status == http.StatusRequestEntityTooLarge || failure.Code == codeBodyMemory)
		p.reject(w, api, facts, failure, false)
		return
	}
	c.body = c.held.bytes()
	plan, failure := c.understand(&facts)
	if failure != nil {
		p.reject(w, api, facts, failure, false)
		return
	}
	c.header = g.requestHeader(nil, r.Header)
	c.ready = time.Now()
	c.x = exchange.New(p.Router, p.Budget, plan, facts)
	c.reply.init(c)
	c.run()
}

// understand adds what the request says to the facts and makes the plan.
func (c *call) understand(f *route.Facts) (exchange.Plan, *llm.Error) {
	var none exchange.Plan
	if len(c.body) > 0 {
		req, err := llm.ScanRequest(c.api, c.r.Header.Get("Content-Type"), c.body)
		if err != nil {
			return none, requestError(err)
		}
		c.req = req
	}
	f.Model = c.req.Model
	if f.Model == "" && c.api.NeedsModel {
		return none, requestError(llm.MissingModel(c.api))
	}
	chain, failure := c.g.chain(f.Model)
	if failure != nil {
		return none, failure
	}
	h := c.r.Header
	if strings.EqualFold(h.Get(headerFallback), "off") {
		chain = chain[:1]
	}
	deadline, failure := clientDeadline(h)
	if failure != nil {
		return none, failure
	}
	if v := h.Get("X-Stainless-Retry-Count"); v != "" {
		f.ClientRetry, _ = strconv.Atoi(v) // odd: not a retry
	}
	f.Seed, f.Stream, f.PromptBytes, f.MaxOutput = seedOf(f.ID), c.req.Stream, c.req.PromptBytes, c.req.MaxOutput
	f.Pin, f.ExcludeNames = h.Get(headerPin), list(h.Get(headerExclude))
	return exchange.Plan{
		Models: chain, Repeatable: c.repeatable(), MaxAttempts: c.g.MaxAttempts,
		Deadlines: c.g.Deadlines, ClientDeadline: deadline, Notify: c.poke,
	}, nil
}

// chain returns the models to try for the one that was asked for.
func (g *Generation) chain(model string) ([]string, *llm.Error) {
	if chain := g.Chains[model]; chain != nil {
		return chain, nil
	}
	if model == "" {
		return nil, &llm.Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "evenkeel_no_model",
			Message: fmt.Sprintf("The request names no model, and there are %d endpoints it could go to. Put \"model\" into the body of a POST; GET /v1/models lists those there are.", len(g.Endpoints))}
	}
	if g.Unanswered > 0 {
		return nil, &llm.Error{Status: http.StatusServiceUnavailable, Code: "evenkeel_model_not_ready", Param: "model",
			Message: fmt.Sprintf("The model %q is not known here yet: %d of %d endpoints have not said so far what they serve.", clip(model), g.Unanswered, len(g.Endpoints))}
	}
	return nil, &llm.Error{Status: http.StatusNotFound, Code: codeUnknownModel, Param: "model",
		Message: fmt.Sprintf("The model %q does not exist here. GET /v1/models lists those that do.", clip(model))}
}

func clip(s string) string {
	const longest = 200
	if len(s) > longest {
		return strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}

// repeatable reports whether the request may be sent again after bytes were sent.
func (c *call) repeatable() bool {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return c.api.Repeatable && !c.req.Unrepeatable
}

// clientDeadline reads how long the client will wait.
func clientDeadline(h http.Header) (time.Duration, *llm.Error) {
	if v := h.Get(headerTimeout); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return 0, &llm.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "evenkeel_bad_timeout",
				Message: fmt.Sprintf("x-evenkeel-timeout: %q is not a duration such as 30s.", clip(v))}
		}
		return d, nil
	}
	for _, name := range []string{"X-Stainless-Timeout", "X-Stainless-Read-Timeout"} { // the latter is how long Python's wait for bytes
		v := h.Get(name)
		if v == "" {
			continue
		}
		if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e6 {
			return time.Duration(s * float64(time.Second)), nil
		}
	}
	return 0, nil
}

func list(v string) []string {
	if v == "" {
		return nil
	}
	names := strings.Split(v, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

// seedOf derives a request's seed from its id, so that the id alone reproduces its random choices.
func seedOf(id string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := 0; i < len(id); i++ {
		h = (h ^ uint64(id[i])) * prime
	}
	return binary.LittleEndian.Uint64(binary.BigEndian.AppendUint64(nil, h))
}

// run performs actions until the exchange is over.
func (c *call) run() {
	actions := c.next(exchange.Event{Kind: exchange.Started}) // before anybody can report that it is over
	defer context.AfterFunc(c.r.Context(), func() { c.report(exchange.Gone) })()
	defer c.p.calls.add(c)()
	for {
		var follow []exchange.Action
		for _, a := range actions {
			switch a.Kind {
			case exchange.Dispatch:
				end := c.attempt(a.Lease)
				follow = c.next(exchange.Event{Kind: exchange.Ended, End: end})
			case exchange.Wait: // below
			case exchange.Commit:
				c.mu.Lock()
				c.reply.commit()
				c.mu.Unlock()
			case exchange.Fail:
				c.reply.fail(a.Failure)
				return
			case exchange.Finish:
				c.reply.finish()
				return
			case exchange.Cancel: // already done where it arose
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

// next reports an event from the handler's goroutine. The result is valid until it does so again.
func (c *call) next(e exchange.Event) []exchange.Action {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = append(c.own[:0], c.nextLocked(e)...)
	return c.own
}

// nextLocked reports an event. The result is valid while mu is held.
func (c *call) nextLocked(e exchange.Event) []exchange.Action {
	if c.fault != nil {
		panic(c.fault)
	}
	if e.Kind == exchange.Ended {
		c.stop, c.stopped = nil, false // what is cancelled from here on is the next attempt
	}
	actions := c.x.Next(time.Now(), e)
	c.arm()
	return actions
}

// report is for goroutines beside the handler's: what it leads to is either done here or left for the handler.
func (c *call) report(kind exchange.EventKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.fault != nil {
		return
	}
	defer func() {
		if c.fault = recover(); c.fault != nil { // a panic here would end the process
			c.cancel()
			c.poke()
		}
	}()
	for _, a := range c.nextLocked(exchange.Event{Kind: kind}) {
		switch a.Kind {
		case exchange.Cancel:
			c.cancel()
		case exchange.Commit:
			c.reply.commit()
			c.reply.release()
		default:
			c.pending = append(c.pending, a)
			c.poke()
		}
	}
}

// cancel stops the running attempt. Callers hold mu.
func (c *call) cancel() {
	c.stopped = true
	if c.stop != nil {
		c.stop()
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
		actions = c.nextLocked(exchange.Event{Kind: exchange.Granted})
	}
	c.own = append(c.own[:0], actions...)
	return c.own, c.x.Over()
}

// arm sets the timer if the exchange must be woken sooner than it is set for. A later time is left to be
// found when the timer fires, so that progress costs nothing. Callers hold mu.
func (c *call) arm() {
	at := c.x.Wake()
	if at.IsZero() || c.x.Over() || !c.armed.IsZero() && !at.Before(c.armed) {
		return
	}
	c.armed = at
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(at), c.fired)
		return
	}
	c.timer.Reset(time.Until(at))
}

func (c *call) fired() {
	c.mu.Lock()
	c.armed = time.Time{}
	c.mu.Unlock()
	c.report(exchange.Timer)
}

// close ends everything, also when the handler panics, and tells what came of it.
func (c *call) close() {
	fault := recover()
	if c.x != nil {
		c.p.Done(c.settle())
	}
	switch {
	case fault != nil && fault != http.ErrAbortHandler:
		c.panicked(fault)
	case fault != nil || c.reply.abort:
		panic(http.ErrAbortHandler) // breaks the client's connection
	}
}

// settle ends what is still open and finishes the record.
func (c *call) settle() Finished {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.cancel()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.x.Close(time.Now())
	c.reply.close()
	f := Finished{Record: c.x.Record()}
	f.Record.Status, f.Record.Bytes = c.reply.status, c.reply.sent
	if f.Record.Result == exchange.ClientGone && f.Record.Status == 0 {
		f.Record.Status = statusClientGone
	}
	if !c.dispatched.IsZero() {
		f.Overhead = max(c.dispatched.Sub(c.ready)-f.Record.Queued, 0)
	}
	return f
}

// panicked answers for a bug: this request fails, the process goes on.
func (c *call) panicked(fault any) {
	c.p.Logger.Error("a request's handler panicked", "id", c.id, "panic", fmt.Sprint(fault), "stack", string(debug.Stack()))
	if c.reply.headSent {
		panic(http.ErrAbortHandler)
	}
	writeError(c.w, c.api, &llm.Error{Status: http.StatusInternalServerError, Code: "evenkeel_internal", Message: "The balancer failed. The log has the details under the id " + c.id + "."})
}

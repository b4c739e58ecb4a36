package health

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"sync"
	"time"

	"evenkeel/internal/route"
)

// Options of a Checker.
type Options struct {
	Router *route.Router
	Done   func(Result)  // is told of every probe that has ended, by several goroutines; must be quick. Nil: nobody
	Heard  func(Hearing) // likewise of every question for an engine's signals
	Seed   uint64        // decides when in the interval each target has its turn; another one for each process
}

// Checker probes what its plan says. All methods may be called concurrently.
type Checker struct {
	router *route.Router
	done   func(Result)
	heard  func(Hearing)
	seed   uint64
	poke   chan struct{} // something changed

	mu      sync.Mutex
	plan    *Plan
	targets map[key]*target
	running map[key]bool // never two at a time, though a target leaves and returns meanwhile
}

// key is the identity of a target: the same name at another URL is somebody else.
type key struct {
	name, url string
	question  question
}

// question is what a target is asked for.
type question byte

const (
	prompted question = iota
	healthPage
	signals
)

// target is an endpoint, or a deployment there, with what is remembered of it. It is guarded by Checker.mu.
type target struct {
	endpoint   *Endpoint
	deployment *Deployment   // of completions
	interval   time.Duration // from one turn to the next
	due        time.Time
	page       int       // which of its kind's signalPages is asked
	asked      time.Time // the last time that it was not skipped
	failures   int       // pages in a row that complained
	verdict    Verdict
	reason     string
}

// New returns a Checker that has nothing to do yet.
func New(o Options) *Checker {
	done := o.Done
	if done == nil {
		done = func(Result) {}
	}
	heard := o.Heard
	if heard == nil {
		heard = func(Hearing) {}
	}
	return &Checker{router: o.Router, done: done, heard: heard, seed: o.Seed, poke: make(chan struct{}, 1), plan: &Plan{}, targets: map[key]*target{}, running: map[key]bool{}}
}

// Set replaces the plan. Targets that stay keep their turns, unless the interval changed. What was found of one that left is
// taken back, and what a probe that runs there finds is thrown away: nobody would find out that it is over.
func (c *Checker) Set(p *Plan) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[key]*target{}
	add := func(k key, interval time.Duration, e *Endpoint, d *Deployment) {
		if interval <= 0 {
			return
		}
		t := c.targets[k]
		if t == nil {
			t = &target{}
		}
		if t.interval != interval {
			t.interval, t.due = interval, now.Add(c.turn(k, interval))
		}
		t.endpoint, t.deployment = e, d
		next[k] = t
	}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		if pages[e.Kind.Name] != "" {
			add(key{e.Name, e.URL, healthPage}, p.Interval, e, nil)
		}
		if signalPages[e.Kind.Name] != nil {
			add(key{e.Name, e.URL, signals}, p.Signals, e, nil)
		}
		for j := range e.Deployments {
			if d := &e.Deployments[j]; d.Ask && p.Prompt != "" {
				add(key{d.ID, e.URL, prompted}, p.Interval, e, d)
			}
		}
	}
	for k, t := range c.targets {
		if next[k] == nil {
			c.retract(now, k, t)
		}
	}
	c.plan, c.targets = p, next
	c.wake()
}

// retract takes back what the Router was told of a target.
func (c *Checker) retract(now time.Time, k key, t *target) {
	switch k.question {
	case prompted:
		c.probed(now, t.deployment, route.Probe{Ended: true})
	case healthPage:
		for i := range t.endpoint.Deployments {
			c.probed(now, &t.endpoint.Deployments[i], route.Probe{Page: true})
		}
	case signals: // they fade
	}
}

// turn is when in the interval a target is probed. It spreads the probes of a fleet, and those that several processes
// send to the same target.
func (c *Checker) turn(k key, interval time.Duration) time.Duration {
	h := fnv.New64a()
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], c.seed)
	h.Write(seed[:])
	h.Write([]byte(k.name))
	h.Write([]byte{0})
	h.Write([]byte(k.url))
	if k.question != prompted {
		h.Write([]byte{byte(k.question)})
	}
	x := h.Sum64() // its high bits differ little for names that do
	x ^= x >> 32
	x *= 0x9E3779B97F4A7C15
	return time.Duration(float64(x>>11) / (1 << 53) * float64(interval))
}

func (c *Checker) wake() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// idle is how long to wait where there is nothing to wait for.
const idle = time.Hour

// Run probes until ctx ends, and returns when all its probes have ended.
func (c *Checker) Run(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(c.round(ctx, time.Now(), &probes))
		select {
		case <-ctx.Done():
		case <-c.poke:
		case <-timer.C:
		}
	}
}

// Bounds of the time between two rounds: a look at the fleet copies it, so that turns close to each other share one.
const (
	coarsest = 250 * time.Millisecond
	rounds   = 20 // in an interval
)

// round starts the probes that are due, and returns how long until the next are.
func (c *Checker) round(ctx context.Context, now time.Time, probes *sync.WaitGroup) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.plan
	var fleet *fleet
	wait, shortest := idle, time.Duration(idle)
	for k, t := range c.targets {
		shortest = min(shortest, t.interval)
		if c.running[k] {
			continue // its end wakes us
		}
		if !t.due.After(now) {
			t.due = t.due.Add(t.interval * (now.Sub(t.due)/t.interval + 1))
			if k.question != signals && fleet == nil {
				fleet = look(c.router.View(now))
			}
			if k.question == signals && !c.router.Out(t.scope()) || k.question != signals && fleet.wants(now, p, t) {
				c.running[k], t.asked = true, now
				e, d, page := t.endpoint, t.deployment, t.page
				probes.Go(func() { // ends by its timeout or with ctx
					if k.question == signals {
						c.hear(ctx, k, e, page)
					} else {
						c.probe(ctx, p, k, e, d)
					}
				})
				continue
			}
		}
		wait = min(wait, t.due.Sub(now))
	}
	return max(wait, min(coarsest, shortest/rounds), time.Millisecond)
}

func (t *target) scope() route.Scope {
	return route.Scope{Kind: route.EndpointScope, Name: t.endpoint.Name, URL: t.endpoint.URL}
}

// ended takes a question off those that run and returns its target, nil if nobody wants to know any more. Guarded by c.mu.
func (c *Checker) ended(ctx context.Context, k key) *target {
	delete(c.running, k)
	if ctx.Err() != nil {
		return nil
	}
	return c.targets[k]
}

// probe asks one target and reports what came of it.
func (c *Checker) probe(ctx context.Context, p *Plan, k key, e *Endpoint, d *Deployment) {
	var r Result
	if d == nil {
		r = p.look(ctx, e)
	} else {
		r = p.ask(ctx, e, d)
	}
	r.Page, r.Name = k.question == healthPage, k.name
	c.mu.Lock()
	t := c.ended(ctx, k)
	if t == nil {
		c.mu.Unlock()
		return
	}
	if r.Page {
		t.believe(p, &r)
	}
	r.Before = t.verdict
	r.Changed = r.Verdict != t.verdict || r.Reason != t.reason
	t.verdict, t.reason = r.Verdict, r.Reason
	c.report(time.Now(), t, &r) // with what it serves now, and before Set takes it back
	c.mu.Unlock()
	c.done(r)
	c.wake()
}

// believe turns what pages say one by one into what is held of the endpoint.
func (t *target) believe(p *Plan, r *Result) {
	if r.Verdict != Failed {
		t.failures = 0
		return
	}
	t.failures++
	r.believed = t.failures >= p.PageFailures
}

// report tells the Router.
func (c *Checker) report(now time.Time, t *target, r *Result) {
	e, d := t.endpoint, t.deployment
	switch {
	case r.unreachable: // the endpoint's matter, not the deployment's
		c.router.Observe(now, route.Scope{Kind: route.EndpointScope, Name: e.Name, URL: e.URL}, false)
	case r.Page:
		probe := route.Probe{Page: true}
		if r.believed {
			probe.Missed = complains
		}
		for i := range e.Deployments {
			c.probed(now, &e.Deployments[i], probe)
		}
	case r.Verdict == Failed:
		c.probed(now, d, route.Probe{Reason: r.Reason})
	case r.Verdict == Missed:
		c.probed(now, d, route.Probe{OK: true, Missed: r.Reason, TTFT: r.TTFT})
	case r.Verdict == OK:
		c.probed(now, d, route.Probe{OK: true, TTFT: r.TTFT})
	}
}

// probed tells the Router of all that d stands for: which of an endpoint's ranks answered is not known.
func (c *Checker) probed(now time.Time, d *Deployment, p route.Probe) {
	for _, id := range d.all() {
		c.router.Probed(now, id, p)
	}
}

package sim

import (
	"math"
	"strconv"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// client is one request and the shell of its exchange, as internal/proxy is one over sockets. A client is used again for
// other requests.
type client struct {
	// What each look at a growing answer needs comes first: memory is what a simulation waits for.
	gen     uint32 // counts its requests: events of an earlier one are void
	index   int32
	answer  engine.Answer // that was committed to, if its server is a Grower and has it still; else nil
	x       exchange.Exchange
	flights [2]flight

	plan    exchange.Plan
	facts   route.Facts
	request Request
	ordinal int // among the requests that count; -1 = it does not
	at      *balancer
	dials   int           // jobs that servers were given for it
	armed   time.Duration // when its next alarm is planned, maybe for an earlier request; -1 = none is
	waiting bool
}

// flight is the attempt on one lane.
type flight struct {
	id         uint64 // of the job
	lease      *route.Lease
	deployment *deployment
	number     uint64        // of the attempt, among all
	running    bool          // the server has it
	noted      bool          // the Policy knows of it, and not yet of its end
	sent       time.Duration // when it was dispatched
	first      time.Duration // when its first content came, -1 = none did
	cached     int           // tokens, known with the first content
	end        exchange.End
}

// Job ids tell the client and the lane, and never come again.
const (
	laneBits  = 1
	indexBits = 31
)

func (c *client) jobID(lane exchange.Lane, serial uint64) uint64 {
	return serial<<(indexBits+laneBits) | uint64(c.index)<<laneBits | uint64(lane)
}

// flightOf finds the attempt of a job, nil if it is over.
func (f *Fleet) flightOf(id uint64) (*client, exchange.Lane, *flight) {
	c, lane := f.clients[id>>laneBits&(1<<indexBits-1)], exchange.Lane(id&1)
	if fl := &c.flights[lane]; fl.running && fl.id == id {
		return c, lane, fl
	}
	return nil, 0, nil
}

// client returns one that has no request.
func (f *Fleet) client() *client {
	if n := len(f.free); n > 0 {
		c := f.clients[f.free[n-1]]
		f.free = f.free[:n-1]
		return c
	}
	c := &client{index: int32(len(f.clients)), armed: -1}
	c.plan = f.o.Plan
	c.plan.Models = []string{model}
	c.plan.Notify = func() { f.plan(f.now, granted, c.index, c.gen) }
	if c.plan.MaxAttempts == 0 {
		c.plan.MaxAttempts = 1
	}
	f.clients = append(f.clients, c)
	return c
}

// proseBytes is how much text a token of English prose is.
const proseBytes = 4

// begin starts the exchange of the client's request.
func (f *Fleet) begin(c *client, b *balancer) {
	r := &c.request
	f.running++
	c.at, c.dials, c.waiting = b, 0, false
	c.facts = route.Facts{
		ID: strconv.Itoa(f.ordinal), Seed: r.Seed, Model: f.asked(c), API: "chat", Tenant: r.Tenant, Arrived: wall(f.now), Stream: f.o.Stream,
		PromptBytes: f.promptBytes(r), Prefix: r.Prompt, PrefixBytes: f.prefixBytes(r), Turns: f.turns(r), Text: r.Seed, Session: r.Session,
	}
	if seen := r.Recorded; seen != nil {
		c.facts.API, c.facts.Stream, c.facts.MaxOutput = seen.API, seen.Stream, seen.MaxOutput
	}
	c.x.Reset(b.router, b.budget, &c.plan, &c.facts)
	if f.o.Policy != nil {
		f.requests[r.Seed] = r
	}
	f.tell(c, exchange.Event{Kind: exchange.Started})
}

// prefixBytes is how much text a hash of the prompt stands for.
func (f *Fleet) prefixBytes(r *Request) int {
	ratio := float64(proseBytes)
	if m := f.o.BytesPerToken.Mean; m > 0 {
		ratio = m
	}
	return int(math.Round(ratio * float64(r.BlockTokens)))
}

// turns is where the answers in the request's prompt stand, in bytes of its text.
func (f *Fleet) turns(r *Request) route.Turns {
	t := r.Turns
	if r.BlockTokens > 0 {
		ratio := float64(f.prefixBytes(r)) / float64(r.BlockTokens)
		for i := range t.Past {
			p := &t.Past[i]
			p.Rest, p.Answer = int32(float64(p.Rest)*ratio), int32(float64(p.Answer)*ratio)
		}
	}
	return t
}

func (f *Fleet) promptBytes(r *Request) int {
	switch {
	case f.o.BytesPerToken.Mean > 0:
	case r.Recorded != nil && r.Recorded.Bytes > 0:
		return r.Recorded.Bytes
	default:
		return proseBytes * r.PromptTokens
	}
	return int(math.Ceil(f.o.BytesPerToken.draw(f.lengths) * float64(r.PromptTokens)))
}

// notice takes an event of the clock that is about a client.
func (f *Fleet) notice(c *client, k eventKind) {
	switch k {
	case alarm:
		f.alarmed(c)
	case granted:
		f.tell(c, exchange.Event{Kind: exchange.Granted})
	case endedMain:
		f.ended(c, exchange.Main)
	case endedHedge:
		f.ended(c, exchange.Hedge)
	}
}

// tell reports an event to the client's exchange and does what that leads to.
func (f *Fleet) tell(c *client, e exchange.Event) {
	over := false
	for _, a := range c.x.Next(wall(f.now), e) {
		switch a.Kind {
		case exchange.Dispatch:
			f.dispatch(c, a.Lane, a.Lease)
		case exchange.Wait:
			f.wait(c)
		case exchange.Cancel:
			f.cancel(c, a.Lane)
		case exchange.Commit: // what a server reports is passed on as it comes
		case exchange.Finish, exchange.Fail:
			over = true
		}
	}
	if over {
		f.finish(c)
		return
	}
	f.arm(c)
}

// alarmed takes the alarm that is planned, and no other that was due later when it was. It may be of an earlier request: nearly all end
// long before their deadlines, and an alarm for each until then would be most of what the clock holds.
func (f *Fleet) alarmed(c *client) {
	if c.armed != f.now {
		return
	}
	c.armed = -1
	if !c.x.Over() {
		f.tell(c, exchange.Event{Kind: exchange.Timer})
	}
}

// arm plans the client's alarm, if it is due sooner than planned. A later time is found when it goes off, as in the proxy.
func (f *Fleet) arm(c *client) {
	wake := c.x.Wake()
	if wake.IsZero() {
		return
	}
	if at := wake.Sub(Epoch); c.armed < 0 || at < c.armed {
		c.armed = at
		f.plan(at, alarm, c.index, c.gen)
	}
}

func (f *Fleet) wait(c *client) {
	if c.waiting {
		return
	}
	c.waiting = true
	if c.at.waiting++; !c.at.ticking {
		c.at.ticking = true
		f.plan(f.now, tick, c.at.index, 0)
	}
}

func (f *Fleet) waited(c *client) {
	if c.waiting {
		c.waiting = false
		c.at.waiting--
	}
}

// dispatch begins an attempt.
func (f *Fleet) dispatch(c *client, lane exchange.Lane, l *route.Lease) {
	f.waited(c)
	d := f.deployments[f.byID[l.Deployment().ID]]
	fl := &c.flights[lane]
	f.attempts++
	*fl = flight{lease: l, deployment: d, number: f.attempts, noted: true, sent: f.now, first: -1}
	d.picks++
	f.note(c, fl, Sent)
	switch d.state {
	case Down:
		f.end(c, lane, exchange.End{Class: llm.Connect, Outcome: route.Outcome{Verdict: route.DeploymentFault, Class: llm.Connect.String(), Fault: route.Unreachable}})
		return
	case Erring:
		f.m.counts.Dispatched++
		f.end(c, lane, exchange.End{Class: llm.ServerError, Sent: true, Held: true, Outcome: route.Outcome{
			Verdict: route.DeploymentFault, Class: llm.ServerError.String(), Fault: route.Failure, Answered: true, Status: 500,
		}})
		return
	}
	f.m.counts.Dispatched++
	fl.id = c.jobID(lane, uint64(f.m.counts.Dispatched))
	if err := d.server.Submit(f.now, Job{ID: fl.id, Attempt: c.dials, Request: &c.request}); err != nil { // as engines refuse what is too long
		f.end(c, lane, exchange.End{Class: llm.ClientFault, Sent: true, Held: true, Outcome: route.Outcome{
			Verdict: route.NotDeploymentFault, Class: llm.ClientFault.String(), Detail: err.Error(), Answered: true, Status: 400,
		}})
		return
	}
	fl.running = true
	f.m.change(f.now, &d.load, 1)
	c.dials++
	f.watch(d)
}

// end plans the end of an attempt that no server works on.
func (f *Fleet) end(c *client, lane exchange.Lane, e exchange.End) {
	c.flights[lane].end = e
	f.plan(f.now, endedMain+eventKind(lane), c.index, c.gen)
}

func (f *Fleet) ended(c *client, lane exchange.Lane) {
	f.noteEnd(c, &c.flights[lane])
	f.tell(c, exchange.Event{Kind: exchange.Ended, Lane: lane, End: &c.flights[lane].end})
}

func (f *Fleet) noteEnd(c *client, fl *flight) {
	if fl.noted {
		fl.noted = false
		f.note(c, fl, Over)
	}
}

// leave takes an attempt from its server's books.
func (f *Fleet) leave(c *client, fl *flight) {
	fl.running = false
	if fl.first >= 0 {
		c.answer = nil
	}
	f.m.change(f.now, &fl.deployment.load, -1)
}

// cancel stops an attempt. Its end follows.
func (f *Fleet) cancel(c *client, lane exchange.Lane) {
	fl := &c.flights[lane]
	if !fl.running {
		return // its end is on the way
	}
	fl.deployment.server.Cancel(f.now, fl.id)
	f.leave(c, fl)
	f.watch(fl.deployment)
	f.end(c, lane, exchange.End{Class: llm.Reset, Sent: true, Broken: true, Outcome: route.Outcome{Answered: fl.first >= 0}})
}

// breakOff ends all attempts at a deployment: its process is gone.
func (f *Fleet) breakOff(d *deployment) {
	for _, c := range f.clients {
		for lane := range c.flights {
			fl := &c.flights[lane]
			if !fl.running || fl.deployment != d {
				continue
			}
			d.server.Cancel(f.now, fl.id)
			f.leave(c, fl)
			begun := fl.first >= 0
			broken := route.Outcome{Verdict: route.DeploymentFault, Class: llm.Reset.String(), Fault: route.BrokeOff, Answered: begun}
			if !begun {
				broken.Fault = route.Reset
			}
			f.end(c, exchange.Lane(lane), exchange.End{Class: llm.Reset, Sent: true, Broken: true, Outcome: broken})
		}
	}
	f.watch(d)
}

// reported takes one report of a deployment's server.
func (f *Fleet) reported(d *deployment, r Report) {
	c, lane, fl := f.flightOf(r.ID)
	if c == nil {
		return // it was given up
	}
	switch r.Kind {
	case FirstToken:
		f.begun(c, lane, r.Cached)
	case Done:
		if fl.first < 0 {
			f.begun(c, lane, r.Cached)
		}
		f.leave(c, fl)
		fl.end = exchange.End{Sent: true, Held: !c.x.Committed(), Outcome: route.Outcome{
			Verdict: route.Success, Answered: true, Status: 200, Reported: true,
			InputTokens: c.request.PromptTokens, CachedTokens: r.Cached, OutputTokens: r.Tokens,
		}}
		if c.facts.Stream {
			c.x.Progress(wall(f.now), r.Tokens)
		}
		f.ended(c, lane)
	}
}

// begun tells of the first content of an answer, the exchange only of a streamed one: another is held until it is whole.
func (f *Fleet) begun(c *client, lane exchange.Lane, cached int) {
	fl := &c.flights[lane]
	fl.first, fl.cached = f.now, cached
	f.note(c, fl, Begun)
	if c.facts.Stream {
		f.tell(c, exchange.Event{Kind: exchange.Content, Lane: lane})
		f.growing(c, lane)
	}
}

// finish notes what came of a request and lets the client go.
func (f *Fleet) finish(c *client) {
	f.waited(c)
	rec := c.x.Record()
	c.x.Close(wall(f.now))
	a := answer{ordinal: c.ordinal, request: &c.request, firstTo: f.now, lastTo: f.now, attempts: len(rec.Attempts)}
	for i := range rec.Attempts {
		if rec.Attempts[i].Hedge {
			a.hedges++
		}
	}
	if last := rec.Last(); last != nil {
		o := &last.Outcome
		a.prompt, a.cached, a.output = o.InputTokens, o.CachedTokens, o.OutputTokens
	}
	if !rec.Content.IsZero() {
		a.firstTo = rec.Content.Sub(Epoch)
	}
	f.m.over(rec.Result, &a)
	if f.o.Record != nil {
		f.o.Record(&c.request, rec)
	}
	for lane := range c.flights {
		f.noteEnd(c, &c.flights[lane]) // a loser's end is on its way when the winner's is here
	}
	if f.o.Record != nil { // who may have kept it
		c.x.Forget()
	} else {
		c.x.Recycle()
	}
	c.gen++
	delete(f.requests, c.request.Seed)
	c.request, c.flights = Request{}, [2]flight{}
	f.free = append(f.free, c.index)
	f.running--
}

// Grower is implemented by servers that produce an answer bit by bit.
type Grower interface {
	// Answer returns that of a job, for as long as the server has the job.
	Answer(id uint64) engine.Answer
}

// progressEvery is the grain of progress: a lease looks at it no more often.
const progressEvery = 250 * time.Millisecond

// growing plans to look at an answer that has begun.
func (f *Fleet) growing(c *client, lane exchange.Lane) {
	fl := &c.flights[lane]
	if !fl.running {
		return
	}
	if g, ok := fl.deployment.server.(Grower); ok {
		c.answer = g.Answer(fl.id)
		f.again(c.index, c.gen)
	}
}

// grown is an answer that is looked at.
type grown struct {
	at     time.Duration
	client *client
	tokens int
}

// grow reports the progress of answers. They have nothing to do with each other, so each thing is done for all before the next: memory
// is what that waits for, and then it comes for many at once.
func (f *Fleet) grow(looks []look) {
	all := f.grown[:0]
	for i := range looks {
		l := &looks[i]
		if c := f.clients[l.index]; c.gen == l.gen && c.answer != nil {
			all = append(all, grown{at: l.at, client: c})
		}
	}
	for i := range all {
		g := &all[i]
		g.tokens = g.client.answer.Generated(g.at)
	}
	for i := range all {
		g := &all[i]
		f.now = g.at
		g.client.x.Progress(wall(f.now), g.tokens)
		f.again(g.client.index, g.client.gen)
	}
	f.grown = all
}

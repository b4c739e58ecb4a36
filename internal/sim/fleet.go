package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// model is the one that all deployments of a Fleet serve.
const model = "m"

// Options describe a simulation.
type Options struct {
	Seed     uint64
	Servers  []Server       // one for each deployment; a Fleet takes them over
	Weights  []float64      // of the deployments; nil = all 1
	Limits   route.Limits   // of each deployment
	Strategy route.Strategy // of each balancer, if there is no Policy
	// Policy makes one for each balancer.
	Policy func(Vantage) (Policy, error)
	// Site stands in the place of all these but Servers: deployments that are not alike, and several models.
	Site    *Site
	Scrapes Scrapes
	Sharing Sharing
	// CacheTokens is what each Policy is told of the size of a deployment's prefix cache, 0 = nothing.
	CacheTokens int
	Balancers   int // each with a Router and a Budget of its own, and each request comes to one at random; 0 = 1
	// Subset, if not nil, says which deployments a balancer knows, in order; else each knows all. Orders (Leaving, Coming) reach those who know it.
	Subset func(balancer int) []Member
	// Shares are the parts of all requests that come to each balancer, in any unit; nil = equal ones.
	Shares []float64
	Router route.Options // of each
	Plan   exchange.Plan // of each request; Models and Notify are the Fleet's
	Stream bool          // requests ask for streamed answers; recorded ones do if they did
	// BytesPerToken is how many bytes of text a token of a prompt is, for each request anew: what balancers see is bytes. A mean
	// of 0 is 4 for all, as in English prose.
	BytesPerToken Law
	Budget        Budget
	Source        Source
	BurnIn        time.Duration // requests that come before are not measured
	Goal          Goal
	Faults        []Fault

	// Record, if not nil, is told of each request that is over. The record may be kept.
	Record func(*Request, *exchange.Record)
}

// Budget describes the retry budget of each balancer (exchange.NewBudget).
type Budget struct {
	Ratio    float64 // retries earned by each request
	Smallest float64 // retries that may always be saved up
	Hedges   float64 // hedges earned by each request
}

// Fault is something that befalls a deployment.
type Fault struct {
	At         time.Duration
	Deployment int // index in Options.Servers
	Kind       FaultKind
	Factor     float64 // of Slowed: how many times as long all takes from then on; 1 = as usual
	Server     Server  // of Mended: what is there from then on, idle and cold; nil = what was there before
}

// FaultKind says what befalls.
type FaultKind uint8

// The kinds of fault. A deployment is Mended, Down or Erring as the last of these says.
const (
	Mended  FaultKind = iota // all is well
	Down                     // connections are refused, and what runs there breaks off
	Erring                   // each new request is answered with a 500 at once
	Leaving                  // it is drained: by order nothing new, what runs may finish
	Coming                   // and that order is taken back
	Slowed                   // it takes Factor times as long; the server must be a Slower
)

// Slower is implemented by servers that can be slowed.
type Slower interface {
	// Slow makes what begins from now on take factor times as long as usual.
	Slow(now time.Duration, factor float64)
}

// Fleet is a simulation: balancers before deployments. It is not safe for concurrent use.
type Fleet struct {
	clock
	o           Options
	balancers   []*balancer
	deployments []*deployment
	byID        map[string]int32
	loads       []*load
	clients     []*client
	free        []int32 // indices of clients that have no request
	running     int
	upcoming    Request
	exhausted   bool // there is no upcoming request
	measuring   bool
	ordinal     int // of the next request
	first       int // ordinal of the first that counts
	attempts    uint64
	m           measure
	policies    *rand.Rand
	choices     *rand.Rand
	shares      []float64  // cumulative, nil = equal
	lengths     *rand.Rand // of prompts, in bytes
	reports     []Report
	grown       []grown             // scratch of grow
	shared      []shared            // in the order in which they are heard
	heard       int                 // so many of them are
	requests    map[uint64]*Request // that run, by seed, if there is a Policy
}

// balancer is one process of the product.
type balancer struct {
	index   int32
	router  *route.Router
	budget  *exchange.Budget
	adviser adviser
	waiting int  // requests
	ticking bool // a tick is planned
}

type deployment struct {
	load
	index    int32
	id       string
	endpoint route.Scope // that its signals are about, of this model there
	model    string
	server   Server
	state    FaultKind
	due      time.Duration // when its step is planned, -1 = it is not
	gen      uint32
}

// New returns a Fleet at time 0.
func New(o Options) (*Fleet, error) {
	if o.Balancers == 0 {
		o.Balancers = 1
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	f := &Fleet{o: o, byID: map[string]int32{}, requests: map[uint64]*Request{}, policies: stream(o.Seed, forPolicies), choices: stream(o.Seed, forBalancers), lengths: stream(o.Seed, forBytes)}
	f.m = measure{goal: o.Goal, results: map[exchange.Result]int{}}
	for i, id := range o.ids() {
		d := &deployment{index: int32(i), id: id, server: o.Servers[i], due: -1}
		f.deployments = append(f.deployments, d)
		f.loads = append(f.loads, &d.load)
		f.byID[d.id] = d.index
	}
	f.shares = cumulate(o.Shares)
	var pools []route.PoolSpec
	for i := range o.Balancers {
		b := &balancer{index: int32(i), router: route.New(o.Router), budget: exchange.NewBudget(o.Budget.Ratio, o.Budget.Smallest)}
		b.budget.Hedges(o.Budget.Hedges)
		s, err := f.advise(b)
		if err != nil {
			return nil, err
		}
		if pools == nil || o.Policy != nil {
			pools = o.pools(s)
		}
		knows := pools
		if o.Subset != nil {
			if knows, err = subset(pools, o.Subset(i)); err != nil {
				return nil, fmt.Errorf("balancer %d: %w", i, err)
			}
		}
		if _, err := b.router.Adopt(wall(0), knows); err != nil {
			return nil, err
		}
		f.balancers = append(f.balancers, b)
	}
	f.place(pools)
	for i, x := range o.Faults {
		f.plan(x.At, fault, int32(i), 0)
	}
	if o.BurnIn > 0 {
		f.plan(o.BurnIn, burnt, 0, 0)
	} else {
		f.measuring = true
	}
	f.fetch()
	return f, nil
}

// place notes where each deployment is.
func (f *Fleet) place(pools []route.PoolSpec) {
	for _, p := range pools {
		for i := range p.Deployments {
			x := &p.Deployments[i]
			d := f.deployments[f.byID[x.ID]]
			d.endpoint, d.model = route.Scope{Kind: route.EndpointScope, Name: x.Endpoint, URL: x.URL}, x.Model
		}
	}
}

func (o *Options) check() error {
	switch {
	case len(o.Servers) == 0:
		return errors.New("a simulation needs at least one server")
	case o.Weights != nil && len(o.Weights) != len(o.Servers):
		return fmt.Errorf("%d weights for %d servers", len(o.Weights), len(o.Servers))
	case o.Site == nil && (o.Strategy == nil) == (o.Policy == nil):
		return errors.New("a simulation needs either a strategy or a policy")
	case o.Scrapes.Every < 0 || o.Sharing.Delay < 0:
		return fmt.Errorf("scrapes every %v, sharing after %v: neither must be negative", o.Scrapes.Every, o.Sharing.Delay)

	case o.Source == nil:
		return errors.New("a simulation needs a source of requests")
	case o.Balancers < 1:
		return fmt.Errorf("%d balancers: at least one is needed", o.Balancers)
	case o.BurnIn < 0:
		return fmt.Errorf("a burn-in of %v: it must not be negative", o.BurnIn)
	}
	if o.Site != nil {
		if err := o.Site.check(o); err != nil {
			return err
		}
	}
	if err := o.BytesPerToken.check("bytes per token"); err != nil && o.BytesPerToken != (Law{}) {
		return err
	}
	if err := o.checkBalancers(); err != nil {
		return err
	}
	for i, x := range o.Faults {
		if x.Deployment < 0 || x.Deployment >= len(o.Servers) {
			return fmt.Errorf("fault %d is about deployment %d, there are %d", i, x.Deployment, len(o.Servers))
		}
		if x.Kind > Slowed {
			return fmt.Errorf("fault %d is of the unknown kind %d", i, x.Kind)
		}
		if _, ok := o.Servers[x.Deployment].(Slower); x.Kind == Slowed && (!ok || !(x.Factor > 0)) {
			return fmt.Errorf("fault %d: deployment %d cannot be slowed by a factor of %v", i, x.Deployment, x.Factor)
		}
	}
	return nil
}

// Run lets time pass up to and including until.
func (f *Fleet) Run(until time.Duration) {
	for f.advance(until) {
	}
	f.now = max(f.now, until)
}

// advance lets happen what is next, if it is not after until, and reports whether anything was.
func (f *Fleet) advance(until time.Duration) bool {
	if looks := f.before(until); len(looks) > 0 {
		f.grow(looks)
		return true
	}
	e, ok := f.next(until)
	if ok {
		f.handle(e)
	}
	return ok
}

// Finish lets time pass until all requests are over that come up to and including last. It returns an error if some never
// end: nobody serves them and no deadline holds.
func (f *Fleet) Finish(last time.Duration) error {
	return f.FinishUnless(last, func() bool { return false })
}

// askEvery is how many events happen between two questions of FinishUnless.
const askEvery = 1024

// FinishUnless is Finish, but ends early once stop, which is asked now and then after last, returns true. Then Running tells how many
// requests are not over.
func (f *Fleet) FinishUnless(last time.Duration, stop func() bool) error {
	f.Run(last)
	f.exhausted = true // the arrival that is planned is void
	f.m.freeze(f.now, f.loads)
	for n := 0; f.running > 0; n++ {
		if n%askEvery == 0 && stop() {
			return nil
		}
		if !f.advance(1<<63 - 1) {
			return fmt.Errorf("%d requests are never served: no server works on them and no deadline ends them", f.running)
		}
	}
	return nil
}

// Now returns the time since the simulation began.
func (f *Fleet) Now() time.Duration { return f.now }

// Running returns how many requests are not over.
func (f *Fleet) Running() int { return f.running }

// InSystem returns how many attempts a deployment has now.
func (f *Fleet) InSystem(deployment int) int { return f.deployments[deployment].inSystem }

// View returns what a balancer knows.
func (f *Fleet) View(balancer int) route.View { return f.balancers[balancer].router.View(wall(f.now)) }

// Result sums up what was measured so far.
func (f *Fleet) Result() *Result { return f.m.result(f.now, f.loads) }

func (f *Fleet) handle(e event) {
	switch e.kind {
	case arrival:
		if !f.exhausted {
			f.arrive()
		}
	case step:
		if d := f.deployments[e.index]; e.gen == d.gen {
			d.due = -1
			f.step(d)
		}
	case tick:
		f.tick(f.balancers[e.index])
	case fault:
		f.befall(&f.o.Faults[e.index])
	case scrape:
		f.scrape(f.balancers[e.index])
	case hearsay:
		f.hear()
	case burnt:
		f.measuring, f.first = true, f.ordinal
		f.m.burn(f.now, f.loads)
	default:
		if c := f.clients[e.index]; e.gen == c.gen || e.kind == alarm {
			f.notice(c, e.kind)
		}
	}
}

// fetch takes the next request of the source and plans its arrival.
func (f *Fleet) fetch() {
	if f.exhausted = !f.o.Source.Next(&f.upcoming); !f.exhausted {
		f.plan(f.upcoming.At, arrival, 0, 0)
	}
}

// arrive begins the upcoming request at one of the balancers.
func (f *Fleet) arrive() {
	c := f.client()
	c.request = f.upcoming
	if seed := f.policies.Uint64(); c.request.Seed == 0 {
		c.request.Seed = seed
	}
	b := f.comesTo()
	f.fetch()
	f.m.counts.Arrived++
	c.ordinal = -1
	if f.measuring {
		c.ordinal = f.ordinal - f.first
	}
	f.ordinal++
	f.begin(c, b)
}

// watch plans a deployment's next step.
func (f *Fleet) watch(d *deployment) {
	at, ok := d.server.Next()
	if !ok {
		at = -1
	}
	if at == d.due {
		return
	}
	d.due = at
	d.gen++
	if ok {
		f.plan(at, step, d.index, d.gen)
	}
}

// step takes what a deployment's server reports.
func (f *Fleet) step(d *deployment) {
	f.reports = append(f.reports[:0], d.server.Step(f.now)...) // what follows may submit to the server
	for _, r := range f.reports {
		f.reported(d, r)
	}
	f.watch(d)
}

// tickEvery is how often a balancer looks at those who wait, as the process does.
const tickEvery = 250 * time.Millisecond

func (f *Fleet) tick(b *balancer) {
	b.ticking = false
	next := b.router.Tick(wall(f.now))
	if b.waiting == 0 {
		return
	}
	wait := tickEvery
	if !next.IsZero() {
		wait = min(max(next.Sub(wall(f.now)), time.Millisecond), tickEvery)
	}
	b.ticking = true
	f.plan(f.now+wait, tick, b.index, 0)
}

// befall makes a fault true.
func (f *Fleet) befall(x *Fault) {
	d := f.deployments[x.Deployment]
	switch x.Kind {
	case Leaving, Coming:
		order := route.Drain
		if x.Kind == Coming {
			order = route.Automatic
		}
		for _, b := range f.balancers {
			if err := b.router.Override(wall(f.now), "deployment", d.id, order); err != nil && f.o.Subset == nil {
				panic("BUG: sim: " + err.Error())
			}
		}
		return
	case Slowed:
		if s, ok := d.server.(Slower); ok {
			s.Slow(f.now, x.Factor)
			f.watch(d)
		}
		return
	case Down:
		f.breakOff(d)
	case Mended:
		if x.Server != nil {
			f.breakOff(d)
			d.server, f.o.Servers[x.Deployment] = x.Server, x.Server
			f.watch(d)
		}
	}
	d.state = x.Kind
}

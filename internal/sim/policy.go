package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/route"
)

// Policy is a strategy that keeps a picture of the deployments of its own, as other routers do. Evenkeel's own strategies
// need none: their Router gives them all they know. A Policy belongs to one balancer.
type Policy interface {
	route.Strategy
	// Learn takes what happens to the balancer's attempts, and what it scrapes, in order of time.
	Learn(*Notice)
}

// Vantage is where a Policy stands.
type Vantage struct {
	Seed      uint64   // of what it may draw beside what a Round draws; another one for each balancer
	Balancer  int      // which one it belongs to, of Balancers
	Balancers int      // how many there are
	IDs       []string // Candidate.ID of each deployment, in order
	// Request returns the request whose Facts have this seed, while it runs: a Pick sees bytes, and other routers count tokens
	// and read session headers.
	Request func(seed uint64) *Request
	// CacheTokens is how large a deployment's prefix cache is said to be, true or not; 0 = nothing is said.
	CacheTokens int
	// Servers are the deployments themselves, at every moment. Only a yardstick looks into them; what a router may ask is what engines
	// tell on request or as events: Scraper.Load for a probe, Engine.Cached for KV events.
	Servers []Server
}

// Notice is something that a Policy is told. It and its Request are valid during the call.
type Notice struct {
	Kind       NoticeKind
	At         time.Duration
	Deployment int
	Foreign    bool // it is from another balancer (Sharing)

	// Of all but Scraped.
	Attempt uint64 // unique among all attempts of a simulation
	Request *Request
	// Of FirstToken and Over.
	Cached int           // prompt tokens that the engine says its cache held
	TTFT   time.Duration // from the attempt's dispatch, 0 = no token came
	// Of Over.
	OK     bool // it is answered in full
	Output int  // tokens

	Load engine.Load // of Scraped
}

// NoticeKind says what a Notice is about.
type NoticeKind uint8

// The kinds of notices.
const (
	Sent    NoticeKind = iota // an attempt went to the deployment that the Policy picked
	Begun                     // its first token came
	Over                      // it ended
	Scraped                   // the deployment's metrics were read
)

// Scrapes say how balancers read the metrics of engines: a Policy learns them, and without one the balancer's Router does, as signals.
// The zero value reads none.
type Scrapes struct {
	Every time.Duration // from one reading of a deployment to the next
	// Together reads all deployments at the same moment; else each has its own, spread over Every.
	Together bool
}

// Sharing says what balancers tell each other. The zero value is nothing.
type Sharing struct {
	On    bool          // each Policy learns all notices of the others but their scrapes
	Delay time.Duration // after this long
}

// Scraper is implemented by servers that have metrics.
type Scraper interface {
	Load(now time.Duration) engine.Load
}

// adviser is a balancer's Policy, if it has one, and what scraping needs.
type adviser struct {
	policy Policy
	next   int // deployment that is scraped next, if not all together
}

// shared is a notice on its way to the other balancers.
type shared struct {
	Notice
	from int32
}

// advise gives a balancer its strategy.
func (f *Fleet) advise(b *balancer) (route.Strategy, error) {
	if f.o.Scrapes.Every > 0 {
		f.plan(0, scrape, b.index, 0)
	}
	if f.o.Policy == nil {
		return f.o.Strategy, nil
	}
	v := Vantage{Seed: mix(mix(f.o.Seed) + uint64(b.index)), Balancer: int(b.index), Balancers: f.o.Balancers, CacheTokens: f.o.CacheTokens, Servers: f.o.Servers}
	v.Request = func(seed uint64) *Request { return f.requests[seed] }
	for _, d := range f.deployments {
		v.IDs = append(v.IDs, d.id)
	}
	p, err := f.o.Policy(v)
	if err != nil {
		return nil, fmt.Errorf("the policy of balancer %d: %w", b.index, err)
	}
	b.adviser.policy = p
	return p, nil
}

// scrape reads metrics for a balancer, and plans when it does next.
func (f *Fleet) scrape(b *balancer) {
	if f.exhausted && !f.busy() {
		return // else time would never end
	}
	a, s := &b.adviser, f.o.Scrapes
	if s.Together {
		for _, d := range f.deployments {
			f.read(b, d)
		}
		f.plan(f.now+s.Every, scrape, b.index, 0)
		return
	}
	f.read(b, f.deployments[a.next])
	n := len(f.deployments)
	due := func(i int) time.Duration {
		return time.Duration(math.Round(float64(s.Every) * float64(i) / float64(n)))
	}
	wait := due(a.next+1) - due(a.next)
	a.next = (a.next + 1) % n
	f.plan(f.now+wait, scrape, b.index, 0)
}

// busy reports whether any deployment works.
func (f *Fleet) busy() bool {
	return slices.ContainsFunc(f.deployments, func(d *deployment) bool { return d.due >= 0 })
}

func (f *Fleet) read(b *balancer, d *deployment) {
	if d.state == Down { // nobody answers
		return
	}
	l := engine.Load{Running: d.inSystem}
	if s, ok := d.server.(Scraper); ok {
		l = s.Load(f.now)
	}
	if p := b.adviser.policy; p != nil {
		p.Learn(&Notice{Kind: Scraped, At: f.now, Deployment: int(d.index), Load: l})
		return
	}
	b.router.Signal(wall(f.now), d.endpoint, d.model, signal(wall(f.now), d, l))
}

// signal is what a load says in the words of a Router.
func signal(now time.Time, d *deployment, l engine.Load) route.Signal {
	s := route.Untold(now)
	s.Running, s.Waiting = l.Running, l.Waiting
	if e, ok := d.server.(interface{ BlockTokens() int }); ok && l.Blocks > 0 {
		s.KVUse, s.CacheTokens = float64(l.Used)/float64(l.Blocks), l.Blocks*e.BlockTokens()
	}
	return s
}

// note tells the balancer's Policy, and in time those of the others, about an attempt.
func (f *Fleet) note(c *client, fl *flight, k NoticeKind) {
	if f.o.Policy == nil {
		return
	}
	n := Notice{Kind: k, At: f.now, Deployment: int(fl.deployment.index), Attempt: fl.number, Request: &c.request}
	if fl.first >= 0 {
		n.TTFT = fl.first - fl.sent
		n.Cached = fl.cached
	}
	if o := &fl.end.Outcome; k == Over {
		n.OK, n.Output = o.Verdict == route.Success, o.OutputTokens
	}
	c.at.adviser.policy.Learn(&n)
	if f.o.Sharing.On && len(f.balancers) > 1 {
		r := c.request // the client is used again
		n.Request, n.Foreign = &r, true
		f.shared = append(f.shared, shared{n, c.at.index})
		f.plan(f.now+f.o.Sharing.Delay, hearsay, 0, 0)
	}
}

// hear delivers the oldest notice that is on its way: all take equally long.
func (f *Fleet) hear() {
	s := &f.shared[f.heard]
	for _, b := range f.balancers {
		if b.index != s.from {
			n := s.Notice
			b.adviser.policy.Learn(&n)
		}
	}
	*s = shared{}
	if f.heard++; 2*f.heard > len(f.shared) {
		f.shared = append(f.shared[:0], f.shared[f.heard:]...)
		f.heard = 0
	}
}

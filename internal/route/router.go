package route

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Router holds what is known about deployments and decides where requests go. All methods may be called
// concurrently.
type Router struct {
	maxWaiting int // waiters per model, 0 = no limit

	mu      sync.Mutex
	epoch   uint64
	pools   map[string]*pool
	units   map[key]*unit // every deployment's and scope's unit that is a member or in use
	nodes   map[key]*node
	models  map[string]*modelStats
	queues  map[string]*queue
	waiters int
	seq     uint64 // of tickets
	picks   uint64
	sweeps  uint64

	// Scratch of choose, valid until the next one.
	candidates []Candidate
	eligible   []*node
	full       []*unit // units whose limits cut somebody
	medians    []float64
	round      Round
}

// Options of a Router.
type Options struct {
	MaxWaiting int // waiters per model; more are refused. 0 = no limit
}

// New returns a Router without deployments.
func New(o Options) *Router {
	return &Router{
		maxWaiting: o.MaxWaiting,
		pools:      map[string]*pool{},
		units:      map[key]*unit{},
		nodes:      map[key]*node{},
		models:     map[string]*modelStats{},
		queues:     map[string]*queue{},
	}
}

// Adopt replaces the fleet and returns its epoch. Live state is kept by ID and URL. Waiters whose model is
// gone are answered at once. An error names the first spec that is not valid; nothing is changed then.
func (r *Router) Adopt(now time.Time, specs []PoolSpec) (uint64, error) {
	if err := validate(specs); err != nil {
		return 0, err
	}
	r.mu.Lock()
	for _, u := range r.units {
		u.member = false
	}
	r.epoch++
	pools := make(map[string]*pool, len(specs))
	for _, s := range specs {
		pools[s.Model] = r.bind(s)
	}
	r.pools = pools
	for _, u := range r.units {
		r.forget(u)
	}
	epoch := r.epoch
	woken := r.sweep(now)
	r.mu.Unlock()
	wake(woken)
	return epoch, nil
}

func validate(specs []PoolSpec) error {
	models := map[string]bool{}
	for _, s := range specs {
		if models[s.Model] {
			return fmt.Errorf("model %q is described twice", s.Model)
		}
		models[s.Model] = true
		if s.Strategy == nil {
			return fmt.Errorf("model %q has no strategy", s.Model)
		}
		for i, d := range s.Deployments {
			switch {
			case !(d.Weight >= 0) || d.Weight > 1e9: // also refuses NaN
				return fmt.Errorf("deployment %q: weight %v is not between 0 and 1e9", d.ID, d.Weight)
			case d.Limits.InFlight < 0 || d.Limits.Tokens < 0:
				return fmt.Errorf("deployment %q: a limit is negative", d.ID)
			case len(d.Scopes) > MaxScopes:
				return fmt.Errorf("deployment %q has %d scopes, at most %d are possible", d.ID, len(d.Scopes), MaxScopes)
			case slices.ContainsFunc(s.Deployments[:i], func(o Deployment) bool { return o.ID == d.ID }):
				return fmt.Errorf("model %q names deployment %q twice", s.Model, d.ID)
			}
		}
	}
	return nil
}

func (r *Router) bind(s PoolSpec) *pool {
	p := &pool{model: s.Model, strategy: s.Strategy, tuning: DefaultTuning, stats: r.models[s.Model]}
	if p.stats == nil {
		p.stats = &modelStats{}
		r.models[s.Model] = p.stats
	}
	if t, ok := s.Strategy.(Tuner); ok {
		p.tuning = t.Tuning()
	}
	for i := range s.Deployments {
		d := &s.Deployments[i]
		n := r.node(d)
		n.tuning = p.tuning
		p.nodes = append(p.nodes, n)
	}
	if old := r.pools[s.Model]; old != nil && slices.Equal(old.nodes, p.nodes) {
		p.run = old.run
	}
	return p
}

// node finds or makes a deployment's live state and gives it the new description.
func (r *Router) node(d *Deployment) *node {
	k := key{'d', d.ID, d.URL}
	n := r.nodes[k]
	if n == nil {
		n = &node{unit: unit{key: k}}
		r.nodes[k] = n
		r.units[k] = &n.unit
	}
	n.dep, n.limits, n.member = d, d.Limits, true
	n.scopes = n.scopes[:0:0] // leases hold their own pointers
	for _, s := range d.Scopes {
		sk := key{'s' + byte(s.Kind), s.Name, s.URL}
		u := r.units[sk]
		if u == nil {
			u = &unit{key: sk}
			r.units[sk] = u
		}
		u.limits, u.member = s.Limits, true
		n.scopes = append(n.scopes, u)
	}
	return n
}

// forget drops the state of what left the fleet, once nothing runs there any more.
func (r *Router) forget(u *unit) {
	if !u.member && u.inFlight == 0 {
		delete(r.units, u.key)
		delete(r.nodes, u.key)
	}
}

// RefusalKind says why there is no lease.
type RefusalKind uint8

// The kinds of refusal.
const (
	Saturated   RefusalKind = iota // somebody is eligible but has no room: waiting helps
	Unavailable                    // nobody is eligible
	NoModel                        // the fleet does not know the model
	QueueFull                      // too many wait already
)

func (k RefusalKind) String() string {
	return [...]string{"saturated", "unavailable", "no_model", "queue_full"}[k]
}

// Refusal says why a query got no lease.
type Refusal struct {
	Kind     RefusalKind
	Decision *Decision
	RetryIn  time.Duration // Unavailable: until the soonest candidate may be tried again, 0 = unknown
}

// Pick chooses a deployment and reserves it, in one step. Exactly one of the results is nil. A Saturated
// refusal may be followed by Wait with the same query.
func (r *Router) Pick(now time.Time, q Query) (*Lease, *Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiters == 0 {
		return r.choose(now, q, 0)
	}
	// Nobody overtakes those who wait: where somebody waits for the same rooms, the queue serves both in order.
	r.sweeps++
	for model := range r.queues {
		if p := r.pools[model]; p != nil {
			for _, n := range p.nodes {
				n.eachUnit(func(u *unit) { u.blocked = r.sweeps })
			}
		}
	}
	return r.choose(now, q, r.sweeps)
}

// choose filters, ranks and reserves. sweep, if not 0, is the sweep whose claims count.
func (r *Router) choose(now time.Time, q Query, sweep uint64) (*Lease, *Refusal) {
	p := r.pools[q.Model]
	if p == nil {
		return nil, &Refusal{Kind: NoModel, Decision: &Decision{At: now, Epoch: r.epoch, Seed: q.Facts.Seed, Draw: q.Draw, Model: q.Model}}
	}
	prompt, output := p.stats.promptTokens(q.Facts), p.stats.outputTokens(q.Facts)
	r.filter(now, p, &q, prompt+output, sweep)
	if len(r.eligible) == 0 {
		d := &Decision{}
		r.describe(d, now, p, &q, prompt, output, -1)
		return nil, r.refuse(d)
	}
	sameSet := p.run.is(r.eligible)
	r.round = Round{Now: now, Facts: q.Facts, Candidates: r.candidates[:len(r.eligible)]}
	r.round.pcg.Seed(q.Facts.Seed, uint64(q.Draw))
	if sameSet {
		r.round.RunTotal = p.run.total
		for i := range r.eligible {
			r.candidates[i].RunPicks = p.run.picks[i]
		}
	}
	r.fillTTFT(p)
	i := p.strategy.Pick(&r.round)
	l := r.reserve(now, p, &q, i, prompt, output)
	r.describe(&l.decision, now, p, &q, prompt, output, i)
	l.decision.RunTotal = r.round.RunTotal
	// A second choice of the same request has a smaller field; it must not restart the run.
	if len(q.Tried) == 0 {
		p.run.chosen(r.eligible, i)
	}
	return l, nil
}

// filter fills r.eligible and r.candidates (eligible first, then cut) and r.full.
func (r *Router) filter(now time.Time, p *pool, q *Query, tokens int, sweep uint64) {
	r.eligible, r.candidates, r.full = r.eligible[:0], r.candidates[:0], r.full[:0]
	for _, n := range p.nodes {
		if cut, _, _ := r.cut(now, n, q, tokens, sweep); cut == CutNone {
			r.eligible = append(r.eligible, n)
			r.candidates = append(r.candidates, n.candidate())
		}
	}
	if len(r.eligible) == len(p.nodes) {
		return
	}
	for _, n := range p.nodes {
		cut, by, until := r.cut(now, n, q, tokens, sweep)
		if cut == CutNone {
			continue
		}
		c := n.candidate()
		c.Cut, c.Until = cut, until
		if by != &n.unit {
			c.CutBy = ScopeKind(by.key.kind-'s').String() + " " + by.key.name
		}
		if cut.capacity() {
			r.full = append(r.full, by)
		}
		r.candidates = append(r.candidates, c)
	}
}

func (n *node) candidate() Candidate {
	return Candidate{
		ID: n.dep.ID, Weight: n.dep.Weight, InFlight: n.inFlight, Tokens: n.tokens, Work: n.work,
		TTFT: n.ttft.seconds, Samples: n.ttft.samples, LastPick: n.lastPick,
	}
}

// cut says why a node is not eligible, by which unit, and for how long if that ends by time.
func (r *Router) cut(now time.Time, n *node, q *Query, tokens int, sweep uint64) (Cut, *unit, time.Duration) {
	f := q.Facts
	switch {
	case n.dep.Weight == 0:
		return CutWeight, &n.unit, 0
	case f.Pin != "" && f.Pin != n.dep.ID && f.Pin != n.dep.Endpoint:
		return CutPinned, &n.unit, 0
	case slices.Contains(f.ExcludeNames, n.dep.ID) || slices.Contains(f.ExcludeNames, n.dep.Endpoint):
		return CutExcluded, &n.unit, 0
	}
	for i := -1; i < len(n.scopes); i++ {
		u := &n.unit
		if i >= 0 {
			u = n.scopes[i]
		}
		if ok, _ := u.breaker.admits(now); !ok {
			if u.breaker.state(now) == HalfOpen {
				return CutTrial, u, 0
			}
			return CutOpen, u, u.breaker.until.Sub(now)
		}
	}
	if slices.Contains(q.Tried, n.dep.ID) {
		return CutTried, &n.unit, 0
	}
	for i := -1; i < len(n.scopes); i++ {
		u := &n.unit
		if i >= 0 {
			u = n.scopes[i]
		}
		switch {
		case sweep != 0 && u.blocked == sweep:
			return CutEarlier, u, 0
		case u.limits.InFlight > 0 && u.inFlight >= u.limits.InFlight:
			return CutInFlight, u, 0
		case !u.fits(tokens):
			return CutTokens, u, 0
		}
	}
	return CutNone, nil, 0
}

// fillTTFT gives newcomers an expected TTFT derived from the others'.
func (r *Router) fillTTFT(p *pool) {
	newcomer := -1.0
	for i := range r.round.Candidates {
		c := &r.round.Candidates[i]
		if c.Samples > 0 {
			continue
		}
		if newcomer < 0 {
			if cap(r.medians) < len(p.nodes) {
				r.medians = make([]float64, 0, len(p.nodes))
			}
			newcomer = newcomerSeconds(p.nodes, r.medians)
		}
		c.TTFT = newcomer
	}
}

// reserve counts the request in the chosen node and all its scopes.
func (r *Router) reserve(now time.Time, p *pool, q *Query, i, prompt, output int) *Lease {
	n := r.eligible[i]
	l := &Lease{
		router: r, node: n, dep: n.dep, stats: p.stats, facts: q.Facts, begun: now, folded: now,
		tokens: prompt + output, work: prompt + output, prompt: prompt, expected: output,
	}
	for i := -1; i < len(n.scopes); i++ {
		u := &n.unit
		if i >= 0 {
			u = n.scopes[i]
		}
		_, trial := u.breaker.admits(now)
		if trial {
			u.breaker.trial = true
		}
		u.inFlight++
		u.tokens += l.tokens
		l.marks[l.nmarks] = mark{unit: u, gen: u.breaker.gen, trial: trial}
		l.nmarks++
	}
	n.work += l.work
	r.picks++
	n.lastPick = r.picks
	n.totals.Picks++
	return l
}

func (r *Router) describe(d *Decision, now time.Time, p *pool, q *Query, prompt, output, chosen int) {
	d.At, d.Epoch, d.Seed, d.Draw, d.Model = now, r.epoch, q.Facts.Seed, q.Draw, p.model
	d.Strategy = nameOf(p.strategy)
	d.Prompt, d.Output = prompt, output
	if chosen >= 0 {
		d.Chosen = r.candidates[chosen].ID
	}
	d.record(r.candidates, len(r.eligible), chosen)
}

// refuse turns a decision without a choice into a refusal.
func (r *Router) refuse(d *Decision) *Refusal {
	f := &Refusal{Kind: Unavailable, Decision: d}
	for i := range r.candidates {
		c := &r.candidates[i]
		switch {
		case c.Cut.capacity():
			f.Kind = Saturated
		case c.Cut == CutOpen && (f.RetryIn == 0 || c.Until < f.RetryIn):
			f.RetryIn = c.Until
		case c.Cut == CutTrial && (f.RetryIn == 0 || f.RetryIn > firstOut):
			f.RetryIn = firstOut
		}
	}
	return f
}

func nameOf(s Strategy) string {
	if n, ok := s.(fmt.Stringer); ok {
		return n.String()
	}
	return fmt.Sprintf("%T", s)
}

// Observe takes what was seen of an endpoint without a request: that it answers, or that nothing does.
func (r *Router) Observe(now time.Time, s Scope, reachable bool) {
	r.mu.Lock()
	u := r.units[key{'s' + byte(s.Kind), s.Name, s.URL}]
	if u == nil {
		r.mu.Unlock()
		return
	}
	b := &u.breaker
	switch {
	case reachable && b.tripped && now.Before(b.until):
		b.until = now // half-open: the next request is the trial
	case !reachable && !b.tripped:
		b.trip(now, "unreachable")
	case !reachable && !b.trial && b.until.Sub(now) < firstOut:
		b.until = now.Add(firstOut) // a trial would fail too
	}
	woken := r.sweep(now)
	r.mu.Unlock()
	wake(woken)
}

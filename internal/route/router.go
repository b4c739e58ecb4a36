package route

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"evenkeel/internal/prefix"
)

// Router holds what is known about deployments and decides where requests go. All methods may be called
// concurrently.
type Router struct {
	index   *prefix.Index
	scratch sync.Pool // of *[]prefix.Match

	mu         sync.Mutex
	maxWaiting int // waiters per model, 0 = no limit
	health     Health
	epoch      uint64
	blockBytes int // Facts.PrefixBytes that the index is sized for
	pools      map[string]*pool
	units      map[key]*unit // every deployment's and scope's unit that is a member or in use
	nodes      map[key]*node
	engines    map[key]*engine
	asked      uint64            // signals so far
	orders     map[key]keptOrder // about units that are forgotten
	models     map[string]*modelStats
	queues     map[class]*queue
	waiting    map[string]int       // waiters by model
	held       map[string][]*Ticket // by model, in order of arrival; see Holder
	seq        uint64               // of tickets
	picks      uint64
	sweeps     uint64

	// Scratch of choose, valid until the next one.
	candidates []Candidate
	eligible   []*member
	charges    []charge  // by eligible one, where the strategy looks at forecasts
	verdicts   []verdict // by member
	full       []*unit   // units whose limits cut somebody
	panicking  bool
	calm       bool    // nothing is the matter with any breaker of those who are eligible, nor was lately
	part       *member // see apportion
	home       Home    // see stay
	past       past    // see turnBefore
	round      Round
	soonest    time.Duration // until a limit per minute has room for who was looked at last, 0 = none has to be waited for
	timely     int           // waiters with a deadline
	reviewed   time.Time     // when it was last seen whether waiters can be served in time
	due        time.Time     // when waiters are to be looked at again, zero = when something ends
}

// Options of a Router.
type Options struct {
	MaxWaiting int // waiters per model; more are refused. 0 = no limit
	Health     Health
	Seed       uint64 // of what must differ from one replica to the other beside decisions: when those that are out are tried again
}

func (o *Options) health() Health {
	h := o.Health.withDefaults()
	h.seed = o.Seed
	return h
}

// Configure replaces the options. Those who wait already keep their places.
func (r *Router) Configure(o Options) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.health.TTFTThreshold
	r.maxWaiting, r.health = o.MaxWaiting, o.health()
	if r.health.TTFTThreshold != before {
		for _, u := range r.units {
			u.breaker.slow.threshold = gauge{} // it was held against another one
		}
	}
}

// New returns a Router without deployments.
func New(o Options) *Router {
	return &Router{
		index:      prefix.New(),
		maxWaiting: o.MaxWaiting,
		health:     o.health(),
		pools:      map[string]*pool{},
		units:      map[key]*unit{},
		nodes:      map[key]*node{},
		engines:    map[key]*engine{},
		orders:     map[key]keptOrder{},
		models:     map[string]*modelStats{},
		queues:     map[class]*queue{},
		waiting:    map[string]int{},
		held:       map[string][]*Ticket{},
	}
}

// Adopt replaces the fleet and returns its epoch. Live state is kept by ID and URL. Waiters whose model is
// gone are answered at once. An error names the first spec that is not valid; nothing is changed then.
func (r *Router) Adopt(now time.Time, specs []PoolSpec) (uint64, error) {
	if err := validate(specs); err != nil {
		return 0, err
	}
	epoch, woken := r.replace(now, specs)
	wake(woken)
	return epoch, nil
}

func (r *Router) replace(now time.Time, specs []PoolSpec) (uint64, []*Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.units {
		u.member, u.sharers = false, nil
	}
	r.epoch++
	r.expire(now)
	pools := make(map[string]*pool, len(specs))
	for _, s := range specs {
		pools[s.Model] = r.bind(now, s)
	}
	r.pools = pools
	for _, u := range r.units {
		r.forget(now, u)
	}
	for model := range r.models {
		r.forgetModel(model)
	}
	return r.epoch, r.sweep(now)
}

func validate(specs []PoolSpec) error {
	models := map[string]bool{}
	described := map[key]*Deployment{}
	limits := map[Scope]Limits{} // by identity, that is without limits
	for _, s := range specs {
		if models[s.Model] {
			return fmt.Errorf("model %q is described twice", s.Model)
		}
		models[s.Model] = true
		if s.Strategy == nil {
			return fmt.Errorf("model %q has no strategy", s.Model)
		}
		if l := s.Affinity.SlowdownLimit; l != 0 && !(l >= 1) {
			return fmt.Errorf("model %q has the slowdown limit %v, which is below 1", s.Model, l)
		}
		ids := make(map[string]bool, len(s.Deployments))
		for i := range s.Deployments {
			d := &s.Deployments[i]
			if ids[d.ID] {
				return fmt.Errorf("model %q names deployment %q twice", s.Model, d.ID)
			}
			ids[d.ID] = true
			if err := d.validate(limits); err != nil {
				return fmt.Errorf("deployment %q: %w", d.ID, err)
			}
			other := described[d.key()]
			if other != nil && (other.Limits != d.Limits || !slices.Equal(other.Scopes, d.Scopes)) {
				return fmt.Errorf("deployment %q: models give it different limits or scopes", d.ID)
			}
			described[d.key()] = d
		}
	}
	return nil
}

// validate checks a deployment by itself, and its scopes against those seen before.
func (d *Deployment) validate(seen map[Scope]Limits) error {
	switch {
	case d.Weight != 0 && !(d.Weight >= minWeight && d.Weight <= maxWeight): // also refuses NaN
		return fmt.Errorf("weight %v is neither 0 nor between %v and %v", d.Weight, minWeight, maxWeight)
	case d.Price.negative():
		return fmt.Errorf("a price is negative: %+v", d.Price)
	case d.Limits.negative():
		return fmt.Errorf("a limit is negative: %+v", d.Limits)
	case len(d.Scopes) > MaxScopes:
		return fmt.Errorf("%d scopes, at most %d are possible", len(d.Scopes), MaxScopes)
	}
	for i, s := range d.Scopes {
		id := s
		id.Limits = Limits{}
		limits, known := seen[id]
		switch {
		case s.Limits.negative():
			return fmt.Errorf("%v %q: a limit is negative: %+v", s.Kind, s.Name, s.Limits)
		case known && limits != s.Limits:
			return fmt.Errorf("%v %q has limits %+v here and %+v elsewhere", s.Kind, s.Name, s.Limits, limits)
		case slices.Contains(d.Scopes[:i], s):
			return fmt.Errorf("%v %q is named twice", s.Kind, s.Name)
		}
		seen[id] = s.Limits
	}
	return nil
}

func (r *Router) bind(now time.Time, s PoolSpec) *pool {
	p := &pool{model: s.Model, strategy: s.Strategy, tuning: DefaultTuning, stats: r.models[s.Model]}
	if p.stats == nil {
		p.stats = &modelStats{}
		r.models[s.Model] = p.stats
	}
	if t, ok := s.Strategy.(Tuner); ok {
		p.tuning = t.Tuning()
	}
	if t, ok := s.Strategy.(Foresighted); ok {
		p.foresees = t.Foresees()
	}
	p.holder, _ = s.Strategy.(Holder)
	if t, ok := s.Strategy.(Steady); ok {
		p.steady = t.Steady()
	}
	if !p.foresees && !p.steady {
		p.affinity = s.Affinity
		p.affinity.SlowdownLimit = cmp.Or(s.Affinity.SlowdownLimit, DefaultSlowdownLimit)
	}
	lastPicks, warm := map[*node]uint64{}, false
	old := r.pools[s.Model]
	if old != nil {
		for _, m := range old.members {
			lastPicks[m.node] = m.lastPick
			warm = warm || m.node.totals.Successes > 0
		}
		if nameOf(old.strategy) == nameOf(s.Strategy) { // shares are due by one strategy's picks, not by another's
			p.runs, p.picks = old.runs, old.picks
		}
	}
	for i := range s.Deployments {
		d := &s.Deployments[i]
		_, known := r.nodes[d.key()]
		n := r.node(now, d)
		if !known && warm { // it joins others, who need not be spared; it is cold
			n.breaker.close(now, &r.health, r.health.SlowStart, true)
		}
		p.members = append(p.members, member{node: n, dep: d, lastPick: lastPicks[n]})
	}
	return p
}

// node finds or makes a deployment's live state and gives it the new description.
func (r *Router) node(now time.Time, d *Deployment) *node {
	k := d.key()
	n := r.nodes[k]
	if n == nil {
		n = &node{unit: unit{key: k}}
		r.nodes[k] = n
		r.units[k] = &n.unit
		r.recall(now, &n.unit)
	}
	n.setLimits(now, d.Limits)
	n.dep, n.member = d, true
	r.assign(n, d.engine())
	if tokens := cmp.Or(d.Cache, n.hint.size()); n.memory.tokens != tokens {
		n.memory.tokens = tokens
		r.index.Resize(n.memory.holder, n.memory.room(r.blockBytes))
	}
	n.units = []*unit{&n.unit}
	for _, s := range d.Scopes {
		u := r.units[s.key()]
		if u == nil {
			u = &unit{key: s.key(), label: s.Kind.String() + " " + s.Name}
			r.units[s.key()] = u
			r.recall(now, u)
		}
		u.setLimits(now, s.Limits)
		u.member = true
		n.units = append(n.units, u)
		if !slices.Contains(u.sharers, n) { // more than one model may have it
			u.sharers = append(u.sharers, n)
		}
	}
	return n
}

// forget drops the state of what left the fleet, once nothing runs there any more.
func (r *Router) forget(now time.Time, u *unit) {
	if !u.member && u.inFlight == 0 {
		r.keep(now, u.key, u.breaker.order)
		delete(r.units, u.key)
		if n := r.nodes[u.key]; n != nil {
			r.unassign(n)
			delete(r.nodes, u.key)
		}
	}
}

// forgetModel does the same for what was learned about a model.
func (r *Router) forgetModel(model string) {
	if s := r.models[model]; s != nil && r.pools[model] == nil && s.overload.drain.running == 0 {
		delete(r.models, model)
	}
}

// RefusalKind says why there is no lease.
type RefusalKind uint8

// The kinds of refusal.
const (
	Saturated   RefusalKind = iota // somebody is eligible but has no room: waiting helps
	Unavailable                    // nobody is eligible
	NoModel                        // the fleet does not know the model
	QueueFull                      // too many wait already, or were promised a place
	TooLate                        // those who wait would not leave room before Query.Until
	PerMinute                      // limits per minute leave no room before Query.Until
	Held                           // the best deployment is not ready to begin with it: waiting helps
)

func (k RefusalKind) String() string {
	return [...]string{"saturated", "unavailable", "no_model", "queue_full", "too_late", "per_minute", "held"}[k]
}

// Refusal says why a query got no lease.
type Refusal struct {
	Kind     RefusalKind
	Decision *Decision
	RetryIn  time.Duration // Unavailable: until the soonest candidate may be tried again; QueueFull, TooLate, PerMinute: until a place that is kept. 0 = unknown
	Limited  bool          // Unavailable: who might serve it has used up its quota at upstream, and nothing else is the matter

	best *node // Held: which is not ready
}

// bare is a refusal for which no candidate was looked at.
func (r *Router) bare(now time.Time, q *Query, k RefusalKind) *Refusal {
	return &Refusal{Kind: k, Decision: &Decision{At: now, Epoch: r.epoch, Seed: q.Facts.Seed, Draw: q.Draw, Model: q.Model}}
}

// Pick chooses a deployment and reserves it, in one step. Exactly one of the results is nil. A Saturated
// or Held refusal may be followed by Wait with the same query.
func (r *Router) Pick(now time.Time, q Query) (*Lease, *Refusal) {
	scratch, _ := r.scratch.Get().(*[]prefix.Match)
	if scratch == nil {
		scratch = new([]prefix.Match)
	}
	r.match(&q, *scratch)
	l, refusal, woken := r.pick(now, q)
	if l != nil {
		r.remember(l)
	}
	if q.matches != nil {
		*scratch = q.matches
	}
	r.scratch.Put(scratch)
	wake(woken)
	return l, refusal
}

func (r *Router) pick(now time.Time, q Query) (*Lease, *Refusal, []*Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queues) == 0 {
		if r.keptForOthers(now, &q) {
			return nil, r.bare(now, &q, Saturated), nil
		}
		l, refusal := r.choose(now, q, 0)
		r.arrived(now, &q, l)
		return l, refusal, nil
	}
	woken := r.sweep(now) // nobody overtakes: what waiters claim stays claimed
	l, refusal := r.choose(now, q, r.sweeps)
	r.arrived(now, &q, l)
	return l, refusal, woken
}

// choose filters, ranks and reserves. sweep, if not 0, is the sweep whose claims count.
func (r *Router) choose(now time.Time, q Query, sweep uint64) (*Lease, *Refusal) {
	p := r.pools[q.Model]
	if p == nil {
		return nil, r.bare(now, &q, NoModel)
	}
	prompt, output := p.stats.promptTokens(q.Facts), p.stats.outputTokens(q.Facts)
	r.sift(now, p, &q, prompt+output, sweep)
	ahead, kept := r.ahead(now, p), false
	switch r.home = (Home{}); {
	case r.goOn(p, &q):
		ahead, kept = nil, true
	case p.affinity.Mode != NoAffinity && ahead == nil:
		kept = r.stay(now, p, &q, prompt, output)
	}
	r.list(now, p)
	if len(r.eligible) == 0 {
		d := &Decision{}
		r.describe(d, now, p, &q, prompt, output, -1)
		return nil, r.refuse(d)
	}
	i, run := r.rank(now, p, &q, prompt, output, ahead, kept)
	if ahead == nil && r.holds(now, p, &q, r.eligible[i]) {
		d := &Decision{}
		r.describe(d, now, p, &q, prompt, output, -1)
		d.Outlook, d.Opening = r.round.Outlook, r.round.Opening
		return nil, &Refusal{Kind: Held, Decision: d, best: r.eligible[i].node}
	}
	if p.foresees && ahead == nil {
		r.charges[i].elsewhere, r.charges[i].lost = r.elsewhere(i), r.lost(i)
	}
	l := r.reserve(now, p, &q, i, prompt, output)
	r.describe(l.decision, now, p, &q, prompt, output, i)
	l.decision.Outlook, l.decision.Opening, l.decision.Home = r.round.Outlook, r.round.Opening, r.home
	l.decision.RunTotal, l.decision.Trial = r.round.RunTotal, ahead != nil
	if run != nil {
		run.picks[i]++
		run.total++
	}
	return l, nil
}

// rank returns which of r.eligible is to be chosen, ahead or else by the strategy, and the run that it belongs to.
func (r *Router) rank(now time.Time, p *pool, q *Query, prompt, output int, ahead *member, kept bool) (int, *run) {
	r.charges = r.charges[:0]
	r.remembered(p, q)
	if p.foresees {
		for i, m := range r.eligible {
			r.charges = append(r.charges, r.forecast(now, p, m, q, prompt, output))
			r.candidates[i].Forecast = r.charges[i].Forecast
		}
	}
	r.round = Round{Now: now, Facts: q.Facts, Candidates: r.candidates[:len(r.eligible)], Prompt: prompt, Output: output,
		Answer: p.stats.answerTokens(q.Facts), Outlook: p.stats.outlook.of(len(p.members))}
	r.round.Opening = q.Facts.Turns.opening(p)
	r.round.pcg.Seed(q.Facts.Seed, uint64(q.Draw))
	run := p.run(r.eligible, kept)
	if run != nil {
		r.round.RunTotal = run.total
		for i := range r.eligible {
			r.candidates[i].RunPicks = run.picks[i]
		}
	}
	if ahead != nil {
		return slices.Index(r.eligible, ahead), run
	}
	return p.strategy.Pick(&r.round), run
}

// ahead returns the member that goes before any that the strategy would choose, nil if there is none: who waits for
// its trial, since who is never tried never comes back, or who gets a part of its traffic, if the request is of that.
func (r *Router) ahead(now time.Time, p *pool) *member {
	if !r.panicking && !r.calm {
		for i := range r.verdicts {
			if r.verdicts[i].cut == CutNone && p.members[i].node.onTrial(now) {
				return &p.members[i]
			}
		}
	}
	return r.part
}

// mustWait reports whether nobody can serve q during this sweep, but somebody could if there were room.
func (r *Router) mustWait(now time.Time, q *Query) bool {
	p := r.pools[q.Model]
	if p == nil {
		return false
	}
	r.filter(now, p, q, p.stats.promptTokens(q.Facts)+p.stats.outputTokens(q.Facts), r.sweeps)
	return len(r.eligible) == 0 && len(r.full) > 0
}

// reserve counts the request in the chosen node, of those who are eligible, and all its scopes.
func (r *Router) reserve(now time.Time, p *pool, q *Query, chosen, prompt, output int) *Lease {
	m := r.eligible[chosen]
	n, l, d := m.node, q.Lease, q.Decision
	if l == nil {
		l = new(Lease)
	}
	if d == nil {
		d = new(Decision)
	}
	*l = Lease{
		router: r, node: n, engine: n.engine, dep: m.dep, pool: p, facts: q.Facts, begun: now, folded: now, decision: d,
		tokens: prompt + output, work: prompt + output, prompt: prompt, expected: output, charged: prompt + output,
		uncached: prompt, load: n.ahead, cold: n.ttft.samples == 0 || n.inFlight == 0 && now.Sub(n.ttft.at) >= p.tuning.ColdAfter,
	}
	l.patience = time.Duration(p.stats.speeds[sizeClass(prompt)].quantile(now, recentLeast) * float64(time.Second))
	n.picked = now
	p.stats.overload.drain.running++
	if p.foresees {
		l.charge = r.charges[chosen]
	} else {
		l.charge = r.forecast(now, p, m, q, prompt, output)
	}
	l.join(now, q)
	n.use(n.dep)
	for _, u := range n.units {
		free, trial := u.breaker.admits(now)
		trial = trial && free // in a panic requests pass beside the trial
		if trial {
			u.breaker.trials++
			u.breaker.tried = now
		}
		u.inFlight++
		u.tokens += l.tokens
		u.requests.Take(now, 1)
		paid := 0
		if u.volume.Limited() {
			paid = l.charged
			u.volume.Take(now, float64(paid))
		}
		l.marks[l.nmarks] = mark{unit: u, gen: u.breaker.gen, away: u.breaker.away, trial: trial, paid: paid}
		l.nmarks++
	}
	n.engine.running++
	n.held += l.tokens
	n.work += l.work
	n.ahead += prompt
	r.picks++
	m.lastPick, m.turn, l.pick = r.picks, p.picks, r.picks
	n.totals.Picks++
	if p.stats.sessions.at(q.Facts.Session) == nil { // the others of a burst go where its first one went
		l.keepSession()
	}
	l.keepEnd()
	if t := &q.Facts.Turns; t.End != 0 && t.Past[0].Hash == 0 {
		p.stats.begun++
		l.charge.begun = p.stats.begun
	}
	return l
}

func (r *Router) describe(d *Decision, now time.Time, p *pool, q *Query, prompt, output, chosen int) {
	*d = Decision{
		At: now, Epoch: r.epoch, Seed: q.Facts.Seed, Draw: q.Draw, Model: p.model, Strategy: nameOf(p.strategy),
		Prompt: prompt, Output: output, Answer: p.stats.answerTokens(q.Facts), Candidates: d.Candidates[:0], Omitted: d.Omitted[:0],
	}
	d.Panic = r.panicking
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
		until := c.Until
		if c.Cut.capacity() {
			f.Kind = Saturated
		}
		if until > 0 && (f.RetryIn == 0 || until < f.RetryIn) {
			f.RetryIn = until
		}
	}
	f.Limited = r.limited()
	return f
}

// limited reports whether all members that filter cut for what they are, not for what the request asks, are left alone
// because a quota at upstream is used up.
func (r *Router) limited() bool {
	some := false
	for i := range r.verdicts {
		switch v := &r.verdicts[i]; {
		case v.cut == CutCooling && v.by.breaker.limited:
			some = true
		case v.cut != CutWeight && v.cut != CutPinned && v.cut != CutExcluded && v.cut != CutTried:
			return false
		}
	}
	return some
}

func nameOf(s Strategy) string {
	if n, ok := s.(fmt.Stringer); ok {
		return n.String()
	}
	return fmt.Sprintf("%T", s)
}

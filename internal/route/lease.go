package route

import (
	"time"
)

// Verdict says whom the result of an attempt speaks about.
type Verdict uint8

// The verdicts.
const (
	NotDeploymentFault Verdict = iota // the client's fault, or the client left: teaches nothing about health
	Success
	DeploymentFault
)

func (v Verdict) String() string {
	return [...]string{"not_deployment_fault", "success", "deployment_fault"}[v]
}

// Outcome is what one attempt came to.
type Outcome struct {
	Verdict     Verdict
	Class       string        // error class, "" for success; a metric label, so of a fixed set
	Detail      string        // one line for people; never a secret, never prompt text
	Unreachable bool          // nothing answered at the endpoint's address: its scope is out at once
	Answered    bool          // a response head came
	Status      int           // upstream's status, 0 if none came
	TTFT        time.Duration // dispatch to first content, 0 if not streamed or none came
	ITL         time.Duration // mean time between tokens after the first, 0 if unknown
	RetryAfter  time.Duration // how long upstream asked to be left alone, 0 = did not

	InputTokens, CachedTokens, OutputTokens, ReasoningTokens int
	Reported                                                 bool // the numbers are the engine's own, not estimates

	ServedModel, Fingerprint string // as the answer says
}

// longestRetryAfter bounds how long a deployment may ask to be left alone.
const longestRetryAfter = time.Minute

// foldEvery is how often a lease's progress is folded into its deployment's outstanding work.
const foldEvery = 250 * time.Millisecond

// Lease is the right to use one deployment for one attempt. It is counted in the deployment and all its
// scopes from Pick until Done. FirstToken and Progress are called by one goroutine at a time; Done may be
// called by any, any number of times: the first counts.
type Lease struct {
	router *Router
	node   *node
	dep    *Deployment
	pool   *pool // as it was then
	facts  *Facts
	marks  [1 + MaxScopes]mark
	nmarks int

	tokens   int // reserved
	work     int // still charged to the node's outstanding work
	prompt   int // share of work that the prompt stands for, until the first token
	expected int // output tokens expected
	folded   time.Time
	begun    time.Time
	done     bool // guarded by Router.mu

	decision *Decision
}

// mark remembers in which generation of a unit's breaker a lease began, and whether as its trial.
type mark struct {
	unit  *unit
	gen   uint32
	trial bool
}

// Deployment returns what may be used.
func (l *Lease) Deployment() *Deployment { return l.dep }

// Decision returns why this deployment was chosen.
func (l *Lease) Decision() *Decision { return l.decision }

// Begun returns when the lease was given.
func (l *Lease) Begun() time.Time { return l.begun }

// Prompt returns the estimate of the prompt's tokens that the lease was charged with.
func (l *Lease) Prompt() int { return l.decision.Prompt }

// FirstToken says that the first content came: the prompt's work is over, and a trial has succeeded.
func (l *Lease) FirstToken(now time.Time) { wake(l.firstToken(now)) }

func (l *Lease) firstToken(now time.Time) []*Ticket {
	r := l.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.done {
		return nil
	}
	l.node.work -= l.prompt
	l.work -= l.prompt
	l.prompt = 0
	l.folded = now
	closed := false
	for i := range l.marks[:l.nmarks] {
		m := &l.marks[i]
		if m.trial && m.gen == m.unit.breaker.gen {
			m.unit.breaker.learn(now, promising, m.gen, true, "")
			m.trial, m.gen = false, m.unit.breaker.gen
			closed = true
		}
	}
	if !closed {
		return nil
	}
	return r.sweep(now)
}

// Progress says how many output tokens the attempt has produced so far. It is cheap: the Router's state is
// touched at most every 250 ms.
func (l *Lease) Progress(now time.Time, outputTokens int) {
	if now.Sub(l.folded) < foldEvery {
		return
	}
	l.folded = now
	l.router.mu.Lock()
	defer l.router.mu.Unlock()
	if l.done {
		return
	}
	outputTokens = bounded(outputTokens)
	left := max(l.expected-outputTokens, 0) + l.prompt
	l.node.work += left - l.work
	l.work = left
	if held := l.decision.Prompt + max(l.expected, outputTokens); held > l.tokens {
		l.reserve(held - l.tokens)
	}
}

func (l *Lease) reserve(tokens int) {
	l.tokens += tokens
	for i := range l.marks[:l.nmarks] {
		l.marks[i].unit.tokens += tokens
	}
}

// Done ends the lease and tells what came of it. Only the first call counts.
func (l *Lease) Done(now time.Time, o Outcome) { wake(l.end(now, &o)) }

func (l *Lease) end(now time.Time, o *Outcome) []*Ticket {
	r := l.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.done {
		return nil
	}
	l.done = true
	l.node.work -= l.work
	l.release()
	l.learn(now, o)
	for i := range l.marks[:l.nmarks] {
		r.forget(l.marks[i].unit)
	}
	return r.sweep(now)
}

func (l *Lease) release() {
	for i := range l.marks[:l.nmarks] {
		u := l.marks[i].unit
		u.inFlight--
		u.tokens -= l.tokens
		if u.inFlight < 0 || u.tokens < 0 {
			panic("BUG: route: a unit released more than it held: " + u.key.name)
		}
	}
}

// learn applies the outcome to breakers and estimates. The deployment's own unit comes first in marks.
func (l *Lease) learn(now time.Time, o *Outcome) {
	n := l.node
	switch o.Verdict {
	case Success:
		n.totals.Successes++
		if o.TTFT > 0 {
			n.ttft.add(now, o.TTFT.Seconds(), l.pool.medianTTFT(now), l.pool.tuning)
		}
		if o.ServedModel != "" {
			n.served = o.ServedModel
		}
	case DeploymentFault:
		n.totals.Faults++
	case NotDeploymentFault:
		n.totals.Neutral++
	}
	l.pool.stats.settle(l.facts, o)
	m, b := &l.marks[0], &l.marks[0].unit.breaker
	late := m.gen != b.gen && b.state(now) != Open // it has recovered since, or is being tried
	b.learn(now, ownEvidence(o), m.gen, m.trial, o.Class)
	if o.RetryAfter > 0 && o.Verdict == DeploymentFault && !late {
		b.hold(now, now.Add(min(o.RetryAfter, longestRetryAfter)), o.Class)
	}
	for i := range l.marks[1:l.nmarks] {
		m := &l.marks[1+i]
		m.unit.breaker.learn(now, scopeEvidence(o), m.gen, m.trial, o.Class)
	}
}

// ownEvidence is what an outcome says about the deployment. An unreachable endpoint is its scope's matter.
func ownEvidence(o *Outcome) evidence {
	switch {
	case o.Verdict == Success:
		return good
	case o.Unreachable:
		return nothing
	case o.Verdict == DeploymentFault:
		return fault
	}
	return nothing
}

// scopeEvidence is what an outcome says about the endpoint as a whole: whether anything answers there.
func scopeEvidence(o *Outcome) evidence {
	switch {
	case o.Unreachable:
		return outage
	case o.Answered:
		return good
	}
	return nothing
}

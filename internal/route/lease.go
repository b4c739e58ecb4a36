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
	Verdict    Verdict
	Class      string        // error class, "" for success; a metric label, so of a fixed set
	Detail     string        // one line for people; never a secret, never prompt text
	Fault      Fault         // what a DeploymentFault is about
	Answered   bool          // a response head came
	Status     int           // upstream's status, 0 if none came
	TTFT       time.Duration // dispatch to first content, 0 if not streamed or none came
	ITL        time.Duration // mean time between tokens after the first, 0 if unknown
	Waited     time.Duration // how long it brought nothing before another attempt's answer was taken: its TTFT is at least that; 0 = no such end
	RetryAfter time.Duration // how long upstream asked to be left alone, 0 = did not; also after a Success that used its quota up

	InputTokens, CachedTokens, OutputTokens, ReasoningTokens int
	Reported                                                 bool // the numbers are the engine's own, not estimates

	ServedModel, Fingerprint string // as the answer says
	Answer                   uint64 // keyed hash of the name by which a request continues it, as Facts.Session then is; 0 = it has none
}

// foldEvery is how often a lease's progress is folded into its deployment's outstanding work.
const foldEvery = 250 * time.Millisecond

// Lease is the right to use one deployment for one attempt. It is counted in the deployment and all its
// scopes from Pick until Done. FirstToken and Progress are called by one goroutine at a time; Done may be
// called by any, any number of times: the first counts.
type Lease struct {
	// What Progress needs comes first, side by side: it is called most.
	router   *Router
	node     *node
	engine   *engine // the node's, as it was then
	folded   time.Time
	tokens   int  // reserved
	charged  int  // of the limits per minute: prompt and output as estimated
	work     int  // still charged to the node's outstanding work
	prompt   int  // share of work that the prompt stands for, until the first token
	expected int  // output tokens expected
	done     bool // guarded by Router.mu

	dep    *Deployment
	pool   *pool // as it was then
	facts  *Facts
	marks  [1 + MaxScopes]mark
	nmarks int

	begun  time.Time
	pick   uint64 // Router.picks
	unused bool   // nobody took it

	uncached int           // tokens of the prompt that no cache holds
	load     int           // requests in flight there when it began
	cold     bool          // the deployment had been idle: its first answer says little
	patience time.Duration // see Patience
	drift    string

	charge charge

	decision *Decision
}

// mark remembers in which generation of a unit's breaker a lease began, how often it had been away, and whether as its trial.
type mark struct {
	unit  *unit
	gen   uint32
	away  uint32
	trial bool
	paid  int // tokens that its limit per minute was charged; 0 if it had none then
}

// Deployment returns what may be used.
func (l *Lease) Deployment() *Deployment { return l.dep }

// Decision returns why this deployment was chosen.
func (l *Lease) Decision() *Decision { return l.decision }

// Begun returns when the lease was given.
func (l *Lease) Begun() time.Time { return l.begun }

// Prompt returns the estimate of the prompt's tokens that the lease was charged with.
func (l *Lease) Prompt() int { return l.charged - l.expected }

// Patience is how long 95 of 100 requests of this size take to their first token, over all deployments of the model;
// 0 if too few are known.
func (l *Lease) Patience() time.Duration { return l.patience }

// Drift says, once the lease has ended, what the answer names differently than the one before: the model or its
// fingerprint; "" = nothing.
func (l *Lease) Drift() string { return l.drift }

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
	l.engine.ahead -= l.prompt
	l.prompt = 0
	l.leave(now, true)
	l.folded, l.node.heard = now, now
	closed := false
	for i := range l.marks[:l.nmarks] {
		m := &l.marks[i]
		if m.trial && m.gen == m.unit.breaker.gen {
			m.unit.breaker.learn(now, &r.health, finding{evidence: promising}, m.gen, true, m.unit)
			m.trial, m.gen = false, m.unit.breaker.gen
			closed = true
		}
	}
	if !closed && len(l.engine.nodes) <= 1 { // else requests for its other models may be held for it
		return r.release(now, l.pool.model)
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
	l.node.heard = now
	outputTokens = bounded(outputTokens)
	left := max(l.expected-outputTokens, 0) + l.prompt
	l.node.work += left - l.work
	l.work = left
	if held := l.Prompt() + max(l.expected, outputTokens); held > l.tokens {
		l.reserve(held - l.tokens)
	}
}

func (l *Lease) reserve(tokens int) {
	l.tokens += tokens
	l.engine.held += tokens
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
	l.engine.ahead -= l.prompt
	l.leave(now, false)
	l.release()
	l.pool.stats.overload.drain.ended(now.Sub(l.begun), l.unused)
	l.settle(now, o)
	l.learn(now, o)
	if s := l.charge.step; s != nil {
		l.charge.step = nil
		l.engine.steps.over(s)
	}
	r.forgetModel(l.pool.model)
	for i := range l.marks[:l.nmarks] {
		r.forget(now, l.marks[i].unit)
	}
	return r.sweep(now)
}

func (l *Lease) release() {
	l.engine.running--
	l.engine.held -= l.tokens
	for i := range l.marks[:l.nmarks] {
		u := l.marks[i].unit
		u.inFlight--
		u.tokens -= l.tokens
		if u.inFlight < 0 || u.tokens < 0 {
			panic("BUG: route: a unit released more than it held: " + u.key.name)
		}
	}
}

// settle gives back what the limits per minute were charged too much with, or takes what was too little: of that a minute's
// worth at most, whatever an engine claims to have used.
func (l *Lease) settle(now time.Time, o *Outcome) {
	used := bounded(o.InputTokens) + bounded(o.OutputTokens)
	for i := range l.marks[:l.nmarks] {
		u := l.marks[i].unit
		u.volume.Take(now, float64(min(used-l.marks[i].paid, u.limits.TPM)))
		if u.requests.Limited() && !l.sent(o) {
			u.requests.Take(now, -1)
		}
	}
}

// sent reports whether upstream has seen the request.
func (l *Lease) sent(o *Outcome) bool {
	return !l.unused && (o.Answered || o.Verdict != DeploymentFault || o.Fault != Unreachable)
}

// learn applies the outcome to breakers and estimates. The deployment's own unit comes first in marks.
func (l *Lease) learn(now time.Time, o *Outcome) {
	n, h, late := l.node, &l.router.health, l.late()
	switch o.Verdict {
	case Success:
		n.totals.Successes++
		n.heard = now
		l.learnSpeed(now, o, o.TTFT, late)
		if !late {
			l.compareWhole(now, o)
		}
		l.learnServed(o)
		l.keepSession()
		l.keepEnd()
		if o.Answer != 0 {
			l.pool.stats.sessions.served(o.Answer, l.node, l.pick)
		}
	case DeploymentFault:
		n.totals.Faults++
		if o.Fault != RateLimited && o.Fault != Loading && !late { // those end by a time that is known
			n.failed.add(now)
		}
	case NotDeploymentFault:
		n.totals.Neutral++
		l.learnSpeed(now, o, o.Waited, late)
	}
	l.pool.stats.settle(l.facts, o)
	l.reveal(o)
	own := l.marks[0]
	if own.gen == own.unit.breaker.gen {
		if pause, reason := pauseOf(h, o); pause > 0 {
			own.unit.breaker.hold(now, h, pause, reason, o.Verdict == Success || o.Fault == RateLimited)
		}
	}
	f := l.ownFinding(o)
	if late && f.evidence == failure {
		f.evidence = nothing
	}
	own.unit.breaker.learn(now, h, f, own.gen, own.trial, own.unit)
	if own.trial && o.Verdict == Success {
		n.failed = decayed{} // what failed before the trial is over
	}
	for _, m := range l.marks[1:l.nmarks] {
		m.unit.breaker.learn(now, h, scopeFinding(ScopeKind(m.unit.key.kind-scopeKey(0)), o), m.gen, m.trial, m.unit)
	}
}

// late reports whether the deployment went out or came back since the lease began, or its endpoint was away: what failed then,
// or was slow, need not be what is there now.
func (l *Lease) late() bool {
	for i := range l.marks[:l.nmarks] {
		if m := &l.marks[i]; m.away != m.unit.breaker.away {
			return true
		}
	}
	return l.marks[0].gen != l.marks[0].unit.breaker.gen
}

// learnSpeed takes the time to the first token of an answer that ended well, or the least that it would have been; 0 = not known.
func (l *Lease) learnSpeed(now time.Time, o *Outcome, first time.Duration, late bool) {
	if first <= 0 || late {
		return
	}
	n, h := l.node, &l.router.health
	seconds, uncached := first.Seconds(), l.uncached
	if o.Reported && o.InputTokens > 0 {
		uncached = bounded(o.InputTokens - o.CachedTokens)
	}
	if o.Verdict == Success {
		l.compare(now, o, seconds)
	}
	n.ttft.add(now, seconds, l.pool.medianTTFT(now), l.pool.tuning)
	n.recent.add(seconds)
	l.pool.stats.speeds[sizeClass(l.uncached)].add(seconds)
	if l.cold {
		return
	}
	b := &n.breaker
	usual := n.pace.of(uncached, l.load)
	if l.pool.foresees { // its strategy sees for itself who is slow, and lets some wait longer on purpose
		usual = 0
	}
	down := b.slow.judge(now, h, seconds, usual, l.pool.strained(now), uncached)
	n.pace.add(now, seconds, uncached, l.load)
	if down && !b.tripped && l.router.maySpare(n) {
		b.trip(now, h, RuleSlow, "slow", &n.unit)
	}
}

// keepSession notes that the session of the request is here. Of one that came for the deployment's sake and not its own, the session stays
// where it is: what gets a part of its traffic would not keep it.
func (l *Lease) keepSession() {
	id, s := l.facts.Session, &l.pool.stats.sessions
	if id != 0 && l.pool.affinity.Mode != NoAffinity && !(l.decision.Trial && s.at(id) != nil) {
		s.served(id, l.node, l.pick)
	}
}

// learnServed notes what the answer says it comes from.
func (l *Lease) learnServed(o *Outcome) {
	n := l.node
	changed := func(what string, known *string, now string) {
		if now == "" || now == *known {
			return
		}
		if *known != "" && l.drift == "" {
			l.drift = what + " " + *known + " → " + now
			n.drifts++
		}
		*known = now
	}
	changed("model", &n.served, o.ServedModel)
	changed("fingerprint", &n.fingerprint, o.Fingerprint)
}

// pauseOf is how long a deployment is left alone after an outcome, and why.
func pauseOf(h *Health, o *Outcome) (time.Duration, string) {
	switch {
	case o.Verdict == Success:
		return o.RetryAfter, "quota"
	case o.Verdict != DeploymentFault:
	case o.Fault == Loading:
		return max(o.RetryAfter, loadPause), o.Class
	case o.Fault == RateLimited && o.RetryAfter <= 0:
		return h.RateLimitPause, o.Class
	case o.Fault == RateLimited || o.Fault == Failure:
		return o.RetryAfter, o.Class
	}
	return 0, ""
}

// leastPause is the shortest time to come back after that means anything: who says at once says nothing.
const leastPause = time.Millisecond

// ownFinding is what an outcome says about the deployment. What concerns its endpoint or its credential is theirs.
func (l *Lease) ownFinding(o *Outcome) finding {
	f := finding{reason: o.Class, begun: l.begun}
	switch {
	case o.Verdict == Success:
		f.evidence = good
	case o.Verdict != DeploymentFault:
	case o.Fault == Failure && o.RetryAfter < leastPause: // who says when to come back is busy, not ill
		f.evidence, f.spare = failure, !l.router.maySpare(l.node)
	case o.Fault == BrokeOff:
		f.evidence, f.rule, f.spare = failure, RuleReset, !l.router.maySpare(l.node)
	case o.Fault == RateLimited && o.RetryAfter < leastPause:
		f.evidence = limited
	case o.Fault == NotServed:
		f.evidence, f.rule = outage, RuleNotServed
	case (o.Fault == BadCredential || o.Fault == Exhausted) && !l.has(CredentialScope):
		f.evidence, f.rule = outage, RuleCredential
	}
	return f
}

func (l *Lease) has(k ScopeKind) bool {
	for i := range l.marks[:l.nmarks] {
		if l.marks[i].unit.key.kind == scopeKey(k) {
			return true
		}
	}
	return false
}

// scopeFinding is what an outcome says about what deployments share.
func scopeFinding(k ScopeKind, o *Outcome) finding {
	f := finding{reason: o.Class}
	switch fault := o.Verdict == DeploymentFault; k {
	case EndpointScope: // whether anything answers there
		switch {
		case fault && o.Fault == Unreachable:
			f.evidence, f.rule = outage, RuleUnreachable
		case fault && o.Fault == Reset:
			f.evidence, f.rule = outage, RuleReset
		case o.Answered:
			f.evidence = good
		}
	case CredentialScope: // whether it is accepted
		switch {
		case fault && (o.Fault == BadCredential || o.Fault == Exhausted):
			f.evidence, f.rule = outage, RuleCredential
		case o.Verdict == Success:
			f.evidence = good
		}
	}
	return f
}

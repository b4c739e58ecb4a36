package route

import (
	"slices"
	"time"
)

// Observe takes what was seen of an endpoint without a request: that it answers, or that nothing does.
func (r *Router) Observe(now time.Time, s Scope, reachable bool) {
	wake(r.observe(now, s, reachable))
}

func (r *Router) observe(now time.Time, s Scope, reachable bool) []*Ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.units[s.key()]
	if u == nil {
		return nil
	}
	b := &u.breaker
	switch {
	case reachable && b.tripped && b.rule == RuleUnreachable: // what was seen is what a trial would find out
		b.close(now, &r.health, b.rampAfter(now, &r.health), true)
		r.startedAnew(now, u)
	case !reachable && !b.tripped:
		b.trip(now, &r.health, RuleUnreachable, "unreachable", u)
	case !reachable && b.trials == 0:
		if b.rule == RuleReset { // whoever broke connections is not there any more
			b.rule = RuleUnreachable
			b.away++
		}
		if b.until.Sub(now) < firstOutage {
			b.until = now.Add(firstOutage) // a trial would fail too
		}
	}
	return r.sweep(now)
}

// Answers reports whether requests are being answered at an endpoint: one of its deployments was heard of late, and has failed
// none since. Who only was too slow to answer something else is not away then.
func (r *Router) Answers(now time.Time, s Scope) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.units[s.key()]
	return u != nil && slices.ContainsFunc(u.sharers, func(n *node) bool {
		b := &n.breaker
		return !n.heard.IsZero() && now.Sub(n.heard) < r.health.Window && !b.tripped && b.row == 0
	})
}

// startedAnew forgets the failures of deployments whose endpoint was away, and closes their breakers: what failed there was
// another process.
func (r *Router) startedAnew(now time.Time, endpoint *unit) {
	for _, n := range endpoint.sharers {
		n.failed, n.breaker.row = decayed{}, 0
		n.adapters = n.adapters[:0]
		if b := &n.breaker; b.tripped && b.rule.ofProcess() {
			b.close(now, &r.health, b.rampAfter(now, &r.health), true)
		}
	}
}

// Probe is what an active probe of a deployment found.
type Probe struct {
	// Page says that only a page about health was asked for, which costs nothing and is often wrong: it can degrade by
	// Missed, opens and closes nothing, and the other fields are not looked at.
	Page   bool
	Ended  bool          // there is none any more: what those before have found, but for what they opened, is forgotten
	OK     bool          // it answered as it should
	Missed string        // what is not as it should be though it answers, "" = nothing: it is degraded
	Reason string        // why it is not OK, of a fixed set
	TTFT   time.Duration // to the first content, 0 = not measured
}

// Probed takes the result of an active probe. Real requests know better: failed probes open nothing while requests
// succeed, or are being answered, and what failing requests have opened good probes close only when its time is over, in
// place of a trial.
func (r *Router) Probed(now time.Time, deployment string, p Probe) {
	wake(r.probed(now, deployment, p))
}

func (r *Router) probed(now time.Time, deployment string, p Probe) []*Ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.health
	for k, n := range r.nodes {
		if k.name != deployment || !n.member {
			continue
		}
		b := &n.breaker
		if p.Page {
			b.page = p.Missed
			continue
		}
		if p.Ended {
			b.missed, b.probesFailed, b.probesGood = "", 0, 0
			continue
		}
		if !p.OK {
			b.probesGood = 0
			b.probesFailed++
			if b.probesFailed >= h.UnhealthyProbes && !b.tripped && (n.heard.IsZero() || now.Sub(n.heard) >= h.Window) {
				b.trip(now, h, RuleProbe, p.Reason, &n.unit)
			}
			continue
		}
		b.probesFailed, b.missed = 0, p.Missed
		b.probesGood++
		if p.TTFT > 0 && !b.tripped {
			if b.slow.judge(now, h, p.TTFT.Seconds(), 0, 1, 0) && r.maySpare(n) {
				b.trip(now, h, RuleSlow, "slow", &n.unit)
			}
		}
		if b.tripped && b.rule.passable() && b.probesGood >= h.HealthyProbes && (b.rule.ofProbes() || !now.Before(b.until)) {
			b.close(now, h, h.SlowStart, true)
		}
	}
	return r.sweep(now)
}

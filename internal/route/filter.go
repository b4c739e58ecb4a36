package route

import (
	"math/rand/v2"
	"slices"
	"time"
)

// verdict is what filter found about one member.
type verdict struct {
	cut   Cut
	by    *unit
	until time.Duration // for a cut that ends by time alone
	share float64       // part of its usual traffic that it is to get
	calm  bool          // of no cut: nothing is the matter with any of its breakers, nor was lately
	home  uint8         // what it is to the request: see stay
}

// filter finds who may serve a request: it fills r.eligible and r.candidates (eligible first, then cut) and r.full.
func (r *Router) filter(now time.Time, p *pool, q *Query, tokens int, sweep uint64) {
	r.sift(now, p, q, tokens, sweep)
	r.list(now, p)
}

// sift fills r.verdicts.
func (r *Router) sift(now time.Time, p *pool, q *Query, tokens int, sweep uint64) {
	r.panicking, r.part = p.panicking(now, &r.health), nil
	r.verdicts = r.verdicts[:0]
	left, special := 0, false
	r.calm = true
	for i := range p.members {
		v := r.judge(now, &p.members[i], q, tokens, sweep)
		if v.cut == CutNone {
			left++
			special = special || v.share < 1
			r.calm = r.calm && v.calm
		}
		r.verdicts = append(r.verdicts, v)
	}
	if left > 1 && (special || len(q.Away) > 0 || q.Draw > 0) {
		r.prefer(now, p, q)
	}
}

// list fills the rest from r.verdicts.
func (r *Router) list(now time.Time, p *pool) {
	r.eligible, r.candidates, r.full, r.soonest = r.eligible[:0], r.candidates[:0], r.full[:0], 0
	newcomer := p.newcomerTTFT(now)
	for i := range p.members {
		if m, v := &p.members[i], &r.verdicts[i]; v.cut == CutNone {
			r.eligible = append(r.eligible, m)
			r.candidate(now, m, v, newcomer, p.tuning)
		}
	}
	if len(r.eligible) == len(p.members) {
		return
	}
	for i := range p.members {
		m, v := &p.members[i], &r.verdicts[i]
		if v.cut == CutNone {
			continue
		}
		c := r.candidate(now, m, v, newcomer, p.tuning)
		c.Cut, c.CutBy, c.Until = v.cut, v.by.label, v.until
		if v.cut.capacity() {
			r.full = append(r.full, v.by)
			if v.until > 0 && (r.soonest == 0 || v.until < r.soonest) {
				r.soonest = v.until
			}
		}
	}
}

// candidate adds m to r.candidates.
func (r *Router) candidate(now time.Time, m *member, v *verdict, newcomer float64, t Tuning) *Candidate {
	n := m.node
	healthy := Always
	for _, u := range n.units {
		if well := u.breaker.well; !well.IsZero() {
			healthy = min(healthy, now.Sub(well))
		}
	}
	penalty := n.failed.now(now)
	if n.breaker.order == Force {
		penalty = 0
	}
	at := len(r.candidates)
	r.candidates = slices.Grow(r.candidates, 1)[:at+1]
	c := &r.candidates[at]
	*c = Candidate{
		ID: m.dep.ID, Weight: m.dep.Weight, InFlight: n.inFlight, Tokens: n.tokens, Work: n.work,
		TTFT: n.ttft.expect(now, newcomer, t), Samples: n.ttft.samples, LastPick: m.lastPick,
		P95: n.recent.quantile(now, 1), Penalty: penalty, Share: v.share, Healthy: healthy,
	}
	return c
}

// judge says why a member is not eligible, by which unit, and for how long if that ends by time.
func (r *Router) judge(now time.Time, m *member, q *Query, tokens int, sweep uint64) verdict {
	n, d, f := m.node, m.dep, q.Facts
	switch {
	case d.Weight == 0:
		return verdict{cut: CutWeight, by: &n.unit}
	case f.Pin != "" && !d.called(f.Pin):
		return verdict{cut: CutPinned, by: &n.unit}
	case slices.ContainsFunc(f.ExcludeNames, d.called):
		return verdict{cut: CutExcluded, by: &n.unit}
	}
	v := n.unwell(now, r.panicking)
	switch {
	case v.cut != CutNone:
		return v
	case slices.Contains(q.Tried, d.ID): // last, so that it means: well, and might be tried again
		return verdict{cut: CutTried, by: &n.unit}
	case q.Beside != nil && q.Beside.shares(d):
		return verdict{cut: CutDomain, by: &n.unit}
	}
	for _, u := range n.units {
		if sweep != 0 && u.blocked == sweep {
			return verdict{cut: CutEarlier, by: u}
		}
		if cut, until := u.full(now, tokens); cut != CutNone {
			return verdict{cut: cut, by: u, until: until}
		}
	}
	return v
}

func (d *Deployment) domain() string {
	if d.Domain != "" {
		return d.Domain
	}
	return d.ID
}

// unwell says whether a breaker keeps requests out, and which one does so for longest; else what share is let in.
func (n *node) unwell(now time.Time, panicking bool) verdict {
	v := verdict{share: 1, calm: true}
	for _, u := range n.units {
		b := &u.breaker
		if b.calm() {
			continue
		}
		v.calm = false
		state := b.state(now)
		if panicking && (state == Open || state == HalfOpen) && b.rule.passable() && !now.Before(b.cool) {
			continue
		}
		switch {
		case state == Drained:
			return verdict{cut: CutDrained, by: u}
		case state == Disabled:
			return verdict{cut: CutDisabled, by: u}
		case state == Open && b.left(now) > v.until:
			v = verdict{cut: CutOpen, by: u, until: b.left(now)}
		case state == Cooling && b.left(now) > v.until:
			v = verdict{cut: CutCooling, by: u, until: b.left(now)}
		case state == HalfOpen && v.cut == CutNone && b.trialLeft(now) > 0:
			v.cut, v.by, v.until = CutTrial, u, b.trialLeft(now)
		case !state.Out():
			v.share = min(v.share, b.share(now))
		}
	}
	return v
}

// panicking reports whether so few members are in use that it is more likely that the breakers err.
func (p *pool) panicking(now time.Time, h *Health) bool {
	if h.PanicThreshold <= 0 {
		return false
	}
	all, well := 0, 0
	for i := range p.members {
		if m := &p.members[i]; m.meant() {
			all++
			if m.node.unwell(now, false).cut == CutNone {
				well++
			}
		}
	}
	return float64(well) < h.PanicThreshold*float64(all)
}

// meant reports whether the operator wants the deployment to be used: then it counts where parts of a pool do.
func (m *member) meant() bool {
	return m.dep.Weight > 0 && !m.node.any(func(b *breaker) bool { return b.order == Drain || b.order == Disable })
}

// maySpare reports whether rates may take a deployment out of use: none of whose pools is used up by that.
func (r *Router) maySpare(n *node) bool {
	for _, p := range r.pools {
		if p.has(n) && !p.maySpare(r.health.MaxEjection) {
			return false
		}
	}
	return true
}

func (p *pool) has(n *node) bool {
	return slices.ContainsFunc(p.members, func(m member) bool { return m.node == n })
}

// maySpare counts who might be used and who of them is out, for whatever reason. When half of a pool is, it is more likely
// that the load or the yardstick is ill than one more of them; and of one none is spared.
func (p *pool) maySpare(share float64) bool {
	all, out := 0, 0
	for i := range p.members {
		m := &p.members[i]
		if !m.meant() {
			continue
		}
		all++
		if m.node.any(func(b *breaker) bool { return b.tripped && b.order != Force }) {
			out++
		}
	}
	return all > 1 && float64(out+1) <= share*float64(all)
}

// any reports whether something holds for the breaker of the deployment or of one of its scopes.
func (n *node) any(holds func(*breaker) bool) bool {
	return slices.ContainsFunc(n.units, func(u *unit) bool { return holds(&u.breaker) })
}

// prefer cuts members that are used only if others are left, one reason after the other: those in a failure domain
// where this request has failed, those on trial if it has failed anywhere, and those whose part it is not of.
func (r *Router) prefer(now time.Time, p *pool, q *Query) {
	if len(q.Away) > 0 {
		r.cutUnlessAll(p, CutDomain, func(m *member, _ *verdict) bool { return slices.Contains(q.Away, m.dep.domain()) })
	}
	if q.Draw > 0 && len(q.Tried) > 0 {
		r.cutUnlessAll(p, CutOnTrial, func(m *member, _ *verdict) bool { return m.node.onTrial(now) })
	}
	if !p.steady {
		r.apportion(now, p, q)
	}
}

// apportion decides by a seeded coin whether the request is of the part that a member just back, or slow, is to get of
// its traffic. It goes there then without asking the strategy, which would make up for what such a member missed: it
// looks idle, or long not chosen. Otherwise they are all cut. When all are just back, or most are slow, others have
// nothing to spare, and only differences between them count.
func (r *Router) apportion(now time.Time, p *pool, q *Query) {
	weight, degraded, left := 0.0, 0, 0
	for i := range r.verdicts {
		if r.verdicts[i].cut == CutNone {
			left++
			weight += p.members[i].dep.Weight
			if p.members[i].node.breaker.degradedShare() < 1 {
				degraded++
			}
		}
	}
	crowd := float64(degraded) > r.health.MaxEjection*float64(left)
	full := 0.0
	for i := range r.verdicts {
		if v := &r.verdicts[i]; v.cut == CutNone {
			if crowd {
				v.share = p.members[i].node.rampShare(now)
			}
			full = max(full, v.share)
		}
	}
	var pcg rand.PCG
	pcg.Seed(q.Facts.Seed, uint64(q.Draw)|1<<63)
	coin := float64(pcg.Uint64()>>11) / (1 << 53)
	for i := range r.verdicts {
		m, v := &p.members[i], &r.verdicts[i]
		if v.cut != CutNone || v.share == full || m.node.onTrial(now) {
			continue
		}
		coin -= v.share / full * m.dep.Weight / weight
		slow := v.share < m.node.rampShare(now)
		switch {
		case r.part == nil && (coin < 0 || slow && m.overdue(now, p)):
			r.part = m
		case slow:
			v.cut, v.by = CutDegraded, &m.node.unit
		default:
			v.cut, v.by = CutSlowStart, &m.node.unit
		}
	}
}

// A slow deployment gets a request after this time at the latest, if so many have gone elsewhere: without one, nobody
// would see that it is well again.
const (
	lookEvery = 15 * time.Second
	lookAfter = 20
)

func (m *member) overdue(now time.Time, p *pool) bool {
	return now.Sub(m.node.picked) >= lookEvery && p.picks-m.turn >= lookAfter
}

// cutUnlessAll cuts the members that unwanted names, unless nobody would be left.
func (r *Router) cutUnlessAll(p *pool, reason Cut, unwanted func(*member, *verdict) bool) {
	left, marked := 0, 0
	for i := range r.verdicts {
		if v := &r.verdicts[i]; v.cut == CutNone {
			if unwanted(&p.members[i], v) {
				v.cut, v.by = reason, &p.members[i].node.unit
				marked++
			} else {
				left++
			}
		}
	}
	if left > 0 || marked == 0 {
		return
	}
	for i := range r.verdicts {
		if v := &r.verdicts[i]; v.cut == reason {
			v.cut, v.by = CutNone, nil
		}
	}
}

// onTrial reports whether a request to the deployment would be the trial of a breaker.
func (n *node) onTrial(now time.Time) bool {
	return n.any(func(b *breaker) bool {
		free, trial := b.admits(now)
		return free && trial
	})
}

// rampShare is the least of the slow starts of the deployment and its scopes.
func (n *node) rampShare(now time.Time) float64 {
	share := 1.0
	for _, u := range n.units {
		share = min(share, u.breaker.rampShare(now))
	}
	return share
}

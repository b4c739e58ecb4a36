package route

import (
	"math"
	"slices"
	"time"
)

// A queue before limits per minute empties at a rate that is known and need not be learned: what the buckets gain. And
// nobody need wait in it who comes back when there will be room: what is there then is kept.

// perSecond is how many requests of so many tokens the unit's limits per minute let pass in a second, on average.
func (u *unit) perSecond(tokens int) float64 {
	rate := math.Inf(1)
	if u.limits.RPM > 0 {
		rate = float64(u.limits.RPM) / 60
	}
	if u.limits.TPM > 0 {
		rate = min(rate, float64(u.limits.TPM)/60/float64(max(tokens, 1)))
	}
	return rate
}

// passNow is how many requests of so many tokens the unit's limits per minute let pass at once.
func (u *unit) passNow(now time.Time, tokens int) float64 {
	n := math.Inf(1)
	if u.limits.RPM > 0 {
		n = u.requests.Left(now)
	}
	if u.limits.TPM > 0 {
		n = min(n, u.volume.Left(now)/float64(max(tokens, 1)))
	}
	return max(n, 0)
}

// used is the part of the tighter of the unit's limits per minute that is used up once a request of so many tokens is sent, 0 without limits.
func (u *unit) used(now time.Time, tokens int) float64 {
	part := 0.0
	if n := u.limits.RPM; n > 0 {
		part = 1 - (u.requests.Left(now)-1)/float64(n)
	}
	if n := u.limits.TPM; n > 0 {
		part = max(part, 1-(u.volume.Left(now)-float64(tokens))/float64(n))
	}
	return min(part, 1)
}

// fullFor is how long until the unit's limits per minute let the next request pass, if it is small.
func (u *unit) fullFor(now time.Time) time.Duration {
	return max(u.requests.Wait(now, 1), u.volume.Wait(now, 1))
}

// quotaRate is the rate at which limits per minute let requests pass, if they alone keep out a request of so many tokens
// that filter has just looked at; else 0.
func (r *Router) quotaRate(tokens int) float64 {
	rate, seen := 0.0, r.full[:0:0]
	for i := range r.verdicts {
		v := &r.verdicts[i]
		switch {
		case !v.cut.capacity():
		case v.cut != CutQuota:
			return 0
		case !slices.Contains(seen, v.by):
			seen = append(seen, v.by)
			rate += v.by.perSecond(tokens)
		}
	}
	return rate
}

// keptForOthers reports whether what limits per minute let pass now is for those who were told to come back, and the query
// is none of them.
func (r *Router) keptForOthers(now time.Time, q *Query) bool {
	p := r.pools[q.Model]
	if p == nil || q.particular() {
		return false
	}
	o := &p.stats.overload
	if o.drain.quota == 0 || o.places.open == 0 {
		return false
	}
	o.advance(now, r.waiting[q.Model])
	if _, inTime := o.places.due(now, q.print(), q.Facts.ClientRetry > 0); inTime {
		return false
	}
	tokens := p.stats.promptTokens(q.Facts) + p.stats.outputTokens(q.Facts)
	pass, seen := 0.0, r.full[:0:0]
	for i := range p.members {
		n := p.members[i].node
		tightest := slices.MinFunc(n.units, func(a, b *unit) int {
			return int(math.Copysign(1, a.passNow(now, tokens)-b.passNow(now, tokens)))
		})
		if p.members[i].dep.Weight > 0 && n.unwell(now, false).cut == CutNone && !slices.Contains(seen, tightest) {
			seen = append(seen, tightest)
			pass += math.Floor(tightest.passNow(now, tokens) + 1e-6)
		}
	}
	return pass > 0 && pass < 1+o.places.kept()*float64(o.places.open)
}

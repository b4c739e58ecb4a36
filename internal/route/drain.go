package route

import (
	"math"
	"time"
)

// What the drain rate of a queue is learned from.
const (
	drainSample  = 64              // it looks back over about so many departures,
	drainLeast   = 5 * time.Second // but over this at least
	drainMost    = 2 * time.Minute // and this at most
	drainPseudo  = 4               // departures that the estimate by Little's law weighs as much as
	drainUnknown = 0
)

// drain learns how fast a model's queue empties: waiters served per second while somebody waits, since only then does
// the rate say what the deployments can do and not what is asked of them. Until there are such, Little's law stands in:
// requests that run over the time that one takes. Guarded by Router.mu; the zero value knows nothing.
type drain struct {
	at      time.Time
	served  float64 // waiters, and
	seconds float64 // the time in which somebody waited; what is older counts less
	running int
	lasts   mean    // seconds for which a request keeps its room
	quota   float64 // per second, if limits per minute are what holds the queue up; else 0
}

// advance brings the time up to now, during which somebody has waited or nobody.
func (d *drain) advance(now time.Time, waited bool) {
	dt := now.Sub(d.at).Seconds()
	if d.at.IsZero() || dt <= 0 {
		if d.at.IsZero() {
			d.at = now
		}
		return
	}
	d.at = now
	tau := d.memory()
	keep := math.Exp(-dt / tau)
	d.served *= keep
	d.seconds *= keep
	if waited {
		d.seconds += tau * (1 - keep)
	}
}

// memory is after how many seconds something counts less by a factor of e.
func (d *drain) memory() float64 {
	rate := d.perSecond()
	if rate == drainUnknown {
		return drainMost.Seconds()
	}
	return min(max(drainSample/rate, drainLeast.Seconds()), drainMost.Seconds())
}

// ended takes in how long a request had its room, unless it was granted to a waiter who had left.
func (d *drain) ended(held time.Duration, unused bool) {
	d.running--
	if unused {
		d.served = max(d.served-1, 0)
		return
	}
	d.lasts.add(max(held, 0).Seconds())
}

// perSecond is how many waiters are served per second while there are some, drainUnknown if nothing says.
func (d *drain) perSecond() float64 {
	if d.quota > 0 {
		return d.quota
	}
	little := drainUnknown + 0.0
	if d.lasts.value > 0 {
		little = float64(d.running) / d.lasts.value
	}
	switch {
	case little > 0:
		return (d.served + drainPseudo) / (d.seconds + drainPseudo/little)
	case d.served >= drainPseudo && d.seconds > 0:
		return d.served / d.seconds
	}
	return drainUnknown
}

package app

import (
	"log/slog"
	"time"

	"evenkeel/internal/route"
)

// lookEvery is the least time between two looks at what is out: a view copies the whole fleet.
const lookEvery = 500 * time.Millisecond

// pauseEvery is the least time between two lines about the pauses that one unit was asked for: a provider whose quota
// is used up asks for one after the other.
const pauseEvery = time.Minute

// unit is a deployment, or what deployments share, at a URL.
type unit struct{ kind, name, url string }

// seen is what the log was told of a unit.
type seen struct {
	out      time.Time // since when it is out, zero if it is not
	degraded bool
	openings uint64
	paused   time.Time // when a pause was told
	changes  uint64
}

// outages tells the log when deployments and what they share go out and come back, become slow, and answer as another
// model than before: one line per change, whatever the trials in between come to. It compares views, so that nothing
// is logged under a lock of the Router. It belongs to one goroutine.
type outages struct {
	logger *slog.Logger
	looked time.Time
	seen   map[unit]seen
}

func newOutages(logger *slog.Logger) *outages {
	return &outages{logger: logger, seen: map[unit]seen{}}
}

// look compares the fleet with the last look, unless that was a moment ago.
func (o *outages) look(now time.Time, view func(time.Time) route.View) {
	if now.Sub(o.looked) < lookEvery {
		return
	}
	o.looked = now
	v := view(now)
	next := make(map[unit]seen, len(v.Deployments)+len(v.Scopes)) // who left the fleet is forgotten
	for i := range v.Deployments {
		d := &v.Deployments[i]
		u := unit{"deployment", d.ID, d.URL}
		s := o.compare(now, u, &d.Breaker)
		if s.changes != d.Drifts {
			o.logger.Warn("deployment answers as another model than before", "deployment", d.ID, "model", d.ServedModel,
				"fingerprint", d.Fingerprint, "changes", d.Drifts)
		}
		s.changes = d.Drifts
		next[u] = s
	}
	for i := range v.Scopes {
		s := &v.Scopes[i]
		u := unit{s.Kind.String(), s.Name, s.URL}
		next[u] = o.compare(now, u, &s.Breaker)
	}
	o.seen = next
}

func (o *outages) compare(now time.Time, u unit, b *route.BreakerView) seen {
	s, known := o.seen[u]
	if !known && b.Order != route.Automatic && b.Order != route.ForgetFailure { // who gave it may have forgotten
		o.logger.Warn("the order about one that is back holds on", u.kind, u.name, "order", b.Order.String())
	}
	was, opened := s.out, b.Openings != s.openings
	s.openings = b.Openings
	switch b.State {
	case route.Open, route.HalfOpen:
		s.out = b.Since
		if was.IsZero() || !was.Equal(b.Since) { // it may have been back between two looks
			o.logger.Warn(u.kind+" is out", u.kind, u.name, "rule", string(b.Rule), "reason", b.Reason, "until", b.Until, "out_seconds", seconds(b.Out))
		}
		return s
	case route.Drained, route.Disabled: // whoever ordered it knows
		return s
	case route.Cooling:
		if now.Sub(s.paused) >= pauseEvery {
			s.paused = now
			o.logger.Info(u.kind+" is left alone for a while", u.kind, u.name, "reason", b.Reason, "until", b.Until)
		}
	case route.Closed, route.Degraded, route.SlowStart:
	}
	s.out = time.Time{}
	switch {
	case !was.IsZero():
		o.logger.Info(u.kind+" is back", u.kind, u.name, "out_seconds", seconds(now.Sub(was)))
	case opened:
		o.logger.Warn(u.kind+" was out for a moment", u.kind, u.name, "reason", b.Last)
	}
	if degraded := b.State == route.Degraded; degraded != s.degraded {
		s.degraded = degraded
		if degraded {
			o.logger.Warn(u.kind+" is degraded", u.kind, u.name, "reason", b.Reason, "share", b.Share)
		} else {
			o.logger.Info(u.kind+" is no longer degraded", u.kind, u.name)
		}
	}
	return s
}

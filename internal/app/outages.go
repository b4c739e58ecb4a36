package app

import (
	"log/slog"
	"time"

	"evenkeel/internal/route"
)

// lookEvery is the least time between two looks at what is out: a view copies the whole fleet.
const lookEvery = 500 * time.Millisecond

// unit is a deployment, or what deployments share, at a URL.
type unit struct{ kind, name, url string }

// outages tells the log when deployments and endpoints go out and come back: one line per change, whatever the
// trials in between come to. It compares views, so that nothing is logged under a lock of the Router. It belongs
// to one goroutine.
type outages struct {
	logger *slog.Logger
	looked time.Time
	since  map[unit]time.Time // what was out at the last look
}

func newOutages(logger *slog.Logger) *outages {
	return &outages{logger: logger, since: map[unit]time.Time{}}
}

// look compares the fleet with the last look, unless that was a moment ago.
func (o *outages) look(now time.Time, view func(time.Time) route.View) {
	if now.Sub(o.looked) < lookEvery {
		return
	}
	o.looked = now
	v := view(now)
	out := map[unit]time.Time{} // who left the fleet is forgotten
	for i := range v.Deployments {
		d := &v.Deployments[i]
		o.compare(now, unit{"deployment", d.ID, d.URL}, &d.Breaker, out)
	}
	for i := range v.Scopes {
		s := &v.Scopes[i]
		o.compare(now, unit{s.Kind.String(), s.Name, s.URL}, &s.Breaker, out)
	}
	o.since = out
}

func (o *outages) compare(now time.Time, u unit, b *route.BreakerView, out map[unit]time.Time) {
	since, was := o.since[u]
	if b.State == route.Closed {
		if was {
			o.logger.Info(u.kind+" is back", u.kind, u.name, "out_seconds", seconds(now.Sub(since)))
		}
		return
	}
	out[u] = b.Since
	if !was || !since.Equal(b.Since) { // it may have been back between two looks
		o.logger.Warn(u.kind+" is out", u.kind, u.name, "reason", b.Reason, "until", b.Until, "out_seconds", seconds(b.Out))
	}
}

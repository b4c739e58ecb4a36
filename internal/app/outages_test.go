package app

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// linesLogger logs without times, so that whole lines can be compared.
func linesLogger(level slog.Level) (*slog.Logger, *logBuffer) {
	b := newLogBuffer()
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), b
}

// taken empties the buffer and returns its lines.
func (l *logBuffer) taken() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return strings.TrimSpace(l.b.String())
}

func TestOutagesAreLoggedOncePerChange(t *testing.T) {
	logger, log := linesLogger(slog.LevelInfo)
	o := newOutages(logger)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	looks := 0
	look := func(after time.Duration, deployment, endpoint route.BreakerView, want string) {
		t.Helper()
		now = now.Add(after)
		o.look(now, func(time.Time) route.View {
			looks++
			return route.View{
				Deployments: []route.DeploymentView{{ID: "a/m", URL: "http://a", Breaker: deployment}, {ID: "b/m", URL: "http://b"}},
				Scopes:      []route.ScopeView{{Kind: route.EndpointScope, Name: "a", URL: "http://a", Breaker: endpoint}},
			}
		})
		if got := log.taken(); got != want {
			t.Errorf("logged\n%s\nwant\n%s", got, want)
		}
	}
	out := func(state route.BreakerState, since time.Time, length time.Duration) route.BreakerView {
		return route.BreakerView{State: state, Rule: route.RuleConsecutive, Reason: "server_error", Since: since, Until: since.Add(length), Out: length}
	}
	ok, first := route.BreakerView{}, now
	look(0, ok, ok, "")
	look(lookEvery, out(route.Open, first, time.Second), ok,
		"level=WARN msg=\"deployment is out\" deployment=a/m rule=consecutive_failures reason=server_error until=2026-03-01T12:00:01.000Z out_seconds=1")
	look(lookEvery, out(route.HalfOpen, first, time.Second), ok, "")
	look(lookEvery, out(route.Open, first, 2*time.Second), ok, "") // the trial failed
	look(lookEvery/2, ok, ok, "")                                  // too soon
	look(lookEvery, ok, out(route.Open, now, 4*time.Second),
		"level=INFO msg=\"deployment is back\" deployment=a/m out_seconds=2.25\n"+
			"level=WARN msg=\"endpoint is out\" endpoint=a rule=consecutive_failures reason=server_error until=2026-03-01T12:00:05.750Z out_seconds=4")
	look(lookEvery, ok, out(route.Open, now.Add(time.Millisecond), time.Second), // back and out again between two looks
		"level=WARN msg=\"endpoint is out\" endpoint=a rule=consecutive_failures reason=server_error until=2026-03-01T12:00:03.251Z out_seconds=1")
	if looks != 6 {
		t.Errorf("the fleet was copied %d times, want 6", looks)
	}
	now = now.Add(lookEvery)
	o.look(now, func(time.Time) route.View { return route.View{} })
	if got := log.taken(); got != "" || len(o.seen) != 0 {
		t.Errorf("of one that left the fleet: %q, %v is remembered", got, o.seen)
	}
}

// TestOutagesTellsOfShortAndHalfOnes: what opened and closed between two looks, became slow, is left alone, answers as
// another model, or was ordered out.
func TestOutagesTellsOfShortAndHalfOnes(t *testing.T) {
	logger, log := linesLogger(slog.LevelInfo)
	o := newOutages(logger)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	look := func(d route.DeploymentView, want string) {
		t.Helper()
		now = now.Add(lookEvery)
		d.ID, d.URL = "a/m", "http://a"
		o.look(now, func(time.Time) route.View { return route.View{Deployments: []route.DeploymentView{d}} })
		if got := log.taken(); got != want {
			t.Errorf("logged\n%s\nwant\n%s", got, want)
		}
	}
	view := func(b route.BreakerView) route.DeploymentView { return route.DeploymentView{Breaker: b} }
	o.look(now, func(time.Time) route.View {
		return route.View{Deployments: []route.DeploymentView{{ID: "back/m", Breaker: route.BreakerView{Order: route.Drain, State: route.Drained}}}}
	})
	if got, want := log.taken(), `level=WARN msg="the order about one that is back holds on" deployment=back/m order=drain`; got != want {
		t.Errorf("logged\n%s\nwant\n%s", got, want)
	}
	look(view(route.BreakerView{}), "")
	look(view(route.BreakerView{Openings: 1, Last: "timeout", State: route.SlowStart}),
		"level=WARN msg=\"deployment was out for a moment\" deployment=a/m reason=timeout")
	look(view(route.BreakerView{Openings: 1, State: route.Degraded, Reason: "slow", Share: 0.01}),
		"level=WARN msg=\"deployment is degraded\" deployment=a/m reason=slow share=0.01")
	look(view(route.BreakerView{Openings: 1, State: route.Degraded, Reason: "slow", Share: 0.02}), "")
	look(view(route.BreakerView{Openings: 1}), "level=INFO msg=\"deployment is no longer degraded\" deployment=a/m")
	cooling := view(route.BreakerView{Openings: 1, State: route.Cooling, Reason: "rate_limited", Until: now.Add(time.Second)})
	look(cooling, "level=INFO msg=\"deployment is left alone for a while\" deployment=a/m reason=rate_limited until=2026-03-01T12:00:03.500Z")
	look(view(route.BreakerView{Openings: 1}), "")
	look(cooling, "") // told a moment ago
	look(route.DeploymentView{Breaker: route.BreakerView{Openings: 1}, ServedModel: "m-2", Fingerprint: "fp", Drifts: 1},
		"level=WARN msg=\"deployment answers as another model than before\" deployment=a/m model=m-2 fingerprint=fp changes=1")
	look(route.DeploymentView{Breaker: route.BreakerView{Openings: 1, State: route.Drained}, Drifts: 1}, "")
}

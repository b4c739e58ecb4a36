package drill

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"evenkeel/internal/mock"
)

// Who is let out of use, and back in.
var healthRows = []Row{
	{
		ID:      "R7",
		Fault:   "one of 10 engines answers 500, always",
		Promise: "out after 5 failures, tried again after 1, 2, 3 s (30, 60, 90 s scaled); no client sees an error",
		run:     always500,
		off:     off{defence: "the breaker", settings: settings{"health_checks": neverTrips}},
	},
	{
		ID:      "R32",
		Fault:   "1 of 20 engines fails at once and so looks idle",
		Promise: "at most 1 % of requests go there after 5 failures",
		run:     sinkhole,
		off:     off{defence: "the breaker, and counting failures as load", settings: settings{"health_checks": neverTrips}, change: "penalty"},
	},
	{
		ID:      "R33",
		Fault:   "1 of 4 engines becomes 10 times slower",
		Promise: "less than 2 % of traffic within 30 s; its share is back within 60 s of recovery",
		run:     grey, Long: true,
		off: off{defence: "noticing slowness", change: "slowness"},
	},
	{
		ID:      "R34",
		Fault:   "an engine comes and goes every 500 ms",
		Promise: "times out grow: 1, 2, 3 s (30, 60, 90 s scaled); the rest does not notice",
		run:     flapping,
		off:     off{defence: "the breaker", settings: settings{"health_checks": neverTrips}},
	},
	{
		ID:      "R35",
		Fault:   "the health page is fine, completions fail",
		Promise: "requests know better: out after at most 5 of them",
		run:     liar,
		off:     off{defence: "the breaker", settings: settings{"health_checks": neverTrips}},
	},
	{
		ID:      "R36",
		Fault:   "the health page fails, completions are fine",
		Promise: "less used, not taken out: requests there go on",
		run:     sickPage,
		off:     off{defence: "not believing a page against requests", change: "page_opens"},
	},
	{
		ID:      "R42",
		Fault:   "a cold engine joins, 10 times slower for its first seconds",
		Promise: "its share grows slowly; no client sees an error",
		run:     cold,
		off:     off{defence: "slow start", settings: settings{"health_checks": settings{"slow_start": "0s"}}},
	},
}

// soon are breakers whose times are 1/30 of the usual ones, under a strategy that does not shun who failed by itself.
var soon = settings{"strategy": "round_robin", "health_checks": settings{"circuit_breaker": settings{"reset_after": "1s", "longest_reset": "10s"}}}

// outs follows the times out of an endpoint until it has seen n of them that differ, or the time is over.
func (b *Bench) outs(x *balancer, name string, n int, limit time.Duration) (seen []time.Duration) {
	b.until(limit, func() bool {
		if s := x.stands()[name]; s.state == "open" && s.out > 0 && (len(seen) == 0 || seen[len(seen)-1] != s.out) {
			seen = append(seen, s.out)
		}
		return len(seen) >= n
	})
	return seen
}

// growing demands times out of 1, 2 and 3 s.
func growing(outs []time.Duration) error {
	want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}
	return check(fmt.Sprint(outs) == fmt.Sprint(want), "times out were %v, want %v", outs, want)
}

func always500(_ context.Context, b *Bench) (Measured, error) {
	b.set(soon)
	es := b.fleet(10, mock.Config{BaseLatency: 5 * time.Millisecond})
	x := b.serve()
	b.crowd(x, 200, 8, request{})
	b.fault(es[0], mock.Fault{Kind: "status", Status: 500})
	f := b.flow(x, 100, request{})
	if !b.until(5*time.Second, func() bool { return es[0].Stats().Faults > 0 }) {
		b.stopf("the failing engine was never asked")
	}
	b.until(3*time.Second, func() bool { return x.stands()["a"].state == "open" })
	first := es[0].Stats().Faults
	outs := b.outs(x, "a", 3, 8*time.Second)
	hits := es[0].Stats().Faults
	t := f.end()
	down := t.total() - t.of(complete)
	found := measured("out after %d failures, %d in all; out for %v; %d errors of %d", first, hits, outs, down, t.total())
	if down > 0 {
		return found, brokenf("%d of %d requests were not answered: %s", down, t.total(), t.example())
	}
	if first > 6 || hits > 12 { // one more may be under way at each turn
		return found, brokenf("%d failures until it was out and %d in all, want 5 and a few trials", first, hits)
	}
	return found, growing(outs)
}

func sinkhole(_ context.Context, b *Bench) (Measured, error) {
	worst := ""
	for _, strategy := range []string{"predicted_wait", "least_tokens", "p2c_ewma"} {
		s := b.scene()
		found, err := s.sinkhole(strategy)
		if err == nil {
			err = s.invariants()
		}
		if err != nil {
			return found, err
		}
		worst += strategy + ": " + string(found) + "; "
	}
	return Measured(worst[:len(worst)-2]), nil
}

func (b *Bench) sinkhole(strategy string) (Measured, error) {
	b.set(settings{"strategy": strategy})
	es := b.fleet(20, mock.Config{BaseLatency: 30 * time.Millisecond})
	x := b.serve()
	b.fault(es[0], mock.Fault{Kind: "status", Status: 500})
	f := b.flow(x, 200, request{})
	b.until(5*time.Second, func() bool { return calls(es[0]) >= 5 })
	before, bad := calls(es...), calls(es[0])
	b.pass(3 * time.Second)
	all, hit := calls(es...)-before, calls(es[0])-bad
	t := f.end()
	found := measured("%d of %d requests (%.2f %%)", hit, all, 100*float64(hit)/float64(all))
	if t.of(complete) < t.total() {
		return found, brokenf("not all were answered: %s", t.example())
	}
	return found, check(float64(hit) <= 0.01*float64(all), "%s: the failing engine drew %d of %d requests, at most 1 %%", strategy, hit, all)
}

func grey(_ context.Context, b *Bench) (Measured, error) {
	es := b.fleet(4, mock.Config{BaseLatency: 20 * time.Millisecond, InterToken: time.Millisecond})
	x := b.serve()
	f := b.flow(x, 40, request{stream: true})
	b.pass(10 * time.Second) // it gets to know them
	share := func(d time.Duration) float64 {
		from := time.Now()
		b.pass(d)
		t := f.now().since(from)
		return float64(t.by("a")) / float64(max(1, t.total()))
	}
	b.fault(es[0], mock.Fault{Kind: "slow", Factor: 10})
	b.pass(30 * time.Second)
	slow := share(10 * time.Second)
	b.mend(es[0])
	began := time.Now()
	back := b.until(60*time.Second, func() bool { return share(5*time.Second) >= 0.8*0.25 })
	after := time.Since(began)
	t := f.end()
	found := measured("%.1f %% after 30 s; share back after %v; %d errors of %d", 100*slow, after.Round(time.Second), t.total()-t.of(complete), t.total())
	if t.of(complete) < t.total() {
		return found, brokenf("not all were answered: %s", t.example())
	}
	return found, check(slow < 0.02 && back, "%.1f %% of traffic went to the slow engine 30 s later, at most 2 %%; its share came back: %v", 100*slow, back)
}

func flapping(_ context.Context, b *Bench) (Measured, error) {
	b.set(soon)
	es := b.fleet(4, mock.Config{BaseLatency: 10 * time.Millisecond})
	x := b.serve()
	f := b.flow(x, 100, request{})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		for down := true; ; down = !down {
			if down {
				_ = es[0].SetFault(mock.Fault{Kind: "status", Status: 500}) // it is a valid one
			} else {
				_ = es[0].ClearFault() // it was not refuse
			}
			select {
			case <-stop:
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	began := time.Now()
	outs := b.outs(x, "a", 3, 15*time.Second)
	close(stop)
	<-done
	t := f.end()
	rest := t.where(func(a *answer) bool { return a.ending != complete })
	found := measured("out for %v within %v; %d errors of %d", outs, time.Since(began).Round(100*time.Millisecond), rest, t.total())
	if rest > 0 {
		return found, brokenf("%d of %d requests were not answered: %s", rest, t.total(), t.example())
	}
	return found, growing(outs)
}

func liar(_ context.Context, b *Bench) (Measured, error) {
	b.set(settings{"strategy": "round_robin", "health_checks": settings{"interval": "200ms", "timeout": "3s"}})
	es := b.fleet(3, mock.Config{BaseLatency: 5 * time.Millisecond}, settings{"kind": "vllm"})
	x := b.serve()
	b.fault(es[0], mock.Fault{Kind: "status", Status: 500})
	f := b.flow(x, 60, request{})
	out := b.until(5*time.Second, func() bool { return x.stands()["a"].state == "open" })
	b.pass(time.Second) // five probes of a page that is fine
	hits := es[0].Stats().Faults
	t := f.end()
	found := measured("out: %v, after %d failures; %d errors of %d", out, hits, t.total()-t.of(complete), t.total())
	return found, check(out && hits <= 6 && x.stands()["a"].state == "open" && t.of(complete) == t.total(), "%s; now %s", found, x.stands()["a"].state)
}

func sickPage(_ context.Context, b *Bench) (Measured, error) {
	b.set(settings{"health_checks": settings{"interval": "100ms", "timeout": "3s"}})
	es := b.fleet(2, mock.Config{BaseLatency: 5 * time.Millisecond}, settings{"kind": "vllm"})
	x := b.serve()
	f := b.flow(x, 100, request{})
	b.pass(300 * time.Millisecond)
	b.fault(es[0], mock.Fault{Kind: "status", Status: http.StatusServiceUnavailable, Path: "/health"})
	degraded := b.until(5*time.Second, func() bool { return x.stands()["a"].state == "degraded" })
	from := time.Now()
	before := calls(es[0])
	b.pass(2 * time.Second)
	state := x.stands()["a"].state
	there := calls(es[0]) - before
	since := f.now().since(from)
	b.mend(es[0])
	healed := b.until(5*time.Second, func() bool { return x.stands()["a"].state == "closed" })
	t := f.end()
	found := measured("%s, %d of %d requests there meanwhile; %d errors of %d", state, there, since.total(), t.total()-t.of(complete), t.total())
	return found, check(degraded && state == "degraded" && there > 0 && there < int64(since.total())/2 && healed && t.of(complete) == t.total(),
		"want degraded, some requests, and closed again (%v): %s; %s", healed, found, t.example())
}

func cold(_ context.Context, b *Bench) (Measured, error) {
	b.set(settings{"strategy": "round_robin", "health_checks": settings{"slow_start": "4s"}}) // others shun who is slow
	warm := mock.Config{BaseLatency: 10 * time.Millisecond, InterToken: time.Millisecond}
	b.fleet(3, warm)
	x := b.serve()
	f := b.flow(x, 100, request{stream: true})
	b.pass(time.Second)
	e := b.engine(warm)
	b.fault(e, mock.Fault{Kind: "slow", Factor: 10})
	b.serveBy(e.Name(), e.URL())
	x.reload()
	joined := time.Now()
	b.pass(time.Second)
	early := f.now().since(joined)
	b.pass(time.Until(joined.Add(2 * time.Second)))
	b.mend(e)
	b.pass(time.Until(joined.Add(8 * time.Second)))
	from := time.Now()
	b.pass(2 * time.Second)
	t := f.end()
	late := t.between(from, from.Add(2*time.Second))
	share := func(t *tally) float64 { return float64(t.by(e.Name())) / float64(max(1, t.total())) }
	found := measured("%.0f %% of traffic in its first second, %.0f %% after 8 s; %d errors of %d", 100*share(early), 100*share(late), t.total()-t.of(complete), t.total())
	if t.of(complete) < t.total() {
		return found, brokenf("not all were answered: %s", t.example())
	}
	return found, check(share(early) < 0.12 && share(late) > 0.12, "%s; want less than 12 %% at first, and more later", found)
}

package drill

import (
	"context"
	"time"

	"evenkeel/internal/mock"
)

// What the default strategy builds on is learned, and requests are held for engines: neither may do harm where it does not hold.
var forecastRows = []Row{
	{
		ID:      "R72",
		Fault:   "what answers is not one engine: a provider takes as many requests at once as come",
		Promise: "nothing is held for it: its time to the first token stays what it is (p99 at most 2 times)",
		run:     notOneEngine, Alone: true,
		off: off{defence: "asking the engine whether it is one", change: "one_engine"},
	},
	{
		ID:      "R73",
		Fault:   "an engine dies while requests are held until it is ready",
		Promise: "those that are held go to the others: only what ran there may fail, and nobody waits for ever",
		run:     diesWhileHeld, Alone: true,
		off: off{defence: "sending on what was held", change: "release"},
	},
}

// predicting is the default strategy, by name: a configuration of the user's own may have another.
var predicting = settings{"strategy": "predicted_wait"}

func notOneEngine(_ context.Context, b *Bench) (Measured, error) {
	const latency = 400 * time.Millisecond
	b.set(predicting)
	b.fleet(1, mock.Config{BaseLatency: latency})
	x := b.serve()
	f := b.flow(x, 40, request{stream: true, long: 12_000})
	most := 0.0
	for range 20 {
		b.pass(250 * time.Millisecond)
		most = max(most, x.sample().waiting())
	}
	t := f.end()
	p99 := t.quantile(0.99, func(a *answer) time.Duration { return a.ttft })
	found := measured("%d answers, TTFT p99 %v where one alone takes %v; at most %.0f held", t.of(complete), p99.Round(time.Millisecond), latency, most)
	if t.of(complete) < t.total() {
		return found, brokenf("not all were answered: %s", t.example())
	}
	return found, check(p99 <= 2*latency, "TTFT p99 %v, at most %v", p99, 2*latency)
}

func diesWhileHeld(_ context.Context, b *Bench) (Measured, error) {
	b.set(predicting)
	b.set(settings{"health_checks": settings{"signal_interval": "100ms"}})
	es := b.fleet(2, mock.Config{BaseLatency: 100 * time.Millisecond, Slots: 1, OutputTokens: 1, OwnedBy: "vllm"}, settings{"kind": "vllm"})
	x := b.serve()
	f := b.flow(x, 30, request{stream: true, long: 16_000})
	held := 0.0
	b.until(5*time.Second, func() bool { held = x.sample().waiting(); return held >= 10 })
	running := es[0].Stats()
	es[0].Kill()
	b.pass(500 * time.Millisecond)
	t := f.end()
	down := t.total() - t.of(complete)
	found := measured("%.0f were held, %d and %d ran at the engine that died; %d of %d requests failed", held, running.Running, running.Waiting, down, t.total())
	if held < 10 {
		return found, brokenf("%s: nothing was held", found)
	}
	return found, check(down <= int(running.Running+running.Waiting)+1, "%s: %s", found, t.example())
}

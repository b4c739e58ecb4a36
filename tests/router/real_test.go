//go:build !race

// Package router drives conversations over HTTP at real llama.cpp servers, and at mock engines that share steps and caches, through
// Evenkeel and other balancers, and compares the times to the first token and what caches find. With ROUTERBENCH it plays all of it
// and writes the report (`make routerbench`); without, a short run shows that the router knows what a real engine has cached.
package router

import (
	"math"
	"testing"
	"time"

	"evenkeel/tests/harness"
	"evenkeel/tests/realengine"
	"evenkeel/tests/realengine/gguf"
)

func TestMain(m *testing.M) { harness.Main(m) }

// realShape makes prompts of 200 to 3,300 tokens. Most of one is the conversation's own.
var realShape = shape{systems: 8, system: span{100, 500}, question: span{50, 300}, turns: span{3, 8}, answer: span{8, 32}, think: 3 * time.Second}

const (
	realServers = 2
	realSlots   = 4
	realContext = 4096
	// realCache is the memory in MiB for prompts that lost their slot. llama.cpp's default, 8 GiB, is as good: 256 MiB are 260,000 tokens of
	// realModel, more than all conversations have.
	realCache = 256
)

// realModel has a million weights: a processor reads several thousand tokens a second.
var realModel = gguf.Model{Dim: 128, Layers: 4, Heads: 8, KVHeads: 4, FeedForward: 352, Context: 1 << 15, Seed: 1}

// reals are two llama.cpp servers, each with a processor of its own.
type reals struct {
	servers []*realengine.Server
	fleet   fleet
}

func startReal(t *testing.T) *reals {
	t.Helper()
	r := &reals{servers: realengine.Start(t, realServers, realengine.Options{
		Model: realModel, Slots: realSlots, Context: realContext, HostCache: realCache, Pinned: true,
	})}
	r.fleet = fleet{kind: "llamacpp", model: realengine.ModelName}
	for _, s := range r.servers {
		r.fleet.urls = append(r.fleet.urls, s.URL)
	}
	return r
}

// restart empties the caches.
func (r *reals) restart(t *testing.T) {
	t.Helper()
	for _, s := range r.servers {
		s.Kill()
		s.Restart(t)
	}
}

// run plays talks through a balancer before servers that have cached nothing, and returns the turns, and the least share of a processor
// that a server had of the time in which it had work (NaN = not known).
func (r *reals) run(t *testing.T, g target, talks []talk, pin pins, within time.Duration) (turns []turn, share float64) {
	t.Helper()
	r.restart(t)
	lb := g.start(t, r.fleet)
	defer lb.stop()
	share = math.NaN()
	type usage struct{ ran, waited time.Duration }
	before := make([]usage, len(r.servers))
	for i, s := range r.servers {
		before[i].ran, before[i].waited, _ = s.CPU() // where it is not known, it is not at the end either
	}
	turns = play(t.Context(), lb.url, r.fleet.model, talks, pin, within)
	for i, s := range r.servers {
		ran, waited, err := s.CPU()
		if err != nil {
			continue
		}
		ran, waited = ran-before[i].ran, waited-before[i].waited
		if had := ran.Seconds() / (ran + waited).Seconds(); !(share <= had) {
			share = had
		}
	}
	if lb.evenkeel != nil {
		learnForecasts(t, lb.evenkeel, turns)
	}
	return turns, share
}

// sticky keeps each talk at one of the engines, in turn.
func (f fleet) sticky(talk int) string { return f.deployment(talk % len(f.urls)) }

// A short run: conversations stay where their beginnings are cached, and of what is cached there the router knows. Times are told, and
// not judged: the machine may do other things.
func TestRouterKnowsWhatEnginesHaveCached(t *testing.T) {
	r := startReal(t)
	hasty := realShape
	hasty.think = time.Second
	talks := hasty.talks(1, 1.2, 10*time.Second)
	run := func(strategy string, pin pins) figures {
		turns, share := r.run(t, evenkeel(strategy, noAffinity), talks, pin, time.Hour)
		f := summarize(turns, 0)
		t.Logf("%s: %v; a server had a processor for %.0f %% of the time in which it had work", strategy, f, 100*share)
		if f.failed > 0 {
			t.Errorf("%s: %d turns failed: %v", strategy, f.failed, f.examples)
		}
		return f
	}
	sticky, fewest := run("round_robin", r.fleet.sticky), run("least_connections", nil)
	own := run("predicted_wait", nil)
	// Where a server hardly gets a processor, its line is long and conversations leave: these bounds hold there too.
	if own.cached < 0.65*sticky.cached || own.cached < 0.75*fewest.cached {
		t.Errorf("%.3f of the prompts' tokens are cached; if talks are pinned %.3f, under least_connections %.3f", own.cached, sticky.cached, fewest.cached)
	}
	const turnsAreFew = 0.2 // of a run as long as the report's, forecasts are off by less than a tenth
	if own.cached < 0.3 || math.Abs(own.forecast/own.cached-1) > turnsAreFew {
		t.Errorf("%.3f of the prompts' tokens are cached, and %.3f were thought to be", own.cached, own.forecast)
	}
}

//go:build !race

package sim_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/peers"
)

func peer(t *testing.T, id string) func(sim.Vantage) (sim.Policy, error) {
	t.Helper()
	e, err := peers.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	return e.New
}

func run(t *testing.T, o sim.Options, length time.Duration) *sim.Result {
	t.Helper()
	o.Plan = exchange.Plan{MaxAttempts: 1}
	o.Router.Health.TTFTOpen = 1 << 60 // other routers do not give less to who is slow
	f, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(length); err != nil {
		t.Fatal(err)
	}
	return f.Result()
}

// hotCold is the rule of Prequal with probes that are fresh: of three replicas the cold one that would answer soonest, if any of
// them is cold, else the one with the fewest requests. Hot is who has more than 84 of the last 100 probes did.
type hotCold struct {
	speeds map[string]float64
	seen   []int
}

func (h *hotCold) Learn(*sim.Notice) {}

func (h *hotCold) Pick(r *route.Round) int {
	limit := math.MaxInt
	if len(h.seen) == 100 {
		limit = slices.Sorted(slices.Values(h.seen))[84]
	}
	best := -1
	before := func(a, b *route.Candidate) bool {
		coldA, coldB := a.InFlight <= limit, b.InFlight <= limit
		if coldA != coldB {
			return coldA
		}
		if !coldA {
			return a.InFlight < b.InFlight
		}
		return float64(a.InFlight+1)/h.speeds[a.ID] < float64(b.InFlight+1)/h.speeds[b.ID]
	}
	for range 3 {
		i := r.IntN(len(r.Candidates))
		h.seen = append(h.seen, r.Candidates[i].InFlight)
		if best < 0 || before(&r.Candidates[i], &r.Candidates[best]) {
			best = i
		}
	}
	h.seen = h.seen[max(0, len(h.seen)-100):]
	return best
}

// choices draws some with replacement and takes the one with the fewest requests in flight, per speed if that is known.
type choices struct {
	draws  int
	speeds map[string]float64
}

func (c choices) Pick(r *route.Round) int {
	load := func(i int) float64 {
		n := float64(r.Candidates[i].InFlight)
		if c.speeds != nil {
			return (n + 1) / c.speeds[r.Candidates[i].ID]
		}
		return n
	}
	best := r.IntN(len(r.Candidates))
	for range c.draws - 1 {
		if i := r.IntN(len(r.Candidates)); load(i) < load(best) {
			best = i
		}
	}
	return best
}

// faster takes the one of two that answered sooner, by a mean that forgets in ten seconds, whatever is in flight.
type faster struct {
	mean []float64
	at   []time.Duration
	sent map[uint64]time.Duration
	id   map[string]int
}

func newFaster(v sim.Vantage) (sim.Policy, error) {
	f := &faster{make([]float64, len(v.IDs)), make([]time.Duration, len(v.IDs)), map[uint64]time.Duration{}, map[string]int{}}
	for i, id := range v.IDs {
		f.id[id] = i
	}
	return f, nil
}

func (f *faster) Learn(n *sim.Notice) {
	switch n.Kind {
	case sim.Sent:
		f.sent[n.Attempt] = n.At
	case sim.Over:
		w := math.Exp(-(n.At - f.at[n.Deployment]).Seconds() / 10)
		f.mean[n.Deployment] = w*f.mean[n.Deployment] + (1-w)*(n.At-f.sent[n.Attempt]).Seconds()
		f.at[n.Deployment] = n.At
		delete(f.sent, n.Attempt)
	}
}

func (f *faster) Pick(r *route.Round) int {
	a, b := r.IntN(len(r.Candidates)), r.IntN(len(r.Candidates))
	if f.mean[f.id[r.Candidates[b].ID]] < f.mean[f.id[r.Candidates[a].ID]] {
		return b
	}
	return a
}

// inOrder says how measured means are ordered, and whether that is as listed, each below the next.
func inOrder(names []string, means map[string]float64) (string, bool) {
	var said []string
	for _, n := range names {
		said = append(said, fmt.Sprintf("%s %.3g", n, means[n]))
	}
	return strings.Join(said, ", "), slices.IsSortedFunc(names, func(a, b string) int {
		if means[a] < means[b] {
			return -1
		}
		return 1
	})
}

// TestTwoSpeeds: ten deployments of speed 1 and ten of speed 0.5 at a load of 0.8. What a policy must know is who is slow, not
// only who has few requests; latency alone is worst, since it comes late.
func TestTwoSpeeds(t *testing.T) {
	const load = .8
	speeds := map[string]float64{}
	for i := range 20 {
		speeds[fmt.Sprintf("e%d/m", i)] = 1 - float64(i/10)/2
	}
	f := func(set func(*sim.Options)) float64 {
		var o sim.Options
		for i := range 20 {
			q, err := sim.NewQueue(sim.QueueOptions{Slots: 1, Speed: 1 - float64(i/10)/2})
			if err != nil {
				t.Fatal(err)
			}
			o.Servers = append(o.Servers, q)
		}
		source, err := sim.NewPoisson(4, sim.PoissonOptions{Rate: load * 15, Work: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		o.Seed, o.Source, o.BurnIn = 4, source, 500*time.Second
		set(&o)
		length := 5000 * time.Second
		if *sim.Full {
			length *= 10
		}
		return run(t, o, 500*time.Second+length).Response.Mean()
	}
	means := map[string]float64{
		"hot-cold": f(func(o *sim.Options) {
			o.Policy = func(sim.Vantage) (sim.Policy, error) { return &hotCold{speeds: speeds}, nil }
		}),
		"three":        f(func(o *sim.Options) { o.Strategy = choices{draws: 3} }),
		"two/speed":    f(func(o *sim.Options) { o.Strategy = choices{2, speeds} }),
		"two":          f(func(o *sim.Options) { o.Strategy = choices{draws: 2} }),
		"peak EWMA":    f(func(o *sim.Options) { o.Policy = peer(t, "finagle") }),
		"latency only": f(func(o *sim.Options) { o.Policy = newFaster }),
	}
	order := []string{"hot-cold", "three", "two/speed", "two", "peak EWMA", "latency only"}
	said, ok := inOrder(order, means)
	sim.Relation(t, "S16 two speeds, load 0.8: mean response, in this order", strings.Join(order, " < "), said, ok)
	sim.Target(t, "S15 two speeds, load 0.8: hot-cold of fresh probes, latency = (requests + 1)/speed", means["hot-cold"], 0, 2.36, .12)
	sim.Target(t, "S15 two speeds, load 0.8: two choices", means["two"], 0, 3.45, .03)
	sim.Target(t, "S15 two speeds, load 0.8: three choices", means["three"], 0, 2.58, .03)
}

// session keeps each conversation, which its first block of its own tells, at one deployment.
type session struct{ systems int }

func (s session) Pick(r *route.Round) int {
	own := min(s.systems, len(r.Facts.Prefix)-1)
	return int(r.Facts.Prefix[own] % uint64(len(r.Candidates)))
}

// TestLegacyFleet: the order of policies of an early study of LLM fleets, with its engine: conversations of six turns about
// twenty system prompts, eight of which begin in a second, for eight engines. That study does not say how long questions and answers were.
func TestLegacyFleet(t *testing.T) {
	const perSecond = 8
	c, err := engine.Preset("legacy")
	if err != nil {
		t.Fatal(err)
	}
	seeds, length := uint64(1), 160*time.Second
	if *sim.Full {
		seeds, length = 4, 360*time.Second
	}
	f := func(seed uint64, set func(*sim.Options)) float64 {
		o := sim.Options{Seed: seed, Stream: true, BurnIn: 60 * time.Second}
		for range 8 {
			e, err := sim.NewEngine(c)
			if err != nil {
				t.Fatal(err)
			}
			o.Servers = append(o.Servers, e)
		}
		o.Source, err = sim.NewSessions(seed, sim.SessionOptions{
			Rate: perSecond, Turns: sim.Law{Mean: 6}, Systems: 20, Zipf: 1, System: sim.Law{Mean: 1500}, Question: sim.Law{Mean: 300, CV: .5},
			Answer: sim.Law{Mean: 100, CV: .5}, Gap: sim.Law{Mean: 3, CV: .5}, Block: c.BlockTokens,
		})
		if err != nil {
			t.Fatal(err)
		}
		set(&o)
		return run(t, o, length).TTFT.Mean()
	}
	for seed := range seeds {
		means := map[string]float64{
			"LMetric":      f(seed, func(o *sim.Options) { o.Policy = peer(t, "lmetric") }),
			"SGLang":       f(seed, func(o *sim.Options) { o.Policy = peer(t, "sglang/library") }),
			"session hash": f(seed, func(o *sim.Options) { o.Strategy = session{1500 / c.BlockTokens} }),
			"cache-blind":  f(seed, func(o *sim.Options) { o.Policy = peer(t, "envoy") }),
		}
		order := []string{"LMetric", "SGLang", "session hash", "cache-blind"}
		said, ok := inOrder(order, means)
		sim.Relation(t, fmt.Sprintf("S33 conversations on eight engines of the legacy model, seed %d: mean time to first token, in this order", seed), strings.Join(order, " < "), said, ok)
	}
}

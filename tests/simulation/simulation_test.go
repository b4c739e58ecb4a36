// Package simulation holds the simulator against the program: the same requests at the same times, through the production router in
// virtual time, and through `evenkeel serve` with mock engines over real HTTP.
package simulation

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
	"evenkeel/internal/strategy"
	"evenkeel/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The bounds within which the wire must be: of the simulator's value, or this long if that is more.
const (
	bound = 0.05
	least = 5 * time.Millisecond
)

// attempts is how often a scene is tried if the machine stalls meanwhile, as stalled says.
const attempts = 3

func TestSimulatorAgainstTheWire(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector takes more time than the bounds leave")
	}
	left := scenes()
	for n := 1; len(left) > 0; n++ {
		t.Run(fmt.Sprint("attempt ", n), func(t *testing.T) { left = try(t, left, n == attempts) })
	}
}

// What the machine's noise can do to a scene is much less than what the bounds leave: arrivals that are late by some milliseconds, and
// other draws of the strategy, change little in the simulator.
func TestScenesAreSteady(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2))
	for _, s := range scenes() {
		requests := s.requests(t)
		draw := func() {
			for i := range requests {
				requests[i].Seed = noise.Uint64()
			}
		}
		for range 10 {
			draw()
			plain := s.simulate(t, requests)
			for range 4 {
				late := slices.Clone(requests)
				for i := range late {
					late[i].At += time.Duration(noise.ExpFloat64() * float64(2*time.Millisecond))
				}
				shaken := s.simulate(t, late)
				got, want := shaken.summary(), plain.summary()
				if math.Abs(got.mean-want.mean) > bound/2*want.mean || math.Abs(got.p99-want.p99) > bound/2*want.p99 {
					t.Errorf("%s: a few milliseconds decide too much: %v, and %v if arrivals are late", s.name, want, got)
				}
			}
		}
		if a := s.simulate(t, requests); (a.preempted > 0) != (s.name == "preemption") {
			t.Errorf("%s: %d preemptions", s.name, a.preempted)
		}
	}
}

// Engines that take a tenth longer for all they do, and such as remember little, are told from those of the scene.
func TestDifferencesAreSeen(t *testing.T) {
	f := func(s scene, change func(*engine.Config)) {
		t.Helper()
		requests := s.requests(t)
		for i := range requests {
			requests[i].Seed = uint64(i + 1)
		}
		plain := s.simulate(t, requests)
		if wrong := differences(&plain, &plain); len(wrong) > 0 {
			t.Errorf("%s: not equal to itself: %v", s.name, wrong)
		}
		s.engines = slices.Clone(s.engines)
		for i := range s.engines {
			change(&s.engines[i])
		}
		changed := s.simulate(t, requests)
		if len(differences(&changed, &plain)) == 0 {
			t.Errorf("%s: a difference is not seen: %v, and %v", s.name, plain.summary(), changed.summary())
		}
	}
	for _, s := range scenes() {
		f(s, func(c *engine.Config) {
			for _, cost := range []*float64{&c.Timing.Base, &c.Timing.Token, &c.Timing.Pair, &c.Timing.Sequence, &c.Timing.Context} {
				*cost *= 1.1
			}
		})
		if s.name == "prefill first" {
			f(s, func(c *engine.Config) { c.Blocks = 200 }) // a few prompts
		}
	}
}

// try plays the scenes, all at one time, and returns those to be tried again.
func try(t *testing.T, scenes []scene, last bool) (again []scene) {
	requests := make([][]sim.Request, len(scenes))
	wires := make([]*wire, len(scenes))
	for i := range scenes {
		requests[i] = scenes[i].requests(t)
		wires[i] = scenes[i].start(t, requests[i])
	}
	got := make([]answered, len(scenes))
	failed := make([]error, len(scenes))
	machine := watchLateness()
	var plays sync.WaitGroup
	for i, w := range wires {
		plays.Go(func() { got[i], failed[i] = w.play(requests[i]) })
	}
	plays.Wait()
	late := machine.stop()
	t.Logf("the machine woke those who waited late by %v", late)
	for i := range scenes {
		s := &scenes[i]
		if failed[i] != nil {
			t.Errorf("%s: %v", s.name, failed[i])
			continue
		}
		want := s.simulate(t, requests[i])
		wrong := differences(&got[i], &want)
		t.Logf("%s: %d requests, %.0f %% served by the same deployment\n simulator: %v\n      wire: %v", s.name, len(requests[i]), 100*alike(&got[i], &want), want.summary(), got[i].summary())
		switch {
		case len(wrong) == 0:
		case late.stalled() && !last:
			t.Logf("%s: once more, since the machine stalled: %s", s.name, strings.Join(wrong, "; "))
			again = append(again, *s)
		default:
			t.Errorf("%s: %s (the machine woke those who waited late by %v)", s.name, strings.Join(wrong, "; "), late)
		}
	}
	return again
}

// differences lists what the wire does too differently.
func differences(wire, simulated *answered) (wrong []string) {
	got, want := wire.summary(), simulated.summary()
	f := func(name string, got, want float64) {
		if limit := max(bound*want, least.Seconds()); math.Abs(got-want) > limit {
			wrong = append(wrong, fmt.Sprintf("%s is %.1f ms on the wire, and %.1f ms in the simulator: more than %.1f ms apart", name, 1e3*got, 1e3*want, 1e3*limit))
		}
	}
	f("mean TTFT", got.mean, want.mean)
	f("p99 TTFT", got.p99, want.p99)
	f("mean time to the end", got.whole, want.whole)
	if math.Abs(got.cached-want.cached) > bound*want.cached {
		wrong = append(wrong, fmt.Sprintf("%.0f cached tokens on the wire, and %.0f in the simulator", got.cached, want.cached))
	}
	if (got.preempted > 0) != (want.preempted > 0) {
		wrong = append(wrong, fmt.Sprintf("%.0f preemptions on the wire, and %.0f in the simulator", got.preempted, want.preempted))
	}
	apart := make([]time.Duration, len(wire.ttft))
	for i := range apart {
		apart[i] = wire.ttft[i] - simulated.ttft[i]
	}
	slices.Sort(apart)
	f("the median TTFT by the differences", want.median+quantile(apart, 0.5), want.median)
	// Where load decides, milliseconds can change a choice, and then what is chosen for a while.
	if share := alike(wire, simulated); share < 0.7 {
		wrong = append(wrong, fmt.Sprintf("only %.0f %% of the requests came to the same deployment", 100*share))
	}
	return wrong
}

// alike is the share of requests that the same deployment served.
func alike(a, b *answered) float64 {
	n := 0
	for i := range a.deployment {
		if a.deployment[i] == b.deployment[i] {
			n++
		}
	}
	return float64(n) / float64(len(a.deployment))
}

// scene is a workload before a fleet.
type scene struct {
	name     string
	engines  []engine.Config
	strategy string
	source   func() (sim.Source, error)
}

// span is the time in which requests come.
const span = 28 * time.Second

// fleet is n engines, whose speeds are these in turn. A step takes a tenth of a second and more, so that what sockets and a busy machine
// add is small beside it; that there are many makes up for the requests that each can take.
func fleet(n int, scheduler engine.Scheduler, blocks int, speeds ...float64) (all []engine.Config) {
	for i := range n {
		speed := speeds[i%len(speeds)]
		all = append(all, engine.Config{
			Timing:    engine.Timing{Base: 0.16 / speed, Token: 2e-3 / speed, Pair: 1.6e-7 / speed, Sequence: 8e-3 / speed, Context: 1.6e-6 / speed},
			Scheduler: scheduler, StepTokens: 512, MicroBatch: 256, MaxSequences: 16, Slots: 4, BlockTokens: 16, Blocks: blocks, Watermark: 0.01,
		})
	}
	return all
}

func conversations(seed uint64, rate float64) func() (sim.Source, error) {
	return func() (sim.Source, error) {
		return sim.NewSessions(seed, sim.SessionOptions{
			Rate: rate, Turns: sim.Law{Mean: 5, CV: 0.5}, Gap: sim.Law{Mean: 4, CV: 0.8}, Systems: 8, Zipf: 1, System: sim.Law{Mean: 300, CV: 0.3},
			Question: sim.Law{Mean: 150, CV: 0.8}, Answer: sim.Law{Mean: 10, CV: 0.6}, Block: 16,
		})
	}
}

func strangers(seed uint64, o sim.PoissonOptions) func() (sim.Source, error) {
	return func() (sim.Source, error) { return sim.NewPoisson(seed, o) }
}

// scenes are such that a few milliseconds more or less decide little: see TestScenesAreSteady.
func scenes() []scene {
	return []scene{
		{
			name: "batching with a prefix cache that is too small", strategy: "round_robin",
			engines: fleet(8, engine.Mixed, 200, 1), source: conversations(33, 0.9),
		},
		{
			name: "preemption", strategy: "round_robin", engines: fleet(2, engine.Mixed, 110, 2),
			source: strangers(20, sim.PoissonOptions{Rate: 1.5, CV: 2, Prompt: sim.Law{Mean: 350, CV: 0.5}, Output: sim.Law{Mean: 40, CV: 0.4}}),
		},
		{
			name: "prefill first", strategy: "round_robin",
			engines: fleet(6, engine.PrefillFirst, 4000, 1), source: conversations(36, 0.8),
		},
		{
			name: "slots", strategy: "round_robin", engines: fleet(8, engine.Slots, 1024, 1),
			source: strangers(31, sim.PoissonOptions{Rate: 3, Prompt: sim.Law{Mean: 300, CV: 0.5}, Output: sim.Law{Mean: 20, CV: 0.3}}),
		},
		{
			name: "engines of different speed", strategy: "least_tokens", engines: fleet(2, engine.Mixed, 4000, 2.2, 1.8),
			source: strangers(21, sim.PoissonOptions{Rate: 1.7, Prompt: sim.Law{Mean: 400, CV: 0.3}, Output: sim.Law{Mean: 20, CV: 0.3}}),
		},
		{
			name: "one prompt at a time", strategy: "least_connections", engines: fleet(2, engine.FIFO, 4000, 2.2, 1.8),
			source: strangers(17, sim.PoissonOptions{Rate: 2, Prompt: sim.Law{Mean: 400, CV: 0.3}, Output: sim.Law{Mean: 20, CV: 0.3}}),
		},
	}
}

// requests are those of the scene.
func (s *scene) requests(t testing.TB) []sim.Request {
	t.Helper()
	source, err := s.source()
	if err != nil {
		t.Fatal(err)
	}
	var all []sim.Request
	for {
		var r sim.Request
		if !source.Next(&r) || r.At > span {
			return all
		}
		all = append(all, r)
	}
}

// answered is what became of each request, in their order.
type answered struct {
	ttft       []time.Duration // to the first token
	whole      []time.Duration // to the end of the answer
	cached     []int           // tokens
	deployment []string
	preempted  uint64 // times
}

func newAnswered(n int) answered {
	return answered{
		ttft: make([]time.Duration, n), whole: make([]time.Duration, n), cached: make([]int, n), deployment: make([]string, n),
	}
}

// listed is a Source of these requests.
type listed []sim.Request

func (l *listed) Next(r *sim.Request) bool {
	if len(*l) == 0 {
		return false
	}
	*r, *l = (*l)[0], (*l)[1:]
	return true
}

// simulate gives the requests to the simulator, in order of their arrival. Each must have a seed of its own.
func (s *scene) simulate(t testing.TB, requests []sim.Request) answered {
	t.Helper()
	rank, err := strategy.New(s.strategy, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := newAnswered(len(requests))
	position := map[uint64]int{}
	for i := range requests {
		position[requests[i].Seed] = i
	}
	source := listed(slices.Clone(requests))
	slices.SortStableFunc(source, func(a, b sim.Request) int { return cmp.Compare(a.At, b.At) })
	last := source[len(source)-1].At
	o := sim.Options{
		Strategy: rank, Stream: true, Source: &source, Router: route.Options{MaxWaiting: 1000}, Plan: exchange.Plan{MaxAttempts: 1},
		Record: func(r *sim.Request, rec *exchange.Record) {
			i, served := position[r.Seed], rec.Last()
			a.ttft[i], a.whole[i] = rec.Content.Sub(sim.Epoch)-r.At, rec.Ended.Sub(sim.Epoch)-r.At
			a.cached[i], a.deployment[i] = served.Outcome.CachedTokens, served.Deployment
		},
	}
	for _, c := range s.engines {
		e, err := sim.NewEngine(c)
		if err != nil {
			t.Fatal(err)
		}
		o.Servers = append(o.Servers, e)
	}
	f, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(last); err != nil {
		t.Fatal(err)
	}
	for _, e := range o.Servers {
		a.preempted += e.(*sim.Engine).Load(f.Now()).Preemptions
	}
	if c := f.Result().Counts; c.Done != len(requests) {
		t.Fatalf("the simulator answered %d of %d requests", c.Done, len(requests))
	}
	return a
}

// summary is what is compared, in seconds and tokens.
type summary struct{ mean, median, p99, whole, cached, preempted float64 }

func (a *answered) summary() summary {
	ttft := slices.Sorted(slices.Values(a.ttft))
	s := summary{median: quantile(ttft, 0.5), p99: quantile(ttft, 0.99), preempted: float64(a.preempted)}
	for i := range a.ttft {
		s.mean += a.ttft[i].Seconds() / float64(len(a.ttft))
		s.whole += a.whole[i].Seconds() / float64(len(a.ttft))
		s.cached += float64(a.cached[i])
	}
	return s
}

// quantile returns the smallest value that a share q of all does not exceed.
func quantile(sorted []time.Duration, q float64) float64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)].Seconds()
}

func (s summary) String() string {
	return fmt.Sprintf("TTFT mean %.1f ms, p50 %.1f ms, p99 %.1f ms; whole answer mean %.1f ms; %.0f cached tokens; %.0f preemptions",
		1e3*s.mean, 1e3*s.median, 1e3*s.p99, 1e3*s.whole, s.cached, s.preempted)
}

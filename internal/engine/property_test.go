package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// op is something done to an engine.
type op struct {
	at     time.Duration
	submit *Sequence
	cancel uint64
	slow   float64
}

// randomOps draws n requests in sessions of several turns that share system prompts, some with an odd tail, some cancelled, and a
// change of pace now and then. every is the mean time between requests. IDs are in order of arrival.
func randomOps(seed uint64, c Config, n int, every time.Duration) []op {
	r := rand.New(rand.NewPCG(seed, 0))
	room := min(c.room(), 4*c.StepTokens+2*c.Blocks*c.BlockTokens/3)
	type session struct {
		chain  []uint64
		tokens int
	}
	var sessions []session
	var ops []op
	at := time.Duration(0)
	for id := uint64(1); id <= uint64(n); id++ {
		at += time.Duration(r.ExpFloat64() * float64(every))
		var s session
		if len(sessions) > 0 && r.IntN(3) > 0 {
			s = sessions[r.IntN(len(sessions))]
		} else {
			k := r.IntN(4)
			s = session{chain: chain(1000+uint64(r.IntN(3)), k), tokens: k * c.BlockTokens}
		}
		prompt := s.tokens + 1 + r.IntN(6*c.BlockTokens)
		output := 1 + r.IntN(5*c.BlockTokens)
		if prompt+output > room {
			prompt, output = 1+r.IntN(room/2), 1+r.IntN(room/2)
			s = session{}
		}
		full, all := prompt/c.BlockTokens, (prompt+output)/c.BlockTokens
		hashes := append(slices.Clone(s.chain), chain(id<<8, all-len(s.chain))...)
		q := &Sequence{ID: id, PromptTokens: prompt, OutputTokens: output, Prompt: hashes[:full], EachToken: r.IntN(20) == 0}
		if r.IntN(3) > 0 {
			q.Output = hashes[full:]
			sessions = append(sessions, session{hashes[:(prompt+output-1)/c.BlockTokens], prompt + output})
		}
		ops = append(ops, op{at: at, submit: q})
		if r.IntN(10) == 0 {
			ops = append(ops, op{at: at + time.Duration(r.ExpFloat64()*float64(5*every)), cancel: id})
		}
		if r.IntN(30) == 0 {
			ops = append(ops, op{at: at + 1, slow: 0.5 + r.Float64()})
		}
	}
	slices.SortStableFunc(ops, func(a, b op) int { return int(a.at - b.at) })
	return ops
}

// drive applies ops to a new engine until it is idle, and returns all events and the loads seen after each operation. What is done at
// the end of a step comes before it. after is called after each step.
func drive(t *testing.T, c Config, ops []op, after func(e *Engine, now time.Duration, events []Event)) (events []Event, loads []Load) {
	t.Helper()
	e := newEngine(t, c)
	for steps := 0; ; steps++ {
		if steps > 1_000_000 {
			t.Fatal("the engine does not come to an end")
		}
		at, busy := e.Next()
		if !busy && len(ops) == 0 {
			return events, loads
		}
		if !busy || len(ops) > 0 && ops[0].at <= at {
			o := ops[0]
			ops = ops[1:]
			switch {
			case o.submit != nil:
				if err := e.Submit(o.at, *o.submit); err != nil {
					t.Fatal(err)
				}
			case o.slow > 0:
				e.Slow(o.at, o.slow)
			default:
				e.Cancel(o.at, o.cancel)
			}
			loads = append(loads, e.Load(o.at))
			continue
		}
		got := e.Step(at)
		events = append(events, got...)
		if after != nil {
			after(e, at, got)
		}
	}
}

// engines are small engines under pressure: few blocks, few places, small budgets.
func engines() map[string]Config {
	m := map[string]Config{}
	for _, s := range all {
		for name, change := range map[string]func(*Config){
			"":             func(*Config) {},
			"/little KV":   func(c *Config) { c.Blocks = 16 },
			"/watermark":   func(c *Config) { c.Blocks, c.Watermark = 24, 0.2 },
			"/few places":  func(c *Config) { c.MaxSequences, c.Slots = 2, 1 },
			"/small steps": func(c *Config) { c.StepTokens, c.MicroBatch = 8, 4 },
			"/cold":        func(c *Config) { c.Load, c.WarmUpSteps, c.WarmUpFactor = time.Second, 20, 3 },
			"/curve": func(c *Config) {
				c.Timing.Decode = func(use float64) float64 { return 1e-3 + use*(2-use)*7e-3 }
			},
		} {
			c := Config{
				Timing:    Timing{Base: 1.7e-3, Prefill: 1.1e-3, Token: 1.3e-4, Pair: 1e-7, Sequence: 3.1e-4, Context: 1.9e-6},
				Scheduler: s, StepTokens: 64, MicroBatch: 16, MaxSequences: 8, Slots: 4, BlockTokens: 8, Blocks: 120,
			}
			change(&c)
			m[s.String()+name] = c
		}
	}
	return m
}

// all are the schedulers there are.
var all = []Scheduler{Mixed, PrefillFirst, Slots, FIFO, Legacy}

// each runs check on the engines with these schedulers and some seeds, at low load, near the edge and above it.
func each(t *testing.T, schedulers []Scheduler, check func(t *testing.T, c Config, ops []op)) {
	for name, c := range engines() {
		if !slices.Contains(schedulers, c.Scheduler) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(6) {
				every := []time.Duration{400, 60, 8}[seed%3] * time.Millisecond
				check(t, c, randomOps(seed, c, 150, every))
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// TestSpansChangeNothing compares an engine that takes alike steps at once with one that takes each alone.
func TestSpansChangeNothing(t *testing.T) {
	each(t, all, func(t *testing.T, c Config, ops []op) {
		c.span = 1
		wantEvents, wantLoads := drive(t, c, ops, nil)
		for _, span := range []int{3, maxSpan} {
			c.span = span
			events, loads := drive(t, c, ops, nil)
			same(t, fmt.Sprint("events at span ", span), events, wantEvents)
			same(t, fmt.Sprint("loads at span ", span), loads, wantLoads)
		}
	})
}

func same[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("%s: number %d is %+v, want %+v", what, i, got[i], want[i])
			return
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d, want %d", what, len(got), len(want))
	}
}

// TestNothingIsLost checks that each request ends once with all its tokens, in order of time, and that first tokens come
// in order of arrival.
func TestNothingIsLost(t *testing.T) {
	each(t, all, func(t *testing.T, c Config, ops []op) {
		requests, cancelled := map[uint64]Sequence{}, map[uint64]bool{}
		for _, o := range ops {
			if o.submit != nil {
				requests[o.submit.ID] = *o.submit
			} else if o.cancel != 0 {
				cancelled[o.cancel] = true
			}
		}
		events, loads := drive(t, c, ops, func(e *Engine, now time.Duration, _ []Event) {
			l := e.Load(now)
			if _, busy := e.Next(); busy != (l.Running+l.Waiting > 0) {
				t.Fatalf("busy is %v with %+v", busy, l)
			}
			if !busyMemory(c, l) {
				t.Fatalf("memory: %+v", l)
			}
		})
		tokens := map[uint64]int{}
		done := map[uint64]bool{}
		var last time.Duration
		var newest uint64
		for _, ev := range events {
			s := requests[ev.ID]
			if ev.At < last || done[ev.ID] {
				t.Fatalf("%+v comes after %v, or after its end", ev, last)
			}
			last = ev.At
			switch ev.Kind {
			case FirstToken:
				if ev.ID < newest || ev.Tokens != 1 || ev.CachedTokens >= s.PromptTokens {
					t.Fatalf("first token %+v after the one of %d", ev, newest)
				}
				newest = ev.ID
				tokens[ev.ID]++
			case Token:
				tokens[ev.ID]++
				if !s.EachToken || ev.Tokens != tokens[ev.ID] {
					t.Fatalf("%+v as token %d, asked for: %v", ev, tokens[ev.ID], s.EachToken)
				}
			case Done:
				if s.OutputTokens > 1 {
					tokens[ev.ID]++
				}
				if ev.Tokens != s.OutputTokens || s.EachToken && tokens[ev.ID] != s.OutputTokens {
					t.Fatalf("%+v ends after %d tokens, want %d", ev, tokens[ev.ID], s.OutputTokens)
				}
				done[ev.ID] = true
			}
		}
		for id := range requests {
			if !done[id] && !cancelled[id] {
				t.Fatalf("request %d never ended", id)
			}
		}
		if len(loads) != len(ops) {
			t.Fatalf("%d loads, want %d", len(loads), len(ops))
		}
	})
}

// busyMemory reports whether the blocks of l can be.
func busyMemory(c Config, l Load) bool {
	if l.Used < 0 || l.Cached < 0 || l.Running == 0 && l.Used != 0 {
		return false
	}
	if c.Scheduler == Legacy {
		return l.Cached <= l.Blocks
	}
	return l.Used+l.Cached <= l.Blocks
}

// TestBlocksAddUp recounts the blocks after every step from the sequences and the table.
func TestBlocksAddUp(t *testing.T) {
	each(t, []Scheduler{Mixed, PrefillFirst}, func(t *testing.T, c Config, ops []op) {
		drive(t, c, ops, func(e *Engine, _ time.Duration, _ []Event) {
			b := e.model.(*batching)
			k := b.mem.(*blockCache)
			private, refs := 0, map[int32]int32{}
			for _, j := range b.running {
				kv, blocks := j.kv, j.blocks
				if j.decoding() {
					kv += b.decoders.round - j.joined
					blocks = blocksOf(kv+min(b.now.decodes, 1), c.BlockTokens) // it has what the step that runs needs
				}
				private += blocks - j.held
				if blocks*c.BlockTokens < kv || j.held*c.BlockTokens > kv {
					t.Fatalf("request %d computed %d tokens, has %d blocks, shares %d", j.ID, kv, blocks, j.held)
				}
				at := j.held
				for i := j.tail; i != 0; i = k.segments[i].parent {
					refs[i]++
					at -= len(k.segments[i].hashes)
					for n, h := range k.segments[i].hashes {
						if want, _ := j.hash(at + n); h != want {
							t.Fatalf("request %d holds %x as block %d, want %x", j.ID, h, at+n, want)
						}
					}
				}
				if at != 0 {
					t.Fatalf("request %d holds %d blocks, and counts %d", j.ID, j.held-at, j.held)
				}
			}
			for i := range b.waiting.len() {
				if j := b.waiting.at(i); j.blocks != 0 || j.held != 0 || j.tail != 0 {
					t.Fatalf("request %d waits and holds %d blocks", j.ID, j.blocks)
				}
			}
			pinned, cached := 0, 0
			for i := 1; i < len(k.segments); i++ {
				r := k.segments[i]
				if slices.Contains(k.unused, int32(i)) {
					if refs[int32(i)] != 0 {
						t.Fatalf("segment %d is held and unused", i)
					}
					continue
				}
				if k.find(r.parent, r.hashes[0]) != int32(i) || r.refs != refs[int32(i)] || len(r.hashes) > longestSegment {
					t.Fatalf("segment %x: %+v, held by %d", r.first, r, refs[int32(i)])
				}
				if r.refs == 0 {
					cached += len(r.hashes)
				} else {
					pinned += len(r.hashes)
				}
			}
			listed := 0
			for i := k.segments[0].next; i != 0; i = k.segments[i].next {
				listed += len(k.segments[i].hashes)
			}
			if private != k.private || pinned != k.pinned || cached != k.cached || listed != cached || k.tree.blocks != k.pinned+k.cached {
				t.Fatalf("private %d, pinned %d, cached %d in the list %d, tree %d; counted %d, %d, %d",
					private, pinned, cached, listed, k.tree.blocks, k.private, k.pinned, k.cached)
			}
			if k.private+k.pinned+k.cached > k.capacity {
				t.Fatalf("%d + %d + %d blocks of %d", k.private, k.pinned, k.cached, k.capacity)
			}
		})
	})
}

// TestFirstComeFirstServed checks the order of what runs and waits, that the oldest gets on in every step, however often others are preempted (so
// no livelock can be), and that nothing waits that would fit.
func TestFirstComeFirstServed(t *testing.T) {
	preemptions := 0
	each(t, []Scheduler{Mixed, PrefillFirst, Slots, Legacy}, func(t *testing.T, c Config, ops []op) {
		var oldest uint64
		var progress int
		drive(t, c, ops, func(e *Engine, _ time.Duration, events []Event) {
			for _, ev := range events {
				if ev.Kind == Preempted {
					preemptions++
				}
			}
			b := e.model.(*batching)
			var order []uint64
			for _, j := range b.running {
				order = append(order, j.ID)
			}
			for i := range b.waiting.len() {
				order = append(order, b.waiting.at(i).ID)
			}
			if !slices.IsSorted(order) {
				t.Fatalf("runs and waits as %v", order)
			}
			if len(b.running) == 0 {
				if len(order) > 0 {
					t.Fatalf("%v wait and nothing runs", order)
				}
				return
			}
			j := b.running[0]
			now := j.kv + j.generated
			if j.decoding() {
				now += b.decoders.round - j.joined
			}
			stalled := c.Scheduler == PrefillFirst && j.decoding() && len(b.now.chunks) > 0
			if j.ID == oldest && now <= progress && !stalled && b.now.steps > 0 && progress >= 0 {
				t.Fatalf("request %d stands at %d", oldest, progress)
			}
			oldest, progress = j.ID, now
			if stalled {
				progress = -1
			}
			tokens := b.now.decodes
			for _, c := range b.now.chunks {
				tokens += c.n
			}
			if b.waiting.len() == 0 || tokens == c.StepTokens || len(b.running) == c.maxSequences() || stalled {
				return
			}
			k, ok := b.mem.(*blockCache)
			if !ok {
				t.Fatalf("%v wait and could run", order)
			}
			head := *b.waiting.first()
			if k.admit(&head, false) {
				t.Fatalf("request %d waits, and fits into %d blocks", head.ID, k.room())
			}
		})
	})
	if preemptions < 100 {
		t.Errorf("only %d preemptions: the workloads do not press on memory", preemptions)
	}
}

// TestClosedForm: with one place and one size of prompt, an engine is an M/D/1 queue: the mean wait is ρ/(2(1 - ρ)) services.
func TestClosedForm(t *testing.T) {
	f := func(c Config, rho float64) {
		t.Run(fmt.Sprint(c.Scheduler, " at ", rho), func(t *testing.T) {
			service := 60 * ms // 10 + 50
			r := rand.New(rand.NewPCG(1, uint64(1000*rho)))
			const n, warm = 80_000, 5_000
			arrived := make([]time.Duration, n)
			var ops []op
			var at time.Duration
			for i := range arrived {
				at += time.Duration(r.ExpFloat64() * float64(service) / rho)
				arrived[i] = at
				ops = append(ops, op{at: at, submit: &Sequence{ID: uint64(i), PromptTokens: 50, OutputTokens: 1}})
			}
			var sum time.Duration
			drive(t, c, ops, func(_ *Engine, _ time.Duration, events []Event) {
				for _, ev := range events {
					if ev.Kind == Done && ev.ID >= warm {
						sum += ev.At - arrived[ev.ID] - service
					}
				}
			})
			got := float64(sum) / float64(service) / (n - warm)
			want := rho / (2 * (1 - rho))
			if got < 0.95*want || got > 1.05*want {
				t.Errorf("mean wait %.3f services, want %.3f ±5 %%", got, want)
			}
		})
	}
	for _, rho := range []float64{0.5, 0.8} {
		f(plain(func(c *Config) { c.MaxSequences = 1 }), rho)
		f(plain(func(c *Config) { c.Scheduler, c.MaxSequences = PrefillFirst, 1 }), rho)
		f(plain(func(c *Config) { c.Scheduler, c.Slots = Slots, 1 }), rho)
		f(plain(func(c *Config) { c.Scheduler = FIFO }), rho)
	}
}

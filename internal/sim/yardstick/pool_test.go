package yardstick

import (
	"math"
	"slices"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

func mustPool(tb testing.TB, engines []engine.Config, r rule) *Pool {
	tb.Helper()
	p, err := newPool(engines, r)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// drive gives a pool requests and returns when each had its first token, and on which engine.
func drive(tb testing.TB, p *Pool, requests []sim.Request) (first []time.Duration, on []int) {
	tb.Helper()
	first, on = make([]time.Duration, len(requests)), make([]int, len(requests))
	step := func(at time.Duration) {
		for _, r := range p.Step(at) {
			if r.Kind == sim.FirstToken {
				first[r.ID] = at
				if a := p.asks[r.ID]; a != nil {
					on[r.ID] = a.at.index
				}
			}
		}
	}
	for i := range requests {
		for {
			at, busy := p.Next()
			if !busy || at > requests[i].At {
				break
			}
			step(at)
		}
		if err := p.Submit(requests[i].At, sim.Job{ID: uint64(i), Request: &requests[i]}); err != nil {
			tb.Fatal(err)
		}
	}
	for {
		at, busy := p.Next()
		if !busy {
			break
		}
		step(at)
	}
	if len(p.asks)+len(p.queue) > 0 {
		tb.Fatalf("%d requests and %d in the queue are never over", len(p.asks), len(p.queue))
	}
	return first, on
}

// TestRulesByHand: what each rule does with few requests.
func TestRulesByHand(t *testing.T) {
	answer := func(r sim.Request) sim.Request {
		r.OutputTokens = 3
		return r
	}
	soon := []sim.Request{chat(0, 101, chain(1, 25)...), chat(150*ms, 30), chat(155*ms, 50), chat(160*ms, 101, chain(1, 25)...)}
	later := slices.Clone(soon)
	later[3].At = 360 * ms
	fifo := plain(engine.FIFO)
	for _, c := range []struct {
		name     string
		rule     func([]sim.Request) rule
		engines  int
		requests []sim.Request
		first    []time.Duration
	}{
		{
			"in order", func([]sim.Request) rule { return late{} }, 1,
			[]sim.Request{chat(0, 50), chat(ms, 40), chat(2*ms, 10)}, []time.Duration{60 * ms, 110 * ms, 130 * ms},
		},
		{
			"the shortest first", func([]sim.Request) rule { return late{shortest: true} }, 1,
			[]sim.Request{chat(0, 50), chat(ms, 40), chat(2*ms, 10)}, []time.Duration{60 * ms, 130 * ms, 80 * ms},
		},
		{
			"what is cached is short", func([]sim.Request) rule { return late{shortest: true} }, 1,
			[]sim.Request{chat(0, 13, 1, 2, 3), chat(ms, 10), chat(2*ms, 13, 1, 2, 3)}, []time.Duration{23 * ms, 54 * ms, 34 * ms},
		},
		{ // the engine that is free would compute all of the second; the other is free at 60 and has it by 71
			"patience", func([]sim.Request) rule { return late{shortest: true, patient: &exact{1}} }, 2,
			[]sim.Request{chat(0, 101, chain(1, 25)...), chat(99*ms, 101, chain(1, 25)...)}, []time.Duration{111 * ms, 122 * ms},
		},
		{
			"no patience", func([]sim.Request) rule { return late{shortest: true} }, 2,
			[]sim.Request{chat(0, 101, chain(1, 25)...), chat(99*ms, 101, chain(1, 25)...)}, []time.Duration{111 * ms, 210 * ms},
		},
		{ // the first is at engine 0 until 50; there the second waits 40 and takes 11, on engine 1 it takes 50
			"exact", func([]sim.Request) rule { return exact{1} }, 2,
			[]sim.Request{chat(0, 40, chain(1, 10)...), chat(10*ms, 41, chain(1, 10)...)}, []time.Duration{50 * ms, 61 * ms},
		},
		{ // what is computed again counts three times
			"exact, others matter", func([]sim.Request) rule { return exact{3} }, 2,
			[]sim.Request{chat(0, 41, chain(1, 10)...), chat(12*ms, 20, chain(1, 5)...), chat(13*ms, 21, chain(1, 5)...)},
			[]time.Duration{51 * ms, 65 * ms, 76 * ms},
		},
		{ // engine 1 is busy until 190, and the last one finds its prompt on engine 0
			"exact does not look ahead", func([]sim.Request) rule { return exact{1} }, 2, soon, []time.Duration{111 * ms, 190 * ms, 215 * ms, 226 * ms},
		},
		{ // so the second goes to engine 0, and is done before the last one needs more than 30 ms there
			"ahead keeps an engine free", func(r []sim.Request) rule { return &ahead{exact: exact{1}, requests: r} }, 2, soon,
			[]time.Duration{111 * ms, 190 * ms, 215 * ms, 201 * ms},
		},
		{ // the last one is 200 ms away, and what others wait for counts three times, but takes an engine's time once
			"ahead does not count time twice", func(r []sim.Request) rule { return &ahead{exact: exact{3}, requests: r} }, 2, later,
			[]time.Duration{111 * ms, 190 * ms, 215 * ms, 371 * ms},
		},
	} {
		engines := make([]engine.Config, c.engines)
		for i := range engines {
			engines[i] = fifo
		}
		for i := range c.requests {
			c.requests[i] = answer(c.requests[i])
		}
		if first, on := drive(t, mustPool(t, engines, c.rule(c.requests)), c.requests); !slices.Equal(first, c.first) {
			t.Errorf("%s: first tokens at %v on %v, want %v", c.name, first, on, c.first)
		}
	}
}

// chain is n hashes of a conversation.
func chain(id uint64, n int) (all []uint64) {
	for i := range n {
		all = append(all, id<<32|uint64(i))
	}
	return all
}

// noted is a rule that keeps what exact foresees.
type noted struct {
	exact
	foreseen []float64
}

func (n *noted) arrived(p *Pool, now time.Duration, a *ask) *machine {
	m := n.best(p, now, a)
	n.foreseen = append(n.foreseen, n.score(now, m, a))
	return m
}

// TestForesight: times to first token are what was foreseen, also where steps, answers, slots and memory make requests wait.
func TestForesight(t *testing.T) {
	small := presets(t, "vllm-8192", 2)
	for i := range small {
		small[i].Blocks = 1500
	}
	slots := presets(t, "llama.cpp", 2)
	for i := range slots {
		slots[i].Blocks, slots[i].Timing = 8192, small[0].Timing
	}
	for _, c := range []struct {
		name    string
		engines []engine.Config
		rate    float64
		within  float64 // of the mean
	}{
		{"fifo", presets(t, "fifo", 2), 0, .01},
		{"mixed", presets(t, "vllm-8192", 2), 6, .15},
		{"small steps", presets(t, "vllm-2048", 2), 6, .15},
		{"prefill-first", presets(t, "sglang", 2), 6, .15},
		{"short memory", small, 3, .35},
		{"slots", slots, 3, .35},
	} {
		requests := conversation(t, .6, 1)
		if c.rate > 0 {
			requests = chats(t, c.rate, 800)
		}
		n := &noted{exact: exact{1}}
		first, _ := drive(t, mustPool(t, c.engines, n), requests)
		sum, foreseen, off := 0.0, 0.0, 0.0
		for i, at := range first {
			ttft := (at - requests[i].At).Seconds()
			sum += ttft
			foreseen += n.foreseen[i]
			off += math.Abs(ttft - n.foreseen[i])
		}
		t.Logf("%s: mean %.4f, foreseen %.4f, off by %.3f of the mean", c.name, sum/float64(len(first)), foreseen/float64(len(first)), off/sum)
		if off > c.within*sum {
			t.Errorf("%s: off by %.3f of the mean, want at most %v", c.name, off/sum, c.within)
		}
	}
}

// TestPoolRefusesAndForgets: what no engine holds is refused, and what is cancelled is gone, wherever it is.
func TestPoolRefusesAndForgets(t *testing.T) {
	p := mustPool(t, []engine.Config{plain(engine.FIFO)}, late{})
	short := plain(engine.Mixed)
	short.Blocks = 2
	long := chat(0, 9)
	if err := mustPool(t, []engine.Config{short}, late{}).Submit(0, sim.Job{Request: &long}); err == nil || err.Error() != "yardstick: no engine holds 9 prompt and 1 output tokens" {
		t.Errorf("got %v", err)
	}
	for id := range uint64(3) {
		if err := p.Submit(0, sim.Job{ID: id, Request: &long}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []uint64{1, 0} { // one waits with the pool, the other runs
		if !p.Cancel(0, id) || p.Cancel(0, id) {
			t.Errorf("request %d is cancelled not exactly once", id)
		}
	}
	if l := p.Load(0); l.Waiting != 2 {
		t.Errorf("%+v, want one that waits, and the one whose prompt is computed to its end", l)
	}
	var ids []uint64
	for at, busy := p.Next(); busy; at, busy = p.Next() {
		for _, r := range p.Step(at) {
			if r.Kind == sim.Done {
				ids = append(ids, r.ID)
			}
		}
	}
	if !slices.Equal(ids, []uint64{2}) || len(p.asks)+len(p.queue) > 0 {
		t.Errorf("done are %v, want only 2; %d and %d left", ids, len(p.asks), len(p.queue))
	}
}

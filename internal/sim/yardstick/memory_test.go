package yardstick

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

// turns are requests of some conversations that take turns, far apart, with prompts of 10 blocks of 4 tokens and one more.
func turns(conversations, rounds int, every time.Duration) []sim.Request {
	var all []sim.Request
	for i := range conversations * rounds {
		all = append(all, chat(time.Duration(i)*every, 41, chain(uint64(i%conversations), 10)...))
	}
	return all
}

// TestWhatCannotBeKept compares the bound with a cache that holds some of ten conversations that take turns.
func TestWhatCannotBeKept(t *testing.T) {
	const conversations, rounds = 10, 40
	for _, c := range []struct {
		scheduler     engine.Scheduler
		blocks        int
		conversations float64 // that can be kept
	}{
		{engine.Mixed, 1000, 10},
		{engine.Mixed, 100, 10},
		{engine.Mixed, 50, 5},
		{engine.Mixed, 20, 2},
		{engine.FIFO, 50, 5},
	} {
		e := plain(c.scheduler)
		e.Blocks, e.Timing.Pair = c.blocks, 1e-6
		requests := turns(conversations, rounds, 10*time.Second)
		b := mustBound(t, requests, []engine.Config{e}, Options{})
		each := 40e-3 // what a prompt's blocks take, and attention
		if c.scheduler == engine.Mixed {
			each += 1e-6 * 40 * 40
		}
		n := float64(len(requests))
		want := b.Alone + (conversations-c.conversations)/conversations*each*(n-conversations)/n
		if math.Abs(b.Evicting-want) > .05*want {
			t.Errorf("%v with %d blocks: %.5f s, want about %.5f; alone %.5f", c.scheduler, c.blocks, b.Evicting, want, b.Alone)
		}
		ttft, _ := play(t, requests, []engine.Config{e}, plan{to: make([]int, len(requests)), order: ordered(len(requests))}, 0)
		if ttft < b.Evicting*(1-rounding) {
			t.Errorf("%v with %d blocks: %.5f s, bound %.5f", c.scheduler, c.blocks, ttft, b.Evicting)
		}
	}
}

// TestDecodingKeepsPromptsInFIFO: a FIFO engine enters a prompt again when its answer ends, whatever its cache had to give up until then.
func TestDecodingKeepsPromptsInFIFO(t *testing.T) {
	e := plain(engine.FIFO)
	e.Blocks = 12
	requests := turns(10, 5, 1200*ms) // a conversation goes on after 12 s
	for i := range requests {
		requests[i].OutputTokens = 1070 // of 11 ms
	}
	b := mustBound(t, requests, []engine.Config{e}, Options{})
	ttft, _ := play(t, requests, []engine.Config{e}, plan{to: make([]int, len(requests)), order: ordered(len(requests))}, 0)
	if math.Abs(ttft-b.Alone) > 1e-6 || ttft < b.Evicting*(1-rounding) {
		t.Errorf("%.5f s, bound %.5f, with what is forgotten %.5f: all should be found", ttft, b.Alone, b.Evicting)
	}
}

func ordered(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestShortMemory: where caches are much too small, no plan is below the bound, also one that waits so that like prompts come together.
func TestShortMemory(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	var loose []float64
	raised := 0
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 4))
		requests := turns(3+r.IntN(8), 2+r.IntN(8), time.Duration(1+r.IntN(300))*ms)
		for i := range requests {
			requests[i].At += time.Duration(r.IntN(50)) * ms
			requests[i].OutputTokens = 1 + r.IntN(4)
		}
		slices.SortFunc(requests, func(a, b sim.Request) int { return int(a.At - b.At) })
		var engines []engine.Config
		for range 1 + r.IntN(3) {
			e := plain([]engine.Scheduler{engine.Mixed, engine.PrefillFirst, engine.Slots, engine.FIFO}[r.IntN(4)])
			e.Blocks = 12 + r.IntN(60)
			e.Slots = 1 + e.Blocks/25
			e.Timing.Pair = float64(r.IntN(2)) * 1e-6
			engines = append(engines, e)
		}
		b := mustBound(t, requests, engines, Options{})
		if b.Evicting > b.Alone*1.001 {
			raised++
		}
		best := math.Inf(1)
		for k := range 30 {
			p := random(r, requests, len(engines))
			if k%3 == 0 { // all of a conversation one after the other
				slices.SortStableFunc(p.order, func(a, b int) int { return int(requests[a].Prompt[0]>>32) - int(requests[b].Prompt[0]>>32) })
			}
			ttft, preempted := play(t, requests, engines, p, 0)
			if b.Beaten(ttft) || preempted == 0 && ttft < b.Evicting*(1-rounding) {
				t.Fatalf("round %d: %v s, bound %+v\n%+v", round, ttft, b, engines)
			}
			best = min(best, ttft)
		}
		loose = append(loose, best/max(b.TTFT(), b.Evicting))
	}
	slices.Sort(loose)
	t.Logf("best plan over bound: %s; raised in %d of %d", spread(loose), raised, rounds)
	if raised < rounds/20 {
		t.Errorf("memory raised the bound in %d of %d rounds: the test shows little", raised, rounds)
	}
}

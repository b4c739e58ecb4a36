package engine

import (
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// steps takes n steps of e.
func steps(e *Engine, n int) (got []string) {
	for range n {
		at, _ := e.Next()
		for _, ev := range e.Step(at) {
			got = append(got, say(ev))
		}
	}
	return got
}

// TestHeadOfLineBlocks: what does not fit blocks what would.
func TestHeadOfLineBlocks(t *testing.T) {
	e := newEngine(t, plain(func(c *Config) { c.Blocks, c.MaxSequences = 10, 8 }))
	submit(t, e, 0, seq(1, 60, 2)) // 6 blocks, then 7
	submit(t, e, 0, seq(2, 50, 1)) // 5 do not fit
	submit(t, e, 0, seq(3, 10, 1)) // 1 would
	equal(t, run(e), "first 1@70, done 1@82, first 2@152, done 2@152, first 3@152, done 3@152")
}

// TestWatermark: beside others a sequence is admitted only if the reserve stays; alone it may use all.
func TestWatermark(t *testing.T) {
	e := newEngine(t, plain(func(c *Config) { c.Blocks, c.Watermark = 10, 0.3 }))
	submit(t, e, 0, seq(1, 15, 3))
	submit(t, e, 0, seq(2, 60, 1)) // 2 + 6 blocks leave 2, and 3 are to be kept
	submit(t, e, 0, seq(3, 100, 1))
	equal(t, run(e), "first 1@25, done 1@49, first 2@119, done 2@119, first 3@229, done 3@229")
}

// TestPreemption: the last that came loses its memory when an earlier one lacks a block, and computes its prompt and what it had
// generated again.
func TestPreemption(t *testing.T) {
	e := newEngine(t, plain(func(c *Config) { c.Blocks = 4 }))
	submit(t, e, 0, seq(1, 15, 8)) // a third block for its 7th token: it feeds 6 tokens then, 15 + 6 = 21
	submit(t, e, 0, seq(2, 15, 8)) // the same one step later
	got := steps(e, 2)             // first 1 at 25, first 2 at 25 + 10 + 15 + 2 = 52; from there on steps of 14
	equal(t, got, "first 1@25, first 2@52")
	// Tokens 3 to 6 of the first at 66, 80, 94, 108. Then it needs a block: the second leaves with its 5 tokens; the first ends at
	// 108 + 2·12 = 132. The second computes 15 + 5 tokens: 132 + 30 = 162, its 6th token; 2 more.
	equal(t, run(e), "preempted 2@108, done 1@132, done 2@186")
	if l := e.Load(time.Second); l.Preemptions != 1 || l.PromptTokens != 30 || l.Used != 0 {
		t.Errorf("%+v", l)
	}
}

// TestPreemptedFindsItsBlocks: what it had computed stays in the cache as long as nothing needs the place.
func TestPreemptedFindsItsBlocks(t *testing.T) {
	e := newEngine(t, plain(func(c *Config) { c.Blocks = 5 }))
	submit(t, e, 0, seq(1, 15, 8))
	submit(t, e, 0, Sequence{ID: 2, PromptTokens: 25, OutputTokens: 8, Prompt: chain(1, 2)})
	// The first takes one of the three blocks of the second, which finds the other two when it comes back: it computes 30 - 20 tokens.
	equal(t, run(e), "first 1@25, first 2@62, preempted 2@118, done 1@142, done 2@186")
}

// TestMatchableOnceComputed: a block is found as soon as its chunk is computed, and not before.
func TestMatchableOnceComputed(t *testing.T) {
	f := func(wait int, want int) {
		t.Helper()
		e := newEngine(t, plain(func(c *Config) { c.StepTokens = 40; c.Scheduler = Mixed }))
		p := chain(1, 9)
		submit(t, e, 0, Sequence{ID: 1, Prompt: p, PromptTokens: 95, OutputTokens: 1}) // 40, 40, 15 tokens
		var now time.Duration
		for range wait {
			now, _ = e.Next()
			e.Step(now)
		}
		submit(t, e, now, Sequence{ID: 2, Prompt: p, PromptTokens: 95, OutputTokens: 1})
		for {
			at, _ := e.Next()
			for _, ev := range e.Step(at) {
				if ev.ID == 2 && ev.Kind == FirstToken {
					if ev.CachedTokens != want {
						t.Errorf("after %d steps: %d cached tokens, want %d", wait, ev.CachedTokens, want)
					}
					return
				}
			}
		}
	}
	f(0, 80) // the third step has room for the second
	f(2, 90) // it has begun: the fourth
	f(3, 90)
}

// TestEvictionOrder: the sequence that was used least recently goes first, its tail before its head; what runs stays.
func TestEvictionOrder(t *testing.T) {
	k := newBlockCache(Config{BlockTokens: 10, Blocks: 6})
	use := func(hashes []uint64) *job {
		j := &job{Sequence: Sequence{Prompt: hashes, PromptTokens: 10*len(hashes) + 1, OutputTokens: 1}}
		j.target = 10 * len(hashes)
		if !k.admit(j, true) {
			t.Fatalf("%x does not fit", hashes)
		}
		j.kv = j.target
		k.computed(j)
		return j
	}
	want := func(hashes ...uint64) {
		t.Helper()
		var got []uint64
		for i := k.segments[0].next; i != 0; i = k.segments[i].next {
			for _, h := range slices.Backward(k.segments[i].hashes) {
				got = append(got, h)
			}
		}
		if !slices.Equal(got, hashes) {
			t.Errorf("the cache will evict %v, want %v", got, hashes)
		}
	}
	k.release(use([]uint64{1, 2, 3}))
	k.release(use([]uint64{4, 5}))
	want(3, 2, 1, 5, 4)
	j := use([]uint64{1, 2, 9}) // holds 1 and 2, and takes the free place
	want(3, 5, 4)
	k.release(use([]uint64{7, 8})) // in the place of 3 and 5
	want(4, 8, 7)
	big := &job{target: 40}
	if k.admit(big, true) || big.held != 0 {
		t.Error("4 blocks were admitted beside 3 that are held, of 6")
	}
	k.release(j)
	want(4, 8, 7, 9, 2, 1)
}

// TestEqualBlocksAreShared: two that compute the same prefix at once hold it once from then on.
func TestEqualBlocksAreShared(t *testing.T) {
	e := newEngine(t, plain(func(c *Config) { c.StepTokens = 1000; c.Load = ms }))
	for id := range uint64(3) {
		submit(t, e, 0, Sequence{ID: id, Prompt: chain(1, 5), PromptTokens: 55, OutputTokens: 9})
	}
	steps(e, 1)
	if l := e.Load(ms); l.Used != 18 || l.CachedTokens != 0 {
		t.Errorf("while they compute: %+v, want 18 blocks used", l)
	}
	at, _ := e.Next()
	e.Step(at)
	if l := e.Load(at); l.Used != 5+3 {
		t.Errorf("computed: %+v, want 5 blocks shared and 3 of their own", l)
	}
	run(e)
	if l := e.Load(time.Hour); l.Used != 0 || l.Cached != 5 {
		t.Errorf("at the end: %+v, want 5 cached", l)
	}
}

// TestSpanIsCut: a request that comes while decoding goes on is served from the end of the running step.
func TestSpanIsCut(t *testing.T) {
	e := newEngine(t, plain(nil))
	submit(t, e, 0, seq(1, 50, 101))
	steps(e, 1)
	if at, _ := e.Next(); at != 60*ms+100*12*ms {
		t.Errorf("the span ends at %v, want all 100 tokens", at)
	}
	if l := e.Load(100 * ms); l.ContextTokens != 53 { // 72, 84, 96
		t.Errorf("at 100 ms: %+v, want 53 tokens of context", l)
	}
	if l := e.Load(108*ms - 1); l.ContextTokens != 53 {
		t.Errorf("just before 108 ms: %+v, want 53 tokens of context", l)
	}
	submit(t, e, 101*ms, seq(2, 20, 1))
	if at, _ := e.Next(); at != 108*ms {
		t.Errorf("the step under way ends at %v, want 108ms", at)
	}
	if got := e.Step(107 * ms); got != nil {
		t.Errorf("before its end the step gave %v", got)
	}
	equal(t, run(e), "first 2@140, done 2@140, done 1@1280") // one of the 100 took 32 and not 12 ms

	submit(t, e, 2000*ms, seq(1, 50, 101))
	steps(e, 1)
	if l := e.Load(2096 * ms); l.ContextTokens != 53 {
		t.Errorf("at the end of a step: %+v, want 53 tokens of context", l)
	}
	submit(t, e, 2108*ms, seq(2, 20, 1))
	if at, _ := e.Next(); at != 2108*ms {
		t.Errorf("the step that ends at 2108ms ends at %v", at)
	}
}

func TestCancel(t *testing.T) {
	e := newEngine(t, plain(nil))
	submit(t, e, 0, Sequence{ID: 1, Prompt: chain(1, 5), PromptTokens: 50, OutputTokens: 101})
	submit(t, e, 0, seq(2, 20, 1))
	if !e.Cancel(1*ms, 2) || e.Cancel(1*ms, 2) || e.Cancel(1*ms, 3) {
		t.Error("want one request that waits to be cancelled, once")
	}
	steps(e, 1)
	if !e.Cancel(100*ms, 1) || e.Cancel(100*ms, 1) {
		t.Error("want one request that runs to be cancelled, once")
	}
	equal(t, run(e), "")
	if l := e.Load(108 * ms); l.Running != 0 || l.Used != 0 || l.Cached != 5 {
		t.Errorf("%+v, want an idle engine that remembers 5 blocks", l)
	}
	submit(t, e, time.Second, seq(1, 10, 1)) // the ID is free again
	equal(t, run(e), "first 1@1020, done 1@1020")
}

func TestSlow(t *testing.T) {
	e := newEngine(t, plain(nil))
	submit(t, e, 0, seq(1, 50, 5))
	steps(e, 1)
	e.Slow(75*ms, 3) // the step under way ends at 84
	equal(t, run(e), "done 1@156")
	e.Slow(time.Second, 1)
	submit(t, e, time.Second, seq(1, 50, 1))
	equal(t, run(e), "first 1@1060, done 1@1060")
}

func TestSlots(t *testing.T) {
	c := plain(func(c *Config) { c.Scheduler, c.StepTokens, c.MicroBatch = Slots, 2048, 40 })
	f := func(name string, want int, before []Sequence, s Sequence) {
		t.Helper()
		e := newEngine(t, c)
		now := time.Duration(0)
		for i, b := range before {
			now += time.Hour
			b.ID = uint64(i + 10)
			submit(t, e, now, b)
			run(e)
		}
		submit(t, e, now+time.Hour, s)
		for at, ok := e.Next(); ok; at, ok = e.Next() {
			for _, ev := range e.Step(at) {
				if ev.Kind == FirstToken && ev.CachedTokens != want {
					t.Errorf("%s: %d cached tokens, want %d", name, ev.CachedTokens, want)
				}
			}
		}
	}
	full := func(hashes []uint64) Sequence {
		return Sequence{Prompt: hashes, PromptTokens: 10*len(hashes) + 5, OutputTokens: 1}
	}
	a, b := chain(1, 20), chain(2, 20)
	ab := append(slices.Clone(a[:10]), b[10:]...)
	f("the longest prefix", 150, []Sequence{full(b), full(a[:15])}, full(a))
	f("a shorter prompt cuts the slot", 50, []Sequence{full(a[:15]), full(a[:5])}, full(a))
	f("not the last but the better", 100, []Sequence{full(a), full(b)}, full(ab))
	// A tenth of the prompt is too little: the slot that was idle longer is taken, and with it what it shares.
	f("too little in common", 0, []Sequence{full(b), full(a[:2])}, full(a))
	f("just enough", 30, []Sequence{full(b), full(a[:3])}, full(a))
	f("a slot holds one sequence", 0, []Sequence{full(a), full(b), full(chain(3, 5))}, full(a[:19]))

	e := newEngine(t, c)
	for id := range uint64(3) {
		submit(t, e, 0, seq(id+1, 100, 2))
	}
	// 3 passes of 40 for 100 tokens: 30 + 100. Then 100 and the first's second token: again 3 passes, 30 + 100 + 2. The third has waited for
	// the slot of the first.
	equal(t, run(e), "first 1@130, done 1@262, first 2@262, done 2@394, first 3@394, done 3@406")
	if l := e.Load(time.Hour); l.Used != 0 || l.Cached != 22 { // 101 tokens in each slot
		t.Errorf("%+v, want 22 blocks in idle slots", l)
	}
	if err := e.Submit(time.Hour, seq(9, 500, 2)); err == nil {
		t.Error("501 tokens were taken into a slot of 500")
	}
}

func TestFIFO(t *testing.T) {
	e := newEngine(t, plain(func(c *Config) {
		c.Scheduler = FIFO
		c.Timing = Timing{Prefill: 10e-3, Token: 1e-3, Pair: 1e-6, Decode: func(use float64) float64 { return 1e-3 + use }}
	}))
	p := chain(1, 5)
	submit(t, e, 0, Sequence{ID: 1, Prompt: p, PromptTokens: 50, OutputTokens: 3})
	submit(t, e, 0, Sequence{ID: 2, Prompt: p, PromptTokens: 100, OutputTokens: 2, EachToken: true})
	// 10 + 50 + 1e-6·50² s = 62.5 ms; a token at 50 of 1,000 takes 51 ms. The second computes 50 alone, until 125, and decodes at 150 of 1,000.
	if l := e.Load(0); l.Running != 0 || l.Waiting != 2 || l.WaitingTokens != 150 {
		t.Errorf("%+v, want both to wait for their first tokens", l)
	}
	equal(t, steps(e, 2), "first 1@62.5, first 2@125")
	if l := e.Load(130 * ms); l.Running != 2 || l.ContextTokens != 151 || l.Used != 16 || l.Cached != 5 {
		t.Errorf("%+v, want 50 + 1 and 100 tokens, and 5 blocks", l)
	}
	equal(t, run(e), "done 1@164.5, done 2@276")
	submit(t, e, time.Second, seq(3, 10, 100))
	submit(t, e, time.Second, seq(4, 10, 100))
	equal(t, steps(e, 1), "first 3@1020.1")
	if !e.Cancel(1021*ms, 3) || !e.Cancel(1021*ms, 4) {
		t.Error("want both cancelled: one decodes, one computes")
	}
	equal(t, run(e), "")
	if l := e.Load(2 * time.Second); l.Running+l.Waiting+l.ContextTokens != 0 {
		t.Errorf("%+v, want an idle engine", l)
	}
	// Nothing is left of what ended or was cancelled: a token at 50 of 1,000 takes 51 ms again.
	submit(t, e, 2*time.Second, seq(5, 50, 3))
	equal(t, run(e), "first 5@2062.5, done 5@2164.5")
}

// TestFIFOForgets: the cache holds what was used last, and of that the start.
func TestFIFOForgets(t *testing.T) {
	e := newEngine(t, plain(func(c *Config) { c.Scheduler, c.Blocks = FIFO, 6 }))
	now := time.Duration(0)
	f := func(want int, hashes []uint64) {
		t.Helper()
		now += time.Hour
		submit(t, e, now, Sequence{ID: 1, Prompt: hashes, PromptTokens: 10*len(hashes) + 5, OutputTokens: 1})
		at, _ := e.Next()
		if got := e.Step(at); got[0].CachedTokens != want {
			t.Errorf("%d cached tokens, want %d", got[0].CachedTokens, want)
		}
	}
	a, b := chain(1, 5), chain(2, 3)
	f(0, a)
	f(0, b)           // the last two of a go
	f(30, a[:4])      // and one of b, for the fourth of a
	f(20, b[:2])      // the two that stayed
	f(40, a[:5])      // and the second of b goes
	f(10, b[:3])      // and two of a
	f(30, a)          // and the last two of b
	f(0, chain(3, 9)) // more than all: its first six stay
	f(60, chain(3, 9))
}

// TestLegacyEvictsSessions: a cached session goes as a whole, and its next turn takes its place.
func TestLegacyEvictsSessions(t *testing.T) {
	e := newEngine(t, plain(func(c *Config) { c.Scheduler, c.Blocks, c.StepTokens = Legacy, 10, 1000 }))
	now, id := time.Duration(0), uint64(0)
	f := func(want, cached int, hashes []uint64) {
		t.Helper()
		now += time.Hour
		id++
		submit(t, e, now, Sequence{ID: id, Prompt: hashes, PromptTokens: 10*len(hashes) + 5, OutputTokens: 1})
		at, _ := e.Next()
		if got := e.Step(at); got[0].CachedTokens != want {
			t.Errorf("request %d: %d cached tokens, want %d", id, got[0].CachedTokens, want)
		}
		if l := e.Load(at); l.Cached != cached {
			t.Errorf("request %d: %d blocks are cached, want %d", id, l.Cached, cached)
		}
	}
	a := chain(1, 8)
	ab := append(slices.Clone(a[:2]), chain(2, 3)...)
	f(0, 4, a[:4])
	f(20, 9, ab)           // shares two blocks, and counts them again
	f(40, 8, a[:8])        // in the place of its first turn; 5 + 8 is too much, so ab goes
	f(0, 6, chain(3, 6))   // all of a goes
	f(0, 10, ab[:4])       // nothing is left of it
	f(40, 10, ab[:4])      // again: in its own place
	f(60, 10, chain(3, 6)) // it had stayed
}

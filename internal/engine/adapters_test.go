package engine

import (
	"slices"
	"testing"
	"time"
)

// TestAdapters: one that is not in memory is loaded, in which time nothing else is computed; the one that was not used for longest makes
// room; and while all are used a request for another waits, and lets others pass.
func TestAdapters(t *testing.T) {
	c := Config{
		Timing: Timing{Base: 10e-3, Token: 1e-3}, StepTokens: 64, MaxSequences: 8, BlockTokens: 4, Blocks: 256, MaxAdapters: 2, AdapterLoad: time.Second,
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	id, now := uint64(0), time.Duration(0)
	submit := func(adapter string, tokens int) uint64 {
		t.Helper()
		id++
		if err := e.Submit(now, Sequence{ID: id, PromptTokens: 10, OutputTokens: tokens, Adapter: adapter}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := map[uint64]time.Duration{}
	until := func(done uint64) {
		t.Helper()
		for {
			at, busy := e.Next()
			if !busy {
				t.Fatalf("request %d does not end", done)
			}
			now = at
			for _, event := range e.Step(at) {
				if event.Kind == FirstToken {
					first[event.ID] = event.At
				}
				if event.Kind == Done && event.ID == done {
					return
				}
			}
		}
	}
	loads := func(want uint64) {
		t.Helper()
		if got := e.Load(now).AdapterLoads; got != want {
			t.Errorf("%d adapters were loaded, want %d", got, want)
		}
	}
	for i, adapter := range []string{"", "a", "a", "b", "a", "c", "a", "b", ""} { // c comes in the place of b
		began := now
		n := submit(adapter, 1)
		until(n)
		want := 20 * time.Millisecond
		if slices.Contains([]int{1, 3, 5, 7}, i) {
			want += time.Second
		}
		if got := first[n] - began; got != want {
			t.Errorf("request %d for %q took %v to its first token, want %v", i, adapter, got, want)
		}
	}
	loads(4)
	submit("b", 100)
	longer := submit("a", 200)
	waits := submit("c", 1)
	passes := submit("a", 1)
	until(passes)
	if running, waiting := e.Adapters(); !slices.Equal(running, []string{"b", "a"}) || !slices.Equal(waiting, []string{"c"}) || first[waits] != 0 {
		t.Errorf("%q run, %q wait", running, waiting)
	}
	loads(4)
	until(waits)
	if running, _ := e.Adapters(); !slices.Equal(running, []string{"a"}) {
		t.Errorf("%q still run", running)
	}
	until(longer)
	loads(5)
}

// TestAdapterSettings names what cannot be.
func TestAdapterSettings(t *testing.T) {
	good := vllm(h100, 2048)
	for _, change := range []func(*Config){
		func(c *Config) { c.MaxAdapters = -1 },
		func(c *Config) { c.AdapterLoad = time.Second },
		func(c *Config) { c.MaxAdapters, c.AdapterLoad = 1, -time.Second },
		func(c *Config) { c.MaxAdapters, c.Scheduler = 1, FIFO },
	} {
		c := good
		if change(&c); c.Check() == nil {
			t.Errorf("MaxAdapters %d, AdapterLoad %v, scheduler %s: no error", c.MaxAdapters, c.AdapterLoad, c.Scheduler)
		}
	}
}

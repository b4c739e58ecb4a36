//go:build !race

package sim

import (
	"runtime"
	"testing"
	"time"

	"evenkeel/internal/exchange"
)

// mostAllocations is how many allocations a simulated request may cost, its workload's counted in: its name, and a turn's chain of hashes that
// outgrows its memory. One more is the router's, which remembers what of a prompt is new.
const mostAllocations = 4

// TestMemoryIsFlat: what a simulation holds does not depend on how long it runs, and it makes nothing anew for each request.
func TestMemoryIsFlat(t *testing.T) {
	f := func(name string, o Options, short, long int) {
		t.Run(name, func(t *testing.T) {
			fleet := mustFleet(t, o)
			upTo := func(requests int) (m runtime.MemStats) {
				for at := fleet.Now(); fleet.m.counts.Done < requests; at += time.Second {
					fleet.Run(at)
				}
				runtime.GC()
				runtime.ReadMemStats(&m)
				return m
			}
			before, after := upTo(short), upTo(long)
			runtime.KeepAlive(fleet)
			if grown := float64(after.HeapAlloc)/float64(before.HeapAlloc) - 1; grown > .05 {
				t.Errorf("%d bytes are live after %d requests and %d after %d: %.1f %% more", before.HeapAlloc, short, after.HeapAlloc, long, 100*grown)
			}
			if got := float64(after.Mallocs-before.Mallocs) / float64(long-short); got > mostAllocations {
				t.Errorf("%.2f allocations per request, want at most %d", got, mostAllocations)
			} else {
				t.Logf("%.2f allocations per request, %d and %d bytes live", got, before.HeapAlloc, after.HeapAlloc)
			}
		})
	}
	small := SessionOptions{
		Rate: 20, Turns: Law{4, .5}, Systems: 10, Zipf: 1, System: Law{100, .5}, Question: Law{50, 1}, Answer: Law{15, 1}, Gap: Law{5, 1}, Block: 16,
	}
	o := batches(t, "least_tokens", "vllm-2048")
	o.Source, o.Faults, o.Plan.Hedge = mustSessions(t, 1, small), nil, true
	o.CacheTokens = 20_000 // what the router remembers of prompts is full long before the first measurement
	f("engines", o, 50_000, 200_000)
	f("queues", Options{
		Servers: queues(t, 8), Strategy: mustStrategy(t, "p2c_ewma"), Source: jobs(t, 1, 6), Plan: onlyOnce,
	}, 50_000, 200_000)
}

// TestMemoryIsFlatInTraceLength: a recorded trace ten times as long takes no more memory, neither to read nor to play to a fleet.
func TestMemoryIsFlatInTraceLength(t *testing.T) {
	live := func(exchanges int) uint64 {
		before := liveHeap()
		read := readChatter(t, exchanges, temporary(t))
		p, err := NewReplay(1, read, ReplayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		f := mustFleet(t, Options{
			Servers: queues(t, 8), Strategy: mustStrategy(t, "least_tokens"), Plan: onlyOnce, Source: p, Record: func(*Request, *exchange.Record) { done++ },
		})
		f.Run(p.Length() / 2)
		heap := liveHeap()
		runtime.KeepAlive(read)
		if err := f.Finish(p.Length()); err != nil {
			t.Fatal(err)
		}
		if done != exchanges {
			t.Errorf("%d requests of %d are over", done, exchanges)
		}
		return heap - min(heap, before)
	}
	live(1000) // what is made once
	short := live(10_000)
	long := live(100_000)
	t.Logf("%d bytes are live with 10,000 exchanges and %d with 100,000", short, long)
	if grown := float64(long)/float64(short) - 1; grown > .1 {
		t.Errorf("%d bytes are live with 10,000 exchanges and %d with 100,000: %.0f %% more", short, long, 100*grown)
	}
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

//go:build !race

package sim

import (
	"runtime"
	"testing"
	"time"
)

// mostAllocations is how many allocations a simulated request may cost, its workload's counted in: its name, and a turn's chain of hashes that
// outgrows its memory. None is the fleet's.
const mostAllocations = 3

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
	f("engines", o, 50_000, 200_000)
	f("queues", Options{
		Servers: queues(t, 8), Strategy: mustStrategy(t, "p2c_ewma"), Source: jobs(t, 1, 6), Plan: onlyOnce,
	}, 50_000, 200_000)
}

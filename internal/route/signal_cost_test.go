//go:build !race

// The race detector drops some of what pools are given, and counts of allocations say nothing: make test runs this package without it too.

package route

import "testing"

// TestSignalsCostNoAllocation: a pick allocates no more where engines speak.
func TestSignalsCostNoAllocation(t *testing.T) {
	a, b := dep("a/m", Limits{}), dep("b/m", Limits{})
	k := newTalk(t, a, b)
	facts := &Facts{Model: "m", Seed: 1, Stream: true, PromptBytes: 4000, Prefix: chain(1, 0, 10), PrefixBytes: 400, MaxOutput: 50}
	lease, decision := &Lease{}, &Decision{}
	pick := func() {
		l, _ := k.r.Pick(k.now, Query{Model: "m", Facts: facts, Lease: lease, Decision: decision})
		l.Done(k.now, Outcome{Verdict: NotDeploymentFault})
	}
	pick()
	before := testing.AllocsPerRun(100, pick)
	for _, d := range []Deployment{a, b} {
		s := told(k.now, 9, 5)
		s.KVUse, s.CacheTokens = 0.5, 100_000
		k.r.Signal(k.now, endpointOf(d), "", s)
	}
	pick()
	if with := testing.AllocsPerRun(100, pick); with > before {
		t.Errorf("%v allocations, %v without signals", with, before)
	}
}

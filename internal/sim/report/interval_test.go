package report

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"evenkeel/internal/sim"
	"evenkeel/internal/sim/study"
)

// ttft is the mean time to the first token of a run, and its standard error.
func ttft(x *Run) (mean, standardError float64) { return x.Result.TTFT.Mean(), x.Result.TTFT.Error() }

// TestIntervalOfIndependentRequests: where nothing comes and goes, intervals hold the mean at least as often as they say.
func TestIntervalOfIndependentRequests(t *testing.T) {
	f := func(seeds int) {
		t.Helper()
		const tries = 400
		covered := 0
		for k := range tries {
			p := &Policy{}
			rng := rand.New(rand.NewPCG(uint64(k), uint64(seeds)))
			for range seeds {
				x := Run{Result: &sim.Result{}}
				for i := range 600 {
					x.Result.TTFT.Add(i, 1+rng.NormFloat64())
				}
				p.Runs = append(p.Runs, x)
			}
			mean := p.mean(func(x *Run) float64 { return x.Result.TTFT.Mean() })
			if math.Abs(*mean-1) <= *p.interval(ttft) {
				covered++
			}
		}
		if share := float64(covered) / tries; share < .95 {
			t.Errorf("%d seeds: %.3f of the intervals hold the mean", seeds, share)
		}
	}
	f(2)
	f(5)
	f(8)
}

// TestIntervalOfOverlappingTraffic: seeds that play one trace are no more to go by than the trace is, however many they are, and
// rounds of it no more than one.
func TestIntervalOfOverlappingTraffic(t *testing.T) {
	policy := func(seeds int, share, apart float64) *Policy {
		p := &Policy{}
		for k := range seeds {
			rng := rand.New(rand.NewPCG(7, 7)) // the same traffic
			x := Run{Result: &sim.Result{}, TraceShare: share}
			for i := range 600 {
				x.Result.TTFT.Add(i, 1+rng.NormFloat64()+apart*float64(k%2))
			}
			p.Runs = append(p.Runs, x)
		}
		return p
	}
	interval := func(seeds int, share, apart float64) float64 {
		half := policy(seeds, share, apart).interval(ttft)
		if half == nil {
			t.Fatalf("%d seeds: no interval", seeds)
		}
		return *half
	}
	f := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%s: %.4f s, want %.4f", what, got, want)
		}
	}
	_, e := ttft(&policy(1, 0, 0).Runs[0])
	runs := func(independent int) float64 { // what as many give that are independent and agree
		return study.Student(sim.ErrorFreedom*independent) * e / math.Sqrt(float64(independent))
	}
	f("the whole trace", interval(1, 1, 0), runs(1))
	f("the whole trace with 4 seeds", interval(4, 1, 0), runs(1))
	f("the whole trace with 8 seeds", interval(8, 1, 0), runs(1))
	f("4 rounds of it", interval(1, 4, 0), 2*runs(1))
	f("4 parts that do not overlap", interval(4, .25, 0), runs(4))
	f("4 halves", interval(4, .5, 0), runs(2))
	f("traffic of their own", interval(8, 0, 0), runs(8))
	between := study.Student(7) * math.Sqrt(.5*.5/4*8/7/8) // of 8 seeds, half of which are .5 above the others
	f("what lies within and between", interval(8, 0, .5), math.Hypot(between, runs(8)))
	f("what lies within and between a whole trace", interval(8, 1, .5), math.Hypot(between, runs(1)))
	f("what lies between, of parts nothing is known", *policy(8, 0, .5).between(func(x *Run) float64 { return x.Result.TTFT.Mean() }), math.Sqrt2*between)
	f("the same of halves", *policy(8, .5, .5).between(func(x *Run) float64 { return x.Result.TTFT.Mean() }), math.Hypot(1, 2)*between)
	for _, share := range []float64{0, .25} {
		if half := policy(1, share, 0).interval(ttft); half != nil {
			t.Errorf("one seed, with %v of a trace: %v s, want nothing", share, *half)
		}
	}
	for _, seeds := range []int{1, 4} {
		if half := policy(seeds, 1, 0).between(func(x *Run) float64 { return x.Result.TTFT.Mean() }); half != nil {
			t.Errorf("the whole trace with %d seeds, by how they differ: %v s, want nothing", seeds, *half)
		}
	}
}

// TestOneSeedHasNoIntervals: and the report says what to do, unless it is a whole trace.
func TestOneSeedHasNoIntervals(t *testing.T) {
	f := func(seeds int, share float64, want bool) {
		t.Helper()
		r := &Report{Policies: []Policy{{Name: "a"}}}
		for seed := range uint64(seeds) {
			x := replies(seed, func(int) float64 { return 1 })
			x.TraceShare = share
			r.Add([]Run{x})
		}
		rows := r.Rows()
		if got := strings.Contains(strings.Join(r.remarks(rows), "\n"), "--seeds 5"); got != want {
			t.Errorf("%d seeds, %v of a trace: said %v, want %v", seeds, share, got, want)
		}
		if got := rows[0].TTFTInterval == nil; got != want {
			t.Errorf("%d seeds, %v of a trace: no interval %v, want %v", seeds, share, got, want)
		}
	}
	f(1, 0, true)
	f(1, .5, true)
	f(1, 1, false)
	f(2, 0, false)
}

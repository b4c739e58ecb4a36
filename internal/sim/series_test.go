package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSeriesExact(t *testing.T) {
	var s Series
	for i := range 1000 {
		s.Add(i, float64(999-i))
	}
	if s.Count() != 1000 || s.Mean() != 499.5 || s.Max() != 999 || s.Quantile(.5) != 499 || s.Quantile(.99) != 989 || s.Quantile(1) != 999 || s.Quantile(0) != 0 {
		t.Errorf("count %d, mean %v, max %v, p50 %v, p99 %v", s.Count(), s.Mean(), s.Max(), s.Quantile(.5), s.Quantile(.99))
	}
}

func TestSeriesEmpty(t *testing.T) {
	var s Series
	if s.Mean() != 0 || s.Quantile(.5) != 0 || !math.IsInf(s.Error(), 1) {
		t.Errorf("mean %v, p50 %v, error %v", s.Mean(), s.Quantile(.5), s.Error())
	}
}

// TestSeriesError: quantiles of many values are within the error that is stated, and the memory stays flat.
func TestSeriesError(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var s Series
	var all []float64
	for i := range 300_000 {
		x := math.Exp(3 * rng.NormFloat64())
		s.Add(i, x)
		all = append(all, x)
	}
	slices.Sort(all)
	for _, q := range []float64{.001, .01, .5, .9, .99, .999} {
		want := all[int(math.Ceil(q*float64(len(all))))-1]
		if got := s.Quantile(q); math.Abs(got/want-1) > quantileError*1.0001 {
			t.Errorf("quantile %v: %v, want %v ± %v %%", q, got, want, 100*quantileError)
		}
	}
	if len(s.exact) != 0 || len(s.buckets) != bucketCount || len(s.batches) > mostBatches {
		t.Errorf("it keeps %d values, %d buckets, %d batches", len(s.exact), len(s.buckets), len(s.batches))
	}
}

func TestSeriesOutOfRange(t *testing.T) {
	var s Series
	for i := range exactValues + 10 {
		s.Add(i, []float64{0, -1, 1e-300, 1e300, math.Inf(1)}[i%5])
	}
	if got := s.Quantile(.1); got != 0 {
		t.Errorf("the smallest is %v, want 0", got)
	}
	if got := s.Quantile(.99); !(got > 1e8) {
		t.Errorf("the largest is %v", got)
	}
}

// TestBatchMeans: of values that are not alike the error is that of the central limit theorem.
func TestBatchMeans(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	var s Series
	const n = 200_000
	for i := range n {
		s.Add(i, rng.ExpFloat64())
	}
	if want := 1 / math.Sqrt(n); math.Abs(s.Error()/want-1) > .3 {
		t.Errorf("standard error %v, want about %v", s.Error(), want)
	}
}

// TestErrorCoversLoadThatComesAndGoes: Student's interval holds the mean as often as it says also where values stay alike for an eighth of
// the run; more often where they are independent.
func TestErrorCoversLoadThatComesAndGoes(t *testing.T) {
	f := func(what string, stays, least float64) {
		t.Helper()
		const tries, requests, student = 500, 4000, 4.3027 // of ErrorFreedom
		covered := 0
		for k := range tries {
			rng := rand.New(rand.NewPCG(uint64(k), 9))
			var s Series
			load := rng.NormFloat64()
			for i := range requests {
				load = stays*load + math.Sqrt(1-stays*stays)*rng.NormFloat64()
				s.Add(i, load)
			}
			if math.Abs(s.Mean()) <= student*s.Error() {
				covered++
			}
		}
		if share := float64(covered) / tries; share < least {
			t.Errorf("%s: %.3f of the intervals hold the mean, want at least %v", what, share, least)
		}
	}
	f("independent", 0, .98)
	f("alike for 100 of 4,000 requests", .99, .98)
	f("alike for 500 of 4,000 requests", .998, .95)
}

// TestPaired: what two runs have in common does not count, also if their batches differ in size.
func TestPaired(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	var a, b Series
	for i := range 5000 {
		common := 10 * rng.ExpFloat64()
		a.Add(i, common+1+.1*rng.NormFloat64())
		if i < 2500 {
			b.Add(i, common)
		}
	}
	difference, e := Paired(&a, &b)
	if math.Abs(difference-1) > 4*e || e > .01 {
		t.Errorf("difference %v ± %v, want 1", difference, e)
	}
	if a.size == b.size {
		t.Error("the batches are of one size: the test tests nothing")
	}
}

// TestPairedWithNothing: a run in which nothing was answered has no pairs, and the comparison comes to an end.
func TestPairedWithNothing(t *testing.T) {
	var some, none Series
	for i := range 100 {
		some.Add(i, 1)
	}
	for _, p := range [][2]*Series{{&some, &none}, {&none, &some}, {&none, &none}} {
		if d, e := Paired(p[0], p[1]); d != 0 || !math.IsInf(e, 1) {
			t.Errorf("got %v ± %v, want 0 and no idea", d, e)
		}
	}
}

package study

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/sim"
)

func near(a, b float64) bool { return a == b || math.Abs(a-b) <= 1e-3*math.Max(1, math.Abs(b)) }

// outcomes are of seeds 1, 2, ... with these mean times to the first token.
func outcomes(means ...float64) []*Outcome {
	var all []*Outcome
	for i, m := range means {
		all = append(all, &Outcome{Seed: uint64(i + 1), TTFTMean: m})
	}
	return all
}

func TestIntervals(t *testing.T) {
	f := func(what string, got Interval, want, low, high float64) {
		t.Helper()
		if !near(got.Estimate, want) || !near(got.Low, low) || !near(got.High, high) {
			t.Errorf("%s: got %+v, want %v (%v to %v)", what, got, want, low, high)
		}
	}
	inf := math.Inf(1)
	// Three values: 4.3027 × 1/√3 on both sides.
	f("mean", Mean(outcomes(1, 2, 3), MeanTTFT), 2, 2-2.4842, 2+2.4842)
	f("mean of one", Mean(outcomes(5), MeanTTFT), 5, -inf, inf)
	// Paired by seed, whatever the order and what only one has, though the runs vary.
	a, b := outcomes(4, 8), outcomes(2, 4, 99)
	b[0], b[1] = b[1], b[0]
	f("ratio", Ratio(a, b, MeanTTFT), 2, 2, 2)
	f("ratio of others", Ratio(outcomes(1, 4), outcomes(1, 1), MeanTTFT), 2, 2*math.Exp(-12.7062*math.Log(2)), 2*math.Exp(12.7062*math.Log(2)))
	f("geometric mean", GeometricMean([]float64{1, 4}), 2, 2*math.Exp(-12.7062*math.Log(2)), 2*math.Exp(12.7062*math.Log(2)))
	f("ratio of one", Ratio(outcomes(3), outcomes(2), MeanTTFT), 1.5, 0, inf)
}

func TestStudent(t *testing.T) {
	for _, c := range []struct {
		freedom int
		want    float64
	}{{1, 12.706}, {9, 2.262}, {20, 2.086}, {21, 2.0796}, {30, 2.0423}, {120, 1.9799}, {100_000, 1.96}} {
		if got := Student(c.freedom); math.Abs(got-c.want) > 1e-3 {
			t.Errorf("%d degrees of freedom: %.4f, want %.4f", c.freedom, got, c.want)
		}
	}
}

func TestBadRows(t *testing.T) {
	w := conversation(t)
	made, err := Find("reasoning")
	if err != nil {
		t.Fatal(err)
	}
	f := func(r Row, want string) {
		t.Helper()
		if _, err := Prepare(r, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", r, err, want)
		}
	}
	f(Row{Workload: w, Engine: "fifo", N: 1}, "exactly one of rho, rate and speed")
	f(Row{Workload: w, Engine: "fifo", N: 1, Rho: 1, Rate: 1}, "exactly one of rho, rate and speed")
	f(Row{Workload: w, Engine: "fifo", N: 1, Rho: -1}, "must be positive")
	f(Row{Workload: w, Engine: "fifo", Rho: 1}, "0 deployments")
	f(Row{Workload: w, Engine: "abacus", N: 1, Rho: 1}, "abacus")
	f(Row{Workload: w, Engine: "fifo", N: 1, Rho: 1, BurnIn: 1}, "burn-in of 1")
	f(Row{Workload: w, Engine: "fifo", N: 1, Rho: 1, Requests: -1}, "-1 requests")
	f(Row{Workload: made, Engine: "fifo", N: 1, Rho: 1}, "0 requests")
	f(Row{Workload: made, Engine: "fifo", N: 1, Speed: 1, Requests: 9}, "is no trace")
	f(Row{Workload: Workload{Name: "x", File: "x.csv"}, Engine: "fifo", N: 1, Rho: 1, Requests: 9}, "plays the trace x.csv, which was not given")
}

// TestScrapes: those who read no metrics are not made to, and a row may say how often the others do.
func TestScrapes(t *testing.T) {
	f := func(row, own, want string) {
		t.Helper()
		r := Row{}
		r.Knowledge.Scrapes.Every, r.Knowledge.Scrapes.Together = duration(t, row), true
		if got := r.scrapes(Policy{Scrape: duration(t, own)}); got.Every != duration(t, want) {
			t.Errorf("row %s, policy %s: every %v, want %s", row, own, got.Every, want)
		}
	}
	f("0s", "50ms", "50ms")
	f("5s", "50ms", "5s")
	f("5s", "0s", "0s")
	f("-1ns", "50ms", "0s")
}

// TestHooks: a caller sees each request, looks at the fleet in between, and can stop.
func TestHooks(t *testing.T) {
	p := mustPrepare(t, Row{Workload: conversation(t), Engine: "fifo", N: 2, Rho: .5, Requests: 200}, 1)
	looks := 0
	full := fmt.Errorf("enough")
	_, err := p.Run(mustPolicy(t, "round_robin"), 1, Hooks{WatchEvery: p.Last / 10, Watch: func(f *sim.Fleet) error {
		if looks++; looks == 4 {
			return full
		}
		return nil
	}})
	if err != full || looks != 4 {
		t.Errorf("after %d looks: %v", looks, err)
	}
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

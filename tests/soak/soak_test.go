//go:build !race

// Package soak keeps the program busy with all that clients do, for as long as SOAK says, and demands that what it costs
// does not grow: memory, goroutines, open files, CPU time per request. The race detector has costs of its own, so with it
// there is no test here.
package soak

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"evenkeel/tests/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The figures of the last quarter may be above those of the second by this share and this much. The first quarter is for
// warming up: pools, the ring for explain and the heap grow to their size.
var mayGrow = []struct {
	name   string
	of     func([]sample) float64
	share  float64
	amount float64
}{
	{"resident memory, MB", middle(func(s sample) float64 { return s.rss / 1e6 }), 0.1, 8},
	{"goroutines", middle(func(s sample) float64 { return s.goroutines }), 0.1, 20},
	{"open files", middle(func(s sample) float64 { return s.files }), 0.1, 20},
	{"CPU µs per request", perRequest, 0.25, 0},
}

const (
	usual = 15 * time.Second // when SOAK does not say
	// short runs have few samples in a quarter, which vary more.
	short         = time.Minute
	shortVariance = 2
	samples       = 60
)

func TestSoak(t *testing.T) {
	duration := usual
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil || duration < 10*time.Second {
			t.Fatalf("SOAK=%s: it must be a duration of at least 10s, such as 2m", text)
		}
	}
	w := newWorld(t)
	idle := w.sample(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var crowd sync.WaitGroup
	w.startClients(ctx, &crowd)
	taken := w.watch(t, duration)
	stop()
	crowd.Wait()
	w.client.CloseIdleConnections()

	t.Logf("%v: %s", duration, w.summary())
	w.mustHaveServed(t)
	quarter := len(taken) / 4
	second, last := taken[quarter:2*quarter], taken[3*quarter:]
	for _, g := range mayGrow {
		if duration < short {
			g.share, g.amount = g.share*shortVariance, g.amount*shortVariance
		}
		before, after := g.of(second), g.of(last)
		most := before*(1+g.share) + g.amount
		t.Logf("%-20s %8.1f in the second quarter, %8.1f in the last, bound %.1f", g.name, before, after, most)
		if !(after <= most) {
			t.Errorf("%s grew from %.1f to %.1f, want at most %.1f", g.name, before, after, most)
		}
	}
	// Nothing is left of the load. Connections to engines are kept for some seconds.
	const spare = 10
	harness.Eventually(t, 30*time.Second, "evenkeel is idle again", func() bool {
		now := w.sample(t)
		return now.inFlight == 0 && now.goroutines <= idle.goroutines+spare && now.files <= idle.files+spare
	})
}

// middle returns the median of a figure.
func middle(of func(sample) float64) func([]sample) float64 {
	return func(taken []sample) float64 {
		var all []float64
		for _, s := range taken {
			all = append(all, of(s))
		}
		slices.SortFunc(all, cmp.Compare)
		return all[len(all)/2]
	}
}

// perRequest is the CPU time per request between the first sample and the last, in microseconds.
func perRequest(taken []sample) float64 {
	first, last := taken[0], taken[len(taken)-1]
	return (last.cpu - first.cpu) * 1e6 / (last.requests - first.requests)
}

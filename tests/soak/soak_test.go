//go:build !race

// Package soak keeps the program busy with all that clients do, for as long as SOAK says, and demands that what it costs
// does not grow: memory, goroutines, open files, CPU time per request. The race detector has costs of its own, so with it
// there is no test here.
package soak

import (
	"cmp"
	"context"
	"fmt"
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
	// A short run shows that all of this works. Its quarters vary more, and it may be warming up in the second.
	short         = time.Minute
	shortVariance = 3
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
	for _, g := range judge(taken, duration) {
		t.Log(g.text)
		if g.tooMuch {
			t.Errorf("%s grew", g.name)
		}
	}
	// Nothing is left of the load. Connections to engines are kept for some seconds.
	const spare = 10
	harness.Eventually(t, 30*time.Second, "evenkeel is idle again", func() bool {
		now := w.sample(t)
		return now.inFlight == 0 && now.goroutines <= idle.goroutines+spare && now.files <= idle.files+spare
	})
}

// growth is what became of one figure.
type growth struct {
	name, text string
	tooMuch    bool
}

// judge compares the last quarter of the samples with the second.
func judge(taken []sample, duration time.Duration) []growth {
	quarter := len(taken) / 4
	second, last := taken[quarter:2*quarter], taken[3*quarter:]
	var all []growth
	for _, g := range mayGrow {
		if duration < short {
			g.share, g.amount = g.share*shortVariance, g.amount*shortVariance
		}
		before, after := g.of(second), g.of(last)
		most := before*(1+g.share) + g.amount
		text := fmt.Sprintf("%-20s %8.1f in the second quarter, %8.1f in the last, bound %.1f", g.name, before, after, most)
		all = append(all, growth{g.name, text, !(after <= most)}) // also if it is not a number
	}
	return all
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

// What grows is found out, each figure by itself; what swings, or grows while it warms up, is not blamed.
func TestJudge(t *testing.T) {
	f := func(name string, change func(s *sample, i float64), want string) {
		t.Helper()
		var taken []sample
		for i := range samples {
			x := float64(i)
			s := sample{rss: 100e6, goroutines: 100, files: 100, cpu: x, requests: 5000 * x}
			change(&s, x)
			taken = append(taken, s)
		}
		got := ""
		for _, g := range judge(taken, 2*time.Minute) {
			if g.tooMuch {
				got += g.name + ";"
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	f("level", func(*sample, float64) {}, "")
	f("swings", func(s *sample, i float64) { s.rss += 20e6 * float64(int(i)%2) }, "")
	f("warms up", func(s *sample, i float64) { s.rss, s.goroutines = min(s.rss, i*10e6), min(s.goroutines, 10*i) }, "")
	f("memory leaks 1 MB per sample", func(s *sample, i float64) { s.rss += i * 1e6 }, "resident memory, MB;")
	f("goroutines leak", func(s *sample, i float64) { s.goroutines += 2 * i }, "goroutines;")
	f("files leak", func(s *sample, i float64) { s.files += 2 * i }, "open files;")
	f("requests become dearer", func(s *sample, i float64) { s.cpu += i * i / 50 }, "CPU µs per request;")
	f("no requests any more", func(s *sample, i float64) { s.requests = min(s.requests, 5000*30) }, "CPU µs per request;")
}

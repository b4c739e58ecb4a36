//go:build !race

package strategy

import (
	"testing"
	"time"

	"evenkeel/internal/route"
)

// TestSinkhole: one of 20 that fails in a millisecond looks idle. After its first five failures it gets at most 1 % of the
// requests, whatever the strategy.
func TestSinkhole(t *testing.T) {
	for _, e := range table {
		if s, ok := build(t, e.name).(route.Steady); ok && s.Steady() {
			continue // it has one deployment at a time; the breaker alone is what there is
		}
		for seed := range uint64(3) {
			f := newFarm(t, e.name, 20, 1, 50, seed)
			f.run(30 * time.Second)
			sink := f.servers["e7/m"]
			sink.failing = func(*farm) bool { return true }
			for sink.failed < 5 {
				f.run(10 * time.Millisecond)
			}
			f.forget()
			f.run(2 * time.Minute)
			if part := f.part("e7/m"); part > 0.01 {
				t.Errorf("%s, seed %d: the sinkhole gets %.2f %%, want at most 1 %%", e.name, seed, 100*part)
			}
		}
	}
}

// TestPartOfASinkhole: a deployment that fails three requests of ten, fast, is below the rate that opens a breaker. It gets
// no more than its share for that, and from strategies that look at load much less.
func TestPartOfASinkhole(t *testing.T) {
	for _, e := range table {
		if s, ok := build(t, e.name).(route.Steady); ok && s.Steady() {
			continue
		}
		most := 1.1
		switch e.name {
		case "least_connections", "least_tokens", "p2c_ewma", "predicted_wait":
			most = 0.4
		}
		for _, n := range []int{4, 20} {
			for seed := range uint64(3) {
				f := newFarm(t, e.name, n, 1, 50, seed)
				f.run(30 * time.Second)
				f.servers["e0/m"].failing = func(f *farm) bool { return f.rng.IntN(10) < 3 }
				f.forget()
				f.run(2 * time.Minute)
				if part := f.part("e0/m") * float64(n); part > most {
					t.Errorf("%s, %d deployments, seed %d: it gets %.2f of its share, want at most %v", e.name, n, seed, part, most)
				}
			}
		}
	}
}

// TestFailuresCountAsLoad: each as one request like the one at hand, per weight.
func TestFailuresCountAsLoad(t *testing.T) {
	f := func(strategy string, want float64) {
		t.Helper()
		cs := []route.Candidate{{Weight: 2, InFlight: 3, Work: 500, TTFT: 0.5, Penalty: 1.5}, {Weight: 1, InFlight: 100, Work: 50_000, TTFT: 1}}
		r := route.NewRound(start, &route.Facts{}, 0, cs, 0)
		r.Prompt, r.Output = 100, 100
		if i := build(t, strategy).Pick(r); i != 0 {
			t.Errorf("%s chose %d", strategy, i)
		}
		if got, _ := cs[0].Score(); got != want || len(cs[0].Noted()) != 2 || len(cs[1].Noted()) != 1 {
			t.Errorf("%s: score %v of %+v, want %v", strategy, got, cs[0].Noted(), want)
		}
	}
	f("least_connections", (3+1.5)/2)
	f("least_tokens", (500+1.5*200)/2)
	f("p2c_ewma", (3+1+1.5)*0.5/2)
}

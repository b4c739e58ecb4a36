//go:build !race

package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// countedForesee is patientForesee, which counts what is forecast for it.
type countedForesee struct {
	patientForesee
	forecasts *int
}

func (s countedForesee) Pick(r *Round) int {
	*s.forecasts += len(r.Candidates)
	return s.patientForesee.Pick(r)
}

// TestLooksAtWhoIsHeldAreBounded: with a thousand deployments that have too much to do, and some thousand requests held, each event
// costs a few decisions, or some thousand forecasts of a small fleet, however many wait.
func TestLooksAtWhoIsHeldAreBounded(t *testing.T) {
	f := func(deployments, held int) {
		t.Helper()
		var fleet []Deployment
		for i := range deployments {
			fleet = append(fleet, dep(fmt.Sprintf("d%03d/m", i), Limits{}))
		}
		forecasts := 0
		s := &stand{t, newRouter(t, PoolSpec{Model: "m", Strategy: countedForesee{forecasts: &forecasts}, Deployments: fleet}), start}
		s.engines()
		random := rand.New(rand.NewPCG(1, 2))
		var running []*Lease
		var waiting []*waiter
		for len(waiting) < held {
			q := prompt(5000 + random.IntN(10_000))
			q.Facts.Seed = random.Uint64()
			l, refusal := s.r.Pick(s.now, q)
			if l != nil {
				running = append(running, l)
				continue
			}
			q.Held = refusal
			waiting = append(waiting, wait(t, s.r, s.now, q))
		}
		look := 2*max(holdLook, holdLeast*deployments) + deployments
		released := 0
		event := func(do func()) {
			t.Helper()
			before, first := forecasts, len(s.r.held["m"])
			do()
			went := first - len(s.r.held["m"])
			released += went
			if made := forecasts - before; made > (went+1)*look {
				t.Fatalf("%d deployments, %d held: %d forecasts to release %d, want at most %d for each and once more", deployments, held, made, went, look)
			}
		}
		for range 100 {
			s.now = s.now.Add(5 * time.Millisecond)
			k := random.IntN(len(running))
			l := running[k]
			event(func() { l.FirstToken(s.now) })
			event(func() { s.r.Tick(s.now) })
			event(func() { l.Done(s.now, success()) })
			running = slices.Delete(running, k, k+1)
			waiting = slices.DeleteFunc(waiting, func(w *waiter) bool {
				l, _ := w.Result()
				if l != nil {
					running = append(running, l)
				}
				return l != nil
			})
		}
		if released < 50 {
			t.Errorf("%d deployments, %d held: %d released", deployments, held, released)
		}
		for _, l := range running {
			l.Done(s.now, left())
		}
		for _, w := range waiting {
			w.Cancel(s.now)
		}
	}
	f(1000, 600)
	f(8, 4096)
}

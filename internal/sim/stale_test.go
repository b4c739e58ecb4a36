//go:build !race

package sim

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// board is a policy that knows queues from a board alone, which is written anew at times: the least of some it draws with
// replacement, or, for draws = 0, of all.
type board struct {
	draws   int
	running []int
	index   map[string]int
}

func newBoard(draws int) func(Vantage) (Policy, error) {
	return func(v Vantage) (Policy, error) {
		b := &board{draws: draws, running: make([]int, len(v.IDs)), index: map[string]int{}}
		for i, id := range v.IDs {
			b.index[id] = i
		}
		return b, nil
	}
}

func (b *board) Learn(n *Notice) {
	if n.Kind == Scraped {
		b.running[n.Deployment] = n.Load.Running
	}
}

func (b *board) Pick(r *route.Round) int {
	load := func(i int) int { return b.running[b.index[r.Candidates[i].ID]] }
	if b.draws == 0 {
		return r.Lowest(func(i int) float64 { return float64(load(i)) })
	}
	best := r.IntN(len(r.Candidates))
	for range b.draws - 1 {
		if i := r.IntN(len(r.Candidates)); load(i) < load(best) {
			best = i
		}
	}
	return best
}

// TestStaleBoard: Mitzenmacher's bulletin board. The older what is known of queues, the worse it is to go for the shortest:
// at an age of a few services it is worse than choosing blindly.
func TestStaleBoard(t *testing.T) {
	const load, n, blindly = .9, 100, 10.0
	f := func(name string, draws int, age time.Duration, want, tolerance float64) float64 {
		t.Helper()
		length := 250 * time.Second
		if *full {
			length = 10_000 * time.Second
		} else {
			tolerance *= 3 // that size is for
		}
		r := run(t, Options{
			Seed: 1, Servers: queues(t, n), Policy: newBoard(draws), Scrapes: Scrapes{Every: age, Together: true}, Plan: onlyOnce, BurnIn: 200 * time.Second,
			Source: jobs(t, 1, load*n),
		}, 200*time.Second+length)
		if want > 0 {
			response(t, fmt.Sprintf("%s of 100 on a board of every %v, load 0.9", name, age), r, want, tolerance)
		}
		return r.Response.Mean()
	}
	f("S11 two choices", 2, time.Second, 2.99, .03)
	f("S11 two choices", 2, 5*time.Second, 4.03, .03)
	f("S11 two choices", 2, 10*time.Second, 5.11, .03)
	f("S12 the shortest", 0, time.Second, 4.11, .05)
	f("S12 the shortest", 0, 10*time.Second, 22.7, .05)
	at2, at5 := f("", 0, 2*time.Second, 0, 0), f("S12 the shortest", 0, 5*time.Second, 12.1, .05)
	relation(t, "S13 the shortest on a board of every 2 s and of every 5 s, against 10 blindly: mean response", "below, above", fmt.Sprintf("%.2f, %.2f", at2, at5), at2 < blindly && at5 > blindly)
}

// TestConstantService: two choices where each request takes the same.
func TestConstantService(t *testing.T) {
	const n, load = 100, .9
	var servers []Server
	for range n {
		servers = append(servers, queue(t, QueueOptions{Slots: 1, Constant: true}))
	}
	length := 600 * time.Second
	if *full {
		length = 6000 * time.Second
	}
	r := run(t, Options{Seed: 1, Servers: servers, Strategy: drawn(2), Plan: onlyOnce, BurnIn: 100 * time.Second, Source: jobs(t, 1, load*n)}, 100*time.Second+length)
	response(t, "S9 two choices of 100, constant service, load 0.9", r, 1.783, .02)
}

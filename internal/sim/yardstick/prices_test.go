package yardstick

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPricedByHand compares the bound with the best that can be done where that is clear.
func TestPricedByHand(t *testing.T) {
	for _, c := range []struct {
		name  string
		tasks []task
		speed float64
		best  float64
	}{
		{"one", []task{{1, 2, 2}}, 1, 2},
		{"one that takes longer than its work", []task{{1, 2, 5}}, 1, 5},
		{"no work", []task{{1, 0, 5}}, 1, 5},
		{"no faster on two engines", []task{{1, 2, 2}}, 2, 2},
		{"one after the other", []task{{0, 1, 1}, {0, 1, 1}}, 1, 1 + 2},
		{"side by side", []task{{0, 1, 1}, {0, 1, 1}}, 2, 1 + 1},
		{"short first", []task{{0, 10, 10}, {0, 1, 1}}, 1, 1 + 11},
		{"three on two", []task{{0, 2, 2}, {0, 2, 2}, {0, 2, 2}}, 2, 2 + 2 + 4},
	} {
		got := newMarket(c.tasks, c.speed).bound()
		if got > c.best+1e-9 || got < .85*c.best {
			t.Errorf("%s: %v, want at most %v and not much less", c.name, got, c.best)
		}
	}
}

// TestPricedHoldsForSchedules: no schedule on parallel engines is below the bound, and none of the prices on the way is too high.
func TestPricedHoldsForSchedules(t *testing.T) {
	var loose []float64
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		engines := 1 + r.IntN(4)
		var tasks []task
		at := 0.0
		for range 3 + r.IntN(80) {
			at += r.ExpFloat64() / float64(engines) * float64(r.IntN(3))
			w := r.ExpFloat64()
			tasks = append(tasks, task{at, w, w * (1 + float64(seed%2)*r.Float64())})
		}
		b := newMarket(tasks, float64(engines)).bound()
		best := math.Inf(1)
		for _, shortest := range []bool{false, true} {
			x := schedule(tasks, engines, shortest)
			if x < b*(1-1e-9) {
				t.Fatalf("seed %d: %v, bound %v", seed, x, b)
			}
			best = min(best, x)
		}
		if seed%2 == 0 { // else engines are kept longer than the bound knows
			loose = append(loose, best/b)
		}
		m := newMarket(tasks, float64(engines)) // any prices are good for a bound
		for c := range m.price {
			m.price[c] = r.ExpFloat64() * float64(r.IntN(10))
		}
		sum := 0.0
		for i := range tasks {
			sum += m.choose(&tasks[i])
		}
		for _, p := range m.price {
			sum -= p * m.speed * m.cell
		}
		if sum > best*(1+1e-9) {
			t.Fatalf("seed %d: %v at prices by chance, best %v", seed, sum, best)
		}
	}
	slices.Sort(loose)
	t.Logf("best schedule over bound: %s", spread(loose))
	if m := loose[len(loose)/2]; m > 1.3 {
		t.Errorf("half of the bounds are below 1/%.2f of a schedule: they have become loose", m)
	}
}

// schedule returns the sum of times in system where each engine works on one task to its end: the first or the shortest of those that
// are there.
func schedule(tasks []task, engines int, shortest bool) (sum float64) {
	free := make([]float64, engines)
	left := slices.Clone(tasks)
	for len(left) > 0 {
		slices.Sort(free)
		now := max(free[0], left[0].at)
		pick := 0
		for i := range left {
			if left[i].at <= now && shortest && left[i].work < left[pick].work {
				pick = i
			}
		}
		x := left[pick]
		left = slices.Delete(left, pick, pick+1)
		free[0] = now + x.alone
		sum += free[0] - x.at
	}
	return sum
}

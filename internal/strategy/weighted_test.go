package strategy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/internal/route"
)

// shares follows how far each deployment is from its exact share.
type shares struct {
	weights map[string]float64
	lag     map[string]float64 // picks due minus picks made
	picks   map[string]int
}

func newShares(ds []route.Deployment) *shares {
	s := &shares{map[string]float64{}, map[string]float64{}, map[string]int{}}
	for _, d := range ds {
		s.weights[d.ID] = d.Weight
	}
	return s
}

// picked counts one pick of id among all but the endpoints in not.
func (s *shares) picked(id string, not map[string]bool) {
	sum := 0.0
	for other, w := range s.weights {
		if !not[other] {
			sum += w
		}
	}
	for other, w := range s.weights {
		if !not[other] {
			s.lag[other] += w / sum
		}
	}
	s.lag[id]--
	s.picks[id]++
}

// TestWeightedIsExact: for a fixed set within one pick of the exact share from its start, within two over
// any window.
func TestWeightedIsExact(t *testing.T) {
	f := func(picks int, weights ...float64) {
		t.Helper()
		ds := equal(len(weights))
		for i, w := range weights {
			ds[i].Weight = w
		}
		c := newClient(t, build1(t, "weighted", ds...))
		// In whole numbers, so that nothing is lost to rounding: a lag of total is one pick.
		millionths, total := map[string]int64{}, int64(0)
		for _, d := range ds {
			millionths[d.ID] = int64(math.Round(d.Weight * 1e6))
			total += millionths[d.ID]
		}
		counts, lowest, highest := map[string]int64{}, map[string]int64{}, map[string]int64{}
		for n := range int64(picks) {
			l := c.pick()
			counts[l.Deployment().ID]++
			c.success(l)
			for id, w := range millionths {
				lag := w*(n+1) - counts[id]*total
				if lag <= -total || lag >= total {
					t.Fatalf("weights %v: after %d picks %s is %.4f picks from its share", weights, n+1, id, float64(lag)/float64(total))
				}
				lowest[id], highest[id] = min(lowest[id], lag), max(highest[id], lag)
				if highest[id]-lowest[id] >= 2*total {
					t.Fatalf("weights %v: %s is two picks off in a window", weights, id)
				}
			}
		}
		for i, w := range weights {
			if w == 0 && counts[ds[i].ID] != 0 {
				t.Errorf("weights %v: %s with weight 0 was picked", weights, ds[i].ID)
			}
		}
	}
	f(100, 1)
	f(1000, 0.5, 1, 2)
	f(1000, 1, 1, 1)
	f(1000, 0, 1, 0, 3)
	f(2000, 0.5, 0.49, 0.01)
	f(5000, 0.001, 1, 1000)
	f(3000, 70, 30)
	f(3000, 1e9, 1, 1e-6)
	rng := rand.New(rand.NewPCG(7, 8))
	for range 100 {
		weights := make([]float64, 2+rng.IntN(8))
		for i := range weights {
			weights[i] = math.Round(math.Exp(6*rng.Float64()-3)*1000)/1000 + 0.001
		}
		f(1000, weights...)
	}
	for range 2000 { // small whole numbers: turns that are due at the same time
		weights, total := make([]float64, 2+rng.IntN(6)), 0
		for i := range weights {
			w := 1 + rng.IntN(12)
			weights[i] = float64(w)
			total += w
		}
		f(total, weights...)
	}
}

// TestWeightedComebackDoesNotCatchUp: who was away for a long time gets its share from then on, not a burst.
func TestWeightedComebackDoesNotCatchUp(t *testing.T) {
	for away := range 60 {
		ds := equal(3)
		ds[1].Weight, ds[2].Weight = 2, 3
		c := newClient(t, build1(t, "weighted", ds...))
		for range 7 {
			c.success(c.pick())
		}
		for range away * 10 {
			c.success(c.pick("e2"))
		}
		s := newShares(ds)
		for n := range 200 {
			l := c.pick()
			s.picked(l.Deployment().ID, nil)
			c.success(l)
			for id, lag := range s.lag {
				if math.Abs(lag) >= 2 {
					t.Fatalf("%d picks after e2 came back, %s is %.2f picks from its share", n+1, id, lag)
				}
			}
		}
	}
}

// TestWeightedUnderPermanentFlapping: however often the set changes, each set's picks are shared exactly, so
// the whole is within one pick per set.
func TestWeightedUnderPermanentFlapping(t *testing.T) {
	ds := equal(3)
	ds[1].Weight, ds[2].Weight = 3, 2
	sets := [][]string{nil, {"e0"}, {"e1"}, {"e2"}, {"e0", "e1"}}
	for every := 1; every <= 7; every++ {
		c := newClient(t, build1(t, "weighted", ds...))
		s := newShares(ds)
		rng := rand.New(rand.NewPCG(9, uint64(every)))
		for i := range 3000 / every {
			not := sets[i%2]
			if i%3 == 0 {
				not = sets[rng.IntN(len(sets))]
			}
			out := map[string]bool{}
			for _, name := range not {
				out[name+"/m"] = true
			}
			for range every {
				l := c.pick(not...)
				s.picked(l.Deployment().ID, out)
				c.success(l)
			}
		}
		for id, lag := range s.lag {
			if math.Abs(lag) > float64(len(sets)) {
				t.Errorf("changing every %d picks: %s is %.1f picks from its share, want at most one per set", every, id, lag)
			}
		}
	}
}

// TestWeightedWithManySets, more than are remembered: shares are right up to chance.
func TestWeightedWithManySets(t *testing.T) {
	ds := equal(9)
	for i := range ds {
		ds[i].Weight = float64(1 + i%3)
	}
	c := newClient(t, build1(t, "weighted", ds...))
	s := newShares(ds)
	rng := rand.New(rand.NewPCG(11, 13))
	for range 20_000 {
		var not []string
		out := map[string]bool{}
		for i := range ds {
			if rng.IntN(3) == 0 && len(not) < len(ds)-1 {
				not = append(not, ds[i].Endpoint)
				out[ds[i].ID] = true
			}
		}
		l := c.pick(not...)
		s.picked(l.Deployment().ID, out)
		c.success(l)
	}
	for id, lag := range s.lag {
		if math.Abs(lag) > 5*math.Sqrt(float64(s.picks[id])) {
			t.Errorf("%s is %.0f picks from its share of %d", id, lag, s.picks[id])
		}
	}
}

// TestNewWeightsAreNoDebt: after a change of weights nobody has anything to catch up.
func TestNewWeightsAreNoDebt(t *testing.T) {
	ds := equal(2)
	r := build1(t, "weighted", ds...)
	c := newClient(t, r)
	for range 1000 {
		c.success(c.pick())
	}
	changed := equal(2)
	changed[1].Weight = 9
	adopt(t, r, route.PoolSpec{Model: "m", Strategy: build(t, "weighted"), Deployments: changed})
	s := newShares(changed)
	for n := range 100 {
		l := c.pick()
		s.picked(l.Deployment().ID, nil)
		c.success(l)
		for id, lag := range s.lag {
			if math.Abs(lag) >= 1 {
				t.Fatalf("%d picks after the change, %s is %.2f picks from its share", n+1, id, lag)
			}
		}
	}
}

// TestCase57WeightsDoNotDependOnOrder: A without a weight (which means 1), B with 3, C with 1, in every order
// of the list; then A is out, then B too. Same shares whatever the order, same ratios among those who remain.
func TestCase57WeightsDoNotDependOnOrder(t *testing.T) {
	a, b, c := deployment("a/m", 1), deployment("b/m", 3), deployment("c/m", 1)
	f := func(cl *client, want map[string]float64, not ...string) {
		t.Helper()
		counts := map[string]int{}
		for range 4000 {
			l := cl.pick(not...)
			counts[l.Deployment().ID]++
			cl.success(l)
		}
		for _, id := range []string{"a/m", "b/m", "c/m"} {
			if got := float64(counts[id]) / 40; math.Abs(got-want[id]) > 4 {
				t.Errorf("without %v: %s got %.1f %%, want %.0f %%", not, id, got, want[id])
			}
		}
	}
	for _, order := range [][]route.Deployment{{a, b, c}, {a, c, b}, {b, a, c}, {b, c, a}, {c, a, b}, {c, b, a}} {
		t.Run(fmt.Sprint(order[0].ID, order[1].ID, order[2].ID), func(t *testing.T) {
			cl := newClient(t, build1(t, "weighted", order...))
			f(cl, map[string]float64{"a/m": 20, "b/m": 60, "c/m": 20})
			f(cl, map[string]float64{"b/m": 75, "c/m": 25}, "a")
			f(cl, map[string]float64{"c/m": 100}, "a", "b")
			f(cl, map[string]float64{"a/m": 50, "c/m": 50}, "b")
			f(cl, map[string]float64{"a/m": 20, "b/m": 60, "c/m": 20})
		})
	}
}

// TestWeightedFirstPickIsByWeight: over many fresh starts the first pick has the right shares, too.
func TestWeightedFirstPickIsByWeight(t *testing.T) {
	s := build(t, "weighted")
	counts := make([]int, 3)
	weights := []float64{0.5, 1, 2.5}
	for seed := range uint64(8000) {
		candidates := make([]route.Candidate, 3)
		for i := range candidates {
			candidates[i].Weight = weights[i]
		}
		counts[s.Pick(route.NewRound(start, &route.Facts{Seed: seed}, 0, candidates, 0))]++
	}
	if x := chiSquare(counts, weights); x > chiLimit(2) {
		t.Errorf("chi-square %.1f of first picks %v, weights %v", x, counts, weights)
	}
}

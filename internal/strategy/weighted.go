package strategy

import (
	"math"
	"math/bits"

	"evenkeel/internal/route"
)

// weighted gives every eligible deployment its exact share of picks: for a fixed eligible set, each is within
// one pick of its share at any time since the start, so within two over any window.
//
// It is Pfair scheduling of unit jobs (Baruah et al. 1996): the j-th pick of a deployment with share w may
// not come before floor((j−1)/w) and not after ceil(j/w) picks; among those whose time has come, the one
// that is due first is taken, ties at random by weight. Any first pick keeps these bounds feasible, so the first is drawn at random by
// weight: many short runs come out right together.
type weighted struct{}

func newWeighted(decode func(any) error) (route.Strategy, error) {
	return weighted{}, decode(&noOptions{})
}

func (weighted) String() string { return "weighted" }

// Exact implements route.Exact.
func (weighted) Exact() bool { return true }

func (weighted) Pick(r *route.Round) int {
	total := uint64(0)
	for i := range r.Candidates {
		total += units(r.Candidates[i].Weight)
	}
	best, bestDue, tied := -1, uint64(0), 0.0
	for i := range r.Candidates {
		c := &r.Candidates[i]
		w := units(c.Weight)
		release, _ := divide(uint64(c.RunPicks), total, w)
		due, rest := divide(uint64(c.RunPicks)+1, total, w)
		if rest > 0 {
			due++
		}
		r.Note(i, "due_at_pick", float64(due))
		switch {
		case release > uint64(r.RunTotal):
		case best < 0 || due < bestDue:
			best, bestDue, tied = i, due, c.Weight
		case due == bestDue:
			if tied += c.Weight; r.Float64()*tied < c.Weight {
				best = i
			}
		}
	}
	if r.RunTotal == 0 {
		return drawByWeight(r, total)
	}
	return best
}

// units is a weight in whole parts; weights are told apart down to a millionth.
func units(weight float64) uint64 {
	return max(uint64(math.Round(weight*1e6)), 1)
}

// divide returns n·total/w and its remainder, exactly.
func divide(n, total, w uint64) (quotient, rest uint64) {
	hi, lo := bits.Mul64(n, total)
	if hi >= w { // beyond 2^64 picks: out of reach
		return math.MaxUint64, 0
	}
	return bits.Div64(hi, lo, w)
}

func drawByWeight(r *route.Round, total uint64) int {
	at := r.Float64() * float64(total)
	for i := range r.Candidates {
		if at -= float64(units(r.Candidates[i].Weight)); at < 0 {
			return i
		}
	}
	return len(r.Candidates) - 1
}

package strategy

import "evenkeel/internal/route"

// roundRobin takes the eligible deployment that was chosen longest ago. While the same ones are eligible
// that is strict rotation, which begins anywhere: replicas that start together do not go round in step; when some are out, the others share what is left evenly, where a cursor over a
// list would give a missing one's turns to its neighbour.
type roundRobin struct{}

func newRoundRobin(decode func(any) error) (route.Strategy, error) {
	return roundRobin{}, decode(&noOptions{})
}

func (roundRobin) String() string { return "round_robin" }

// Exact implements route.Exact.
func (roundRobin) Exact() bool { return true }

func (roundRobin) Pick(r *route.Round) int {
	n := len(r.Candidates)
	latest := -1
	for i := range r.Candidates {
		last := r.Candidates[i].LastPick
		r.Note(i, "last_pick", float64(last))
		if last > 0 && (latest < 0 || last > r.Candidates[latest].LastPick) {
			latest = i
		}
	}
	if latest < 0 {
		return r.IntN(n)
	}
	best := latest
	for k := 1; k < n; k++ { // those that were never chosen are equal: in order from the latest on
		if i := (latest + k) % n; r.Candidates[i].LastPick < r.Candidates[best].LastPick {
			best = i
		}
	}
	return best
}

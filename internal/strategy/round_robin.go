package strategy

import "evenkeel/internal/route"

// roundRobin takes the eligible deployment that was chosen longest ago. While the same ones are eligible
// that is strict rotation; when some are out, the others share what is left evenly, where a cursor over a
// list would give a missing one's turns to its neighbour.
type roundRobin struct{}

func newRoundRobin(decode func(any) error) (route.Strategy, error) {
	return roundRobin{}, decode(&noOptions{})
}

func (roundRobin) String() string { return "round_robin" }

func (roundRobin) Pick(r *route.Round) int {
	best := 0
	for i := range r.Candidates {
		r.Note(i, "last_pick", float64(r.Candidates[i].LastPick))
		if r.Candidates[i].LastPick < r.Candidates[best].LastPick {
			best = i
		}
	}
	return best
}

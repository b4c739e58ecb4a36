package strategy

import "evenkeel/internal/route"

// leastConnections takes the fewest running requests per weight. Failures of late count as if they ran still.
type leastConnections struct{}

func newLeastConnections(decode func(any) error) (route.Strategy, error) {
	return leastConnections{}, decode(&noOptions{})
}

func (leastConnections) String() string { return "least_connections" }

func (leastConnections) Pick(r *route.Round) int {
	return r.Lowest(func(i int) float64 {
		return load(r, i, "in_flight/weight", float64(r.Candidates[i].InFlight), 1)
	})
}

// load notes as a term what a candidate carries, and as another what its failures of late add to that: who fails fast is
// not idle. It returns the sum, per weight.
func load(r *route.Round, i int, term string, carried, perFailure float64) float64 {
	c := &r.Candidates[i]
	score := carried / c.Weight
	r.Note(i, term, score)
	if c.Penalty > 0 {
		failures := c.Penalty * perFailure / c.Weight
		r.Note(i, "failures/weight", failures)
		score += failures
	}
	return score
}

package strategy

import "evenkeel/internal/route"

// leastConnections takes the fewest running requests per weight.
type leastConnections struct{}

func newLeastConnections(decode func(any) error) (route.Strategy, error) {
	return leastConnections{}, decode(&noOptions{})
}

func (leastConnections) String() string { return "least_connections" }

func (leastConnections) Pick(r *route.Round) int {
	return r.Lowest("in_flight/weight", func(c *route.Candidate) float64 { return float64(c.InFlight) / c.Weight })
}

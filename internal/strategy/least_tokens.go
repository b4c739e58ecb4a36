package strategy

import "evenkeel/internal/route"

// leastTokens takes the least outstanding token work per weight: prompts not yet prefilled plus output not
// yet produced, as estimated at dispatch and corrected as tokens arrive.
type leastTokens struct{}

func newLeastTokens(decode func(any) error) (route.Strategy, error) {
	return leastTokens{}, decode(&noOptions{})
}

func (leastTokens) String() string { return "least_tokens" }

func (leastTokens) Pick(r *route.Round) int {
	return r.Lowest("work_tokens/weight", func(c *route.Candidate) float64 { return float64(c.Work) / c.Weight })
}

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
	for i := range r.Candidates {
		r.Note(i, "work_tokens/weight", workPerWeight(&r.Candidates[i]))
	}
	return r.Lowest(workPerWeight)
}

func workPerWeight(c *route.Candidate) float64 {
	return float64(c.Work) / c.Weight
}

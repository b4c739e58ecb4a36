package strategy

import "evenkeel/internal/route"

// leastTokens takes the least outstanding token work per weight: prompts not yet prefilled plus output not
// yet produced, as estimated at dispatch and corrected as tokens arrive. Each failure of late counts as much as the request
// itself.
type leastTokens struct{}

func newLeastTokens(decode func(any) error) (route.Strategy, error) {
	return leastTokens{}, decode(&noOptions{})
}

func (leastTokens) String() string { return "least_tokens" }

func (leastTokens) Pick(r *route.Round) int {
	return r.Lowest(func(i int) float64 {
		return load(r, i, "work_tokens/weight", float64(r.Candidates[i].Work), float64(r.Prompt+r.Output))
	})
}

package strategy

import "evenkeel/internal/route"

// latencyP95 draws two distinct candidates and takes the one whose 95th percentile of the time to the first token, over
// its last 100 streamed answers, is lower. Of the two, not of all, so that replicas and bursts do not herd on the fastest.
type latencyP95 struct{}

// sampleShare is the part of the picks that each deployment gets whatever its times: without new ones nobody sees it
// become faster.
const sampleShare = 0.01

func newLatencyP95(decode func(any) error) (route.Strategy, error) {
	return latencyP95{}, decode(&noOptions{})
}

func (latencyP95) String() string { return "latency_p95" }

func (latencyP95) Pick(r *route.Round) int {
	n := len(r.Candidates)
	if n > 1 && r.Float64() < sampleShare*float64(n) {
		i := r.IntN(n)
		p95Score(r, i)
		return i
	}
	a, b := pair(r)
	if scoreA := p95Score(r, a); a != b && p95Score(r, b) < scoreA {
		return b
	}
	return a // also of equals: either was drawn first with the same probability
}

// p95Score notes what candidate i is compared by, in seconds. Nothing known is 0: it is tried first, unless it has failed of late.
func p95Score(r *route.Round, i int) float64 {
	c := &r.Candidates[i]
	score := c.P95 * (1 + c.Penalty)
	if c.P95 == 0 && c.Penalty > 0 {
		score = c.TTFT * (1 + c.Penalty)
	}
	r.Note(i, "p95_ttft_seconds", score)
	return score
}

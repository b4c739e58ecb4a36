package strategy

import "evenkeel/internal/route"

// What is foreseen of a candidate, in seconds: what predicted_wait adds up, and expressions may.

const (
	busiest = 0.95 // ρ above which what is measured cannot be told from too much
	// othersCount is how much a second of those who come later counts. Twice is kinder to the slowest than the mean asks for, and costs
	// the mean little.
	othersCount = 2.0
	perAnswer   = 0.05 // of a prompt's seconds for each answer that the prompt delays
	perFill     = 0.5  // mean prompts that a half full cache costs: what has no room there waits for an answer to end, or pushes one out
	fullest     = 0.99
)

// untilFirst is until the first token.
func untilFirst(c *route.Candidate) float64 { return c.Forecast.Wait + c.Forecast.Prefill }

// answering is from the first token to the last.
func answering(r *route.Round, c *route.Candidate) float64 {
	return float64(r.Answer) * c.Forecast.Token
}

// externality is what the request costs those behind it. With u the seconds until a deployment has done the prompts before this one and c
// those that this one takes there, a request that joins makes those who come later wait λ/(1−ρ)·c·(u + c/2) longer in the mean: the
// derivative of the mean work in an M/G/1 queue (one step of policy improvement). It is what an uncached token costs others, measured
// instead of guessed.
func externality(r *route.Round, c *route.Candidate) float64 {
	o, f := &r.Outlook, &c.Forecast
	return othersCount * o.Rate / (1 - min(busiest, o.Rate*o.Prefill)) * f.Prefill * (f.Wait + f.Prefill/2)
}

// pressure is for the answers that the prompt slows down, and for how full the cache is.
func pressure(r *route.Round, c *route.Candidate) float64 {
	f := &c.Forecast
	fill := min(f.Fill, fullest)
	return perAnswer*float64(f.Answers)*f.Prefill + perFill*r.Outlook.Prefill*fill/(1-fill)
}

// failures are those of late, each as a prompt.
func failures(r *route.Round, c *route.Candidate) float64 {
	return c.Penalty * (r.Outlook.Prefill + c.Forecast.Prefill)
}

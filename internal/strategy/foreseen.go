package strategy

import "evenkeel/internal/route"

// What is foreseen of a candidate, in seconds: what predicted_wait adds up, and expressions may.

const (
	busiest = 0.95 // ρ above which what is measured cannot be told from too much
	// othersCount is how much a second of those who come later counts. Twice is kinder to the slowest than the mean asks for, and costs
	// the mean little.
	othersCount = 2.0
	perAnswer   = 0.05 // of a prompt's seconds for each answer that the prompt delays
	perFill     = 0.2  // of the time until a full cache has room for the request, that a half full one costs: what has no room waits for an answer to end, or pushes one out
	perUsed     = 1.0  // mean prompts that a limit per minute costs of which two thirds are used; what is left is for those who can go nowhere else
	muchUsed    = 0.5  // of a limit: less costs nothing
	fullest     = 0.99
)

// untilFirst is until the first token.
func untilFirst(c *route.Candidate) float64 { return c.Forecast.Wait + c.Forecast.Prefill }

// answering is from the first token to the last.
func answering(r *route.Round, c *route.Candidate) float64 {
	return float64(r.Answer) * c.Forecast.Token
}

// crowding is what an answer costs those that are produced beside it: each of their tokens comes later, for as long as it is one of them. With
// the own answer it is the derivative of the time that all answers take together.
func crowding(r *route.Round, c *route.Candidate) float64 {
	return float64(r.Answer) * float64(c.InFlight) * c.Forecast.Slower
}

// externality is what the request costs those behind it. With u the seconds until a deployment has done the prompts before this one and c
// those that this one takes there, a request that joins makes those who come later wait λ/(1−ρ)·c·(u + c/2) longer in the mean: the
// derivative of the mean work in an M/G/1 queue (one step of policy improvement). And each token that is computed takes the place of one in the
// cache, which with probability χ is computed again and takes a place itself: that is c·χ/(1−χ) of work. So what an uncached token costs
// others is measured instead of guessed.
func externality(r *route.Round, c *route.Candidate) float64 {
	o, f := &r.Outlook, &c.Forecast
	return othersCount * f.Prefill * (o.Rate/(1-min(busiest, o.Rate*o.Prefill))*(f.Wait+f.Prefill/2) + o.Churn/(1-o.Churn))
}

// pressure is for the answers that the prompt slows down, for how full the cache is, and for how much of a limit per minute is used.
func pressure(r *route.Round, c *route.Candidate) float64 {
	f := &c.Forecast
	fill, used := min(f.Fill, fullest), min(f.Used, fullest)
	return perAnswer*float64(f.Answers)*f.Prefill + perFill*f.Own*answering(r, c)*fill/(1-fill) + perUsed*r.Outlook.Prefill*max(0, used-muchUsed)/(1-used)*2
}

// failures are those of late, each as a prompt.
func failures(r *route.Round, c *route.Candidate) float64 {
	return c.Penalty * (r.Outlook.Prefill + c.Forecast.Prefill)
}

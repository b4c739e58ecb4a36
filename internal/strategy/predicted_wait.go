package strategy

import "evenkeel/internal/route"

// predictedWait takes the least expected seconds to the first token, and what the request costs those behind it.
//
// With u the seconds until a deployment has done the prompts before this one and c those that this one takes there, a request
// that joins makes those who come later wait λ/(1−ρ)·c·(u + c/2) longer in the mean: the derivative of the mean work in an M/G/1 queue
// (one step of policy improvement). It is what an uncached token costs others, measured instead of guessed.
//
// As long as forecasts are far from what comes it is p2c_ewma.
type predictedWait struct{ p2cEWMA }

func newPredictedWait(decode func(any) error) (route.Strategy, error) {
	return predictedWait{p2cEWMA{route.DefaultTuning}}, decode(&noOptions{})
}

func (predictedWait) String() string { return "predicted_wait" }

// Foresees makes the Router forecast.
func (predictedWait) Foresees() bool { return true }

const (
	busiest = 0.95 // ρ above which what is measured cannot be told from too much
	// othersCount is how much a second of those who come later counts. Twice is kinder to the slowest than the mean asks for, and costs
	// the mean little.
	othersCount = 2.0
	perAnswer   = 0.05 // of a prompt's seconds for each answer that the prompt delays
	perFill     = 0.5  // mean prompts that a half full cache costs: what has no room there waits for an answer to end, or pushes one out
	fullest     = 0.99
	mostError   = 1.1 // times to the first token that are three times as long or as short as forecast
)

func (s predictedWait) Pick(r *route.Round) int {
	if r.Outlook.Error > mostError {
		return s.p2cEWMA.Pick(r)
	}
	mean := r.Outlook.Prefill
	later := othersCount * r.Outlook.Rate / (1 - min(busiest, r.Outlook.Rate*mean))
	return r.Lowest(func(i int) float64 {
		c, score := &r.Candidates[i], 0.0
		add := func(term string, seconds float64) {
			r.Note(i, term, seconds/c.Weight)
			score += seconds / c.Weight
		}
		f := &c.Forecast
		add("first_token_seconds", f.Wait+f.Prefill)
		add("externality_seconds", later*f.Prefill*(f.Wait+f.Prefill/2))
		fill := min(f.Fill, fullest)
		add("pressure_seconds", perAnswer*float64(f.Answers)*f.Prefill+perFill*mean*fill/(1-fill))
		if c.Penalty > 0 {
			add("failures_seconds", c.Penalty*(mean+f.Prefill))
		}
		return score
	})
}

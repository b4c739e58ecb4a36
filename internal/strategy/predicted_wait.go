package strategy

import (
	"fmt"
	"math"

	"evenkeel/internal/route"
)

// predictedWait takes the least expected seconds to the first token, or to the last one, with what the request costs those behind it,
// and, if a second has a price, what it costs.
//
// As long as forecasts are far from what comes it is p2c_ewma.
type predictedWait struct {
	p2cEWMA
	predictedOptions
}

// predictedOptions are the options of predicted_wait.
type predictedOptions struct {
	// Objective is what is to come soon: first_token, last_token, or auto: the last where the answer is not streamed, since
	// whoever asked sees nothing before it, and the first where it is.
	Objective string `yaml:"objective"`
	// Hold makes requests wait here as long as the deployment that is best for them is not ready.
	Hold bool `yaml:"hold"`
	// DollarsPerSecond is what a second less is worth, in dollars; 0 = money does not count.
	DollarsPerSecond float64 `yaml:"dollars_per_second"`
}

// The objectives.
const (
	auto       = "auto"
	firstToken = "first_token"
	lastToken  = "last_token"
)

func newPredictedWait(decode func(any) error) (route.Strategy, error) {
	o := predictedOptions{Objective: auto, Hold: true}
	if err := decode(&o); err != nil {
		return nil, err
	}
	if o.Objective != auto && o.Objective != firstToken && o.Objective != lastToken {
		return nil, fmt.Errorf("objective %q is none of %s, %s and %s", o.Objective, auto, firstToken, lastToken)
	}
	if !(o.DollarsPerSecond >= 0) || math.IsInf(o.DollarsPerSecond, 0) {
		return nil, fmt.Errorf("dollars_per_second %v must be 0 (money does not count) or more", o.DollarsPerSecond)
	}
	return predictedWait{p2cEWMA{route.DefaultTuning}, o}, nil
}

func (predictedWait) String() string { return "predicted_wait" }

// Foresees makes the Router forecast.
func (predictedWait) Foresees() bool { return true }

// Holds makes the Router hold requests, as long as it can be told when a deployment is ready.
func (s predictedWait) Holds(o *route.Outlook) bool { return s.Hold && o.Error <= mostError }

// Scores tie whose difference is less than the network may make, and less than what learned speeds are off by: else of deployments that are
// alike the one that looks a little faster would get everything as long as there is little to do, and nobody would see how the others are.
const (
	leastApart = 1e-3 // seconds
	speedError = 0.1  // of what the prompt takes and costs others, and of the answer if it counts
)

const (
	mostError = 1.8 // times to the first token that are six times as long or as short as forecast
	// mostWholeError is of answers that were not streamed. From these little is learned where each takes a place until it ends, since nobody
	// sees how much of the time they waited for one: then work in tokens tells better who is busy.
	mostWholeError = 0.3
)

func (s predictedWait) Pick(r *route.Round) int {
	if r.Outlook.Error > mostError {
		return s.p2cEWMA.Pick(r)
	}
	last := s.Objective == lastToken || s.Objective == auto && !r.Facts.Stream
	if last && !r.Facts.Stream && r.Outlook.WholeError > mostWholeError {
		return r.Lowest(func(i int) float64 {
			c := &r.Candidates[i]
			own := r.Prompt - c.Forecast.Cached
			return load(r, i, "work_tokens/weight", float64(c.Work+own), float64(own+r.Output))
		})
	}
	best := r.Lowest(func(i int) float64 {
		c, score := &r.Candidates[i], 0.0
		add := func(term string, seconds float64) {
			r.Note(i, term, seconds)
			score += seconds
		}
		others := externality(r, c)
		add("first_token_seconds", untilFirst(c)/c.Weight)
		if c.Forecast.Common > 0 {
			add("common_seconds", -c.Forecast.Common/c.Weight)
		}
		if last {
			add("answer_seconds", answering(r, c)/c.Weight)
			others += crowding(r, c)
		}
		add("externality_seconds", others/c.Weight)
		add("pressure_seconds", pressure(r, c)/c.Weight)
		if c.Penalty > 0 {
			add("failures_seconds", failures(r, c)/c.Weight)
		}
		if s.DollarsPerSecond > 0 { // a dollar is a dollar, whatever the weight
			add("price_seconds", c.Forecast.Dollars/s.DollarsPerSecond)
		}
		return score
	})
	c := &r.Candidates[best]
	prompt := c.Forecast.Prefill - c.Forecast.Common
	own := prompt + externality(r, c)
	if last {
		own += answering(r, c)
	}
	// What the turns to come will not have to do again is worth more the more of them come through balancers that know nothing of this one.
	shared := r.Outlook.Strangers * prompt
	return s.amongEquals(r, best, (leastApart+speedError*own+shared)/c.Weight)
}

// amongEquals chooses among the best and those that are worse by no more than so many seconds: for a conversation who comes first in the order
// that it has at all balancers, else whoever has the fewest requests for his weight, and of these by a draw by weight.
func (predictedWait) amongEquals(r *route.Round, best int, within float64) int {
	if r.Opening != 0 {
		return r.Near(best, within)
	}
	lowest, _ := r.Candidates[best].Score()
	total, fewest := 0.0, math.Inf(1)
	for i := range r.Candidates {
		c := &r.Candidates[i]
		running := float64(c.InFlight) / c.Weight
		if score, _ := c.Score(); score > lowest+within || running > fewest {
			continue
		}
		if running < fewest {
			total, fewest = 0, running
		}
		if total += c.Weight; r.Float64()*total < c.Weight {
			best = i
		}
	}
	return best
}

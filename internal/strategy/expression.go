package strategy

import (
	"math"

	"evenkeel/internal/route"
)

// expression takes the lowest of scores that the operator's own formula gives.
type expression struct {
	score    number
	foresees bool
}

// expressionOptions are the options of expression.
type expressionOptions struct {
	Score string `yaml:"score"` // of the terms that scoreTerms lists; the lowest wins
}

// defaultScore is what predicted_wait adds up for a streamed answer.
const defaultScore = "(first_token + externality + pressure + failures * (prefill + mean_prefill)) / weight"

func newExpression(decode func(any) error) (route.Strategy, error) {
	o := expressionOptions{Score: defaultScore}
	if err := decode(&o); err != nil {
		return nil, err
	}
	score, foresees, err := compileScore(o.Score)
	if err != nil {
		return nil, err
	}
	return &expression{score, foresees}, nil
}

func (*expression) String() string { return "expression" }

// Foresees makes the Router forecast if the score names what is forecast.
func (s *expression) Foresees() bool { return s.foresees }

func (s *expression) Pick(r *route.Round) int {
	return r.Lowest(func(i int) float64 {
		score := s.score(r, &r.Candidates[i])
		if math.IsNaN(score) || math.IsInf(score, 0) { // such as 0/0 or log(0)
			r.Note(i, "undefined", math.MaxFloat64)
			return math.MaxFloat64
		}
		r.Note(i, "score", score)
		return score
	})
}

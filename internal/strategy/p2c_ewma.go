package strategy

import (
	"fmt"
	"time"

	"evenkeel/internal/route"
)

// p2cEWMA draws two distinct candidates and takes the one with the lower (in-flight + failures of late + 1) × learned
// TTFT, per weight. Only answers teach speed, so failures have to count as load.
// Two choices already shorten the tail exponentially (Mitzenmacher), and replicas with the same stale view
// do not herd on one "best" deployment.
type p2cEWMA struct{ tuning route.Tuning }

// p2cOptions are the options of p2c_ewma.
type p2cOptions struct {
	HalfLife  time.Duration `yaml:"half_life"`  // weight of an old TTFT halves in this time without news
	ColdAfter time.Duration `yaml:"cold_after"` // the first sample after this long idle is discounted
}

func newP2CEWMA(decode func(any) error) (route.Strategy, error) {
	o := p2cOptions{HalfLife: route.DefaultTuning.HalfLife, ColdAfter: route.DefaultTuning.ColdAfter}
	if err := decode(&o); err != nil {
		return nil, err
	}
	if o.HalfLife <= 0 {
		return nil, fmt.Errorf("half_life %v must be positive", o.HalfLife)
	}
	if o.ColdAfter <= 0 {
		return nil, fmt.Errorf("cold_after %v must be positive", o.ColdAfter)
	}
	return p2cEWMA{route.Tuning{HalfLife: o.HalfLife, ColdAfter: o.ColdAfter}}, nil
}

func (p2cEWMA) String() string { return "p2c_ewma" }

// Tuning tells the Router how fast to forget.
func (s p2cEWMA) Tuning() route.Tuning { return s.tuning }

func (p2cEWMA) Pick(r *route.Round) int {
	a, b := pair(r)
	if scoreA := note(r, a); a != b && note(r, b) < scoreA {
		return b
	}
	return a // also of equals: either was drawn first with the same probability
}

// pair draws two distinct candidates, every pair with the same probability; the only one twice.
func pair(r *route.Round) (a, b int) {
	n := len(r.Candidates)
	if n == 1 {
		return 0, 0
	}
	a = r.IntN(n)
	if b = r.IntN(n - 1); b >= a { // over the other n−1
		b++
	}
	return a, b
}

// note scores candidate i and records the score.
func note(r *route.Round, i int) float64 {
	c := &r.Candidates[i]
	return load(r, i, "(in_flight+1)*ttft_seconds/weight", float64(c.InFlight+1)*c.TTFT, c.TTFT)
}

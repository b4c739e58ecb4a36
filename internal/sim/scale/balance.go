package scale

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// Work describes a simulation of many replicas before many deployments. Each deployment serves one request after the other, each for
// an exponential time of one second in the mean, so the least mean response is one second.
type Work struct {
	Seed                  uint64
	Replicas, Deployments int
	Subset                func(replica int) []sim.Member // nil = each replica knows all
	Strategy              route.Strategy
	Load                  float64 // part of what all deployments can serve, below 1
	Uneven                float64 // coefficient of variation of the traffic that replicas get (log-normal); 0 = all as much
	Length                time.Duration
}

// burnIn is the part of a simulation that is not measured.
const burnIn = 0.4

// Play simulates. A replica knows of a deployment's load what it sent there itself.
func Play(w Work) (*sim.Result, error) {
	if !(w.Load > 0 && w.Load < 1) {
		return nil, fmt.Errorf("a load of %v: it must be above 0 and below 1", w.Load)
	}
	o := sim.Options{
		Seed: w.Seed, Balancers: w.Replicas, Subset: w.Subset, Strategy: w.Strategy, Plan: exchange.Plan{MaxAttempts: 1},
		BurnIn: time.Duration(burnIn * float64(w.Length)),
	}
	for range w.Deployments {
		q, err := sim.NewQueue(sim.QueueOptions{Slots: 1})
		if err != nil {
			return nil, err
		}
		o.Servers = append(o.Servers, q)
	}
	if w.Uneven > 0 {
		r := rand.New(rand.NewPCG(w.Seed, 1))
		sigma := math.Sqrt(math.Log1p(w.Uneven * w.Uneven))
		for range w.Replicas {
			o.Shares = append(o.Shares, math.Exp(sigma*r.NormFloat64()))
		}
	}
	var err error
	if o.Source, err = sim.NewPoisson(w.Seed, sim.PoissonOptions{Rate: w.Load * float64(w.Deployments), Work: time.Second}); err != nil {
		return nil, err
	}
	fleet, err := sim.New(o)
	if err != nil {
		return nil, err
	}
	fleet.Run(w.Length) // whoever has more than its deployments can serve never comes to an end
	return fleet.Result(), nil
}

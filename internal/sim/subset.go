package sim

import (
	"fmt"
	"math"

	"evenkeel/internal/route"
)

// Member is a deployment that a balancer knows, and the weight that it gives it.
type Member struct {
	Deployment int // index in Options.Servers
	Weight     float64
}

// subset returns the one pool of a balancer that knows these members only.
func subset(all []route.PoolSpec, members []Member) ([]route.PoolSpec, error) {
	pool := all[0]
	pool.Deployments = make([]route.Deployment, 0, len(members))
	for _, m := range members {
		if m.Deployment < 0 || m.Deployment >= len(all[0].Deployments) {
			return nil, fmt.Errorf("it is to know deployment %d, there are %d", m.Deployment, len(all[0].Deployments))
		}
		d := all[0].Deployments[m.Deployment]
		d.Weight = m.Weight
		pool.Deployments = append(pool.Deployments, d)
	}
	return []route.PoolSpec{pool}, nil
}

// checkBalancers checks what is said about single balancers.
func (o *Options) checkBalancers() error {
	if o.Subset != nil && (o.Site != nil || o.Policy != nil || o.Weights != nil) {
		return fmt.Errorf("subsets have weights of their own, and go with a strategy: no site, policy or weights beside them")
	}
	if o.Shares == nil {
		return nil
	}
	if len(o.Shares) != o.Balancers {
		return fmt.Errorf("%d shares for %d balancers", len(o.Shares), o.Balancers)
	}
	sum := 0.0
	for i, s := range o.Shares {
		if !(s >= 0) {
			return fmt.Errorf("balancer %d has the share %v of all requests: it must not be negative", i, s)
		}
		sum += s
	}
	if !(sum > 0) || math.IsInf(sum, 1) {
		return fmt.Errorf("the shares of all balancers sum up to %v: it must be positive", sum)
	}
	return nil
}

// comesTo draws the balancer that a request comes to.
func (f *Fleet) comesTo() *balancer {
	n := len(f.balancers)
	switch {
	case n == 1:
		return f.balancers[0]
	case f.shares == nil:
		return f.balancers[f.choices.IntN(n)]
	}
	at := f.choices.Float64() * f.shares[n-1]
	lowest, highest := 0, n-1
	for lowest < highest { // the first whose cumulative share is above
		if middle := (lowest + highest) / 2; f.shares[middle] > at {
			highest = middle
		} else {
			lowest = middle + 1
		}
	}
	return f.balancers[lowest]
}

// cumulate returns the sums of shares up to each balancer.
func cumulate(shares []float64) []float64 {
	if shares == nil {
		return nil
	}
	sums, sum := make([]float64, len(shares)), 0.0
	for i, s := range shares {
		sum += s
		sums[i] = sum
	}
	return sums
}

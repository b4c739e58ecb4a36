package app

import (
	"fmt"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/health"
)

// ProbeCost is what the probes of one deployment cost in a day if no request spares any of them, and each answer is as
// long as it may be.
type ProbeCost struct {
	Deployment    string // for people: its ID, or the endpoint whose only model it may be
	PerDay        int
	Input, Output int          // tokens of each
	Price         config.Price // zero: not known
}

// Tokens are those of a day.
func (p ProbeCost) Tokens() int { return p.PerDay * (p.Input + p.Output) }

// Dollars are those of a day; false if there is no price.
func (p ProbeCost) Dollars() (float64, bool) {
	if p.Price == (config.Price{}) {
		return 0, false
	}
	each := (float64(p.Input)*p.Price.Input+float64(p.Output)*p.Price.Output)/1e6 + p.Price.Request
	return float64(p.PerDay) * each, true
}

// String is the sum with the way to it.
func (p ProbeCost) String() string {
	dollars, priced := p.Dollars()
	if !priced {
		return fmt.Sprintf("%s: %d × (%d + %d) = %d tokens", p.Deployment, p.PerDay, p.Input, p.Output, p.Tokens())
	}
	request := ""
	if p.Price.Request != 0 {
		request = fmt.Sprintf(" + %g $", p.Price.Request)
	}
	return fmt.Sprintf("%s: %d × ((%d × %g $ + %d × %g $) / 1000000%s) = %.2f $", p.Deployment, p.PerDay, p.Input, p.Price.Input, p.Output, p.Price.Output, request, dollars)
}

// ProbeCosts lists what the probes of a configuration cost, in its order; nil if there are none that cost anything.
func ProbeCosts(c *config.Config) []ProbeCost {
	h := &c.HealthChecks
	if h.Interval <= 0 || h.ProbePrompt == "" {
		return nil
	}
	each := ProbeCost{PerDay: int(24 * time.Hour / h.Interval), Input: health.PromptTokens(h.ProbePrompt), Output: h.ProbeMaxTokens}
	prices, named := map[string]config.Price{}, map[string][]string{} // by ID; IDs by endpoint
	add := func(endpoint, model string, price config.Price) {
		id := endpoint + "/" + model
		if _, known := prices[id]; !known {
			named[endpoint] = append(named[endpoint], id)
		}
		if prices[id] == (config.Price{}) {
			prices[id] = price
		}
	}
	for _, m := range c.Models {
		for _, p := range m.Providers {
			add(p.Name, p.Model, p.Price)
		}
	}
	var costs []ProbeCost
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		for _, model := range e.Models {
			add(e.Name, model, config.Price{})
		}
		members := ""
		if _, isPool := e.PoolHost(); isPool {
			members = ", at each address"
		}
		for _, id := range named[e.Name] {
			each.Deployment, each.Price = id+members, prices[id]
			costs = append(costs, each)
		}
		if len(named[e.Name]) == 0 {
			each.Deployment, each.Price = e.Name+members+", if it serves one model only", config.Price{}
			costs = append(costs, each)
		}
	}
	return costs
}

// dearProbes is from how many dollars a day on probes are a warning.
const dearProbes = 1

// dear returns the warning for what probes cost, and whether it is one.
func dear(c *config.Config) (config.Warning, bool) {
	sum := 0.0
	for _, p := range ProbeCosts(c) {
		dollars, _ := p.Dollars()
		sum += dollars
	}
	if sum <= dearProbes {
		return config.Warning{}, false
	}
	return c.ProbesCost(sum), true
}

package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"evenkeel/internal/route"
)

// Site describes a fleet whose deployments are not alike: models, and where each is served.
type Site struct {
	// Pools is what each balancer adopts. A deployment that serves several of them is one all the same.
	Pools []route.PoolSpec
	// Chains holds, for each model that requests may ask for, the models that are tried, itself first.
	Chains map[string][]string
	// Hedged reports whether requests for a model may be hedged, where Options.Plan has hedges; nil: all may.
	Hedged func(model string) bool
}

// IDs returns the ID of each deployment, in the order of Options.Servers: each has an engine of its own.
func (s *Site) IDs() []string {
	var ids []string
	for _, p := range s.Pools {
		for i := range p.Deployments {
			if id := p.Deployments[i].ID; !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func (s *Site) check(o *Options) error {
	if o.Weights != nil || o.Limits != (route.Limits{}) || o.Strategy != nil || o.Policy != nil {
		return errors.New("a site has weights, limits and strategies of its own")
	}
	if n := len(s.IDs()); n != len(o.Servers) {
		return fmt.Errorf("%d servers for the %d deployments of the site", len(o.Servers), n)
	}
	return nil
}

// ids returns the ID of each server's deployment.
func (o *Options) ids() []string {
	if o.Site != nil {
		return o.Site.IDs()
	}
	var ids []string
	for i := range o.Servers {
		ids = append(ids, "e"+strconv.Itoa(i)+"/"+model)
	}
	return ids
}

// pools returns what a balancer adopts that has this strategy, unless there is a Site.
func (o *Options) pools(s route.Strategy) []route.PoolSpec {
	if o.Site != nil {
		return o.Site.Pools
	}
	pool := route.PoolSpec{Model: model, Strategy: s}
	for i, id := range o.ids() {
		weight := 1.0
		if o.Weights != nil {
			weight = o.Weights[i]
		}
		endpoint := "e" + strconv.Itoa(i)
		url := "http://" + endpoint
		pool.Deployments = append(pool.Deployments, route.Deployment{
			ID: id, Endpoint: endpoint, URL: url, Model: model, Weight: weight, Limits: o.Limits, Cache: o.CacheTokens,
			Scopes: []route.Scope{{Kind: route.EndpointScope, Name: endpoint, URL: url}},
		})
	}
	return []route.PoolSpec{pool}
}

// asked returns the model that a request asks for, and sets in the client's plan what holds for it.
func (f *Fleet) asked(c *client) string {
	s := f.o.Site
	if s == nil {
		return model
	}
	m := c.request.Model
	chain, known := s.Chains[m]
	if !known {
		chain = []string{m}
	}
	c.plan.Models = chain
	c.plan.Hedge = f.o.Plan.Hedge && (s.Hedged == nil || s.Hedged(m))
	return m
}

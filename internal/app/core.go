package app

import (
	"fmt"
	"net/netip"

	"evenkeel/internal/config"
	"evenkeel/internal/discovery"
	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// Core is what a configuration says about routing: all that decides where requests go, how often and for how long, and
// nothing that runs.
type Core struct {
	Pools       []route.PoolSpec
	Chains      map[string][]string // models that are tried for one that is asked for, itself first
	Router      route.Options
	MaxAttempts int
	Deadlines   exchange.Deadlines
	Retry       config.Retry
	HedgeRatio  float64                 // earned for hedges by each request
	Hedged      func(model string) bool // nil: none is
	Prices      map[string]config.Price // by ID of deployment; what has none is not in it
}

// Found is what a process finds out by itself, for a Core that asks nobody.
type Found struct {
	Models  []string // what endpoints serve for which the configuration lists nothing
	Members int      // addresses of each pool's name
	// KVTokens returns how many tokens the KV cache of an endpoint's engine, or of each of its ranks, holds, 0 if it does not say; nil: none does.
	KVTokens func(endpoint string) int
}

// NewCore builds the Core of a validated configuration.
func NewCore(c *config.Config, found Found) (*Core, error) {
	hosts := map[string]resolved{}
	for _, host := range poolHosts(c) {
		var r resolved
		address := benchmarking
		for range found.Members {
			address = address.Next()
			r.members = append(r.members, address)
		}
		hosts[host] = r
	}
	f := fleet(c, hosts)
	reports := map[string]discovery.Report{}
	for i := range f.Endpoints {
		e := &f.Endpoints[i]
		r := discovery.Report{Reachable: true, Kind: e.Kind}
		for _, m := range found.Models {
			r.Models = append(r.Models, discovery.ModelInfo{ID: m})
		}
		if found.KVTokens != nil && !hosted(e.Kind) {
			r.KVTokens = found.KVTokens(e.Name) * max(e.DataParallel, 1)
		}
		reports[e.Name] = r
	}
	g, err := build(c, f, reports, nil)
	if err != nil {
		return nil, err
	}
	if len(g.pools) == 0 {
		return nil, fmt.Errorf("nothing is served: no endpoint lists a model")
	}
	return &Core{
		Pools: g.pools, Chains: g.Proxy.Chains, Router: routing(c, 0), MaxAttempts: g.Proxy.MaxAttempts, Deadlines: g.Proxy.Deadlines,
		Retry: c.Retry, HedgeRatio: c.Hedge.BudgetRatio, Hedged: g.Proxy.Hedged, Prices: prices(g.pools),
	}, nil
}

// benchmarking is the start of the addresses that RFC 2544 sets aside for tests.
var benchmarking = netip.AddrFrom4([4]byte{198, 18, 0, 0})

// prices are those of deployments, by ID.
func prices(pools []route.PoolSpec) map[string]config.Price {
	out := map[string]config.Price{}
	for _, p := range pools {
		for _, d := range p.Deployments {
			if d.Price != (route.Price{}) {
				out[d.ID] = config.Price(d.Price)
			}
		}
	}
	return out
}

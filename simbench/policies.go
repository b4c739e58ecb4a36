package main

import (
	"evenkeel/internal/sim/study"
	"evenkeel/internal/strategy"
)

// kind says whose a policy is.
type kind uint8

const (
	ours kind = iota
	peer
	reference
	bound // no policy: what none can do better
)

// policy takes part.
type policy struct {
	study.Policy
	kind kind
}

// ownDefault is what Evenkeel does where nothing else is configured.
const ownDefault = strategy.Default

// strategies are Evenkeel's that need no order or weights of deployments. Those of bare run once more without the rule that gives
// less to deployments whose first tokens come late, which other routers do not have: what it costs and brings shows.
var (
	strategies = []string{"round_robin", "least_connections", "least_tokens", "p2c_ewma", "latency_p95", "predicted_wait"}
	bare       = []string{"round_robin", "least_connections", "least_tokens", "p2c_ewma"}
)

// bareSuffix ends the names of those that run without that rule.
const bareSuffix = " (bare)"

// policies returns all that take part.
func policies() ([]policy, error) {
	var all []policy
	add := func(name string, bare bool) error {
		p, err := study.Strategy(name)
		if bare {
			p.Name, p.Bare = name+bareSuffix, true
		}
		all = append(all, policy{p, ours})
		return err
	}
	for _, name := range strategies {
		if err := add(name, false); err != nil {
			return nil, err
		}
	}
	for _, name := range bare {
		if err := add(name, true); err != nil {
			return nil, err
		}
	}
	for _, p := range study.Peers() {
		all = append(all, policy{p, peer})
	}
	for _, p := range study.References() {
		all = append(all, policy{p, reference})
	}
	return all, nil
}

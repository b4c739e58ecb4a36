package study

import (
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
	"evenkeel/internal/strategy"
)

// Policy is a way to choose that takes part in a study. One of Strategy and Adviser is set.
type Policy struct {
	Name   string
	Origin string // whose it is: a project, with what variant; "" = Evenkeel's
	// Strategy is one of Evenkeel's own.
	Strategy route.Strategy
	// Bare leaves out the Router's rule that gives less to deployments whose first tokens come late. Other routers have none, so
	// a policy with an Adviser is always bare.
	Bare bool
	// Adviser makes a policy that keeps a picture of its own, for one balancer.
	Adviser func(*Row, sim.Vantage) (sim.Policy, error)
	// Reference says that it knows what no router can: it is a yardstick and no peer.
	Reference bool
}

// Strategy returns one of Evenkeel's strategies, without options. The error lists them.
func Strategy(name string) (Policy, error) {
	s, err := strategy.New(name, nil)
	if err != nil {
		return Policy{}, err
	}
	return Policy{Name: name, Strategy: s}, nil
}

package study

import (
	"strings"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/peers"
	"evenkeel/internal/sim/yardstick"
	"evenkeel/internal/strategy"
)

// Policy is a way to choose that takes part in a study. One of Strategy, Adviser and Pool is set.
type Policy struct {
	Name    string
	Origin  string // where it is from: a project, file and version; "" = it is Evenkeel's
	Summary string // what it does, in a line
	// Strategy is one of Evenkeel's own.
	Strategy route.Strategy
	// Bare leaves out the Router's rule that gives less to deployments whose first tokens come late. Other routers have none, so
	// a policy with an Adviser is always bare.
	Bare bool
	// Adviser makes a policy that keeps a picture of its own, for one balancer.
	Adviser func(*Row, sim.Vantage) (sim.Policy, error)
	// Scrape is how often it reads each engine's metrics by default, 0 if it does without.
	Scrape time.Duration
	// Pool, if set, makes one server of all engines: a yardstick that knows all requests and all engines, as no router can.
	Pool func(engines []engine.Config, requests []sim.Request) (sim.Server, error)
}

// scrapeOwn is how often Evenkeel reads each engine's signals by default.
const scrapeOwn = time.Second

// PeerPrefix begins the names of other routers' policies.
const PeerPrefix = "peer:"

// Strategy returns the policy of a name: one of Evenkeel's strategies, without options, or that of another router after PeerPrefix, as in
// "peer:sglang". An unknown name of Evenkeel's is a *strategy.UnknownError; that about another router lists those there are.
func Strategy(name string) (Policy, error) {
	if id, ok := strings.CutPrefix(name, PeerPrefix); ok {
		e, err := peers.Find(id)
		if err != nil {
			return Policy{}, err
		}
		return fromPeer(e), nil
	}
	s, err := strategy.New(name, nil)
	if err != nil {
		return Policy{}, err
	}
	return Policy{Name: name, Summary: strategy.Summary(name), Strategy: s, Scrape: scrapeOwn}, nil
}

// Peers returns the policies of all other routers.
func Peers() []Policy {
	var all []Policy
	for _, e := range peers.Table() {
		all = append(all, fromPeer(e))
	}
	return all
}

// References returns the yardsticks: the best of them on a row is what knowledge is worth there.
func References() []Policy {
	var all []Policy
	for _, e := range yardstick.Portfolio() {
		all = append(all, Policy{
			Name: "reference:" + e.Name, Summary: e.Summary,
			Pool: func(engines []engine.Config, requests []sim.Request) (sim.Server, error) {
				return e.Server(engines, requests)
			},
		})
	}
	return all
}

func fromPeer(e peers.Entry) Policy {
	return Policy{
		Name: PeerPrefix + e.ID(), Origin: e.Source, Summary: e.Summary, Scrape: e.Scrape,
		Adviser: func(_ *Row, at sim.Vantage) (sim.Policy, error) { return e.New(at) },
	}
}

// Package strategy holds the ways to rank eligible deployments, one file each.
//
// A strategy is pure: everything its choice may depend on is in the route.Round. To add one, write its file
// with its constructor and add its line to the table.
package strategy

import (
	"fmt"
	"slices"

	"evenkeel/internal/route"
)

// Default is the strategy used where the configuration names none.
const Default = "predicted_wait"

// entry is one line of the table.
type entry struct {
	name    string
	aliases []string
	summary string // one line for people
	// build makes the strategy; decode fills a pointer to a struct of options, strictly.
	build func(decode func(any) error) (route.Strategy, error)
}

var table = []entry{
	{"round_robin", nil, "in order over eligible deployments", newRoundRobin},
	{"weighted", nil, "in exact proportion to weights", newWeighted},
	{"least_connections", nil, "fewest running requests per weight", newLeastConnections},
	{"least_tokens", []string{"token_aware"}, "least outstanding token work per weight", newLeastTokens},
	{"p2c_ewma", nil, "the faster of two random deployments, by learned time to first token", newP2CEWMA},
	{"predicted_wait", nil, "least expected time to the first token, with what the prompt costs those behind it", newPredictedWait},
	{"expression", nil, "the lowest of scores by a formula of your own", newExpression},
	{"latency_p95", nil, "the faster of two random deployments, by the 95th percentile of the time to first token", newLatencyP95},
	{"failover", nil, "the first of the list while it is in use, else the next", newFailover},
}

// Names returns the names of all strategies, aliases last.
func Names() []string {
	var names, aliases []string
	for _, e := range table {
		names = append(names, e.name)
		aliases = append(aliases, e.aliases...)
	}
	return append(names, aliases...)
}

// Summary returns what the named strategy does in one line, "" if there is none of that name.
func Summary(name string) string {
	if e := find(name); e != nil {
		return e.summary
	}
	return ""
}

func find(name string) *entry {
	for i := range table {
		if table[i].name == name || slices.Contains(table[i].aliases, name) {
			return &table[i]
		}
	}
	return nil
}

// UnknownError says that no strategy has the name that was asked for.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown strategy %q", e.Name)
}

// New builds the named strategy. decode fills a pointer to a struct of options and must refuse unknown ones;
// nil means no options were given. An unknown name is an *UnknownError.
func New(name string, decode func(any) error) (route.Strategy, error) {
	e := find(name)
	if e == nil {
		return nil, &UnknownError{name}
	}
	if decode == nil {
		decode = func(any) error { return nil }
	}
	s, err := e.build(decode)
	if err != nil {
		return nil, fmt.Errorf("strategy %s: %w", e.name, err)
	}
	return s, nil
}

// noOptions is decoded into by strategies that have none, so that any option is refused.
type noOptions struct{}

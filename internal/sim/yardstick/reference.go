package yardstick

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// Entry is a policy of the portfolio.
type Entry struct {
	Name, Summary string

	rule func(requests []sim.Request) rule
}

// Portfolio returns the policies that the reference is the best of. The number in a name is how much more what a prompt takes counts
// than that it waits.
func Portfolio() []Entry {
	var all []Entry
	add := func(name, summary string, factors []float64, r func(exact, []sim.Request) rule) {
		for _, f := range factors {
			x := strconv.FormatFloat(f, 'g', -1, 64)
			all = append(all, Entry{name + "-" + x, summary, func(requests []sim.Request) rule { return r(exact{f}, requests) }})
		}
	}
	add("exact", "at once to the engine with the least backlog and own prompt, in seconds", []float64{1, 1.5, 2, 3, 5, 8},
		func(x exact, _ []sim.Request) rule { return x })
	add("ahead", "the same for it and the next 16 arrivals together", []float64{1, 2, 3, 5},
		func(x exact, requests []sim.Request) rule { return &ahead{exact: x, requests: requests} })
	add("patient", "kept until the engine can begin that is best for it; of several the one with the least to compute", []float64{1, 2, 3, 5, 8},
		func(x exact, _ []sim.Request) rule { return late{shortest: true, patient: &x} })
	return append(all,
		Entry{"late-shortest", "kept until any engine can begin; the one with the least to compute there goes first",
			func([]sim.Request) rule { return late{shortest: true} }},
		Entry{"late-first", "kept until any engine can begin, in order of arrival",
			func([]sim.Request) rule { return late{} }},
	)
}

// Server returns engines under the policy, as the only server of a Fleet to which these requests come, in order of arrival.
func (e *Entry) Server(engines []engine.Config, requests []sim.Request) (*Pool, error) {
	return newPool(engines, e.rule(requests))
}

// Run is what a policy of the portfolio came to. The Result is of one deployment: it says nothing of balance.
type Run struct {
	Entry
	Result *sim.Result
}

// Reference plays the requests under each policy of the portfolio, and returns all runs with the lowest mean TTFT first.
func Reference(requests []sim.Request, engines []engine.Config, o Options) ([]Run, error) {
	var runs []Run
	for _, e := range Portfolio() {
		p, err := e.Server(engines, requests)
		if err != nil {
			return nil, err
		}
		f, err := sim.New(sim.Options{
			Servers: []sim.Server{p}, Strategy: only{}, Stream: true, Source: &played{requests: requests}, BurnIn: o.BurnIn, Goal: o.Goal,
		})
		if err != nil {
			return nil, fmt.Errorf("yardstick: %w", err)
		}
		last := time.Duration(0)
		if n := len(requests); n > 0 {
			last = requests[n-1].At
		}
		if err := f.Finish(last); err != nil {
			return nil, fmt.Errorf("yardstick: %s: %w", e.Name, err)
		}
		runs = append(runs, Run{e, f.Result()})
	}
	slices.SortStableFunc(runs, func(a, b Run) int {
		x, y := a.Result.TTFT.Mean(), b.Result.TTFT.Mean()
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return runs, nil
}

// only is the strategy where there is one deployment.
type only struct{}

// Pick implements route.Strategy.
func (only) Pick(*route.Round) int { return 0 }

// played is a Source of requests that are known.
type played struct {
	requests []sim.Request
	next     int
}

// Next implements sim.Source.
func (p *played) Next(r *sim.Request) bool {
	if p.next == len(p.requests) {
		return false
	}
	*r = p.requests[p.next]
	p.next++
	return true
}

// Collect takes all requests of a source, or the first most if it has more.
func Collect(s sim.Source, most int) []sim.Request {
	var all []sim.Request
	var r sim.Request
	for len(all) < most && s.Next(&r) {
		all = append(all, r)
	}
	return all
}

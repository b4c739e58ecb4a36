package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"evenkeel/internal/config"
	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/report"
	"evenkeel/internal/sim/study"
	"evenkeel/internal/strategy"
)

const (
	defaultEngine      = "vllm-8192"
	defaultDeployments = 4
	defaultMembers     = 2
	defaultNoCacheRho  = 0.8 // strategies that find few prefixes are not overloaded either
	defaultRequests    = 10_000
	defaultSeeds       = 5
)

// experiment makes what the flags ask for.
func (f *simulateFlags) experiment() (*experiment, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	w, err := f.traffic()
	if err != nil {
		return nil, err
	}
	if err := f.checkTrace(w.Trace); err != nil {
		return nil, err
	}
	presets, err := f.presets()
	if err != nil {
		return nil, err
	}
	x := &experiment{goal: w.Goal, choices: f.explainDiff > 0}
	if f.fit {
		section, err := f.fitAll(w.Trace, presets)
		if err != nil {
			return nil, err
		}
		x.sections = append(x.sections, section)
	}
	row := f.row(w)
	if len(f.strategies) > 0 {
		err = f.compareStrategies(x, &row, presets)
	} else {
		err = f.compareConfigurations(x, &row, presets)
	}
	if err != nil {
		return nil, err
	}
	if err := f.checkRouted(x, &row); err != nil {
		return nil, err
	}
	p, err := study.Prepare(row, f.seed)
	if err != nil {
		return nil, usageError{err}
	}
	if err := f.checkSpan(p.Rate, p.Row.Requests); err != nil {
		return nil, err
	}
	for k := range cmp.Or(f.seeds, usualSeeds(&row)) {
		seed := f.seed + uint64(k)
		if k > 0 {
			if p, err = p.With(seed); err != nil {
				return nil, usageError{err}
			}
		}
		x.prepared, x.seeds = append(x.prepared, p), append(x.seeds, seed)
	}
	x.facts = append(f.facts(x), x.facts...)
	return x, nil
}

// usualSeeds is how many seeds are played unless --seeds says. Each would play the same of a trace that is played whole.
func usualSeeds(row *study.Row) int {
	if row.Workload.Trace != nil && row.Requests == 0 {
		return 1
	}
	return defaultSeeds
}

// check finds flags that do not go together.
func (f *simulateFlags) check() error {
	configured := len(f.baseline)+len(f.candidate) > 0
	fast := 0
	for _, v := range []float64{f.rho, f.rate, f.speed} {
		if v != 0 {
			fast++
		}
	}
	bad := func(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
	switch {
	case configured && len(f.strategies) > 0:
		return bad("configurations have strategies of their own: give either --strategy, or --baseline and --candidate")
	case configured && (len(f.baseline) == 0 || len(f.candidate) == 0):
		return bad("--baseline and --candidate go together: what there is, and what there might be")
	case !configured && len(f.strategies) == 0:
		return bad("say what is to be compared: --strategy a,b with some of %s; or --baseline FILE --candidate FILE", strings.Join(strategy.Names(), ", "))
	case f.model != "" && !configured:
		return bad("--model is for configurations: with --strategy all engines serve the same")
	case f.price != nil && configured:
		return bad("--price is for --strategy: configurations have prices of their own")
	case f.price != nil && (len(f.price) != 3 || slices.ContainsFunc(f.price, func(d float64) bool { return !(d >= 0 && d <= mostPrice) })):
		return bad("--price takes three numbers of dollars per million tokens, each from 0 to %.0f: input, cached input, output, such as 2.5,1.25,10", mostPrice)
	case fast > 1:
		return bad("--rho, --rate and --speed all say how fast requests come: give one of them")
	case f.speed != 0 && f.trace == "":
		return bad("--speed is for a trace; give --rho or --rate")
	case f.format != "" && f.trace == "":
		return bad("--format is that of a trace: give --trace too")
	case len(f.engines) == 0:
		return bad("--engine is empty: give one of %s", strings.Join(engine.Presets(), ", "))
	}
	return nil
}

// leastBurnIn stands for none: study takes 0 for its default.
const leastBurnIn = 1e-9

// row is the experiment without what is compared.
func (f *simulateFlags) row(w study.Workload) study.Row {
	r := study.Row{
		Workload: w, Rho: f.rho, Rate: f.rate, Speed: f.speed, Requests: f.requests, Copies: f.copies, BurnIn: max(f.burnIn, leastBurnIn),
		Knowledge: study.Knowledge{Balancers: f.balancers, Scrapes: sim.Scrapes{Every: f.scrape}},
	}
	traced := w.Trace != nil
	if r.Rho == 0 && r.Rate == 0 && r.Speed == 0 {
		if traced {
			r.Speed = 1
		} else {
			r.Rho, r.Basis = defaultNoCacheRho, study.NoCache
		}
	}
	if traced && r.Copies == 0 && r.Rho == 0 {
		r.Copies = 1
	}
	if !traced && r.Requests == 0 {
		r.Requests = defaultRequests
	}
	return r
}

// facts say what was simulated.
func (f *simulateFlags) facts(x *experiment) []report.Fact {
	p := x.prepared[0]
	w := &p.Row.Workload
	name := w.Name
	if w.Summary != "" {
		name += ": " + w.Summary
	}
	busy := fmt.Sprintf("%.3g requests a second: the engines are busy for %.0f %% of the time with a cache that forgets nothing, %.0f %% without any", p.Rate, 100*p.Rho, 100*p.NoRho)
	seeds := "seed " + strconv.FormatUint(x.seeds[0], 10)
	if n := len(x.seeds); n > 1 {
		seeds = fmt.Sprintf("each of seeds %d to %d", x.seeds[0], x.seeds[n-1])
	}
	prompt, answer := 0.0, 0.0
	for _, p := range x.prepared {
		prompt += p.Prompt / float64(len(x.prepared))
		answer += p.Output / float64(len(x.prepared))
	}
	facts := []report.Fact{
		{Name: "traffic", Value: name},
		{Name: "requests", Value: fmt.Sprintf("%d in %s, %s; mean prompt %.0f tokens, answer %.0f", p.Row.Requests, brief(p.Last), seeds, prompt, answer)},
		{Name: "load", Value: busy},
		{Name: "not measured", Value: fmt.Sprintf("what came in the first %s", brief(p.BurnIn))},
	}
	facts = append(facts, f.asRecorded(x)...)
	if f.balancers > 1 {
		facts = append(facts, report.Fact{Name: "balancers", Value: fmt.Sprintf("%d, which know nothing of each other", f.balancers)})
	}
	return facts
}

// compareStrategies adds a side for each strategy.
func (f *simulateFlags) compareStrategies(x *experiment, row *study.Row, presets map[string]engine.Config) error {
	var ids, kinds []string
	for i := range cmp.Or(f.deployments, max(defaultDeployments, len(f.engines))) {
		ids, kinds = append(ids, "e"+strconv.Itoa(i)+"/m"), append(kinds, f.engines[i%len(f.engines)])
		row.Engines = append(row.Engines, presets[kinds[i]])
	}
	for _, name := range f.strategies {
		p, err := policy(name)
		if err != nil {
			return usageError{fmt.Errorf("--strategy: %w", err)}
		}
		if x.find(p.Name) >= 0 {
			return usageError{fmt.Errorf("--strategy: %s is in the list twice", name)}
		}
		s := side{name: p.Name, origin: p.Origin, deployments: ids}
		if p.Pool != nil {
			s.deployments, s.opaque = ids[:1], true
		}
		s.options = func(prepared *study.Prepared, seed uint64) (sim.Options, error) {
			return prepared.Options(p, seed)
		}
		if f.price != nil {
			price := config.Price{Input: f.price[0], CachedInput: f.price[1], Output: f.price[2]}
			s.cost = func(a *exchange.Attempt) float64 { return attemptCost(price, a) }
		}
		x.sides = append(x.sides, s)
	}
	x.priced = f.price != nil
	x.title = "Simulation of " + strings.Join(f.strategies, ", ")
	x.facts = []report.Fact{{Name: "engines", Value: tallied(kinds)}}
	return nil
}

// presets returns the engines that --engine names, by their names.
func (f *simulateFlags) presets() (map[string]engine.Config, error) {
	out := map[string]engine.Config{}
	for _, text := range f.engines {
		endpoint, name, ok := strings.Cut(text, "=")
		if !ok {
			name = text
		} else if len(f.strategies) > 0 {
			return nil, usageError{fmt.Errorf("--engine %s: %q is an endpoint of a configuration; with --strategy give presets alone", text, endpoint)}
		}
		c, err := engineNamed(name)
		if err != nil {
			return nil, err
		}
		out[name] = c
	}
	if _, given := out[defaultEngine]; !given { // of endpoints of which --engine says nothing
		c, err := engine.Preset(defaultEngine)
		if err != nil {
			return nil, err
		}
		out[defaultEngine] = c
	}
	return out, nil
}

// tallied counts equal words, in order of appearance, as in "2 × a, 1 × b".
func tallied(words []string) string {
	var order, parts []string
	counts := map[string]int{}
	for _, w := range words {
		if counts[w]++; counts[w] == 1 {
			order = append(order, w)
		}
	}
	for _, w := range order {
		parts = append(parts, fmt.Sprintf("%d × %s", counts[w], w))
	}
	return strings.Join(parts, ", ")
}

// policy finds a strategy of ours, another router's, or a yardstick.
func policy(name string) (study.Policy, error) {
	references := study.References()
	if i := slices.IndexFunc(references, func(p study.Policy) bool { return p.Name == name }); i >= 0 {
		return references[i], nil
	}
	p, err := study.Strategy(name)
	if _, unknown := errors.AsType[*strategy.UnknownError](err); unknown {
		var peers []string
		for _, p := range study.Peers() {
			peers = append(peers, p.Name)
		}
		return p, fmt.Errorf("there is no strategy %q. There are %s; of other routers %s; evenkeel simulate --list says what each does", name,
			strings.Join(strategy.Names(), ", "), strings.Join(peers, ", "))
	}
	return p, err
}

// attemptCost is what an attempt costs at a price, in dollars.
func attemptCost(p config.Price, a *exchange.Attempt) float64 {
	o := &a.Outcome
	if !o.Answered {
		return 0
	}
	price := route.Price(p)
	return price.Of(o.InputTokens, o.CachedTokens, o.OutputTokens)
}

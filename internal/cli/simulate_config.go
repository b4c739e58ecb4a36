package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"evenkeel/internal/app"
	"evenkeel/internal/config"
	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/report"
	"evenkeel/internal/sim/study"
)

// compareConfigurations adds a side for each of the two configurations.
func (f *simulateFlags) compareConfigurations(x *experiment, row *study.Row, presets map[string]engine.Config) error {
	written := []struct {
		name  string
		paths []string
	}{{"baseline", f.baseline}, {"candidate", f.candidate}}
	var configs []*config.Config
	for _, w := range written {
		c, err := loadConfiguration(w.paths)
		if err != nil {
			return fmt.Errorf("--%s %s: %w", w.name, strings.Join(w.paths, " "), err)
		}
		configs = append(configs, c)
	}
	if err := f.checkEngines(configs); err != nil {
		return err
	}
	asked, err := f.asked(row.Workload.Trace, configs[0])
	if err != nil {
		return usageError{fmt.Errorf("--baseline %s: %w", strings.Join(f.baseline, " "), err)}
	}
	for k, w := range written {
		s, err := f.configured(w.name, configs[k], asked, presets)
		if err != nil {
			return fmt.Errorf("--%s %s: %w", w.name, strings.Join(w.paths, " "), err)
		}
		s.origin = strings.Join(w.paths, " ")
		x.sides = append(x.sides, s.side)
		x.priced = x.priced || s.cost != nil
		x.facts = append(x.facts, report.Fact{Name: w.name, Value: fmt.Sprintf("%s: %s, %s; behind them %s", s.origin, counted(len(s.deployments), "deployment"), s.strategies, tallied(s.kinds))})
		if k == 0 { // how busy they are is told of the baseline
			for _, kind := range s.kinds {
				row.Engines = append(row.Engines, presets[kind])
			}
		}
	}
	x.title = "Simulation of " + x.sides[1].origin + " against " + x.sides[0].origin
	return nil
}

// asked lists the models that the traffic asks for. Requests that name none ask for the first.
func (f *simulateFlags) asked(t *sim.Trace, baseline *config.Config) ([]string, error) {
	asked := modelsOf(t)
	if f.model != "" {
		return append([]string{f.model}, slices.DeleteFunc(asked, func(m string) bool { return m == f.model })...), nil
	}
	if asked == nil {
		return onlyModel(baseline)
	}
	return asked, nil
}

// loadConfiguration reads the files of a configuration as serve does, but for secrets: none is needed, for nothing is connected.
// What deserves a warning check tells.
func loadConfiguration(paths []string) (*config.Config, error) {
	var names []string
	for _, p := range paths {
		found, err := filesAt(p)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	files, err := config.ReadFiles(names...)
	if err != nil {
		return nil, err
	}
	c, _, err := config.Load(files, func(name string) (string, bool) {
		if value := os.Getenv(name); value != "" {
			return value, true
		}
		return unusedSecret, true
	})
	if c != nil {
		err = c.Validate(app.CheckStrategy)
	}
	return c, err
}

// unusedSecret stands for a variable of the environment that is not set.
const unusedSecret = "not-set"

// filesAt lists a file, or the configuration files of a directory.
func filesAt(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		if _, statErr := os.Stat(path); errors.Is(statErr, fs.ErrNotExist) {
			return nil, err
		}
		return []string{path}, nil // no directory
	}
	var files []string
	for _, e := range entries { // in order of name
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if files == nil {
		return nil, fmt.Errorf("%s: the directory holds no .yaml file", path)
	}
	return files, nil
}

// modelsOf lists the models that a trace asks for, in order of appearance; nil if it names none.
func modelsOf(t *sim.Trace) []string {
	if t == nil {
		return nil
	}
	var models []string
	for _, row := range t.Rows() {
		if m := row.Model; m != "" && !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	return models
}

// anyModel is what endpoints serve if nobody names a model.
const anyModel = "any"

// onlyModel is what traffic asks for that names no model: the only one of the configuration.
func onlyModel(c *config.Config) ([]string, error) {
	var models []string
	add := func(m string) {
		if !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	for i := range c.Models {
		add(c.Models[i].Name)
	}
	for i := range c.Endpoints {
		for _, m := range c.Endpoints[i].Models {
			add(m)
		}
	}
	switch len(models) {
	case 0:
		return []string{anyModel}, nil
	case 1:
		return models, nil
	}
	return nil, fmt.Errorf("the traffic names no model, and there are several: say which by --model (%s)", strings.Join(models, ", "))
}

// configuredSide is a side with what is told of it.
type configuredSide struct {
	side
	kinds      []string // presets of its engines
	strategies string
}

// configured makes the side of a configuration. Requests that name no model ask for the first of asked.
func (f *simulateFlags) configured(name string, c *config.Config, asked []string, presets map[string]engine.Config) (configuredSide, error) {
	s := configuredSide{side: side{name: name}}
	core, err := app.NewCore(c, app.Found{Models: asked, Members: cmp.Or(f.deployments, defaultMembers), KVTokens: func(endpoint string) int {
		preset := presets[f.kind(endpoint)]
		return preset.Blocks * preset.BlockTokens
	}})
	if err != nil {
		return s, err
	}
	site, err := siteOf(core, asked)
	if err != nil {
		return s, err
	}
	s.deployments, s.strategies = site.IDs(), strategiesOf(site)
	for _, id := range s.deployments {
		s.kinds = append(s.kinds, f.kind(id))
	}
	if len(core.Prices) > 0 {
		s.cost = func(a *exchange.Attempt) float64 { return attemptCost(core.Prices[a.Deployment], a) }
	}
	s.options = func(p *study.Prepared, seed uint64) (o sim.Options, err error) {
		o = sim.Options{
			Seed: seed, Site: site, Balancers: f.balancers, Router: core.Router, Stream: true, BurnIn: p.BurnIn, Goal: p.Row.Workload.Goal,
			Plan:   exchange.Plan{Repeatable: true, MaxAttempts: core.MaxAttempts, Deadlines: core.Deadlines, Hedge: core.Hedged != nil},
			Budget: sim.Budget{Ratio: core.Retry.BudgetRatio, Smallest: float64(core.Retry.BudgetMin), Hedges: core.HedgeRatio},
		}
		for _, kind := range s.kinds {
			e, err := sim.NewEngine(presets[kind])
			if err != nil {
				return o, err
			}
			o.Servers = append(o.Servers, e)
		}
		source, err := p.Source(seed)
		o.Source = &asking{source, asked[0]}
		return o, err
	}
	return s, nil
}

// siteOf is the part of a configuration that serves the models that are asked for, with their fallbacks.
func siteOf(core *app.Core, asked []string) (*sim.Site, error) {
	site := &sim.Site{Chains: core.Chains, Hedged: core.Hedged}
	used := map[string]bool{}
	for _, m := range asked {
		if _, served := core.Chains[m]; !served {
			return site, fmt.Errorf("no endpoint serves the model %q that the traffic asks for; name the models of its endpoints, or give --model", m)
		}
		for _, link := range core.Chains[m] {
			used[link] = true
		}
	}
	for _, p := range core.Pools {
		if used[p.Model] {
			site.Pools = append(site.Pools, p)
		}
	}
	return site, nil
}

// kind says which engine is behind a deployment: what --engine says of its endpoint, or of the pool that it is of, else of all.
func (f *simulateFlags) kind(deployment string) string {
	named, general := f.namedFor(deployment), defaultEngine
	for _, text := range f.engines {
		name, preset, ok := strings.Cut(text, "=")
		switch {
		case !ok:
			general = text
		case name == named:
			return preset
		}
	}
	return general
}

// checkEngines finds an endpoint in --engine that no configuration has.
func (f *simulateFlags) checkEngines(configs []*config.Config) error {
	general := 0
	for _, text := range f.engines {
		name, _, ok := strings.Cut(text, "=")
		if !ok {
			general++
			continue
		}
		var known []string
		for _, c := range configs {
			for i := range c.Endpoints {
				known = append(known, c.Endpoints[i].Name)
			}
		}
		if !slices.Contains(known, name) {
			return usageError{fmt.Errorf("--engine %s: no endpoint is named %q%s", text, name, config.DidYouMean(name, known))}
		}
	}
	if general > 1 {
		return usageError{fmt.Errorf("--engine has %d presets for all endpoints; say which endpoint has which: endpoint=preset", general)}
	}
	return nil
}

// asking is a source whose requests ask for a model if they name none.
type asking struct {
	sim.Source
	model string
}

// Next implements sim.Source.
func (a *asking) Next(r *sim.Request) bool {
	ok := a.Source.Next(r)
	r.Model = cmp.Or(r.Model, a.model)
	return ok
}

// strategiesOf words the strategies of a site.
func strategiesOf(site *sim.Site) string {
	var names []string
	for _, p := range site.Pools {
		if name := fmt.Sprint(p.Strategy); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}

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
func (f *simulateFlags) compareConfigurations(x *experiment, row *study.Row) error {
	presets, err := f.presets()
	if err != nil {
		return err
	}
	asked := modelsOf(row.Workload.Trace)
	if f.model != "" && !slices.Contains(asked, f.model) {
		asked = append([]string{f.model}, asked...)
	}
	for _, c := range []struct {
		name  string
		paths []string
	}{{"baseline", f.baseline}, {"candidate", f.candidate}} {
		flag := "--" + c.name + " " + strings.Join(c.paths, " ")
		loaded, err := loadConfiguration(c.paths)
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		if asked == nil {
			if asked, err = onlyModel(loaded); err != nil {
				return usageError{fmt.Errorf("%s: %w", flag, err)}
			}
		}
		core, err := app.NewCore(loaded, app.Found{Models: asked, Members: cmp.Or(f.deployments, defaultMembers)})
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		s, err := f.configured(c.name, core, asked, presets)
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		s.origin = strings.Join(c.paths, " ")
		x.sides = append(x.sides, s.side)
		x.priced = x.priced || s.cost != nil
		x.facts = append(x.facts, report.Fact{Name: c.name, Value: fmt.Sprintf("%s: %s, %s; behind them %s", s.origin, counted(len(s.deployments), "deployment"), s.strategies, tallied(s.kinds))})
		if row.Engines == nil { // how busy they are is told of the baseline
			for _, kind := range s.kinds {
				row.Engines = append(row.Engines, presets[kind])
			}
		}
	}
	x.title = "Simulation of " + x.sides[1].origin + " against " + x.sides[0].origin
	return nil
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
	for i := range t.Rows {
		if m := t.Rows[i].Model; m != "" && !slices.Contains(models, m) {
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

// configured makes the side of a configuration. Requests that name no model ask for the first.
func (f *simulateFlags) configured(name string, core *app.Core, asked []string, presets map[string]engine.Config) (configuredSide, error) {
	site, err := siteOf(core, asked)
	s := configuredSide{side: side{name: name, deployments: site.IDs()}}
	if err != nil {
		return s, err
	}
	s.strategies = strategiesOf(site)
	s.kinds = f.kinds(s.deployments)
	if len(core.Prices) > 0 {
		s.cost = func(a *exchange.Attempt) float64 { return attemptCost(core.Prices[a.Deployment], a) }
	}
	s.options = func(p *study.Prepared, seed uint64) (o sim.Options, err error) {
		k := &p.Row.Knowledge
		o = sim.Options{
			Seed: seed, Site: site, Balancers: k.Balancers, Router: core.Router, Stream: true, BurnIn: p.BurnIn, Goal: p.Row.Workload.Goal,
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

// kinds says which engine is behind each deployment: what --engine says of its endpoint, or of the pool that this is of, else
// what it says of all, in turn.
func (f *simulateFlags) kinds(ids []string) []string {
	var general []string
	of := map[string]string{}
	for _, text := range f.engines {
		if endpoint, name, ok := strings.Cut(text, "="); ok {
			of[endpoint] = name
		} else {
			general = append(general, text)
		}
	}
	if general == nil {
		general = []string{defaultEngine}
	}
	var kinds []string
	for i, id := range ids {
		endpoint, _, _ := strings.Cut(id, "/")
		pool, _, _ := strings.Cut(endpoint, "@")
		kinds = append(kinds, cmp.Or(of[endpoint], of[pool], general[i%len(general)]))
	}
	return kinds
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

package cli

import (
	"fmt"
	"strings"
	"time"

	"evenkeel/internal/app"
	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/sim"
	"evenkeel/internal/trace"
)

// simulated are the strategies that the demo shows by the simulator: the two that ran, to be held against what was measured, and others.
func (d *demoRun) simulated() []string {
	names := []string{d.tallies[0].strategy, d.tallies[1].strategy}
	for _, name := range []string{"least_connections", "least_tokens", "p2c_ewma", "latency_p95"} {
		if name != names[1] {
			names = append(names, name)
		}
	}
	return names
}

// otherwise sets what was measured beside what the simulator makes of the same traffic, engines and kill, and shows what it would have been
// under strategies that did not run.
func (d *demoRun) otherwise() ([]line, error) {
	rows := [][]cell{{{"", ""}, {"TTFT mean", faint}, {"     p50", faint}, {"     p99", faint}, {"measured mean", faint}, {"p99", faint}}}
	began := time.Now()
	for i, name := range d.simulated() {
		r, err := d.fleet.simulate(name, newPlan(d.half))
		if err != nil {
			return nil, fmt.Errorf("the simulator, under %s: %w", name, err)
		}
		row := []cell{{name, faint}}
		for _, seconds := range []float64{r.TTFT.Mean(), r.TTFT.Quantile(0.50), r.TTFT.Quantile(0.99)} {
			row = append(row, cell{brief(time.Duration(seconds * float64(time.Second))), ""})
		}
		if i < len(d.tallies) {
			t := d.tallies[i].ttft
			row = append(row, cell{brief(t.mean()), faint}, cell{brief(t.quantile(0.99)), faint})
		}
		rows = append(rows, row)
	}
	title := fmt.Sprintf("What this would have been: the same traffic and kill in the simulator (%s)", brief(time.Since(began)))
	lines := append([]line{{}, {{title, bold}}}, columns(rows, 1, "  ")...)
	return append(lines, line{{"  Each begins with a balancer that has learned nothing; the second half of the demo began with what the first had taught.", faint}}), nil
}

// simulate plays one half of the demo in virtual time, with the balancer as the configuration for this strategy has it.
func (f *demoFleet) simulate(strategy string, p plan) (*sim.Result, error) {
	c, err := f.config(strategy)
	if err != nil {
		return nil, err
	}
	core, err := app.NewCore(c, app.Found{Models: []string{demoModel}})
	if err != nil {
		return nil, err
	}
	site, err := siteOf(core, []string{demoModel})
	if err != nil {
		return nil, err
	}
	o := sim.Options{
		Seed: demoSeed, Site: site, Router: core.Router, Stream: true, Source: newDemoSource(p.traffic),
		Plan:   exchange.Plan{Repeatable: true, MaxAttempts: core.MaxAttempts, Deadlines: core.Deadlines},
		Budget: sim.Budget{Ratio: core.Retry.BudgetRatio, Smallest: float64(core.Retry.BudgetMin)},
	}
	engines := map[string]*engine.Config{}
	for _, e := range demoEngines() {
		engines[e.Name] = e.Engine
	}
	for i, id := range site.IDs() {
		name, _, _ := strings.Cut(id, "/")
		server, err := sim.NewEngine(*engines[name])
		if err != nil {
			return nil, err
		}
		o.Servers = append(o.Servers, server)
		if name != demoVictim {
			continue
		}
		cold, err := sim.NewEngine(*engines[name])
		if err != nil {
			return nil, err
		}
		o.Faults = []sim.Fault{{At: p.kill, Deployment: i, Kind: sim.Down}, {At: p.back, Deployment: i, Kind: sim.Mended, Server: cold}}
	}
	fleet, err := sim.New(o)
	if err != nil {
		return nil, err
	}
	if err := fleet.Finish(p.half); err != nil {
		return nil, err
	}
	return fleet.Result(), nil
}

// demoSource is the demo's traffic as the simulator takes it.
type demoSource struct{ left []arrival }

func newDemoSource(traffic []arrival) *demoSource { return &demoSource{traffic} }

// Next implements sim.Source.
func (s *demoSource) Next(r *sim.Request) bool {
	if len(s.left) == 0 {
		return false
	}
	a := s.left[0]
	s.left = s.left[1:]
	*r = sim.Request{
		At: a.at, Model: demoModel, PromptTokens: a.prompt, OutputTokens: a.output,
		Recorded: &trace.Entry{API: "chat", Stream: true, MaxOutput: a.output},
	}
	return true
}

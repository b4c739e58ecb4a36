package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"evenkeel/internal/config"
)

type demoFlags struct {
	duration time.Duration
	keep     bool
	log      string
}

// Bounds of --duration. Longer, and the queue that round robin builds up meets the deadlines of requests.
const (
	shortestDemo = 2 * time.Second
	longestDemo  = 10 * time.Minute
)

func newDemo() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo [flags]",
		Short: "See it work, without keys or engines",
		Long: `Demo starts three simulated engines of different speed and a balancer in front of them, on free ports of
127.0.0.1, and sends them the same traffic twice: short and long streamed requests, first under round_robin,
then under the default strategy, changed by a reload while the balancer runs. In each half one engine is
killed, with all its connections reset, and comes back. It shows what happens, and compares the two.

Every answer is checked to its last token. The exit code is 0 if every request was answered completely, or
was cut by the kill after content had come and ended with an error event that says so. Else it is 1.`,
		Example: `  evenkeel demo
  evenkeel demo --duration 2m
  evenkeel demo --keep --log demo.log    leave it running, to try requests and explain`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd, f) },
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.duration, "duration", 30*time.Second, "`time` of the whole demo, 2s to 10m; queues at its end may take a little longer")
	flags.BoolVar(&f.keep, "keep", false, "leave balancer and engines running until Ctrl-C")
	flags.StringVar(&f.log, "log", "", "`file` for the balancer's log, which is appended to (default none)")
	return cmd
}

func runDemo(cmd *cobra.Command, f demoFlags) (err error) {
	if f.duration < shortestDemo || f.duration > longestDemo {
		return usageError{fmt.Errorf("--duration %v: the demo takes from %v to %v", f.duration, shortestDemo, longestDemo)}
	}
	logger := slog.New(slog.DiscardHandler)
	if f.log != "" {
		file, err := os.OpenFile(f.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return usageError{fmt.Errorf("--log: %w", err)}
		}
		defer file.Close()
		logger = newLogger(file, config.Default().Log)
	}
	const first = "round_robin"
	second := config.Default().Strategy.Name
	fleet, err := startFleet(first, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close()) }()
	d := &demo{fleet: fleet, screen: newScreen(cmd.OutOrStdout()), half: f.duration / 2}
	defer d.screen.close()
	var names []string
	for _, e := range fleet.engines {
		names = append(names, e.Name())
	}
	d.tallies = []*tally{newTally(first, names), newTally(second, names)}
	return d.run(cmd.Context(), names, f.keep)
}

// demo is one run of the command.
type demo struct {
	fleet   *demoFleet
	screen  *screen
	half    time.Duration
	tallies []*tally
}

// errDemoFailed is the verdict of a demo whose figures have been printed.
var errDemoFailed = quietError{errors.New("not every request was answered, or told that it was cut")}

func (d *demo) run(ctx context.Context, names []string, keep bool) error {
	d.introduce()
	err := d.fleet.ready(ctx, 10*time.Second)
	for step := 0; step < len(d.tallies) && err == nil; step++ {
		err = d.phase(ctx, step)
	}
	if ctx.Err() != nil {
		d.screen.print(line{}, line{{"Interrupted. Until then:", yellow}})
	} else if err != nil {
		return err
	}
	first, second := d.tallies[0], d.tallies[1]
	d.screen.print(report(first, second, names)...)
	for _, t := range d.tallies {
		for _, f := range counts(t.failed) {
			d.screen.print(line{{fmt.Sprintf("  failed under %s: %d × %s", t.policy, f.n, f.what), red}})
		}
	}
	if ctx.Err() != nil {
		return errDemoFailed
	}
	d.screen.print(nextSteps(d.fleet, keep)...)
	if keep {
		<-ctx.Done()
	}
	if first.failures()+second.failures() > 0 {
		return errDemoFailed
	}
	return nil
}

func (d *demo) introduce() {
	lines := []line{}
	for _, e := range d.fleet.engines {
		lines = append(lines, line{{"engine    ", faint}, {e.URL(), ""}, {"  " + e.Name(), faint}})
	}
	d.screen.print(append(lines,
		line{{"balancer  ", faint}, {d.fleet.data, ""}, {"  for clients", faint}},
		line{{"          ", faint}, {d.fleet.admin, ""}, {"  admin: explain, metrics, deployments", faint}}, line{})...)
}

// phase runs one half.
func (d *demo) phase(ctx context.Context, step int) error {
	t := d.tallies[step]
	if err := d.fleet.use(t.policy); err != nil {
		return err
	}
	if err := d.fleet.ready(ctx, 10*time.Second); err != nil { // the killed engine may still be on trial
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	defer transport.CloseIdleConnections()
	p := &phase{
		fleet: d.fleet, client: &demoClient{http: &http.Client{Transport: transport}, url: d.fleet.data}, plan: newPlan(d.half), tally: t,
		show: func(p *phase) { d.show(p, step+1) }, say: func(e event) {},
	}
	if !d.screen.live {
		d.screen.print(line{{fmt.Sprintf("%d of 2: %s, %d requests in %s", step+1, t.policy, len(p.plan.traffic), brief(p.plan.until())), bold}})
		p.say = func(e event) { d.screen.print(e.line()) }
	}
	err := p.run(ctx)
	d.screen.print(summary(t))
	return err
}

// show updates the live view, or adds a line each second.
func (d *demo) show(p *phase, step int) {
	f := p.view(step)
	if d.screen.live {
		width, _ := d.screen.size()
		d.screen.draw(f.picture(width))
		return
	}
	if second := int(f.now / time.Second); second > p.told {
		p.told = second
		d.screen.print(f.plain())
	}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"evenkeel/internal/app"
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
killed, with all its connections reset, and comes back. It shows what happens, compares the two, and says what
the same would have been under other strategies, by the simulator (evenkeel simulate).

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
	o := app.Options{Logger: slog.New(slog.DiscardHandler), Version: Version()}
	if f.log != "" {
		file, err := os.OpenFile(f.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return usageError{fmt.Errorf("--log: %w", err)}
		}
		defer file.Close()
		var lines *logWriter
		o.Logger, lines = newLogger(file, config.Default().Log)
		o.Lines.Out = lines
		defer lines.Close()
	}
	fleet, err := startFleet(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close()) }()
	d := newDemoRun(fleet, newScreen(cmd.OutOrStdout()), f.duration/2)
	defer d.screen.close()
	return d.run(cmd.Context(), f.keep)
}

// demoRun is one run of the command.
type demoRun struct {
	fleet   *demoFleet
	screen  *screen
	half    time.Duration
	engines []string
	tallies [2]*tally // in the order of the strategies
}

func newDemoRun(f *demoFleet, s *screen, half time.Duration) *demoRun {
	d := &demoRun{fleet: f, screen: s, half: half}
	for _, e := range f.engines {
		d.engines = append(d.engines, e.Name())
	}
	d.tallies = [...]*tally{newTally("round_robin", d.engines), newTally(config.Default().Strategy.Name, d.engines)}
	return d
}

// errDemoFailed is the verdict of a demo whose figures have been printed.
var errDemoFailed = quietError{errors.New("not every request was answered, or told that it was cut")}

func (d *demoRun) run(ctx context.Context, keep bool) error {
	d.introduce()
	var err error
	for step := 0; step < len(d.tallies) && err == nil; step++ {
		err = d.phase(ctx, step)
	}
	if ctx.Err() != nil {
		d.screen.print(line{}, line{{"Interrupted. Until then:", yellow}})
	} else if err != nil {
		return err
	}
	first, second := d.tallies[0], d.tallies[1]
	width, _ := d.screen.size()
	d.screen.print(demoReport(first, second, d.engines, min(width-1, 100))...)
	if ctx.Err() != nil {
		return errDemoFailed
	}
	simulated, err := d.otherwise()
	if err != nil {
		return err
	}
	d.screen.print(simulated...)
	d.screen.print(nextSteps(d.fleet, programName(), keep)...)
	if keep {
		<-ctx.Done()
	}
	if first.failures()+second.failures() > 0 {
		return errDemoFailed
	}
	return nil
}

func (d *demoRun) introduce() {
	lines := []line{}
	for _, e := range d.fleet.engines {
		lines = append(lines, line{{"engine    ", faint}, {e.URL(), ""}, {"  " + e.Name(), faint}})
	}
	d.screen.print(append(lines,
		line{{"balancer  ", faint}, {d.fleet.data, ""}, {"  for clients", faint}},
		line{{"          ", faint}, {d.fleet.admin, ""}, {"  admin: explain, metrics, deployments", faint}}, line{})...)
}

// phase runs one half.
func (d *demoRun) phase(ctx context.Context, step int) error {
	t := d.tallies[step]
	if err := d.fleet.use(t.strategy); err != nil {
		return err
	}
	if err := d.fleet.ready(ctx, 10*time.Second); err != nil { // some may not have been asked yet, the killed one may be on trial
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	defer transport.CloseIdleConnections()
	p := &phase{
		fleet: d.fleet, plan: newPlan(d.half), tally: t, show: func(p *phase) { d.show(p, step+1) }, say: func(event) {},
		client: &demoClient{http: &http.Client{Transport: transport, Timeout: time.Minute + 2*d.half}, url: d.fleet.data},
	}
	if !d.screen.live {
		d.screen.print(line{{fmt.Sprintf("%d of 2: %s, %d requests", step+1, t.strategy, len(p.plan.traffic)), bold}})
		p.say = func(e event) { d.screen.print(e.line()) }
	}
	err := p.run(ctx)
	d.screen.print(p.remains(d.screen.live)...)
	return err
}

// programName is what to type to run this program again.
func programName() string {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	found, err := exec.LookPath("evenkeel")
	return nameToType(os.Args[0], path, err == nil && sameFile(found, path))
}

func sameFile(a, b string) bool {
	one, err1 := os.Stat(a)
	two, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, two)
}

// nameToType chooses between the name in PATH, the one the program was started with, and for what go run has built in a
// directory of its own, go run.
func nameToType(started, path string, inPath bool) string {
	switch {
	case inPath:
		return "evenkeel"
	case strings.Contains(filepath.ToSlash(path), "/go-build"):
		return "go run ./cmd/evenkeel"
	case strings.ContainsAny(started, "/\\"):
		return started
	}
	return "evenkeel"
}

// show updates the live view, or adds a line each second.
func (d *demoRun) show(p *phase, step int) {
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

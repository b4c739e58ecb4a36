package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim/report"
	"evenkeel/internal/sim/study"
	"evenkeel/internal/strategy"
)

// simulateFlags are those of simulate. Zero values stand for what is said in their help.
type simulateFlags struct {
	trace, format, workload string
	strategies              []string
	baseline, candidate     []string
	model                   string

	engines           []string
	deployments       int
	balancers         int
	scrape            time.Duration
	price             []float64 // dollars per million tokens: input, cached input, output
	rho, rate, speed  float64
	requests, copies  int
	burnIn            float64
	seed              uint64
	seeds             int
	goalTTFT, goalITL time.Duration
	asJSON            bool
	html              string
	explainDiff       int
}

func newSimulate() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate [flags]",
		Short: "Try strategies or configurations on traffic, without engines",
		Long: `Simulate plays traffic to modelled engines in virtual time, through the router, the exchanges and the strategies
that serve runs, and says what each strategy, or each of two configurations, makes of it. All of them see the same
requests at the same times, so that differences are of the same requests. Equal seeds give equal results.

The traffic is a recorded trace (--trace) or made up (--workload):
` + workloadList() + `
A trace is what serve records (docs/trace.md), or has the format of the Mooncake traces (JSON lines) or of the Azure
traces (CSV). Which it is shows in its first bytes.

With --strategy, names are compared on engines that are alike. With --baseline and --candidate, each a file or a
directory of files, two configurations are: endpoints, models, strategies, limits, deadlines, retries and prices are
theirs, and behind each deployment is an engine. Nothing is connected, and no key is needed.

How fast requests come: --rho says how busy the engines are on average, --rate how many requests come a second, --speed
how fast a trace is played (2 = in half the time).

Engines: ` + strings.Join(engine.Presets(), ", ") + `.
Strategies: ` + strings.Join(strategy.Names(), ", ") + `;
of other routers: ` + list(peerNames()) + `.
docs/simulate.md says what they are.`,
		Example: `  evenkeel simulate --workload multi-turn --strategy least_tokens,round_robin,p2c_ewma
  evenkeel simulate --trace internal/sim/testdata/mooncake_conversation_300.jsonl --strategy round_robin,least_tokens --explain-diff=2
  evenkeel simulate --workload tenant-flood --rate 3 --baseline examples/simulate/before.yaml --candidate examples/simulate/after.yaml --html report.html`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSimulate(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.trace, "trace", "", "`file` with recorded traffic")
	flags.StringVar(&f.format, "format", "", "`format` of the trace: recorded, mooncake or azure (default what its first bytes say)")
	flags.StringVar(&f.workload, "workload", "", "`name` of the traffic; with --trace: of what it is, for its goal")
	flags.StringSliceVar(&f.strategies, "strategy", nil, "`names` of the strategies to compare; the others are set against the first")
	flags.StringArrayVar(&f.baseline, "baseline", nil, "configuration `file` or directory as it is; may be given several times")
	flags.StringArrayVar(&f.candidate, "candidate", nil, "configuration `file` or directory as it might be; likewise")
	flags.StringVar(&f.model, "model", "", "`name` of the model that requests ask for which name none (default the only one)")
	flags.StringSliceVar(&f.engines, "engine", []string{defaultEngine}, "`presets` of the engines, in turn; endpoint=preset for one of a configuration")
	flags.IntVar(&f.deployments, "deployments", 0, "`number` of engines with --strategy (default 4); of addresses of each dns+ pool in configurations (default 2)")
	flags.IntVar(&f.balancers, "balancers", 1, "`number` of balancers that share the engines and know nothing of each other")
	flags.DurationVar(&f.scrape, "scrape", 0, "`time` between two readings of each engine's metrics, for policies that read them (default each policy's own)")
	flags.Float64SliceVar(&f.price, "price", nil, "`dollars` per million tokens with --strategy: input, cached input, output, such as 2.5,1.25,10")
	flags.Float64Var(&f.rho, "rho", 0, "`share` of the engines' time that the traffic takes, with a cache that forgets nothing (default for what is made up: 0.8 without any cache)")
	flags.Float64Var(&f.rate, "rate", 0, "`requests` per second")
	flags.Float64Var(&f.speed, "speed", 0, "`factor` by which a trace is played faster than it was recorded (default 1)")
	flags.IntVar(&f.requests, "requests", 0, "`number` of requests (default the whole trace, or 10000)")
	flags.IntVar(&f.copies, "copies", 0, "`number` of times that a trace is laid over itself, its prompts made different (default 1; with --rho one for each 8 engines)")
	flags.Float64Var(&f.burnIn, "burn-in", 0.2, "`share` of the time at the start that is not measured")
	flags.Uint64Var(&f.seed, "seed", 1, "`seed` of all that is random")
	flags.IntVar(&f.seeds, "seeds", 1, "`number` of seeds, from --seed on: more make intervals narrower")
	flags.DurationVar(&f.goalTTFT, "slo-ttft", 0, "longest `time` to the first token that counts for goodput (default the workload's, 2s for a trace)")
	flags.DurationVar(&f.goalITL, "slo-itl", 0, "longest mean `time` between tokens that counts for goodput (default the workload's, 100ms for a trace)")
	flags.BoolVar(&f.asJSON, "json", false, "write an array with an object for each strategy")
	flags.StringVar(&f.html, "html", "", "write a page with plots to this `file` too")
	flags.IntVar(&f.explainDiff, "explain-diff", 0, "show the first `requests` that went elsewhere under another strategy than under the first, and why")
	flags.Lookup("explain-diff").NoOptDefVal = "3"
	return cmd
}

// list joins names, in lines that are not too long.
func list(names []string) string {
	var b strings.Builder
	at := 0
	for i, name := range names {
		if i > 0 {
			b.WriteString(",")
			if at += len(name) + 2; at > helpWidth {
				b.WriteString("\n ")
				at = len(name) + 2
			}
			b.WriteString(" ")
		}
		b.WriteString(name)
	}
	return b.String()
}

// workloadList lists what traffic can be made up.
func workloadList() string {
	var b strings.Builder
	for _, w := range study.Workloads() {
		if w.File == "" {
			fmt.Fprintf(&b, "  %-14s %s\n", w.Name, w.Summary)
		}
	}
	return b.String()
}

// errNothingSimulated says that a simulation was ended before it had anything to tell.
var errNothingSimulated = errors.New("interrupted before anything was simulated")

func runSimulate(cmd *cobra.Command, f simulateFlags) error {
	x, err := f.experiment()
	if err != nil {
		return err
	}
	if f.html != "" { // found out before the work, not after it
		file, err := os.OpenFile(f.html, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return fmt.Errorf("--html: %w", err)
		}
		if err := file.Close(); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	bar := newBar(cmd.ErrOrStderr(), x.total())
	r, err := x.run(cmd.Context(), bar)
	bar.close()
	if err != nil {
		return err
	}
	if f.explainDiff > 0 && cmd.Context().Err() == nil {
		if r.Sections, err = x.explain(cmd.Context(), r, f.explainDiff); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	if f.html != "" {
		if err := writeFile(f.html, r.HTML); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	if f.asJSON {
		err = r.JSON(cmd.OutOrStdout())
		for _, s := range r.Sections {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s\n\n%s", s.Title, s.Text)
		}
	} else {
		err = r.Text(cmd.OutOrStdout())
	}
	if err == nil && cmd.Context().Err() != nil {
		return quietError{cmd.Context().Err()} // the report says so
	}
	return err
}

// writeFile writes a file anew.
func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	err = write(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// head is the experiment's report without what came of it.
func (x *experiment) head() *report.Report {
	return &report.Report{Title: x.title, Facts: x.facts, Priced: x.priced, Goal: x.goal}
}

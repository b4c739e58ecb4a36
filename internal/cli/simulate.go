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
	"github.com/spf13/pflag"

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
	asJSON, list      bool
	html              string
	fit               bool
	fitTo             []string
	explainDiff       int

	stdin io.Reader // of --trace -
}

func newSimulate() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate [flags]",
		Short: "Try strategies or configurations on traffic, without engines",
		Long: `Simulate plays traffic to modelled engines in virtual time, through the router, the exchanges and the strategies
that serve runs, and says what each strategy, or each of two configurations, makes of it. All of them see the same
requests at the same times, so that differences are of the same requests. Equal seeds give equal results.

The traffic is recorded (--trace) or made up (--workload). A trace is what serve records, or has the format of the
Mooncake traces (JSON lines) or of the Azure traces (CSV); which it is shows in its first bytes.

With --strategy, strategies are compared on engines that are alike; beside those of serve there are those of other
routers, whose names begin with peer:. With --baseline and --candidate, each a file or a directory of files, two
configurations are: endpoints, models, strategies, limits, deadlines, retries and prices are theirs, and behind each
deployment is an engine. Nothing is connected, and no key is needed.

How fast requests come: --rho says how busy the engines are on average, --rate how many requests come a second, --speed
how fast a trace is played. --list names the workloads, engines and strategies that there are; docs/simulate.md says
more of each.`,
		Example: `  evenkeel simulate --workload multi-turn --strategy least_tokens,round_robin,p2c_ewma
  evenkeel simulate --trace internal/sim/testdata/mooncake_conversation_300.jsonl --strategy round_robin,least_tokens --explain-diff=2
  evenkeel simulate --workload tenant-flood --rate 12 --engine vllm-8192,small=dynamo-mock --baseline examples/simulate/before.yaml --candidate examples/simulate/after.yaml --html report.html`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && cmd.Flags().Changed("explain-diff") {
				return usageError{fmt.Errorf("%s takes no arguments, got %q; a number of requests is written --explain-diff=3", cmd.CommandPath(), args)}
			}
			return noArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkRanges(cmd.Flags()); err != nil {
				return err
			}
			f.stdin, f.fit = cmd.InOrStdin(), f.fit || len(f.fitTo) > 0
			switch {
			case f.list:
				return listSimulated(cmd.OutOrStdout())
			case f.onlyFit():
				return printFit(cmd, f)
			}
			return runSimulate(cmd, f)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// register adds the flags.
func (f *simulateFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.trace, "trace", "", "`file` with recorded traffic, - for standard input")
	flags.StringVar(&f.format, "format", "", "`format` of the trace: recorded, mooncake or azure (default what its first bytes say)")
	flags.StringVar(&f.workload, "workload", "", "`name` of the traffic; with --trace: of what it is, for its goal")
	flags.StringSliceVar(&f.strategies, "strategy", nil, "`names` of the strategies to compare; the others are set against the first")
	flags.StringArrayVar(&f.baseline, "baseline", nil, "configuration `file` or directory as it is; may be given several times")
	flags.StringArrayVar(&f.candidate, "candidate", nil, "configuration `file` or directory as it might be; likewise")
	flags.StringVar(&f.model, "model", "", "`name` of the model that requests ask for which name none (default the only one)")
	flags.StringSliceVar(&f.engines, "engine", []string{defaultEngine}, "`presets` of the engines, in turn, or files that --fit-to has written; endpoint=preset for one of a configuration")
	flags.BoolVar(&f.fit, "fit", false, "take the engines' times from the recorded trace, and say how well they fit; with nothing to compare, do no more")
	flags.StringSliceVar(&f.fitTo, "fit-to", nil, "`file` for the fitted engine, for --engine here and of mock; endpoint=file for the one fitted to an endpoint that --engine names")
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
	flags.IntVar(&f.seeds, "seeds", 0, "`number` of seeds, from --seed on: more make intervals narrower (default 5, 1 for a trace that is played whole)")
	flags.DurationVar(&f.goalTTFT, "slo-ttft", 0, "longest `time` to the first token that counts for goodput (default the workload's, 2s for a trace)")
	flags.DurationVar(&f.goalITL, "slo-itl", 0, "longest mean `time` between tokens that counts for goodput (default the workload's, 100ms for a trace)")
	flags.BoolVar(&f.asJSON, "json", false, "write an array with an object for each strategy")
	flags.StringVar(&f.html, "html", "", "write a page with plots to this `file` too")
	flags.IntVar(&f.explainDiff, "explain-diff", 0, "show the first `requests` that went elsewhere under another strategy than under the first, and why")
	flags.Lookup("explain-diff").NoOptDefVal = "3"
	flags.Lookup("price").DefValue = ""
	flags.BoolVar(&f.list, "list", false, "list workloads, engines and strategies, and simulate nothing")
}

// listSimulated lists what can be simulated, by its flag.
func listSimulated(out io.Writer) error {
	var b strings.Builder
	rows := func(flag string, names []string, summary func(string) string) {
		wide := 0
		for _, name := range names {
			wide = max(wide, len(name))
		}
		b.WriteString(flag + "\n")
		for _, name := range names {
			b.WriteString(strings.TrimRight(fmt.Sprintf("  %-*s  %s", wide, name, summary(name)), " ") + "\n")
		}
	}
	summaries := map[string]string{}
	var workloads, peers, references []string
	for _, w := range study.Workloads() {
		workloads, summaries[w.Name] = append(workloads, w.Name), w.Summary
		if w.File != "" {
			summaries[w.Name] += " (--trace " + w.File + ")"
		}
	}
	for _, p := range study.Peers() {
		peers, summaries[p.Name] = append(peers, p.Name), p.Summary
	}
	for _, p := range study.References() {
		references, summaries[p.Name] = append(references, p.Name), p.Summary
	}
	summary := func(name string) string { return summaries[name] }
	rows("--workload", workloads, summary)
	for _, name := range engine.Presets() {
		c, err := engine.Preset(name)
		if err != nil {
			return err
		}
		summaries[name] = fmt.Sprintf("%s, a cache of %d tokens in blocks of %d", c.Scheduler, c.Blocks*c.BlockTokens, c.BlockTokens)
	}
	rows("--engine", engine.Presets(), summary)
	rows("--strategy", strategy.Names(), strategy.Summary)
	rows("--strategy, of other routers", peers, summary)
	rows("--strategy, what no router could do, for comparison", references, summary)
	_, err := io.WriteString(out, b.String())
	return err
}

// errNothingMeasured says that a simulation was ended before it had anything to tell.
var errNothingMeasured = errors.New("interrupted before anything was measured")

func runSimulate(cmd *cobra.Command, f simulateFlags) error {
	x, err := unlessOver(cmd.Context(), f.experiment)
	if err != nil {
		return err
	}
	if f.html != "" { // found out before the work, not after it
		if err := writable(f.html); err != nil {
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
		sections, err := x.explain(cmd.Context(), r, f.explainDiff)
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		r.Sections = append(r.Sections, sections...)
	}
	if f.html != "" {
		if err := writeFile(f.html, r.HTML); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	if f.asJSON {
		err = r.JSON(cmd.OutOrStdout())
		if r.Note != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), r.Note)
		}
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

// writable finds that a file cannot be written. It makes it, and leaves what it holds.
func writable(name string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
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
	return &report.Report{Title: x.title, Facts: x.facts, Priced: x.priced, Goal: x.goal, Sections: x.sections}
}

// Command simbench compares routing policies: it plays a matrix of rows (traffic, engines, how busy they are) under Evenkeel's
// strategies, under those of other routers and under yardsticks, all in the simulator of internal/sim, and writes
// docs/routing-quality.md with its plots.
//
// Results are kept in a file, a line for each row, policy and seed, under a key that is a hash of the row, of the trace it plays and
// of the code that made it. A run that was stopped goes on where it was; what code that changed has made is made anew. Other routers'
// results are kept while nothing but Evenkeel's own code changed, and they still do the same on rows that try it.
//
// The files: main.go (flags), matrix.go (the rows), variants.go (rows about faults and about what balancers know), policies.go (who takes
// part), traces.go, store.go (the file of results), version.go and conduct.go (which code made them), run.go (plays what is missing), length.go (how
// long rows are), digest.go (what the results say), judge.go and judgement.go (which
// targets Evenkeel's strategy meets), report.go (the document), plot.go (SVG).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"syscall"
)

// options are what the command line says.
type options struct {
	root    string // of the repository
	quick   bool
	traces  string // folder of the public traces, "" = the excerpts
	results string // file
	packed  string // file of results that are kept with the report, "" = none
	write   string // document, "" = none
	only    string // pattern of rows' names
	seeds   int    // 0 = as many as a row wants
	workers int
	list    bool // say which rows there are, and play none
	holdout bool // the rows that are kept for the end
	judge   bool // say what the results that there are say of Evenkeel's strategy, and play no others
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = simbench(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "simbench:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("simbench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.quick, "quick", false, "play few rows, shorter and with fewer seeds: ten minutes in the place of hours")
	flags.StringVar(&o.traces, "traces", "", "`folder` with the public traces under the names of their files (default: the excerpts in internal/sim/testdata)")
	flags.StringVar(&o.results, "results", filepath.Join(".cache", "simbench.jsonl"), "`file` that results are kept in")
	flags.StringVar(&o.packed, "packed", filepath.Join("docs", "routing-quality", "results.jsonl.gz"), "compressed `file` with results of earlier runs, which is brought up to date when a run ends or is stopped (not a quick one)")
	flags.StringVar(&o.write, "write", "", "`file` to write the report to, such as docs/routing-quality.md; plots go to a folder beside it")
	flags.StringVar(&o.only, "only", "*", "`pattern` of the names of rows to play, such as 'mooncake-*/fifo/*'")
	flags.IntVar(&o.seeds, "seeds", 0, "`number` of seeds (default: as many as each row wants)")
	flags.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "`number` of rows that are played at one time")
	flags.BoolVar(&o.list, "list", false, "list the rows")
	flags.BoolVar(&o.holdout, "holdout", false, "play the rows that nothing may be tuned by: other halves of the traces, other seeds, another engine")
	flags.BoolVar(&o.judge, "judge", false, "say which targets Evenkeel's strategy meets, from the results that there are, and write them with --write: nothing is played")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.root = "."
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q: there are only flags, see --help", flags.Arg(0))
	case o.seeds < 0:
		return o, fmt.Errorf("--seeds %d: at least 1 is needed", o.seeds)
	case o.workers < 1:
		return o, fmt.Errorf("--workers %d: at least 1 is needed", o.workers)
	}
	if _, err := path.Match(o.only, ""); err != nil {
		return o, fmt.Errorf("--only %q: %w", o.only, err)
	}
	return o, nil
}

// simbench plays what is missing and writes the report.
func simbench(ctx context.Context, o options, out io.Writer) error {
	specs, err := selected(o)
	if err != nil {
		return err
	}
	if o.list {
		for _, s := range specs {
			fmt.Fprintln(out, s.name())
		}
		return nil
	}
	t, err := readTraces(o)
	if err != nil {
		return err
	}
	s, err := openStore(o.results)
	if err != nil {
		return err
	}
	defer s.close()
	if o.quick {
		o.packed = ""
	}
	if err := s.unpack(o.packed); err != nil {
		return err
	}
	b := &bench{options: o, traces: t, store: s, out: out}
	if b.policies, err = policies(); err != nil {
		return err
	}
	if b.versions, err = b.version(ctx); err != nil {
		return err
	}
	if o.judge {
		if err := b.judgeStored(ctx, specs); err != nil {
			return err
		}
	}
	rows, err := b.play(ctx, specs)
	if !o.judge {
		err = errors.Join(err, s.pack(o.packed, b.versions))
	}
	if err != nil || o.write == "" {
		return err
	}
	return b.report(ctx, rows)
}

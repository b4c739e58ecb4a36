// Command bench measures what the balancer costs. It runs the same load directly against mock engines, through
// nginx, and through evenkeel, interleaved in one run on one machine, and compares the CPU time that the proxies used.
//
// The files: main.go (flags), run.go (rounds and cells), load.go (the load), conn.go (a cheap HTTP client), bed.go
// (the programs under test), nginx.go (nginx's configuration), process.go (a program, its CPU time and memory),
// report.go (medians, ratios, RESULTS.md).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what the command line says.
type options struct {
	rounds  int
	seconds float64 // length of the measured window of a cell
	streams int     // of the cell burst, for each target, over all rounds
	cells   []cell
	write   string // file for the report; "" = none
	profile string // folder for profiles of evenkeel, taken instead of comparing; "" = none
}

// window is the length of the measured window of a timed cell.
func (o options) window() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

// errLost makes the exit status: answers were lost or not what the engine said.
var errLost = errors.New("answers were lost or changed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err == nil && o.profile != "":
		err = profile(ctx, o, os.Stdout)
	case err == nil:
		err = bench(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var names, write string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 5, "`number` of rounds; each runs every cell on every target")
	flags.Float64Var(&o.seconds, "seconds", 5, "`length` of the measured window of the cells small and paced")
	flags.IntVar(&o.streams, "streams", 100_000, "`number` of streams of the cell burst, for each target, over all rounds")
	flags.StringVar(&names, "cells", strings.Join(cellNames(), ","), "`list` of cells to run")
	flags.StringVar(&o.profile, "profile", "", "`folder` for profiles of evenkeel, which are taken instead of the comparison")
	flags.StringVar(&write, "write", "", "`file` to write the report to, such as bench/RESULTS.md")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q: there are only flags, see --help", flags.Arg(0))
	}
	if o.rounds < 1 {
		return o, fmt.Errorf("--rounds %d: at least 1 is needed", o.rounds)
	}
	if !(o.seconds >= 0.1 && o.seconds <= 3600) {
		return o, fmt.Errorf("--seconds %v: use 0.1 to 3600", o.seconds)
	}
	if o.streams < o.rounds {
		return o, fmt.Errorf("--streams %d: at least one for each of %d rounds is needed", o.streams, o.rounds)
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(cells, func(c cell) bool { return c.name == strings.TrimSpace(name) })
		if i < 0 {
			return o, fmt.Errorf("--cells %q: there is no cell %q; there are %s", names, name, strings.Join(cellNames(), ", "))
		}
		o.cells = append(o.cells, cells[i])
	}
	o.write = write
	return o, nil
}

// bench runs everything and reports on w. Its error is errLost if an answer was.
func bench(ctx context.Context, o options, w io.Writer) (err error) {
	about, err := describe(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\nload average at the start %s\n", about.machine(), about.load)
	b, err := newBed(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	results, err := b.run(ctx, o, w)
	if err != nil {
		return err
	}
	report := render(about, o, results)
	fmt.Fprint(w, "\n", report)
	if o.write != "" {
		if err := os.WriteFile(o.write, []byte(report), 0o644); err != nil {
			return fmt.Errorf("--write: %w", err)
		}
	}
	if results.wrong() > 0 {
		return fmt.Errorf("%w: %d of them", errLost, results.wrong())
	}
	return b.settled()
}

// Command bench measures what the balancer costs. It runs the same load directly against mock engines, through
// nginx, and through evenkeel, interleaved in one run on one machine, and compares the CPU time that the proxies used.
//
// Everything that evenkeel does for each request is on, and each window proves it: the tokens that it metered are those
// that the engines counted, its log has a line for each exchange, and explain knows the answers.
//
// The files: main.go (flags), run.go (rounds and windows), cell.go (the kinds of load), load.go and schedule.go (clients),
// conn.go and h2.go (cheap HTTP clients), hold.go (memory of open streams), proof.go (that everything is on and right),
// bed.go (the programs under test), balancer.go (evenkeel), nginx.go, certs.go, process.go (a program, its CPU time and
// memory), report.go and statistics.go (RESULTS.md), profile.go (profiles instead of a comparison). Other balancers and
// gateways take part on demand: peers.go (which, and how they are run), peers_run.go (their start), peers_gist.go (answers
// that are encoded anew), peers_report.go (PEERS.md).
package main

import (
	"cmp"
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
	streams int     // of the cell burst that go through evenkeel once more after all rounds
	cells   []cell
	peers   []peer // that are measured too
	write   string // file for the report; "" = none
	profile string // folder for profiles of evenkeel, taken instead of comparing; "" = none
}

// window is the length of the measured window of a timed cell.
func (o options) window() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

// These make the exit status.
var (
	errLost     = errors.New("answers were lost or changed")
	errUnproven = errors.New("evenkeel's counters, log or explain are not right")
)

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

func parse(args []string, stderr io.Writer) (o options, err error) {
	var names, peers, write string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 5, "`number` of rounds; each runs every cell on every target")
	flags.Float64Var(&o.seconds, "seconds", 4, "`length` of the measured window of each target in each cell and round")
	flags.IntVar(&o.streams, "streams", 100_000, "`number` of streams of the cell burst that go through evenkeel after all rounds, to see that none is lost")
	flags.StringVar(&names, "cells", "", "`list` of cells to run (default all; with peers small,paced,paced-20,burst,prompt-64k)")
	flags.StringVar(&peers, "peers", "", "`list` of other balancers and gateways to measure too, or all; scripts/peers installs them")
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
	if o.streams < 0 {
		return o, fmt.Errorf("--streams %d: it cannot be negative", o.streams)
	}
	o.write = write
	if peers == "" {
		o.cells, err = parseCells(names, cells, "")
		return o, err
	}
	if o.profile != "" {
		return o, errors.New("--peers and --profile: profiles are taken of evenkeel alone")
	}
	o.streams = 0
	if o.peers, err = parsePeers(peers); err == nil {
		o.cells, err = parseCells(names, peerCells(), defaultPeerCells)
	}
	return o, err
}

// parseCells reads a list of names; an empty one is the one by default, and that is all if it is empty too.
func parseCells(list string, all []cell, byDefault string) (some []cell, err error) {
	if list = cmp.Or(list, byDefault); list == "" {
		return slices.Clone(all), nil
	}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(c cell) bool { return c.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("--cells %q: there is no cell %q; there are %s", list, name, strings.Join(cellNames(all), ", "))
		}
		some = append(some, all[i])
	}
	return some, nil
}

// bench runs everything and reports on w.
func bench(ctx context.Context, o options, w io.Writer) (err error) {
	about, err := describe(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\nload average at the start %s\n", about.machine(), about.load)
	b, err := newBed(ctx, o.cells, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if len(o.peers) > 0 {
		if err := b.startPeers(ctx, peersFolder, o.peers, modelsOf(o.cells), w); err != nil {
			return err
		}
	}
	results, err := b.run(ctx, o, w)
	if err != nil {
		return err
	}
	report := render(about, o, results)
	if len(o.peers) > 0 {
		report = renderPeers(about, o, results, b.guests)
	}
	fmt.Fprint(w, "\n", report)
	if o.write != "" {
		if err := os.WriteFile(o.write, []byte(report), 0o644); err != nil {
			return fmt.Errorf("--write: %w", err)
		}
	}
	if results.wrong() > 0 {
		return fmt.Errorf("%w: %d of them", errLost, results.wrong())
	}
	if all := results.unproven(); len(all) > 0 {
		return fmt.Errorf("%w:\n%s", errUnproven, strings.Join(all, "\n"))
	}
	return b.settled()
}

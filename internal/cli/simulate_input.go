package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"evenkeel/internal/sim"
	"evenkeel/internal/sim/study"
	"evenkeel/internal/trace"
)

// traceFormat reads one kind of trace.
type traceFormat struct {
	name string
	read func(r io.Reader, file string, scratch sim.Scratch) (*sim.Trace, error)
	// begins reports whether a file that begins so may be one.
	begins func(start []byte) bool
	spread bool // its times are rounded
}

func firstIs(c byte) func([]byte) bool {
	return func(start []byte) bool {
		text := strings.TrimLeft(strings.TrimPrefix(string(start), "\ufeff"), " \t\r\n")
		return text != "" && text[0] == c
	}
}

var traceFormats = map[string]traceFormat{
	"recorded": {"recorded", sim.ReadRecorded, trace.Begins, false},
	"mooncake": {"mooncake", sim.ReadMooncake, firstIs('{'), true},
	"azure":    {"azure", sim.ReadAzure, func([]byte) bool { return true }, false},
}

// detection is the order in which formats are tried.
var detection = []string{"recorded", "mooncake", "azure"}

// sniffed is how many bytes tell what a trace is.
const sniffed = 512

// readTrace reads the trace that --trace names.
func (f *simulateFlags) readTrace() (*sim.Trace, traceFormat, error) {
	if _, known := traceFormats[f.format]; !known && f.format != "" {
		return nil, traceFormat{}, usageError{fmt.Errorf("--format: there is no format %q; there are %s", f.format, strings.Join(slices.Sorted(maps.Keys(traceFormats)), ", "))}
	}
	if f.trace == "-" {
		return parseTrace(f.stdin, standardInput, f.format)
	}
	file, err := os.Open(f.trace)
	if err != nil {
		return nil, traceFormat{}, fmt.Errorf("--trace: %w", err)
	}
	defer file.Close()
	return parseTrace(file, f.trace, f.format)
}

// standardInput is the name of a trace that is no file.
const standardInput = "standard input"

// parseTrace reads a trace; format is its name, or empty: then its first bytes tell. Errors call it name.
func parseTrace(r io.Reader, name, format string) (*sim.Trace, traceFormat, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	kind, known := traceFormats[format]
	if !known {
		start, err := in.Peek(sniffed)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, kind, fmt.Errorf("%s: %w", name, err)
		}
		for _, format := range detection {
			if kind = traceFormats[format]; kind.begins(start) {
				break
			}
		}
	}
	t, err := kind.read(in, name, new(scratch))
	return t, kind, err
}

// Defaults for traces that are no workload with a name: those of people who wait.
const (
	defaultGoalTTFT = 2 * time.Second
	defaultGoalITL  = 100 * time.Millisecond
)

// traffic returns the workload that the flags ask for.
func (f *simulateFlags) traffic() (study.Workload, error) {
	var w study.Workload
	if f.trace == "" && f.workload == "" {
		return w, usageError{fmt.Errorf("say what comes in: --trace FILE, or --workload with one of %s", strings.Join(madeUp(), ", "))}
	}
	if f.workload != "" {
		var err error
		if w, err = study.Find(f.workload); err != nil {
			return w, usageError{fmt.Errorf("--workload: %w", err)}
		}
		switch {
		case w.File == "" && f.trace != "":
			return w, usageError{fmt.Errorf("--workload %s is made up and --trace is recorded; leave one of them out", w.Name)}
		case w.File != "" && f.trace == "":
			return w, usageError{fmt.Errorf("--workload %s is a public trace that is not part of this program; give its file (%s) by --trace", w.Name, w.File)}
		}
	}
	if f.trace != "" {
		t, kind, err := f.readTrace()
		if err != nil {
			return w, err
		}
		if w.Name != "" {
			if err := f.checkFormat(&w, kind.name); err != nil {
				return w, err
			}
		} else {
			name := filepath.Base(f.trace)
			if f.trace == "-" {
				name = standardInput
			}
			w = study.Workload{Name: name, Goal: sim.Goal{TTFT: defaultGoalTTFT, ITL: defaultGoalITL}, Spread: kind.spread}
		}
		w.Trace, w.Reuse = t, t.BlockTokens > 0
	}
	if f.goalTTFT > 0 {
		w.Goal.TTFT = f.goalTTFT
	}
	if f.goalITL > 0 {
		w.Goal.ITL = f.goalITL
	}
	return w, nil
}

// madeUp lists the workloads that need no trace.
func madeUp() []string {
	var names []string
	for _, w := range study.Workloads() {
		if w.File == "" {
			names = append(names, w.Name)
		}
	}
	return names
}

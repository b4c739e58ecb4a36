package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Row is one fault and what is promised of it.
type Row struct {
	ID      string // R1
	Fault   string // what is broken
	Promise string // what holds all the same
	Long    bool   // takes more than about ten seconds, or cannot be scaled down
	Alone   bool   // measures so closely that no other row may run beside it
	Needs   int    // with how many deployments of a model it makes sense in somebody's own configuration; 0 = in none

	run func(ctx context.Context, b *Bench) (Measured, error)
	off off
}

// Measured is what a row found, in a few words with a figure.
type Measured string

func measured(format string, args ...any) Measured { return Measured(fmt.Sprintf(format, args...)) }

// broken is a promise that was not kept. Any other error of a row means that it could not be run.
type broken struct{ error }

func brokenf(format string, args ...any) error { return broken{fmt.Errorf(format, args...)} }

// check returns an error of a broken promise unless it holds.
func check(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return brokenf(format, args...)
}

// off says how the defence behind a row is switched off. A row must fail then: else it proves nothing.
type off struct {
	defence  string   // in words
	settings settings // merged over the row's own
	change   string   // name of a change to the program's source, in testdata/undefended
}

// Rows returns the list in order.
func Rows() []Row {
	all := slices.Concat(connectRows, errorRows, streamRows, clientRows, healthRows, overloadRows, lifecycleRows, networkRows, forecastRows)
	slices.SortStableFunc(all, func(a, b Row) int { return cmp.Compare(a.number(), b.number()) })
	return all
}

func (r *Row) number() int {
	n, err := strconv.Atoi(strings.TrimPrefix(r.ID, "R"))
	if err != nil {
		panic("BUG: drill: a row is called " + r.ID)
	}
	return n
}

// Options say what to run.
type Options struct {
	// Program is the path of the evenkeel under test.
	Program string
	// Rows are IDs; empty means all that apply.
	Rows []string
	// Long runs the long rows too, and those that have a longer form in it.
	Long bool
	// Jobs is how many rows run at one time, at least 1. Rows that measure closely run alone all the same.
	Jobs int
	// Config is somebody's own configuration, as files, to run the rows against that apply to it; empty means the drill's
	// own fleets.
	Config []string
	// Done is called for each row that has ended, one after another. It may be nil.
	Done func(Result)

	// undefended switches the defence of each row off.
	undefended bool
}

// Result is what became of one row.
type Result struct {
	ID       string  `json:"id"`
	Fault    string  `json:"fault"`
	Promise  string  `json:"promise"`
	Measured string  `json:"measured"`
	Passed   bool    `json:"passed"`
	Problem  string  `json:"problem,omitempty"` // why it did not pass
	Seconds  float64 `json:"seconds"`

	kept bool // false: the promise or an invariant was broken, as opposed to a row that could not be run
}

// Select returns the rows that the options ask for, in order. An error names a row that is not there.
func Select(o Options) ([]Row, error) {
	all := Rows()
	if len(o.Rows) == 0 {
		return slices.DeleteFunc(all, func(r Row) bool { return r.Long && !o.Long || len(o.Config) > 0 && r.Needs == 0 }), nil
	}
	var chosen []Row
	for _, r := range all {
		if slices.ContainsFunc(o.Rows, func(id string) bool { return strings.EqualFold(id, r.ID) }) {
			chosen = append(chosen, r)
		}
	}
	for _, id := range o.Rows {
		i := slices.IndexFunc(chosen, func(r Row) bool { return strings.EqualFold(id, r.ID) })
		switch {
		case i < 0:
			return nil, fmt.Errorf("there is no row %q; evenkeel drill --list shows all", id)
		case len(o.Config) > 0 && chosen[i].Needs == 0:
			return nil, fmt.Errorf("row %s needs the drill's own fleet: it cannot be run with --config", chosen[i].ID)
		}
	}
	return chosen, nil
}

// Run runs rows and returns their results in the order of the list. Rows that ctx interrupts have not passed.
func Run(ctx context.Context, o Options) ([]Result, error) {
	rows, err := Select(o)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(o.Program); err != nil {
		return nil, fmt.Errorf("the program to test: %w", err)
	}
	var own *owned
	if len(o.Config) > 0 {
		if own, err = readOwned(o.Config); err != nil {
			return nil, err
		}
		rows = slices.DeleteFunc(rows, func(r Row) bool { return r.Needs > len(own.serving) })
	}
	results := make([]Result, len(rows))
	var reporting sync.Mutex
	do := func(i int) {
		r := runRow(ctx, &rows[i], o, own)
		reporting.Lock()
		defer reporting.Unlock()
		results[i] = r
		if o.Done != nil {
			o.Done(r)
		}
	}
	var crowd sync.WaitGroup
	seats := make(chan struct{}, max(1, o.Jobs))
	for i := range rows {
		if rows[i].Alone {
			continue
		}
		seats <- struct{}{}
		crowd.Go(func() {
			defer func() { <-seats }()
			do(i)
		})
	}
	crowd.Wait()
	for i := range rows {
		if rows[i].Alone {
			do(i)
		}
	}
	return results, nil
}

// rowLimit bounds a row that hangs; longRowLimit those that are long on purpose.
const (
	rowLimit     = 90 * time.Second
	longRowLimit = 45 * time.Minute
)

func runRow(ctx context.Context, r *Row, o Options, own *owned) (out Result) {
	began := time.Now()
	out = Result{ID: r.ID, Fault: r.Fault, Promise: r.Promise, kept: true}
	limit := rowLimit
	if o.Long || r.Long {
		limit = longRowLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b := &Bench{ctx: ctx, program: o.Program, long: o.Long, owned: own}
	if o.undefended {
		b.over, b.undefended = r.off.settings, r.off.change
	}
	found, err := perform(ctx, r, b)
	out.Measured = string(found)
	out.Seconds = time.Since(began).Seconds()
	out.Passed = err == nil
	if err != nil {
		out.Problem = err.Error()
		out.kept = !errors.As(err, new(broken))
	}
	return out
}

// perform runs a row and then checks the invariants. Whatever the row started has ended when it returns.
func perform(ctx context.Context, r *Row, b *Bench) (found Measured, err error) {
	defer b.close()
	defer func() {
		if err != nil && !errors.As(err, new(broken)) {
			if said := b.lastWords(); said != "" {
				err = fmt.Errorf("%w; the balancer said last:\n%s", err, said)
			}
		}
	}()
	defer func() {
		switch v := recover().(type) {
		case nil:
		case stopped:
			err = v.error
		default:
			err = fmt.Errorf("BUG: the row panicked: %v\n%s", v, debug.Stack())
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted, or not over in time: %w", errors.Join(ctx.Err(), err))
		}
	}()
	if found, err = r.run(ctx, b); err != nil {
		return found, err
	}
	return found, b.invariants()
}

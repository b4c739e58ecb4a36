package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/report"
	"evenkeel/internal/sim/study"
)

// experiment is a simulation that is ready to be run: one workload, and sides that are played to.
type experiment struct {
	title    string
	facts    []report.Fact
	sections []report.Section
	goal     sim.Goal
	priced   bool
	choices  bool // where requests went is kept, to explain differences
	prepared []*study.Prepared
	seeds    []uint64 // of each of prepared
	sides    []side
}

// side is one strategy or one configuration.
type side struct {
	name, origin string
	deployments  []string // IDs
	opaque       bool     // it is a yardstick: all engines are one deployment, and what it chooses is no decision of a router
	cost         func(*exchange.Attempt) float64
	// options makes the simulation of a seed, with engines that are idle and empty.
	options func(p *study.Prepared, seed uint64) (sim.Options, error)
}

// total is how many requests will be simulated.
func (x *experiment) total() int {
	n := 0
	for _, p := range x.prepared {
		n += p.Row.Requests
	}
	return n * len(x.sides)
}

// slices is how many parts a run is cut into. After each one all sides are equally far, so that what is there can be compared
// when the user has seen enough.
const runSlices = 200

// run runs all sides with all seeds. When ctx ends, the report is about what was simulated until then.
func (x *experiment) run(ctx context.Context, bar *bar) (*report.Report, error) {
	r := x.head()
	for i := range x.sides {
		r.Policies = append(r.Policies, report.Policy{Name: x.sides[i].name, Origin: x.sides[i].origin})
	}
	for k, p := range x.prepared {
		runs, done, left, err := x.seed(ctx, p, x.seeds[k], bar)
		if err != nil {
			return nil, err
		}
		if done < 1 || left > 0 {
			if k > 0 {
				r.Note = fmt.Sprintf("Interrupted: %d of %d seeds were simulated.", k, len(x.seeds))
				break // whole seeds alone can be put together
			}
			if runs == nil || runs[0].Result.TTFT.Count() == 0 {
				return nil, fmt.Errorf("%w: %.0f %% of the time were simulated, and --burn-in is %.0f %%", errNothingMeasured, 100*done, 100*float64(p.BurnIn)/float64(p.Last))
			}
			r.Note = fmt.Sprintf("Interrupted: the first %.0f %% of the time were simulated, and requests that still ran are not counted.", 100*done)
			r.Add(runs)
			break
		}
		r.Add(runs)
	}
	return r, nil
}

// seed runs all sides with one seed, and says which share of the time in which requests come was simulated, and how many of all
// sides' requests were not over when ctx ended after that.
func (x *experiment) seed(ctx context.Context, p *study.Prepared, seed uint64, bar *bar) (runs []report.Run, done float64, left int, err error) {
	fleets := make([]*sim.Fleet, len(x.sides))
	for i := range x.sides {
		w := report.NewWatch(report.WatchOptions{
			Deployments: x.sides[i].deployments, BurnIn: p.BurnIn, Goal: x.goal, Cost: x.sides[i].cost, Choices: x.choices,
		})
		if fleets[i], err = x.sides[i].fleet(p, seed, w.Record); err != nil {
			return nil, 0, 0, err
		}
		runs = append(runs, report.Run{Seed: seed, Watch: w, TraceShare: p.TraceShare()})
	}
	before := bar.done
	for k := range runSlices {
		if ctx.Err() != nil {
			break
		}
		until := time.Duration(float64(p.Last) * float64(k+1) / runSlices)
		together(len(fleets), func(i int) { fleets[i].Run(until) })
		done = float64(k+1) / runSlices
		bar.draw(before + int(done*float64(p.Row.Requests*len(fleets))))
	}
	if done == 1 {
		errs := make([]error, len(fleets))
		together(len(fleets), func(i int) {
			errs[i] = fleets[i].FinishUnless(p.Last, func() bool { return ctx.Err() != nil })
		})
		for i, err := range errs {
			left += fleets[i].Running()
			if err != nil {
				return nil, 0, 0, fmt.Errorf("%s, seed %d: %w", x.sides[i].name, seed, err)
			}
		}
	}
	for i := range fleets {
		runs[i].Result = fleets[i].Result()
	}
	return runs, done, left, nil
}

// unlessOver returns what do returns, or, once ctx ends, that nothing was measured. Then do goes on until the program ends.
func unlessOver[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() { // ends with do
		value, err := do()
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, errNothingMeasured
	}
}

// fleet makes a side's simulation; record is told of each request that is over.
func (s *side) fleet(p *study.Prepared, seed uint64, record func(*sim.Request, *exchange.Record)) (*sim.Fleet, error) {
	o, err := s.options(p, seed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	o.Record = record
	f, err := sim.New(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return f, nil
}

// together does n things, as many at a time as there are processors, and returns when all are done.
func together(n int, do func(i int)) {
	var group sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		free <- struct{}{}
		group.Go(func() { // ends with do
			defer func() { <-free }()
			do(i)
		})
	}
	group.Wait()
}

// bar shows on a terminal how far it is; elsewhere nothing.
type bar struct {
	screen      *screen
	done, total int
	begun, last time.Time
	now         func() time.Time
}

func newBar(out io.Writer, total int) *bar {
	b := &bar{screen: newScreen(out), total: total, now: time.Now}
	b.begun = b.now()
	return b
}

const (
	barWidth = 30
	barEvery = 100 * time.Millisecond
)

func (b *bar) draw(done int) {
	b.done = done
	now := b.now()
	if !b.screen.live || now.Sub(b.last) < barEvery {
		return
	}
	b.last = now
	b.screen.draw([]line{b.line(now)})
}

func (b *bar) line(now time.Time) line {
	share := min(1, float64(b.done)/float64(max(1, b.total)))
	full := int(share * barWidth)
	text := fmt.Sprintf(" %3.0f %%  %d of %d requests", 100*share, b.done, b.total)
	if spent := now.Sub(b.begun); share > 0 && spent > time.Second {
		left := time.Duration(float64(spent) * (1 - share) / share)
		text += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	return line{{strings.Repeat("█", full), cyan}, {strings.Repeat("░", barWidth-full), faint}, {text, ""}}
}

// close removes the bar.
func (b *bar) close() {
	if b.screen.live {
		b.screen.print()
		b.screen.close()
	}
}

// find returns the index of the side of a name.
func (x *experiment) find(name string) int {
	return slices.IndexFunc(x.sides, func(s side) bool { return s.name == name })
}

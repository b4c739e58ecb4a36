package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"
)

// sample is what one target did in one cell of one round.
type sample struct {
	units   int64
	seconds float64
	cpu     time.Duration // of the proxy; 0 for direct
	rss     int64         // of the proxy at the end of the window, bytes

	ttftMean, ttft99, gap99 time.Duration // of streams with a pace
	held                    int64         // memory for all streams that are held, bytes
}

// perUnit is the proxy's CPU time per unit in microseconds.
func (s sample) perUnit() float64 {
	return ratio(float64(s.cpu)/float64(time.Microsecond), float64(s.units))
}

// kilobytesEach is the proxy's memory for each stream that is held, in 1,000 bytes.
func (s sample) kilobytesEach() float64 { return ratio(float64(s.held)/1e3, float64(s.units)) }

func (s sample) perSecond() float64 { return ratio(float64(s.units), s.seconds) }

// results hold the samples of all rounds, by cell and target.
type results struct {
	samples map[string]map[target][]sample
	tallies map[string]map[target]*tally
	proofs  map[string]*proof           // of evenkeel, by cell
	many    *tally                      // of the streams through evenkeel that are not compared
	dropped map[string]map[target]error // why a peer takes no more part in a cell
}

// wrong is how many answers were lost or changed by our own targets; what peers do is theirs.
func (r results) wrong() int {
	n := r.many.wrong()
	for _, byTarget := range r.tallies {
		for _, t := range targets {
			n += byTarget[t].wrong()
		}
	}
	return n
}

// unproven lists where evenkeel's counters, log or explain were not right.
func (r results) unproven() []string {
	var all []string
	for cell, p := range r.proofs {
		for _, problem := range p.problems {
			all = append(all, cell+": "+problem)
		}
	}
	slices.Sort(all)
	return all
}

// run runs all rounds. The targets of a cell follow each other closely and in another order each round, so that what
// else happens on the machine falls on all of them alike.
func (b *bed) run(ctx context.Context, o options, w io.Writer) (results, error) {
	r := results{samples: map[string]map[target][]sample{}, tallies: map[string]map[target]*tally{}, proofs: map[string]*proof{}, many: &tally{}, dropped: map[string]map[target]error{}}
	for _, c := range o.cells {
		r.samples[c.name], r.tallies[c.name], r.proofs[c.name] = map[target][]sample{}, map[target]*tally{}, &proof{}
		r.dropped[c.name] = map[target]error{}
		for _, t := range b.targets {
			r.tallies[c.name][t] = &tally{}
		}
	}
	for round := range o.rounds {
		for _, c := range o.cells {
			if err := b.round(ctx, o, c, round, &r, w); err != nil {
				return r, fmt.Errorf("round %d, cell %s: %w", round+1, c.name, err)
			}
		}
	}
	return r, b.runMany(ctx, o, &r, w)
}

// round runs one cell on all targets.
func (b *bed) round(ctx context.Context, o options, c cell, round int, r *results, w io.Writer) error {
	if c.held > 0 {
		for _, t := range rotated(b.targets, round) {
			if t == direct {
				continue // there is no proxy
			}
			s, err := b.hold(ctx, c, t)
			if err != nil {
				return fmt.Errorf("%s: %w", t, err)
			}
			r.samples[c.name][t] = append(r.samples[c.name][t], s)
			fmt.Fprintf(w, "round %d  %-10s  %-8s  %9d streams  %7.2f KB each\n", round+1, c.name, t, s.units, s.kilobytesEach())
		}
		return nil
	}
	want, err := b.ask(ctx, c)
	if err != nil {
		return err
	}
	for _, t := range rotated(b.targets, round) {
		if r.dropped[c.name][t] != nil {
			continue
		}
		var s sample
		sum, err := b.load(ctx, c, t, want, r, func(l *load) (err error) {
			s, err = b.measure(ctx, o.window(), l, t)
			return err
		})
		if isPeer(t) && ctx.Err() == nil {
			if err == nil {
				err = rest(ctx, b.places[c.model][t].proxy)
			}
			if err != nil {
				r.dropped[c.name][t] = err
				fmt.Fprintf(w, "round %d  %-10s  %-13s  takes no more part: %v\n", round+1, c.name, t, err)
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		r.samples[c.name][t] = append(r.samples[c.name][t], s)
		r.tallies[c.name][t].add(sum)
		fmt.Fprintf(w, "round %d  %-10s  %-13s  %9.0f %ss/s  %7.2f µs each  %d wrong\n",
			round+1, c.name, t, s.perSecond(), c.unit, s.perUnit(), sum.wrong())
	}
	return nil
}

// load lets f run a load, and has evenkeel prove itself beside and afterwards.
func (b *bed) load(ctx context.Context, c cell, t target, want answers, r *results, f func(*load) error) (tally, error) {
	to := b.places[c.model][t]
	l := newLoad(c, to, want)
	defer l.close()
	if to.balancer == nil {
		return l.tallyAfter(f(l))
	}
	before, err := b.books(c.model)
	if err != nil {
		return tally{}, err
	}
	var p proof
	beside, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with beside
		defer close(done)
		to.balancer.witness(beside, l, &p)
	}()
	err = f(l)
	end()
	<-done
	if err == nil {
		err = b.prove(ctx, before, l, &p)
	}
	r.proofs[c.name].add(p)
	return l.tallyAfter(err)
}

// runMany sends as many streams through evenkeel as the options say, to see whether one is lost.
func (b *bed) runMany(ctx context.Context, o options, r *results, w io.Writer) error {
	i := slices.IndexFunc(o.cells, func(c cell) bool { return c.name == "burst" })
	if i < 0 || o.streams == 0 {
		return nil
	}
	c := o.cells[i]
	want, err := b.ask(ctx, c)
	if err != nil {
		return err
	}
	sum, err := b.load(ctx, c, evenkeel, want, r, func(l *load) error {
		var left atomic.Int64
		left.Store(int64(o.streams))
		l.run(ctx, 0, func() bool { return left.Add(-1) >= 0 })
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("%d streams of cell %s: %w", o.streams, c.name, err)
	}
	r.many = &sum
	fmt.Fprintf(w, "%d streams of cell %s: %d wrong\n", o.streams, c.name, sum.wrong())
	return nil
}

func rotated(targets []target, round int) []target {
	first := round % len(targets)
	return slices.Concat(targets[first:], targets[:first])
}

// measure measures a window of time out of the middle of a load.
func (b *bed) measure(ctx context.Context, window time.Duration, l *load, t target) (s sample, err error) {
	warm := min(max(window/4, 100*time.Millisecond), time.Second)
	if l.cell.paced { // its clients are many, and start one after another
		warm *= 2
	}
	var over atomic.Bool
	ended := make(chan struct{})
	go func() { // ends soon after over is set, or ctx ends
		defer close(ended)
		l.run(ctx, warm, func() bool { return !over.Load() })
	}()
	err = sleep(ctx, warm)
	if err == nil {
		l.record.Store(true)
		s, err = b.during(t, l, func() error { return sleep(ctx, window) })
		l.record.Store(false)
	}
	over.Store(true)
	<-ended
	if err != nil {
		return s, err
	}
	ttft, gaps := l.times()
	s.ttftMean, s.ttft99, s.gap99 = mean(ttft), quantile(ttft, 0.99), quantile(gaps, 0.99)
	return s, nil
}

// during returns what was received and used while f ran.
func (b *bed) during(t target, l *load, f func() error) (sample, error) {
	var s sample
	p := b.places[l.cell.model][t].proxy
	before, err := usageOf(p)
	if err != nil {
		return s, err
	}
	begun, units := time.Now(), l.units()
	if err := f(); err != nil {
		return s, err
	}
	s.seconds, s.units = time.Since(begun).Seconds(), l.units()-units
	after, err := usageOf(p)
	if err != nil {
		return s, err
	}
	s.cpu, s.rss = after.cpu-before.cpu, after.rss
	return s, nil
}

// usageOf is the usage of a proxy, if there is one.
func usageOf(p *process) (usage, error) {
	if p == nil {
		return usage{}, nil
	}
	return p.usage()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

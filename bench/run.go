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

	ttftMean, ttft99, gap99 time.Duration // of the cell paced
}

// perUnit is the proxy's CPU time per unit in microseconds.
func (s sample) perUnit() float64 {
	return ratio(float64(s.cpu)/float64(time.Microsecond), float64(s.units))
}

func (s sample) perSecond() float64 { return ratio(float64(s.units), s.seconds) }

// results hold the samples of all rounds, by cell and target.
type results struct {
	samples map[string]map[target][]sample
	tallies map[string]map[target]*tally
}

// wrong is how many answers were lost or changed.
func (r results) wrong() int {
	n := 0
	for _, byTarget := range r.tallies {
		for _, t := range byTarget {
			n += t.wrong()
		}
	}
	return n
}

// run runs all rounds. The targets of a cell follow each other closely and in another order each round, so that what
// else happens on the machine falls on all of them alike.
func (b *bed) run(ctx context.Context, o options, w io.Writer) (results, error) {
	r := results{samples: map[string]map[target][]sample{}, tallies: map[string]map[target]*tally{}}
	for _, c := range o.cells {
		r.samples[c.name], r.tallies[c.name] = map[target][]sample{}, map[target]*tally{}
		for _, t := range targets {
			r.tallies[c.name][t] = &tally{}
		}
	}
	for round := range o.rounds {
		for _, c := range o.cells {
			want, err := ask(c, b.places[c.model])
			if err != nil {
				return r, err
			}
			for _, t := range rotated(round) {
				l := newLoad(c, b.places[c.model].addresses(t), want)
				s, err := b.measure(ctx, o, l, t)
				l.close()
				if err != nil {
					return r, fmt.Errorf("round %d, cell %s, %s: %w", round+1, c.name, t, err)
				}
				sum := l.tally()
				r.samples[c.name][t] = append(r.samples[c.name][t], s)
				r.tallies[c.name][t].add(sum)
				fmt.Fprintf(w, "round %d  %-5s  %-8s  %9.0f %ss/s  %7.2f µs each  %d wrong\n",
					round+1, c.name, t, s.perSecond(), c.unit, s.perUnit(), sum.wrong())
			}
		}
	}
	return r, nil
}

func rotated(round int) []target {
	first := round % len(targets)
	return slices.Concat(targets[first:], targets[:first])
}

// measure runs one load.
func (b *bed) measure(ctx context.Context, o options, l *load, t target) (sample, error) {
	if l.cell.timed {
		return b.measureWindow(ctx, o, l, t)
	}
	return b.measureCount(ctx, o.streams/o.rounds, l, t)
}

// measureWindow measures a window of time out of the middle of a load.
func (b *bed) measureWindow(ctx context.Context, o options, l *load, t target) (s sample, err error) {
	warm := min(max(o.window()/4, 100*time.Millisecond), time.Second)
	var over atomic.Bool
	ended := make(chan struct{})
	go func() { // ends soon after over is set, or ctx ends
		defer close(ended)
		l.run(ctx, warm, func() bool { return !over.Load() })
	}()
	err = sleep(ctx, warm)
	if err == nil {
		l.record.Store(true)
		s, err = b.during(t, l, func() error { return sleep(ctx, o.window()) })
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

// measureCount measures a number of streams from the first to the last.
func (b *bed) measureCount(ctx context.Context, streams int, l *load, t target) (sample, error) {
	var left atomic.Int64
	next := func() bool { return left.Add(-1) >= 0 }
	left.Store(int64(2 * len(l.clients))) // warms up; as strict about what comes as the rest
	l.run(ctx, 0, next)
	left.Store(int64(streams))
	return b.during(t, l, func() error {
		l.run(ctx, 0, next)
		return ctx.Err()
	})
}

// during returns what was received and used while f ran.
func (b *bed) during(t target, l *load, f func() error) (sample, error) {
	var s sample
	before, err := b.usage(t)
	if err != nil {
		return s, err
	}
	begun, units := time.Now(), l.units()
	if err := f(); err != nil {
		return s, err
	}
	s.seconds, s.units = time.Since(begun).Seconds(), l.units()-units
	after, err := b.usage(t)
	if err != nil {
		return s, err
	}
	s.cpu, s.rss = after.cpu-before.cpu, after.rss
	return s, nil
}

func (b *bed) usage(t target) (usage, error) {
	if p := b.proxies[t]; p != nil {
		return p.usage()
	}
	return usage{}, nil
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

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"evenkeel/internal/sim/study"
	"evenkeel/internal/sim/yardstick"
)

// bench is a run of the command.
type bench struct {
	options  options
	traces   traces
	store    *store
	policies []policy
	versions map[kind]string
	out      io.Writer

	mu     sync.Mutex
	began  time.Time
	told   time.Time // when progress was last told
	rows   int       // that there are
	over   int       // that are finished
	work   float64   // of all rows, as guessed
	worked float64   // of that, what is over or was there before
}

// played is a row with its results.
type played struct {
	spec     spec
	load     load
	outcomes map[string][]*study.Outcome // by policy, one for each seed
	bounds   []*study.Outcome            // whose mean TTFT no policy can beat, one for each seed
	requests int
	seconds  float64
}

// play plays what is missing, and returns all rows whose traces are there; if it is only to judge, those that are finished.
func (b *bench) play(ctx context.Context, specs []spec) ([]*played, error) {
	b.began = time.Now()
	var todo []spec
	for _, s := range specs {
		if !b.traces.has(&s) {
			fmt.Fprintf(b.out, "left out, there is no excerpt of its trace: %s\n", s.name())
			continue
		}
		todo = append(todo, s)
		b.work += guess(&s)
	}
	b.rows = len(todo)
	order := make([]int, len(todo)) // the large ones first, so that no worker is left with one at the end
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return int(math.Copysign(1, guess(&todo[y])-guess(&todo[x])))
	})
	next := make(chan int)
	rows := make([]*played, len(todo))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var workers sync.WaitGroup
	for range b.options.workers {
		workers.Go(func() { // ends when next is closed
			runtime.LockOSThread() // for threadTime
			for i := range next {
				p, err := b.row(ctx, todo[i])
				if errors.Is(err, errNotPlayed) {
					continue
				}
				if err != nil {
					stop(fmt.Errorf("%s: %w", todo[i].name(), err))
					continue
				}
				rows[i] = p
			}
		})
	}
	for _, i := range order {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return slices.DeleteFunc(rows, func(p *played) bool { return p == nil }), nil
}

// errNotPlayed says that a result is not there and is not to be made.
var errNotPlayed = errors.New("not played")

// usualLength is how many requests rows have, in multiples of the least that they may have.
const usualLength = 3

// guess is what a row costs, in requests, before pilots tell how long it is.
func guess(s *spec) float64 {
	requests := s.Most
	if s.Least > 0 {
		requests = min(requests, usualLength*s.Least)
	}
	return float64(requests) * float64(s.N) / 8 * float64(s.seeds)
}

// contender: a policy whose mean or 99th percentile is within this factor of the best other router's, in the first seed, may be the best.
const contender = 1.1

// row plays one row.
func (b *bench) row(ctx context.Context, s spec) (*played, error) {
	base, err := s.row(b.traces)
	if err != nil {
		return nil, err
	}
	if base.Requests, err = b.length(ctx, &s, base); err != nil {
		return nil, err
	}
	work := guess(&s) / float64(s.seeds) // of each seed
	if base.Requests > 0 {
		work = float64(base.Requests)
	}
	b.knows(work*float64(s.seeds) - guess(&s))
	p := &played{spec: s, outcomes: map[string][]*study.Outcome{}}
	takes := b.policies
	if base.Faults != nil { // which yardsticks do not know of
		takes = slices.DeleteFunc(slices.Clone(takes), func(c policy) bool { return c.kind == reference })
	}
	for i := range s.seeds {
		if i == 1 {
			takes = contenders(p, takes)
		}
		seed := s.seed(i)
		prepare := sync.OnceValues(func() (*study.Prepared, error) { return study.Prepare(base, seed) })
		c := cell{Spec: &s, Requests: base.Requests, Seed: seed}
		x, err := b.result(ctx, c, floor, prepare)
		if err != nil {
			return nil, err
		}
		p.bounds = append(p.bounds, x.Outcome)
		for _, policy := range takes {
			r, err := b.result(ctx, c, policy, prepare)
			if err != nil {
				return nil, err
			}
			p.load = r.Load
			p.requests += r.Played
			p.seconds += r.Seconds
			p.outcomes[policy.Name] = append(p.outcomes[policy.Name], r.Outcome)
		}
		b.progress(&s, work, i+1 == s.seeds)
	}
	return p, nil
}

// contenders returns the policies that may be the best of a row, by what all of them made of its first seed, and the yardstick that was
// the best of its kind. What is compared with are other routers: however much Evenkeel is ahead, the best of them plays all seeds. Where
// backlog grows under each of them, goodput tells.
func contenders(p *played, all []policy) []policy {
	mean := func(c policy, m study.Metric) float64 { return study.Mean(p.outcomes[c.Name], m).Estimate }
	bestMean, bestP99, bestGoodput, yardstick, overload := math.Inf(1), math.Inf(1), 0.0, math.Inf(1), true
	for _, c := range all {
		switch c.kind {
		case reference:
			yardstick = min(yardstick, mean(c, study.MeanTTFT))
		case peer:
			bestMean, bestP99 = min(bestMean, mean(c, study.MeanTTFT)), min(bestP99, mean(c, study.P99TTFT))
			bestGoodput = max(bestGoodput, mean(c, study.Goodput))
			overload = overload && !steady(p.outcomes[c.Name])
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(c policy) bool {
		switch x := mean(c, study.MeanTTFT); {
		case c.Name == ownDefault, c.Name == judged():
			return false
		case c.kind == reference:
			return x > yardstick
		case overload:
			return mean(c, study.Goodput)*contender < bestGoodput
		default:
			return x > contender*bestMean && mean(c, study.P99TTFT) > contender*bestP99
		}
	})
}

// result returns that of a policy, from the store if it is there.
func (b *bench) result(ctx context.Context, c cell, policy policy, prepare func() (*study.Prepared, error)) (*result, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	c.Trace, c.Policy, c.Version = b.traces.of(c.Spec).digest, policy.Name, b.versions[policy.kind]
	k := c.key()
	if r := b.store.get(k); r != nil {
		return r, nil
	}
	if b.options.judge {
		return nil, errNotPlayed
	}
	p, err := prepare()
	if err != nil {
		return nil, err
	}
	began := threadTime()
	o, err := outcome(p, policy, c.Seed)
	if err != nil {
		return nil, err
	}
	r := &result{
		Key: k, Row: c.Spec.name(), Version: c.Version, Outcome: o, Played: p.Row.Requests, Seconds: (threadTime() - began).Seconds(),
		Load: load{Rho: p.Rho, NoCache: p.NoRho, Hits: p.Work.HitShare, Rate: p.Rate, Span: p.Last.Seconds()},
	}
	return r, b.store.put(r)
}

// outcome plays a row under a policy, or finds its bound.
func outcome(p *study.Prepared, policy policy, seed uint64) (*study.Outcome, error) {
	if policy.kind == bound {
		return lowerBound(p, seed)
	}
	o, err := p.Run(policy.Policy, seed, study.Hooks{})
	if err == nil {
		o.Result = nil // it is large
	}
	return o, err
}

// floor stands for what no policy can do better.
var floor = policy{study.Policy{Name: "lower bound"}, bound}

// lowerBound returns it as the mean time to the first token.
func lowerBound(p *study.Prepared, seed uint64) (*study.Outcome, error) {
	all, err := p.Requests(seed)
	if err != nil {
		return nil, err
	}
	x, err := yardstick.LowerBound(all, p.Row.Engines, yardstick.Options{BurnIn: p.BurnIn})
	if err != nil {
		return nil, err
	}
	return &study.Outcome{Policy: floor.Name, Seed: seed, Requests: x.Requests, TTFTMean: x.TTFT()}, nil
}

// knows takes by how much a row costs more than was guessed.
func (b *bench) knows(more float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.work += more
}

// progress says how far the run is and how long the rest will take if it is like what was played so far: when a row is over, and of
// long rows every minute.
func (b *bench) progress(s *spec, work float64, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.worked += work
	if over {
		b.over++
	} else if time.Since(b.told) < time.Minute {
		return
	}
	b.told = time.Now()
	left := "?"
	if spent := time.Since(b.began); b.worked > 0 && spent > 0 {
		left = time.Duration(float64(spent) * (b.work - b.worked) / b.worked).Round(time.Second).String()
	}
	fmt.Fprintf(b.out, "%3d of %d rows, %s to go: %s\n", b.over, b.rows, left, s.name())
}

package yardstick

import (
	"errors"
	"fmt"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

// Options say what is measured.
type Options struct {
	BurnIn time.Duration // requests that come before are not measured, as in sim.Options
	Goal   sim.Goal      // of Reference
}

// Bound is what no policy can do better, in the mean over the measured requests. Times are in seconds. The package comment says
// why.
type Bound struct {
	Requests int // measured
	Refused  int // of all, those that no engine can hold: no policy gets them answered, and they are not measured

	Alone  float64 // TTFT: each request alone on the fastest idle engine, at the longest prefix that came before it
	Pooled float64 // TTFT: the new parts of all prompts, shortest remaining work first on one engine as fast as all
	Priced float64 // TTFT: those on engines of which there are so many, each request at least as long as alone
	Work   float64 // engine time for prompts, of the fastest engine

	// Evicting is Alone, and what must be computed again because the caches of all engines together cannot keep it. It holds where
	// no sequence was preempted, each request was given to one engine and once, and those of the burn-in did not wait for longer
	// than the measured ones.
	Evicting float64
}

// TTFT returns the largest of the bounds that hold for every policy.
func (b *Bound) TTFT() float64 { return max(b.Alone, b.Pooled, b.Priced) }

// rounding is the part of a time to which floating point and steps of whole nanoseconds can be trusted.
const rounding = 1e-6

// Beaten reports whether a measured mean TTFT in seconds is below what is possible: then the measurement is wrong, or the bound.
func (b *Bound) Beaten(ttft float64) bool { return ttft < b.TTFT()*(1-rounding) }

// LowerBound returns what no policy can do better, for requests in order of arrival before these engines. It takes time in proportion
// to the blocks of all prompts.
func LowerBound(requests []sim.Request, engines []engine.Config, o Options) (Bound, error) {
	f, err := newFleet(engines)
	if err != nil {
		return Bound{}, err
	}
	held, err := f.held(requests)
	if err != nil {
		return Bound{}, err
	}
	b := Bound{Refused: len(requests) - len(held)}
	p := newPrefixes(held)
	w := walk{fleet: f, prefixes: p, requests: held}
	m := newMemory(engines, held, o.BurnIn)
	var tasks []task
	var works float64
	for i := range held {
		measured := held[i].At >= o.BurnIn
		m.request(f, p, int32(i), measured)
		if !measured {
			continue
		}
		b.Requests++
		w.request(int32(i))
		b.Alone += w.bound
		b.Evicting += w.own
		works += w.work
		tasks = append(tasks, task{held[i].At.Seconds(), w.work, w.bound})
	}
	if b.Requests == 0 {
		return Bound{}, fmt.Errorf("yardstick: none of %d requests came after the burn-in of %v and can be held by an engine", len(requests), o.BurnIn)
	}
	n := float64(b.Requests)
	b.Alone /= n
	b.Priced = newMarket(tasks, f.speed).bound() / n
	b.Evicting = max(b.Alone, m.mean(b.Evicting/n, n))
	b.Pooled, b.Work = pooled(tasks, f.speed)/n, works/n
	return b, nil
}

// fleet is what engines can do.
type fleet struct {
	kinds []pace // each once
	least work
	speed float64
}

func newFleet(engines []engine.Config) (*fleet, error) {
	if len(engines) == 0 {
		return nil, errors.New("yardstick: there is no engine: give one at least")
	}
	f := &fleet{}
	var paces []pace
	known := map[pace]bool{}
	for i := range engines {
		c := &engines[i]
		if _, err := engine.New(*c); err != nil {
			return nil, fmt.Errorf("yardstick: engine %d: %w", i, err)
		}
		if c.WarmUpSteps > 0 && c.WarmUpFactor < 1 {
			return nil, fmt.Errorf("yardstick: engine %d has a WarmUpFactor of %v: a bound needs one of at least 1, at which a cold engine is no faster than a warm one", i, c.WarmUpFactor)
		}
		p := paceOf(c)
		paces = append(paces, p)
		if !known[p] {
			known[p] = true
			f.kinds = append(f.kinds, p)
		}
	}
	f.least, f.speed = least(paces)
	return f, nil
}

// held returns the requests that some engine can hold.
func (f *fleet) held(requests []sim.Request) ([]sim.Request, error) {
	refused := 0
	for i := range requests {
		r := &requests[i]
		switch {
		case i > 0 && r.At < requests[i-1].At:
			return nil, fmt.Errorf("yardstick: request %d comes at %v, before the one in front of it: they must be in order of arrival", i, r.At)
		case r.PromptTokens < 1 || r.OutputTokens < 1:
			return nil, fmt.Errorf("yardstick: request %d has %d prompt and %d output tokens: it needs at least one of each", i, r.PromptTokens, r.OutputTokens)
		case len(r.Prompt)*r.BlockTokens > r.PromptTokens || len(r.Prompt) > 0 && r.BlockTokens < 1:
			return nil, fmt.Errorf("yardstick: request %d has hashes of %d blocks of %d tokens for %d prompt tokens", i, len(r.Prompt), r.BlockTokens, r.PromptTokens)
		}
		if !f.holds(r) {
			refused++
		}
	}
	if refused == 0 {
		return requests, nil
	}
	held := make([]sim.Request, 0, len(requests)-refused)
	for i := range requests {
		if f.holds(&requests[i]) {
			held = append(held, requests[i])
		}
	}
	return held, nil
}

func (f *fleet) holds(r *sim.Request) bool {
	for k := range f.kinds {
		if f.kinds[k].holds(r) {
			return true
		}
	}
	return false
}

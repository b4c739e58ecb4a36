package fit

import (
	"cmp"
	"slices"
	"time"

	"evenkeel/internal/engine"
)

// replay serves the observed requests again with an engine's model.
type replay struct {
	requests []Observation // by deployment, then time
	groups   [][]int       // the requests of each deployment in order, as indices
	first    []time.Duration
	last     []time.Duration // when the model gave each request its first and its last token
}

func newReplay(observations []Observation, most int) *replay {
	sorted := slices.Clone(observations)
	slices.SortStableFunc(sorted, func(a, b Observation) int { return cmp.Compare(a.At, b.At) })
	sorted = sorted[:min(len(sorted), most)]
	slices.SortStableFunc(sorted, func(a, b Observation) int { return cmp.Compare(a.Deployment, b.Deployment) })
	r := &replay{requests: sorted, first: make([]time.Duration, len(sorted)), last: make([]time.Duration, len(sorted))}
	for i := range sorted {
		if i == 0 || sorted[i].Deployment != sorted[i-1].Deployment {
			r.groups = append(r.groups, nil)
		}
		g := &r.groups[len(r.groups)-1]
		*g = append(*g, i)
	}
	return r
}

// anyRoom is how many tokens the caches of replays hold: as many as an engine may. What was cached is known, and memory is
// never short.
const anyRoom = 1 << 30

// roomy returns the engine that replays use in c's place.
func roomy(c engine.Config) engine.Config {
	c.Blocks = anyRoom / max(1, c.BlockTokens)
	c.Watermark, c.Load, c.WarmUpSteps = 0, 0, 0
	return c
}

// run serves all requests with engines like c.
func (r *replay) run(c engine.Config) error {
	for _, group := range r.groups {
		e, err := engine.New(c)
		if err != nil {
			return err
		}
		for _, i := range group {
			q := &r.requests[i]
			r.step(e, q.At)
			if err := e.Submit(q.At, engine.Sequence{
				ID: uint64(i), PromptTokens: q.PromptTokens, OutputTokens: max(1, q.OutputTokens), Found: q.CachedTokens,
			}); err != nil {
				return err
			}
		}
		r.step(e, 1<<62)
	}
	return nil
}

// step lets e work until a time. What ends at that time is for the next call, as a request that comes then still finds the
// engine busy.
func (r *replay) step(e *engine.Engine, until time.Duration) {
	for at, ok := e.Next(); ok && at < until; at, ok = e.Next() {
		for _, ev := range e.Step(at) {
			switch ev.Kind {
			case engine.FirstToken:
				r.first[ev.ID] = ev.At
			case engine.Done:
				r.last[ev.ID] = ev.At
			}
		}
	}
}

// predicted returns what the last run says of t, in seconds.
func (r *replay) predicted(t target) float64 {
	q := &r.requests[t.request]
	switch t.kind {
	case ttft:
		return (r.first[t.request] - q.At).Seconds()
	case itl:
		return (r.last[t.request] - r.first[t.request]).Seconds() / float64(q.OutputTokens-1)
	}
	return (r.last[t.request] - q.At).Seconds()
}

package cli

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// tally is what the clients saw under one strategy.
type tally struct {
	strategy string
	span     time.Duration // from the first request to the last answer

	asked    int
	complete int
	toldCut  int            // by the kill, after content
	failed   map[string]int // by reason
	dropped  int            // the demo was interrupted
	moved    int            // requests that an engine could not serve and another one did
	cuts     map[string]int // engines that could not be chosen, by reason, over all answers
	tokens   int

	ttft    samples
	engines map[string]*engineTally
}

// engineTally is the part of one engine.
type engineTally struct {
	ttft         samples
	picks        uint64
	longestQueue int // waiting at the engine for a slot
}

func newTally(strategy string, engines []string) *tally {
	t := &tally{strategy: strategy, failed: map[string]int{}, cuts: map[string]int{}, engines: map[string]*engineTally{}}
	for _, name := range engines {
		t.engines[name] = &engineTally{}
	}
	return t
}

// first takes the first content of an answer.
func (t *tally) first(engine string, ttft time.Duration) {
	t.ttft = append(t.ttft, ttft)
	if e := t.engines[engine]; e != nil {
		e.ttft = append(e.ttft, ttft)
	}
}

// outage is a time in which an engine was killed. Its connections are reset between killed and dead.
type outage struct {
	engine       string
	killed, dead time.Time
}

// explains reports whether an answer may have been cut by the outage.
func (o *outage) explains(a *answer) bool {
	return o.engine == a.engine && !o.killed.IsZero() && a.began.Before(o.dead) && a.ended.After(o.killed)
}

// add takes an answer that has ended.
func (t *tally) add(a *answer, o *outage) {
	t.tokens += a.tokens
	for reason, n := range a.cuts {
		t.cuts[reason] += n
	}
	if a.attempts > 1 {
		t.moved++
	}
	switch {
	case a.verdict == answerComplete:
		t.complete++
	case a.verdict == answerToldCut && o.explains(a):
		t.toldCut++
	case a.verdict == answerToldCut:
		t.failed["cut although its engine was not killed"]++
	case a.verdict == answerDropped:
		t.dropped++
	default:
		t.failed[a.reason]++
	}
}

func (t *tally) failures() (n int) {
	for _, count := range t.failed {
		n += count
	}
	return n
}

func (t *tally) running() int { return t.asked - t.complete - t.toldCut - t.dropped - t.failures() }

// share is the part of all picks that went to an engine, from 0 to 1.
func (t *tally) share(engine string) float64 {
	var all uint64
	for _, e := range t.engines {
		all += e.picks
	}
	if all == 0 {
		return 0
	}
	return float64(t.engines[engine].picks) / float64(all)
}

// tokensPerSecond counts what clients received.
func (t *tally) tokensPerSecond() float64 {
	if t.span <= 0 {
		return 0
	}
	return float64(t.tokens) / t.span.Seconds()
}

// samples are measured times.
type samples []time.Duration

func (s samples) mean() time.Duration {
	if len(s) == 0 {
		return 0
	}
	var sum time.Duration
	for _, d := range s {
		sum += d
	}
	return sum / time.Duration(len(s))
}

// quantile is the smallest sample that at least the share q of all does not exceed (nearest rank); 0 if there is none.
func (s samples) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// count is how often something was seen.
type count struct {
	what string
	n    int
}

// counts sorts by number, the largest first.
func counts(m map[string]int) []count {
	var all []count
	for _, what := range slices.Sorted(maps.Keys(m)) {
		all = append(all, count{what, m[what]})
	}
	slices.SortStableFunc(all, func(a, b count) int { return cmp.Compare(b.n, a.n) })
	return all
}

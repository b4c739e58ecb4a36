// Package fit finds what an engine's steps cost from requests that it has served: the [engine.Timing] with which package
// engine would have answered them at the same times. It is pure: equal observations and options give equal results.
//
// It begins with a regression: what a request took is a sum of its own work and of what is known to have run beside it. From
// there it lets the engine's model serve all requests again, as they came, and moves the costs to where its times are nearest to
// the observed ones, by the method of Nelder and Mead. Both count ratios, and stalls for little (Huber). What a part of the
// requests took is held out: how well the result fits is said of those alone.
//
// What network, tokenizer and sockets take is not told apart from the engine's own time: it counts as Prefill. Only what is
// observed loads the engines, and the capacity of the KV cache is not tried: requests that waited for memory, or for others
// that nobody recorded, count as outliers.
package fit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"evenkeel/internal/engine"
)

// Observation is what was seen of one request at one engine.
type Observation struct {
	Deployment   string        // requests of one deployment share an engine; all engines are alike
	At           time.Duration // when the engine was given it, since any moment that is the same for all
	PromptTokens int
	CachedTokens int           // of the prompt, found in the cache
	OutputTokens int           // 0 = it broke off before any came: it loads the engine with its prompt
	TTFT         time.Duration // from At to the first token, 0 = not known
	Total        time.Duration // from At to the last token, 0 = not known
}

// Options say what is tried, and on how much.
type Options struct {
	// Engines are the engines to try, at least one: scheduler and sizes are theirs, Timing is found. The best is taken.
	Engines []engine.Config
	// HoldOut is the share of the requests that the fit does not see the times of, from 0 to below 1; they still load the
	// engines. 0 = half, and a negative one = none: then the figures are of the requests that were fitted.
	HoldOut float64
	// Most bounds the observations that are used, the first of all; 0 = 10,000.
	Most int
	// Seed decides which requests are held out.
	Seed uint64
}

// Result is the engine that fits best, and how well.
type Result struct {
	Engine     engine.Config // the one of Options.Engines that fits best, with its Timing
	Tried      []Trial       // one for each of Options.Engines, in their order
	Parameters []Parameter   // of the Timing, in the order of its fields

	// TTFT and ITL say how near the model comes to the times of streamed answers, Total to those of other answers.
	TTFT, ITL, Total Quality
	HeldOut          bool // they are of requests that the fit has not seen

	Deployments []Pace
	Seen        Seen
}

// Trial is one engine that was tried.
type Trial struct {
	Engine engine.Config
	Error  float64 // mean of |ln(predicted/observed)| of the fitted times, each counted as 1 at most
}

// Parameter is one cost.
type Parameter struct {
	Name  string
	Value float64 // seconds
	Error float64 // standard error of Value, in seconds; of one that is not identified, about what the data leave open
	// Missing says why the observations do not tell the cost; then Value is 0, or for Base and Token a guess. "" = they do.
	Missing string
}

// Quality is how near predictions come.
type Quality struct {
	Requests  int     // that the figures rest on; if it is 0, so are they
	Median    float64 // of |predicted/observed − 1|
	P90       float64 // likewise
	Bias      float64 // mean predicted over mean observed
	Explained float64 // 1 − Σ(predicted − observed)²/Σ(observed − mean)²: 1 at best, 0 or less = no better than the mean
}

// Pace is one deployment beside the engine that stands for all.
type Pace struct {
	Deployment string
	Requests   int
	Slower     float64 // median of observed over predicted times: 2 = it takes twice as long; 0 = no times
}

// Seen is the range that the fit rests on. What lies outside of it is extrapolated.
type Seen struct {
	Requests   int // observations that were used
	Alone      int // requests with a known TTFT that had the engine to themselves until then, or nearly
	Computed   int // most prompt tokens of a request that were not cached
	Context    int // most tokens of prompt and output
	Concurrent int // most requests at one deployment at a time

	// Cached is the share of prompt tokens that were cached. If it is 0 and the engines cache, they did not say so.
	Cached float64
}

const (
	defaultMost    = 10_000
	defaultHoldOut = 0.5
	fewest         = 20      // times of each half: six costs cannot be told from less
	mostTokens     = 1 << 22 // of a prompt or an answer
	mostTime       = 10 * 365 * 24 * time.Hour
)

// Calibrate fits. An error says which observation is wrong, or what is missing.
func Calibrate(observations []Observation, o Options) (*Result, error) {
	if len(o.Engines) == 0 {
		return nil, errors.New("fit: no engine to try: give one with the scheduler and the sizes of yours, such as a preset")
	}
	if !(o.HoldOut < 1) {
		return nil, fmt.Errorf("fit: HoldOut is %v: a share of the requests, below 1", o.HoldOut)
	}
	if o.HoldOut == 0 {
		o.HoldOut = defaultHoldOut
	}
	if o.Most <= 0 {
		o.Most = defaultMost
	}
	for i := range observations {
		if err := observations[i].check(); err != nil {
			return nil, fmt.Errorf("fit: observation %d: %w", i, err)
		}
	}
	r := newReplay(observations, o.Most)
	targets := r.targets(o)
	var best *search
	result := &Result{HeldOut: o.HoldOut > 0}
	for i, c := range o.Engines {
		s, err := newSearch(r, targets, c)
		if err != nil {
			return nil, fmt.Errorf("fit: engine %d: %w", i, err)
		}
		s.run()
		result.Tried = append(result.Tried, Trial{Engine: s.fitted(), Error: s.error()})
		if best == nil || s.error() < best.error() {
			best = s
		}
	}
	best.describe(result)
	return result, nil
}

func (o *Observation) check() error {
	for _, f := range []struct {
		name        string
		value, from int
	}{{"PromptTokens", o.PromptTokens, 1}, {"CachedTokens", o.CachedTokens, 0}, {"OutputTokens", o.OutputTokens, 0}} {
		if f.value < f.from || f.value > mostTokens {
			return fmt.Errorf("%s is %d, expected %d to %d", f.name, f.value, f.from, mostTokens)
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"At", o.At}, {"TTFT", o.TTFT}, {"Total", o.Total}} {
		if f.value < 0 || f.value > mostTime {
			return fmt.Errorf("%s is %v, expected 0 to %v", f.name, f.value, mostTime)
		}
	}
	if o.Total > 0 && o.TTFT > o.Total {
		return fmt.Errorf("TTFT %v is above Total %v: the first token does not come after the last", o.TTFT, o.Total)
	}
	return nil
}

// kind is what of a request was timed.
type kind uint8

const (
	ttft  kind = iota
	itl        // mean time between tokens
	total      // of an answer whose first token was not seen
)

// target is one time that the model is to meet.
type target struct {
	kind
	request int // index in replay.requests
	seconds float64
	held    bool
}

// targets lists the times that are known, and holds a part of the requests out.
func (r *replay) targets(o Options) []target {
	coin := rand.New(rand.NewPCG(o.Seed, 0x666974))
	var all []target
	for i := range r.requests {
		q := &r.requests[i]
		held := coin.Float64() < o.HoldOut
		add := func(k kind, d time.Duration) { all = append(all, target{k, i, d.Seconds(), held}) }
		switch {
		case q.TTFT > 0:
			add(ttft, q.TTFT)
			if q.OutputTokens > 1 && q.Total > q.TTFT {
				add(itl, (q.Total-q.TTFT)/time.Duration(q.OutputTokens-1))
			}
		case q.Total > 0 && q.OutputTokens > 0:
			add(total, q.Total)
		}
	}
	return slices.DeleteFunc(all, func(t target) bool { return t.seconds <= 0 })
}

// enough says whether costs can be told from so few times.
func enough(targets []target, held bool) error {
	n := 0
	for _, t := range targets {
		if t.held == held && t.kind != itl {
			n++
		}
	}
	if n < fewest {
		return fmt.Errorf("%d requests to fit have a TTFT, or a Total without one, and it takes %d: record more traffic, or hold less out", n, fewest)
	}
	return nil
}

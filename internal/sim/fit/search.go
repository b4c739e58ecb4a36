package fit

import (
	"math"
	"slices"

	"evenkeel/internal/engine"
)

// The costs, by their place in a vector.
const (
	base = iota
	prefill
	token
	pair
	sequence
	context
)

var parameters = [len(vector{})]struct {
	name string
	of   func(*engine.Timing) *float64
}{
	base:     {"Base", func(t *engine.Timing) *float64 { return &t.Base }},
	prefill:  {"Prefill", func(t *engine.Timing) *float64 { return &t.Prefill }},
	token:    {"Token", func(t *engine.Timing) *float64 { return &t.Token }},
	pair:     {"Pair", func(t *engine.Timing) *float64 { return &t.Pair }},
	sequence: {"Sequence", func(t *engine.Timing) *float64 { return &t.Sequence }},
	context:  {"Context", func(t *engine.Timing) *float64 { return &t.Context }},
}

// dispensable lists the costs that are taken to be nothing if the data do not tell them, in the order in which they go: what two of
// them could explain is given to the one that stays.
var dispensable = []int{pair, context, sequence, prefill}

// vague is the standard error, as a share of a cost, above which it is not identified.
const vague = 0.5

// search looks for the costs of one engine.
type search struct {
	*replay
	given   engine.Config // as the caller has it
	engine  engine.Config // as replays have it
	targets []target
	mask    [len(vector{})]bool // the costs that are looked for
	scale   vector              // what each cost would be if it explained all by itself

	normal normal // of the regression
	costs  vector
	errors vector // standard errors
	open   vector // of those that were dropped, their standard errors before that
	misses []float64
}

func newSearch(r *replay, targets []target, c engine.Config) (*search, error) {
	s := &search{replay: r, given: c, engine: roomy(c), targets: targets}
	if err := enough(targets, false); err != nil {
		return nil, err
	}
	s.given.Timing = engine.Timing{Base: 1} // what is given does not matter, and may be nothing
	if _, err := engine.New(s.given); err != nil {
		return nil, err
	}
	s.start()
	return s, r.run(s.with(s.costs)) // lengths that the engine refuses do not depend on costs
}

// with returns the engine of replays at these costs. A step takes a nanosecond at least: time must go on.
func (s *search) with(costs vector) engine.Config {
	c := s.engine
	c.Timing = timing(costs)
	c.Timing.Base = max(c.Timing.Base, 1e-9)
	return c
}

func timing(costs vector) (t engine.Timing) {
	for k, p := range parameters {
		*p.of(&t) = costs[k]
	}
	return t
}

// fitted returns the engine that was looked for.
func (s *search) fitted() engine.Config {
	c := s.given
	c.Timing = s.with(s.costs).Timing
	return c
}

// start finds costs by regression.
func (s *search) start() {
	rows := slices.DeleteFunc(s.rows(s.targets, s.engine), func(w row) bool { return w.held })
	for k := range s.scale {
		var alone []float64
		for _, w := range rows {
			if w.features[k] > 0 {
				alone = append(alone, w.seconds/w.features[k])
			}
		}
		s.scale[k] = quantile(alone, 0.5)
		s.mask[k] = s.scale[k] > 0
	}
	s.regress(rows)
}

// regress finds the costs that explain the rows best, and their standard errors. Rows of requests that were not alone count less.
func (s *search) regress(rows []row) {
	residuals := make([]float64, len(rows)) // of predicted/observed − 1
	for range 20 {
		width, _ := widest(residuals)
		s.normal = normal{}
		for i, w := range rows {
			var features vector
			features.add(1/w.seconds, w.features)
			s.normal.add(huber(residuals[i], width)/(1+max(0, w.others)), features, 1)
		}
		s.costs = s.normal.solve(s.mask, vector{})
		for i, w := range rows {
			residuals[i] = -1
			for k, f := range w.features {
				residuals[i] += s.costs[k] * f / w.seconds
			}
		}
	}
}

// residuals returns ln(predicted/observed) of each target at these costs.
func (s *search) residuals(costs vector) []float64 {
	if err := s.replay.run(s.with(costs)); err != nil {
		panic("BUG: fit: " + err.Error())
	}
	out := make([]float64, len(s.targets))
	for i, t := range s.targets {
		out[i] = math.Log(s.predicted(t) / t.seconds)
	}
	return out
}

// fitting returns the residuals of the targets that are not held out.
func (s *search) fitting(residuals []float64) []float64 {
	var out []float64
	for i, t := range s.targets {
		if !t.held {
			out = append(out, residuals[i])
		}
	}
	return out
}

// Bounds of run.
const (
	restarts  = 3
	tries     = 200
	tolerance = 1e-4
	gain      = 0.01 // the share of the loss that must go for another start
	reach     = 0.1  // the share of a cost by which it is moved first
	least     = 0.01 // likewise, of its scale, if the cost is near nothing
)

// run refines the costs, and drops one after another those that the data do not tell.
func (s *search) run() {
	s.refine()
	for _, k := range dispensable {
		if !s.mask[k] || s.costs[k] > 0 && s.errors[k] <= vague*s.costs[k] {
			continue
		}
		s.open[k] = s.errors[k]
		n := s.normal // the others take over what k has explained
		n.g = vector{}
		for j := range n.h {
			for l, c := range s.costs {
				n.g[j] += n.h[j][l] * c
			}
		}
		s.mask[k] = false
		s.costs = n.solve(s.mask, vector{})
		s.refine()
	}
}

// refine moves the costs to where the replayed times are nearest to the observed ones.
func (s *search) refine() {
	s.misses = s.residuals(s.costs)
	for range restarts {
		width, _ := widest(s.fitting(s.misses))
		var sides vector
		for k, on := range s.mask {
			if on {
				sides[k] = max(reach*s.costs[k], least*s.scale[k])
			}
		}
		before := s.loss(s.misses, width)
		best := minimise(func(x vector) float64 { return s.loss(s.residuals(positive(x)), width) }, point{s.costs, before}, sides, tries, tolerance)
		s.costs = positive(best.at)
		s.misses = s.residuals(s.costs)
		if best.loss > before*(1-gain) {
			break
		}
	}
	_, spread := widest(s.fitting(s.misses))
	s.errors = s.normal.inverse(s.mask)
	for k, v := range s.errors {
		s.errors[k] = spread * math.Sqrt(v)
	}
}

func positive(x vector) vector {
	for k := range x {
		x[k] = max(0, x[k])
	}
	return x
}

// loss is Huber's of the misses that count.
func (s *search) loss(misses []float64, width float64) (sum float64) {
	for i, t := range s.targets {
		if t.held {
			continue
		}
		if r := math.Abs(misses[i]); r <= width {
			sum += r * r / 2
		} else {
			sum += width * (r - width/2)
		}
	}
	return sum
}

// error is the mean size of the misses that were fitted, none counted for more than 1.
func (s *search) error() float64 {
	misses := s.fitting(s.misses)
	sum := 0.0
	for _, r := range misses {
		sum += min(1, math.Abs(r))
	}
	return sum / float64(len(misses))
}

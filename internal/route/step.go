package route

import "time"

const (
	// First tokens that come within so many seconds, or within so large a part of what a step costs in itself, are of one step. A step takes longer
	// than that even if there is little in it.
	leastStep    = 1e-3
	sameStepPart = 0.2
)

// step is what an engine did at one go: one that batches computes several prompts in one step, and their first tokens come together. What it took
// is of all of them. Taken for one prompt each, the first would have taken all of it and the others nothing, and prompts would look the cheaper
// the more wait together: whoever has the longest line would get the next one. Guarded by Router.mu.
type step struct {
	began   time.Time // when its first token came
	took    float64   // seconds
	sum     features  // of its prompts, as far as they add up
	answers int       // that were being produced beside it
	prompts int
	leases  int  // that are not over
	closed  bool // no prompt can join it
}

// steps are an engine's: the one to which the last first token belongs, and others whose memory is used again. Guarded by Router.mu.
type steps struct {
	now  *step
	free []*step
}

// first puts a lease, whose first token comes now, into the step that it is of. begun is when its prompt was sent, last when the first token before
// it came, once what a step costs in itself.
func (s *steps) first(now, begun, last time.Time, c *charge, once float64) {
	x := s.now
	if x == nil || now.Sub(x.began).Seconds() > max(leastStep, sameStepPart*once) {
		if x != nil {
			x.closed = true
			s.reuse(x)
		}
		turn := begun
		if last.After(turn) {
			turn = last
		}
		x = s.fresh()
		*x = step{began: now, took: max(now.Sub(turn).Seconds(), leastSeconds), answers: c.Answers}
		s.now = x
	} else {
		x.took += max(now.Sub(last).Seconds(), 0)
	}
	own := featuresOf(c.prompt-c.Cached, c.prompt, 0)
	for i := range own {
		x.sum[i] += own[i]
	}
	x.prompts++
	x.leases++
	c.step = x
}

func (s *steps) fresh() *step {
	n := len(s.free)
	if n == 0 {
		return new(step)
	}
	x := s.free[n-1]
	s.free = s.free[:n-1]
	return x
}

// over says that a lease of a step is over.
func (s *steps) over(x *step) {
	x.leases--
	s.reuse(x)
}

func (s *steps) reuse(x *step) {
	if x.closed && x.leases == 0 {
		s.free = append(s.free, x)
	}
}

// example is a prompt's part of what its step shows of the engine's speed, with what it turned out to be in the place of what it was thought to be:
// those of all its prompts together say what one of the whole would.
func (x *step) example(thought, turned *features) (features, float64) {
	n := float64(x.prompts)
	tokens, attention := x.sum[1]-thought[1]+turned[1], x.sum[2]-thought[2]+turned[2]
	whole := featuresOf(int(tokens*1e3), 0, x.answers)
	return features{1 / n, tokens / n, attention / n, whole[3] / n}, x.took / n
}

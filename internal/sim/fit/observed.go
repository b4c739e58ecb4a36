package fit

import (
	"cmp"
	"slices"
	"time"

	"evenkeel/internal/engine"
)

// row is one time as a sum of costs: seconds ≈ Σ features·costs.
type row struct {
	target
	features vector
	others   float64 // mean number of requests that were there beside it
}

// rows writes each time as a sum of costs, as far as the observations tell what the engine did meanwhile: its own work, the
// sequences that decoded beside it, and prompts of others, whose work is spread evenly over the time until their first token.
func (r *replay) rows(targets []target, c engine.Config) []row {
	prompts := make([]vector, len(r.requests))
	for i := range prompts {
		prompts[i] = promptFeatures(c, &r.requests[i])
	}
	ahead := make([]vector, len(r.requests)) // prompt work that was not done when a request came
	crowds := make([]crowd, len(r.requests))
	for _, group := range r.groups {
		load := newCrowd(r.requests, group, prompts)
		r.ahead(group, prompts, ahead)
		for _, i := range group {
			crowds[i] = load
		}
	}
	rows := make([]row, len(targets))
	for n, t := range targets {
		i := t.request
		q, load := &r.requests[i], &crowds[i]
		w := row{target: t}
		first := q.At + q.TTFT
		switch t.kind {
		case ttft:
			w.others = load.present.mean(q.At, first) - 1
			w.features = prompts[i]
			w.features.add(1, ahead[i])
			w.features.add(w.features[base], together(load, q.At, first, 0))
		case itl:
			last := q.At + q.Total
			w.others = load.present.mean(first, last) - 1
			w.features = load.prompts(first, last, 1/float64(q.OutputTokens-1))
			w.features[base] = 1 // a step for each token, with or without prompts in it
			w.features.add(1, together(load, first, last, 1))
		case total:
			last := q.At + q.Total
			w.others = load.present.mean(q.At, last) - 1
			tokens := float64(q.OutputTokens - 1)
			w.features = prompts[i]
			w.features.add(1, ahead[i])
			w.features[base] += tokens
			w.features.add(tokens, together(load, q.At, last, 1))
		}
		rows[n] = w
	}
	return rows
}

// ahead says what was left of the prompts of others when a request came.
func (r *replay) ahead(group []int, prompts, ahead []vector) {
	longest := time.Duration(0)
	for n, i := range group {
		q := &r.requests[i]
		for _, j := range slices.Backward(group[:n]) {
			o := &r.requests[j]
			if q.At-o.At >= longest {
				break
			}
			if left := o.At + o.TTFT - q.At; left > 0 {
				ahead[i].add(left.Seconds()/o.TTFT.Seconds(), prompts[j])
			}
		}
		longest = max(longest, q.TTFT)
	}
}

// together is what decoding adds to a step in a period, beside its base.
func together(load *crowd, from, to time.Duration, least float64) (f vector) {
	f[sequence], f[context] = max(least, load.decoding.mean(from, to)), load.context.mean(from, to)
	return f
}

// promptFeatures is what each cost is counted with in the time to the first token of q, alone.
func promptFeatures(c engine.Config, q *Observation) (f vector) {
	const unit = 1e-6 // seconds: sums of pairs stay within a Duration
	for k := range f {
		c.Timing = engine.Timing{}
		*parameters[k].of(&c.Timing) = unit
		f[k] = c.PrefillTime(q.PromptTokens, min(q.CachedTokens, q.PromptTokens-1)).Seconds() / unit
	}
	f[sequence], f[context] = 0, 0
	return f
}

// crowd is what one deployment had over time, as observed.
type crowd struct {
	present  level // requests
	decoding level // those of them that decoded
	context  level // tokens of those
	work     [len(vector{})]level
}

func newCrowd(requests []Observation, group []int, prompts []vector) (c crowd) {
	var present, decoding, context []change
	var work [len(vector{})][]change
	for _, i := range group {
		q := &requests[i]
		first, last := q.At+q.TTFT, q.At+max(q.TTFT, q.Total)
		present = append(present, change{q.At, 1}, change{last, -1})
		if q.TTFT <= 0 {
			continue
		}
		if last > first {
			tokens := float64(q.PromptTokens) + float64(q.OutputTokens)/2
			decoding = append(decoding, change{first, 1}, change{last, -1})
			context = append(context, change{first, tokens}, change{last, -tokens})
		}
		for _, k := range []int{prefill, token, pair} {
			rate := prompts[i][k] / q.TTFT.Seconds()
			work[k] = append(work[k], change{q.At, rate}, change{first, -rate})
		}
	}
	c.present, c.decoding, c.context = newLevel(present), newLevel(decoding), newLevel(context)
	for k := range work {
		c.work[k] = newLevel(work[k])
	}
	return c
}

// prompts is the work on prompts in a period, but for the base of its steps, times a factor.
func (c *crowd) prompts(from, to time.Duration, factor float64) (f vector) {
	for k := range f {
		f[k] = factor * c.work[k].mean(from, to) * (to - from).Seconds()
	}
	return f
}

// change is a step of a level.
type change struct {
	at time.Duration
	by float64
}

// level is a quantity over time that changes in steps.
type level struct {
	at    []time.Duration
	value []float64 // from that time on
	area  []float64 // up to that time, times seconds
}

func newLevel(changes []change) (l level) {
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	value, area := 0.0, 0.0
	for i, c := range changes {
		if i > 0 {
			area += value * (c.at - changes[i-1].at).Seconds()
		}
		value += c.by
		l.at, l.value, l.area = append(l.at, c.at), append(l.value, value), append(l.area, area)
	}
	return l
}

// mean is the mean from one time to a later one, or the value at that time if it is the same.
func (l *level) mean(from, to time.Duration) float64 {
	if to <= from {
		to = from + 1
	}
	return (l.until(to) - l.until(from)) / (to - from).Seconds()
}

func (l *level) until(t time.Duration) float64 {
	i, found := slices.BinarySearch(l.at, t)
	if found {
		return l.area[i]
	}
	if i == 0 {
		return 0
	}
	return l.area[i-1] + l.value[i-1]*(t-l.at[i-1]).Seconds()
}

// most is the largest value there was.
func (l *level) most() float64 {
	if len(l.value) == 0 {
		return 0
	}
	return slices.Max(l.value)
}

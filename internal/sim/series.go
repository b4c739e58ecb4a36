package sim

import (
	"math"
	"slices"
)

// Series is a statistic of one number per request. Its memory does not grow with the requests: the mean and its error come
// from batch means, quantiles are exact up to exactValues and after that within quantileError. The zero value is empty.
type Series struct {
	count int
	sum   float64
	most  float64

	size    int // requests per batch
	batches []batch

	exact   []float64 // the values, while there are few
	buckets []uint64  // counts by logarithm, once there are many
}

// batch sums up requests that came one after the other.
type batch struct {
	sum   float64
	count int
}

const (
	mostBatches = 128 // then two become one
	leastBatch  = 16  // requests

	exactValues   = 10_000
	quantileError = 0.005 // of the value

	// Buckets reach from smallest to smallest × growth^bucketCount, about 1e-9 to 1e9; what is beyond goes to the last.
	growth      = (1 + quantileError) / (1 - quantileError)
	smallest    = 1e-9
	bucketCount = 4200
)

// Add takes the value of the request that came as the n-th, from 0. Requests may end in any order.
func (s *Series) Add(n int, x float64) {
	if s.size == 0 {
		s.size = leastBatch
	}
	for n/s.size >= mostBatches {
		s.halve()
	}
	for len(s.batches) <= n/s.size {
		s.batches = append(s.batches, batch{})
	}
	b := &s.batches[n/s.size]
	b.sum += x
	b.count++
	s.sum += x
	s.count++
	s.most = max(s.most, x)
	s.keep(x)
}

// halve makes one batch of each two.
func (s *Series) halve() {
	s.size *= 2
	for i := range s.batches {
		b := s.batches[i]
		if i%2 == 0 {
			s.batches[i/2] = b
		} else {
			s.batches[i/2].sum += b.sum
			s.batches[i/2].count += b.count
		}
	}
	s.batches = s.batches[:(len(s.batches)+1)/2]
}

func (s *Series) keep(x float64) {
	if s.buckets != nil {
		s.buckets[bucketOf(x)]++
		return
	}
	s.exact = append(s.exact, x)
	if len(s.exact) > exactValues {
		s.buckets = make([]uint64, bucketCount)
		for _, x := range s.exact {
			s.buckets[bucketOf(x)]++
		}
		s.exact = nil
	}
}

func bucketOf(x float64) int {
	if !(x > smallest) {
		return 0
	}
	return int(min(math.Ceil(math.Log(x/smallest)/math.Log(growth)), bucketCount-1))
}

// Count returns how many values there are.
func (s *Series) Count() int { return s.count }

// Mean returns the mean, 0 if there are no values.
func (s *Series) Mean() float64 {
	if s.count == 0 {
		return 0
	}
	return s.sum / float64(s.count)
}

// Max returns the largest value, 0 if there are none.
func (s *Series) Max() float64 { return s.most }

// Quantile returns the smallest value that a share q of all does not exceed, 0 if there are none.
func (s *Series) Quantile(q float64) float64 {
	if s.count == 0 {
		return 0
	}
	rank := min(max(int(math.Ceil(q*float64(s.count))), 1), s.count)
	if s.buckets == nil {
		slices.Sort(s.exact)
		return s.exact[rank-1]
	}
	left := uint64(rank)
	for i, n := range s.buckets {
		if n < left {
			left -= n
			continue
		}
		if i == 0 {
			return 0
		}
		return math.Exp(float64(i)*math.Log(growth)) * smallest * (1 - quantileError) // the middle of the bucket, as a ratio
	}
	return s.most
}

// Error returns the standard error of the mean from batch means, +Inf if there are too few batches to tell. It allows for
// requests that follow each other being alike, as far as a batch is long against that.
func (s *Series) Error() float64 {
	var means []float64
	for _, b := range s.whole() {
		if b.count > 0 {
			means = append(means, b.sum/float64(b.count))
		}
	}
	_, e := meanError(means)
	return e
}

// errorBatches is the most batches that are put together to those that an error is derived from.
const errorBatches = 64

// whole returns the batches but the last, which is not full, as few long ones.
func (s *Series) whole() []batch {
	c := Series{size: s.size, batches: slices.Clone(s.batches)}
	for len(c.batches) > errorBatches {
		c.halve()
	}
	return c.batches[:max(0, len(c.batches)-1)]
}

// Paired returns the mean by which a is above b for the same requests, and its standard error. Runs over one workload differ
// by much less than each of them varies.
func Paired(a, b *Series) (difference, standardError float64) {
	if a.count == 0 || b.count == 0 {
		return 0, math.Inf(1)
	}
	x, y := Series{size: a.size, batches: slices.Clone(a.batches)}, Series{size: b.size, batches: slices.Clone(b.batches)}
	for x.size < y.size || x.size == y.size && max(len(x.batches), len(y.batches)) > errorBatches {
		x.halve()
	}
	for y.size < x.size {
		y.halve()
	}
	var differences []float64
	for i := range min(len(x.batches), len(y.batches)) - 1 {
		p, q := x.batches[i], y.batches[i]
		if p.count > 0 && q.count > 0 {
			differences = append(differences, p.sum/float64(p.count)-q.sum/float64(q.count))
		}
	}
	return meanError(differences)
}

const (
	fewest = 10 // batches that an error is derived from at least
	groups = 8  // that they are put together to: few that are long rather than many that are alike

	// ErrorFreedom is the degrees of freedom of the standard errors of Series.Error and Paired: Student's law of so many tells what an
	// interval takes. It is less than groups - 1: load that comes and goes over more than a group is not all seen, and with 7 the intervals
	// of 200 runs of conversations held the mean in 65 to 83 % of cases, with 2 in 82 to 96 %.
	ErrorFreedom = 2
)

// meanError returns the mean of batches in order of time, and its standard error. Load comes and goes over more than a batch, so
// neighbours that are alike make the error larger: by the correlation of each with the next, as far as eight can show it.
func meanError(values []float64) (mean, standardError float64) {
	n := len(values)
	if n == 0 {
		return 0, math.Inf(1)
	}
	mean = average(values)
	if n < fewest {
		return mean, math.Inf(1)
	}
	var deviations [groups]float64
	for g := range deviations {
		deviations[g] = average(values[g*n/groups : (g+1)*n/groups])
	}
	middle := average(deviations[:])
	var squares, products float64
	for g := range deviations {
		deviations[g] -= middle
		squares += deviations[g] * deviations[g]
		if g > 0 {
			products += deviations[g-1] * deviations[g]
		}
	}
	if squares == 0 {
		return mean, 0
	}
	alike := max(0, products/squares+1./groups) // deviations from a mean of their own seem less alike than they are
	return mean, math.Sqrt(squares / (groups - 1) / groups * (1 + 2*alike))
}

func average(values []float64) (mean float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	return mean
}

// clone returns a copy that shares no memory.
func (s *Series) clone() Series {
	c := *s
	c.batches, c.exact, c.buckets = slices.Clone(s.batches), slices.Clone(s.exact), slices.Clone(s.buckets)
	return c
}

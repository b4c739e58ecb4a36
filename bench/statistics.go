package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// paired applies f to the samples of the same round.
func paired(a, b []sample, f func(a, b sample) float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = f(a[i], b[i])
	}
	return out
}

func each(s []sample, f func(sample) float64) []float64 {
	out := make([]float64, len(s))
	for i := range s {
		out[i] = f(s[i])
	}
	return out
}

// ratio is a ÷ b, NaN where there is nothing to divide by.
func ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

// figure prints a ratio; – if there is none.
func figure(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return fmt.Sprintf("%.2f", x)
}

// median returns NaN of nothing.
func median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(x))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func mean(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	var sum time.Duration
	for _, x := range d {
		sum += x
	}
	return sum / time.Duration(len(d))
}

// quantile returns the smallest value that at least the share q of the values do not exceed. It sorts d.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[max(int(math.Ceil(q*float64(len(d))))-1, 0)]
}

package study

import "math"

// Interval is an estimate and its 95 % confidence interval. High is +Inf, and Low -Inf or, of a ratio, 0, with one seed: it says nothing
// about others.
type Interval struct{ Estimate, Low, High float64 }

// Metric is a number of an Outcome.
type Metric func(*Outcome) float64

// The metrics that are compared.
var (
	MeanTTFT Metric = func(o *Outcome) float64 { return o.TTFTMean }
	P99TTFT  Metric = func(o *Outcome) float64 { return o.TTFTP99 }
	Goodput  Metric = func(o *Outcome) float64 { return o.Goodput }
)

// Mean returns the mean of a metric over seeds.
func Mean(outcomes []*Outcome, m Metric) Interval {
	var values []float64
	for _, o := range outcomes {
		values = append(values, m(o))
	}
	return Over(values)
}

// Ratio returns the geometric mean over seeds of a metric in multiples of the baseline's, paired by seed. A metric must be
// positive.
func Ratio(a, baseline []*Outcome, m Metric) Interval {
	var logs []float64
	for _, p := range pair(a, baseline) {
		if x, y := m(p.a), m(p.b); x > 0 && y > 0 {
			logs = append(logs, math.Log(x/y))
		}
	}
	i := Over(logs)
	return Interval{math.Exp(i.Estimate), math.Exp(i.Low), math.Exp(i.High)}
}

// GeometricMean returns that of ratios of several rows.
func GeometricMean(ratios []float64) Interval {
	var logs []float64
	for _, r := range ratios {
		logs = append(logs, math.Log(r))
	}
	i := Over(logs)
	return Interval{math.Exp(i.Estimate), math.Exp(i.Low), math.Exp(i.High)}
}

// both are two outcomes of one seed.
type both struct{ a, b *Outcome }

func pair(a, b []*Outcome) []both {
	bySeed := map[uint64]*Outcome{}
	for _, o := range b {
		bySeed[o.Seed] = o
	}
	var pairs []both
	for _, o := range a {
		if other := bySeed[o.Seed]; other != nil {
			pairs = append(pairs, both{o, other})
		}
	}
	return pairs
}

// Over returns the mean of independent values and Student's interval around it.
func Over(values []float64) Interval {
	n := float64(len(values))
	if n == 0 {
		return Interval{math.NaN(), math.Inf(-1), math.Inf(1)}
	}
	mean, squares := 0.0, 0.0
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	if n < 2 {
		return Interval{mean, math.Inf(-1), math.Inf(1)}
	}
	half := Student(len(values)-1) * math.Sqrt(squares/(n-1)/n)
	return Interval{mean, mean - half, mean + half}
}

// normal is the 97.5 % quantile of the normal law.
const normal = 1.959964

// studentTable holds the 97.5 % quantiles of Student's law for 1, 2, ... degrees of freedom (any table of statistics).
var studentTable = []float64{
	12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098,
	2.1009, 2.0930, 2.0860,
}

// Student returns the 97.5 % quantile of Student's law, which half of a 95 % interval is in standard errors; beyond the table by the
// first terms of its expansion about the normal law. Freedom must be positive.
func Student(freedom int) float64 {
	if freedom <= len(studentTable) {
		return studentTable[freedom-1]
	}
	n, z := float64(freedom), normal
	return z + (z*z*z+z)/(4*n) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*n*n)
}

package main

import (
	"cmp"
	"slices"
	"strings"

	"evenkeel/internal/sim/study"
)

// entry is what a policy made of a row.
type entry struct {
	policy   policy
	outcomes []*study.Outcome
	mean     study.Interval // mean TTFT in seconds
	// Ratios are to the best policy of the row that is no yardstick, 1 for itself.
	meanRatio, p99Ratio study.Interval
	stable              bool
}

func (e *entry) of(m study.Metric) float64 { return study.Mean(e.outcomes, m).Estimate }

// table is a row with its policies, the best first.
type table struct {
	*played
	entries []entry // no yardsticks
	yards   []entry // references
	// stable says that the backlog of some other router's policy does not grow, of those that played all seeds. Only then are times
	// compared: those of an overloaded row tell how long it was played.
	stable bool
	bound  float64 // mean TTFT that no policy can beat
	broken string  // the policy that beat it all the same: then the row is wrong
}

// digest sorts a row's results.
func digest(p *played, policies []policy) *table {
	t := &table{played: p, bound: study.Mean(p.bounds, study.MeanTTFT).Estimate}
	for _, c := range policies {
		outcomes := p.outcomes[c.Name]
		if len(outcomes) == 0 {
			continue
		}
		e := entry{policy: c, outcomes: outcomes, mean: study.Mean(outcomes, study.MeanTTFT), stable: steady(outcomes)}
		if beats(outcomes, p.bounds) {
			t.broken = c.Name
		}
		if c.kind == reference {
			t.yards = append(t.yards, e)
			continue
		}
		t.stable = t.stable || e.stable && c.kind == peer && len(outcomes) == t.seeds()
		t.entries = append(t.entries, e)
	}
	bestMean := t.best(func(e *entry) float64 { return e.mean.Estimate })
	bestP99 := t.best(func(e *entry) float64 { return e.of(study.P99TTFT) })
	for i := range t.entries {
		e := &t.entries[i]
		e.meanRatio = study.Ratio(e.outcomes, bestMean.outcomes, study.MeanTTFT)
		e.p99Ratio = study.Ratio(e.outcomes, bestP99.outcomes, study.P99TTFT)
	}
	slices.SortStableFunc(t.entries, func(a, b entry) int {
		if !t.stable {
			return cmp.Compare(b.of(study.Goodput), a.of(study.Goodput))
		}
		return cmp.Compare(a.meanRatio.Estimate, b.meanRatio.Estimate)
	})
	return t
}

// beats reports whether a policy was faster with any seed than is possible.
func beats(outcomes, bounds []*study.Outcome) bool {
	for _, o := range outcomes {
		for _, x := range bounds {
			if o.Seed == x.Seed && o.Failed == 0 && o.TTFTMean < x.TTFTMean*(1-1e-6) { // what floating point loses
				return true
			}
		}
	}
	return false
}

// steady reports whether the backlog did not grow, in the mean over seeds.
func steady(outcomes []*study.Outcome) bool {
	var sum study.Outcome
	for _, o := range outcomes {
		for i, x := range o.Thirds {
			sum.Thirds[i] += x
		}
	}
	return sum.Stable()
}

// best returns the entry with the least of something, of those that played all seeds: one seed may be easier than another.
func (t *table) best(of func(*entry) float64) *entry {
	var best *entry
	for i := range t.entries {
		if e := &t.entries[i]; len(e.outcomes) == t.seeds() && (best == nil || of(e) < of(best)) {
			best = e
		}
	}
	return best
}

// leader returns the best policy of the row: by its mean TTFT, or where that says nothing by goodput.
func (t *table) leader() *entry {
	return t.best(func(e *entry) float64 {
		if !t.stable {
			return -e.of(study.Goodput)
		}
		return e.mean.Estimate
	})
}

// seeds is how many the row was played with.
func (t *table) seeds() int { return len(t.bounds) }

// entry returns that of a policy, nil if it has none.
func (t *table) entry(name string) *entry {
	for i := range t.entries {
		if t.entries[i].policy.Name == name {
			return &t.entries[i]
		}
	}
	return nil
}

// group is a part of the rows that is summed up.
type group struct {
	name string
	in   func(*table) bool
}

var groups = []group{
	{"all stable rows", func(*table) bool { return true }},
	{"Mooncake, ρ ≥ 0.9 without cache", func(t *table) bool {
		return strings.HasPrefix(t.spec.Workload, "mooncake") && t.spec.Rho >= .9 && t.spec.NoCache
	}},
	{"engines that batch", func(t *table) bool { return t.spec.Engine != "fifo" }},
	{"FIFO engines", func(t *table) bool { return t.spec.Engine == "fifo" }},
}

// near is the ratio up to which a policy counts as good as the best.
const near = 1.03

// standing is how a policy did in a group.
type standing struct {
	policy    policy
	rows      int
	mean, p99 study.Interval // geometric means over rows of the ratios to each row's best
	near      int            // rows in which its mean is as good as the best's
	worst     float64        // ratio of the means
}

// standings returns how all policies did in a group of stable rows, the best first.
func standings(tables []*table, policies []policy, in func(*table) bool) (all []standing, rows int) {
	for _, t := range tables {
		if t.stable && t.compared() && in(t) {
			rows++
		}
	}
	for _, c := range policies {
		if c.kind == reference {
			continue
		}
		s := standing{policy: c}
		var means, p99s []float64
		for _, t := range tables {
			e := t.entry(c.Name)
			if !t.stable || !t.compared() || e == nil || !in(t) {
				continue
			}
			s.rows++
			means = append(means, e.meanRatio.Estimate)
			p99s = append(p99s, e.p99Ratio.Estimate)
			s.worst = max(s.worst, e.meanRatio.Estimate)
			if len(e.outcomes) == t.seeds() && (e.meanRatio.Low > 0 && e.meanRatio.Low <= near || e.meanRatio.Estimate <= near) {
				s.near++
			}
		}
		if s.rows == 0 {
			continue
		}
		s.mean, s.p99 = study.GeometricMean(means), study.GeometricMean(p99s)
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b standing) int { return cmp.Compare(a.mean.Estimate, b.mean.Estimate) })
	return all, rows
}

// compared reports whether a row counts in standings: the variants are about one row and would weigh too much, and the whole trace
// is played in other rows too.
func (t *table) compared() bool { return t.spec.Variant == "" }

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"evenkeel/internal/sim/study"
)

// The targets that the judged strategy is held to; ratios are its figures over others'.
const (
	wantMean, wantAvoidable         = .70, .55       // against each other policy, on busy Mooncake rows, in the geometric mean
	wantBest, wantBestP99, wantBusy = .93, 1.00, .88 // against the best other policy of each row, likewise; the last on busy Mooncake rows
	wantNear, wantNearP99           = .90, .75       // share of rows in which it is as good as the best
	worstMean, worstP99             = 1.10, 1.20     // in any row
	wantHalf                        = .75            // avoidable delay over the best's, on half of the busy Mooncake rows
	wantBound, wantReference        = 1.25, 1.10     // over the lower bound where engines are many and idle, over the reference elsewhere
	wantSeeds, wantP99Seeds         = 8, 10          // fewer say too little
	wantHoldout                     = .03            // that geometric means over rows of the hold-out may be above those that were tuned by
)

// judged is the strategy that is held against other routers': the one that predicts waits, once it takes part.
func judged() string {
	if name := "predicted_wait"; slices.Contains(strategies, name) {
		return name
	}
	return ownDefault
}

// gauge is a metric of a row: the lower, the better.
type gauge struct {
	name  string
	of    func(*table) study.Metric
	worst float64 // ratio to the best that no row may be above
}

func always(m study.Metric) func(*table) study.Metric { return func(*table) study.Metric { return m } }

var (
	meanGauge    = gauge{"mean TTFT", always(study.MeanTTFT), worstMean}
	p99Gauge     = gauge{"p99 TTFT", always(study.P99TTFT), worstP99}
	goodputGauge = gauge{"1/goodput", always(func(o *study.Outcome) float64 { return 1 / o.Goodput }), math.Inf(1)}
	// avoidable delay is what the lower bound does not explain of the mean TTFT.
	avoidable = gauge{"avoidable delay", func(t *table) study.Metric {
		bounds := map[uint64]float64{}
		for _, o := range t.bounds {
			bounds[o.Seed] = o.TTFTMean
		}
		return func(o *study.Outcome) float64 { return o.TTFTMean - bounds[o.Seed] }
	}, math.Inf(1)}
)

// bestPeer returns the policy of another router that has the least of a metric, of those that played all seeds; nil if there is none.
func (t *table) bestPeer(m study.Metric) *entry {
	best := t.best(func(e *entry) float64 {
		if e.policy.kind != peer {
			return math.Inf(1)
		}
		return e.of(m)
	})
	if best == nil || best.policy.kind != peer {
		return nil
	}
	return best
}

// ratios are those of one policy to another in one row, as logarithms, for each seed that both played.
type ratios []seedLog

type seedLog struct {
	seed uint64
	log  float64
}

// against returns the ratios of a metric.
func against(a, b []*study.Outcome, m study.Metric) (r ratios) {
	for _, x := range a {
		for _, y := range b {
			if x.Seed != y.Seed {
				continue
			}
			if v := m(x) / m(y); v > 0 && !math.IsInf(v, 0) {
				r = append(r, seedLog{x.Seed, math.Log(v)})
			}
		}
	}
	return r
}

// geometric returns the geometric mean over rows, with the 95 % interval that the seeds leave it. Rows play the same stretch of a trace with the
// same seed, so what they say with one seed is one piece of evidence; rows that one seed alone was played of add nothing to the interval.
func geometric(rows []ratios) study.Interval {
	sum, n := 0.0, 0
	bySeed := map[uint64]float64{} // what each seed adds to the error of the mean
	for _, r := range rows {
		if len(r) == 0 {
			continue
		}
		n++
		k, mean := float64(len(r)), 0.0
		for _, x := range r {
			mean += x.log / k
		}
		sum += mean
		if len(r) < 2 {
			continue
		}
		for _, x := range r {
			bySeed[x.seed] += (x.log - mean) / math.Sqrt(k*(k-1))
		}
	}
	if n == 0 {
		return study.Interval{Estimate: math.NaN(), Low: math.Inf(-1), High: math.Inf(1)}
	}
	estimate, half := sum/float64(n), math.Inf(1)
	if len(bySeed) > 1 {
		var squares []float64
		for _, x := range bySeed {
			squares = append(squares, x*x)
		}
		slices.Sort(squares) // a map has no order, and sums of floating point have one
		half = 0
		for _, x := range squares {
			half += x
		}
		half = study.Student(len(bySeed)-1) * math.Sqrt(half) / float64(n)
	}
	return study.Interval{Estimate: math.Exp(estimate), Low: math.Exp(estimate - half), High: math.Exp(estimate + half)}
}

// judgement is what the rows say of a strategy.
type judgement struct {
	name     string
	policies []policy
	rows     []*table // stable, each of its own workload, engine, fleet and load
	busy     []*table // of those, the Mooncake traces at ρ₀ ≥ 0.9
	robust   []*table // stable, about what balancers know and what befalls engines
	loose    int      // that are not stable
	means    []mean   // geometric ones over rows, that the hold-out must keep
	verdicts []verdict
	misses   []miss
}

// mean is a number that has a name.
type mean struct {
	name  string
	value float64
}

// missed is the verdict on a target that does not hold.
const missed = "**missed**"

// verdict is whether a target holds.
type verdict struct{ target, measured, holds string }

// miss is a row that a target does not hold for.
type miss struct {
	row, what string
	ratio     study.Interval
	own, best *entry // nil = it is not held against another router's
}

func (j *judgement) verdict(holds bool, target, measured string, args ...any) {
	word := "holds"
	if !holds {
		word = missed
	}
	j.verdicts = append(j.verdicts, verdict{target, fmt.Sprintf(measured, args...), word})
}

// judge holds a strategy to all targets.
func judge(name string, tables []*table, policies []policy) *judgement {
	j := &judgement{name: name, policies: policies}
	for _, t := range tables {
		switch {
		case t.spec.Variant == whole || t.entry(name) == nil || t.bestPeer(study.MeanTTFT) == nil:
		case !t.stable:
			j.loose++
		case t.spec.Variant != "":
			j.robust = append(j.robust, t)
		default:
			j.rows = append(j.rows, t)
			if busyMooncake(t) {
				j.busy = append(j.busy, t)
			}
		}
	}
	if len(j.busy) > 0 {
		j.eachPeer()
	}
	if len(j.rows) > 0 {
		j.bestOfAll()
		j.near("(c)", "stable rows", j.rows)
		j.half()
		j.yardsticks()
	}
	j.starvation()
	if len(j.robust) > 0 {
		j.near("robust", "rows of other circumstances", j.robust)
		j.scrapes()
	}
	return j
}

// busyMooncake is where prefixes recur and engines have much to do.
func busyMooncake(t *table) bool {
	return strings.HasPrefix(t.spec.Workload, "mooncake") && t.spec.Rho >= .9
}

// over returns the geometric mean over rows of a gauge, in multiples of another policy's.
func (j *judgement) over(rows []*table, g gauge, other func(*table, study.Metric) *entry) study.Interval {
	var all []ratios
	for _, t := range rows {
		m := g.of(t)
		if e := other(t, m); e != nil {
			all = append(all, against(t.entry(j.name).outcomes, e.outcomes, m))
		}
	}
	return geometric(all)
}

// rival is another router's policy.
type rival struct {
	name            string
	mean, avoidable study.Interval
}

// rivals returns how the strategy does against each policy of other routers, the hardest first.
func (j *judgement) rivals() (all []rival) {
	for _, c := range j.policies {
		if c.kind != peer {
			continue
		}
		entry := func(t *table, _ study.Metric) *entry { return t.entry(c.Name) }
		r := rival{c.Name, j.over(j.busy, meanGauge, entry), j.over(j.busy, avoidable, entry)}
		if !math.IsNaN(r.mean.Estimate) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b rival) int { return cmp.Compare(b.mean.Estimate, a.mean.Estimate) })
	return all
}

func (j *judgement) eachPeer() {
	rivals := j.rivals()
	if len(rivals) == 0 {
		return
	}
	hardest, delay := rivals[0], rivals[0]
	for _, r := range rivals {
		if r.avoidable.Estimate > delay.avoidable.Estimate {
			delay = r
		}
	}
	target := "(a) against every other policy, %s, Mooncake at ρ₀ ≥ 0.9: geometric mean ≤ %.2f"
	j.means = append(j.means, mean{"(a) " + meanGauge.name, hardest.mean.Estimate}, mean{"(a) " + avoidable.name, delay.avoidable.Estimate})
	j.verdict(hardest.mean.Estimate <= wantMean, fmt.Sprintf(target, meanGauge.name, wantMean), "%s against %s", ratio(hardest.mean), hardest.name)
	j.verdict(delay.avoidable.Estimate <= wantAvoidable, fmt.Sprintf(target, avoidable.name, wantAvoidable), "%s against %s", ratio(delay.avoidable), delay.name)
}

func (j *judgement) bestOfAll() {
	best := (*table).bestPeer
	hold := func(rows []*table, where string, g gauge, want float64) {
		if len(rows) == 0 {
			return
		}
		i := j.over(rows, g, best)
		j.means = append(j.means, mean{fmt.Sprintf("(b) %s, %s", g.name, where), i.Estimate})
		j.verdict(i.Estimate <= want, fmt.Sprintf("(b) against the best other policy of each row, %s, %s: geometric mean ≤ %.2f", g.name, where, want), "%s over %d rows", ratio(i), len(rows))
	}
	hold(j.rows, "all stable rows", meanGauge, wantBest)
	hold(j.rows, "all stable rows", p99Gauge, wantBestP99)
	hold(j.busy, "Mooncake at ρ₀ ≥ 0.9", meanGauge, wantBusy)
}

// near counts the rows in which the strategy is as good as the best other policy, and finds the worst.
func (j *judgement) near(letter, where string, rows []*table) {
	for _, g := range []gauge{meanGauge, goodputGauge, p99Gauge} {
		want := wantNear
		if g.name == p99Gauge.name {
			want = wantNearP99
		}
		good, worst, worstRow := 0, 0.0, ""
		for _, t := range rows {
			m := g.of(t)
			own, best := t.entry(j.name), t.bestPeer(m)
			i := geometric([]ratios{against(own.outcomes, best.outcomes, m)})
			within := i.Estimate <= near || i.Low > 0 && i.Low <= near
			if within {
				good++
			}
			if !within || i.Estimate > g.worst {
				j.misses = append(j.misses, miss{t.spec.name(), fmt.Sprintf("%s %s", letter, g.name), i, own, best})
			}
			if i.Estimate > worst {
				worst, worstRow = i.Estimate, t.spec.name()
			}
		}
		j.verdict(float64(good) >= want*float64(len(rows)), fmt.Sprintf("%s %s within %.0f %% of the best other policy on %.0f %% of %s", letter, g.name, (near-1)*100, want*100, where),
			"%d of %d", good, len(rows))
		if !math.IsInf(g.worst, 1) {
			j.verdict(worst <= g.worst, fmt.Sprintf("%s %s at most %.2f × the best other policy's in each of them", letter, g.name, g.worst), "%.2f (%s)", worst, worstRow)
		}
	}
}

func (j *judgement) half() {
	if len(j.busy) == 0 {
		return
	}
	good := 0
	for _, t := range j.busy {
		m := avoidable.of(t)
		if i := geometric([]ratios{against(t.entry(j.name).outcomes, t.bestPeer(m).outcomes, m)}); i.Estimate <= wantHalf {
			good++
		}
	}
	j.verdict(2*good >= len(j.busy), fmt.Sprintf("(d) avoidable delay at most %.2f × the best other policy's on half of the Mooncake rows at ρ₀ ≥ 0.9", wantHalf), "%d of %d", good, len(j.busy))
}

// yardsticks holds the strategy to what is possible.
func (j *judgement) yardsticks() {
	type bar struct {
		what, target string
		want         float64
		of           func(*table) []*study.Outcome
		in           func(*table) bool
	}
	idle := func(t *table) bool { return t.spec.N >= 16 && t.spec.Rho <= .7 && t.spec.Engine == "fifo" }
	for _, b := range []bar{
		{"lower bound", "(e) mean TTFT at most %.2f × the lower bound, FIFO, 16 deployments or more, ρ ≤ 0.7", wantBound, func(t *table) []*study.Outcome { return t.bounds }, idle},
		{"reference", "(e) mean TTFT at most %.2f × the reference elsewhere", wantReference, (*table).referenceOutcomes, func(t *table) bool { return !idle(t) }},
	} {
		var all []ratios
		good, worst, worstRow := 0, 0.0, ""
		for _, t := range j.rows {
			if !b.in(t) {
				continue
			}
			r := against(t.entry(j.name).outcomes, b.of(t), study.MeanTTFT)
			if len(r) == 0 {
				continue
			}
			all = append(all, r)
			i := geometric([]ratios{r})
			if i.Estimate <= b.want {
				good++
			} else {
				j.misses = append(j.misses, miss{row: t.spec.name(), what: "(e) " + b.what, ratio: i})
			}
			if i.Estimate > worst {
				worst, worstRow = i.Estimate, t.spec.name()
			}
		}
		if len(all) > 0 {
			j.verdict(good == len(all), fmt.Sprintf(b.target, b.want), "%d of %d rows, geometric mean %s, worst %.2f (%s)", good, len(all), ratio(geometric(all)), worst, worstRow)
		}
	}
}

// keeps holds the means of the hold-out to those of the rows that were tuned by.
func (j *judgement) keeps(tuned *judgement) {
	for _, m := range j.means {
		for _, o := range tuned.means {
			if m.name == o.name {
				j.verdict(m.value <= o.value+wantHoldout, fmt.Sprintf("hold-out %s: at most %.2f above that of the other rows", m.name, wantHoldout), "%.3f, there %.3f", m.value, o.value)
			}
		}
	}
}

// starvation holds what short prompts wait at the worst to what they wait where requests alone are counted.
func (j *judgement) starvation() {
	for _, t := range j.rows {
		if t.spec.Workload != "mooncake-conversation" || t.spec.Rho != .9 || t.entry(byRequests) == nil {
			continue
		}
		i := geometric([]ratios{against(t.entry(j.name).outcomes, t.entry(byRequests).outcomes, func(o *study.Outcome) float64 { return o.ShortP99 })})
		j.verdict(i.Estimate <= 1, fmt.Sprintf("starvation: p99 TTFT of prompts under %d tokens at most that under `%s`, %s", study.ShortPrompt, byRequests, t.spec.name()), "%s", ratio(i))
	}
}

// byRequests is the strategy that counts requests alone.
const byRequests = "least_connections"

// scrapes holds old readings to none.
func (j *judgement) scrapes() {
	find := func(variant string) []*study.Outcome {
		for _, t := range j.robust {
			if t.spec.Variant == variant {
				return t.entry(j.name).outcomes
			}
		}
		return nil
	}
	i := geometric([]ratios{against(find("scrapes-5s"), find("scrapes-none"), study.MeanTTFT)})
	if !math.IsNaN(i.Estimate) {
		j.verdict(i.Estimate <= near, fmt.Sprintf("robust mean TTFT with readings 5 s old at most %.2f × that without any", near), "%s", ratio(i))
	}
}

package main

import (
	"fmt"
	"slices"

	"evenkeel/internal/sim/study"
)

// whole is the variant that plays a trace once from its beginning to its end, and measures all of it.
const whole = "whole"

// rough are figures of an earlier simulation by other code: the Mooncake conversation trace, 8 engines that compute one prompt at
// a time by Dynamo's curve with caches of 2,000 blocks of 512 tokens, and no burn-in. Of each ρ₀: mean and p99 TTFT in
// seconds; and the hit share at ρ₀ 1.
var rough = []struct {
	what   string // as it was called there
	policy string // what comes nearest here
	at07   [2]float64
	at1    [2]float64
	hits   float64
}{
	{"round robin", "round_robin (bare)", [2]float64{1.90, 13.4}, [2]float64{10.1, 44.4}, .078},
	{"power of two", "peer:envoy", [2]float64{1.40, 8.8}, [2]float64{3.79, 16.3}, .077},
	{"least outstanding", "least_connections (bare)", [2]float64{1.31, 9.2}, [2]float64{3.71, 15.5}, .077},
	{"bounded hash 1.25", "peer:kubeai", [2]float64{1.24, 9.3}, [2]float64{2.68, 12.7}, .220},
	{"longest match only", "peer:production-stack", [2]float64{1803, 0}, [2]float64{1926, 0}, .055},
	{"SGLang", "peer:sglang", [2]float64{0.99, 8.2}, [2]float64{1.88, 10.4}, .254},
	{"AIBrix", "peer:aibrix", [2]float64{1.03, 8.5}, [2]float64{2.00, 10.7}, .232},
	{"llm-d", "peer:llm-d", [2]float64{0.52, 6.3}, [2]float64{0.76, 7.3}, .258},
	{"llm-d, token load", "peer:llm-d/token-load", [2]float64{0.52, 5.9}, [2]float64{0.75, 7.0}, .268},
	{"Dynamo", "peer:dynamo", [2]float64{0.74, 5.5}, [2]float64{1.92, 8.7}, .155},
	{"Dynamo, prefill only", "peer:dynamo/prefill-only", [2]float64{0.34, 4.1}, [2]float64{0.63, 4.6}, .164},
	{"LMetric, as Dynamo reads it", "peer:dynamo/lmetric", [2]float64{0.43, 5.1}, [2]float64{0.92, 10.2}, .177},
}

// published compares with those figures.
func (b *bench) published(d document, tables []*table) {
	at07, at1 := wholeRow(tables, .7), wholeRow(tables, 1)
	if at07 == nil || at1 == nil || b.traces[at1.file()].excerpt {
		return
	}
	d.line("## Held against an earlier simulation\n")
	d.line("The Mooncake conversation trace, whole and without burn-in, on 8 FIFO engines: TTFT as mean / p99 in seconds. The figures \"there\" are of an independent simulation of the same setting, with other code for engines and policies.\n")
	d.line("| policy there | here | ρ₀ 0.7 there | here | ρ₀ 1 there | here | hits there | here |\n|---|---|---|---|---|---|---|---|")
	type ranked struct{ there, here float64 }
	var ranks []ranked
	for _, r := range rough {
		x, y := at07.entry(r.policy), at1.entry(r.policy)
		if x == nil || y == nil {
			continue
		}
		d.line("| %s | %s | %s | %s | %s | %s | %.3f | %.3f |", r.what, r.policy, times(r.at07), measured(x), times(r.at1), measured(y),
			r.hits, y.of(func(o *study.Outcome) float64 { return o.HitShare }))
		ranks = append(ranks, ranked{r.at1[0], y.mean.Estimate})
	}
	pairs, alike := 0, 0
	for i, a := range ranks {
		for _, c := range ranks[i+1:] {
			pairs++
			if (a.there < c.there) == (a.here < c.here) {
				alike++
			}
		}
	}
	d.line("\nOf %d pairs of policies, %d are in the same order at ρ₀ 1.\n", pairs, alike)
	d.line("%s\n", explained)
}

// explained says what is known of the differences.
const explained = `ρ is without a cache in both, over the whole compressed span, and every request is measured. Policies without a cache of their own agree within what
the spread of ticks and the draws of a seed change, a tenth for the mean at ρ₀ 1; round robin, near its limit there, by more. The strategies of Evenkeel
agree only when they are bare: the router's rule against slow deployments, which the other simulation does not have, makes them wait 3 to 7 times as
long at ρ₀ 1 (see "The rule against slow deployments"). Dynamo waits half as long here and LMetric as Dynamo reads it two thirds: here they know caches
from the engines' events and count each decode block once, as their source does, where several requests share it. AIBrix is its code, whose blocks of 4 tokens
are 1 token of its default tokenizer and overflow its table; with the documented blocks (aibrix/readme) it is where it was there. llm-d's token load is the profile that
its guide documents, which keeps to who has 80 % of the prompt.`

func times(t [2]float64) string {
	if t[1] == 0 {
		return fmt.Sprintf("%.0f", t[0])
	}
	return fmt.Sprintf("%.2f / %.1f", t[0], t[1])
}

func measured(e *entry) string { return times([2]float64{e.mean.Estimate, e.of(study.P99TTFT)}) }

// wholeRow returns the row that plays the whole trace at a load, nil if it was not played.
func wholeRow(tables []*table, rho float64) *table {
	i := slices.IndexFunc(tables, func(t *table) bool { return t.spec.Variant == whole && t.spec.Rho == rho })
	if i < 0 {
		return nil
	}
	return tables[i]
}

// file is the trace that the row plays.
func (t *table) file() string {
	w, err := study.Find(t.spec.Workload)
	if err != nil {
		panic("BUG: simbench: " + err.Error())
	}
	return w.File
}

package main

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"evenkeel/internal/sim/study"
)

// TestGeometric: the mean of rows, and an interval that knows that rows of one seed say one thing.
func TestGeometric(t *testing.T) {
	row := func(logs ...float64) (r ratios) {
		for i, x := range logs {
			r = append(r, seedLog{uint64(i + 1), x})
		}
		return r
	}
	f := func(estimate, half float64, rows ...ratios) {
		t.Helper()
		i := geometric(rows)
		if math.Abs(math.Log(i.Estimate)-estimate) > 1e-9 {
			t.Errorf("%v: estimate %v, want %v", rows, math.Log(i.Estimate), estimate)
		}
		if got := (math.Log(i.High) - math.Log(i.Low)) / 2; math.Abs(got-half) > 1e-9 && got != half {
			t.Errorf("%v: half an interval is %v, want %v", rows, got, half)
		}
	}
	// Two seeds, a standard deviation of √2·0.1 and so an error of 0.1, and Student's quantile for one degree of freedom.
	f(.3, 12.7062*.1, row(.2, .4))
	f(.3, 12.7062*.1, row(.2, .4), row(.2, .4)) // the same again is no news
	f(.3, 0, row(.2, .4), row(.4, .2))          // what one row has with a seed more, the other has less
	f(.4, 12.7062*.05, row(.2, .4), row(.5))    // one seed alone has a part in the estimate, and none in the error
	f(.5, math.Inf(1), row(.5))
	f(.5, math.Inf(1), row(.5), nil)
	if i := geometric([]ratios{nil}); !math.IsNaN(i.Estimate) {
		t.Errorf("nothing gives %+v", i)
	}
}

// TestBestPeer: it is another router's policy with the least of the metric, and one that played all seeds.
func TestBestPeer(t *testing.T) {
	f := func(want string, means map[string][]float64) {
		t.Helper()
		got := "none"
		if e := digest(made(means, [3]float64{1, 1, 1}), cast).bestPeer(study.MeanTTFT); e != nil {
			got = e.policy.Name
		}
		if got != want {
			t.Errorf("%v: got %s, want %s", means, got, want)
		}
	}
	f("c", map[string][]float64{"a": {1, 1, 1}, "b": {3, 3, 3}, "c": {2, 2, 2}, "oracle": {1, 1, 1}})
	f("b", map[string][]float64{"a": {1, 1, 1}, "b": {3, 3, 3}, "c": {2, 2}})
	f("none", map[string][]float64{"a": {1, 1, 1}, "c": {2, 2}})
}

// judgedRow is a stable row on which a takes own seconds and b and c those of others, over a bound of half a second.
func judgedRow(s spec, own float64, b, c float64) *table {
	three := func(x float64) []float64 { return []float64{x, x, x} }
	p := made(map[string][]float64{"a": three(own), "b": three(b), "c": three(c), "oracle": three(.6)}, [3]float64{1, 1, 1})
	p.spec = s
	return digest(p, cast)
}

func TestJudge(t *testing.T) {
	moo := spec{Workload: "mooncake-conversation", Engine: "sglang", N: 8, Rho: .9, NoCache: true}
	quiet := spec{Workload: "mooncake-conversation", Engine: "fifo", N: 16, Rho: .7, NoCache: true}
	none, old := moo, moo
	none.Variant, old.Variant = "scrapes-none", "scrapes-5s"
	other := moo
	other.Variant = whole
	verdicts := func(tables ...*table) map[string]verdict {
		t.Helper()
		all := map[string]verdict{}
		for _, v := range judge("a", tables, cast).verdicts {
			if _, ok := all[v.target]; ok {
				t.Errorf("two verdicts on %s", v.target)
			}
			all[v.target] = v
		}
		return all
	}
	f := func(all map[string]verdict, part, holds, measured string) {
		t.Helper()
		n := 0
		for target, v := range all {
			if !strings.Contains(target, part) {
				continue
			}
			if n++; v.holds != holds || !strings.HasPrefix(v.measured, measured) {
				t.Errorf("%s: %s, %s, want %s, %s", target, v.measured, v.holds, measured, holds)
			}
		}
		if n != 1 {
			t.Errorf("%d targets are about %q, want 1", n, part)
		}
	}
	good := verdicts(judgedRow(moo, .6, 1, 1.1), judgedRow(quiet, .6, 1, 1), judgedRow(none, .6, 1, 1), judgedRow(old, .61, 1, 1), judgedRow(other, 9, 1, 1))
	f(good, "(a) against every other policy, mean TTFT", "holds", "0.60 (0.60–0.60) against b")
	f(good, "(a) against every other policy, avoidable delay", "holds", "0.20 (0.20–0.20) against b")
	f(good, "(b) against the best other policy of each row, mean TTFT, all stable rows", "holds", "0.60")
	f(good, "(b) against the best other policy of each row, p99 TTFT", "holds", "0.60")
	f(good, "(b) against the best other policy of each row, mean TTFT, Mooncake", "holds", "0.60")
	f(good, "(c) mean TTFT within 3 %", "holds", "2 of 2")
	f(good, "(c) 1/goodput within 3 %", "holds", "2 of 2")
	f(good, "(d)", "holds", "1 of 1")
	f(good, "1.25 × the lower bound", "holds", "1 of 1")
	f(good, "1.10 × the reference", "holds", "1 of 1")
	f(good, "readings 5 s old", "holds", "1.02")
	f(good, "robust mean TTFT within 3 %", "holds", "2 of 2")

	bad := []*table{judgedRow(moo, 1.2, 1, 1.1), judgedRow(quiet, .9, 1, 1), judgedRow(none, .6, 1, 1), judgedRow(old, .7, 1, 1)}
	all := verdicts(bad...)
	f(all, "(a) against every other policy, mean TTFT", missed, "1.20 (1.20–1.20) against b")
	f(all, "(b) against the best other policy of each row, mean TTFT, all stable rows", missed, "1.04")
	f(all, "(c) mean TTFT within 3 %", missed, "1 of 2")
	f(all, "(c) mean TTFT at most 1.10", missed, "1.20 (mooncake-conversation/sglang/n8/rho0.9nc)")
	f(all, "(c) p99 TTFT at most 1.20", "holds", "1.20")
	f(all, "(d)", missed, "0 of 1")
	f(all, "1.25 × the lower bound", missed, "0 of 1 rows, geometric mean 1.80")
	f(all, "1.10 × the reference", missed, "0 of 1 rows, geometric mean 2.00")
	f(all, "readings 5 s old", missed, "1.17")

	var text bytes.Buffer
	b := &bench{policies: append([]policy{{study.Policy{Name: judged()}, ours}}, cast...)}
	for _, x := range bad { // under the name that is judged
		x.entry("a").policy.Name = judged()
	}
	if err := b.judgement(t.Context(), document{&text}, bad); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Judgement of `" + judged() + "`", "of 4 rows, 4 have fewer than the 8", "| b | 1.20", "### Misses",
		"| mooncake-conversation/sglang/n8/rho0.9nc | (c) mean TTFT | 1.20 (1.20–1.20) | b |", "| mooncake-conversation/fifo/n16/rho0.7nc | (e) lower bound | 1.80"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text does not have %q:\n%s", want, text.String())
		}
	}
}

// TestMissesOfWideIntervals: a row may be within what its interval leaves, and still be worse than any row may.
func TestMissesOfWideIntervals(t *testing.T) {
	p := made(map[string][]float64{"a": {1, 1, 1.6}, "b": {1, 1, 1}}, [3]float64{1, 1, 1})
	j := judge("a", []*table{digest(p, cast)}, cast)
	var what []string
	for _, m := range j.misses {
		what = append(what, m.what)
	}
	if got := strings.Join(what, ", "); got != "(c) mean TTFT" {
		t.Errorf("the misses are %s", got)
	}
}

// TestJudgeOverload: rows that no other router keeps up with are counted, and not judged; without any there is nothing to say.
func TestJudgeOverload(t *testing.T) {
	p := made(map[string][]float64{"a": {1, 1, 1}, "b": {2, 2, 2}}, [3]float64{1, 1, 9})
	for _, o := range p.outcomes["a"] {
		o.Thirds = [3]float64{1, 1, 1} // it alone keeps up
	}
	if j := judge("a", []*table{digest(p, cast)}, cast); j.loose != 1 || len(j.verdicts) != 0 {
		t.Errorf("%d are not stable, %d verdicts", j.loose, len(j.verdicts))
	}
	var text bytes.Buffer
	if err := (&bench{}).judgement(t.Context(), document{&text}, nil); err != nil || text.Len() != 0 {
		t.Errorf("nothing was judged: %s, %v", text.String(), err)
	}
}

func TestStarvation(t *testing.T) {
	f := func(short float64, holds string) {
		t.Helper()
		p := made(map[string][]float64{byRequests: {1, 1, 1}, "a": {1, 1, 1}, "b": {1, 1, 1}}, [3]float64{1, 1, 1})
		p.spec.Workload = "mooncake-conversation"
		for i := range 3 {
			p.outcomes["a"][i].ShortP99, p.outcomes[byRequests][i].ShortP99 = short, 2
		}
		for _, v := range judge("a", []*table{digest(p, append([]policy{{study.Policy{Name: byRequests}, ours}}, cast...))}, cast).verdicts {
			if strings.HasPrefix(v.target, "starvation") {
				if v.holds != holds {
					t.Errorf("%v against 2: %s, want %s", short, v.holds, holds)
				}
				return
			}
		}
		t.Error("nothing is said of starvation")
	}
	f(1.9, "holds")
	f(2.1, missed)
}

// TestHoldoutKeeps: the geometric means of the hold-out may be a little above those of the rows that were tuned by.
func TestHoldoutKeeps(t *testing.T) {
	moo := spec{Workload: "mooncake-conversation", Engine: "sglang", N: 8, Rho: .9, NoCache: true}
	held := moo
	held.Holdout = true
	f := func(own float64, kept int) {
		t.Helper()
		j := judge("a", []*table{judgedRow(held, own, 1, 1.1)}, cast)
		j.keeps(judge("a", []*table{judgedRow(moo, .8, 1, 1.1)}, cast))
		n := map[string]int{}
		for _, v := range j.verdicts {
			if strings.HasPrefix(v.target, "hold-out") {
				n[v.holds]++
			}
		}
		if n["holds"] != kept || n["holds"]+n[missed] != 5 {
			t.Errorf("at %v: %v, want %d of 5 kept", own, n, kept)
		}
	}
	f(.8, 5)
	f(.82, 4) // of the avoidable delay, .32/.5 is .04 above .3/.5
	f(.84, 0)
}

package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestEveryCutHasItsReason.
func TestEveryCutHasItsReason(t *testing.T) {
	off := dep("off/m", Limits{})
	off.Weight = 0
	r := newRouter(t,
		pool1("m", off, dep("a/m", Limits{}), dep("b/m", Limits{}), dep("c/m", Limits{InFlight: 1}),
			dep("d/m", Limits{Tokens: 10}), depWith("e/m", Limits{}, Limits{InFlight: 1}), dep("f/m", Limits{}), dep("g/m", Limits{})),
		pool1("n", depWith("e/n", Limits{}, Limits{InFlight: 1})))
	mustPick(t, r, start, pinned("m", "c"))
	mustPick(t, r, start, pinned("m", "d"))
	mustPick(t, r, start, query("n"))
	r.Observe(start, scope("f"), false)

	q := query("m")
	q.Facts.ExcludeNames, q.Tried = []string{"a"}, []string{"b/m"}
	l := mustPick(t, r, at(250*time.Millisecond), q)
	var got []string
	for _, c := range l.Decision().Candidates {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", c.ID, c.Cut, c.CutBy)))
		if c.Cut == CutOpen && (c.Until < 750*time.Millisecond || c.Until > 850*time.Millisecond) {
			t.Errorf("%s is out for %v, want 750 to 850ms", c.ID, c.Until)
		}
	}
	want := "g/m, off/m weight_0, a/m excluded, b/m already_tried, c/m limit_inflight, d/m limit_tokens, " +
		"e/m limit_inflight endpoint e, f/m open endpoint f"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("candidates are\n%s, want\n%s", s, want)
	}
	if n := l.Decision().Eligible; n != 1 || l.Decision().Chosen != "g/m" {
		t.Errorf("%d eligible, chosen %q", n, l.Decision().Chosen)
	}

	refusal := mustRefuse(t, r, start, pinned("m", "nobody"), Unavailable)
	if got := fmt.Sprint(refusal.Decision.CutCounts()); got != "[{weight_0 1} {not_pinned 7}]" {
		t.Errorf("cuts %s", got)
	}
	if d := refusal.Decision; d.Chosen != "" || d.Eligible != 0 || d.Recompute(first{}, q.Facts) != "" || refusal.RetryIn != 0 {
		t.Errorf("decision of a refusal: %+v", d)
	}
}

// scored notes a score for some candidates and takes the lowest.
type scored struct{ scores map[int]float64 }

func (s scored) Pick(r *Round) int {
	best := -1
	for i := range r.Candidates {
		if v, ok := s.scores[i]; ok {
			r.Note(i, "score", v)
			if best < 0 || v < s.scores[best] {
				best = i
			}
		}
	}
	return best
}

// TestRecordOfManyCandidates keeps the chosen one, the best sixteen, and counts the rest by reason.
func TestRecordOfManyCandidates(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for n := 1; n <= 200; n += 1 + n/5 {
		for scoredCount := 1; scoredCount <= n; scoredCount *= 2 {
			s := scored{map[int]float64{}}
			all := make([]Candidate, n)
			eligible := 1 + rng.IntN(n)
			for i := range all {
				all[i].ID = fmt.Sprint(i)
				if i >= eligible {
					all[i].Cut = []Cut{CutOpen, CutTokens}[i%2]
				}
			}
			for range scoredCount {
				s.scores[rng.IntN(eligible)] = float64(rng.IntN(50))
			}
			chosen := s.Pick(&Round{Candidates: all[:eligible]})
			d := Decision{}
			d.record(all, eligible, chosen)
			checkRecord(t, &d, all, eligible, chosen)
		}
	}
}

// before is the order of a record: by score, then those without one, then those who were cut.
func before(a, b *Candidate) bool {
	rank := func(c *Candidate) float64 {
		switch score, ok := c.Score(); {
		case c.Cut != CutNone:
			return 2e9
		case !ok:
			return 1e9
		default:
			return score
		}
	}
	return rank(a) < rank(b)
}

func checkRecord(t *testing.T, d *Decision, all []Candidate, eligible, chosen int) {
	t.Helper()
	n := len(all)
	if n <= fullRecord {
		if len(d.Candidates) != n || len(d.Omitted) != 0 {
			t.Fatalf("%d candidates: %d kept", n, len(d.Candidates))
		}
		return
	}
	if len(d.Candidates) != 1+bestKept || d.Candidates[0].ID != all[chosen].ID || d.Eligible != eligible {
		t.Fatalf("%d candidates: %d kept, first %s, eligible %d; want 17, %s, %d", n, len(d.Candidates), d.Candidates[0].ID, d.Eligible, all[chosen].ID, eligible)
	}
	kept, worst := map[string]bool{}, &d.Candidates[bestKept]
	for i := range d.Candidates {
		kept[d.Candidates[i].ID] = true
		if i > 1 && before(&d.Candidates[i], &d.Candidates[i-1]) {
			t.Fatalf("%s is better than the one before it", d.Candidates[i].ID)
		}
	}
	omitted := map[Cut]int{}
	for i := range all {
		if !kept[all[i].ID] {
			omitted[all[i].Cut]++
			if before(&all[i], worst) {
				t.Fatalf("%s was left out, but is better than %s", all[i].ID, worst.ID)
			}
		}
	}
	for _, o := range d.Omitted {
		if omitted[o.Cut] != o.Count {
			t.Fatalf("%d counted as %q, want %d", o.Count, o.Cut, omitted[o.Cut])
		}
		delete(omitted, o.Cut)
	}
	if len(omitted) != 0 {
		t.Fatalf("not counted: %v", omitted)
	}
	cuts := 0
	for _, c := range d.CutCounts() {
		cuts += c.Count
	}
	if cuts != n-eligible {
		t.Fatalf("%d cuts counted, want %d", cuts, n-eligible)
	}
}

// TestTwoRoutersFedTheSameDecideTheSame, to the last field of every record.
func TestTwoRoutersFedTheSameDecideTheSame(t *testing.T) {
	run := func() (records []Decision) {
		w := &world{t: t, now: start, source: fromSeed(77, 6000)}
		w.run()
		for _, d := range w.decisions {
			records = append(records, *d)
		}
		return records
	}
	a, b := run(), run()
	if len(a) < 200 {
		t.Fatalf("only %d decisions", len(a))
	}
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs of the same calls differ")
	}
}

// TestDecisionIsImmutable: later decisions and the end of the lease do not change it.
func TestDecisionIsImmutable(t *testing.T) {
	r := newRouter(t, PoolSpec{Model: "m", Strategy: seeded{}, Deployments: []Deployment{dep("a/m", Limits{}), dep("b/m", Limits{})}})
	l := mustPick(t, r, start, query("m"))
	d := l.Decision()
	before := *d
	before.Candidates = append([]Candidate(nil), d.Candidates...)
	for range 10 {
		mustPick(t, r, start, query("m")).Done(start, left())
	}
	l.Done(start, success())
	if !reflect.DeepEqual(*d, before) {
		t.Errorf("changed from %+v to %+v", before, *d)
	}
}

func TestIntNIsFairOverSeeds(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 64} {
		for _, draw := range []int{0, 1, 5} {
			counts := make([]int, n)
			for seed := range uint64(n * 2000) {
				counts[NewRound(start, &Facts{Seed: seed}, draw, nil, 0).IntN(n)]++
			}
			if x := chiSquare(counts, nil); x > chiLimit(n-1) {
				t.Errorf("IntN(%d), draw %d: chi-square %.1f of counts %v", n, draw, x, counts)
			}
		}
	}
}

func TestIntNRefusesNonsense(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("IntN(0) did not panic")
		}
	}()
	NewRound(start, &Facts{}, 0, nil, 0).IntN(0)
}

// TestLowestBreaksTiesByWeight at random, wherever they stand.
func TestLowestBreaksTiesByWeight(t *testing.T) {
	scores := []float64{5, 1, 1, 9, 1, 3}
	weights := []float64{1, 1, 2, 1, 5, 1}
	counts := make([]int, 3)
	where := map[int]int{1: 0, 2: 1, 4: 2}
	for seed := range uint64(8000) {
		candidates := make([]Candidate, len(scores))
		for i := range candidates {
			candidates[i] = Candidate{Weight: weights[i], InFlight: int(scores[i])}
		}
		r := NewRound(start, &Facts{Seed: seed}, 0, candidates, 0)
		i := r.Lowest(func(i int) float64 {
			r.Note(i, "in_flight", float64(r.Candidates[i].InFlight))
			return float64(r.Candidates[i].InFlight)
		})
		at, ok := where[i]
		if !ok {
			t.Fatalf("took candidate %d, whose score is %v", i, scores[i])
		}
		counts[at]++
		for i := range candidates {
			if got := candidates[i].Noted(); len(got) != 1 || got[0] != (Term{"in_flight", scores[i]}) {
				t.Fatalf("noted %v for a score of %v", got, scores[i])
			}
		}
	}
	if x := chiSquare(counts, []float64{1, 2, 5}); x > chiLimit(2) {
		t.Errorf("chi-square %.1f of counts %v, weights 1, 2, 5", x, counts)
	}
}

func TestNoteKeepsToItsRoom(t *testing.T) {
	candidates := make([]Candidate, 1)
	r := NewRound(start, &Facts{}, 0, candidates, 0)
	if _, ok := candidates[0].Score(); ok {
		t.Error("a score without terms")
	}
	for i := range MaxTerms + 2 {
		r.Note(0, fmt.Sprint(i), 1)
	}
	if score, ok := candidates[0].Score(); !ok || score != MaxTerms {
		t.Errorf("score %v, want %d", score, MaxTerms)
	}
}

// chiSquare compares counts with expected proportions, nil = all equal.
func chiSquare(counts []int, proportions []float64) (x float64) {
	total, sum := 0, 0.0
	for i, c := range counts {
		total += c
		if proportions != nil {
			sum += proportions[i]
		}
	}
	for i, c := range counts {
		want := float64(total) / float64(len(counts))
		if proportions != nil {
			want = float64(total) * proportions[i] / sum
		}
		x += (float64(c) - want) * (float64(c) - want) / want
	}
	return x
}

// chiLimit is exceeded by chance once in a hundred thousand (Wilson and Hilferty's approximation).
func chiLimit(freedom int) float64 {
	if freedom == 0 {
		return 0
	}
	k := float64(freedom)
	return k * math.Pow(1-2/(9*k)+4.265*math.Sqrt(2/(9*k)), 3)
}

package strategy

import (
	"testing"
	"time"

	"evenkeel/internal/route"
)

// lowest checks which of the candidates are ever taken.
func lowest(t *testing.T, strategy string, candidates []route.Candidate, want ...int) {
	t.Helper()
	s := build(t, strategy)
	counts := make([]int, len(candidates))
	for seed := range uint64(3000) {
		cs := append([]route.Candidate(nil), candidates...)
		counts[s.Pick(route.NewRound(start, &route.Facts{Seed: seed}, 0, cs, 0))]++
	}
	var taken []int
	var weights []float64
	total := 0
	for _, i := range want {
		taken, weights = append(taken, counts[i]), append(weights, candidates[i].Weight)
		total += counts[i]
	}
	if total != 3000 {
		t.Errorf("%s took %v, want only candidates %v", strategy, counts, want)
	}
	if len(want) > 1 {
		if x := chiSquare(taken, weights); x > chiLimit(len(want)-1) {
			t.Errorf("%s: chi-square %.1f of ties %v, weights %v", strategy, x, taken, weights)
		}
	}
}

func TestLeastConnectionsPerWeight(t *testing.T) {
	f := func(loads []int, weights []float64, want ...int) {
		t.Helper()
		cs := make([]route.Candidate, len(loads))
		for i := range cs {
			cs[i] = route.Candidate{InFlight: loads[i], Weight: weights[i], Work: 1000 - loads[i], TTFT: 1}
		}
		lowest(t, "least_connections", cs, want...)
	}
	f([]int{3, 1, 2}, []float64{1, 1, 1}, 1)
	f([]int{3, 1, 2}, []float64{6, 1, 1}, 0)
	f([]int{0, 0, 0}, []float64{1, 1, 1}, 0, 1, 2)
	f([]int{5, 2, 9, 2}, []float64{1, 1, 1, 1}, 1, 3)
	f([]int{0, 0, 1}, []float64{1, 4, 100}, 0, 1)
	f([]int{2, 1}, []float64{2, 1}, 0, 1)
}

func TestLeastTokensPerWeight(t *testing.T) {
	f := func(work []int, weights []float64, want ...int) {
		t.Helper()
		cs := make([]route.Candidate, len(work))
		for i := range cs {
			cs[i] = route.Candidate{Work: work[i], Weight: weights[i], InFlight: 1000 - work[i], TTFT: 1}
		}
		lowest(t, "least_tokens", cs, want...)
	}
	f([]int{300, 100, 200}, []float64{1, 1, 1}, 1)
	f([]int{300, 100, 200}, []float64{6, 1, 1}, 0)
	f([]int{0, 0, 0}, []float64{1, 1, 1}, 0, 1, 2)
	f([]int{0, 0}, []float64{1, 3}, 0, 1)
}

// TestLeastTokensSeesWhatCountsDoNot: one long job weighs more than three short ones, until it is nearly done.
func TestLeastTokensSeesWhatCountsDoNot(t *testing.T) {
	c := newClient(t, build1(t, "least_tokens", equal(2)...))
	long := c.ask(route.Facts{PromptBytes: 38_000, MaxOutput: 2000}) // 10,000 + 2,000 tokens
	other := "e1/m"
	if long.Deployment().ID == other {
		other = "e0/m"
	}
	work := func() (w int) {
		for _, d := range c.r.View(c.now).Deployments {
			if d.ID == long.Deployment().ID {
				w = d.Work
			}
		}
		return w
	}
	if got := work(); got != 12_000 {
		t.Fatalf("outstanding work %d, want 12000", got)
	}
	for i := range 3 {
		if l := c.ask(route.Facts{PromptBytes: 380, MaxOutput: 200}); l.Deployment().ID != other {
			t.Fatalf("short job %d went to the busy one", i)
		}
	}
	c.now = c.now.Add(time.Second)
	long.FirstToken(c.now)
	c.now = c.now.Add(time.Second)
	long.Progress(c.now, 1900)
	if got := work(); got != 100 {
		t.Fatalf("outstanding work %d, want 100", got)
	}
	if l := c.ask(route.Facts{PromptBytes: 380, MaxOutput: 200}); l.Deployment().ID != long.Deployment().ID {
		t.Error("went to the one with 900 outstanding, not to the one with 100")
	}
}

// TestLeastTokensExpectsOutput: the request's own limit, else the learned mean, else 200.
func TestLeastTokensExpectsOutput(t *testing.T) {
	c := newClient(t, build1(t, "least_tokens", equal(1)...))
	f := func(facts route.Facts, want int) *route.Lease {
		t.Helper()
		l := c.ask(facts)
		if got := c.r.View(c.now).Deployments[0].Work; got != want {
			t.Errorf("%+v weighs %d, want %d", facts, got, want)
		}
		return l
	}
	c.success(f(route.Facts{PromptBytes: 380, MaxOutput: 30}, 130))
	f(route.Facts{PromptBytes: 380}, 300).Done(c.now, route.Outcome{Verdict: route.Success, Reported: true, InputTokens: 190, OutputTokens: 50})
	f(route.Facts{PromptBytes: 380}, 240)
}

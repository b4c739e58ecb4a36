package strategy

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// TestLatencyP95Shares: of n candidates the i-th fastest wins whenever the other of the two is slower, and everybody gets
// a hundredth by chance.
func TestLatencyP95Shares(t *testing.T) {
	s := build(t, "latency_p95")
	const rounds = 40_000
	for _, n := range []int{1, 2, 4, 10, 100} {
		candidates := make([]route.Candidate, n)
		for i := range candidates {
			candidates[i] = route.Candidate{ID: fmt.Sprint(i), Weight: 1, P95: float64(i + 1)}
		}
		counts := make([]int, n)
		for seed := range uint64(rounds) {
			counts[s.Pick(route.NewRound(start, &route.Facts{Seed: seed}, 0, append([]route.Candidate(nil), candidates...), 0))]++
		}
		for i, got := range counts {
			sample := min(1, 0.01*float64(n))
			want := sample / float64(n)
			if n > 1 {
				want += (1 - sample) * 2 * float64(n-1-i) / float64(n*(n-1))
			} else {
				want = 1
			}
			if share := float64(got) / rounds; share < 0.6*want-0.002 || share > 1.4*want+0.002 || share < 0.007 {
				t.Errorf("%d candidates: number %d gets %.4f, want %.4f", n, i, share, want)
			}
		}
	}
}

// TestLatencyP95FindsWhoBecameFaster: one that becomes faster is found.
func TestLatencyP95FindsWhoBecameFaster(t *testing.T) {
	r := build1(t, "latency_p95", equal(4)...)
	c := newClient(t, r)
	ttft := map[string]time.Duration{"e0/m": 100 * time.Millisecond, "e1/m": 200 * time.Millisecond, "e2/m": 300 * time.Millisecond, "e3/m": 900 * time.Millisecond}
	load := func(n int) map[string]int {
		counts := map[string]int{}
		for range n {
			c.now = c.now.Add(20 * time.Millisecond)
			l := c.pick()
			id := l.Deployment().ID
			counts[id]++
			l.Done(c.now, route.Outcome{Verdict: route.Success, Answered: true, TTFT: ttft[id]})
		}
		return counts
	}
	before := load(4000)
	if before["e3/m"] < 40 || before["e3/m"] > 100 || before["e0/m"] < 1600 {
		t.Fatalf("of 4000: %v, want the slowest to get about 1 %% and the fastest about half", before)
	}
	ttft["e3/m"] = 50 * time.Millisecond
	load(12_000) // a hundred answers at 1 %, and then some
	if after := load(4000); after["e3/m"] < 1600 {
		t.Errorf("of 4000 after it became the fastest: %v", after)
	}
}

// TestLatencyP95OfWhoOnlyFails: as long as nothing is known of a deployment but failures, it does not look like the fastest.
func TestLatencyP95OfWhoOnlyFails(t *testing.T) {
	s := build(t, "latency_p95")
	f := func(healthy float64) {
		t.Helper()
		failing := 0
		for seed := range uint64(10_000) {
			cs := []route.Candidate{{Weight: 1, P95: healthy, TTFT: 1}, {Weight: 1, TTFT: 1.2, Penalty: 2}, {Weight: 1, P95: healthy, TTFT: 1}}
			if s.Pick(route.NewRound(start, &route.Facts{Seed: seed}, 0, cs, 0)) == 1 {
				failing++
			}
		}
		if failing > 150 { // of 10,000; a hundredth by chance
			t.Errorf("beside deployments whose 95th percentile is %v s the one that only fails gets %d of 10,000", healthy, failing)
		}
	}
	f(0) // no answer is streamed
	f(1)
}

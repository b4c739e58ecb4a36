package health

import (
	"testing"
	"time"

	"evenkeel/internal/route"
)

// TestRanksAreAskedTogether: what is asked of a server is asked once, whatever it finds is found of each rank, and what each says of itself
// reaches it alone.
func TestRanksAreAskedTogether(t *testing.T) {
	inBubble(t, "a", func(t *testing.T, w *world) {
		var ranks []route.Deployment
		for _, rank := range []string{"0", "1", "2"} {
			ranks = append(ranks, route.Deployment{ID: "a#" + rank + "/m", Endpoint: "a", URL: "http://a", Model: "m", Rank: rank, Weight: 1, Scopes: []route.Scope{scope("a")}})
		}
		if _, err := w.router.Adopt(time.Now(), []route.PoolSpec{{Model: "m", Strategy: single{}, Deployments: ranks}}); err != nil {
			t.Fatal(err)
		}
		p := w.plan("a", "vllm")
		e := &p.Endpoints[0]
		e.Ranks, e.Deployments[0].Parts = 3, []string{"a#0/m", "a#1/m", "a#2/m"}
		states := func(want route.BreakerState) {
			t.Helper()
			for _, d := range w.router.View(time.Now()).Deployments {
				if d.Breaker.State != want {
					t.Errorf("%s is %v, want %v", d.ID, d.Breaker.State, want)
				}
			}
		}
		asked := func(path string, want int) {
			t.Helper()
			n := 0
			for _, r := range w.fakes["a"].all() {
				if r.path == path {
					n++
				}
			}
			if n != want {
				t.Errorf("%s was asked for %d times, want %d", path, n, want)
			}
		}
		w.fakes["a"].become(answering(500, "application/json", "{}"))
		w.checker.Set(p)
		pass(3 * p.Interval)
		asked("/v1/chat/completions", 3)
		asked("/health", 3)
		states(route.Open)
		w.fakes["a"].become(well)
		pass(60 * p.Interval)
		states(route.Closed)

		p = w.plan("a", "vllm")
		p.Interval, p.Signals, p.Endpoints[0].Ranks = 0, time.Second, 3
		w.fakes["a"].become(answering(200, exposition, vllmPage)) // of two ranks
		w.checker.Set(p)
		pass(2 * time.Second)
		for i, want := range []route.Signal{{Running: 7, Waiting: 3, KVUse: 0.5, CacheTokens: 216_000, Rank: "0"}, {Running: 5, KVUse: 0.25, CacheTokens: 216_000, Rank: "1"}, {}} {
			got := w.router.View(time.Now()).Deployments[i].Signal
			if got.At = (time.Time{}); got != want {
				t.Errorf("rank %d: %+v, want %+v", i, got, want)
			}
		}
	})
}

package sim

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestSubset: each balancer sends its share of all requests to those it knows, by its own weights.
func TestSubset(t *testing.T) {
	members := [][]Member{{{0, 3}, {1, 1}}, {{2, 1}, {1, 1}}}
	o := Options{
		Servers: queues(t, 4), Strategy: mustStrategy(t, "weighted"), Source: jobs(t, 1, 1), Plan: onlyOnce, Balancers: 2,
		Subset: func(b int) []Member { return members[b] }, Shares: []float64{30, 10},
		Faults: []Fault{{At: time.Second, Deployment: 0, Kind: Leaving}, {At: 2 * time.Second, Deployment: 0, Kind: Coming}},
	}
	r := run(t, o, 20_000*time.Second)
	for i, want := range []float64{.75 * .75, .75*.25 + .25*.5, .25 * .5, 0} {
		if got := float64(r.Picks[i]) / float64(r.Counts.Arrived); math.Abs(got-want) > .01 {
			t.Errorf("deployment %d got %.3f of all requests, want %.3f", i, got, want)
		}
	}
	f := func(want string, change func(*Options)) {
		t.Helper()
		bad := o
		change(&bad)
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f("balancer 1: it is to know deployment 4", func(o *Options) {
		o.Subset = func(b int) []Member { return []Member{{3 + b, 1}} }
	})
	f("1 shares for 2 balancers", func(o *Options) { o.Shares = []float64{1} })
	f("balancer 1 has the share -1", func(o *Options) { o.Shares = []float64{1, -1} })
	f("sum up to 0", func(o *Options) { o.Shares = []float64{0, 0} })
	f("weights beside", func(o *Options) { o.Weights = []float64{1, 1, 1, 1} })
}

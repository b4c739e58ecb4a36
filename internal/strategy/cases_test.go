package strategy

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// TestCase44InFlightDoesNotLeakOnAborts: 2000 requests, of which a third abort before the head, a third after
// it, a third in the middle of the body; then 400 calm ones; then one endpoint is restarted. All gauges are 0
// when idle, calm requests spread 15 to 35 % each, and who returns gets no more than a fair share.
func TestCase44InFlightDoesNotLeakOnAborts(t *testing.T) {
	forEach(t, func(t *testing.T, e entry, _ route.Strategy) {
		r := build1(t, e.name, equal(4)...)
		c := newClient(t, r)
		outcomes := []func(l *route.Lease){
			func(l *route.Lease) { l.Done(c.now, route.Outcome{Class: "client_gone"}) },
			func(l *route.Lease) { l.Done(c.now, route.Outcome{Class: "client_gone", Answered: true}) },
			func(l *route.Lease) {
				l.FirstToken(c.now)
				l.Progress(c.now.Add(time.Second), 40)
				l.Done(c.now, route.Outcome{Class: "client_gone", Answered: true})
			},
			func(l *route.Lease) { // some resets, and an abort that is noticed twice
				l.Done(c.now, route.Outcome{Verdict: route.DeploymentFault, Class: "upstream_reset", Answered: true})
				l.Done(c.now, route.Outcome{Class: "client_gone"})
			},
		}
		load := func(requests, concurrency int, end func(i int, l *route.Lease)) map[string]int {
			var running []*route.Lease
			counts := map[string]int{}
			for i := range requests {
				c.now = c.now.Add(5 * time.Millisecond)
				l := c.pick()
				counts[l.Deployment().ID]++
				running = append(running, l)
				if len(running) == concurrency {
					end(i, running[i%3])
					running = append(running[:i%3], running[i%3+1:]...)
				}
			}
			for i, l := range running {
				end(i, l)
			}
			mustBeIdle(t, r)
			return counts
		}
		calm := func(_ int, l *route.Lease) {
			l.FirstToken(c.now)
			l.Done(c.now, route.Outcome{Verdict: route.Success, Answered: true, TTFT: 40 * time.Millisecond, OutputTokens: 100})
		}
		load(2000, 16, func(i int, l *route.Lease) {
			kind := i % 3
			if i%200 == 0 {
				kind = 3
			}
			outcomes[kind](l)
		})
		settle := func() { // whoever is out has its trial, and the slow start after it
			c.now = c.now.Add(time.Minute)
			load(100, 8, calm)
			c.now = c.now.Add(2 * time.Minute)
		}
		settle()
		f := func(what string, counts map[string]int) {
			t.Helper()
			if !spreads(e) {
				return
			}
			for i := range 4 {
				if share := float64(counts[fmt.Sprintf("e%d/m", i)]) / 4; share < 15 || share > 35 {
					t.Errorf("%s: e%d gets %.1f %%, want 15 to 35: %v", what, i, share, counts)
				}
			}
		}
		f("calm", load(400, 8, calm))
		d := route.Scope{Kind: route.EndpointScope, Name: "e3", URL: "http://e3"}
		r.Observe(c.now, d, false)
		if counts := load(100, 8, calm); counts["e3/m"] != 0 {
			t.Errorf("while it is down e3 gets %v", counts)
		}
		c.now = c.now.Add(time.Second)
		r.Observe(c.now, d, true)
		if counts := load(400, 8, calm); counts["e3/m"] > 100 {
			t.Errorf("just after its restart e3 gets more than its share: %v", counts)
		}
		settle()
		f("after the restart", load(400, 8, calm))
	})
}

// spreads reports whether a strategy means equal deployments to get equal shares. An expression does what its formula says, here of forecasts
// in a time that stands still; predicted_wait sees that those are worth nothing.
func spreads(e entry) bool {
	return e.name != "failover" && e.name != "latency_p95" && e.name != "expression"
}

// TestCase45CountersDoNotDrift: requests that end before dispatch, connect errors and cancelled grants; then
// 3000 sequential ones. No gauge is ever below 0 (the Router would panic), and they spread evenly though all
// counters are equal.
func TestCase45CountersDoNotDrift(t *testing.T) {
	forEach(t, func(t *testing.T, e entry, _ route.Strategy) {
		ds := equal(3)
		for i := range ds {
			ds[i].Limits.InFlight = 1
		}
		r := build1(t, e.name, ds...)
		c := newClient(t, r)
		for i := range 300 {
			c.now = c.now.Add(2 * time.Second)
			f := route.Facts{Model: "m", Seed: uint64(i), Pin: "nobody"}
			if l, _ := r.Pick(c.now, route.Query{Facts: &f, Model: "m"}); l != nil {
				t.Fatal("a request that nobody may serve was given a lease")
			}
			r.Pick(c.now, route.Query{Facts: &f, Model: "unknown"})
			all := []*route.Lease{c.pick(), c.pick(), c.pick()}
			free := route.Facts{Model: "m", Seed: uint64(i)}
			ticket, _ := r.Wait(c.now, route.Query{Facts: &free, Model: "m"}, func() {})
			for j, l := range all {
				o := route.Outcome{Verdict: route.Success, Answered: true}
				if (i+j)%5 == 0 {
					o = route.Outcome{Verdict: route.DeploymentFault, Class: "connect", Fault: route.Unreachable}
				}
				l.Done(c.now, o)
				l.Done(c.now, o)
			}
			ticket.Cancel(c.now)
			ticket.Cancel(c.now)
			for _, d := range ds { // whatever is out comes back
				r.Observe(c.now, d.Scopes[0], true)
			}
			for range 3 {
				c.success(c.pick())
			}
		}
		mustBeIdle(t, r)
		c.now = c.now.Add(time.Minute)
		for _, d := range ds {
			for range 2 {
				f := route.Facts{Model: "m", Pin: d.ID}
				l, _ := r.Pick(c.now, route.Query{Facts: &f, Model: "m"})
				l.Done(c.now, route.Outcome{Verdict: route.Success, Answered: true})
			}
		}
		counts := map[string]int{}
		for range 3000 {
			l := c.pick()
			counts[l.Deployment().ID]++
			l.Done(c.now, route.Outcome{Verdict: route.Success, Answered: true})
		}
		for _, d := range ds {
			if share := float64(counts[d.ID]) / 30; spreads(e) && (share < 25 || share > 42) {
				t.Errorf("%s gets %.1f %%, want 25 to 42: %v", d.ID, share, counts)
			}
		}
		mustBeIdle(t, r)
	})
}

package exchange

import (
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// TestReloadAmidEverything: fleets, limits, rules and orders change while requests wait, run, pause and hedge. In the end
// nothing is in flight or waiting, what left is forgotten, and a new request is served.
func TestReloadAmidEverything(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 3))
	classes := []llm.Class{llm.None, llm.None, llm.ClientFault, llm.ServerError, llm.RateLimited, llm.Reset, llm.Connect, llm.Stale, llm.Overloaded}
	for round := range 300 {
		b := newBench(t, Plan{}, route.Facts{}, pool(t, "m", 3, route.Limits{InFlight: 1}))
		reload := func() {
			limits := route.Limits{InFlight: random.IntN(3), RPM: 100 * random.IntN(2), TPM: 10_000 * random.IntN(2)}
			var pools []route.PoolSpec
			for _, model := range []string{"m", "n"} {
				if random.IntN(3) > 0 {
					pools = append(pools, pool(t, model, 1+random.IntN(4), limits))
				}
			}
			if _, err := b.router.Adopt(b.now, pools); err != nil {
				t.Fatal(err)
			}
			b.router.Configure(route.Options{MaxWaiting: random.IntN(3), Health: route.Health{TripAfter: 1 + random.IntN(5), ResetAfter: time.Duration(1+random.IntN(30)) * time.Second, PanicThreshold: 0.5 * float64(random.IntN(2))}})
			b.budget.Configure(random.Float64(), float64(random.IntN(5)))
			b.budget.Hedges(random.Float64())
		}
		var running []*Exchange
		for range 120 {
			b.now = b.now.Add(time.Duration(random.IntN(3000)) * time.Millisecond)
			switch random.IntN(8) {
			case 0:
				reload()
			case 1:
				s := route.Scope{Kind: route.EndpointScope, Name: "a-m", URL: "http://a-m"}
				b.router.Observe(b.now, s, random.IntN(2) == 0)
			case 2:
				_ = b.router.Override(b.now, "deployment", "b-m/m", route.Override(random.IntN(int(route.ForgetFailure)+1))) // it may have left
			case 3, 4:
				plan := Plan{Models: []string{"m", "n"}, Repeatable: random.IntN(4) > 0, Hedge: random.IntN(2) == 0}
				x := b.exchange(plan, route.Facts{Stream: random.IntN(2) == 0, Seed: random.Uint64(), PromptBytes: 400})
				running = append(running, x)
				x.Next(b.now, Event{Kind: Started})
			default:
				if len(running) == 0 {
					continue
				}
				x := running[random.IntN(len(running))]
				e := Event{Kind: Held + EventKind(random.IntN(int(Shutdown-Held))), Lane: Lane(random.IntN(int(lanes)))}
				if e.Kind == Ended {
					lane := e.Lane
					e = ended(classes[random.IntN(len(classes))])
					e.Lane = lane
				}
				x.Next(b.now, e)
				x.Next(b.now, Event{Kind: Granted})
			}
			b.router.Tick(b.now)
			if p := b.budget.parts; p < 0 || p > b.budget.most() {
				t.Fatalf("round %d: the budget holds %d parts of %d", round, p, b.budget.most())
			}
		}
		for _, x := range running {
			x.Close(b.now)
		}
		if v := b.router.View(b.now); len(v.Waiting) != 0 {
			t.Fatalf("round %d: %v wait", round, v.Waiting)
		}
		b.idle()
		if b.budget.inFlight != 0 {
			t.Fatalf("round %d: the budget counts %d requests in flight", round, b.budget.inFlight)
		}
		if _, err := b.router.Adopt(b.now, []route.PoolSpec{pool(t, "k", 1, route.Limits{})}); err != nil {
			t.Fatal(err)
		}
		if v := b.router.View(b.now); len(v.Deployments) != 1 || len(v.Scopes) != 1 {
			t.Fatalf("round %d: %d deployments and %d scopes are left of a fleet of one", round, len(v.Deployments), len(v.Scopes))
		}
		b.x = b.exchange(Plan{Models: []string{"k"}}, route.Facts{})
		b.do(Event{Kind: Started}, Dispatch)
		b.do(ended(llm.None), Commit, Finish)
	}
}

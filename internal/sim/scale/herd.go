package scale

import (
	"fmt"
	"math/rand/v2"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// Model is what the deployments of Warm serve.
const Model = "m"

// pool describes deployments, of which the first has this number.
func pool(model string, strategy route.Strategy, first, n int) route.PoolSpec {
	p := route.PoolSpec{Model: model, Strategy: strategy}
	for i := first; i < first+n; i++ {
		endpoint := fmt.Sprintf("e%d", i)
		scope := route.Scope{Kind: route.EndpointScope, Name: endpoint, URL: "http://" + endpoint}
		p.Deployments = append(p.Deployments, route.Deployment{
			ID: endpoint + "/" + Model, Endpoint: endpoint, URL: scope.URL, Model: Model, Weight: 1, Scopes: []route.Scope{scope},
		})
	}
	return p
}

// routers returns replicas that have just started, before the same deployments.
func routers(strategy route.Strategy, replicas, deployments int) ([]*route.Router, error) {
	var all []*route.Router
	for i := range replicas {
		r := route.New(route.Options{Seed: uint64(i)})
		if _, err := r.Adopt(sim.Epoch, []route.PoolSpec{pool(Model, strategy, 0, deployments)}); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// answers is how many each deployment of Warm has given.
const answers = 20

// Warm returns a router before n deployments that have all answered requests.
func Warm(strategy route.Strategy, n int) (*route.Router, error) {
	router, now := route.New(route.Options{}), sim.Epoch
	var few []route.PoolSpec // what is known of a deployment outlasts the pool that it was learned in
	for first := 0; first < n; first += 10 {
		few = append(few, pool(fmt.Sprintf("few %d", first), strategy, first, min(10, n-first)))
	}
	if _, err := router.Adopt(now, few); err != nil {
		return nil, err
	}
	for turn := range answers {
		for i := range n {
			f := route.Facts{Model: few[i/10].Model, PromptBytes: 4000, Pin: fmt.Sprintf("e%d", i)}
			lease, refusal := router.Pick(now, route.Query{Facts: &f, Model: f.Model})
			if refusal != nil {
				return nil, fmt.Errorf("deployment %d is refused: %v", i, refusal.Kind)
			}
			first := time.Duration(100+i%50+turn%7) * time.Millisecond
			lease.Done(now.Add(first), route.Outcome{Verdict: route.Success, Answered: true, Status: 200, TTFT: first})
		}
	}
	_, err := router.Adopt(now, []route.PoolSpec{pool(Model, strategy, 0, n)})
	return router, err
}

// Herd lets replicas that have just started, and so know the same, choose at the same time, rounds times one after the other, for
// requests that do not end meanwhile. It returns what the most chosen deployment got, in multiples of the mean. alike says that all
// requests of a round have the same seed; else each has one of its own, as requests have.
func Herd(strategy route.Strategy, replicas, deployments, rounds int, alike bool) (float64, error) {
	all, err := routers(strategy, replicas, deployments)
	if err != nil {
		return 0, err
	}
	r := rand.New(rand.NewPCG(1, 2))
	chosen := map[string]int{}
	most := 0
	for round := range rounds {
		for _, router := range all {
			seed := uint64(round)
			if !alike {
				seed = r.Uint64()
			}
			f := route.Facts{Seed: seed, Model: Model, PromptBytes: 4000}
			lease, refusal := router.Pick(sim.Epoch, route.Query{Facts: &f, Model: Model})
			if refusal != nil {
				return 0, fmt.Errorf("a replica has no deployment to choose: %v", refusal.Kind)
			}
			chosen[lease.Deployment().ID]++
			most = max(most, chosen[lease.Deployment().ID])
		}
	}
	return float64(most) * float64(deployments) / float64(replicas*rounds), nil
}

// Returns lets a deployment fail for all replicas within a second, each by its own requests, and returns the time from the first
// replica's trial to the last one's, and the most trials that begin within any tenth of a second.
func Returns(strategy route.Strategy, replicas int) (spread time.Duration, together int, err error) {
	all, err := routers(strategy, replicas, 3)
	if err != nil {
		return 0, 0, err
	}
	r := rand.New(rand.NewPCG(1, 3))
	var first, last time.Duration
	slots := map[time.Duration]int{}
	for i, router := range all {
		now := sim.Epoch.Add(time.Duration(r.Int64N(int64(time.Second))))
		for range route.DefaultHealth.TripAfter {
			f := route.Facts{Seed: r.Uint64(), Model: Model, Pin: "e0"}
			lease, refusal := router.Pick(now, route.Query{Facts: &f, Model: Model})
			if refusal != nil {
				return 0, 0, fmt.Errorf("the deployment is out too soon: %v", refusal.Kind)
			}
			lease.Done(now, route.Outcome{Verdict: route.DeploymentFault, Class: "server_error", Fault: route.Failure, Answered: true, Status: 500})
		}
		v := router.View(now)
		at := v.Deployments[0].Breaker.Until.Sub(sim.Epoch)
		if v.Deployments[0].Breaker.State != route.Open {
			return 0, 0, fmt.Errorf("the breaker of replica %d is %v after %d failures", i, v.Deployments[0].Breaker.State, route.DefaultHealth.TripAfter)
		}
		if i == 0 || at < first {
			first = at
		}
		last = max(last, at)
		slot := at / (100 * time.Millisecond)
		slots[slot]++
		together = max(together, slots[slot])
	}
	return last - first, together, nil
}

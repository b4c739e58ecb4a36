package sim

import (
	"testing"
	"time"

	"evenkeel/internal/engine"
)

// TestRouterHearsSignals: without a Policy a balancer's Router is told what engines say of themselves, each as often as Scrapes has it, and
// nothing by one that is down. Of a server without blocks it learns no size.
func TestRouterHearsSignals(t *testing.T) {
	c, err := engine.Preset("vllm-2048")
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEngine(c)
	if err != nil {
		t.Fatal(err)
	}
	f := mustFleet(t, Options{
		Seed: 1, Servers: []Server{e, queues(t, 1)[0], queues(t, 1)[0]}, Strategy: mustStrategy(t, "predicted_wait"), Plan: onlyOnce,
		Scrapes: Scrapes{Every: 3 * time.Second}, Source: jobs(t, 1, 1), Balancers: 2,
		Faults: []Fault{{At: 4 * time.Second, Deployment: 2, Kind: Down}},
	})
	f.Run(10500 * time.Millisecond)
	for balancer := range 2 {
		for i, want := range []struct {
			at   time.Duration
			size int
		}{{9 * time.Second, c.Blocks * c.BlockTokens}, {10 * time.Second, 0}, {2 * time.Second, 0}} {
			s := f.View(balancer).Deployments[i].Signal
			if at := s.At.Sub(Epoch); at != want.at || s.CacheTokens != want.size || s.Running < 0 || s.Waiting < 0 {
				t.Errorf("balancer %d, deployment %d: %+v, %v after the beginning, want %+v", balancer, i, s, at, want)
			}
		}
	}
}

// TestScrapesEnd: they keep no simulation going.
func TestScrapesEnd(t *testing.T) {
	run(t, Options{
		Seed: 1, Servers: queues(t, 2), Strategy: mustStrategy(t, "predicted_wait"), Plan: onlyOnce, Scrapes: Scrapes{Every: time.Second},
		Source: jobs(t, 1, 1),
	}, 20*time.Second)
}

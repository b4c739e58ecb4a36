//go:build !race

package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"evenkeel/internal/sim"
)

// zipf brings requests with one of some prompts each, the k-th as popular as 1/k.
type zipf struct {
	sim.Source
	popular []float64 // sums
	rng     *rand.Rand
}

func newZipf(t *testing.T, prompts int, perSecond float64) *zipf {
	t.Helper()
	p, err := sim.NewPoisson(1, sim.PoissonOptions{Rate: perSecond, Work: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	z := &zipf{Source: p, rng: rand.New(rand.NewPCG(1, 27))}
	sum := 0.0
	for k := range prompts {
		sum += 1 / float64(k+1)
		z.popular = append(z.popular, sum)
	}
	return z
}

func (z *zipf) Next(r *sim.Request) bool {
	ok := z.Source.Next(r)
	k, _ := slices.BinarySearch(z.popular, z.rng.Float64()*z.popular[len(z.popular)-1])
	r.Prompt, r.PromptTokens, r.BlockTokens = []uint64{uint64(k + 1)}, 16, 16
	return ok
}

// auditor looks at what a policy does: how full the chosen deployment is, and whether it had the prompt among its last 60.
type auditor struct {
	sim.Policy
	running      []int
	total        int
	last         [][]uint64
	asked, found int
	worst        float64 // requests of a deployment that was chosen, in multiples of the mean
}

func (a *auditor) Learn(n *sim.Notice) {
	a.Policy.Learn(n)
	switch n.Kind {
	case sim.Sent:
		a.running[n.Deployment]++
		a.total++
		if n.At < 10*time.Second {
			break
		}
		a.worst = max(a.worst, float64(a.running[n.Deployment]*len(a.running))/float64(a.total))
		a.asked++
		held := a.last[n.Deployment]
		if i := slices.Index(held, n.Request.Prompt[0]); i >= 0 {
			a.found++
			held = slices.Delete(held, i, i+1)
		}
		held = append(held, n.Request.Prompt[0])
		a.last[n.Deployment] = held[max(0, len(held)-60):]
	case sim.Over:
		a.running[n.Deployment]--
		a.total--
	}
}

// TestBoundedLoads: consistent hashing with loads bounded at 1.25 times the mean keeps to the bound, and finds nearly what plain
// hashing finds, which sends what is popular to one.
func TestBoundedLoads(t *testing.T) {
	const n, inFlight = 8, 800
	f := func(id string) *auditor {
		var a *auditor
		o := sim.Options{Seed: 1, Source: newZipf(t, 2000, inFlight), Policy: func(v sim.Vantage) (sim.Policy, error) {
			p, err := peer(t, id)(v)
			a = &auditor{Policy: p, running: make([]int, n), last: make([][]uint64, n)}
			return a, err
		}}
		for range n {
			q, err := sim.NewQueue(sim.QueueOptions{})
			if err != nil {
				t.Fatal(err)
			}
			o.Servers = append(o.Servers, q)
		}
		run(t, o, 60*time.Second)
		return a
	}
	bounded, plain := f("kubeai"), f("consistent-hash")
	hits := float64(bounded.found) / float64(bounded.asked) / (float64(plain.found) / float64(plain.asked))
	sim.Relation(t, "S27 bounded loads (1.25) on a ring, Zipf 1, 8 servers, 800 in flight: busiest over mean", "≤ 1.27", fmt.Sprintf("%.3f (plain %.2f)", bounded.worst, plain.worst), bounded.worst <= 1.27)
	sim.Relation(t, "S27 the same: prompts among the last 60 of the server, against plain hashing", "≥ 0.94", fmt.Sprintf("%.3f", hits), hits >= .94)
}

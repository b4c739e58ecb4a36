package scale

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
	"evenkeel/internal/strategy"
)

func named(t *testing.T, name string) route.Strategy {
	t.Helper()
	s, err := strategy.New(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestApertureIsEven: whatever the numbers are, each replica knows as much as it was to, and each deployment is known to replicas of the
// same weight in all.
func TestApertureIsEven(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for range 300 {
		replicas, deployments := 1+r.IntN(60), 1+r.IntN(200)
		size := 1 + r.IntN(deployments)
		total := make([]float64, deployments)
		for replica := range replicas {
			sum, seen := 0.0, map[int]bool{}
			for _, m := range Aperture(replica, replicas, deployments, size) {
				if seen[m.Deployment] || !(m.Weight > 0 && m.Weight <= 1) {
					t.Fatalf("replica %d of %d, %d of %d deployments: %+v", replica, replicas, size, deployments, m)
				}
				seen[m.Deployment] = true
				sum += m.Weight
				total[m.Deployment] += m.Weight
			}
			if sum < float64(size)-1e-9 || len(seen) < size {
				t.Fatalf("replica %d of %d knows %d of %d deployments that weigh %v, want %d", replica, replicas, len(seen), deployments, sum, size)
			}
		}
		for i, w := range total {
			if math.Abs(w-total[0]) > 1e-9 {
				t.Fatalf("%d replicas, %d of %d deployments: deployment %d weighs %v, the first one %v", replicas, size, deployments, i, w, total[0])
			}
		}
	}
}

// TestCoverage holds random subsets against the binomial law, and deterministic ones against even loads.
func TestCoverage(t *testing.T) {
	const replicas, deployments, size = 200, 2000, 20
	c := Cover(replicas, deployments, func(replica, _ int) []sim.Member { return Random(1, replica, deployments, size) })
	unknown := deployments * math.Pow(1-float64(size)/deployments, replicas)
	if math.Abs(float64(c.Unknown)-unknown) > 3*math.Sqrt(unknown) || c.Moved != 0 || math.Abs(c.CV-math.Sqrt(.99/2)) > .05 {
		t.Errorf("random subsets: %+v, want %.0f that nobody knows", c, unknown)
	}
	c = Cover(replicas-1, deployments, func(replica, replicas int) []sim.Member { return Aperture(replica, replicas, deployments, size) })
	if c.CV > 1e-9 || c.Unknown != 0 || math.Abs(c.Most-1) > 1e-9 || c.Moved < .05 || c.Moved > .8 {
		t.Errorf("aperture: %+v", c)
	}
}

// TestPlay: few that know all of a deployment's load balance better than many that each know a little, unless they get unequal traffic.
func TestPlay(t *testing.T) {
	play := func(size int, uneven float64) *sim.Result {
		r, err := Play(Work{
			Seed: 1, Replicas: 20, Deployments: 200, Strategy: named(t, "least_connections"), Load: .8, Uneven: uneven, Length: 100 * time.Second,
			Subset: func(replica int) []sim.Member { return Aperture(replica, 20, 200, size) },
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	few, all := play(10, 0), play(200, 0)
	if a, b := few.Response.Mean(), all.Response.Mean(); !(a > 1 && a < .7*b && b < 5) {
		t.Errorf("mean response %.2f s where replicas know 10 deployments, %.2f s where they know all", a, b)
	}
	if a, b := play(10, .5).Response.Mean(), few.Response.Mean(); a < 2*b {
		t.Errorf("mean response %.2f s with unequal traffic, %.2f s with equal", a, b)
	}
	if _, err := Play(Work{Load: 1}); err == nil {
		t.Error("a load of 1 was taken")
	}
}

// TestHerd: with equal seeds those who know the same do the same; with seeds of their own they spread like balls in bins.
func TestHerd(t *testing.T) {
	for _, name := range []string{"least_tokens", "p2c_ewma", "weighted"} {
		for _, alike := range []bool{true, false} {
			got, err := Herd(named(t, name), 50, 50, 1, alike)
			if err != nil {
				t.Fatal(err)
			}
			if alike && got != 50 || !alike && got > 6 {
				t.Errorf("%s, equal seeds %v: the most chosen has %v times the mean", name, alike, got)
			}
		}
	}
}

// TestReturns: what failed for all within a second is tried by all within about as long, or longer.
func TestReturns(t *testing.T) {
	spread, together, err := Returns(named(t, strategy.Default), 100)
	if err != nil {
		t.Fatal(err)
	}
	if spread < 900*time.Millisecond || spread > 5*time.Second || together < 4 || together > 40 {
		t.Errorf("the trials of 100 replicas spread over %v, %d of them within 100 ms", spread, together)
	}
}

// TestWarm: all have answered, and the pools that taught it are gone.
func TestWarm(t *testing.T) {
	r, err := Warm(named(t, "least_tokens"), 25)
	if err != nil {
		t.Fatal(err)
	}
	v := r.View(sim.Epoch)
	if len(v.Deployments) != 25 {
		t.Fatalf("%d deployments, want 25", len(v.Deployments))
	}
	for _, d := range v.Deployments {
		if d.Totals.Successes != answers || d.TTFT == 0 || d.P95 == 0 || d.InFlight != 0 {
			t.Fatalf("%+v", d)
		}
	}
}

//go:build !race

package report

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/study"
	"evenkeel/internal/strategy"
)

// coverage is the share of intervals over five of the runs, drawn again and again, that hold the truth.
func coverage(runs []Run, truth float64, of func(*Run) (mean, standardError float64)) float64 {
	const tries, seeds = 1000, 5
	rng := rand.New(rand.NewPCG(1, 1))
	covered := 0
	for range tries {
		p := &Policy{}
		for _, i := range rng.Perm(len(runs))[:seeds] {
			p.Runs = append(p.Runs, runs[i])
		}
		mean := *p.mean(func(x *Run) float64 { m, _ := of(x); return m })
		if half := p.interval(of); half != nil && math.Abs(mean-truth) <= *half {
			covered++
		}
	}
	return float64(covered) / tries
}

// TestCoverageOfQueue: M/M/1 at a load of 0.8 has a mean response of 5 service times. A run sees some 50 times as much as it takes to
// forget a backlog.
func TestCoverageOfQueue(t *testing.T) {
	s, err := strategy.New("round_robin", nil)
	if err != nil {
		t.Fatal(err)
	}
	var runs []Run
	for seed := range uint64(100) {
		source, err := sim.NewPoisson(seed, sim.PoissonOptions{Rate: .8, Work: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		q, err := sim.NewQueue(sim.QueueOptions{Slots: 1})
		if err != nil {
			t.Fatal(err)
		}
		fleet, err := sim.New(sim.Options{Seed: seed, Servers: []sim.Server{q}, Strategy: s, Source: source, BurnIn: 200 * time.Second, Plan: exchange.Plan{MaxAttempts: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if err := fleet.Finish(2700 * time.Second); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, Run{Seed: seed, Result: fleet.Result()})
	}
	got := coverage(runs, 5, func(x *Run) (float64, float64) { return x.Result.Response.Mean(), x.Result.Response.Error() })
	if got < .9 {
		t.Errorf("%.3f of the intervals hold the mean", got)
	}
	t.Logf("%.3f of the intervals hold the mean", got)
}

// TestCoverageOfConversations: of short runs of simulate's usual traffic and fleet, in which load comes and goes more slowly than a run
// shows. The truth is not known, and taken to be the mean over all runs.
func TestCoverageOfConversations(t *testing.T) {
	w, err := study.Find("multi-turn")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"least_tokens", "round_robin"}
	p, err := study.Prepare(study.Row{Workload: w, Engine: "vllm-8192", N: 4, Rho: .8, Basis: study.NoCache, Requests: 1000}, 0)
	if err != nil {
		t.Fatal(err)
	}
	runs := make([][]Run, len(names))
	for seed := range uint64(60) {
		if p, err = p.With(seed); err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			policy, err := study.Strategy(name)
			if err != nil {
				t.Fatal(err)
			}
			o, err := p.Run(policy, seed, study.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			runs[i] = append(runs[i], Run{Seed: seed, Result: o.Result})
		}
	}
	f := func(what string, of func(*Run) (float64, float64)) {
		t.Helper()
		truth := 0.0
		for i := range runs[1] {
			mean, _ := of(&runs[1][i])
			truth += mean / float64(len(runs[1]))
		}
		got := coverage(runs[1], truth, of)
		if got < .9 {
			t.Errorf("%s: %.3f of the intervals hold %.4f s", what, got, truth)
		}
		t.Logf("%s: %.3f of the intervals hold %.4f s", what, got, truth)
	}
	f(names[1], ttft)
	f("its p99", func(x *Run) (float64, float64) { return x.Result.TTFT.Quantile(.99), math.Inf(1) })
	f("its difference", func(x *Run) (float64, float64) { return sim.Paired(&x.Result.TTFT, &runs[0][x.Seed].Result.TTFT) })
	runs[1] = runs[0]
	f(names[0], ttft)
}

//go:build !race

package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// response is row for the mean response of a run.
func response(t *testing.T, name string, r *Result, want, tolerance float64) {
	t.Helper()
	row(t, name+": mean response", r.Response.Mean(), r.Response.Error(), want, tolerance)
}

// mmn runs n queues at a load and returns what came of it. units is the length of a full run.
func mmn(t *testing.T, s route.Strategy, n int, load, units float64, balancers int) *Result {
	t.Helper()
	burnIn := 100.0
	if load > .95 {
		burnIn = 1000
	}
	if !*full {
		units /= 10
	}
	o := Options{
		Seed: 1, Servers: queues(t, n), Strategy: s, Balancers: balancers, Plan: onlyOnce, BurnIn: seconds(burnIn),
		Source: jobs(t, 1, load*float64(n)),
	}
	return run(t, o, seconds(burnIn+units))
}

// TestRandom: a random one of n queues is an M/M/1 queue, which is what a single deployment is.
func TestRandom(t *testing.T) {
	f := func(load, units, tolerance float64) {
		r := mmn(t, mustStrategy(t, "least_tokens"), 1, load, units, 1)
		name := fmt.Sprintf("S1 random = M/M/1, load %v", load)
		response(t, name, r, 1/(1-load), tolerance)
		row(t, name+": 99th percentile", r.Response.Quantile(.99), 4.6*r.Response.Error(), math.Log(100)/(1-load), 2*tolerance)
	}
	f(.5, 1_000_000, .01)
	f(.9, 5_000_000, .04)
}

// TestShortestQueue: least_connections is join-the-shortest-queue, never better than one queue before all (Erlang C).
func TestShortestQueue(t *testing.T) {
	f := func(n int, units, want float64) {
		r := mmn(t, mustStrategy(t, "least_connections"), n, .9, units, 1)
		response(t, fmt.Sprintf("S7 join the shortest of %d, load 0.9", n), r, want, .02)
		if least := erlangC(n, .9); r.Response.Mean() < least-3*r.Response.Error() {
			t.Errorf("%d queues: mean response %.4f, one queue before all has %.4f", n, r.Response.Mean(), least)
		}
	}
	f(10, 120_000, 1.923)
	f(100, 4_000, 1.068)
}

// erlangC is the mean response of M/M/n with one queue.
func erlangC(n int, load float64) float64 {
	b := 1.0 // Erlang B, by its recursion
	for k := 1; k <= n; k++ {
		b = load * float64(n) * b / (float64(k) + load*float64(n)*b)
	}
	return 1 + b/(1-load*(1-b))/(float64(n)*(1-load))
}

func TestErlangC(t *testing.T) {
	f := func(n int, want float64) {
		if got := erlangC(n, .9); math.Abs(got-want) > .0005 {
			t.Errorf("%d servers at 0.9: %.4f, want %.3f", n, got, want)
		}
	}
	f(1, 10)
	f(10, 1.669)
	f(100, 1.022)
}

// TestRoundRobin: each of n queues gets every n-th request, at nearly even times: D/M/1.
func TestRoundRobin(t *testing.T) {
	f := func(load, units, want float64) {
		r := mmn(t, mustStrategy(t, "round_robin"), 100, load, units, 1)
		response(t, fmt.Sprintf("S8 round robin = D/M/1, load %v", load), r, want, .025)
	}
	f(.5, 1_000, 1.255)
	f(.7, 2_000, 1.876)
	f(.9, 10_000, 5.179)
}

// TestTwoChoices: p2c_ewma that has learned no speeds, since answers are not streamed, is the power of two choices by
// requests in flight. It draws two distinct ones, which is a little better than the textbook's draw with replacement.
func TestTwoChoices(t *testing.T) {
	f := func(n int, load, units, want, tolerance float64) {
		r := mmn(t, mustStrategy(t, "p2c_ewma"), n, load, units, 1)
		response(t, fmt.Sprintf("S2-S6 two distinct of %d, load %v", n, load), r, want, tolerance)
	}
	f(10, .9, 200_000, 2.979, .02)
	f(20, .9, 60_000, 2.782, .02)
	f(100, .9, 6_000, 2.638, .02)
	if *full {
		f(500, .9, 800, 2.611, .01)
	}
}

// drawn is the power of d choices with replacement, as theory has it, by requests in flight.
type drawn int

func (d drawn) String() string { return fmt.Sprintf("drawn_%d", int(d)) }

func (d drawn) Pick(r *route.Round) int {
	best := r.IntN(len(r.Candidates))
	for range int(d) - 1 {
		if i := r.IntN(len(r.Candidates)); r.Candidates[i].InFlight < r.Candidates[best].InFlight {
			best = i
		}
	}
	return best
}

// TestChoicesWithReplacement holds the router and the clock against Mitzenmacher's values.
func TestChoicesWithReplacement(t *testing.T) {
	f := func(name string, d drawn, n int, load, units, want, tolerance float64) *Result {
		r := mmn(t, d, n, load, units, 1)
		response(t, fmt.Sprintf("%s %d choices of %d, load %v", name, d, n, load), r, want, tolerance)
		return r
	}
	f("S6", 2, 10, .9, 200_000, 3.098, .02)
	f("S6", 2, 100, .9, 6_000, 2.664, .02)
	if !*full {
		return
	}
	f("S4", 3, 500, .9, 800, 2.028, .015)
	f("S3", 2, 500, .95, 800, 3.383, .01)
	f("S3", 2, 500, .99, 8_000, 5.432, .02)
	f("S4", 3, 500, .95, 800, 2.535, .015)
	r := f("S2", 2, 500, .9, 800, 2.624, .01)
	least := func(k int) (sum float64) {
		for _, part := range r.Occupancy[k:] {
			sum += part
		}
		return sum
	}
	// What the load of this run was by chance decides more about long queues than anything else, so the busy share is taken for it.
	busy := least(1)
	row(t, "S5 two choices of 500: share with 4 or more", least(4), 0, excess4*math.Pow(busy, 15), .03)
	row(t, "S5 two choices of 500: share with 5 or more", least(5), 0, excess5*math.Pow(busy, 31), .06)
	differs(t, "S5 the same, with 5 or more, as of infinitely many queues", least(5), math.Pow(.9, 31),
		"the published value is the limit; of 500 queues 7 % more are that long, of 2,000 2 %, in this simulator as in a Markov chain without it")
}

// Of finitely many queues more are long than in the limit of infinitely many, where a share load^(2^k-1) has k or more. So much more
// it is of 500 at load 0.9, with 4 and with 5: means of 100 runs of jumpChain over 8,000 units, ± 0.0004 and ± 0.001. It falls as 1/n.
const excess4, excess5 = 1.015, 1.073

// TestExcessOfLongQueues holds these two against one more run.
func TestExcessOfLongQueues(t *testing.T) {
	share := jumpChain(500, .9, 100, 8000)
	f := func(k int, want, tolerance float64) {
		t.Helper()
		if got := share[k] / math.Pow(share[1], math.Exp2(float64(k))-1); math.Abs(got-want) > tolerance {
			t.Errorf("%d or more: %.4f of the limit, want %.3f ± %.3f", k, got, want, tolerance)
		}
	}
	f(4, excess4, .011)
	f(5, excess5, .03)
}

// jumpChain is the power of two choices among n M/M/1 queues as a Markov chain, one step for each arrival and each departure: nothing
// of this package's clock, balancers and servers is in it. It returns the share of queues, over the time after the burn-in, that hold k
// requests or more.
func jumpChain(n int, load, burnIn, units float64) (share [8]float64) {
	rng := rand.New(rand.NewPCG(5, 5))
	var holding [64]float64 // queues with so many requests or more
	queues, busy := make([]int, n), []int{}
	for now := 0.0; now < burnIn+units; {
		rate := load*float64(n) + holding[1]
		stay := rng.ExpFloat64() / rate
		if now += stay; now > burnIn {
			for k := range share {
				share[k] += stay * holding[k] / units / float64(n)
			}
		}
		if rng.Float64()*rate < load*float64(n) {
			i, j := rng.IntN(n), rng.IntN(n)
			if queues[j] < queues[i] {
				i = j
			}
			queues[i]++
			holding[queues[i]]++
			if queues[i] == 1 {
				busy = append(busy, i)
			}
			continue
		}
		at := rng.IntN(len(busy))
		i := busy[at]
		holding[queues[i]]--
		queues[i]--
		if queues[i] == 0 {
			busy[at] = busy[len(busy)-1]
			busy = busy[:len(busy)-1]
		}
	}
	return share
}

// TestBalancers: each of m balancers counts only its own requests.
func TestBalancers(t *testing.T) {
	f := func(m int, units, want float64) {
		r := mmn(t, drawn(2), 20, .9, units, m)
		response(t, fmt.Sprintf("S14 two choices of 20, %d balancers, load 0.9", m), r, want, .03)
	}
	f(1, 50_000, 2.84)
	f(10, 50_000, 4.37)
	f(50, 50_000, 6.31)
}

// TestUnstableRoundRobin: half the fleet is twice as fast as the other half. Round robin asks as much of the slow half as of
// the fast, so that from two thirds of the fleet's capacity on its queue grows for ever; least_connections holds.
func TestUnstableRoundRobin(t *testing.T) {
	const n, load, length = 20, .8, 400 * time.Second
	f := func(strategy string) (early, late float64) {
		var servers []Server
		for i := range n {
			speed := 2.0 / 3
			if i%2 == 1 {
				speed = 4.0 / 3
			}
			servers = append(servers, queue(t, QueueOptions{Slots: 1, Speed: speed}))
		}
		fleet := mustFleet(t, Options{Seed: 1, Servers: servers, Strategy: mustStrategy(t, strategy), Plan: onlyOnce, Source: jobs(t, 1, load*n)})
		slow := func() (sum float64) {
			for i := 0; i < n; i += 2 {
				sum += float64(fleet.InSystem(i)) / (n / 2)
			}
			return sum
		}
		fleet.Run(length)
		early = slow()
		fleet.Run(2 * length)
		return early, slow()
	}
	early, late := f("round_robin")
	relation(t, "S17 round robin on two speeds, load 0.8: the slow half's mean queue at 2T, in multiples of that at T", "≥ 1.8", fmt.Sprintf("%.2f", late/early),
		late >= 1.8*early && early >= 20)
	if _, late = f("least_connections"); late > 5 {
		t.Errorf("least_connections: the slow half's mean queue is %.1f", late)
	}
}

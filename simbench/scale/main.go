// Command scale prints the tables of docs/scale.md: what a decision costs before many deployments, what subsets of them come to, and what many
// replicas do at the same time.
//
//	go run ./simbench/scale [cost|coverage|balance|full|herd|returns ...]
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/scale"
	"evenkeel/internal/strategy"
)

// tables are what can be printed, in order.
var tables = []struct {
	name  string
	print func(io.Writer) error
}{
	{"cost", cost}, {"coverage", coverage}, {"balance", balance}, {"full", full}, {"herd", herd}, {"returns", returns},
}

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// run prints the tables of these names, all if there are none.
func run(w io.Writer, names []string) error {
	var known []string
	asked := map[string]bool{}
	for _, n := range names {
		asked[n] = true
	}
	for _, t := range tables {
		known = append(known, t.name)
		if len(names) > 0 && !asked[t.name] {
			continue
		}
		delete(asked, t.name)
		fmt.Fprintf(w, "## %s\n\n", t.name)
		if err := t.print(w); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		fmt.Fprintln(w)
	}
	for n := range asked {
		return fmt.Errorf("no table is called %q: there are %v", n, known)
	}
	return nil
}

func row(w io.Writer, cells ...any) {
	for _, c := range cells {
		switch c := c.(type) {
		case float64:
			fmt.Fprintf(w, "| %.2f ", c)
		default:
			fmt.Fprintf(w, "| %v ", c)
		}
	}
	fmt.Fprintln(w, "|")
}

func head(w io.Writer, cells ...any) {
	row(w, cells...)
	for i := range cells {
		cells[i] = "--:"
	}
	row(w, cells...)
}

// deployments is the size of the fleet, and replicas that of the balancers before it; one cell of the tables about balance has all of
// them, the others have a tenth of each.
const (
	deployments = 10_000
	replicas    = 1_000
	sampled     = 10
	seed        = 1
)

// sizes are how many deployments a replica knows in the table of the balance.
var sizes = []int{10, 20, 40, 80, 160, 500}

// cost measures decisions: the least of some runs, since others have the machine too.
func cost(w io.Writer) error {
	head(w, "deployments", "least_tokens µs", "p2c_ewma µs", "weighted µs", "KiB per deployment")
	for _, n := range []int{10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000} {
		cells := []any{n}
		kib := 0.0
		for _, name := range []string{"least_tokens", "p2c_ewma", "weighted"} {
			micros, bytes, err := decisions(name, n)
			if err != nil {
				return err
			}
			cells, kib = append(cells, fmt.Sprintf("%.1f", micros)), bytes/1024
		}
		row(w, append(cells, fmt.Sprintf("%.1f", kib))...)
	}
	return nil
}

// decisions returns what choosing one of n deployments and giving it back takes, and what a router holds for each deployment.
func decisions(name string, n int) (micros, bytes float64, err error) {
	s, err := strategy.New(name, nil)
	if err != nil {
		return 0, 0, err
	}
	before := heap()
	router, err := scale.Warm(s, n)
	if err != nil {
		return 0, 0, err
	}
	bytes = float64(heap()-before) / float64(n)
	f := route.Facts{Model: scale.Model, PromptBytes: 4000}
	var lease route.Lease
	var decision route.Decision
	picks := max(50, 100_000/n)
	now := sim.Epoch.Add(time.Minute)
	for round := range 3 {
		began := processorTime()
		for i := range picks {
			f.Seed = uint64(i)
			now = now.Add(time.Millisecond)
			l, refusal := router.Pick(now, route.Query{Facts: &f, Model: scale.Model, Lease: &lease, Decision: &decision})
			if refusal != nil {
				return 0, 0, fmt.Errorf("refused: %v", refusal.Kind)
			}
			l.Done(now, route.Outcome{Verdict: route.Success, Answered: true, Status: 200})
		}
		if took := float64((processorTime() - began).Nanoseconds()) / 1e3 / float64(picks); round == 0 || took < micros {
			micros = took
		}
	}
	runtime.KeepAlive(router)
	return micros, bytes, nil
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools held goes with the second one
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func coverage(w io.Writer) error {
	head(w, "replicas", "subset", "knows", "least load", "most load", "CV", "nobody knows", "new when one joins")
	for _, replicas := range []int{replicas, replicas - 3} {
		for _, size := range []int{10, 20, 40, 160} {
			for _, kind := range []string{"random", "aperture, unweighted", "aperture"} {
				c := scale.Cover(replicas, deployments, func(replica, replicas int) []sim.Member {
					if kind == "random" {
						return scale.Random(seed, replica, deployments, size)
					}
					members := scale.Aperture(replica, replicas, deployments, size)
					for i := range members {
						if kind != "aperture" {
							members[i].Weight = 1
						}
					}
					return members
				})
				row(w, replicas, kind, c.Members, c.Least, c.Most, fmt.Sprintf("%.3f", c.CV), c.Unknown, fmt.Sprintf("%.1f %%", 100*c.Moved))
			}
		}
	}
	return nil
}

// balance plays a tenth of the fleet.
func balance(w io.Writer) error {
	s, err := strategy.New("least_connections", nil)
	if err != nil {
		return err
	}
	head(w, "knows", "replicas per deployment", "mean s", "±", "p99 s", "imbalance", "uneven: mean s", "±", "p99 s", "imbalance")
	replicas, deployments := replicas/sampled, deployments/sampled
	for _, size := range sizes {
		cells := []any{size, size * replicas / deployments}
		for _, uneven := range []float64{0, 0.5} {
			r, err := scale.Play(scale.Work{
				Seed: seed, Replicas: replicas, Deployments: deployments, Strategy: s, Load: 0.8, Uneven: uneven, Length: 100 * time.Second,
				Subset: func(replica int) []sim.Member { return scale.Aperture(replica, replicas, deployments, size) },
			})
			if err != nil {
				return err
			}
			cells = append(cells, r.Response.Mean(), r.Response.Error(), r.Response.Quantile(.99), r.Imbalance)
		}
		row(w, cells...)
	}
	return nil
}

// full plays all replicas and deployments.
func full(w io.Writer) error {
	s, err := strategy.New("least_connections", nil)
	if err != nil {
		return err
	}
	head(w, "replicas", "deployments", "knows", "requests", "mean s", "±", "p99 s", "imbalance")
	for _, size := range []int{20, 40} {
		r, err := scale.Play(scale.Work{
			Seed: seed, Replicas: replicas, Deployments: deployments, Strategy: s, Load: 0.8, Length: 50 * time.Second,
			Subset: func(replica int) []sim.Member { return scale.Aperture(replica, replicas, deployments, size) },
		})
		if err != nil {
			return err
		}
		row(w, replicas, deployments, size, r.Counts.Arrived, r.Response.Mean(), r.Response.Error(), r.Response.Quantile(.99), r.Imbalance)
	}
	return nil
}

func herd(w io.Writer) error {
	const replicas, deployments = 200, 100
	head(w, "strategy", "first requests", "with one seed", "first 10 of each", "with one seed")
	for _, name := range []string{"round_robin", "weighted", "least_connections", "least_tokens", "p2c_ewma", "latency_p95"} {
		s, err := strategy.New(name, nil)
		if err != nil {
			return err
		}
		cells := []any{name}
		for _, rounds := range []int{1, 10} {
			for _, alike := range []bool{false, true} {
				most, err := scale.Herd(s, replicas, deployments, rounds, alike)
				if err != nil {
					return err
				}
				cells = append(cells, fmt.Sprintf("%.1f", most))
			}
		}
		row(w, cells...)
	}
	return nil
}

func returns(w io.Writer) error {
	s, err := strategy.New(strategy.Default, nil)
	if err != nil {
		return err
	}
	head(w, "replicas", "first trial to last", "most within 100 ms")
	for _, n := range []int{10, 100, replicas} {
		spread, together, err := scale.Returns(s, n)
		if err != nil {
			return err
		}
		row(w, n, spread.Round(time.Millisecond), together)
	}
	return nil
}

package strategy

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// What every line of the table must keep to. No strategy is named here.

func forEach(t *testing.T, f func(t *testing.T, e entry, s route.Strategy)) {
	for _, e := range table {
		t.Run(e.name, func(t *testing.T) { f(t, e, build(t, e.name)) })
	}
}

// randomRounds calls f with rounds of many sizes, weights and loads.
func randomRounds(f func(candidates []route.Candidate, facts *route.Facts, draw int, total int64)) {
	rng := rand.New(rand.NewPCG(3, 4))
	weights := [][]float64{{1}, {0.5, 1, 2}, {1e-6, 1e9}, {1e-6, 1, 3.7, 1e9}, {1e9}, {1e-6}}
	for i := range 3000 {
		n := []int{1, 2, 3, 8, 64}[i%5]
		choice := weights[rng.IntN(len(weights))]
		candidates := make([]route.Candidate, n)
		total := int64(0)
		busy := rng.IntN(4)
		for j := range candidates {
			c := &candidates[j]
			c.ID, c.Weight = fmt.Sprintf("e%d/m", j), choice[rng.IntN(len(choice))]
			c.TTFT = 1
			if busy > 0 {
				c.InFlight, c.Work, c.Tokens = rng.IntN(10*busy), rng.IntN(100_000), rng.IntN(100_000)
				c.LastPick, c.RunPicks = rng.Uint64N(1000), rng.Int64N(1000)
				c.TTFT, c.Samples = math.Exp(4*rng.Float64()-3), rng.IntN(100)
				c.Penalty = max(0, 5*rng.Float64()-3)
			}
			if busy == 3 {
				c.InFlight, c.RunPicks = 1<<20, rng.Int64N(1<<40)
			}
			total += c.RunPicks
		}
		f(candidates, &route.Facts{Seed: rng.Uint64(), Model: "m", PromptBytes: rng.IntN(100_000)}, rng.IntN(5), total)
	}
}

func TestPicksACandidateAndSaysWhy(t *testing.T) {
	forEach(t, func(t *testing.T, _ entry, s route.Strategy) {
		randomRounds(func(candidates []route.Candidate, f *route.Facts, draw int, total int64) {
			i := s.Pick(route.NewRound(start, f, draw, candidates, total))
			if i < 0 || i >= len(candidates) {
				t.Fatalf("picked %d of %d", i, len(candidates))
			}
			if len(candidates[i].Noted()) == 0 {
				t.Fatalf("no term is noted for the chosen candidate of %d", len(candidates))
			}
			for j := range candidates {
				for _, term := range candidates[j].Noted() {
					if term.Name == "" || math.IsNaN(term.Value) || math.IsInf(term.Value, 0) {
						t.Fatalf("candidate %d has term %+v", j, term)
					}
				}
			}
		})
	})
}

// TestSameRoundSameAnswer: whatever was asked in between, and by how many at once.
func TestSameRoundSameAnswer(t *testing.T) {
	forEach(t, func(t *testing.T, _ entry, s route.Strategy) {
		var again []func() (got, want int)
		randomRounds(func(candidates []route.Candidate, f *route.Facts, draw int, total int64) {
			before, facts := slices.Clone(candidates), *f
			pick := func() int { return s.Pick(route.NewRound(start, f, draw, slices.Clone(before), total)) }
			want := pick()
			s.Pick(route.NewRound(start, f, draw, candidates, total))
			for i := range candidates {
				c := candidates[i]
				c.Terms = before[i].Terms
				if !reflect.DeepEqual(c.ID, before[i].ID) || c.InFlight != before[i].InFlight || c.Weight != before[i].Weight ||
					c.Work != before[i].Work || c.TTFT != before[i].TTFT || c.RunPicks != before[i].RunPicks || c.LastPick != before[i].LastPick {
					t.Fatalf("Pick changed a candidate from %+v to %+v", before[i], c)
				}
			}
			if !reflect.DeepEqual(facts, *f) {
				t.Fatalf("Pick changed the facts to %+v", *f)
			}
			again = append(again, func() (int, int) { return pick(), want })
		})
		var all sync.WaitGroup
		for g := range 2 {
			all.Go(func() {
				for i := g; i < len(again); i += 2 {
					if got, want := again[len(again)-1-i](); got != want {
						t.Errorf("the same round was answered %d, then %d", want, got)
					}
				}
			})
		}
		all.Wait()
	})
}

// TestDecisionsRecompute from their records alone, over a fleet that is loaded, limited, broken and changed.
func TestDecisionsRecompute(t *testing.T) {
	forEach(t, func(t *testing.T, e entry, s route.Strategy) {
		r := route.New(route.Options{})
		rng := rand.New(rand.NewPCG(5, 6))
		var leases []*route.Lease
		now := start
		for i := range 5000 {
			now = now.Add(time.Duration(rng.IntN(100)) * time.Millisecond)
			if i%500 == 0 {
				spec := route.PoolSpec{Model: "m", Strategy: build(t, e.name)}
				for j := range 1 + rng.IntN(30) {
					d := deployment(fmt.Sprintf("e%d/m", j), []float64{0, 0.5, 1, 2}[rng.IntN(4)])
					d.Limits.InFlight = 3 + rng.IntN(5)
					spec.Deployments = append(spec.Deployments, d)
				}
				adopt(t, r, spec)
			}
			f := route.Facts{Model: "m", Seed: rng.Uint64(), PromptBytes: rng.IntN(8000), MaxOutput: rng.IntN(500)}
			q := route.Query{Facts: &f, Model: "m", Draw: rng.IntN(3)}
			l, refusal := r.Pick(now, q)
			if l == nil {
				if got := refusal.Decision.Recompute(s, &f); got != "" {
					t.Fatalf("recomputing a refusal gave %q", got)
				}
			} else {
				if got := l.Decision().Recompute(s, &f); got != l.Deployment().ID || got != l.Decision().Chosen {
					t.Fatalf("chose %q, recomputed %q", l.Decision().Chosen, got)
				}
				leases = append(leases, l)
			}
			for len(leases) > 20 {
				j := rng.IntN(len(leases))
				o := route.Outcome{Verdict: route.Success, Answered: true, TTFT: time.Duration(rng.IntN(2000)) * time.Millisecond}
				if rng.IntN(10) == 0 {
					o = route.Outcome{Verdict: route.DeploymentFault, Class: "upstream_5xx", Answered: true}
				}
				leases[j].Done(now, o)
				leases = slices.Delete(leases, j, j+1)
			}
		}
		for _, l := range leases {
			l.Done(now, route.Outcome{})
		}
		mustBeIdle(t, r)
	})
}

// TestLimitsHold for every strategy: when all are full, the next one waits; none is sent to "the first" blindly.
func TestLimitsHold(t *testing.T) {
	forEach(t, func(t *testing.T, e entry, _ route.Strategy) {
		ds := equal(3)
		for i := range ds {
			ds[i].Limits.InFlight = 2 + i
		}
		r := build1(t, e.name, ds...)
		c := newClient(t, r)
		running := map[string]int{}
		var leases []*route.Lease
		for range 2 + 3 + 4 {
			l := c.pick()
			running[l.Deployment().ID]++
			leases = append(leases, l)
		}
		if fmt.Sprint(running) != "map[e0/m:2 e1/m:3 e2/m:4]" {
			t.Errorf("running: %v", running)
		}
		f := route.Facts{Model: "m"}
		q := route.Query{Facts: &f, Model: "m"}
		if _, refusal := r.Pick(start, q); refusal == nil || refusal.Kind != route.Saturated {
			t.Errorf("with all full: %+v, want saturated", refusal)
		}
		ticket, _ := r.Wait(start, q, func() {})
		c.success(leases[0])
		l, _ := ticket.Result()
		if l == nil || l.Deployment().ID != leases[0].Deployment().ID {
			t.Fatalf("the waiter got %v, want the place that became free", l)
		}
		c.success(l)
		for _, l := range leases[1:] {
			c.success(l)
		}
		mustBeIdle(t, r)
	})
}

func TestOptionsAreDecodedStrictly(t *testing.T) {
	forEach(t, func(t *testing.T, e entry, s route.Strategy) {
		refuse := errors.New("line 3: unknown option halflife")
		asked := false
		_, err := New(e.name, func(into any) error {
			asked = true
			if v := reflect.ValueOf(into); v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
				t.Errorf("options are decoded into a %T, want a pointer to a struct", into)
			}
			return refuse
		})
		if !asked || !errors.Is(err, refuse) || !strings.Contains(err.Error(), e.name) {
			t.Errorf("asked to decode: %v; error %v, want the decoder's with the strategy's name", asked, err)
		}
		if got := s.(fmt.Stringer).String(); got != e.name {
			t.Errorf("calls itself %q, want %q", got, e.name)
		}
	})
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range Names() {
		if seen[name] {
			t.Errorf("%s is in the table twice", name)
		}
		seen[name] = true
		if Summary(name) == "" {
			t.Errorf("%s has no summary", name)
		}
		build(t, name)
	}
	if !seen[Default] {
		t.Errorf("the default, %s, is not in the table", Default)
	}
	for _, e := range table {
		for _, a := range e.aliases {
			if got := build(t, a).(fmt.Stringer).String(); got != e.name {
				t.Errorf("alias %s builds %s, want %s", a, got, e.name)
			}
		}
	}
}

func TestUnknownName(t *testing.T) {
	for _, name := range []string{"", "leest_tokens", "Weighted", "round robin"} {
		s, err := New(name, nil)
		var unknown *UnknownError
		if s != nil || !errors.As(err, &unknown) || unknown.Name != name || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("New(%q) = %v, %v; want an UnknownError with the name", name, s, err)
		}
		if Summary(name) != "" {
			t.Errorf("%q has a summary", name)
		}
	}
}

// TestEveryStrategyIsDocumented: a section with the five paragraphs, the terms it notes, and a line of the table.
func TestEveryStrategyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/strategies.md")
	if err != nil {
		t.Fatal(err)
	}
	forEach(t, func(t *testing.T, e entry, s route.Strategy) {
		_, section, found := strings.Cut(string(page), "\n## "+e.name+"\n")
		if !found {
			t.Fatalf("docs/strategies.md has no section %q", "## "+e.name)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, paragraph := range []string{"**Optimises.**", "**Use it**", "**It hurts**", "**Options.**", "**Explain shows**"} {
			if !strings.Contains(section, paragraph) {
				t.Errorf("the section lacks %s", paragraph)
			}
		}
		for _, a := range e.aliases {
			if !strings.Contains(section, "`"+a+"`") {
				t.Errorf("the section lacks the alias %s", a)
			}
		}
		if !strings.Contains(string(page), "| [`"+e.name+"`](#"+e.name+")") {
			t.Error("the table at the top lacks its line")
		}
		randomRounds(func(candidates []route.Candidate, f *route.Facts, draw int, total int64) {
			i := s.Pick(route.NewRound(start, f, draw, candidates, total))
			for _, term := range candidates[i].Noted() {
				if !strings.Contains(section, "`"+term.Name+"`") {
					t.Fatalf("the section does not explain the term %q", term.Name)
				}
			}
		})
	})
}

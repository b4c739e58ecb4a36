package route

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestAdoptRefuses what it cannot honour, names it, and changes nothing.
func TestAdoptRefuses(t *testing.T) {
	f := func(want string, specs ...PoolSpec) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{})))
		_, err := r.Adopt(start, specs)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if v := r.View(start); v.Epoch != 1 {
			t.Errorf("epoch %d after a refused fleet, want 1", v.Epoch)
		}
		mustPick(t, r, start, query("m")).Done(start, success())
	}
	weight := func(w float64) PoolSpec {
		d := dep("b/m", Limits{})
		d.Weight = w
		return pool1("m", d)
	}
	f(`model "m" is described twice`, pool1("m"), pool1("m"))
	f(`model "m" has no strategy`, PoolSpec{Model: "m"})
	f(`deployment "b/m": weight -1 is neither 0 nor between 1e-06 and 1e+09`, weight(-1))
	f(`deployment "b/m": weight NaN is neither`, weight(math.NaN()))
	f(`deployment "b/m": weight +Inf is neither`, weight(math.Inf(1)))
	f(`deployment "b/m": weight 1e-07 is neither`, weight(1e-7))
	f(`model "m" names deployment "a/m" twice`, pool1("m", dep("a/m", Limits{}), dep("a/m", Limits{})))
	f(`deployment "a/m": a limit is negative`, pool1("m", dep("a/m", Limits{InFlight: -1})))
	f(`deployment "a/m": a limit is negative`, pool1("m", dep("a/m", Limits{Tokens: -1})))
	f(`deployment "a/m": endpoint "a": a limit is negative`, pool1("m", depWith("a/m", Limits{}, Limits{Tokens: -1})))
	f(`deployment "a/m": models give it different limits or scopes`,
		pool1("m", dep("a/m", Limits{InFlight: 1})), pool1("alias", dep("a/m", Limits{InFlight: 2})))
	f(`deployment "a/n": endpoint "a" has limits`,
		pool1("m", depWith("a/m", Limits{}, Limits{InFlight: 1})), pool1("n", depWith("a/n", Limits{}, Limits{InFlight: 2})))
	many := dep("a/m", Limits{})
	many.Scopes = append(many.Scopes, scope("b"), scope("c"), scope("d"))
	f(`deployment "a/m": 4 scopes, at most 3 are possible`, pool1("m", many))
	twice := dep("a/m", Limits{})
	twice.Scopes = append(twice.Scopes, twice.Scopes[0])
	f(`deployment "a/m": endpoint "a" is named twice`, pool1("m", twice))
}

// TestDeploymentOfTwoModels is one deployment: its load counts together. Weight and turns are each model's own.
func TestDeploymentOfTwoModels(t *testing.T) {
	heavy, off := dep("a/m", Limits{InFlight: 3}), dep("a/m", Limits{InFlight: 3})
	heavy.Weight, off.Weight = 7, 0
	r := newRouter(t, pool1("m", heavy), pool1("off", off, dep("b/m", Limits{})), pool1("alias", dep("a/m", Limits{InFlight: 3}), dep("b/m", Limits{})))
	f := func(model string, weight float64, inFlight int, lastPick uint64) *Lease {
		t.Helper()
		l := mustPick(t, r, start, query(model))
		c := l.Decision().Candidates[0]
		if c.Weight != weight || c.InFlight != inFlight || c.LastPick != lastPick || l.Deployment().Weight != weight {
			t.Errorf("%s: weight %v, in-flight %d, last pick %d; want %v, %d, %d", model, c.Weight, c.InFlight, c.LastPick, weight, inFlight, lastPick)
		}
		return l
	}
	leases := []*Lease{f("m", 7, 0, 0), f("alias", 1, 1, 0), f("m", 7, 2, 1)}
	mustRefuse(t, r, start, query("m"), Saturated)
	if l := mustPick(t, r, start, query("off")); l.Deployment().ID != "b/m" {
		t.Errorf("weight 0: picked %s", l.Deployment().ID)
	}
	for _, l := range leases {
		l.Done(start, success())
	}
	f("alias", 1, 0, 2)
}

// TestRunsAreKeptPerEligibleSet: a set's count goes on when it is eligible again, over Adopt too; a new
// weight, or another strategy, begins at nothing.
func TestRunsAreKeptPerEligibleSet(t *testing.T) {
	spec := func(strategy Strategy, weight float64) PoolSpec {
		d := dep("b/m", Limits{})
		d.Weight = weight
		return PoolSpec{Model: "m", Strategy: strategy, Deployments: []Deployment{dep("a/m", Limits{}), d, dep("c/m", Limits{})}}
	}
	r := newRouter(t, spec(first{}, 1))
	f := func(exclude string, total int64) {
		t.Helper()
		q := query("m")
		q.Facts.ExcludeNames = []string{exclude}
		l := mustPick(t, r, start, q)
		sum := int64(0)
		for _, c := range l.Decision().Candidates {
			sum += c.RunPicks
		}
		if got := l.Decision().RunTotal; got != total || sum != total {
			t.Errorf("without %q: run of %d picks, %d by candidate; want %d", exclude, got, sum, total)
		}
		l.Done(start, success())
	}
	f("", 0)
	f("", 1)
	f("a", 0)
	f("", 2)
	f("b", 0)
	f("a", 1)
	adopt(t, r, start, spec(first{}, 1))
	f("", 3)
	adopt(t, r, start, spec(first{}, 2))
	f("", 0)
	f("b", 1) // b's weight is nothing to those without b
	adopt(t, r, start, spec(seeded{}, 2))
	f("", 0)

}

// TestRunsAreBounded: more sets than are remembered have no run, until one of the others is out of use.
func TestRunsAreBounded(t *testing.T) {
	var ds []Deployment
	for i := range 2 * maxRuns {
		ds = append(ds, dep(fmt.Sprintf("e%d/m", i), Limits{}))
	}
	r := newRouter(t, pool1("m", ds...))
	f := func(i int, want int64) {
		t.Helper()
		l := mustPick(t, r, start, pinned("m", ds[i].ID))
		if got := l.Decision().RunTotal; got != want {
			t.Errorf("set %d has a run of %d picks, want %d", i, got, want)
		}
		l.Done(start, success())
	}
	for round := range 2 {
		for i := range ds {
			want := int64(round)
			if i >= maxRuns {
				want = 0
			}
			f(i, want)
		}
	}
	for i := range runIdle {
		f(0, int64(2+i))
	}
	f(maxRuns, 0)
	f(maxRuns, 1)
	if n := len(r.pools["m"].runs); n != maxRuns {
		t.Errorf("%d runs are remembered, want %d", n, maxRuns)
	}
}

// TestStrategyThatPanics leaves the Router usable: the lock is free, nothing is counted.
func TestStrategyThatPanics(t *testing.T) {
	r := newRouter(t, PoolSpec{Model: "m", Strategy: scored{}, Deployments: []Deployment{dep("a/m", Limits{})}}, pool1("n", dep("a/n", Limits{})))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("picking index -1 did not panic")
			}
		}()
		r.Pick(start, query("m"))
	}()
	mustPick(t, r, start, query("n")).Done(start, success())
	mustBeIdle(t, r, start)
}

func TestNames(t *testing.T) {
	f := func(got fmt.Stringer, want string) {
		t.Helper()
		if got.String() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(Closed, "closed")
	f(Open, "open")
	f(HalfOpen, "half_open")
	f(Success, "success")
	f(DeploymentFault, "deployment_fault")
	f(NotDeploymentFault, "not_deployment_fault")
	f(Saturated, "saturated")
	f(Unavailable, "unavailable")
	f(NoModel, "no_model")
	f(QueueFull, "queue_full")
	f(EndpointScope, "endpoint")
	f(CredentialScope, "credential")
	f(ScopeKind(9), "scope(9)")
}

package route

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// adapter is the deployment of an adapter of the base model at an endpoint.
func adapter(endpoint, name string) Deployment {
	d := dep(endpoint+"/"+name, Limits{})
	d.Base = endpoint + "/base"
	return d
}

// adapted is a Router over endpoints that serve a base model and adapters of it, each of which has room for so many.
func adapted(t *testing.T, room int, endpoints []string, adapters ...string) *Router {
	t.Helper()
	var specs []PoolSpec
	for _, model := range append([]string{"base"}, adapters...) {
		spec := PoolSpec{Model: model, Strategy: foreseeing{}}
		for _, e := range endpoints {
			d := dep(e+"/"+model, Limits{})
			if model != "base" {
				d = adapter(e, model)
			}
			spec.Deployments = append(spec.Deployments, d)
		}
		specs = append(specs, spec)
	}
	r := newRouter(t, specs...)
	for i := range specs[0].Deployments {
		r.Signal(start, endpointOf(specs[0].Deployments[i]), "", withAdapters(told(start, 0, 0), room))
	}
	return r
}

func withAdapters(s Signal, room int, active ...string) Signal {
	s.Adapters = &Adapters{Room: room, Active: active}
	return s
}

// foreseeing is a strategy that takes who is first soonest.
type foreseeing struct{}

func (foreseeing) Foresees() bool { return true }
func (foreseeing) Pick(r *Round) int {
	best := 0
	for i := range r.Candidates {
		if r.Candidates[i].Forecast.first() < r.Candidates[best].Forecast.first() {
			best = i
		}
	}
	return best
}

// loadAt is what a lease's decision expects of loading at a deployment.
func loadAt(t *testing.T, l *Lease, id string) float64 {
	t.Helper()
	for _, c := range l.Decision().Candidates {
		if c.ID == id {
			return c.Forecast.Load
		}
	}
	t.Fatalf("%s is no candidate of %+v", id, l.Decision())
	return 0
}

// TestAdaptersInMemory: who is used was loaded, the one that was not used for longest makes room, and the base model needs none.
func TestAdaptersInMemory(t *testing.T) {
	r := adapted(t, 2, []string{"e"}, "a", "b", "c")
	now := start
	ask := func(model string, want float64) {
		t.Helper()
		now = now.Add(100 * time.Millisecond)
		l := mustPick(t, r, now, query(model))
		if got := loadAt(t, l, "e/"+model); got != want {
			t.Errorf("%s: %v s, want %v", model, got, want)
		}
		l.Done(now, broken()) // teaches nothing about loading
	}
	ask("base", 0)
	ask("a", adapterPrior)
	ask("a", 0)
	ask("b", adapterPrior)
	ask("a", 0)
	ask("c", adapterPrior) // in the place of b
	ask("a", 0)
	ask("b", adapterPrior)
	ask("c", adapterPrior)
	ask("base", 0)
}

// TestAdaptersAreTold: what others use is in memory too, and who has no requests stays there though nobody tells of it.
func TestAdaptersAreTold(t *testing.T) {
	f := func(room int, before, active []string, want ...string) {
		t.Helper()
		e := &engine{hint: &hint{told: withAdapters(Signal{}, room)}, adapters: slices.Clone(before)}
		e.tell(e.hint.told.Adapters)
		e.hint.told = withAdapters(Signal{}, room, active...)
		e.tell(e.hint.told.Adapters)
		if slices.Sort(e.adapters); !slices.Equal(e.adapters, want) {
			t.Errorf("room for %d, %q before, %q active: %q, want %q", room, before, active, e.adapters, want)
		}
	}
	f(2, nil, []string{"a"}, "a")
	f(2, []string{"a"}, nil, "a")
	f(2, []string{"a", "b"}, []string{"b", "c"}, "b", "c")
	f(2, []string{"a", "b"}, []string{"c", "b", "a"}, "a", "b") // c waits
	f(2, []string{"a", "b"}, []string{"c", "d", "e"}, "c", "d")
	f(1, []string{"b", "a"}, nil, "b")
	f(3, []string{"x", "y"}, []string{"a", "b"}, "a", "b", "x")
	f(math.MaxInt, nil, []string{"a"}, "a")
}

// TestAdaptersWaitForRoom: where all that are in memory have requests, one more waits for the first of them to end.
func TestAdaptersWaitForRoom(t *testing.T) {
	r := adapted(t, 2, []string{"e", "f"}, "a", "b", "c")
	var running []*Lease
	for _, model := range []string{"a", "b"} {
		q := query(model)
		q.Facts.Pin, q.Facts.MaxOutput = "e", 100
		running = append(running, mustPick(t, r, start, q))
	}
	l := mustPick(t, r, start, query("c"))
	if e, f := loadAt(t, l, "e/c"), loadAt(t, l, "f/c"); f != adapterPrior || e <= f || l.Deployment().ID != "f/c" {
		t.Errorf("%v s at e, where both places are used, %v at f; it goes to %s", e, f, l.Deployment().ID)
	}
	l.Done(start, broken())
	running[0].Done(at(time.Second), broken())
	r.Signal(at(time.Second), endpointOf(dep("e/base", Limits{})), "", withAdapters(told(at(time.Second), 2, 0), 2, "b"))
	q := query("c")
	q.Facts.Pin = "e"
	l = mustPick(t, r, at(time.Second), q)
	if got := loadAt(t, l, "e/c"); got != adapterPrior {
		t.Errorf("%v s once one place is free", got)
	}
	l.Done(at(time.Second), broken())
	running[1].Done(at(time.Second), broken())

	r.Signal(at(2*time.Second), endpointOf(dep("e/base", Limits{})), "", withAdapters(told(at(2*time.Second), 2, 0), 2, "x", "y"))
	l = mustPick(t, r, at(2*time.Second), q)
	if got := loadAt(t, l, "e/c"); got <= adapterPrior {
		t.Errorf("%v s where others use both places", got)
	}
	l.Done(at(2*time.Second), broken())
}

// TestLoadingIsLearned from requests that waited for nothing else, for all adapters of an engine; never to be nothing for good.
func TestLoadingIsLearned(t *testing.T) {
	for _, seconds := range []float64{0.05, 3} {
		r := adapted(t, 1, []string{"e"}, "a", "b")
		now := start
		for i := range 60 {
			model := [...]string{"a", "base", "b", "base"}[i%4]
			q := query(model)
			q.Facts.Stream = true
			l := mustPick(t, r, now, q)
			ttft := 10 * time.Millisecond
			if model != "base" {
				ttft += time.Duration(seconds * 1e9)
			}
			l.FirstToken(now.Add(ttft))
			o := success()
			o.TTFT = ttft
			now = now.Add(ttft)
			l.Done(now, o)
			now = now.Add(time.Minute)
		}
		l := mustPick(t, r, now, query("a"))
		if got := loadAt(t, l, "e/a"); got <= 0 || math.Abs(got-seconds) > 0.2*seconds+0.02 {
			t.Errorf("loading takes %v s, and is taken for %v", seconds, got)
		}
		l.Done(now, broken())
	}
}

// TestAdaptersShareAnEngine: a prompt for one waits behind those for the others and for the base model, and is in the same cache.
func TestAdaptersShareAnEngine(t *testing.T) {
	r := adapted(t, 4, []string{"e"}, "a", "b")
	l := mustPick(t, r, start, query("a"))
	for _, model := range []string{"b", "base"} {
		next := mustPick(t, r, start, query(model))
		if c := next.Decision().Candidates[0]; c.Forecast.Wait-c.Forecast.Load <= 0 {
			t.Errorf("%s waits for nothing behind a: %+v", model, c.Forecast)
		}
		next.Done(start, broken())
	}
	l.Done(start, broken())
	if n := len(r.engines); n != 1 {
		t.Errorf("%d engines", n)
	}
}

// TestEnginesComeAndGo with their deployments: a lease ends at the engine where it began, though its deployment has turned out to be an
// adapter meanwhile, and an engine is forgotten with the last of its own.
func TestEnginesComeAndGo(t *testing.T) {
	alone := dep("e/a", Limits{})
	r := newRouter(t, pool1("a", alone), pool1("base", dep("e/base", Limits{})))
	q := query("a")
	q.Facts.Stream = true
	l := mustPick(t, r, start, q)
	adopt := func(specs ...PoolSpec) {
		t.Helper()
		if _, err := r.Adopt(start, specs); err != nil {
			t.Fatal(err)
		}
	}
	adopt(pool1("a", adapter("e", "a")), pool1("base", dep("e/base", Limits{})))
	if len(r.engines) != 1 {
		t.Errorf("%d engines, of a model and its adapter", len(r.engines))
	}
	second := mustPick(t, r, start, q)
	l.FirstToken(start)
	l.Progress(at(time.Second), 1000)
	l.Done(at(time.Second), success())
	for k, e := range r.engines {
		if e.running != 1 || e.line.waiting != 1 {
			t.Errorf("%v: %d run there, %d wait", k, e.running, e.line.waiting)
		}
	}
	adopt(pool1("base", dep("e/base", Limits{})))
	second.Done(at(time.Second), broken())
	adopt()
	if len(r.engines) != 0 {
		t.Errorf("%d engines are left behind", len(r.engines))
	}
}

// TestRanksAreEngines: each has what its signal says, limits and the breaker of the endpoint are shared, and names choose among them.
func TestRanksAreEngines(t *testing.T) {
	var spec PoolSpec
	for rank := range 3 {
		d := dep(fmt.Sprintf("gpu#%d/m", rank), Limits{})
		d.Endpoint, d.URL, d.Rank = "gpu", "http://gpu", fmt.Sprint(rank)
		d.Scopes = []Scope{{Kind: EndpointScope, Name: "gpu", URL: "http://gpu", Limits: Limits{InFlight: 4}}}
		spec.Deployments = append(spec.Deployments, d)
	}
	spec.Model, spec.Strategy = "m", foreseeing{}
	r := newRouter(t, spec)
	scope := spec.Deployments[0].Scopes[0]
	mustPick(t, r, start, query("m")).Done(start, success()) // what a prompt takes
	for rank, waiting := range []int{9, 0, 9} {
		s := told(start, 5, waiting)
		s.Rank = fmt.Sprint(rank)
		r.Signal(start, scope, "", s)
	}
	if whole := told(start, 50, 50); r.Signal(start, scope, "", whole) != nil || node1(t, r, start, "gpu#1/m").Signal.Running != 5 {
		t.Error("what is told of no rank is taken for one's own")
	}
	l := mustPick(t, r, start, query("m"))
	if l.Deployment().Rank != "1" {
		t.Errorf("it goes to %s, where others wait", l.Deployment().ID)
	}
	leases := []*Lease{l}
	for name, want := range map[string]string{"gpu#2": "gpu#2/m", "gpu#0/m": "gpu#0/m"} {
		q := query("m")
		q.Facts.Pin = name
		l := mustPick(t, r, start, q)
		if leases = append(leases, l); l.Deployment().ID != want {
			t.Errorf("pinned to %s it goes to %s", name, l.Deployment().ID)
		}
	}
	q := query("m")
	q.Facts.ExcludeNames = []string{"gpu#0", "gpu#1", "gpu#2/m"}
	if _, refusal := r.Pick(start, q); refusal == nil {
		t.Error("all are excluded, and one is chosen")
	}
	leases = append(leases, mustPick(t, r, start, query("m")))
	if _, refusal := r.Pick(start, query("m")); refusal == nil || refusal.Kind != Saturated {
		t.Errorf("%+v, though four run there", refusal)
	}
	fewer := spec
	fewer.Deployments = spec.Deployments[:1]
	for _, s := range []PoolSpec{fewer, spec} { // with another number of ranks nothing that runs is forgotten
		adopt(t, r, start, s)
		if n := scopeView(t, r, start, "gpu").InFlight; n != 4 || len(r.engines) != 3 {
			t.Errorf("with %d ranks %d run there, at %d engines", len(s.Deployments), n, len(r.engines))
		}
	}
	r.Observe(start, scope, false)
	if _, refusal := r.Pick(start, query("m")); refusal == nil || refusal.Kind != Unavailable {
		t.Errorf("%+v, though nobody answers there", refusal)
	}
	for _, l := range leases {
		l.Done(start, success())
	}
	mustBeIdle(t, r, start)
}

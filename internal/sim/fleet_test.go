package sim

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// eventful are options for a run in which nearly everything happens: deployments break, leave and come back, requests wait,
// are hedged, tried again and time out.
func eventful(t *testing.T, strategy string, seed uint64) Options {
	t.Helper()
	var servers []Server
	for range 6 {
		servers = append(servers, queue(t, QueueOptions{Slots: 4}))
	}
	source, err := NewPoisson(seed, PoissonOptions{Rate: 20, CV: 3, Work: time.Second, Prompt: Law{500, 1}, Output: Law{100, 1}})
	if err != nil {
		t.Fatal(err)
	}
	at := func(s, deployment int, k FaultKind) Fault {
		return Fault{At: time.Duration(s) * time.Second, Deployment: deployment, Kind: k}
	}
	return Options{
		Seed: seed, Servers: servers, Strategy: mustStrategy(t, strategy), Balancers: 2, Stream: true, Source: source,
		Limits: route.Limits{InFlight: 4}, Router: route.Options{MaxWaiting: 30}, BurnIn: 10 * time.Second,
		Plan:   exchange.Plan{MaxAttempts: 3, Repeatable: true, Hedge: true, Deadlines: exchange.Deadlines{Deadline: 8 * time.Second, FirstToken: 6 * time.Second}},
		Budget: Budget{Ratio: .2, Smallest: 10, Hedges: .1},
		Faults: []Fault{at(20, 0, Down), at(40, 0, Mended), at(30, 1, Erring), at(60, 1, Mended), at(50, 2, Leaving), at(90, 2, Coming),
			{At: 70 * time.Second, Deployment: 3, Kind: Mended, Server: queue(t, QueueOptions{Slots: 4})}},
	}
}

// TestDeterminism: equal options give bit-identical results, whatever the number of processors.
func TestDeterminism(t *testing.T) {
	for _, strategy := range []string{"p2c_ewma", "least_tokens"} {
		alike(t, strategy, func() Options { return eventful(t, strategy, 5) })
	}
}

// TestConservation: whatever happens, each request ends once, tokens that go in come out, and nothing is left anywhere.
func TestConservation(t *testing.T) {
	for seed := range uint64(6) {
		recorded, repeated := map[string]bool{}, 0
		o := eventful(t, []string{"least_tokens", "p2c_ewma", "round_robin"}[seed%3], seed)
		o.Record = func(_ *Request, r *exchange.Record) {
			if recorded[r.Facts.ID] {
				t.Errorf("request %s ended twice", r.Facts.ID)
			}
			recorded[r.Facts.ID] = true
			if n := len(r.Attempts); n > 1 && !r.Attempts[n-1].Hedge {
				repeated++
			}
		}
		fleet := mustFleet(t, o)
		if err := fleet.Finish(2 * time.Minute); err != nil {
			t.Fatal(err)
		}
		c := fleet.Result().Counts
		if c.Arrived != c.Done+c.Failed || c.Arrived != len(recorded) || c.Done < 1000 {
			t.Errorf("seed %d: %+v, %d records", seed, c, len(recorded))
		}
		if c.PromptTokens != c.AskedPrompt || c.OutputTokens != c.AskedOutput {
			t.Errorf("seed %d: tokens in and out differ: %+v", seed, c)
		}
		if c.Failed == 0 || c.Hedges == 0 || repeated == 0 {
			t.Errorf("seed %d: nothing happened: %+v, %d repeated", seed, c, repeated)
		}
		for i := range o.Servers {
			if n := fleet.InSystem(i); n != 0 {
				t.Errorf("seed %d: deployment %d still has %d", seed, i, n)
			}
		}
		for b := range o.Balancers {
			for _, d := range fleet.View(b).Deployments {
				if d.InFlight != 0 || d.Tokens != 0 {
					t.Errorf("seed %d: balancer %d still counts %d requests at %s", seed, b, d.InFlight, d.ID)
				}
			}
		}
	}
}

// TestPoliciesSeeTheSameRequests: what arrives when does not depend on the strategy.
func TestPoliciesSeeTheSameRequests(t *testing.T) {
	seen := func(strategy string) (all []Request) {
		o := eventful(t, strategy, 3)
		byID := map[string]Request{}
		o.Record = func(q *Request, r *exchange.Record) { byID[r.Facts.ID] = *q }
		fleet := mustFleet(t, o)
		if err := fleet.Finish(time.Minute); err != nil {
			t.Fatal(err)
		}
		for i := range len(byID) {
			all = append(all, byID[strconv.Itoa(i)])
		}
		return all
	}
	if a, b := seen("least_tokens"), seen("round_robin"); len(a) < 500 || !reflect.DeepEqual(a, b) {
		t.Errorf("%d and %d requests, which differ", len(a), len(b))
	}
}

// TestNeverServed: requests that nobody ends are told of.
func TestNeverServed(t *testing.T) {
	fleet := mustFleet(t, Options{
		Servers: []Server{silent{}}, Strategy: mustStrategy(t, "least_tokens"), Plan: onlyOnce, Source: jobs(t, 1, 1),
	})
	if err := fleet.Finish(10 * time.Second); err == nil || !strings.Contains(err.Error(), "never served") {
		t.Errorf("got %v", err)
	}
}

// silent takes jobs and never does one.
type silent struct{}

func (silent) Submit(time.Duration, Job) error   { return nil }
func (silent) Cancel(time.Duration, uint64) bool { return false }
func (silent) Next() (time.Duration, bool)       { return 0, false }
func (silent) Step(time.Duration) []Report       { return nil }

func TestOptions(t *testing.T) {
	f := func(want string, change func(*Options)) {
		t.Helper()
		o := Options{Servers: queues(t, 2), Strategy: mustStrategy(t, "least_tokens"), Source: jobs(t, 1, 1)}
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f("at least one server", func(o *Options) { o.Servers = nil })
	f("1 weights for 2 servers", func(o *Options) { o.Weights = []float64{1} })
	f("weight -1", func(o *Options) { o.Weights = []float64{1, -1} })
	f("strategy", func(o *Options) { o.Strategy = nil })
	f("source", func(o *Options) { o.Source = nil })
	f("-1 balancers", func(o *Options) { o.Balancers = -1 })
	f("burn-in of -1s", func(o *Options) { o.BurnIn = -time.Second })
	f("about deployment 2", func(o *Options) { o.Faults = []Fault{{Deployment: 2}} })
	f("cannot be slowed", func(o *Options) { o.Faults = []Fault{{Kind: Slowed, Factor: 2}} })
	f("unknown kind 9", func(o *Options) { o.Faults = []Fault{{Kind: 9}} })
}

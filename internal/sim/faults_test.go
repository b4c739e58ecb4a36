//go:build !race

package sim

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// alone is what a server is like that serves all at once: requests do not feel each other.
func alone(t *testing.T, n int) []Server {
	t.Helper()
	var servers []Server
	for range n {
		servers = append(servers, queue(t, QueueOptions{}))
	}
	return servers
}

// hedges runs n requests that take an exponential time each, hedged or not.
func hedges(t *testing.T, seed uint64, n int, hedge bool) *Result {
	t.Helper()
	const perSecond = 50
	return run(t, Options{
		Seed: seed, Servers: alone(t, 10), Strategy: mustStrategy(t, "round_robin"), Stream: true, Source: jobs(t, seed, perSecond),
		Plan: exchange.Plan{MaxAttempts: 2, Hedge: hedge}, Budget: Budget{Ratio: .5, Smallest: 10, Hedges: .5}, BurnIn: time.Minute,
	}, seconds(60+float64(n)/perSecond))
}

// hedgeReference is what hedging at the 95th percentile of the last hundred known times comes to, told without the product:
// requests that take an exponential time each, one after the other. Of an attempt that was given up it is known only that it
// would have taken longer, and the winning second attempt is one of the times too: so more are hedged than the 5 % that a
// percentile which is known would give.
func hedgeReference(n int) (extra, p99, p999 float64) {
	rng := stream(7, forService)
	var known, took []float64
	hedged := 0
	for range n {
		first := rng.ExpFloat64()
		learned := []float64{first}
		if len(known) >= 20 {
			last := slices.Clone(known[max(0, len(known)-100):])
			slices.Sort(last)
			if p := last[(len(last)*95-1)/100]; first > p {
				hedged++
				second := rng.ExpFloat64()
				if p+second < first {
					learned = []float64{p + second, second}
					first = p + second
				}
			}
		}
		known = append(known, learned...)
		took = append(took, first)
	}
	slices.Sort(took)
	return float64(hedged) / float64(n), took[n*99/100], took[n*999/1000]
}

// TestHedge: a second attempt begins when the first takes longer than 95 of the last 100.
func TestHedge(t *testing.T) {
	n := 100_000
	if *full {
		n = 1_000_000
	}
	r := hedges(t, 1, n, true)
	extra, p99, p999 := hedgeReference(1_000_000)
	row(t, "S18 hedge at a learned p95, Exp(1): extra attempts", float64(r.Counts.Hedges)/float64(r.Counts.Arrived), 0, extra, .05)
	row(t, "S18 hedge at a learned p95, Exp(1): p99", r.TTFT.Quantile(.99), 0, p99, .02)
	row(t, "S18 hedge at a learned p95, Exp(1): p99.9", r.TTFT.Quantile(.999), 0, p999, .03)
	const why = "the product learns p95 from the last 100 answers, and of an attempt that was given up it knows only that it would have taken longer: more are hedged"
	differs(t, "S18 hedge at p95, as if it were known: extra attempts", float64(r.Counts.Hedges)/float64(r.Counts.Arrived), .05, why)
	differs(t, "S18 hedge at p95, as if it were known: p99", r.TTFT.Quantile(.99), 3.801, "likewise, and so its tail is shorter")
	differs(t, "S18 hedge at p95, as if it were known: p99.9", r.TTFT.Quantile(.999), 4.952, "likewise")
	plain := hedges(t, 1, n, false)
	row(t, "S18 not hedged: p99", plain.TTFT.Quantile(.99), 0, math.Log(100), .02)
	if mean, e := Paired(&plain.TTFT, &r.TTFT); mean < 3*e {
		t.Errorf("hedging saves %.4f s in the mean, with a standard error of %.4f", mean, e)
	}
}

// TestRetryBudget: every deployment fails every request. What the fleet is asked for is bounded by the budget.
func TestRetryBudget(t *testing.T) {
	const n, perSecond, length = 5, 100, 600 * time.Second
	f := func(name string, ratio, want float64) {
		var faults []Fault
		for i := range n {
			faults = append(faults, Fault{Deployment: i, Kind: Erring})
		}
		fleet := mustFleet(t, Options{
			Seed: 1, Servers: alone(t, n), Strategy: mustStrategy(t, "least_connections"), Source: jobs(t, 1, perSecond), Faults: faults,
			Plan: exchange.Plan{MaxAttempts: 3, Repeatable: true}, Budget: Budget{Ratio: ratio, Smallest: 10},
			Router: route.Options{Health: route.Health{TripAfter: math.MaxInt, ErrorRate: 2}}, // breakers would spare the fleet first
		})
		if err := fleet.Finish(length); err != nil {
			t.Fatal(err)
		}
		c := fleet.Result().Counts
		if c.Failed != c.Arrived || c.Done != 0 || c.Arrived < 50_000 {
			t.Fatalf("%+v: every request was to fail", c)
		}
		row(t, "S21 outage, 3 attempts, "+name+": attempts per request", float64(c.Dispatched)/float64(c.Arrived), 0, want, .01)
	}
	f("budget 10 %", .1, 1.1)
	f("no budget", 3, 3)
}

// solo is a router before deployments whose requests the test answers itself.
type solo struct {
	t    *testing.T
	r    *route.Router
	now  time.Time
	seed uint64
}

func newSolo(t *testing.T, strategy string, h route.Health, weights ...float64) *solo {
	t.Helper()
	s := &solo{t: t, r: route.New(route.Options{Health: h}), now: Epoch}
	var ds []route.Deployment
	for i, w := range weights {
		ds = append(ds, route.Deployment{ID: fmt.Sprintf("e%d/m", i), Endpoint: fmt.Sprintf("e%d", i), URL: "http://e", Model: model, Weight: w})
	}
	if _, err := s.r.Adopt(s.now, []route.PoolSpec{{Model: model, Deployments: ds, Strategy: mustStrategy(t, strategy)}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// pick sends a request, which the deployment named bad fails. It returns where it went.
func (s *solo) pick(bad string) string {
	s.t.Helper()
	s.seed++
	l, refusal := s.r.Pick(s.now, route.Query{Model: model, Facts: &route.Facts{Seed: s.seed, Model: model}})
	if refusal != nil {
		s.t.Fatalf("refused: %v, cuts %v", refusal.Kind, refusal.Decision.CutCounts())
	}
	id := l.Deployment().ID
	o := route.Outcome{Verdict: route.Success, Answered: true, Status: 200}
	if id == bad {
		o = route.Outcome{Verdict: route.DeploymentFault, Class: "server_error", Answered: true, Status: 500}
	}
	l.Done(s.now, o)
	return id
}

func (s *solo) breaker(id string) route.BreakerView {
	s.t.Helper()
	for _, d := range s.r.View(s.now).Deployments {
		if d.ID == id {
			return d.Breaker
		}
	}
	s.t.Fatalf("no deployment %s", id)
	return route.BreakerView{}
}

// until sends requests until the deployment's breaker is in a state that ok accepts.
func (s *solo) until(id, bad string, ok func(route.BreakerView) bool) route.BreakerView {
	s.t.Helper()
	for range 100_000 {
		if b := s.breaker(id); ok(b) {
			return b
		}
		s.pick(bad)
		s.now = s.now.Add(100 * time.Millisecond)
	}
	s.t.Fatalf("%s stays %+v", id, s.breaker(id))
	return route.BreakerView{}
}

// TestSlowStart: a quarter of the way through it, a deployment that came back gets a quarter of its traffic.
func TestSlowStart(t *testing.T) {
	s := newSolo(t, "round_robin", route.Health{SlowStart: time.Minute}, 1, 1, 1, 1)
	s.until("e0/m", "e0/m", func(b route.BreakerView) bool { return b.State == route.Open })
	s.until("e0/m", "", func(b route.BreakerView) bool { return b.State == route.SlowStart })
	back := s.now.Add(-100 * time.Millisecond) // the trial that closed it came then
	s.now = back.Add(15 * time.Second)
	const n = 40_000
	picks := 0
	for range n {
		if s.pick("") == "e0/m" {
			picks++
		}
	}
	got := float64(picks) / n * 4
	row(t, "S35 slow start of 60 s, after 15 s: part of its usual traffic", got, 0, .25, .08)
}

// TestEjectionSchedule: the times out of a deployment that always fails.
func TestEjectionSchedule(t *testing.T) {
	s := newSolo(t, "round_robin", route.Health{ResetAfter: 30 * time.Second, LongestReset: 300 * time.Second}, 1, 1, 1, 1)
	var got []float64
	for n := range uint64(12) {
		b := s.until("e0/m", "e0/m", func(b route.BreakerView) bool { return b.State == route.Open && b.Openings == n+1 })
		got = append(got, b.Out.Seconds())
	}
	var want []float64
	for i := range got {
		want = append(want, min(30*float64(i+1), 300))
	}
	relation(t, "S37 seconds out of a deployment that always fails", fmt.Sprint(want), fmt.Sprint(got), slices.Equal(got, want))
}

// TestPanic: when less than half of the fleet is well, all get traffic.
func TestPanic(t *testing.T) {
	f := func(well int, all bool) {
		weights := make([]float64, 100)
		for i := range weights {
			weights[i] = 1
		}
		s := newSolo(t, "round_robin", route.Health{PanicThreshold: .5, ResetAfter: time.Hour}, weights...)
		for i := well; i < 100; i++ {
			id := fmt.Sprintf("e%d/m", i)
			for range 5 {
				s.seed++
				l, _ := s.r.Pick(s.now, route.Query{Model: model, Facts: &route.Facts{Seed: s.seed, Model: model, Pin: id}})
				if l == nil {
					t.Fatalf("%s is out before its time", id)
				}
				l.Done(s.now, route.Outcome{Verdict: route.DeploymentFault, Class: "server_error", Answered: true, Status: 500})
			}
		}
		used := map[string]bool{}
		for range 1000 {
			used[s.pick("")] = true
		}
		want := map[bool]int{true: 100, false: well}[all]
		relation(t, fmt.Sprintf("S38 panic below 50 %%, %d of 100 healthy: who gets traffic", well), fmt.Sprint(want), fmt.Sprint(len(used)), len(used) == want)
	}
	f(49, true)
	f(51, false)
}

// TestWeightedSpread: weights 1, 2 and 3 get exactly their shares.
func TestWeightedSpread(t *testing.T) {
	s := newSolo(t, "weighted", route.Health{}, 1, 2, 3)
	picks := map[string]int{}
	for range 6000 {
		picks[s.pick("")]++
	}
	got := [3]int{picks["e0/m"], picks["e1/m"], picks["e2/m"]}
	ok := true
	for i, n := range got {
		ok = ok && max(n-1000*(i+1), 1000*(i+1)-n) <= 2
	}
	relation(t, "S41 weights 1:2:3, picks of 6000", "[1000 2000 3000] ± 2", fmt.Sprint(got), ok)
}

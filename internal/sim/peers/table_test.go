package peers

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/sim"
)

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	last := ""
	for _, e := range Table() {
		id := e.ID()
		if seen[id] || e.Name == "" || e.Source == "" || e.Summary == "" || strings.Contains(e.Name, "/") {
			t.Errorf("%q: %+v", id, e)
		}
		if e.Name != last && e.Variant != "" {
			t.Errorf("%s comes before the default of %s", id, e.Name)
		}
		seen[id], last = true, e.Name
		if got, err := Find(id); err != nil || got.ID() != id {
			t.Errorf("Find(%q): %v, %v", id, got.ID(), err)
		}
		if _, err := e.New(sim.Vantage{}); err == nil || !strings.Contains(err.Error(), id+": there are no deployments") {
			t.Errorf("%s before nothing: %v", id, err)
		}
		if _, err := e.New(sim.Vantage{IDs: []string{"a"}}); err == nil || !strings.Contains(err.Error(), "it must see requests, and 1 servers") {
			t.Errorf("%s that sees nothing: %v", id, err)
		}
	}
	if _, err := Find("nginx"); err == nil || !strings.Contains(err.Error(), `"nginx": there are llm-d, llm-d/token-load`) {
		t.Errorf("an unknown one: %v", err)
	}
	if Table()[0].Name = "changed"; Table()[0].Name != "llm-d" {
		t.Error("a caller can change the table")
	}
}

// account lets a test see the books of any policy.
func (b *books) account() *books { return b }

// fleet is four engines behind two balancers that tell each other what they do. Requests are retried and hedged; one engine dies, comes back
// cold, and another one slows.
func fleet(t *testing.T, e Entry, preset string, keep func(sim.Policy)) *sim.Result {
	t.Helper()
	c, err := engine.Preset(preset)
	if err != nil {
		t.Fatal(err)
	}
	server := func() sim.Server {
		s, err := sim.NewEngine(c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	src, err := sim.NewSessions(1, sim.SessionOptions{
		Rate: 3, Turns: sim.Law{Mean: 5, CV: 1}, Systems: 5, Zipf: 1, System: sim.Law{Mean: 1000, CV: .5}, Question: sim.Law{Mean: 100, CV: 1},
		Answer: sim.Law{Mean: 100, CV: 1}, Gap: sim.Law{Mean: 10, CV: 1}, Block: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	o := sim.Options{
		Seed: 1, Servers: []sim.Server{server(), server(), server(), server()}, Balancers: 2, Stream: true, Source: src, BurnIn: 5 * time.Second,
		Scrapes: sim.Scrapes{Every: 500 * time.Millisecond}, Sharing: sim.Sharing{On: true, Delay: 50 * time.Millisecond},
		Plan:   exchange.Plan{MaxAttempts: 3, Repeatable: true, Hedge: true, Deadlines: exchange.Deadlines{Deadline: time.Minute}},
		Budget: sim.Budget{Ratio: .2, Smallest: 10, Hedges: .05},
		Policy: func(v sim.Vantage) (sim.Policy, error) {
			p, err := e.New(v)
			if err == nil {
				keep(p)
			}
			return p, err
		},
	}
	o.Faults = []sim.Fault{
		{At: 10 * time.Second, Deployment: 1, Kind: sim.Down},
		{At: 20 * time.Second, Deployment: 1, Kind: sim.Mended, Server: server()},
		{At: 25 * time.Second, Deployment: 2, Kind: sim.Slowed, Factor: 5},
		{At: 35 * time.Second, Deployment: 2, Kind: sim.Slowed, Factor: 1},
	}
	f, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(40 * time.Second); err != nil {
		t.Fatal(err)
	}
	f.Run(f.Now() + time.Second) // what the balancers tell each other arrives
	return f.Result()
}

// TestEachServes: every policy serves a fleet in which things break, the same way each time, and when all is over nothing is left in its
// books.
func TestEachServes(t *testing.T) {
	for i, e := range Table() {
		preset := []string{"vllm-8192", "sglang", "dynamo-mock"}[i%3]
		t.Run(strings.ReplaceAll(e.ID(), "/", "_"), func(t *testing.T) {
			var first *sim.Result
			for _, processors := range []int{1, 2} {
				var ps []sim.Policy
				before := runtime.GOMAXPROCS(processors)
				r := fleet(t, e, preset, func(p sim.Policy) { ps = append(ps, p) })
				runtime.GOMAXPROCS(before)
				if first == nil {
					first = r
				} else if !reflect.DeepEqual(first, r) {
					t.Error("two runs differ")
				}
				for _, p := range ps {
					if err := settled(p); err != nil {
						t.Error(err)
					}
					if s, ok := p.(fmt.Stringer); !ok || s.String() == "" {
						t.Error("it has no name for decisions")
					}
				}
			}
			if c := first.Counts; c.Arrived != c.Done+c.Failed || c.Done < 150 || c.Failed > c.Done/10 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// settled returns an error if a policy still counts something, after all is over.
func settled(p sim.Policy) error {
	b := p.(interface{ account() *books }).account()
	if len(b.open) != 0 {
		return fmt.Errorf("%d attempts are in the books", len(b.open))
	}
	for d, w := range b.workers {
		if w.running != 0 || w.queued != 0 || w.uncached != 0 || w.held != 0 {
			return fmt.Errorf("deployment %d: %+v", d, w)
		}
	}
	switch p := p.(type) {
	case *dynamo:
		if len(p.active.holders) != 0 {
			return fmt.Errorf("%d blocks are active: %v", len(p.active.holders), p.active.count)
		}
	case *smetric:
		for d, q := range p.queued {
			if q != 0 || len(p.costs) != 0 {
				return fmt.Errorf("deployment %d has %v tokens queued, of %d attempts", d, q, len(p.costs))
			}
		}
	}
	return nil
}

// TestPickChangesNoBooks: what a policy has in its books follows from notices alone, however often it is asked.
func TestPickChangesNoBooks(t *testing.T) {
	for _, e := range Table() {
		r := newRig(t, e.ID(), 3)
		r.send(1, long(1, 10))
		b := r.p.(interface{ account() *books }).account()
		before := append([]worker(nil), b.workers...)
		for range 5 {
			r.pick(long(1, 5))
		}
		if !reflect.DeepEqual(before, b.workers) || len(b.open) != 1 {
			t.Errorf("%s: %+v, before %+v", e.ID(), b.workers, before)
		}
	}
}

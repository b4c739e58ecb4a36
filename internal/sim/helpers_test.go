package sim

import (
	"reflect"
	"runtime"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/strategy"
)

func mustStrategy(tb testing.TB, name string) route.Strategy {
	tb.Helper()
	s, err := strategy.New(name, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func mustFleet(tb testing.TB, o Options) *Fleet {
	tb.Helper()
	f, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func queue(tb testing.TB, o QueueOptions) *Queue {
	tb.Helper()
	q, err := NewQueue(o)
	if err != nil {
		tb.Fatal(err)
	}
	return q
}

// queues returns n servers that serve one after the other, each request for an exponential time.
func queues(tb testing.TB, n int) []Server {
	tb.Helper()
	var servers []Server
	for range n {
		servers = append(servers, queue(tb, QueueOptions{Slots: 1}))
	}
	return servers
}

// jobs brings requests of a second's work each.
func jobs(tb testing.TB, seed uint64, perSecond float64) *Poisson {
	tb.Helper()
	p, err := NewPoisson(seed, PoissonOptions{Rate: perSecond, Work: time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// onlyOnce is a plan without deadlines and retries.
var onlyOnce = exchange.Plan{MaxAttempts: 1}

// run lets a fleet run and returns what it came to; every request must have been answered.
func run(tb testing.TB, o Options, length time.Duration) *Result {
	tb.Helper()
	f := mustFleet(tb, o)
	if err := f.Finish(length); err != nil {
		tb.Fatal(err)
	}
	r := f.Result()
	if c := r.Counts; c.Arrived != c.Done || c.Failed != 0 {
		tb.Fatalf("%+v: not every request was answered", c)
	}
	return r
}

// alike runs equal options on one processor, on two, and again, for two minutes each, demands bit-identical results, and returns one.
func alike(t *testing.T, name string, options func() Options) *Result {
	t.Helper()
	var first *Result
	for _, processors := range []int{1, 2, 2} {
		before := runtime.GOMAXPROCS(processors)
		fleet := mustFleet(t, options())
		err := fleet.Finish(2 * time.Minute)
		runtime.GOMAXPROCS(before)
		if err != nil {
			t.Fatal(err)
		}
		switch r := fleet.Result(); {
		case first == nil:
			first = r
		case !reflect.DeepEqual(first, r):
			t.Errorf("%s: two runs differ: %+v and %+v", name, first.Counts, r.Counts)
		}
	}
	return first
}

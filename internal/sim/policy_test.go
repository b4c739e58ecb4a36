package sim

import (
	"errors"
	"slices"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// witness picks at random and remembers what it learns.
type witness struct {
	at        Vantage
	strangers int // rounds about a request that the vantage does not show
	notices   []Notice
	heard     []time.Duration
	now       func() time.Duration
}

func (w *witness) Pick(r *route.Round) int {
	if asked := w.at.Request(r.Facts.Seed); asked == nil || len(asked.Prompt) != len(r.Facts.Prefix) || asked.PromptTokens == 0 {
		w.strangers++
	}
	return r.IntN(len(r.Candidates))
}

func (w *witness) Learn(n *Notice) {
	kept := *n
	if n.Request != nil {
		r := *n.Request
		kept.Request = &r
	}
	w.notices = append(w.notices, kept)
	w.heard = append(w.heard, w.now())
}

// observed runs four engines before witnesses; deployment 1 is down from 60 to 80 s.
func observed(t *testing.T, change func(*Options)) []*witness {
	t.Helper()
	var ws []*witness
	var f *Fleet
	o := batches(t, "round_robin", "vllm-8192")
	o.Strategy = nil
	o.Policy = func(v Vantage) (Policy, error) {
		w := &witness{at: v, now: func() time.Duration {
			if f == nil {
				return 0
			}
			return f.Now()
		}}
		ws = append(ws, w)
		return w, nil
	}
	change(&o)
	f = mustFleet(t, o)
	if err := f.Finish(2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	return ws
}

func TestPolicyLearnsOfEachAttempt(t *testing.T) {
	ws := observed(t, func(*Options) {})
	if len(ws) != 2 || ws[0].at.Seed == ws[1].at.Seed || ws[1].at.Balancer != 1 || len(ws[0].at.IDs) != 4 {
		t.Fatalf("two balancers stand at %+v", ws)
	}
	sent, cached, failed := 0, 0, 0
	for _, w := range ws {
		if w.strangers != 0 || w.at.Request(1) != nil {
			t.Errorf("%d rounds are about requests that the vantage does not show", w.strangers)
		}
		state := map[uint64]NoticeKind{}
		for i, n := range w.notices {
			last, known := state[n.Attempt]
			switch {
			case i > 0 && n.At < w.notices[i-1].At, n.Request == nil, n.Foreign, n.At != w.heard[i]:
				t.Fatalf("notice %d: %+v", i, n)
			case n.Kind == Sent && known, n.Kind == Begun && last != Sent, n.Kind == Over && (!known || last == Over):
				t.Fatalf("notice %d comes after one of kind %d (%v): %+v", i, last, known, n)
			case n.Kind == Over && n.OK && (n.Output != n.Request.OutputTokens || n.TTFT <= 0):
				t.Fatalf("an answer of %d tokens: %+v", n.Request.OutputTokens, n)
			}
			state[n.Attempt] = n.Kind
			switch n.Kind {
			case Sent:
				sent++
			case Begun:
				cached += n.Cached
			case Over:
				if !n.OK {
					failed++
				}
			}
		}
		for id, k := range state {
			if k != Over {
				t.Errorf("attempt %d never ended", id)
			}
		}
	}
	if sent < 100 || cached == 0 || failed == 0 {
		t.Errorf("%d attempts, %d cached tokens, %d failures: the test shows nothing", sent, cached, failed)
	}
}

func TestPolicyReadsMetrics(t *testing.T) {
	for _, together := range []bool{false, true} {
		ws := observed(t, func(o *Options) { o.Scrapes = Scrapes{Every: 1500 * time.Millisecond, Together: together} })
		last, seen, busy := map[int]time.Duration{}, 0, 0
		for _, n := range ws[1].notices {
			if n.Kind != Scraped {
				continue
			}
			down := n.Deployment == 1 && n.At >= time.Minute && n.At < 80*time.Second
			before, known := last[n.Deployment]
			gap := n.At - before
			if down || known && gap != 1500*time.Millisecond && n.Deployment != 1 {
				t.Fatalf("together %v: deployment %d read at %v, %v after the last time", together, n.Deployment, n.At, gap)
			}
			last[n.Deployment] = n.At
			seen++
			if n.Load.Running > 0 && n.Load.Blocks > 0 {
				busy++
			}
		}
		if seen < 100 || busy < 50 {
			t.Errorf("together %v: %d readings, %d of a busy engine", together, seen, busy)
		}
		if spread := last[1] != last[0]; spread == together {
			t.Errorf("together %v: deployments 0 and 1 were read last at %v and %v", together, last[0], last[1])
		}
	}
}

func TestPoliciesHearOfEachOther(t *testing.T) {
	const delay = 300 * time.Millisecond
	ws := observed(t, func(o *Options) { o.Sharing = Sharing{On: true, Delay: delay}; o.Scrapes.Every = time.Second })
	var own, heard [2][]Notice
	for i, w := range ws {
		for k, n := range w.notices {
			switch {
			case n.Kind == Scraped && n.Foreign:
				t.Fatal("a scrape was shared")
			case n.Kind == Scraped:
			case n.Foreign:
				if w.heard[k] != n.At+delay {
					t.Fatalf("what happened at %v was heard at %v", n.At, w.heard[k])
				}
				n.Foreign = false
				heard[1-i] = append(heard[1-i], n)
			default:
				own[i] = append(own[i], n)
			}
		}
	}
	for i := range own {
		own[i] = own[i][:min(len(own[i]), len(heard[i]))] // what came at the very end is not heard any more
		if len(own[i]) < 200 || !slices.EqualFunc(own[i], heard[i], func(a, b Notice) bool {
			return a.Kind == b.Kind && a.At == b.At && a.Attempt == b.Attempt && a.Request.Seed == b.Request.Seed && a.TTFT == b.TTFT
		}) {
			t.Errorf("balancer %d: the other heard %d notices, and not these %d", i, len(heard[i]), len(own[i]))
		}
	}
}

func TestPolicyOptions(t *testing.T) {
	f := func(want string, change func(*Options)) {
		t.Helper()
		o := Options{Servers: queues(t, 1), Strategy: mustStrategy(t, "round_robin"), Source: jobs(t, 1, 1), Plan: onlyOnce}
		change(&o)
		if _, err := New(o); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	broken := func(Vantage) (Policy, error) { return nil, errors.New("no") }
	f("a simulation needs either a strategy or a policy", func(o *Options) { o.Policy = broken })
	f("a simulation needs either a strategy or a policy", func(o *Options) { o.Strategy = nil })
	f("the policy of balancer 0: no", func(o *Options) { o.Policy, o.Strategy = broken, nil })
	f("scrapes every -1ns, sharing after 0s: neither must be negative", func(o *Options) { o.Scrapes.Every = -1 })
	f("bytes per token: mean 4, CV -1: the mean must be positive and the CV not negative", func(o *Options) { o.BytesPerToken = Law{4, -1} })
}

func TestBytesPerTokenVary(t *testing.T) {
	var seen []float64
	prompts, err := NewPoisson(1, PoissonOptions{Rate: 1, Work: time.Second, Prompt: Law{1000, 0}})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Seed: 1, Servers: queues(t, 2), Strategy: mustStrategy(t, "least_connections"), Plan: onlyOnce, BytesPerToken: Law{3, .5},
		Source: prompts,
		Record: func(r *Request, x *exchange.Record) {
			seen = append(seen, float64(x.Facts.PromptBytes)/float64(r.PromptTokens))
		},
	}
	run(t, o, 1000*time.Second)
	mean := 0.0
	for _, x := range seen {
		mean += x / float64(len(seen))
	}
	if mean < 2.7 || mean > 3.3 || slices.Max(seen) < 5 || slices.Min(seen) > 2 {
		t.Errorf("%d prompts of %.2f bytes per token in the mean, %.2f to %.2f", len(seen), mean, slices.Min(seen), slices.Max(seen))
	}
}

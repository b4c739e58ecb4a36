//go:build !race

package strategy

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// farm is a fleet in virtual time with one or more balancers before it, each with a Router of its own. Requests come at
// random (Poisson), each through one of the balancers.
type farm struct {
	tb      testing.TB
	now     time.Time
	rng     *rand.Rand
	routers []*route.Router
	perSec  float64 // requests
	servers map[string]*server
	events  events
	seq     uint64
}

// server is one deployment. With slots it is a queue: so many requests run at once, each for as long as its tokens take, and
// the others wait their turn. Without, all run at once.
type server struct {
	ttft    func(f *farm) time.Duration // without slots: to the first token, and the answer ends then
	failing func(f *farm) bool          // in a millisecond
	slots   []time.Time                 // when each is free

	picks, failed int
	waited        float64 // seconds to the first token, summed up
	busy          float64 // seconds of work
}

type event struct {
	at  time.Time
	seq uint64
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// newFarm builds n servers e0/m, e1/m, ... that take 200 ms ± 10 %.
func newFarm(tb testing.TB, strategy string, n, balancers int, perSec float64, seed uint64) *farm {
	tb.Helper()
	f := &farm{tb: tb, now: start, rng: rand.New(rand.NewPCG(seed, 7)), perSec: perSec, servers: map[string]*server{}}
	var ds []route.Deployment
	for i := range n {
		ds = append(ds, deployment(fmt.Sprintf("e%d/m", i), 1))
		f.servers[ds[i].ID] = &server{ttft: around(200 * time.Millisecond)}
	}
	for range balancers {
		f.routers = append(f.routers, build1(tb, strategy, ds...))
	}
	return f
}

// around is d and up to a tenth more or less.
func around(d time.Duration) func(*farm) time.Duration {
	return func(f *farm) time.Duration { return time.Duration(float64(d) * (0.9 + 0.2*f.rng.Float64())) }
}

func (f *farm) after(d time.Duration, do func()) {
	f.seq++
	heap.Push(&f.events, event{f.now.Add(d), f.seq, do})
}

// run lets time pass.
func (f *farm) run(d time.Duration) {
	f.tb.Helper()
	end := f.now.Add(d)
	for next := f.now.Add(f.gap()); ; {
		for len(f.events) > 0 && !f.events[0].at.After(end) && !f.events[0].at.After(next) {
			e := heap.Pop(&f.events).(event)
			f.now = e.at
			e.do()
		}
		if next.After(end) {
			f.now = end
			return
		}
		f.now = next
		f.request()
		next = f.now.Add(f.gap())
	}
}

func (f *farm) gap() time.Duration {
	return time.Duration(f.rng.ExpFloat64() / f.perSec * float64(time.Second))
}

func (f *farm) request() {
	f.tb.Helper()
	facts := &route.Facts{Model: "m", Seed: f.rng.Uint64(), PromptBytes: 380}
	l, refusal := f.routers[f.rng.IntN(len(f.routers))].Pick(f.now, route.Query{Facts: facts, Model: "m"})
	if l == nil {
		f.tb.Fatalf("refused as %v, cuts %v", refusal.Kind, refusal.Decision.CutCounts())
	}
	s := f.servers[l.Deployment().ID]
	s.picks++
	switch {
	case s.failing != nil && s.failing(f):
		s.failed++
		f.after(time.Millisecond, func() {
			l.Done(f.now, route.Outcome{Verdict: route.DeploymentFault, Class: "upstream_5xx", Answered: true, Status: 500})
		})
	case len(s.slots) > 0:
		s.enqueue(f, l)
	default:
		ttft := s.ttft(f)
		s.waited += ttft.Seconds()
		f.after(ttft, func() { l.Done(f.now, answer(ttft, 200)) })
	}
}

// Requests of a queue: their prompts take 100 ms, and then one token comes every 5 ms, 200 in the mean (exponential).
const (
	prefill    = 100 * time.Millisecond
	tokenTime  = 5 * time.Millisecond
	meanTokens = 200
	meanWork   = prefill + meanTokens*tokenTime
)

func (s *server) enqueue(f *farm, l *route.Lease) {
	tokens := 1 + int(f.rng.ExpFloat64()*meanTokens)
	next := 0
	for i := range s.slots {
		if s.slots[i].Before(s.slots[next]) {
			next = i
		}
	}
	wait := max(0, s.slots[next].Sub(f.now))
	work := prefill + time.Duration(tokens)*tokenTime
	s.slots[next] = f.now.Add(wait + work)
	s.waited += (wait + prefill).Seconds()
	s.busy += work.Seconds()
	f.after(wait+prefill, func() { l.FirstToken(f.now) })
	f.after(wait+work, func() { l.Done(f.now, answer(wait+prefill, tokens)) })
}

func answer(ttft time.Duration, tokens int) route.Outcome {
	return route.Outcome{Verdict: route.Success, Answered: true, Status: 200, TTFT: ttft, Reported: true, InputTokens: 100, OutputTokens: tokens}
}

// forget sets the counters back.
func (f *farm) forget() {
	for _, s := range f.servers {
		s.picks, s.failed, s.waited, s.busy = 0, 0, 0, 0
	}
}

// part is what a deployment got of all requests since the counters were set back.
func (f *farm) part(id string) float64 {
	total := 0
	for _, s := range f.servers {
		total += s.picks
	}
	return float64(f.servers[id].picks) / float64(total)
}

// breaker returns the state of a deployment as the first balancer sees it.
func (f *farm) breaker(id string) route.BreakerView {
	f.tb.Helper()
	for _, d := range f.routers[0].View(f.now).Deployments {
		if d.ID == id {
			return d.Breaker
		}
	}
	f.tb.Fatalf("no deployment %s", id)
	return route.BreakerView{}
}

// until lets time pass until a deployment is in a state, as the first balancer sees it.
func (f *farm) until(id string, want route.BreakerState) {
	f.tb.Helper()
	for end := f.now.Add(10 * time.Minute); f.breaker(id).State != want; {
		if f.run(50 * time.Millisecond); f.now.After(end) {
			f.tb.Fatalf("%s is %+v after 10 minutes, want %v", id, f.breaker(id), want)
		}
	}
}

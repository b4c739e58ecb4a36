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
	perSec  float64           // requests
	prompt  func(f *farm) int // tokens of a prompt whose answer is streamed; nil: of 100, and answers are not
	held    int               // requests that were
	ticking bool
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
	ranks   []time.Time                 // when each engine of several, which take prompts one after the other, is done with those that it has
	pace    float64                     // tokens of prompts a second of each of them

	picks, failed int
	inside        int     // requests that run there
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
	q := route.Query{Facts: &route.Facts{Model: "m", Seed: f.rng.Uint64(), PromptBytes: 380}, Model: "m"}
	if f.prompt != nil {
		q.Facts.Stream, q.Facts.PromptBytes = true, int(3.8*float64(f.prompt(f)))
	}
	r := f.routers[f.rng.IntN(len(f.routers))]
	l, refusal := r.Pick(f.now, q)
	switch {
	case l != nil:
		f.dispatch(l)
	case refusal.Kind == route.Held:
		f.hold(r, q, refusal)
	default:
		f.tb.Fatalf("refused as %v, cuts %v", refusal.Kind, refusal.Decision.CutCounts())
	}
}

// hold waits until a request may go on, which by time alone it may too.
func (f *farm) hold(r *route.Router, q route.Query, refusal *route.Refusal) {
	f.tb.Helper()
	f.held++
	q.Held = refusal
	var t *route.Ticket
	t, refusal = r.Wait(f.now, q, func() {
		f.after(0, func() {
			l, refusal := t.Result()
			if l == nil {
				f.tb.Fatalf("held and refused as %v, cuts %v", refusal.Kind, refusal.Decision.CutCounts())
			}
			f.dispatch(l)
		})
	})
	if t == nil {
		f.tb.Fatalf("refused as %v", refusal.Kind)
	}
	f.tick(r)
}

// tick does so for who is held, four times a second at least, as the process does.
func (f *farm) tick(r *route.Router) {
	if f.ticking {
		return
	}
	f.ticking = true
	wait := 250 * time.Millisecond
	if due := r.Tick(f.now); due.After(f.now) {
		wait = min(wait, due.Sub(f.now))
	}
	f.after(wait, func() {
		if f.ticking = false; r.View(f.now).Waiting["m"] > 0 {
			f.tick(r)
		}
	})
}

// scrape tells the balancers once a second what each server with ranks says of itself, which is of one of them.
func (f *farm) scrape() {
	for id, s := range f.servers {
		if len(s.ranks) > 0 {
			at := deployment(id, 1).Scopes[0]
			for _, r := range f.routers {
				r.Signal(f.now, at, "", route.Signal{At: f.now, Running: s.inside / len(s.ranks), Waiting: 0, KVUse: route.NotTold})
			}
		}
	}
	f.after(time.Second, f.scrape)
}

func (f *farm) dispatch(l *route.Lease) {
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
	case len(s.ranks) > 0:
		s.prefill(f, l)
	default:
		ttft := s.ttft(f)
		s.waited += ttft.Seconds()
		f.after(ttft, func() {
			if f.prompt != nil {
				l.FirstToken(f.now)
			}
			l.Done(f.now, answer(ttft, 200))
		})
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

// prefill gives a prompt to the engine that is soonest done; its answer takes a second.
func (s *server) prefill(f *farm, l *route.Lease) {
	next := 0
	for i := range s.ranks {
		if s.ranks[i].Before(s.ranks[next]) {
			next = i
		}
	}
	begun := f.now
	s.inside++
	if s.ranks[next].Before(f.now) {
		s.ranks[next] = f.now
	}
	s.ranks[next] = s.ranks[next].Add(time.Duration((0.05 + float64(l.Prompt())/s.pace) * float64(time.Second)))
	ttft := s.ranks[next].Sub(begun)
	s.waited += ttft.Seconds()
	f.after(ttft, func() { l.FirstToken(f.now) })
	f.after(ttft+time.Second, func() {
		s.inside--
		o := answer(ttft, 200)
		o.InputTokens = l.Prompt()
		l.Done(f.now, o)
	})
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

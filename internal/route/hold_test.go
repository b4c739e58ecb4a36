package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// patientForesee is foresee, which holds.
type patientForesee struct{ foresee }

func (patientForesee) Holds(*Outlook) bool { return true }

// stand is deployments that take requests under a strategy that holds.
type stand struct {
	*testing.T
	r   *Router
	now time.Time
}

// newStand is one whose deployments are known to be an engine each.
func newStand(t *testing.T, deployments ...Deployment) *stand {
	r := newRouter(t, PoolSpec{Model: "m", Strategy: patientForesee{}, Deployments: deployments})
	s := &stand{t, r, start}
	s.engines()
	return s
}

// engines makes it known that each deployment is one engine.
func (s *stand) engines() {
	for _, n := range s.r.nodes {
		n.hint = &hint{told: Untold(at(time.Hour)), ours: mean{1, 1}}
	}
}

// prompt is of so many tokens.
func prompt(tokens int) Query {
	return Query{Model: "m", Facts: &Facts{Model: "m", Stream: true, PromptBytes: int(float64(tokens) * priorBytesPerToken), MaxOutput: 10}}
}

// busy gives each deployment prompts until the next is held, and returns who may end.
func (s *stand) busy(tokens int) (leases []*Lease) {
	s.Helper()
	for range 100 {
		l, refusal := s.r.Pick(s.now, prompt(tokens))
		if refusal != nil {
			if refusal.Kind != Held || refusal.Decision.Chosen != "" || len(refusal.Decision.Candidates) == 0 {
				s.Fatalf("refused: %+v", refusal)
			}
			return leases
		}
		leases = append(leases, l)
	}
	s.Fatal("nothing is held")
	return nil
}

func (s *stand) held(q Query) *waiter {
	s.Helper()
	q.Held = mustRefuse(s, s.r, s.now, q, Held)
	return wait(s, s.r, s.now, q)
}

// finish ends leases that began: the first tokens come one after the other.
func (s *stand) finish(leases ...*Lease) {
	for _, l := range leases {
		l.FirstToken(s.now)
		l.Done(s.now, success())
	}
}

// TestHeldUntilReady: a request stays here while no deployment would begin with it, and goes as soon as one would; the shortest first.
func TestHeldUntilReady(t *testing.T) {
	s := newStand(t, dep("a/m", Limits{}), dep("b/m", Limits{}))
	leases := s.busy(10_000)
	if len(leases) != 2 { // one each
		t.Fatalf("%d went on", len(leases))
	}
	long, short := s.held(prompt(30_000)), s.held(prompt(5000))
	if got := s.r.View(s.now).Waiting["m"]; got != 2 {
		t.Errorf("%d wait, want 2", got)
	}
	s.now = at(time.Second)
	leases[0].FirstToken(s.now)
	l := short.mustGet(t)
	if l.Deployment() != leases[0].Deployment() {
		t.Errorf("it went to %s, ready is %s", l.Deployment().ID, leases[0].Deployment().ID)
	}
	long.mustWait(t)
	s.now = at(2 * time.Second)
	s.finish(leases...)
	s.finish(long.mustGet(t), l)
	mustBeIdle(t, s.r, s.now)
}

// TestWhoIsHeldLongGoesFirst, shorter or not: a prompt counts as the shorter the more of its patience is over.
func TestWhoIsHeldLongGoesFirst(t *testing.T) {
	f := func(waited time.Duration, oldFirst bool) {
		t.Helper()
		s := newStand(t, dep("a/m", Limits{}))
		leases := s.busy(40_000)
		old := s.held(prompt(11_000)) // 2.2 s, the other 2, at the speed that is assumed
		s.now = at(waited)
		young := s.held(prompt(10_000))
		leases[0].FirstToken(s.now)
		first, second := young, old
		if oldFirst {
			first, second = old, young
		}
		s.finish(first.mustGet(t))
		s.finish(leases...)
		s.finish(second.mustGet(t))
		mustBeIdle(t, s.r, s.now)
	}
	f(2*time.Second, false)
	f(6*time.Second, true) // of some 40: twice a line of two usual prompts of 8 s, and three times 2.2 s
}

// TestOrderOfThoseHeld: the shortest first, before a longer line all the more; but nobody is overtaken for ever.
func TestOrderOfThoseHeld(t *testing.T) {
	type held struct{ prompt, waited float64 }
	for _, c := range []struct {
		line          float64
		first, second held
	}{
		{0, held{1, 0}, held{2, 0}},
		{0, held{2, 4}, held{1, 0}},    // 4 of 6 seconds are over: as 0.67 of one
		{10, held{1, 0}, held{2, 4}},   // 4 of 26: as 1.7
		{10, held{2, 26}, held{1, 0}},  // all are over
		{10, held{8, 60}, held{2, 30}}, // for 16 and for 4 seconds
		{0, held{0, 1}, held{0, 0}},
	} {
		l := heldLine{longest: c.line}
		if a, b := l.key(c.first.prompt, c.first.waited), l.key(c.second.prompt, c.second.waited); !(a < b) {
			t.Errorf("a line of %v s: %+v has %v, %+v has %v", c.line, c.first, a, c.second, b)
		}
	}
	var l heldLine
	l.note(at(0), 5)
	l.note(at(time.Minute), 1)
	if want := 5 / math.E; math.Abs(l.longest-want) > 1e-9 {
		t.Errorf("a minute after a line of 5 s it counts as %v, want %v", l.longest, want)
	}
}

// TestNotHeld is what would gain nothing by it, or what nothing would release.
func TestNotHeld(t *testing.T) {
	f := func(what string, tokens int, change func(q *Query)) {
		t.Helper()
		s := newStand(t, dep("a/m", Limits{}), dep("b/m", Limits{}))
		var leases []*Lease
		for range 14 {
			q := prompt(tokens)
			change(&q)
			l, refusal := s.r.Pick(s.now, q)
			if refusal != nil {
				t.Fatalf("%s: held", what)
			}
			leases = append(leases, l)
		}
		s.finish(leases...)
		mustBeIdle(t, s.r, s.now)
	}
	f("prompts that fill no step", 10, func(*Query) {})
	f("answers that are not streamed", 10_000, func(q *Query) { q.Facts.Stream = false })
	f("a hedge", 10_000, func(q *Query) { q.Beside = &Deployment{Endpoint: "elsewhere"} })
}

// TestHeldWhereOneEngineIs: nobody knows how much a provider does at once, or what shares an address. Only where the engine itself tells of
// what we have sent there does it stand in one line.
func TestHeldWhereOneEngineIs(t *testing.T) {
	f := func(what string, held bool, tells func(inFlight int) Signal) {
		t.Helper()
		s := &stand{t, newRouter(t, PoolSpec{Model: "m", Strategy: patientForesee{}, Deployments: []Deployment{dep("a/m", Limits{})}}), start}
		var leases []*Lease
		for range 50 {
			l, refusal := s.r.Pick(s.now, prompt(10_000))
			if refusal != nil {
				break
			}
			leases = append(leases, l)
			if sig := tells(len(leases)); sig != (Signal{}) {
				sig.At = s.now
				s.r.Signal(s.now, scope("a"), "", sig)
			}
		}
		if got := len(leases) < 50; got != held {
			t.Errorf("%s: held is %v, want %v", what, got, held)
		}
		s.finish(leases...)
		mustBeIdle(t, s.r, s.now)
	}
	tells := func(running, waiting int) Signal { return Signal{Running: running, Waiting: waiting, KVUse: NotTold} }
	f("who tells nothing", false, func(int) Signal { return Signal{} })
	f("who tells of all", true, func(n int) Signal { return tells(1, n-1) })
	f("who has others' requests too", true, func(n int) Signal { return tells(10, n) })
	f("two behind one address", false, func(n int) Signal { return tells(1, n/2-1) })
	f("ranks behind one server", false, func(n int) Signal { s := tells(2, n-2); s.Several = true; return s })
	f("who does not tell what waits", false, func(n int) Signal { return tells(n, NotTold) })
}

// TestNotHeldBesideAProvider: its line may be none, so it may be better than it looks.
func TestNotHeldBesideAProvider(t *testing.T) {
	s := newStand(t, dep("a/m", Limits{}), dep("b/m", Limits{}))
	for _, n := range s.r.nodes {
		if n.dep.ID == "a/m" {
			n.hint = nil
		}
	}
	var leases []*Lease
	for range 50 {
		leases = append(leases, mustPick(t, s.r, s.now, prompt(10_000)))
	}
	s.finish(leases...)
	mustBeIdle(t, s.r, s.now)
}

// TestWaitersForRoomAreHeldNext: who has waited for room and gets it where others are before it waits on, and is not refused.
func TestWaitersForRoomAreHeldNext(t *testing.T) {
	s := newStand(t, dep("a/m", Limits{InFlight: 3}))
	var leases []*Lease
	for _, tokens := range []int{10_000, 10_000, 40_000} {
		for _, l := range leases {
			l.FirstToken(s.now)
		}
		leases = append(leases, mustPick(t, s.r, s.now, prompt(tokens)))
	}
	mustRefuse(t, s.r, s.now, prompt(9000), Saturated)
	w := wait(t, s.r, s.now, prompt(9000))
	leases[0].Done(s.now, success())
	w.mustWait(t)
	if got := s.r.View(s.now).Waiting["m"]; got != 1 {
		t.Errorf("%d wait, want 1", got)
	}
	s.finish(leases[1:]...)
	s.finish(w.mustGet(t))
	mustBeIdle(t, s.r, s.now)
}

// TestHeldAreNotOvertaken by those who came later and wait for room, and do not overtake who waits for room since before they came.
func TestHeldAreNotOvertaken(t *testing.T) {
	s := newStand(t, dep("a/m", Limits{InFlight: 2}))
	leases := []*Lease{mustPick(t, s.r, s.now, prompt(1000)), mustPick(t, s.r, s.now, prompt(1000))}
	early := wait(t, s.r, s.now, prompt(1000))
	leases[0].FirstToken(s.now)
	early.mustWait(t)
	leases[0].Done(s.now, success())
	first := early.mustGet(t)
	late := wait(t, s.r, s.now, prompt(100))
	leases[1].FirstToken(s.now)
	late.mustWait(t)
	leases[1].Done(s.now, success())
	s.finish(first, late.mustGet(t))
	mustBeIdle(t, s.r, s.now)
}

// TestNoMoreAreHeldThanMayWait: the others go on, as if nobody were held.
func TestNoMoreAreHeldThanMayWait(t *testing.T) {
	s := newStand(t, dep("a/m", Limits{}))
	s.r.Configure(Options{MaxWaiting: 2})
	leases := s.busy(10_000)
	one, two := s.held(prompt(1000)), s.held(prompt(1000))
	leases = append(leases, mustPick(t, s.r, s.now, prompt(9000)))
	s.finish(leases...)
	s.finish(one.mustGet(t), two.mustGet(t))
	mustBeIdle(t, s.r, s.now)
}

// TestHeldWhileLimitsPerMinute: a limit per minute has room again by time alone.
func TestHeldWhileLimitsPerMinute(t *testing.T) {
	s := newStand(t, dep("a/m", Limits{RPM: 2}))
	leases := s.busy(10_000)
	one, two := s.held(prompt(9000)), s.held(prompt(9000))
	s.finish(leases...)
	s.finish(one.mustGet(t))
	two.mustWait(t)
	for range 100 {
		due := s.r.Tick(s.now)
		if due.IsZero() {
			break
		}
		s.now = due
	}
	s.finish(two.mustGet(t))
	mustBeIdle(t, s.r, s.now)
}

// TestHeldAreToldWhileOthersHang: nobody is left who could serve it, though what was sent before has not ended.
func TestHeldAreToldWhileOthersHang(t *testing.T) {
	s := newStand(t, dep("a/m", Limits{}))
	leases := s.busy(10_000)
	w := s.held(prompt(9000))
	if err := s.r.Override(s.now, "deployment", "a/m", Drain); err != nil {
		t.Fatal(err)
	}
	if l, refusal := w.Result(); l != nil || refusal == nil || refusal.Kind != Unavailable {
		t.Errorf("lease %v, refusal %+v", l, refusal)
	}
	s.finish(leases...)
	mustBeIdle(t, s.r, s.now)
}

// TestHeldWhereTheCacheIsFull: what has no room there would wait for an answer to end, and could go nowhere else meanwhile.
func TestHeldWhereTheCacheIsFull(t *testing.T) {
	d := dep("a/m", Limits{})
	d.Cache = 1000
	s := newStand(t, d)
	q := prompt(400)
	q.Facts.MaxOutput = 300
	one, two := mustPick(t, s.r, s.now, q), mustPick(t, s.r, s.now, q)
	w := s.held(q)
	one.FirstToken(s.now)
	w.mustWait(t)
	one.Done(s.now, success())
	s.finish(w.mustGet(t), two)
	mustBeIdle(t, s.r, s.now)
}

// TestHeldAreToldWhenNobodyIsLeft, and who gives up is forgotten.
func TestHeldAreToldWhenNobodyIsLeft(t *testing.T) {
	s := newStand(t, dep("a/m", Limits{}))
	leases := s.busy(10_000)
	gone, gaveUp := s.held(prompt(9000)), s.held(prompt(9000))
	gaveUp.Cancel(s.now)
	if _, err := s.r.Adopt(s.now, []PoolSpec{{Model: "m", Strategy: patientForesee{}, Deployments: []Deployment{dep("b/m", Limits{})}}}); err != nil {
		t.Fatal(err)
	}
	s.engines()
	l := gone.mustGet(t)
	if l.Deployment().ID != "b/m" {
		t.Errorf("it went to %s", l.Deployment().ID)
	}
	s.finish(append(leases, l)...)
	leases = s.busy(10_000)
	gone = s.held(prompt(9000))
	if _, err := s.r.Adopt(s.now, nil); err != nil {
		t.Fatal(err)
	}
	if l, refusal := gone.Result(); l != nil || refusal == nil || refusal.Kind != NoModel {
		t.Errorf("lease %v, refusal %+v", l, refusal)
	}
	s.finish(leases...)
	mustBeIdle(t, s.r, s.now)
	if len(s.r.held) != 0 {
		t.Error("somebody is held for ever")
	}
}

// TestHeldAreReleasedByTime: a line drains while no first token comes.
func TestHeldAreReleasedByTime(t *testing.T) {
	s := newStand(t, dep("a/m", Limits{}))
	leases := s.busy(1000)
	w := s.held(prompt(900))
	due := s.r.Tick(s.now)
	if !due.After(s.now) || due.After(at(time.Minute)) {
		t.Fatalf("to be looked at again at %v", due)
	}
	for range 10 {
		s.now = due
		if due = s.r.Tick(s.now); due.IsZero() {
			break
		}
	}
	s.finish(append(leases, w.mustGet(t))...)
	mustBeIdle(t, s.r, s.now)
}

// TestNobodyIsHeldForEver, whatever happens to those before: each request that is held is sent on or told, once nothing runs.
func TestNobodyIsHeldForEver(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 3))
		s := newStand(t, dep("a/m", Limits{}), dep("b/m", Limits{InFlight: 3}), dep("c/m", Limits{Tokens: 50_000}))
		var running []*Lease
		var waiting []*waiter
		take := func() {
			waiting = slices.DeleteFunc(waiting, func(w *waiter) bool {
				l, refusal := w.Result()
				if l != nil {
					running = append(running, l)
				}
				return l != nil || refusal != nil
			})
		}
		step := func(n int) {
			s.now = s.now.Add(time.Duration(random.IntN(500)) * time.Millisecond)
			switch n {
			case 0, 1, 2, 3:
				q := prompt(1 + random.IntN(20_000))
				q.Facts.Seed, q.Facts.Stream = random.Uint64(), random.IntN(4) > 0
				l, refusal := s.r.Pick(s.now, q)
				if l != nil {
					running = append(running, l)
				} else if refusal.Kind == Held || refusal.Kind == Saturated {
					if refusal.Kind == Held {
						q.Held = refusal
					}
					waiting = append(waiting, wait(t, s.r, s.now, q))
				}
			case 4:
				if len(running) > 0 {
					running[random.IntN(len(running))].FirstToken(s.now)
				}
			case 5, 6:
				if len(running) > 0 {
					k := random.IntN(len(running))
					l := running[k]
					running = slices.Delete(running, k, k+1)
					l.Done(s.now, []Outcome{success(), success(), left(), broken(), unreachable()}[random.IntN(5)])
				}
			case 7:
				if len(waiting) > 0 && random.IntN(3) == 0 {
					k := random.IntN(len(waiting))
					waiting[k].Cancel(s.now)
					waiting = slices.Delete(waiting, k, k+1)
				}
			case 8:
				s.r.Tick(s.now)
			}
			take()
		}
		for range 400 {
			step(random.IntN(9))
		}
		for range 10_000 {
			if len(running) == 0 {
				break
			}
			step(5)
		}
		if len(running)+len(waiting) > 0 {
			t.Fatalf("seed %d: %d run and %d wait", seed, len(running), len(waiting))
		}
		mustBeIdle(t, s.r, s.now)
	}
}

// TestManyHeldDoNotHideOneWhoCouldGo: those who wait longest are looked at first, but whoever waits for a deployment that is ready is
// found behind them.
func TestManyHeldDoNotHideOneWhoCouldGo(t *testing.T) {
	var fleet []Deployment
	for i := range 200 {
		fleet = append(fleet, dep(fmt.Sprintf("d%03d/m", i), Limits{}))
	}
	s := newStand(t, fleet...)
	on := func(id string) Query {
		q := prompt(10_000)
		q.Facts.Pin = id
		return q
	}
	one, two := mustPick(t, s.r, s.now, on("d000")), mustPick(t, s.r, s.now, on("d001"))
	var behind []*waiter
	for range 50 {
		behind = append(behind, s.held(on("d000")))
	}
	w := s.held(on("d001"))
	s.r.Tick(s.now)
	s.finish(two)
	s.finish(w.mustGet(t))
	s.finish(one)
	for _, w := range behind {
		s.finish(w.mustGet(t))
	}
	mustBeIdle(t, s.r, s.now)
}

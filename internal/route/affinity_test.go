package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// idlest takes who has the fewest requests, of equals any.
type idlest struct{}

func (idlest) Pick(r *Round) int {
	return r.Lowest(func(i int) float64 { return float64(r.Candidates[i].InFlight) })
}

// town is a Router of deployments a, b, c, ... with an affinity.
type town struct {
	*Router
	t    *testing.T
	now  time.Time
	seed uint64
}

func newTown(t *testing.T, n int, a Affinity) *town {
	spec := PoolSpec{Model: "m", Strategy: idlest{}, Affinity: a}
	for i := range n {
		spec.Deployments = append(spec.Deployments, dep(string(rune('a'+i))+"/m", Limits{}))
	}
	return &town{Router: newRouter(t, spec), t: t, now: start}
}

// ask is a request of 400 bytes for each hash, 100 tokens, of a session or of none.
func (w *town) ask(session uint64, chain []uint64) *Lease {
	w.t.Helper()
	w.seed++
	f := &Facts{Model: "m", Seed: w.seed, Stream: true, PromptBytes: 38, MaxOutput: 10, Session: session}
	if chain != nil {
		f.PromptBytes, f.Prefix, f.PrefixBytes = 380*len(chain), chain, 380
	}
	return mustPick(w.t, w.Router, w.now, Query{Model: "m", Facts: f})
}

// serve is ask, and the answer a second later, whose first token came after so much.
func (w *town) serve(session uint64, chain []uint64, first time.Duration) string {
	w.t.Helper()
	l := w.ask(session, chain)
	w.now = w.now.Add(time.Second)
	w.answer(l, first)
	return l.Deployment().Endpoint
}

func (w *town) answer(l *Lease, first time.Duration) {
	l.FirstToken(w.now)
	l.Done(w.now, Outcome{Verdict: Success, Answered: true, Status: 200, TTFT: first})
}

func (w *town) node(endpoint string) *node {
	for k, n := range w.nodes {
		if k.name == endpoint+"/m" {
			return n
		}
	}
	w.t.Fatalf("there is no deployment of %s", endpoint)
	return nil
}

func TestSessionsStay(t *testing.T) {
	w := newTown(t, 4, Affinity{Mode: SessionAffinity})
	homes := map[uint64]string{}
	used := map[string]bool{}
	for turn := range 10 {
		for s := uint64(1); s <= 12; s++ {
			at := w.serve(s, nil, 100*time.Millisecond)
			if turn == 0 {
				homes[s], used[at] = at, true
			} else if at != homes[s] {
				t.Fatalf("turn %d of session %d went to %s, the one before to %s", turn, s, at, homes[s])
			}
		}
	}
	if len(used) < 3 {
		t.Errorf("12 sessions began at %v", used)
	}
	l := w.ask(1, nil)
	h, d := l.Decision().Home, l.Decision()
	if h.By != "session" || h.Deployment != homes[1]+"/m" || h.Left != "" || h.Limit != 1+1.5*sessionShare {
		t.Errorf("the decision knew %+v", h)
	}
	if d.Eligible != 1 || len(d.Candidates) != 4 || d.Candidates[1].Cut != CutAffinity {
		t.Errorf("%d were eligible: %+v", d.Eligible, d.CutCounts())
	}
	if got := d.Recompute(idlest{}, &Facts{Seed: d.Seed}); got != d.Chosen {
		t.Errorf("recomputed %s, chosen was %s", got, d.Chosen)
	}
}

// TestBurstOfASession goes to one deployment before any of it is answered.
func TestBurstOfASession(t *testing.T) {
	w := newTown(t, 8, Affinity{Mode: SessionAffinity})
	first := w.ask(7, chain(1, 20, 20)).Deployment()
	if second := w.ask(7, chain(1, 20, 20)).Deployment(); second != first {
		t.Errorf("the first went to %s, the second to %s", first.ID, second.ID)
	}
}

// TestHomesAreLeftAtTheLimit: at the very limit a request stays, above it leaves. Whole prompts are worth the whole limit, parts a part.
func TestHomesAreLeftAtTheLimit(t *testing.T) {
	const others = 1.0
	f := func(name string, limit float64, blocks, held int, by string, seconds float64, work int, left string) {
		t.Helper()
		mode := PrefixAffinity
		if by == "session" {
			mode = SessionAffinity
		}
		w := newTown(t, 3, Affinity{Mode: mode, SlowdownLimit: limit})
		session := uint64(0)
		if by == "session" {
			session = 1
		}
		w.pools["m"].stats.bytesPerToken = mean{3.8, 1}
		home := w.serve(session, chain(1, held, held), 0)
		for _, e := range []string{"a", "b", "c"} {
			w.node(e).ttft = estimate{seconds: others, at: w.now, samples: 10}
			w.node(e).work = 1000
		}
		w.node(home).ttft.seconds = seconds
		w.node(home).work = work
		w.pools["m"].fleet = fleetMedian{}
		l := w.ask(session, chain(1, held, blocks))
		h := l.Decision().Home
		want := map[bool]int{true: 1, false: 2}[left == ""]
		if h.By != by || h.Deployment != home+"/m" || h.Left != left || (left == "") != (l.Deployment().Endpoint == home) || l.Decision().Eligible != want {
			t.Errorf("%s: %d of 3 were eligible, home is %s, known was %+v", name, l.Decision().Eligible, home, h)
		}
	}
	// Half of 20 blocks: the limit is 1 + 1.5/2.
	f("as fast as the others", 2.5, 20, 10, "prefix", 1, 1000, "")
	f("at the limit of a half", 2.5, 20, 10, "prefix", 1.75, 1000, "")
	f("above it", 2.5, 20, 10, "prefix", 1.7501, 1000, "slow")
	f("at that of all", 2.5, 20, 20, "prefix", 2.5, 1000, "")
	f("above that", 2.5, 20, 20, "prefix", 2.5001, 1000, "slow")
	f("another limit", 5, 20, 20, "prefix", 5, 1000, "")
	f("none", 1, 20, 20, "prefix", 1.0501, 1000, "slow")
	f("hardly slower", 1, 20, 20, "prefix", 1.0499, 1000, "")
	f("a session counts as half at least", 2.5, 20, 0, "session", 1.75, 1000, "")
	f("and no more", 2.5, 20, 0, "session", 1.7501, 1000, "slow")

	// The request is 2010 tokens; the home has 2000 or 1000 of them. The others have 1000 each before it.
	f("as busy as it may be", 2.5, 20, 20, "prefix", 1, 7515, "")
	f("busier", 2.5, 20, 20, "prefix", 1, 7516, "busy")
	f("hardly busier", 1, 20, 20, "prefix", 1, 4999, "")
	f("busier by enough", 1, 20, 20, "prefix", 1, 5000, "busy")
	f("a half, as busy as it may be", 2.5, 20, 10, "prefix", 1, 4257, "")
	f("busier", 2.5, 20, 10, "prefix", 1, 4258, "busy")
}

// TestPromptsStay where their beginnings are: the longest wins, of several that have it the strategy takes one, and what all have says
// nothing.
func TestPromptsStay(t *testing.T) {
	w := newTown(t, 3, Affinity{Mode: PrefixAffinity})
	first := w.serve(0, chain(1, 20, 20), 0)
	for blocks := 21; blocks < 40; blocks++ {
		if at := w.serve(0, chain(1, 40, blocks), 0); at != first {
			t.Fatalf("%d blocks went to %s, those before to %s", blocks, at, first)
		}
	}
	if l := w.ask(0, chain(1, 19, 39)); l.Decision().Home.By != "" {
		t.Errorf("less than half of the prompt is at home: %+v", l.Decision().Home)
	} else {
		w.answer(l, 0)
	}

	for _, e := range []string{"a", "b"} { // a second home
		w.seed++
		f := &Facts{Model: "m", Seed: w.seed, PromptBytes: 380 * 20, Prefix: chain(2, 20, 20), PrefixBytes: 380, Pin: e}
		w.answer(mustPick(t, w.Router, w.now, Query{Model: "m", Facts: f}), 0)
	}
	l1 := w.ask(0, chain(2, 20, 20))
	l2 := w.ask(0, chain(2, 20, 20))
	both := []string{l1.Deployment().Endpoint, l2.Deployment().Endpoint}
	if slices.Sort(both); !slices.Equal(both, []string{"a", "b"}) || l1.Decision().Eligible != 2 {
		t.Errorf("two requests went to %v, a and b hold their beginning", both)
	}
	w.seed++
	f := &Facts{Model: "m", Seed: w.seed, PromptBytes: 380 * 20, Prefix: chain(2, 20, 20), PrefixBytes: 380, Pin: "c"}
	w.answer(mustPick(t, w.Router, w.now, Query{Model: "m", Facts: f}), 0)
	if d := w.ask(0, chain(2, 20, 20)).Decision(); d.Eligible != 3 || d.Home != (Home{}) {
		t.Errorf("%d were eligible, known was %+v: all hold it", d.Eligible, d.Home)
	}
}

// TestEnginesWithoutCaches are nobody's home.
func TestEnginesWithoutCaches(t *testing.T) {
	w := newTown(t, 3, Affinity{Mode: PrefixAffinity})
	kept := 0
	for i := range 200 {
		l := w.ask(0, chain(1, 20, 20))
		w.now = w.now.Add(time.Second)
		l.FirstToken(w.now)
		l.Done(w.now, Outcome{Verdict: Success, Answered: true, Status: 200, Reported: true, InputTokens: 2000, CachedTokens: 0, OutputTokens: 10})
		if i >= 180 && l.Decision().Home.By != "" {
			kept++
		}
	}
	if kept > 0 {
		t.Errorf("%d of the last 20 requests were kept where engines say that nothing is cached", kept)
	}
}

// TestLeftHomesAreNotGoneBackTo: a session whose home was full stays where it went.
func TestLeftHomesAreNotGoneBackTo(t *testing.T) {
	w := newTown(t, 3, Affinity{Mode: SessionAffinity})
	home := w.serve(1, nil, 0)
	w.node(home).limits.InFlight = 1
	full := mustPick(t, w.Router, w.now, pinned("m", home))
	l := w.ask(1, nil)
	away := l.Deployment().Endpoint
	if h := l.Decision().Home; away == home || h.Left != "out" || h.Deployment != home+"/m" {
		t.Fatalf("it went to %s, known was %+v", away, h)
	}
	w.answer(l, 0)
	w.answer(full, 0)
	for range 5 {
		if at := w.serve(1, nil, 0); at != away {
			t.Fatalf("it went to %s, after %s", at, away)
		}
	}
}

// TestLateAnswersMoveNothing: the answer of a request that was sent before the session moved says nothing of where it is.
func TestLateAnswersMoveNothing(t *testing.T) {
	w := newTown(t, 3, Affinity{Mode: SessionAffinity})
	slow := w.ask(1, nil)
	home := slow.Deployment().Endpoint
	w.node(home).limits.InFlight = 1
	away := w.serve(1, nil, 0)
	w.answer(slow, 30*time.Second)
	if at := w.serve(1, nil, 0); at != away || at == home {
		t.Errorf("it went to %s, was moved from %s to %s", at, home, away)
	}
}

// TestAnswersAreContinuedWhereTheyCameFrom: a request that names an answer (previous_response_id) goes to who gave it.
func TestAnswersAreContinuedWhereTheyCameFrom(t *testing.T) {
	w := newTown(t, 8, Affinity{Mode: SessionAffinity})
	last, home := uint64(0), ""
	for turn := range uint64(10) {
		l := w.ask(last, nil)
		if at := l.Deployment().Endpoint; home != "" && at != home {
			t.Fatalf("turn %d went to %s, the one before to %s", turn, at, home)
		}
		home, last = l.Deployment().Endpoint, 1000+turn
		l.Done(w.now, Outcome{Verdict: Success, Answered: true, Status: 200, Answer: last})
	}
}

// TestOnlyWhoGaveAnAnswerGoesOnFromIt: strategies that have no use for affinity, a mode of none and a session that is elsewhere change nothing; who is
// out does.
func TestOnlyWhoGaveAnAnswerGoesOnFromIt(t *testing.T) {
	for _, c := range []struct {
		Strategy
		mode AffinityMode
	}{{foresee{}, PrefixAffinity}, {steadyFirst{}, NoAffinity}, {idlest{}, NoAffinity}, {idlest{}, SessionAffinity}} {
		a, b := dep("a/m", Limits{}), dep("b/m", Limits{})
		r := newRouter(t, PoolSpec{Model: "m", Strategy: c.Strategy, Affinity: Affinity{Mode: c.mode}, Deployments: []Deployment{a, b}})
		ask := func(q Query) *Lease {
			t.Helper()
			q.Model, q.Facts.Model, q.Facts.Session = "m", "m", 7
			l := mustPick(t, r, start, q)
			l.Done(start, Outcome{Verdict: Success, Answered: true, Status: 200, Answer: 1000})
			return l
		}
		ask(Query{Facts: &Facts{ExcludeNames: []string{"a"}}}) // b gave the answer
		stay := ask(Query{Facts: &Facts{ExcludeNames: []string{"b"}}})
		if at := stay.Deployment().Endpoint; at != "a" {
			t.Fatal(at)
		}
		r.pools["m"].stats.sessions.served(2000, r.nodes[b.key()], 1<<40)
		for seed := range uint64(10) {
			d := ask(Query{Facts: &Facts{Previous: 2000, Seed: seed}}).Decision()
			if d.Chosen != "b/m" || d.Home.By != "answer" || d.Home.Deployment != "b/m" {
				t.Errorf("%T, mode %d: %s serves, at home is %+v", c.Strategy, c.mode, d.Chosen, d.Home)
			}
		}
		if d := ask(Query{Facts: &Facts{Previous: 2000, ExcludeNames: []string{"b"}}}).Decision(); d.Chosen != "a/m" {
			t.Errorf("%T: %s serves where b may not", c.Strategy, d.Chosen)
		}
		mustBeIdle(t, r, start)
	}
}

// TestFailuresMoveSessions: the request goes elsewhere, and the session with it once it is served there.
func TestFailuresMoveSessions(t *testing.T) {
	w := newTown(t, 3, Affinity{Mode: SessionAffinity})
	home := w.serve(1, nil, 0)
	l := w.ask(1, nil)
	l.Done(w.now, Outcome{Verdict: DeploymentFault, Fault: Failure, Answered: true, Status: 500})
	w.seed++
	again := mustPick(t, w.Router, w.now, Query{Model: "m", Draw: 1, Tried: []string{home + "/m"}, Facts: &Facts{Model: "m", Seed: w.seed, Session: 1, PromptBytes: 38}})
	if h := again.Decision().Home; h.Left != "out" {
		t.Errorf("known was %+v", h)
	}
	w.answer(again, 0)
	if at := w.serve(1, nil, 0); at == home || at != again.Deployment().Endpoint {
		t.Errorf("the next turn went to %s; %s failed, %s served it", at, home, again.Deployment().Endpoint)
	}
}

// TestNoPingPong: among equal deployments whose times to the first token vary by much, sessions hardly move; nor do they when one is ten times
// slower for a while: they leave it within seconds, and do not come back when it is well.
func TestNoPingPong(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("%d deployments, seed %d", n, seed), func(t *testing.T) {
				w := newTown(t, n, Affinity{Mode: PrefixAffinity})
				rng := rand.New(rand.NewPCG(seed, 1))
				const talks = 24
				at, moves := map[uint64]string{}, 0
				turn := func(i int, factor func(string) float64) string {
					s := uint64(i%talks) + 1
					l := w.ask(s, chain(int(s), 1000, 10+i/talks))
					e := l.Deployment().Endpoint
					w.now = w.now.Add(100 * time.Millisecond)
					w.answer(l, time.Duration(0.4*math.Exp(0.5*rng.NormFloat64())*factor(e)*float64(time.Second)))
					if l.Decision().Trial { // to see whether it is well again; the next turn goes home
						return ""
					}
					if at[s] != "" && at[s] != e {
						moves++
					}
					at[s] = e
					return e
				}
				equal := func(string) float64 { return 1 }
				for i := range 1200 {
					turn(i, equal)
				}
				if moves > 3 {
					t.Errorf("%d moves in 1200 turns at equal deployments", moves)
				}
				slow := at[1]
				late, last := 0, 0
				moves = 0
				for i := 1200; i < 1800; i++ { // a minute
					if turn(i, func(e string) float64 {
						if e == slow {
							return 10
						}
						return 1
					}) == slow {
						last = i - 1200
						if i >= 1200+200 {
							late++
						}
					}
				}
				t.Logf("%d moves; the last request at the slow one %.1f s after it became slow, %d after 20 s", moves, float64(last)/10, late)
				if late > 0 || last > 150 {
					t.Errorf("%d of 400 requests still went to the slow one 20 s later", late)
				}
				if moves > 2*talks {
					t.Errorf("%d moves of %d sessions away from the slow one", moves, talks)
				}
				moves = 0
				for i := 1800; i < 3000; i++ {
					turn(i, equal)
				}
				if moves > 3 {
					t.Errorf("%d moves in 1200 turns once it was well again", moves)
				}
			})
		}
	}
}

// TestWhoForeseesOrIsSteady has no use for affinity.
func TestWhoForeseesOrIsSteady(t *testing.T) {
	for _, s := range []Strategy{foresee{}, steadyFirst{}} {
		r := newRouter(t, PoolSpec{Model: "m", Strategy: s, Affinity: Affinity{Mode: PrefixAffinity}, Deployments: []Deployment{dep("a/m", Limits{}), dep("b/m", Limits{})}})
		for range 2 {
			l := mustPick(t, r, start, Query{Model: "m", Facts: &Facts{Model: "m", Session: 1, Prefix: chain(1, 9, 9), PrefixBytes: 400, PromptBytes: 3600}})
			if d := l.Decision(); d.Eligible != 2 || d.Home != (Home{}) {
				t.Errorf("%T: %d were eligible, known was %+v", s, d.Eligible, d.Home)
			}
		}
	}
}

type steadyFirst struct{ first }

func (steadyFirst) Steady() bool { return true }

func TestSlowdownLimitIsChecked(t *testing.T) {
	for _, l := range []float64{0.5, -1, math.NaN()} {
		spec := pool1("m", dep("a/m", Limits{}))
		spec.Affinity.SlowdownLimit = l
		if _, err := New(Options{}).Adopt(start, []PoolSpec{spec}); err == nil {
			t.Errorf("a limit of %v was taken", l)
		}
	}
}

// TestSessionsAreForgotten: no more than mostSessions are remembered, nearly all of the latest half of them, and one that is used
// again and again.
func TestSessionsAreForgotten(t *testing.T) {
	var s sessions
	a, b := &node{}, &node{}
	id := func(i uint64) uint64 { return rand.New(rand.NewPCG(i, 1)).Uint64() }
	s.served(id(1), a, 1)
	for i := uint64(2); i < 3*mostSessions; i++ {
		s.served(id(i), b, i)
		if i%1000 == 0 && i < 2*mostSessions {
			if s.at(id(1)) != a {
				t.Fatalf("after %d others a session is forgotten that was used lately", i)
			}
			s.served(id(1), a, i)
			s.served(id(1), b, i-1) // it took long
		}
	}
	if got := len(s.sets) * len(sessionSet{}); got != mostSessions {
		t.Errorf("room for %d", got)
	}
	if s.at(0) != nil {
		t.Error("requests without a session have one")
	}
	forgotten := 0
	for i := uint64(3*mostSessions) - mostSessions/2; i < 3*mostSessions; i++ {
		if s.at(id(i)) != b {
			forgotten++
		}
	}
	if forgotten > mostSessions/2/20 {
		t.Errorf("%d of the latest %d are forgotten", forgotten, mostSessions/2)
	}
}

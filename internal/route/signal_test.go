package route

import (
	"math"
	"testing"
	"time"
)

// told is a Signal of so many requests.
func told(at time.Time, running, waiting int) Signal {
	s := Untold(at)
	s.Running, s.Waiting = running, waiting
	return s
}

func endpointOf(d Deployment) Scope { return Scope{Kind: EndpointScope, Name: d.Endpoint, URL: d.URL} }

// TestSignalFades: what others have at an engine counts for what the engine says, for less with time, and for nothing once it is old.
func TestSignalFades(t *testing.T) {
	var none *hint
	if o := none.others(start, 1); o != (others{}) {
		t.Errorf("nothing was told: %+v", o)
	}
	h := &hint{}
	s := told(start, 12, 6)
	s.KVUse = 0.5
	h.take(start, s, own{inFlight: 4, pending: 2, tokens: 1000}, 10_000)
	for _, x := range []struct {
		after time.Duration
		want  others
	}{
		{0, others{4, 10, 0.4}},
		{waitingHalfLife, others{(4 - 1) / 2.0, 10 * math.Exp2(-1.0/5), 0.4 * math.Exp2(-1.0/5)}},
		{runningHalfLife, others{0, 5, 0.2}}, // the four are done
		{signalGone, others{0, 10.0 / 16, 0.4 / 16}},
		{signalGone + 1, others{}},
		{-time.Second, others{4, 10, 0.4}}, // another goroutine's clock reading was older
	} {
		if o := h.others(at(x.after), 1); math.Abs(o.wait-x.want.wait)+math.Abs(o.answers-x.want.answers)+math.Abs(o.fill-x.want.fill) > 1e-9 {
			t.Errorf("after %v: %+v, want %+v", x.after, o, x.want)
		}
	}
}

// TestSignalOfOurs: what an engine says of our own requests adds nothing, and what it does not say is not taken for anything.
func TestSignalOfOurs(t *testing.T) {
	for _, x := range []struct {
		name             string
		running, waiting int
		kv               float64
		o                own
		cache            int
		want             others
	}{
		{"all are ours", 5, 3, 0.3, own{8, 4, 3000}, 10_000, others{}},
		{"idle", 0, 0, 0, own{}, 10_000, others{}},
		{"ours are not there yet", 0, 0, 0, own{3, 3, 500}, 10_000, others{}},
		{"two of others wait", 5, 5, NotTold, own{8, 3, 0}, 0, others{2, 0, 0}},
		{"those that wait may be ours, which nobody streams", 0, 5, NotTold, own{5, 0, 0}, 0, others{}},
		{"only a queue", NotTold, 7, NotTold, own{2, 1, 0}, 0, others{5, 0, 0}},
		{"only what runs", 9, NotTold, NotTold, own{2, 1, 0}, 0, others{0, 7, 0}},
		{"nothing", NotTold, NotTold, NotTold, own{2, 1, 0}, 10_000, others{}},
		{"a cache of unknown size", 0, 0, 0.9, own{}, 0, others{}},
		{"a cache more than full", 0, 0, 1.7, own{}, 100, others{0, 0, 1}},
	} {
		var h hint
		s := told(start, x.running, x.waiting)
		s.KVUse = x.kv
		h.take(start, s, x.o, x.cache)
		if o := h.others(start, 1); o != x.want {
			t.Errorf("%s: %+v, want %+v", x.name, o, x.want)
		}
	}
}

// TestSignalDisputed: a signal that cannot be true for 30 s is ignored, and believed again once it could be for as long.
func TestSignalDisputed(t *testing.T) {
	for _, x := range []struct {
		name             string
		running, waiting int
		moves            bool
		ours             int
		want             bool
	}{
		{"ours alone are more than 3 times as many", 2, 1, true, 13, true},
		{"3 times as many are not too many", 2, 2, false, 12, false},
		{"few are on their way", 0, 0, true, 3, false},
		{"it is idle and we have four there", 0, 0, false, 4, true},
		{"others send many", 30, 20, true, 5, false},
		{"a gauge that is stuck", 30, 20, false, 5, true},
		{"what it tells stays, and could be", 10, 2, false, 4, false},
		{"it says nothing of what runs", NotTold, 50, false, 5, false},
	} {
		d := dep("a/m", Limits{})
		r := newRouter(t, pool1("m", d))
		var leases []*Lease
		for range x.ours {
			leases = append(leases, mustPick(t, r, start, query("m")))
		}
		var changed *Dispute
		var when time.Duration
		now := time.Duration(0)
		for ; now <= 31*time.Second; now += time.Second {
			running := x.running
			if x.moves {
				running += int(now.Seconds()) % 2
			}
			if c := r.Signal(at(now), endpointOf(d), "m", told(at(now), running, x.waiting)); c != nil {
				changed, when = c, now
			}
		}
		ignored := node1(t, r, at(now), "a/m").SignalIgnored
		if (changed != nil) != x.want || ignored != x.want {
			t.Errorf("%s: told of a change: %+v, ignored: %v, want %v", x.name, changed, ignored, x.want)
		}
		if x.want {
			if !changed.Ignored || changed.InFlight != x.ours || when < disputeFor || when > disputeFor+time.Second {
				t.Errorf("%s: %+v after %v", x.name, changed, when)
			}
			var again *Dispute
			for end := now + 31*time.Second; now <= end && again == nil; now += time.Second {
				again = r.Signal(at(now), endpointOf(d), "m", told(at(now), x.ours, int(now.Seconds())%2))
			}
			if again == nil || again.Ignored || node1(t, r, at(now), "a/m").SignalIgnored {
				t.Errorf("%s: it says what we know, for 30 s, and is not believed: %+v", x.name, again)
			}
		}
		for _, l := range leases {
			l.Done(at(now), success())
		}
		mustBeIdle(t, r, at(now))
	}
}

// TestOneGoodSignalEndsADispute: 30 s are those in a row.
func TestOneGoodSignalEndsADispute(t *testing.T) {
	d := dep("a/m", Limits{})
	r := newRouter(t, pool1("m", d))
	for range 9 {
		mustPick(t, r, start, query("m"))
	}
	for i := range 100 {
		running := 0
		if i%20 == 19 {
			running = 9
		}
		now := at(time.Duration(i) * time.Second)
		if c := r.Signal(now, endpointOf(d), "", told(now, running, 0)); c != nil {
			t.Fatalf("after %d s: %+v", i, c)
		}
	}
}

// TestSignalMovesRequests: of two alike the one where others wait gets fewer, and is forecast so; once the signal is gone both are alike.
func TestSignalMovesRequests(t *testing.T) {
	a, b := dep("a/m", Limits{}), dep("b/m", Limits{})
	k := newTalk(t, a, b)
	for i := range 50 { // prompts of 3,010 tokens take 0.5 s
		k.answer(k.ask(chain(100+i, 0, 30)), 0.5, 3000, 0)
	}
	counts := func(signal bool) map[string]int {
		counts := map[string]int{}
		for i := range 20 {
			if now := k.now.Add(time.Minute); signal {
				k.r.Signal(now, endpointOf(a), "m", told(now, 1, 10+i%2))
				k.r.Signal(now, endpointOf(b), "m", told(now, 1, 0))
			}
			l := k.ask(chain(1000+i, 0, 30))
			counts[l.Deployment().ID]++
			for _, c := range l.Decision().Candidates {
				if f := c.Forecast; c.ID == "a/m" && signal != (f.Others > 2) || c.ID == "b/m" && f.Others != 0 || f.Others > f.Wait {
					t.Errorf("%s: forecast %+v", c.ID, f)
				}
			}
			k.answer(l, 0.5, 3000, 0)
		}
		return counts
	}
	if c := counts(true); c["b/m"] != 20 {
		t.Errorf("10 wait at a/m: %v", c)
	}
	counts(false)
	mustBeIdle(t, k.r, k.now)
}

// TestSignalNeverVetoes: the only deployment is picked whatever its engine says.
func TestSignalNeverVetoes(t *testing.T) {
	a := dep("a/m", Limits{})
	k := newTalk(t, a)
	now := k.now.Add(time.Minute)
	s := told(now, math.MaxInt32, math.MaxInt32)
	s.KVUse, s.CacheTokens = 1, 1
	k.r.Signal(now, endpointOf(a), "m", s)
	k.answer(k.ask(chain(1, 0, 30)), 0.5, 3000, 0)
}

// TestSignalSizesMemory: the size of a cache that an engine tells holds where nobody else says one, also after a reload and when it is
// left out of later signals.
func TestSignalSizesMemory(t *testing.T) {
	free, set := dep("a/m", Limits{}), dep("b/m", Limits{})
	set.Cache = 5000
	r := newRouter(t, pool1("m", free, set))
	size := func(id string) int {
		for _, n := range r.nodes {
			if n.dep.ID == id {
				return n.memory.tokens
			}
		}
		return -1
	}
	s := told(start, 0, 0)
	s.CacheTokens = 70_000
	for _, d := range []Deployment{free, set} {
		r.Signal(start, endpointOf(d), "", s)
	}
	adopt(t, r, start, pool1("m", free, set))
	for _, d := range []Deployment{free, set} {
		r.Signal(at(time.Second), endpointOf(d), "", told(at(time.Second), 0, 0))
	}
	adopt(t, r, start, pool1("m", free, set))
	if a, b := size("a/m"), size("b/m"); a != 70_000 || b != 5000 {
		t.Errorf("%d and %d tokens, want 70000 and 5000", a, b)
	}
}

// TestSignalOfAnEngineWithSeveralModels: of all its models' requests together nobody takes some for others'.
func TestSignalOfAnEngineWithSeveralModels(t *testing.T) {
	a, b := dep("e/base", Limits{}), dep("e/adapter", Limits{})
	r := newRouter(t, pool1("base", a), pool1("adapter", b))
	for range 3 {
		mustPick(t, r, start, query("base"))
		mustPick(t, r, start, query("adapter"))
	}
	r.Signal(start, endpointOf(a), "", told(start, 6, 0))
	for _, n := range r.nodes {
		if o := n.hint.others(start, 1); o != (others{}) {
			t.Errorf("%s: %+v", n.dep.ID, o)
		}
	}
	r.Signal(start, endpointOf(a), "adapter", told(start, 7, 0))
	for _, n := range r.nodes {
		if o, want := n.hint.others(start, 1), map[string]float64{"base": 0, "adapter": 4}[n.dep.Model]; o.answers != want {
			t.Errorf("%s: %+v, want %v", n.dep.ID, o, want)
		}
	}
}

// TestSignalOfNobody: an endpoint that has left, or that never was, changes nothing.
func TestSignalOfNobody(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	if d := r.Signal(start, Scope{Kind: EndpointScope, Name: "x", URL: "http://x"}, "", told(start, 1, 1)); d != nil {
		t.Errorf("%+v", d)
	}
}

// TestUnloadedModel: of two alike the one that has the model in memory is taken, and what loading takes is learned, and taken for nothing else.
func TestUnloadedModel(t *testing.T) {
	a, b := dep("a/m", Limits{}), dep("b/m", Limits{})
	k := newTalk(t, a, b)
	unloaded := func(d Deployment) {
		s := Untold(k.now.Add(time.Minute))
		s.Unloaded = true
		k.r.Signal(s.At, endpointOf(d), d.Model, s)
	}
	for i := range 20 {
		k.answer(k.ask(chain(100+i, 0, 30)), 0.5, 3000, 0)
	}
	for i := range 10 {
		unloaded(a)
		l := k.ask(chain(200+i, 0, 30))
		if l.Deployment().ID != "b/m" {
			t.Errorf("%d: %s is picked, which has to load the model first", i, l.Deployment().ID)
		}
		k.answer(l, 0.5, 3000, 0)
	}
	for i := range 10 {
		unloaded(a)
		unloaded(b)
		l := k.ask(chain(300+i, 0, 30))
		if f := chosen(l).Forecast; i > 5 && math.Abs(f.Wait+f.Prefill-30.5) > 1 {
			t.Errorf("%d: forecast %+v, it takes 30.5 s", i, f)
		}
		k.answer(l, 30.5, 3000, 0)
	}
	l := k.ask(chain(400, 0, 30)) // a minute later nothing is said any more
	if f := chosen(l).Forecast; math.Abs(f.Wait+f.Prefill-0.5) > 0.05 {
		t.Errorf("forecast %+v, it takes 0.5 s", f)
	}
	k.answer(l, 0.5, 3000, 0)
	mustBeIdle(t, k.r, k.now)
}

// TestPartsOfASignal: what one leaves out stays as the one just before told it, and one that comes late changes nothing.
func TestPartsOfASignal(t *testing.T) {
	d := dep("a/m", Limits{})
	r := newRouter(t, pool1("m", d))
	tell := func(after time.Duration, running, waiting int) Signal {
		r.Signal(at(after), endpointOf(d), "", told(at(after), running, waiting))
		s := node1(t, r, at(after), "a/m").Signal
		s.At = time.Time{}
		return s
	}
	want := func(got Signal, running, waiting int) {
		t.Helper()
		if w := told(time.Time{}, running, waiting); got != w {
			t.Errorf("%+v, want %+v", got, w)
		}
	}
	want(tell(time.Minute, 7, 2), 7, 2)
	want(tell(time.Minute+partsWithin, NotTold, 5), 7, 5)
	want(tell(time.Minute, 1, 1), 7, 5) // asked for before
	want(tell(2*time.Minute, NotTold, 3), NotTold, 3)
}

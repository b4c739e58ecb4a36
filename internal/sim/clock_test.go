package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestClockOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var c clock
	var want []event
	for i := range 2000 {
		at := time.Duration(rng.IntN(300))
		c.plan(at, arrival, int32(i), 0)
		want = append(want, event{at: at, index: int32(i)})
	}
	slices.SortStableFunc(want, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	for i, w := range want {
		e, ok := c.next(time.Hour)
		if !ok || e.at != w.at || e.index != w.index || c.now != w.at {
			t.Fatalf("event %d is %+v (%v) at %v, want index %d at %v", i, e, ok, c.now, w.index, w.at)
		}
	}
	if e, ok := c.next(time.Hour); ok {
		t.Errorf("one event too many: %+v", e)
	}
}

// TestClockLooks: looks take their places among events, what was planned first before another of its time.
func TestClockLooks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var c clock
	var due []event // in order of planning
	take := func(until time.Duration, at time.Duration, index int32) {
		t.Helper()
		first := -1
		for n, e := range due {
			if e.at <= until && (first < 0 || e.at < due[first].at) {
				first = n
			}
		}
		if first < 0 || due[first].at != at || due[first].index != index {
			t.Fatalf("got %d at %v, want another of %+v", index, at, due)
		}
		due = slices.Delete(due, first, first+1)
	}
	for i := range int32(3000) {
		at := c.now + time.Duration(rng.IntN(3))*progressEvery
		switch rng.IntN(5) {
		case 0, 1:
			c.again(i, 0)
			due = append(due, event{at: c.now + progressEvery, index: i})
		case 2:
			c.plan(at, arrival, i, 0)
			due = append(due, event{at: at, index: i})
		default:
			until := c.now + progressEvery/8*time.Duration(rng.IntN(3))
			for _, l := range c.before(until) {
				take(until, l.at, l.index)
			}
			if e, ok := c.next(until); ok {
				take(until, e.at, e.index)
				continue
			}
			if slices.ContainsFunc(due, func(e event) bool { return e.at <= until }) {
				t.Fatalf("nothing came by %v, want one of %+v", until, due)
			}
			c.now = until
		}
	}
	if len(c.looks) > 2*len(due)+2 {
		t.Errorf("%d looks are kept, %d are due", len(c.looks), len(due))
	}
}

func TestClockUntil(t *testing.T) {
	var c clock
	c.plan(5, arrival, 1, 0)
	if _, ok := c.next(4); ok {
		t.Error("an event at 5 came by 4")
	}
	c.next(5)
	c.plan(3, arrival, 2, 0) // what is due in the past is due now
	if e, ok := c.next(5); !ok || e.at != 5 {
		t.Errorf("got %+v, %v, want the event at 5", e, ok)
	}
}

func TestClockAllocatesNothing(t *testing.T) {
	var c clock
	for i := range 1000 {
		c.plan(time.Duration(i), arrival, 0, 0)
	}
	if n := testing.AllocsPerRun(1000, func() {
		e, _ := c.next(time.Hour)
		c.plan(e.at+1000, e.kind, 0, 0)
	}); n != 0 {
		t.Errorf("%v allocations per event", n)
	}
}

func TestStreamsAreIndependent(t *testing.T) {
	a, b, again := stream(1, forArrivals), stream(1, forLengths), stream(1, forArrivals)
	same := 0
	for range 1000 {
		x, y := a.Uint64(), b.Uint64()
		if z := again.Uint64(); x != z {
			t.Fatalf("one stream gave %d and %d", x, z)
		}
		if x == y {
			same++
		}
	}
	if same > 0 {
		t.Errorf("%d of 1000 numbers are alike in two streams", same)
	}
}

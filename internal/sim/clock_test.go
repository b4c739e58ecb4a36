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

// TestClockRecurs: what recurs takes its place among all else, the one that was planned first before another of its time.
func TestClockRecurs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var c clock
	var due []event // in order of planning
	expect := func(at time.Duration, index int32) { due = append(due, event{at: at, index: index}) }
	for i := range int32(3000) {
		switch rng.IntN(5) {
		case 0, 1:
			c.recur(progress, i, 0)
			expect(c.now+progressEvery, i)
		case 2:
			at := c.now + time.Duration(rng.IntN(3))*progressEvery
			c.plan(at, arrival, i, 0)
			expect(at, i)
		default:
			until := c.now + progressEvery/8*time.Duration(rng.IntN(3))
			var want event
			first := -1
			for n, e := range due {
				if e.at <= until && (first < 0 || e.at < want.at) {
					first, want = n, e
				}
			}
			e, ok := c.next(until)
			if ok != (first >= 0) || ok && (e.at != want.at || e.index != want.index || c.now != want.at) {
				t.Fatalf("got %+v (%v) at %v, want %+v", e, ok, c.now, want)
			}
			if !ok {
				c.now = until
				continue
			}
			due = slices.Delete(due, first, first+1)
		}
	}
	if c.head+len(c.heap) == 0 || len(c.recurring) > 2*len(due)+2 {
		t.Errorf("%d that recur are kept, %d are due", len(c.recurring), len(due))
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

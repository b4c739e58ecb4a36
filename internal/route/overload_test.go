package route

import (
	"testing"
	"time"
)

// busy is a router whose only deployment serves one request at a time, of a second each; it knows that, is busy until
// the second end of the lease, and has that many waiters.
func busy(t *testing.T, o Options, waiters int) (*Router, *Lease, time.Time) {
	t.Helper()
	r := New(o)
	adopt(t, r, start, pool1("m", dep("a/m", Limits{InFlight: 1})))
	now := start
	for range 5 {
		l := mustPick(t, r, now, query("m"))
		now = now.Add(time.Second)
		l.Done(now, success())
	}
	l := mustPick(t, r, now, query("m"))
	for range waiters {
		wait(t, r, now, query("m"))
	}
	return r, l, now
}

// of is a query of its own text.
func of(client uint64) Query {
	q := query("m")
	q.Facts.Text = client
	return q
}

func (q Query) within(now time.Time, d time.Duration) Query {
	q.Until = now.Add(d)
	return q
}

func turnedAway(t *testing.T, r *Router, now time.Time, q Query, kind RefusalKind) time.Duration {
	t.Helper()
	mustRefuse(t, r, now, q, Saturated)
	ticket, f := r.Wait(now, q, func() {})
	if f == nil {
		ticket.Cancel(now)
		t.Fatalf("it may wait, want %v", kind)
	}
	if f.Kind != kind {
		t.Fatalf("refused as %v, want %v", f.Kind, kind)
	}
	return f.RetryIn
}

func letIn(t *testing.T, r *Router, now time.Time, q Query) *waiter {
	t.Helper()
	mustRefuse(t, r, now, q, Saturated)
	return wait(t, r, now, q)
}

// TestTooLateIsToldAtOnce: with ten waiters at one a second, 9 s are too few and a minute is enough.
func TestTooLateIsToldAtOnce(t *testing.T) {
	r, _, now := busy(t, Options{}, 10)
	turnedAway(t, r, now, of(1).within(now, 9*time.Second), TooLate)
	letIn(t, r, now, of(2).within(now, time.Minute))
	letIn(t, r, now, of(3))
}

// TestTooLateIsToldWhenItBecomesClear: the deployment hangs, and who waits far behind need not wait to the end.
func TestTooLateIsToldWhenItBecomesClear(t *testing.T) {
	r, _, now := busy(t, Options{}, 40)
	w := letIn(t, r, now, of(1).within(now, 70*time.Second))
	told := time.Duration(0)
	for at := now; told == 0 && at.Before(now.Add(70*time.Second)); at = at.Add(time.Second) {
		if next := r.Tick(at); next.IsZero() || next.After(at.Add(reviewEvery)) {
			t.Fatalf("Tick asks to be called at %v, want within %v", next, reviewEvery)
		}
		if w.woken > 0 {
			told = at.Sub(now)
		}
	}
	if told == 0 || told > 35*time.Second {
		t.Errorf("told after %v, want within half of the deadline", told)
	}
	if l, f := w.Result(); l != nil || f == nil || f.Kind != TooLate {
		t.Errorf("%v, %+v; want too_late", l, f)
	}
}

// TestPlaceIsKept: who comes back in time goes before newcomers, until some time later.
func TestPlaceIsKept(t *testing.T) {
	const full = 20
	for _, c := range []struct {
		name    string
		part    float64 // of the time told
		drained int     // waiters served meanwhile
		in      bool
	}{
		{"in time", 1, 1, true},
		{"a little early", 0.91, 1, true},
		{"at half the time", 0.5, 1, false},
		{"late", 1.2, 1, true},
		{"in time, but nobody was served", 1, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, l, now := busy(t, Options{MaxWaiting: full}, full)
			told := turnedAway(t, r, now, of(1), QueueFull)
			if told < 500*time.Millisecond || told > 15*time.Second {
				t.Fatalf("told %v", told)
			}
			for i := range 8 { // so that there are promises all the time
				turnedAway(t, r, now, of(uint64(10+i)), QueueFull)
			}
			at := now.Add(time.Duration(c.part * float64(told)))
			if c.drained > 0 {
				l.Done(at, success())
			}
			turnedAway(t, r, at, of(2), QueueFull) // a newcomer stays out
			if c.in {
				letIn(t, r, at, of(1))
				turnedAway(t, r, at, of(1), QueueFull) // once
			} else {
				turnedAway(t, r, at, of(1), QueueFull)
			}
		})
	}
}

// TestPlacesAreSpread: each is told a later time than the one before, up to the horizon; then none is.
func TestPlacesAreSpread(t *testing.T) {
	r, _, now := busy(t, Options{MaxWaiting: 40}, 40)
	last, n := time.Duration(0), 0
	for ; n < 100; n++ {
		told := turnedAway(t, r, now, of(uint64(n)), QueueFull)
		if told == 0 {
			break
		}
		if gap := told - last; n > 0 && (gap < 900*time.Millisecond || gap > 1100*time.Millisecond) {
			t.Errorf("number %d is told %v, the one before %v; want a second between them", n, told, last)
		}
		last = told
	}
	if n == 0 || n == 100 || last > horizonLeast {
		t.Errorf("%d are told a time, the last %v; want none beyond %v", n, last, horizonLeast)
	}
	if told := turnedAway(t, r, now, of(1000), QueueFull); told != 0 {
		t.Errorf("beyond the horizon one is told %v", told)
	}
}

// TestWhoComesTooEarlyIsToldTheRest, and has no second place.
func TestWhoComesTooEarlyIsToldTheRest(t *testing.T) {
	r, _, now := busy(t, Options{MaxWaiting: 20}, 20)
	told := turnedAway(t, r, now, of(1), QueueFull)
	again := of(1)
	again.Facts.ClientRetry = 1
	for range 5 {
		if rest := turnedAway(t, r, now.Add(told/2), again, QueueFull); rest != told-told/2 {
			t.Errorf("at half of %v told %v", told, rest)
		}
	}
	if n := r.models["m"].overload.places.open; n != 1 {
		t.Errorf("%d places, want 1", n)
	}
}

// TestLapsedPlacesAreFree: nobody comes back, so the places of many are given again, and newcomers get in.
func TestLapsedPlacesAreFree(t *testing.T) {
	r, l, now := busy(t, Options{MaxWaiting: 20}, 20)
	for i := range 3 {
		turnedAway(t, r, now, of(uint64(i)), QueueFull)
	}
	now = now.Add(time.Minute)
	l.Done(now, success())
	letIn(t, r, now, of(100))
	p := &r.models["m"].overload.places
	if p.open != 0 || len(p.byEnd) != 0 || len(p.byPrint) != 0 {
		t.Errorf("%d open, %d and %d kept", p.open, len(p.byEnd), len(p.byPrint))
	}
	if p.kept() > 0.8 {
		t.Errorf("none of 3 came back, yet %.2f are expected to", p.kept())
	}
}

// TestRoomAtOnceUsesThePlace: who comes back when nobody waits any more leaves no place behind.
func TestRoomAtOnceUsesThePlace(t *testing.T) {
	r, l, now := busy(t, Options{MaxWaiting: 1}, 0)
	w := letIn(t, r, now, of(1))
	r.models["m"].overload.places.promise(now, func() uint64 { q := of(2); return q.print() }(), time.Second)
	now = now.Add(time.Second)
	l.Done(now, success())
	w.mustGet(t).Done(now, success())
	mustPick(t, r, now, of(2)).Done(now, success())
	if p := &r.models["m"].overload.places; p.open != 0 || p.missed != 0 {
		t.Errorf("%d places open, %.2f missed", p.open, p.missed)
	}
}

// TestNothingIsKnownYet: before any request has ended nobody can say how long one takes.
func TestNothingIsKnownYet(t *testing.T) {
	r := New(Options{MaxWaiting: 1})
	adopt(t, r, start, pool1("m", dep("a/m", Limits{InFlight: 1})))
	mustPick(t, r, start, query("m"))
	letIn(t, r, start, query("m").within(start, time.Millisecond))
	if told := turnedAway(t, r, start, query("m"), QueueFull); told != unknownDrain {
		t.Errorf("told %v, want %v", told, unknownDrain)
	}
}

// TestPlacesAreBounded in number, whatever is expected.
func TestPlacesAreBounded(t *testing.T) {
	var p places
	for i := range uint64(mostPlaces + 10) {
		if ok := p.promise(start, i%7, time.Hour); (ok > 0) != (i < mostPlaces) {
			t.Fatalf("place %d: %v", i, ok)
		}
	}
	p.lapse(at(2 * time.Hour))
	if p.open != 0 || len(p.byEnd) != 0 || len(p.byPrint) != 0 {
		t.Errorf("%d open, %d and %d kept", p.open, len(p.byEnd), len(p.byPrint))
	}
}

// TestDrain: the rate is that of the time in which somebody waited.
func TestDrain(t *testing.T) {
	var d drain
	if d.perSecond() != 0 {
		t.Error("it knows a rate from nothing")
	}
	d.running = 4
	d.lasts.add(2)
	if got := d.perSecond(); got != 2 {
		t.Errorf("four requests of two seconds: %v per second, want 2", got)
	}
	now := start
	for range 300 { // one a second while somebody waits
		d.advance(now, true)
		d.served++
		now = now.Add(time.Second)
	}
	d.advance(now, true)
	if got := d.perSecond(); got < 0.95 || got > 1.1 {
		t.Errorf("one a second was served: %v", got)
	}
	busy := d.perSecond()
	d.advance(now.Add(10*time.Second), false)
	if got := d.perSecond(); got < busy-0.1 {
		t.Errorf("an idle time lowers the rate to %v", got)
	}
	d.advance(now.Add(100*time.Second), true)
	if got := d.perSecond(); got > 0.6 {
		t.Errorf("nobody was served for 90 s: %v", got)
	}
}

// TestShortDeadlineWithoutOverload: nobody else was turned away, so the time is when those who wait will have been served.
func TestShortDeadlineWithoutOverload(t *testing.T) {
	r, _, now := busy(t, Options{MaxWaiting: 20}, 3)
	if told := turnedAway(t, r, now, of(1).within(now, 100*time.Millisecond), TooLate); told < 3*time.Second || told > 5*time.Second {
		t.Errorf("with three waiters at one a second: told %v", told)
	}
	if n := r.models["m"].overload.places.open; n != 0 {
		t.Errorf("%d places, want none", n)
	}
}

// TestPerMinute: a request waits for what limits per minute let pass before its deadline, to the millisecond; else it is told
// at once when that will be.
func TestPerMinute(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{RPM: 6}))) // one each 10 s
	for range 6 {
		mustPick(t, r, start, query("m")).Done(start, success())
	}
	if told := turnedAway(t, r, start, query("m").within(start, 9999*time.Millisecond), PerMinute); told != 10*time.Second {
		t.Errorf("told %v, want 10s", told)
	}
	now := at(10 * time.Second)
	mustPick(t, r, now, query("m")).Done(now, success())
	first := wait(t, r, now, query("m").within(now, 10*time.Second))
	turnedAway(t, r, now, query("m").within(now, 10*time.Second), PerMinute)
	now = at(20 * time.Second)
	r.Tick(now)
	first.mustGet(t).Done(now, success())
}

// TestPinsDoNotSpeakForAll: what keeps out requests that name their deployment shuts nobody else out, and is told exactly.
func TestPinsDoNotSpeakForAll(t *testing.T) {
	r := New(Options{MaxWaiting: 2})
	adopt(t, r, start, pool1("m", dep("a/m", Limits{InFlight: 1}), dep("b/m", Limits{RPM: 1})))
	pinned := query("m").within(start, time.Second)
	pinned.Facts.Pin = "b/m"
	mustPick(t, r, start, pinned).Done(start, success())
	for range 20 {
		if told := turnedAway(t, r, start, pinned, PerMinute); told != time.Minute {
			t.Errorf("told %v, want 1m", told)
		}
	}
	running := mustPick(t, r, start, query("m"))
	one, two := wait(t, r, start, query("m")), wait(t, r, start, query("m"))
	running.Done(start, success())
	l := one.mustGet(t)
	l.Done(start, success())
	two.mustGet(t).Done(start, success())
}

package route

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestQueueIsFirstInFirstOut(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{InFlight: 1})))
	lease := mustPick(t, r, start, query("m"))
	var waiters []*waiter
	for range 50 {
		mustRefuse(t, r, start, query("m"), Saturated)
		waiters = append(waiters, wait(t, r, start, query("m")))
	}
	for i, w := range waiters {
		w.mustWait(t)
		lease.Done(start, success())
		lease = w.mustGet(t)
		for _, later := range waiters[i+1:] {
			later.mustWait(t)
		}
	}
	lease.Done(start, success())
	mustBeIdle(t, r, start)
}

// TestQueueIsFairOverModels: the order of arrival holds over models that share an endpoint, too.
func TestQueueIsFairOverModels(t *testing.T) {
	one := Limits{InFlight: 1}
	r := newRouter(t, pool1("m", depWith("a/m", Limits{}, one)), pool1("n", depWith("a/n", Limits{}, one)))
	lease := mustPick(t, r, start, query("m"))
	var waiters []*waiter
	for i := range 20 {
		waiters = append(waiters, wait(t, r, start, query([]string{"m", "n", "n"}[i%3])))
	}
	for _, w := range waiters {
		lease.Done(start, success())
		lease = w.mustGet(t)
	}
	lease.Done(start, success())
	mustBeIdle(t, r, start)
}

// TestQueueIsWorkConserving: nobody waits for the sake of order when the room is of no use to those ahead,
// however many they are.
func TestQueueIsWorkConserving(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{InFlight: 1}), dep("b/m", Limits{InFlight: 1})))
	a := mustPick(t, r, start, pinned("m", "a"))
	b := mustPick(t, r, start, pinned("m", "b"))
	var ahead []*waiter
	for range 100 {
		ahead = append(ahead, wait(t, r, start, pinned("m", "a")))
	}
	anywhere := wait(t, r, start, query("m"))
	b.Done(start, success())
	l := anywhere.mustGet(t)
	if l.Deployment().ID != "b/m" {
		t.Errorf("got %s, want b/m", l.Deployment().ID)
	}
	l.Done(start, success())

	// A newcomer may use what they cannot, and what they can is theirs.
	b = mustPick(t, r, start, query("m"))
	if b.Deployment().ID != "b/m" {
		t.Errorf("a newcomer got %s, want b/m", b.Deployment().ID)
	}
	mustRefuse(t, r, start, query("m"), Saturated)
	a.Done(start, success())
	ahead[0].mustGet(t).Done(start, success())
	ahead[1].mustGet(t)
	ahead[2].mustWait(t)
}

// TestNobodyOvertakes: where somebody waits, a newcomer is not served first, even if it would fit and he
// does not, be it by Pick or by Wait.
func TestNobodyOvertakes(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{Tokens: 100})))
	running := mustPick(t, r, start, tokens("m", 60))
	large := wait(t, r, start, tokens("m", 80))

	refusal := mustRefuse(t, r, start, tokens("m", 10), Saturated)
	if c := refusal.Decision.Candidates[0].Cut; c != CutEarlier {
		t.Errorf("cut is %q, want %q", c, CutEarlier)
	}
	small := wait(t, r, start, tokens("m", 10))
	small.mustWait(t)
	large.mustWait(t)
	running.Done(start, success())
	large.mustGet(t).Done(start, success())
	small.mustGet(t).Done(start, success())
	mustBeIdle(t, r, start)
}

// TestNobodyOvertakesWhenABreakersTimeIsOver: the trial belongs to who waits, even if nobody called Tick.
func TestNobodyOvertakesWhenABreakersTimeIsOver(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{InFlight: 1})))
	mustPick(t, r, start, pinned("m", "a")).Done(start, unreachable())
	mustPick(t, r, start, query("m"))
	w := wait(t, r, start, query("m"))
	mustRefuse(t, r, at(2*time.Second), query("m"), Saturated)
	if l := w.mustGet(t); l.Deployment().ID != "a/m" {
		t.Errorf("the waiter got %s, want a/m", l.Deployment().ID)
	}
}

// TestCancelServesThoseBehind: room that was kept for the one who left is given on at once.
func TestCancelServesThoseBehind(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{Tokens: 100})))
	mustPick(t, r, start, tokens("m", 60))
	large := wait(t, r, start, tokens("m", 80))
	small := wait(t, r, start, tokens("m", 40))
	small.mustWait(t)
	large.Cancel(start)
	small.mustGet(t)
}

// TestLargeRequestIsNotStarved by a stream of small ones that would always fit.
func TestLargeRequestIsNotStarved(t *testing.T) {
	r := newRouter(t, pool1("m", depWith("a/m", Limits{}, Limits{Tokens: 100})), pool1("n", depWith("a/n", Limits{}, Limits{Tokens: 100})))
	var small []*Lease
	for range 10 {
		small = append(small, mustPick(t, r, start, tokens("n", 10)))
	}
	large := wait(t, r, start, tokens("m", 5000)) // larger than the limit: needs the endpoint idle
	var behind []*waiter
	for _, l := range small {
		large.mustWait(t)
		behind = append(behind, wait(t, r, start, tokens("n", 10)))
		l.Done(start, success())
	}
	l := large.mustGet(t)
	for _, w := range behind {
		w.mustWait(t)
	}
	l.Done(start, success())
	for _, w := range behind {
		w.mustGet(t).Done(start, success())
	}
	mustBeIdle(t, r, start)
}

func TestQueueFull(t *testing.T) {
	r := New(Options{MaxWaiting: 2})
	adopt(t, r, start, pool1("m", dep("a/m", Limits{InFlight: 1})), pool1("n", dep("b/n", Limits{InFlight: 1})))
	m, n := mustPick(t, r, start, query("m")), mustPick(t, r, start, query("n"))
	first := wait(t, r, start, query("m"))
	wait(t, r, start, pinned("m", "a")) // counts for the model, though it waits in another queue
	ticket, refusal := r.Wait(start, query("m"), func() { t.Error("woken") })
	if ticket != nil || refusal == nil || refusal.Kind != QueueFull {
		t.Fatalf("the third got %v, %+v; want queue_full", ticket, refusal)
	}
	if d := refusal.Decision; d == nil || d.Model != "m" || d.At != start {
		t.Errorf("its decision is %+v", d)
	}
	wait(t, r, start, query("n")) // limits are per model
	n.Done(start, success())
	if got := r.View(start).Waiting; got["m"] != 2 || got["n"] != 0 {
		t.Errorf("waiting: %v, want 2 for m", got)
	}
	first.Cancel(start)
	wait(t, r, start, query("m"))
	m.Done(start, success())
}

// TestVanishedModelAnswersItsWaiters at once, and those who lost their last deployment.
func TestVanishedModelAnswersItsWaiters(t *testing.T) {
	m, n := pool1("m", dep("a/m", Limits{InFlight: 1})), pool1("n", dep("b/n", Limits{InFlight: 1}))
	r := newRouter(t, m, n)
	lm, ln := mustPick(t, r, start, query("m")), mustPick(t, r, start, query("n"))
	wm, wn := wait(t, r, start, query("m")), wait(t, r, start, query("n"))
	adopt(t, r, start, n)
	if l, f := wm.Result(); l != nil || f == nil || f.Kind != NoModel || wm.woken != 1 {
		t.Errorf("waiter of the vanished model: %v, %+v, woken %d times; want no_model, once", l, f, wm.woken)
	}
	wn.mustWait(t)
	adopt(t, r, start, pool1("n"))
	if l, f := wn.Result(); l != nil || f == nil || f.Kind != Unavailable || wn.woken != 1 {
		t.Errorf("waiter without deployments: %v, %+v, woken %d times; want unavailable, once", l, f, wn.woken)
	}
	lm.Done(start, success())
	ln.Done(start, success())
	mustBeIdle(t, r, start)
}

// TestWaiterIsRefusedWhenNobodyIsLeft: waiting is no use when the deployment breaks.
func TestWaiterIsRefusedWhenNobodyIsLeft(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{InFlight: 1})))
	l := mustPick(t, r, start, query("m"))
	w := wait(t, r, start, query("m"))
	l.Done(start, unreachable())
	if l, f := w.Result(); l != nil || f == nil || f.Kind != Unavailable || f.RetryIn != scopeView(t, r, start, "a").Breaker.Until.Sub(start) {
		t.Errorf("%v, %+v; want unavailable until the breaker lets a trial through", l, f)
	}
}

// TestTickServesWhenABreakersTimeIsOver.
func TestTickServesWhenABreakersTimeIsOver(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{InFlight: 1})))
	mustPick(t, r, start, pinned("m", "a")).Done(start, unreachable())
	if next := r.Tick(start); !next.IsZero() {
		t.Errorf("nobody waits, yet Tick asks to be called at %v", next)
	}
	b := mustPick(t, r, start, query("m"))
	w := wait(t, r, start, query("m"))
	next := r.Tick(start)
	if next != scopeView(t, r, start, "a").Breaker.Until {
		t.Errorf("Tick asks to be called at %v, want when the breaker lets a trial through", next)
	}
	w.mustWait(t)
	if next := r.Tick(next); !next.IsZero() {
		t.Errorf("all are served, yet Tick asks to be called at %v", next)
	}
	l := w.mustGet(t)
	if l.Deployment().ID != "a/m" {
		t.Errorf("got %s, want a/m", l.Deployment().ID)
	}
	l.Done(at(time.Second), success())
	b.Done(at(time.Second), success())
	mustBeIdle(t, r, start)
}

// TestGrantAndCancel in every order leave nothing behind.
func TestGrantAndCancel(t *testing.T) {
	var next *waiter
	f := func(name string, steps func(t *testing.T, w *waiter, grant func())) {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, pool1("m", dep("a/m", Limits{InFlight: 1})))
			running := mustPick(t, r, start, query("m"))
			w := wait(t, r, start, query("m"))
			next = wait(t, r, start, query("m"))
			steps(t, w, func() { running.Done(start, success()) })
			next.mustGet(t).Done(start, success())
			mustBeIdle(t, r, start)
		})
	}
	none := func(t *testing.T, w *waiter) {
		t.Helper()
		if l, f := w.Result(); l != nil || f != nil {
			t.Errorf("a cancelled ticket has result %v, %v", l, f)
		}
	}
	f("cancel, grant", func(t *testing.T, w *waiter, grant func()) {
		w.Cancel(start)
		grant()
		none(t, w)
		if w.woken != 0 {
			t.Error("woken after it was cancelled")
		}
	})
	f("grant, cancel", func(t *testing.T, w *waiter, grant func()) { grant(); w.Cancel(start); none(t, w) })
	f("cancel twice", func(t *testing.T, w *waiter, grant func()) { w.Cancel(start); grant(); w.Cancel(start); none(t, w) })
	f("grant, cancel twice", func(t *testing.T, w *waiter, grant func()) { grant(); w.Cancel(start); w.Cancel(start); none(t, w) })
	f("grant, take, cancel", func(t *testing.T, w *waiter, grant func()) {
		grant()
		l := w.mustGet(t)
		w.Cancel(start) // too late: who took it must end it
		next.mustWait(t)
		l.Done(start, success())
	})
}

// TestGrantAndCancelRace: two goroutines, one slot, many times.
func TestGrantAndCancelRace(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{InFlight: 1})))
	taken := 0
	for i := range 2000 {
		running := mustPick(t, r, start, query("m"))
		woken := make(chan struct{}, 1)
		ticket, _ := r.Wait(start, query("m"), func() { woken <- struct{}{} })
		var both sync.WaitGroup
		both.Go(func() { running.Done(start, success()) })
		both.Go(func() {
			if i%2 == 0 {
				ticket.Cancel(start)
				return
			}
			<-woken
			if l, _ := ticket.Result(); l != nil {
				taken++
				l.Done(start, left())
			}
		})
		both.Wait()
		ticket.Cancel(start)
		mustBeIdle(t, r, start)
	}
	if taken != 1000 {
		t.Errorf("%d grants were taken, want 1000", taken)
	}
}

// TestManyGoroutines do everything at once while the fleet changes: limits hold, and nothing is left.
func TestManyGoroutines(t *testing.T) {
	const limit = 3
	spec := func(ids ...string) PoolSpec {
		s := PoolSpec{Model: "m", Strategy: seeded{}}
		for _, id := range ids {
			s.Deployments = append(s.Deployments, depWith(id+"/m", Limits{InFlight: limit}, Limits{InFlight: limit}))
		}
		return s
	}
	fleets := [][]PoolSpec{{spec("a", "b", "c")}, {spec("a", "b")}, {spec("c", "b")}, {}, {spec("a")}}
	r := newRouter(t, fleets[0]...)
	var clock atomic.Int64
	now := func() time.Time { return at(time.Duration(clock.Add(1)) * time.Millisecond) }
	var running sync.Map // ID → *atomic.Int64
	for _, id := range []string{"a/m", "b/m", "c/m"} {
		running.Store(id, &atomic.Int64{})
	}
	use := func(l *Lease, seed int) {
		v, _ := running.Load(l.Deployment().ID)
		count := v.(*atomic.Int64)
		if n := count.Add(1); n > limit {
			t.Errorf("%s runs %d, limit %d", l.Deployment().ID, n, limit)
		}
		l.FirstToken(now())
		l.Progress(now(), seed%300)
		count.Add(-1)
		outcome := []Outcome{success(), left(), success(), broken(), success(), success(), unreachable()}[seed%7]
		var both sync.WaitGroup
		both.Go(func() { l.Done(now(), outcome) })
		l.Done(now(), left())
		both.Wait()
	}
	request := func(seed int) {
		q := query("m")
		q.Facts.Seed = uint64(seed)
		l, refusal := r.Pick(now(), q)
		if refusal != nil && refusal.Kind == Saturated {
			woken := make(chan struct{}, 1)
			ticket, refusal := r.Wait(now(), q, func() { woken <- struct{}{} })
			if refusal != nil {
				return
			}
			defer func() { ticket.Cancel(now()) }()
			if seed%5 == 0 {
				return
			}
			<-woken
			l, _ = ticket.Result()
		}
		if l != nil {
			use(l, seed)
		}
	}
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := range 300 {
				request(g*1000 + i*17)
			}
		})
	}
	all.Go(func() {
		for i := range 300 {
			if _, err := r.Adopt(now(), fleets[i%len(fleets)]); err != nil {
				t.Error(err)
			}
			r.Observe(now(), scope("b"), i%3 != 0)
			r.Tick(now())
			r.View(now())
		}
	})
	all.Wait()
	mustBeIdle(t, r, now())
}

// TestWakingRunsWithoutLock: a shell may call the Router from a wake-up.
func TestWakingRunsWithoutLock(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{InFlight: 1})))
	running := mustPick(t, r, start, query("m"))
	var ticket *Ticket
	served := false
	ticket, _ = r.Wait(start, query("m"), func() {
		l, _ := ticket.Result()
		l.Done(start, success())
		r.View(start)
		served = true
	})
	running.Done(start, success())
	if !served {
		t.Error("not served")
	}
	mustBeIdle(t, r, start)
}

// TestManyClassesOfWaiters: pins, exclusions and earlier tries each get what they can use, oldest first.
func TestManyClassesOfWaiters(t *testing.T) {
	var deps []Deployment
	for i := range 5 {
		deps = append(deps, dep(fmt.Sprintf("e%d/m", i), Limits{InFlight: 1}))
	}
	r := newRouter(t, pool1("m", deps...))
	leases := map[string]*Lease{}
	for range deps {
		l := mustPick(t, r, start, query("m"))
		leases[l.Deployment().ID] = l
	}
	tried := query("m")
	tried.Tried = []string{"e0/m", "e1/m"}
	excludes := query("m")
	excludes.Facts.ExcludeNames = []string{"e0", "e1/m", "e2"}
	waiters := []*waiter{wait(t, r, start, excludes), wait(t, r, start, tried), wait(t, r, start, pinned("m", "e1")), wait(t, r, start, query("m"))}
	var got []string
	for _, id := range []string{"e0/m", "e1/m", "e2/m", "e4/m"} {
		leases[id].Done(start, success())
		for i, w := range waiters {
			if l, _ := w.Result(); l != nil && l.Deployment().ID == id {
				got = append(got, fmt.Sprint(i, " ", id))
			}
		}
	}
	if want := []string{"3 e0/m", "2 e1/m", "1 e2/m", "0 e4/m"}; !slices.Equal(got, want) {
		t.Errorf("served %v, want %v", got, want)
	}
}

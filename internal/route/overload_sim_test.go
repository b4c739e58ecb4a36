//go:build !race

package route

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// crowd is a discrete-event simulation of clients before one model: they come by a Poisson process, are served for a
// log-normal time, and come back exactly when they were told.
type crowd struct {
	t       *testing.T
	r       *Router
	rng     *rand.Rand
	now     time.Time
	events  eventHeap
	seq     int
	spec    load
	tally   tally
	ids     uint64
	running int
}

// load is what a crowd is like.
type load struct {
	slots     int           // of each deployment
	deps      int           // deployments
	service   time.Duration // mean time of a request
	sigma     float64       // of its logarithm
	waiting   int           // Options.MaxWaiting
	deadline  time.Duration
	rate      float64 // arrivals per second as a multiple of capacity
	abandon   float64 // share of those turned away that never come back
	rpm       int     // of each deployment, in place of slots; 0 = none
	same      bool    // all requests are alike
	nameless  bool    // clients do not say that they come again
	seconds   bool    // clients read whole seconds
	tries     int     // before a client gives up, 0 = never does
	impatient bool    // clients come back after a second or two whatever they are told
}

// tally counts what became of clients.
type tally struct {
	fresh, freshAdmitted int     // came for the first time
	back, backAdmitted   int     // came back when they were told to
	early, earlyAdmitted int     // came at half of that time
	timed, untimed       int     // turned away with a time to come back, and without one
	served, late         int     // and waiters whose deadline passed
	busy                 float64 // slot-seconds
}

type event struct {
	at  time.Time
	seq int
	do  func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}

func newCrowd(t *testing.T, seed uint64, l load) *crowd {
	w := &crowd{t: t, r: New(Options{MaxWaiting: l.waiting}), rng: rand.New(rand.NewPCG(seed, 1)), now: start, spec: l}
	w.adopt(l.slots)
	return w
}

// adopt gives each deployment that many slots.
func (w *crowd) adopt(slots int) {
	w.spec.slots = slots
	var deps []Deployment
	for i := range w.spec.deps {
		l := Limits{InFlight: slots}
		if w.spec.rpm > 0 {
			l = Limits{RPM: w.spec.rpm}
		}
		deps = append(deps, dep(fmt.Sprintf("e%d/m", i), l))
	}
	adopt(w.t, w.r, w.now, PoolSpec{Model: "m", Strategy: seeded{}, Deployments: deps})
}

// capacity is how many requests the deployments serve per second.
func (w *crowd) capacity() float64 {
	if w.spec.rpm > 0 {
		return float64(w.spec.rpm*w.spec.deps) / 60
	}
	return float64(w.spec.slots*w.spec.deps) / w.spec.service.Seconds()
}

func (w *crowd) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now.Add(d), w.seq, do})
}

// run lets time pass.
func (w *crowd) run(d time.Duration) {
	end := w.now.Add(d)
	for len(w.events) > 0 && !w.events[0].at.After(end) {
		e := heap.Pop(&w.events).(event)
		w.pass(e.at)
		e.do()
	}
	w.pass(end)
}

func (w *crowd) pass(to time.Time) {
	w.tally.busy += float64(w.running) * to.Sub(w.now).Seconds()
	w.now = to
}

// arrivals brings clients until the rate is set to 0.
func (w *crowd) arrivals() {
	if w.spec.rate <= 0 {
		return
	}
	w.after(seconds(w.rng.ExpFloat64()/(w.spec.rate*w.capacity())), func() {
		w.ids++
		c := &client{w: w, id: w.ids}
		if w.spec.same {
			c.id = 1
		}
		c.come(newcomer)
		w.arrivals()
	})
}

// ticks calls Tick as a shell does.
func (w *crowd) ticks() {
	w.r.Tick(w.now)
	w.after(time.Second, w.ticks)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// visit says when a client comes.
type visit int

const (
	newcomer visit = iota
	onTime
	tooSoon
	unasked
)

type client struct {
	w     *crowd
	id    uint64
	tries int
	due   time.Time
}

func (c *client) come(v visit) {
	w := c.w
	c.tries++
	q := Query{Model: "m", Facts: &Facts{Seed: w.rng.Uint64(), Model: "m", PromptBytes: 400, Text: c.id, ClientRetry: c.tries - 1}}
	if w.spec.nameless {
		q.Facts.ClientRetry = 0
	}
	if w.spec.deadline > 0 {
		q.Until = w.now.Add(w.spec.deadline)
	}
	lease, refusal := w.r.Pick(w.now, q)
	if refusal != nil && refusal.Kind == Saturated {
		var ticket *Ticket
		over := false
		ticket, refusal = w.r.Wait(w.now, q, func() {
			w.after(0, func() {
				if over {
					return
				}
				over = true
				l, f := ticket.Result()
				c.answered(v, l, f)
			})
		})
		if refusal == nil {
			if w.spec.deadline > 0 {
				w.after(w.spec.deadline, func() {
					if !over {
						over = true
						ticket.Cancel(w.now)
						w.tally.late++
						c.counted(v, false)
					}
				})
			}
			return
		}
	}
	c.answered(v, lease, refusal)
}

func (c *client) counted(v visit, admitted bool) {
	n := 0
	if admitted {
		n = 1
	}
	switch t := &c.w.tally; v {
	case newcomer:
		t.fresh++
		t.freshAdmitted += n
	case onTime:
		t.back++
		t.backAdmitted += n
	case tooSoon:
		t.early++
		t.earlyAdmitted += n
	}
}

func (c *client) answered(v visit, l *Lease, f *Refusal) {
	w := c.w
	c.counted(v, l != nil)
	if l != nil {
		mu := math.Log(w.spec.service.Seconds()) - w.spec.sigma*w.spec.sigma/2
		w.running++
		w.after(seconds(math.Exp(mu+w.spec.sigma*w.rng.NormFloat64())), func() {
			w.running--
			w.tally.served++
			l.Done(w.now, success())
		})
		return
	}
	if f.Kind != QueueFull && f.Kind != TooLate && f.Kind != PerMinute {
		w.t.Fatalf("refused: %v", f.Kind)
	}
	if w.spec.impatient {
		if c.tries < w.spec.tries {
			w.after(seconds(0.5+1.5*w.rng.Float64()), func() { c.come(unasked) })
		}
		return
	}
	if v == tooSoon { // it comes again when it was told first
		w.after(c.due.Sub(w.now), func() { c.come(onTime) })
		return
	}
	if f.RetryIn == 0 {
		w.tally.untimed++
		return
	}
	w.tally.timed++
	if w.spec.tries > 0 && c.tries >= w.spec.tries || w.rng.Float64() < w.spec.abandon {
		return
	}
	in := f.RetryIn
	if w.spec.seconds {
		in = (in + time.Second - 1).Truncate(time.Second)
	}
	if w.spec.nameless { // over a network, by a timer
		in += seconds(0.005 * w.rng.Float64())
	}
	c.due = w.now.Add(in)
	if w.rng.IntN(20) == 0 {
		w.after(f.RetryIn/2, func() { c.come(tooSoon) })
		return
	}
	w.after(in, func() { c.come(onTime) })
}

func shareOf(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

func (t *tally) add(o *tally) {
	t.fresh += o.fresh
	t.freshAdmitted += o.freshAdmitted
	t.back += o.back
	t.backAdmitted += o.backAdmitted
	t.early += o.early
	t.earlyAdmitted += o.earlyAdmitted
	t.timed += o.timed
	t.untimed += o.untimed
	t.served += o.served
	t.late += o.late
}

func (t *tally) String() string {
	return fmt.Sprintf("came back %d, admitted %.3f; at half the time %d, admitted %.3f; first %d, admitted %.3f; timed %d, untimed %d; served %d, late %d",
		t.back, shareOf(t.backAdmitted, t.back), t.early, shareOf(t.earlyAdmitted, t.early), t.fresh, shareOf(t.freshAdmitted, t.fresh), t.timed, t.untimed, t.served, t.late)
}

// overloaded runs a load for a while, and then for as long as it takes to serve some hundred requests by each slot.
func overloaded(t *testing.T, seed uint64, l load) (w *crowd, goodput float64) {
	w = newCrowd(t, seed, l)
	w.arrivals()
	w.ticks()
	w.run(40 * l.service)
	w.tally = tally{}
	long := 100 * l.service
	if l.rpm > 0 {
		long *= 4
	}
	w.run(long)
	if l.rpm > 0 {
		return w, float64(w.tally.served) / (w.capacity() * long.Seconds())
	}
	return w, w.tally.busy / (float64(l.slots*l.deps) * long.Seconds())
}

// TestRetryAfterIsTrue: of those who come back when they were told at least 90 % are admitted, and of those who come at
// half the time at most 10 %; while the deployments have no idle moment.
func TestRetryAfterIsTrue(t *testing.T) {
	seed := uint64(0)
	f := func(name string, l load, wantKept, wantEarly float64) {
		for _, rate := range []float64{1.5, 2, 3} {
			l.rate, seed = rate, seed+1
			w, goodput := overloaded(t, seed, l)
			got := &w.tally
			t.Logf("%-13s %.1f×: goodput %.3f, %v", name, rate, goodput, got)
			if kept := shareOf(got.backAdmitted, got.back); kept < wantKept {
				t.Errorf("%s, %.1f×: %.3f of those who came back in time were admitted, want %.2f", name, rate, kept, wantKept)
			}
			if early := shareOf(got.earlyAdmitted, got.early); early > wantEarly {
				t.Errorf("%s, %.1f×: %.3f of those who came at half the time were admitted, want %.2f at most", name, rate, early, wantEarly)
			}
			if goodput < 0.95 {
				t.Errorf("%s, %.1f×: deployments were busy for %.3f of the time", name, rate, goodput)
			}
			if got.back < 100 {
				t.Errorf("%s, %.1f×: only %d came back", name, rate, got.back)
			}
		}
	}
	usual := load{slots: 4, deps: 4, service: 2 * time.Second, sigma: 1, waiting: 100, deadline: time.Minute}
	f("usual", usual, 0.9, 0.1)
	f("slow", load{slots: 4, deps: 2, service: 20 * time.Second, sigma: 1, waiting: 1000, deadline: 2 * time.Minute}, 0.9, 0.1)
	with := func(name string, change func(*load)) {
		l := usual
		change(&l)
		f(name, l, 0.9, 0.1)
	}
	with("half abandon", func(l *load) { l.abandon = 0.5 })
	with("short queue", func(l *load) { l.waiting = 10 })
	with("long queue", func(l *load) { l.waiting, l.deadline = 300, 10*time.Minute })
	with("steady", func(l *load) { l.sigma = 0.3 })
	minute := load{deps: 1, service: 2 * time.Second, sigma: 1, waiting: 100, deadline: 2 * time.Second, rpm: 20}
	f("20 a minute", minute, 0.9, 0.1)
	minute.rpm, minute.deps, minute.deadline, minute.waiting = 60, 3, 5*time.Second, 10
	f("3×60 a minute", minute, 0.9, 0.1)
	minute.deadline = time.Minute
	f("may wait long", minute, 0.9, 0.1)
	alike, tiny := usual, usual
	alike.same, tiny.waiting = true, 2
	f("alike", alike, 0.9, 1)        // who comes early with the same words takes another's place
	f("tiny queue", tiny, 0.8, 0.25) // which makes up for little chance
	alike.nameless = true
	f("nameless", alike, 0.9, 1)
	alike.seconds = true
	f("seconds", alike, 0.9, 1)
	alike.waiting = 10
	f("seconds, short", alike, 0.9, 1)
}

// TestRetryAfterWhenCapacityChanges: what was promised before the deployments halve cannot all be kept, but in the
// half minute after the change most of it is, and soon all is as before.
func TestRetryAfterWhenCapacityChanges(t *testing.T) {
	f := func(before, after int, around float64) {
		t.Helper()
		var sum, later tally
		for seed := range uint64(3) {
			w := newCrowd(t, seed, load{slots: before, deps: 4, service: 2 * time.Second, sigma: 1, waiting: 100, deadline: time.Minute, rate: 2})
			w.arrivals()
			w.ticks()
			w.run(2 * time.Minute)
			w.tally = tally{}
			w.spec.rate *= float64(before) / float64(after) // as many clients as before
			w.adopt(after)
			w.run(30 * time.Second)
			sum.add(&w.tally)
			w.run(30 * time.Second)
			w.tally = tally{}
			w.run(time.Minute)
			later.add(&w.tally)
		}
		t.Logf("%d to %d slots: the first 30 s %v", before, after, &sum)
		t.Logf("%d to %d slots: from 60 s on %v", before, after, &later)
		if kept := shareOf(sum.backAdmitted, sum.back); kept < around {
			t.Errorf("%d to %d slots: at first %.3f of those who came back in time were admitted, want %.2f", before, after, kept, around)
		}
		if kept := shareOf(later.backAdmitted, later.back); kept < 0.9 {
			t.Errorf("%d to %d slots: later %.3f of those who came back in time were admitted, want 0.9", before, after, kept)
		}
		if early := shareOf(later.earlyAdmitted, later.early); early > 0.1 {
			t.Errorf("%d to %d slots: later %.3f of those who came at half the time were admitted, want 0.1 at most", before, after, early)
		}
	}
	f(8, 4, 0.7)
	f(8, 6, 0.85)
	f(4, 8, 0.9)
}

// TestOverloadEnds: with twice the load for five minutes the deployments serve all they can, and when four fifths are
// asked for, those who come are served at once again within a minute, whether clients heed what they are told or not.
func TestOverloadEnds(t *testing.T) {
	f := func(name string, change func(*load)) {
		t.Helper()
		for seed := range uint64(2) {
			l := load{slots: 4, deps: 4, service: 2 * time.Second, sigma: 1, waiting: 100, deadline: time.Minute, rate: 0.8, tries: 3}
			change(&l)
			w := newCrowd(t, seed, l)
			w.arrivals()
			w.ticks()
			w.run(time.Minute)
			w.spec.rate, w.tally = 2, tally{}
			w.run(5 * time.Minute)
			goodput := w.tally.busy / (float64(l.slots*l.deps) * 300)
			w.spec.rate = 0.8
			w.run(time.Minute)
			w.tally = tally{}
			w.run(2 * time.Minute)
			t.Logf("%s: goodput %.3f; from a minute after it on %v", name, goodput, &w.tally)
			if goodput < 0.9 {
				t.Errorf("%s: goodput %.3f of what the deployments can do", name, goodput)
			}
			if ok := shareOf(w.tally.freshAdmitted, w.tally.fresh); ok < 0.99 {
				t.Errorf("%s: %.3f of those who came a minute after the overload were served at once", name, ok)
			}
		}
	}
	f("as told", func(*load) {})
	f("impatient", func(l *load) { l.impatient = true })
	f("impatient, 10 tries", func(l *load) { l.impatient, l.tries = true, 10 })
}

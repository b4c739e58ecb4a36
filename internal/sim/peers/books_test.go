package peers

import (
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

// TestBooks: what runs is counted from dispatch to end, what is prefilled to the first token, each once.
func TestBooks(t *testing.T) {
	r := newRig(t, "lmetric", 2)
	b := &r.p.(*lmetric).books
	f := func(what string, running, queued, uncached, held int) {
		t.Helper()
		w := b.workers[0]
		if w.running != running || w.queued != queued || w.uncached != uncached || w.held != held {
			t.Fatalf("%s: %+v, want %d running, %d queued, %d tokens uncached and %d held", what, w, running, queued, uncached, held)
		}
	}
	x := r.send(0, prompt(1500, 1, 2))
	f("one", 1, 1, 1500, 1500)
	y := r.send(0, prompt(1500, 1, 2)) // its two blocks were sent before
	f("two", 2, 2, 1976, 1976)
	r.begin(x)
	f("a first token", 2, 1, 476, 1976)
	r.end(x, true)
	f("an end", 1, 1, 476, 476)
	r.end(y, false) // without a first token
	f("a failure", 0, 0, 0, 0)
	r.p.Learn(&sim.Notice{Kind: sim.Over, Attempt: 99, Deployment: 0, Request: &sim.Request{}})
	f("an end of what it never heard of", 0, 0, 0, 0)
	if len(b.open) != 0 {
		t.Errorf("%d attempts are left over", len(b.open))
	}
	r.scraped(1, engine.Load{Waiting: 3})
	if w := b.workers[1]; w.load.Waiting != 3 || w.since != 0 {
		t.Errorf("%+v", w)
	}
	r.send(1, prompt(700))
	if w := b.workers[1]; w.since != 700 {
		t.Errorf("%d tokens since the scrape, want 700", w.since)
	}
}

func TestBooksFollowCandidates(t *testing.T) {
	r := newRig(t, "litellm/least-busy", 4)
	r.sent(0, 3, 2, 1)
	r.missing[0] = true
	r.is("without the first", prompt(1), 3)
	r.missing[3] = true
	r.is("without first and last", prompt(1), 2)
}

func TestSpeed(t *testing.T) {
	var s speed
	for i := range 7 {
		s.add(100, float64(i+1))
	}
	s.add(0, 1)
	s.add(1, 0)
	if s.takes(100) != 0 {
		t.Error("a speed is known from eight samples on")
	}
	s.add(100, 8) // 100, 50, 33.3, ..., 12.5 per second: rank round(0.9·7) = 6 of 0..7 is 50
	if got := s.takes(100); got != 2 {
		t.Errorf("100 take %v s, want 2", got)
	}
	for range speedWindow {
		s.add(10, 1)
	}
	if got := s.takes(100); got != 10 {
		t.Errorf("100 take %v s after %d samples of 10 per second, want 10", got, speedWindow)
	}
}

func TestRecent(t *testing.T) {
	m := newRecent(2)
	m.add(0, 9)
	m.add(1, 10)
	m.add(2, 20)
	m.add(1, 11)
	m.add(3, 30)
	for key, want := range map[uint64]int{0: 0, 1: 0, 2: 20, 3: 30} {
		if got := m.value(key); got != want {
			t.Errorf("key %d: %d, want %d", key, got, want)
		}
	}
}

func TestEWMAsByHand(t *testing.T) {
	k := peak{cost: 1, at: 0}
	k.sample(10*time.Second, 0, 10*time.Second) // e^-1
	if near(k.cost, 0.36788) != nil {
		t.Error(near(k.cost, 0.36788))
	}
	k.sample(10*time.Second, 3, 10*time.Second)
	if k.cost != 3 {
		t.Errorf("a peak of 3 leaves %v", k.cost)
	}
	if e := near((peak{cost: 2, at: 0}).decayed(10*time.Second, 1), 2*0.36788+0.63212); e != nil {
		t.Error(e)
	}
}

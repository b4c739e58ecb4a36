package proxy

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// A bug is that request's alone: 500 for its client, everything it held given back.

// panicky is a strategy with a bug: its n-th pick panics.
type panicky struct{ left atomic.Int32 }

func (p *panicky) Pick(*route.Round) int {
	if p.left.Add(-1) == 0 {
		panic("a bug in a strategy")
	}
	return 0
}

// adopt replaces the strategy of the world's pool.
func (w *world) adopt(s route.Strategy) {
	w.t.Helper()
	var spec route.PoolSpec
	spec.Model, spec.Strategy = "m", s
	for _, d := range w.router.View(w.now()).Deployments {
		spec.Deployments = append(spec.Deployments, route.Deployment{ID: d.ID, Endpoint: d.Endpoint, URL: d.URL, Model: d.Model, Weight: 1})
	}
	if _, err := w.router.Adopt(w.now(), []route.PoolSpec{spec}); err != nil {
		w.t.Fatal(err)
	}
}

func failedInside(t *testing.T, w *world, a answer) {
	t.Helper()
	if a.status != 500 || !strings.Contains(a.body, `"code":"evenkeel_internal"`) || a.header.Get("X-Evenkeel-Id") == "" || strings.Contains(a.body, "a bug") {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if !strings.Contains(w.log.String(), "a request's handler panicked") || !strings.Contains(w.log.String(), "a bug") {
		t.Errorf("log: %s", w.log.String())
	}
	w.idle()
	if a := w.post("/v1/chat/completions", chatBody); a.status != 200 || a.body != goodJSON {
		t.Errorf("the next request: %d %s", a.status, a.body)
	}
}

func TestPanicInTheStrategy(t *testing.T) {
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON))
	s := &panicky{}
	s.left.Store(1)
	w.adopt(s)
	failedInside(t, w, w.post("/v1/chat/completions", chatBody))
	if r := w.record(1); r.Result != exchange.Aborted {
		t.Errorf("%s", r.Result)
	}
}

// The pick after a pause is made on the timer's goroutine, where a panic would end the process.
func TestPanicOnTheTimer(t *testing.T) {
	var asked atomic.Int32
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			jsonAnswer(500, "{}")(rw, r)
			return
		}
		jsonAnswer(200, goodJSON)(rw, r)
	})
	s := &panicky{}
	s.left.Store(2)
	w.adopt(s)
	failedInside(t, w, w.post("/v1/chat/completions", chatBody))
}

// A panic in the shell itself, with a lease in hand.
func TestPanicDuringAnAttempt(t *testing.T) {
	var looks atomic.Int32
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON))
	w.proxy.Current = func() *Generation {
		if looks.Add(1) == 2 { // the first is for the request, the second for its attempt
			panic("a bug in a generation")
		}
		return w.gen.Load()
	}
	failedInside(t, w, w.post("/v1/chat/completions", chatBody))
	if d := w.deployment(0); d.Totals.Faults != 0 {
		t.Errorf("the endpoint was blamed: %+v", d.Totals)
	}
}

// A panic before anything is leased.
func TestPanicAtTheStart(t *testing.T) {
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON))
	budget := w.proxy.Budget
	w.proxy.Budget = nil // starting an exchange counts it there
	a := w.post("/v1/chat/completions", chatBody)
	w.proxy.Budget = budget
	if a.status != 500 {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

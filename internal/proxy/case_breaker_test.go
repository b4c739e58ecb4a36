package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/strategy"
)

// Cases of the kind breaker-cooldown. Times are those of the report divided by twenty.

// faulty answers the first n requests with a status, and all others well. It counts what it gets.
type faulty struct {
	status int
	n      int32
	got    atomic.Int32
}

func (f *faulty) serve(w http.ResponseWriter, r *http.Request) {
	if f.got.Add(1) <= f.n {
		jsonAnswer(f.status, `{"error":{"message":"broken","type":"server_error"}}`)(w, r)
		return
	}
	jsonAnswer(200, goodJSON)(w, r)
}

// TestCase36CoolingTheOnlyEndpoint: a run of failures takes the only endpoint out. Who comes meanwhile is told how long, in the
// shape of the dialect; refusals of ours do not make it longer; one time out after the recovery all is well.
func TestCase36CoolingTheOnlyEndpoint(t *testing.T) {
	const cooldown = 250 * time.Millisecond
	f := func(t *testing.T, endpoints ...*faulty) {
		var handlers []upstreamHandler
		for _, e := range endpoints {
			handlers = append(handlers, e.serve)
		}
		w := newWorld(t, options{health: route.Health{ResetAfter: cooldown}, change: func(g *Generation) { g.MaxAttempts = 1 }}, handlers...)
		var outSince time.Time
		refused, good := 0, 0
		for deadline := time.Now().Add(20 * time.Second); good < 20; {
			if time.Now().After(deadline) {
				t.Fatalf("after 20 s: %d refused, %d good in a row", refused, good)
			}
			a := w.post("/v1/chat/completions", chatBody)
			switch a.status {
			case 200:
				good++
			case 500:
				good = 0
			case 503:
				if good = 0; outSince.IsZero() {
					outSince = time.Now()
				}
				refused++
				var body struct {
					Error struct{ Message, Type, Code string }
				}
				if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Error.Code != "evenkeel_no_deployment" || body.Error.Message == "" || body.Error.Type == "" {
					t.Fatalf("refused with %s (%v)", a.body, err)
				}
				// Whole seconds are the smallest that Retry-After can say.
				if s, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || s > 1 {
					t.Fatalf("Retry-After %q", a.header.Get("Retry-After"))
				}
				if ms, err := strconv.ParseFloat(a.header.Get("Retry-After-Ms"), 64); err != nil || ms <= 0 || ms > 1.1*float64(cooldown.Milliseconds()) {
					t.Fatalf("Retry-After-Ms %q, want at most the rest of the cooldown", a.header.Get("Retry-After-Ms"))
				}
			default:
				t.Fatalf("status %d", a.status)
			}
		}
		if refused == 0 {
			t.Error("nobody was refused: it was never out")
		}
		for i, e := range endpoints {
			if v := w.deployment(i); v.Breaker.Openings != 1 || v.Totals.Faults != uint64(e.n) {
				t.Errorf("endpoint %d opened %d times after %d failures, want once after %d: refusals must not count", i, v.Breaker.Openings, v.Totals.Faults, e.n)
			}
		}
		w.idle()
	}
	t.Run("one", func(t *testing.T) { f(t, &faulty{status: 500, n: 5}) })
	t.Run("two", func(t *testing.T) { f(t, &faulty{status: 500, n: 5}, &faulty{status: 500, n: 5}) })
}

// TestCase37BreakerCloses: an endpoint that was out is tried, comes back and carries its share again.
func TestCase37BreakerCloses(t *testing.T) {
	a, b := &faulty{status: 503, n: 10}, &faulty{}
	w := newWorld(t, options{health: route.Health{ResetAfter: 100 * time.Millisecond}}, a.serve, b.serve)
	ask := func(n int) (served [2]int32) {
		before := [2]int32{a.got.Load(), b.got.Load()}
		for range n {
			if x := w.post("/v1/chat/completions", chatBody); x.status != 200 {
				t.Fatalf("status %d: %s", x.status, x.body)
			}
		}
		return [2]int32{a.got.Load() - before[0], b.got.Load() - before[1]}
	}
	until(t, "the endpoint is back for good", func() bool {
		ask(1)
		return a.got.Load() > a.n && w.deployment(0).Breaker.State == route.Closed
	})
	if n := ask(100); n[0] < 40 || n[0] > 60 {
		t.Errorf("of 100 requests after its return a gets %d", n[0])
	}
	if v := w.deployment(0); v.Totals.Faults != 10 {
		t.Errorf("%d faults, want 10", v.Totals.Faults)
	}
	w.idle()
}

// TestCase38HalfOpenStampede: of 200 clients that come when the time out is over, one is the trial. The others are served
// by another model, or told at once; when the trial fails, the endpoint is out for longer.
func TestCase38HalfOpenStampede(t *testing.T) {
	const clients = 200
	f := func(t *testing.T, fallback bool, wantOthers int) {
		var sick atomic.Int32 // requests running there
		var most atomic.Int32
		hang := make(chan struct{})
		var failing atomic.Bool
		failing.Store(true)
		bad := func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if failing.Load() {
				jsonAnswer(500, `{"error":{"message":"broken","type":"server_error"}}`)(w, r)
				return
			}
			most.Store(max(most.Load(), sick.Add(1)))
			defer sick.Add(-1)
			select {
			case <-hang:
			case <-r.Context().Done():
			}
			jsonAnswer(500, `{"error":{"message":"broken","type":"server_error"}}`)(w, r)
		}
		good := &faulty{}
		w := newWorld(t, options{health: route.Health{ResetAfter: 300 * time.Millisecond}}, bad, good.serve)
		w.chainTo(fallback)
		for range 5 {
			w.post("/v1/chat/completions", chatBody)
		}
		first := w.deployment(0).Breaker
		if first.State != route.Open {
			t.Fatalf("after five failures it is %v", first.State)
		}
		failing.Store(false)
		until(t, "the time out is over", func() bool { return w.deployment(0).Breaker.State == route.HalfOpen })

		statuses := make(chan int, clients)
		var all sync.WaitGroup
		for range clients {
			all.Go(func() { statuses <- w.post("/v1/chat/completions", chatBody).status })
		}
		for range clients - 1 {
			if s := within(t, "an answer for those who are not the trial", statuses); s != wantOthers {
				t.Errorf("one who is not the trial got %d, want %d", s, wantOthers)
			}
		}
		if most.Load() != 1 {
			t.Errorf("%d requests ran at the sick endpoint at a time", most.Load())
		}
		close(hang)
		all.Wait()
		again := w.deployment(0).Breaker
		if again.State != route.Open || again.Out != 2*first.Out {
			t.Errorf("after the trial failed it is %v for %v, want open for %v", again.State, again.Out, 2*first.Out)
		}
		w.idle()
	}
	t.Run("with a fallback", func(t *testing.T) { f(t, true, 200) })
	t.Run("alone", func(t *testing.T) { f(t, false, 503) })
}

func roundRobin(t *testing.T) route.Strategy {
	t.Helper()
	s, err := strategy.New("round_robin", nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// chainTo leaves the model m the first endpoint, and has the second serve the model n, which is m's fallback or not.
func (w *world) chainTo(fallback bool) {
	w.t.Helper()
	g := *w.gen.Load()
	g.Chains = map[string][]string{"m": {"m"}, "n": {"n"}}
	if fallback {
		g.Chains["m"] = []string{"m", "n"}
	}
	w.gen.Store(&g)
	ds := w.router.View(time.Now()).Deployments
	spec := func(model string, d route.DeploymentView) route.PoolSpec {
		return route.PoolSpec{Model: model, Strategy: roundRobin(w.t), Deployments: []route.Deployment{{
			ID: d.ID, Endpoint: d.Endpoint, URL: d.URL, Model: d.Model, Weight: 1, Limits: d.Limits,
			Scopes: []route.Scope{{Kind: route.EndpointScope, Name: d.Endpoint, URL: d.URL}},
		}}}
	}
	if _, err := w.router.Adopt(time.Now(), []route.PoolSpec{spec("m", ds[0]), spec("n", ds[1])}); err != nil {
		w.t.Fatal(err)
	}
}

// TestCase42SaturationIsNotDeath: an engine that says when to come back is busy, not ill: it is left alone for that long and no
// longer. One that always fails gets at most one trial per time out, also when it is reached as a fallback.
func TestCase42SaturationIsNotDeath(t *testing.T) {
	t.Run("busy", func(t *testing.T) {
		var running atomic.Int32
		free := make(chan struct{})
		w := newWorld(t, options{change: func(g *Generation) { g.MaxAttempts = 1 }}, func(w http.ResponseWriter, r *http.Request) {
			defer running.Add(-1)
			if running.Add(1) > 4 {
				jsonAnswer(503, `{"error":{"message":"queue full"}}`, "Retry-After-Ms", "40")(w, r)
				return
			}
			<-free
			jsonAnswer(200, goodJSON)(w, r)
		})
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() { w.post("/v1/chat/completions", chatBody) })
		}
		until(t, "some were told to come back", func() bool { return w.deployment(0).Totals.Faults > 0 })
		close(free)
		all.Wait()
		until(t, "it is no longer left alone", func() bool { return w.deployment(0).Breaker.State == route.Closed })
		for range 20 {
			if a := w.post("/v1/chat/completions", chatBody); a.status != 200 {
				t.Fatalf("after the burst: %d %s", a.status, a.body)
			}
		}
		if v := w.deployment(0); v.Breaker.Openings != 0 {
			t.Errorf("the breaker opened %d times", v.Breaker.Openings)
		}
		w.idle()
	})
	t.Run("always failing", func(t *testing.T) {
		bad, good := &faulty{status: 500, n: 1 << 30}, &faulty{}
		const cooldown = 200 * time.Millisecond
		w := newWorld(t, options{health: route.Health{ResetAfter: cooldown}}, bad.serve, good.serve)
		begun := time.Now()
		for time.Since(begun) < 5*cooldown {
			if a := w.post("/v1/chat/completions", chatBody); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		// Five in a row, then a trial after 1, 3, 6, ... times out.
		if got := bad.got.Load(); got < 6 || got > 5+4 {
			t.Errorf("the endpoint that always fails got %d requests", got)
		}
		w.idle()
	})
}

// TestCase76OneHungEndpoint: requests that hang at one endpoint hold up nobody who asks for another model, and a model that
// is served there too is served by the other endpoint once the first is known to hang.
func TestCase76OneHungEndpoint(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	var hung atomic.Int32
	bad := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		hung.Add(1)
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}
	good := &faulty{}
	w := newWorld(t, options{
		deadlines: exchange.Deadlines{Deadline: 20 * time.Second, FirstToken: 2 * time.Second, Response: 2 * time.Second, Hold: time.Second},
		change: func(g *Generation) {
			g.Chains["own"] = []string{"own"}
			g.MaxAttempts = 2
		},
	}, bad, good.serve)
	ds := w.router.View(time.Now()).Deployments
	deployments := func(of ...int) (list []route.Deployment) {
		for _, i := range of {
			d := ds[i]
			list = append(list, route.Deployment{ID: d.ID, Endpoint: d.Endpoint, URL: d.URL, Model: d.Model, Weight: 1, Limits: route.Limits{InFlight: 50},
				Scopes: []route.Scope{{Kind: route.EndpointScope, Name: d.Endpoint, URL: d.URL}}})
		}
		return list
	}
	_, err := w.router.Adopt(time.Now(), []route.PoolSpec{
		{Model: "m", Strategy: roundRobin(t), Deployments: deployments(0, 1)},
		{Model: "own", Strategy: roundRobin(t), Deployments: deployments(1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var crowd sync.WaitGroup
	for range 100 {
		crowd.Go(func() {
			// The retry budget does not cover all who hang before it is known.
			if a := w.post("/v1/chat/completions", chatBody); a.status != 200 && a.status != 504 {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	until(t, "many hang", func() bool { return hung.Load() >= 30 })
	for i := range 50 {
		if a := w.post("/v1/chat/completions", fmt.Sprintf(`{"model":"own","messages":[{"role":"user","content":"%d"}]}`, i)); a.status != 200 {
			t.Fatalf("a model of the other endpoint: %d %s", a.status, a.body)
		}
	}
	crowd.Wait()
	until(t, "the hung one is known to hang", func() bool { return w.deployment(0).Breaker.State == route.Open })
	before := hung.Load()
	for range 50 {
		if a := w.post("/v1/chat/completions", chatBody); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if n := hung.Load() - before; n > 1 {
		t.Errorf("%d more requests went to the hung endpoint", n)
	}
	w.idle()
}

// TestAllAreLimited: while everybody has used up a quota, clients are told 429 with the soonest reset, and nobody upstream is
// asked; when somebody is out for another reason, it is 503.
func TestAllAreLimited(t *testing.T) {
	var asked atomic.Int32
	limited := func(seconds string) upstreamHandler {
		return func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			jsonAnswer(429, `{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"}}`, "Retry-After", seconds)(w, r)
		}
	}
	w := newWorld(t, options{}, limited("9"), limited("5"))
	f := func(status int, code string, most int) {
		t.Helper()
		a := w.post("/v1/chat/completions", chatBody)
		after, err := strconv.Atoi(a.header.Get("Retry-After"))
		if a.status != status || a.code() != code || err != nil || after < 1 || after > most {
			t.Errorf("%d %s, Retry-After %q; want %d %s and at most %d s", a.status, a.body, a.header.Get("Retry-After"), status, code, most)
		}
	}
	f(429, "rate_limit_exceeded", 9) // upstream's own
	before := asked.Load()
	for range 5 {
		f(429, "evenkeel_upstream_rate_limited", 5)
	}
	if n := asked.Load() - before; n != 0 {
		t.Errorf("%d requests went upstream before the reset", n)
	}
	if err := w.router.Override(time.Now(), "endpoint", "b", route.Disable); err != nil {
		t.Fatal(err)
	}
	f(503, "evenkeel_no_deployment", 9)
	w.idle()
}

// code is the code of an error's body.
func (a answer) code() string {
	var body struct{ Error struct{ Code string } }
	_ = json.Unmarshal([]byte(a.body), &body) // none: ""
	return body.Error.Code
}

package health

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/upstream"
)

const exposition = "text/plain; version=0.0.4"

// listening is a plan that asks for signals alone.
func (w *world) listening(names, kindName string) *Plan {
	p := w.plan(names, kindName)
	p.Interval, p.Signals = 0, time.Second
	return p
}

func (w *world) allHeard() []Hearing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.hearings)
}

// byPath answers with the replies of paths, and 404 where there is none.
func byPath(replies map[string]func(*upstream.Stop, *upstream.Request) (*http.Response, error)) func(*upstream.Stop, *upstream.Request) (*http.Response, error) {
	return func(s *upstream.Stop, r *upstream.Request) (*http.Response, error) {
		if reply := replies[r.Path]; reply != nil {
			return reply(s, r)
		}
		return answering(404, exposition, "404 page not found")(s, r)
	}
}

// TestSignalsReachTheRouter, as often as the plan says, with the time when they were asked for; a plan without them ends that.
func TestSignalsReachTheRouter(t *testing.T) {
	inBubble(t, "ab", func(t *testing.T, w *world) {
		p := w.listening("ab", "vllm")
		w.fakes["a"].become(answering(200, exposition, "~", "~", vllmPage))
		w.fakes["b"].become(answering(200, exposition, vllmOldPage))
		w.checker.Set(p)
		pass(10 * time.Second)
		for name, want := range map[string]route.Signal{
			"a": {Running: 12, Waiting: 3, KVUse: 0.375, CacheTokens: 432_000, Several: true}, "b": {Running: 2, Waiting: 0, KVUse: 0.125},
		} {
			asked := w.fakes[name].all()
			if n := len(asked); n != 10 || asked[n-1].path != "/metrics" || asked[n-1].method != "GET" {
				t.Errorf("%s was asked %d times in 10 s: %+v", name, n, asked[n-1])
			}
			got := w.view(name).Signal
			if want.At = asked[len(asked)-1].at; got != want {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
		for _, h := range w.allHeard() {
			if h.Verdict != OK {
				t.Errorf("%+v", h)
			}
		}
		p = w.listening("ab", "vllm")
		p.Signals = 0
		w.checker.Set(p)
		pass(time.Minute)
		if n := w.fakes["a"].count(); n != 10 {
			t.Errorf("asked %d times though the plan has none", n)
		}
	})
}

// TestNoSignalsAreAskedForRarely: of a server without such pages each is asked for once, and after 5 minutes again, when it may be another one.
func TestNoSignalsAreAskedForRarely(t *testing.T) {
	inBubble(t, "a", func(t *testing.T, w *world) {
		p := w.listening("a", "sglang")
		w.fakes["a"].become(byPath(nil))
		w.checker.Set(p)
		pass(time.Minute)
		if asked := w.fakes["a"].all(); len(asked) != 2 || asked[0].path != "/v1/loads" || asked[1].path != "/metrics" {
			t.Fatalf("asked for %+v", asked)
		}
		if s := w.view("a").Signal; !s.At.IsZero() {
			t.Errorf("%+v", s)
		}
		changed := 0
		for _, h := range w.allHeard() {
			if h.Verdict != Unknown || h.Reason != noPage {
				t.Errorf("%+v", h)
			}
			if h.Changed {
				changed++
			}
		}
		if changed != 1 {
			t.Errorf("%d changes, want 1", changed)
		}
		w.fakes["a"].become(byPath(map[string]func(*upstream.Stop, *upstream.Request) (*http.Response, error){
			"/metrics": answering(200, exposition, sglangMetricsPage),
		}))
		pass(noSignals)
		if s := w.view("a").Signal; s.Running != 12 || s.Waiting != 2 {
			t.Errorf("started again with metrics: %+v", s)
		}
		n := w.fakes["a"].count()
		pass(10 * time.Second)
		if more := w.fakes["a"].count() - n; more != 10 {
			t.Errorf("asked %d times in the 10 s after that", more)
		}
	})
}

// TestSlowSignalsAreAskedForLess: never two at a time, and for a tenth of the time at most.
func TestSlowSignalsAreAskedForLess(t *testing.T) {
	inBubble(t, "abc", func(t *testing.T, w *world) {
		p := w.listening("abc", "vllm")
		w.fakes["a"].become(answering(200, exposition, "", vllmPage))    // a second
		w.fakes["b"].become(answering(200, exposition, "...", vllmPage)) // never ends
		w.fakes["c"].become(answering(503, exposition, "loading"))
		w.checker.Set(p)
		pass(time.Minute)
		for name, most := range map[string][2]int{"a": {5, 6}, "b": {2, 3}, "c": {59, 60}} {
			if n := w.fakes[name].count(); n < most[0] || n > most[1] {
				t.Errorf("%s was asked %d times in a minute, want %v", name, n, most)
			}
		}
		reasons := map[string]string{}
		for _, h := range w.allHeard() {
			reasons[h.Endpoint] = string(h.Verdict) + " " + h.Reason
		}
		if reasons["a"] != "ok " || reasons["b"] != "failed timeout" || reasons["c"] != "failed "+complains {
			t.Errorf("%v", reasons)
		}
		if s := w.view("a").Signal; s.Running != 12 {
			t.Errorf("%+v", s)
		}
	})
}

// TestSignalsOfWhoIsOut: nobody is asked at an endpoint that is out.
func TestSignalsOfWhoIsOut(t *testing.T) {
	inBubble(t, "a", func(t *testing.T, w *world) {
		p := w.listening("a", "vllm")
		w.fakes["a"].become(answering(200, exposition, vllmPage))
		w.checker.Set(p)
		w.router.Observe(time.Now(), scope("a"), false)
		pass(10 * time.Second)
		if n := w.fakes["a"].count(); n != 0 {
			t.Errorf("asked %d times", n)
		}
		w.router.Observe(time.Now(), scope("a"), true)
		pass(10 * time.Second)
		if n := w.fakes["a"].count(); n != 10 {
			t.Errorf("back, and asked %d times in 10 s", n)
		}
	})
}

// TestSignalsTooLarge are no signals.
func TestSignalsTooLarge(t *testing.T) {
	inBubble(t, "a", func(t *testing.T, w *world) {
		p := w.listening("a", "vllm")
		w.fakes["a"].become(answering(200, exposition, vllmPage+strings.Repeat("x 1\n", maxSignals/4)))
		w.checker.Set(p)
		pass(10 * time.Second)
		if h := w.allHeard(); len(h) != 1 || h[0].Verdict != Unknown {
			t.Errorf("%+v", h)
		}
	})
}

// TestModelsInMemory: each deployment hears whether its model is; Ollama leaves out the tag latest where nobody writes it.
func TestModelsInMemory(t *testing.T) {
	inBubble(t, "ab", func(t *testing.T, w *world) {
		p := w.listening("ab", "ollama")
		w.fakes["a"].become(byPath(map[string]func(*upstream.Stop, *upstream.Request) (*http.Response, error){
			"/api/ps": answering(200, "application/json", `{"models":[{"name":"m:latest"}]}`),
		}))
		w.fakes["b"].become(byPath(map[string]func(*upstream.Stop, *upstream.Request) (*http.Response, error){
			"/api/ps": answering(200, "application/json", `{"models":[{"name":"other"}]}`),
		}))
		w.checker.Set(p)
		pass(3 * time.Second)
		if a, b := w.view("a").Signal, w.view("b").Signal; a.Unloaded || !b.Unloaded || a.At.IsZero() || a.Running != route.NotTold {
			t.Errorf("%+v and %+v", a, b)
		}
	})
}

// TestDisputesAreTold once each.
func TestDisputesAreTold(t *testing.T) {
	inBubble(t, "a", func(t *testing.T, w *world) {
		p := w.listening("a", "vllm")
		w.fakes["a"].become(answering(200, exposition, "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"))
		w.checker.Set(p)
		for range 6 {
			if l, _ := w.router.Pick(time.Now(), route.Query{Model: "a", Facts: &route.Facts{Model: "a"}}); l == nil {
				t.Fatal("no lease")
			}
		}
		disputes := func() (all []route.Dispute) {
			for _, h := range w.allHeard() {
				if h.Dispute != nil {
					all = append(all, *h.Dispute)
				}
			}
			return all
		}
		pass(40 * time.Second)
		if d := disputes(); len(d) != 1 || !d[0].Ignored || d[0].InFlight != 6 {
			t.Errorf("%+v", d)
		}
		w.fakes["a"].become(answering(200, exposition, "vllm:num_requests_running 6\nvllm:num_requests_waiting 0\n"))
		pass(40 * time.Second)
		if d := disputes(); len(d) != 2 || d[1].Ignored {
			t.Errorf("%+v", d)
		}
	})
}

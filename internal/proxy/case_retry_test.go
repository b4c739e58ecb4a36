package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/strategy"
)

// Cases of the kind retry-classification.

// eventOf is a stream's event that holds an error and nothing else.
func eventOf(body string) string { return "data: " + body + "\n\n" }

func openAIError(kind, code, message string) string {
	return fmt.Sprintf(`{"error":{"message":%q,"type":%q,"param":null,"code":%q}}`, message, kind, code)
}

// TestCase12WhatTheFirstEventSays: inside a 200 the same words mean the same as with a status.
func TestCase12WhatTheFirstEventSays(t *testing.T) {
	for class, event := range map[string]string{
		"rate_limited": eventOf(openAIError("requests", "rate_limit_exceeded", "slow down")),
		"overloaded":   "event: error\n" + eventOf(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`),
		"exhausted":    eventOf(openAIError("insufficient_quota", "insufficient_quota", "You exceeded your current quota")),
		"not_served":   eventOf(openAIError("invalid_request_error", "model_not_found", "The model `m` does not exist")),
		"loading":      eventOf(`{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`),
		"auth":         eventOf(openAIError("invalid_request_error", "invalid_api_key", "Incorrect API key provided: UPKEY-1")),
		"server_error": eventOf(openAIError("server_error", "", "it broke")),
	} {
		t.Run(class, func(t *testing.T) {
			keys := []string{"UPKEY-1", "UPKEY-2"}
			w := newWorld(t, options{apiKeys: keys}, sse(": c\n\n", event), sse(healthy))
			for w.deployment(0).Totals.Picks == 0 {
				if a := w.post("/v1/chat/completions", streamBody); a.body != healthy && a.body != ": c\n\n"+healthy || a.err != nil {
					t.Fatalf("client got %q (%v)", a.body, a.err)
				}
			}
			if got := w.log.String(); strings.Contains(got, "UPKEY") {
				t.Errorf("the log holds a key: %s", got)
			}
			found := false
			for i := range w.deployment(1).Totals.Successes {
				for _, a := range w.record(int(i) + 1).Attempts {
					if strings.HasPrefix(a.Deployment, "a/") {
						found = true
						if a.Outcome.Class != class || a.Outcome.Verdict != route.DeploymentFault {
							t.Errorf("%+v", a.Outcome)
						}
					}
				}
			}
			if !found {
				t.Error("no record of the attempt that failed")
			}

			alone := newWorld(t, options{apiKeys: keys, change: func(g *Generation) { g.MaxAttempts = 1 }}, sse(event))
			got := alone.post("/v1/chat/completions", streamBody)
			ours := strings.Contains(got.body, "evenkeel_upstream_")
			if secret := class == "auth" || class == "exhausted"; ours != secret || !secret && got.body != event || strings.Contains(got.body, "UPKEY") {
				t.Errorf("alone: client got %d %q", got.status, got.body)
			}
			alone.idle()
		})
	}
}

// TestCase27CapacityMovesOn: 429, 529 and the like are answered by the next deployment, and the busy one is left alone.
func TestCase27CapacityMovesOn(t *testing.T) {
	for _, status := range []int{429, 529, 503, 520} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var a atomic.Int32
			body := fmt.Sprintf(`{"error":{"message":"busy","code":%d}}`, status)
			o := options{health: route.Health{RateLimitPause: time.Minute}}
			w := newWorld(t, o, counted(&a, jsonAnswer(status, body)), func(w http.ResponseWriter, r *http.Request) {
				if b, _ := io.ReadAll(r.Body); strings.Contains(string(b), `"stream":true`) {
					sse(healthy)(w, r)
					return
				}
				jsonAnswer(200, goodJSON)(w, r)
			})
			for i := range 30 {
				request, want := chatBody, goodJSON
				if i%2 == 1 {
					request, want = streamBody, healthy
				}
				if got := w.post("/v1/chat/completions", request); got.status != 200 || got.body != want {
					t.Fatalf("request %d: %d %s", i, got.status, got.body)
				}
			}
			if n := a.Load(); n < 1 || n > 5 {
				t.Errorf("the busy one was asked %d times", n)
			}
			seen := false
			for i := range 30 {
				for _, at := range w.record(i + 1).Attempts {
					seen = seen || at.Outcome.Status == status
				}
			}
			if !seen {
				t.Errorf("no attempt shows status %d", status)
			}

			alone := newWorld(t, options{change: func(g *Generation) { g.MaxAttempts = 1 }}, jsonAnswer(status, body))
			if got := alone.post("/v1/chat/completions", chatBody); got.status != status || got.body != body {
				t.Errorf("alone: %d %s", got.status, got.body)
			}
			alone.idle()
		})
	}
}

// TestCase28EmptyAccount: an empty account is no passing limit: it is asked once, nobody waits, and it stays out for long.
func TestCase28EmptyAccount(t *testing.T) {
	f := func(name string, status int, body string, keys ...string) {
		t.Run(name, func(t *testing.T) {
			var a atomic.Int32
			empty := counted(&a, jsonAnswer(status, body))
			w := newWorld(t, options{strategy: "round_robin", apiKeys: keys}, empty, jsonAnswer(200, goodJSON))
			for range 10 {
				if got := w.post("/v1/chat/completions", chatBody); got.status != 200 {
					t.Fatalf("%d %s", got.status, got.body)
				}
			}
			b := w.deployment(0).Breaker
			if a.Load() != 1 || b.State != route.Open || b.Rule != route.RuleCredential || b.Reason != "exhausted" || time.Until(b.Until) < 4*time.Minute {
				t.Errorf("asked %d times; %+v", a.Load(), b)
			}
			for i := range 10 {
				if r := w.record(i + 1); len(r.Attempts) > 2 || len(r.Refusals) != 0 || r.Queued != 0 {
					t.Errorf("it took %d attempts, %d refusals", len(r.Attempts), len(r.Refusals))
				}
			}

			alone := newWorld(t, options{apiKeys: keys}, empty)
			got := alone.post("/v1/chat/completions", chatBody)
			if got.status != 502 || !strings.Contains(got.body, "evenkeel_upstream_exhausted") || strings.Contains(got.body, "quota") || got.header.Get("X-Should-Retry") != "false" {
				t.Errorf("alone: %d %s", got.status, got.body)
			}
			alone.idle()
		})
	}
	quota := openAIError("insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan and billing details.")
	f("429 with a code", 429, quota, "UPKEY-1", "UPKEY-2")
	f("without a key", 429, quota)
	f("403 with a code", 403, openAIError("new_api_error", "insufficient_user_quota", "quota"), "UPKEY-1", "UPKEY-2")
	f("402", 402, `{"error":{"message":"Insufficient quota"}}`, "UPKEY-1", "UPKEY-2")
	f("400 of Anthropic", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}`, "UPKEY-1", "UPKEY-2")

	t.Run("passing limit", func(t *testing.T) {
		var first atomic.Int64
		var back atomic.Int64
		w := newWorld(t, options{}, func(w http.ResponseWriter, r *http.Request) {
			if first.CompareAndSwap(0, time.Now().UnixNano()) {
				jsonAnswer(429, openAIError("requests", "rate_limit_exceeded", "slow down"), "Retry-After", "1")(w, r)
				return
			}
			back.CompareAndSwap(0, time.Now().UnixNano())
			jsonAnswer(200, goodJSON)(w, r)
		}, jsonAnswer(200, goodJSON))
		until(t, "it is asked again", func() bool {
			if got := w.post("/v1/chat/completions", chatBody); got.status != 200 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			return back.Load() != 0
		})
		if out := time.Duration(back.Load() - first.Load()); out < time.Second {
			t.Errorf("asked again after %v", out)
		}
	})

	// The client's own credential went upstream, so it is the client's account.
	t.Run("the client's", func(t *testing.T) {
		var b atomic.Int32
		w := newWorld(t, options{change: func(g *Generation) { g.PassCredential = true }}, jsonAnswer(429, quota), counted(&b, jsonAnswer(429, quota)))
		got := w.post("/v1/chat/completions", chatBody, "Authorization", "Bearer CLIENT-1")
		if r := w.record(1); got.status != 429 || got.body != quota || len(r.Attempts) != 1 || r.Result != exchange.ClientFault {
			t.Errorf("%d %s after %d attempts", got.status, got.body, len(r.Attempts))
		}
	})
}

// keyed makes each deployment's key a scope of its own, as the product does.
func (w *world) keyed() {
	w.t.Helper()
	ranking, err := strategy.New("round_robin", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	spec := route.PoolSpec{Model: "m", Strategy: ranking}
	for _, d := range w.router.View(time.Now()).Deployments {
		spec.Deployments = append(spec.Deployments, route.Deployment{
			ID: d.ID, Endpoint: d.Endpoint, URL: d.URL, Model: d.Model, Weight: 1,
			Scopes: []route.Scope{{Kind: route.EndpointScope, Name: d.Endpoint, URL: d.URL}, {Kind: route.CredentialScope, Name: "key of " + d.Endpoint}},
		})
	}
	if _, err := w.router.Adopt(time.Now(), []route.PoolSpec{spec}); err != nil {
		w.t.Fatal(err)
	}
}

// TestCase31OneBadKey: a key that is refused takes itself out, not the provider or the model that another key serves.
func TestCase31OneBadKey(t *testing.T) {
	forbidden := openAIError("permission_error", "", "Your API key may not use this.")
	for name, answer := range map[string]upstreamHandler{
		"401": jsonAnswer(401, openAIError("invalid_request_error", "invalid_api_key", "Incorrect API key provided: UPKEY-1.")),
		"403": jsonAnswer(403, forbidden),
	} {
		t.Run(name, func(t *testing.T) {
			var asked [2]atomic.Int32
			provider := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "Bearer UPKEY-1" {
					counted(&asked[0], answer)(w, r)
					return
				}
				counted(&asked[1], jsonAnswer(200, goodJSON))(w, r)
			})
			w := newWorldAt(t, options{apiKeys: []string{"UPKEY-1", "UPKEY-2"}}, provider, provider)
			w.keyed()
			for i := range 100 {
				if got := w.post("/v1/chat/completions", chatBody); got.status != 200 {
					t.Fatalf("request %d: %d %s", i, got.status, got.body)
				}
			}
			if asked[0].Load() != 1 || asked[1].Load() != 100 {
				t.Errorf("the bad key was used %d times, the good one %d times", asked[0].Load(), asked[1].Load())
			}
			for _, s := range w.router.View(time.Now()).Scopes {
				if bad := s.Kind == route.CredentialScope && s.Name == "key of a"; s.Breaker.State == route.Open != bad || bad && time.Until(s.Breaker.Until) < 4*time.Minute {
					t.Errorf("%s %s: %+v", s.Kind, s.Name, s.Breaker)
				}
			}
			for i := range 2 {
				if s := w.deployment(i).Breaker.State; s != route.Closed {
					t.Errorf("deployment %d is %s by itself", i, s)
				}
			}
			w.hidden("UPKEY-1", "UPKEY-2")
		})
	}
	t.Run("both", func(t *testing.T) {
		bad := jsonAnswer(401, `{"error":{"message":"bad key"}}`)
		keys := []string{"UPKEY-1", "UPKEY-2"}
		w := newWorld(t, options{apiKeys: keys}, bad, bad, jsonAnswer(200, goodJSON))
		w.keyed()
		for i := range 20 {
			if got := w.post("/v1/chat/completions", chatBody); got.status != 200 {
				t.Fatalf("request %d: %d %s", i, got.status, got.body)
			}
		}
		alone := newWorld(t, options{apiKeys: keys}, bad, bad)
		alone.keyed()
		if got := alone.post("/v1/chat/completions", chatBody); got.status != 502 || !strings.Contains(got.body, "evenkeel_upstream_credential") {
			t.Errorf("%d %s", got.status, got.body)
		}
		for range 3 { // both are out now
			if got := alone.post("/v1/chat/completions", chatBody); got.status != 503 || got.header.Get("Retry-After") == "" {
				t.Errorf("%d %s", got.status, got.body)
			}
		}
	})
	// A firewall in front of the engine refuses one prompt in a page of its own: that says nothing about the key.
	t.Run("firewall", func(t *testing.T) {
		w := newWorld(t, options{apiKeys: []string{"UPKEY-1", "UPKEY-2"}}, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if strings.Contains(string(b), "<script>") {
				jsonAnswer(403, "<html>blocked</html>", "Content-Type", "text/html")(w, r)
				return
			}
			jsonAnswer(200, goodJSON)(w, r)
		}, jsonAnswer(200, goodJSON))
		w.keyed()
		for range 2 {
			if got := w.post("/v1/chat/completions", strings.Replace(chatBody, "hello", "<script>", 1)); got.status != 200 {
				t.Errorf("%d %s", got.status, got.body)
			}
		}
		for _, s := range w.router.View(time.Now()).Scopes {
			if s.Breaker.State != route.Closed {
				t.Errorf("%s %s is %s", s.Kind, s.Name, s.Breaker.State)
			}
		}
	})
}

// TestModelNotServed: a deployment that does not know its model is out, another one answers; a client reads upstream's 404 if
// nobody knows it. A 404 about something else is the client's, and counts against nobody.
func TestModelNotServed(t *testing.T) {
	var a atomic.Int32
	unknown := `{"error":{"message":"The model ` + "`m`" + ` does not exist.","type":"NotFoundError","param":null,"code":404}}`
	w := newWorld(t, options{}, counted(&a, jsonAnswer(404, unknown)), jsonAnswer(200, goodJSON))
	for range 10 {
		if got := w.post("/v1/chat/completions", chatBody); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if b := w.deployment(0).Breaker; a.Load() != 1 || b.Rule != route.RuleNotServed {
		t.Errorf("asked %d times; %+v", a.Load(), b)
	}
	both := newWorld(t, options{}, jsonAnswer(404, unknown), jsonAnswer(404, unknown))
	if got := both.post("/v1/chat/completions", chatBody); got.status != 404 || got.body != unknown {
		t.Errorf("%d %s", got.status, got.body)
	}
	one := newWorld(t, options{}, jsonAnswer(404, unknown), jsonAnswer(500, `{"error":{"message":"x"}}`))
	if got := one.post("/v1/chat/completions", chatBody); got.status < 500 {
		t.Errorf("the model is not there, but ill elsewhere: %d %s", got.status, got.body)
	}

	object := `{"error":{"message":"Response with id 'x' not found.","type":"NotFoundError","param":null,"code":404}}`
	w = newWorld(t, options{}, jsonAnswer(404, object))
	for range 10 {
		if got := w.post("/v1/chat/completions", chatBody); got.status != 404 || got.body != object {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if d := w.deployment(0); d.Breaker.State != route.Closed || d.Totals.Faults != 0 {
		t.Errorf("%+v", d)
	}
}

// TestUpstreamWantsNoRepetition: x-should-retry: false keeps the request from the same deployment, not from others.
func TestUpstreamWantsNoRepetition(t *testing.T) {
	f := func(header string, want int32) {
		t.Helper()
		var a atomic.Int32
		failing := counted(&a, jsonAnswer(500, `{"error":{"message":"x"}}`, "X-Should-Retry", header))
		w := newWorld(t, options{}, failing)
		if got := w.post("/v1/chat/completions", chatBody); got.status != 500 || got.header.Get("X-Should-Retry") != header || a.Load() != want {
			t.Errorf("%s: %d after %d requests, want %d", header, got.status, a.Load(), want)
		}
		w = newWorld(t, options{}, failing, jsonAnswer(200, goodJSON))
		for range 2 {
			if got := w.post("/v1/chat/completions", chatBody); got.status != 200 {
				t.Errorf("%s: %d %s", header, got.status, got.body)
			}
		}
	}
	f("false", 1)
	f("true", 3)
}

// TestCase87ModelStillLoading: engines that load are asked about once a second and used when they are done, by themselves. Who
// comes before fails over, or is told when to come back. B refuses connections first.
func TestCase87ModelStillLoading(t *testing.T) {
	const loading = `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`
	var aLoaded, bLoaded atomic.Bool
	var aTries, bTries, aGood, bGood atomic.Int32
	engine := func(loaded *atomic.Bool, tries, good *atomic.Int32) upstreamHandler {
		return func(w http.ResponseWriter, r *http.Request) {
			if !loaded.Load() {
				tries.Add(1)
				jsonAnswer(503, loading)(w, r)
				return
			}
			good.Add(1)
			jsonAnswer(200, goodJSON)(w, r)
		}
	}
	a, b := serve(t, engine(&aLoaded, &aTries, &aGood)), deadURL(t)
	w := newWorldAt(t, options{}, a, b)
	ask := func() bool {
		got := w.post("/v1/chat/completions", chatBody)
		if got.status != 200 && (got.status != 503 || got.header.Get("Retry-After") == "") {
			t.Errorf("%d %v %s", got.status, got.header, got.body)
		}
		return got.status == 200
	}
	begun := time.Now()
	var first sync.WaitGroup
	for range 5 {
		first.Go(func() { ask() })
	}
	first.Wait()
	until(t, "a was asked again while it loads", func() bool { ask(); return aTries.Load() > 5 })
	if rate := float64(aTries.Load()-5) / time.Since(begun).Seconds(); rate > 2 {
		t.Errorf("after the first burst a was asked %.1f times a second", rate)
	}

	l, err := net.Listen("tcp", strings.TrimPrefix(b, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: engine(&bLoaded, &bTries, &bGood)}
	t.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }() // until it is closed
	until(t, "b is asked", func() bool { ask(); return bTries.Load() > 0 })
	aLoaded.Store(true)
	until(t, "a answers", func() bool { return ask() && aGood.Load() > 0 })
	bLoaded.Store(true)
	until(t, "b answers", func() bool { return ask() && bGood.Load() > 0 })
	for _, d := range w.router.View(time.Now()).Deployments {
		if d.Breaker.Openings != 0 {
			t.Errorf("%s opened %d times: %s", d.ID, d.Breaker.Openings, d.Breaker.Last)
		}
	}
	w.idle()
}

// TestDocsNameEveryClass: docs/errors.md has a row for every class that an answer can have.
func TestDocsNameEveryClass(t *testing.T) {
	page, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	for c := llm.ClientFault; c < llm.Connect; c++ {
		if !strings.Contains(string(page), "\n| `"+c.String()+"` |") {
			t.Errorf("%s is not in docs/errors.md", c)
		}
	}
}

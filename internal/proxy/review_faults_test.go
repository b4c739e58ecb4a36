package proxy

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// What a hostile review found of faults that one client can cause to all.

// poisoned answers well, but for requests that hold the word poison.
func poisoned(t *testing.T, got *atomic.Int32, bad upstreamHandler) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "poison") {
			got.Add(1)
			bad(w, r)
			return
		}
		jsonAnswer(200, goodJSON)(w, r)
	}
}

const poison = `{"model":"m","messages":[{"role":"user","content":"poison"}]}`

// TestOneRequestThatResetsTakesNobodyOut: a request that engines cannot bear counts once at each, and all others are served.
func TestOneRequestThatResetsTakesNobodyOut(t *testing.T) {
	var got atomic.Int32
	bad := func(w http.ResponseWriter, _ *http.Request) { reset(hijack(t, w)) }
	w := newWorld(t, options{}, poisoned(t, &got, bad), poisoned(t, &got, bad), poisoned(t, &got, bad))
	for range 3 {
		if a := w.post("/v1/chat/completions", poison); a.status != 502 {
			t.Errorf("the poison: %d %s", a.status, a.body)
		}
		for range 6 {
			if a := w.post("/v1/chat/completions", chatBody); a.status != 200 {
				t.Fatalf("somebody else: %d %s", a.status, a.body)
			}
		}
	}
	for i, d := range w.router.View(time.Now()).Deployments {
		if d.Breaker.Openings != 0 || d.Totals.Faults == 0 {
			t.Errorf("deployment %d: %d openings, %d faults", i, d.Breaker.Openings, d.Totals.Faults)
		}
	}
	for _, s := range w.router.View(time.Now()).Scopes {
		if s.Breaker.Openings != 0 {
			t.Errorf("endpoint %s was out", s.Name)
		}
	}
	w.idle()
}

// TestRequestLargerThanAQuotaPausesNobody: a 429 that no waiting mends is about the request alone.
func TestRequestLargerThanAQuotaPausesNobody(t *testing.T) {
	var got atomic.Int32
	bad := jsonAnswer(429, `{"error":{"message":"Request too large for gpt-x in organization o on tokens per min (TPM): Limit 30000, Requested 40000.","type":"tokens","code":"rate_limit_exceeded"}}`)
	w := newWorld(t, options{}, poisoned(t, &got, bad), poisoned(t, &got, bad))
	for range 12 {
		if a := w.post("/v1/chat/completions", poison); a.status != 429 || a.code() != "rate_limit_exceeded" {
			t.Fatalf("the large request: %d %s, want upstream's own answer", a.status, a.body)
		}
		if a := w.post("/v1/chat/completions", chatBody); a.status != 200 {
			t.Fatalf("somebody else: %d %s", a.status, a.body)
		}
	}
	if got.Load() < 24 {
		t.Errorf("the large request was tried %d times: another deployment may have a larger quota", got.Load())
	}
	for i, d := range w.router.View(time.Now()).Deployments {
		if d.Breaker.State != route.Closed || d.Breaker.Openings != 0 || d.Totals.Faults != 0 {
			t.Errorf("deployment %d: %+v, %d faults", i, d.Breaker, d.Totals.Faults)
		}
	}
	w.idle()
}

// TestDoneIsNoEndOfOtherDialects: messages and responses have an end of their own; [DONE] in its place is a cut answer.
func TestDoneIsNoEndOfOtherDialects(t *testing.T) {
	for _, path := range []string{"/v1/messages", "/v1/responses"} {
		whole := longStream(path, 2)
		f := func(pieces []string, want exchange.Result) {
			t.Helper()
			w := newWorld(t, options{}, sse(pieces...))
			a := w.post(path, `{"model":"m","stream":true,"max_tokens":100,"input":"x","messages":[{"role":"user","content":"hello"}]}`)
			if r := w.record(1); r.Result != want || want == exchange.Cut && !strings.Contains(a.body, "evenkeel_upstream_closed") {
				t.Errorf("%s: %s, client got %q; want %s", path, r.Result, a.body[max(0, len(a.body)-300):], want)
			}
			w.idle()
		}
		f(append(whole[:len(whole):len(whole)], doneEvent), exchange.Complete)
		content := 4 // of messages
		if path == "/v1/responses" {
			content = 3
		}
		f(append(whole[:content:content], doneEvent), exchange.Cut)
	}
}

// TestErrorEventEndsAStream: the client gets one error, upstream's own, though upstream then leaves the connection open.
func TestErrorEventEndsAStream(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/responses"} {
		pieces := longStream(path, 4)
		pieces = pieces[:4:4]
		event := "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"gone\"}}\n\n"
		w := newWorld(t, options{}, func(w http.ResponseWriter, r *http.Request) {
			sse(append(pieces, event)...)(w, r)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		a := w.post(path, `{"model":"m","stream":true,"max_tokens":100,"input":"x","messages":[{"role":"user","content":"hello"}]}`)
		if want := strings.Join(pieces, "") + event; a.body != want {
			t.Errorf("%s: got %q, want %q", path, a.body, want)
		}
		if r := w.record(1); r.Result != exchange.UpstreamError || r.Last().Outcome.Class != "overloaded" {
			t.Errorf("%s: %s, %+v", path, r.Result, r.Last().Outcome)
		}
		w.idle()
	}
}

package proxy

import (
	"net/http"
	"strings"
	"testing"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// What newcomers ran into.

// TestRefusedOwnCredentialIsTheEndpointsFault: an endpoint that refuses the key it was given must not look fast and
// idle, and its 401 is not about the client.
func TestRefusedOwnCredentialIsTheEndpointsFault(t *testing.T) {
	refuses := jsonAnswer(401, `{"error":{"message":"bad key UPKEY-1","type":"authentication_error"}}`)
	w := newWorld(t, options{apiKeys: []string{"UPKEY-1", "UPKEY-2"}}, refuses, jsonAnswer(200, goodJSON))
	for range 20 {
		if a := w.post("/v1/chat/completions", chatBody); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if totals := w.deployment(0).Totals; totals.Faults != totals.Picks || totals.Faults != 1 {
		t.Errorf("the one that refuses: %+v, want it out at once", totals)
	}

	alone := newWorld(t, options{apiKeys: []string{"UPKEY-1"}, change: func(g *Generation) { g.MaxAttempts = 1 }}, refuses)
	a := alone.post("/v1/chat/completions", chatBody)
	if a.status != 502 || !strings.Contains(a.body, "evenkeel_upstream_credential") || strings.Contains(a.body, "UPKEY") {
		t.Errorf("%d %s", a.status, a.body)
	}
	alone.idle()

	// Without a key of its own the endpoint judges the client.
	w = newWorld(t, options{}, jsonAnswer(401, `{"error":"Unauthorized"}`))
	if a := w.post("/v1/chat/completions", chatBody); a.status != 401 || a.body != `{"error":"Unauthorized"}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	if r := w.record(1); r.Result != exchange.ClientFault {
		t.Errorf("%s", r.Result)
	}
}

// TestHalfJSONIsTruncated: an answer that ends in the middle of its document, though HTTP calls it whole, moves.
func TestHalfJSONIsTruncated(t *testing.T) {
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON[:len(goodJSON)/2]), jsonAnswer(200, goodJSON))
	if a := w.post("/v1/chat/completions", chatBody); a.status != 200 || a.body != goodJSON {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if r := w.record(1); len(r.Attempts) != 2 || r.Attempts[0].Outcome.Class != llm.Truncated.String() || r.Attempts[0].Outcome.Verdict != route.DeploymentFault {
		t.Errorf("%+v", r.Attempts)
	}
	// Errors pass as they are, and so does what is no JSON.
	w = newWorld(t, options{}, jsonAnswer(400, `{"error":`))
	if a := w.post("/v1/chat/completions", chatBody); a.status != 400 || a.body != `{"error":` {
		t.Errorf("%d %q", a.status, a.body)
	}
	w = newWorld(t, options{}, jsonAnswer(200, "{not json", "Content-Type", "text/plain"))
	if a := w.post("/v1/chat/completions", chatBody); a.status != 200 || a.body != "{not json" {
		t.Errorf("%d %q", a.status, a.body)
	}
}

// TestUnknownModelWhileEndpointsAreDown: what may come is not "does not exist".
func TestUnknownModelWhileEndpointsAreDown(t *testing.T) {
	w := newWorld(t, options{change: func(g *Generation) { g.Unanswered = 1 }}, jsonAnswer(200, goodJSON))
	a := w.post("/v1/chat/completions", `{"model":"later","messages":[]}`)
	if a.status != 503 || !strings.Contains(a.body, "evenkeel_model_not_ready") || a.header.Get("Retry-After") != "1" || a.header.Get("X-Should-Retry") != "" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	if a := w.post("/v1/chat/completions", chatBody); a.status != 200 {
		t.Errorf("a known model: %d", a.status)
	}
}

// TestUnknownModelWhileEndpointsRefuseOurCredential: what an endpoint serves that lists nothing without a key that it
// accepts is not known, so nothing "does not exist".
func TestUnknownModelWhileEndpointsRefuseOurCredential(t *testing.T) {
	w := newWorld(t, options{change: func(g *Generation) { g.Refusing = 1 }}, jsonAnswer(200, goodJSON))
	a := w.post("/v1/chat/completions", `{"model":"later","messages":[]}`)
	if a.status != 503 || !strings.Contains(a.body, "evenkeel_model_not_ready") || !strings.Contains(a.body, "1 of them refused the credential") || a.header.Get("X-Should-Retry") != "" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
}

// TestCutMessagesStreamIsEstimated: message_start reports one output token; a stream cut later has produced more.
func TestCutMessagesStreamIsEstimated(t *testing.T) {
	start := `event: message_start` + "\n" + `data: {"type":"message_start","message":{"model":"up","usage":{"input_tokens":7,"output_tokens":1}}}` + "\n\n"
	piece := `event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}` + "\n\n"
	w := newWorld(t, options{}, sse(start, strings.Repeat(piece, 27)))
	if a := w.post("/v1/messages", `{"model":"m","stream":true,"max_tokens":100,"messages":[]}`); !strings.Contains(a.body, "event: error") {
		t.Errorf("%q", a.body)
	}
	if o := w.record(1).Last().Outcome; o.OutputTokens != 27 || o.InputTokens != 7 || o.Reported {
		t.Errorf("%+v", o)
	}
}

// TestFallbackIsOffOrOn: a value that is neither is refused, not ignored.
func TestFallbackIsOffOrOn(t *testing.T) {
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON))
	for _, value := range []string{"off", "on", "OFF", "On", ""} {
		if a := w.post("/v1/chat/completions", chatBody, "X-Evenkeel-Fallback", value); a.status != 200 {
			t.Errorf("%q: %d %s", value, a.status, a.body)
		}
	}
	for _, value := range []string{"false", "0", "of", "off, on"} {
		a := w.post("/v1/chat/completions", chatBody, "X-Evenkeel-Fallback", value)
		if want := `x-evenkeel-fallback: \"` + value + `\" is neither off nor on.`; a.status != 400 || !strings.Contains(a.body, want) || !strings.Contains(a.body, `"evenkeel_bad_fallback"`) {
			t.Errorf("%q: %d %s, want %s", value, a.status, a.body, want)
		}
	}
}

// TestPinnedNowhere: a pin that nothing fits is the request's mistake, and repeating it is useless.
func TestPinnedNowhere(t *testing.T) {
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON))
	a := w.post("/v1/chat/completions", chatBody, "X-Evenkeel-Pin", "nowhere")
	if a.status != 400 || a.header.Get("X-Should-Retry") != "false" || !strings.Contains(a.body, `x-evenkeel-pin: no deployment of model \"m\" is called \"nowhere\"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestPathsWithoutVersion: an SDK whose base URL lacks /v1 gets the list of models all the same; the rest goes upstream as
// it came.
func TestPathsWithoutVersion(t *testing.T) {
	rec := &recorder{next: jsonAnswer(200, goodJSON)}
	w := newWorld(t, options{}, rec.serve)
	get := func(path string) answer {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, w.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.do(req)
	}
	for _, path := range []string{"/models", "/models/", "/models/m", "/v1/models", "/v1/models/m"} {
		if a := get(path); a.status != 200 || !strings.Contains(a.body, `"id":"m"`) {
			t.Errorf("GET %s: %d %s", path, a.status, a.body)
		}
	}
	if a := get("/models/models"); a.status != 404 || !strings.Contains(a.body, `\"models\" does not exist`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.post("/chat/completions", chatBody); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if r, _ := rec.last(t); r.URL.Path != "/chat/completions" {
		t.Errorf("upstream got %s", r.URL.Path)
	}
}

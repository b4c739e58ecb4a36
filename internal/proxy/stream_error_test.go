package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/exchange"
)

// TestCutStreamsSayWhyAndWhen: how a stream is told to be cut, by what cut it, in each dialect.
func TestCutStreamsSayWhyAndWhen(t *testing.T) {
	dialects := []struct{ name, path, body, content string }{
		{"chat", "/v1/chat/completions", streamBody, roleEvent + delta("hi")},
		{"responses", "/v1/responses", `{"model":"m","stream":true,"input":"hello"}`,
			"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":4,\"delta\":\"hi\"}\n\n"},
		{"messages", "/v1/messages", `{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`,
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n"},
	}
	const comments = ": working\n\n"
	stall := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, c := range []struct {
		name, code string
		content    bool
		after      float64 // retry_after
		then       func(t *testing.T) upstreamHandler
	}{
		{"it closes", "evenkeel_upstream_closed", true, 1, func(t *testing.T) upstreamHandler {
			return func(w http.ResponseWriter, _ *http.Request) { reset(hijack(t, w)) }
		}},
		{"it stalls", "evenkeel_upstream_timeout", true, 1, func(*testing.T) upstreamHandler { return stall }},
		{"comments alone are no first token", "evenkeel_upstream_timeout", false, 1, func(*testing.T) upstreamHandler {
			return func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					_, _ = io.WriteString(w, comments)
					w.(http.Flusher).Flush()
					select {
					case <-r.Context().Done():
					case <-time.After(20 * time.Millisecond):
					}
				}
			}
		}},
	} {
		for _, d := range dialects {
			t.Run(c.name+", "+d.name, func(t *testing.T) {
				first := comments
				if c.content {
					first += d.content
				}
				deadlines := exchange.Deadlines{Deadline: 20 * time.Second, FirstToken: 20 * time.Second, BetweenTokens: 20 * time.Second, Hold: 10 * time.Second}
				if c.content {
					deadlines.BetweenTokens = 200 * time.Millisecond
				} else {
					deadlines.FirstToken = 200 * time.Millisecond
				}
				w := newWorld(t, options{deadlines: deadlines, change: func(g *Generation) { g.MaxAttempts = 1 }}, func(w http.ResponseWriter, r *http.Request) {
					sse(first)(w, r)
					c.then(t)(w, r)
				})
				a := w.post(d.path, d.body)
				told(t, a, d.name, c.code, c.after)
				w.idle()
			})
		}
	}
}

// TestRateLimitAfterComments: the head went out with a comment of the first one, then all were rate limited: the event says
// when the soonest may be asked.
func TestRateLimitAfterComments(t *testing.T) {
	w := newWorld(t, options{change: func(g *Generation) { g.MaxAttempts = 2 }}, func(w http.ResponseWriter, r *http.Request) {
		sse(": working\n\n")(w, r)
		reset(hijack(t, w))
	}, jsonAnswer(429, `{"error":{"message":"slow down","type":"rate_limit_error"}}`, "Retry-After", "7"))
	told(t, w.post("/v1/chat/completions", streamBody), "chat", "evenkeel_upstream_rate_limited", 7)
	w.idle()
}

// TestRateLimitedByAll: of several that ask to be left alone, the client is told the shortest time.
func TestRateLimitedByAll(t *testing.T) {
	limited := func(after string) upstreamHandler {
		return jsonAnswer(429, `{"error":{"message":"slow down","type":"rate_limit_error"}}`, "Retry-After", after)
	}
	w := newWorld(t, options{}, limited("7"), limited("40"))
	for range 2 {
		a := w.post("/v1/chat/completions", chatBody)
		if after := a.header.Get("Retry-After"); a.status != 429 && a.status != 503 || after != "7" {
			t.Errorf("%d, retry after %q: %s", a.status, after, a.body)
		}
	}
	w.idle()
}

// told demands that a stream ends with this error of ours.
func told(t *testing.T, a answer, dialect, code string, after float64) {
	t.Helper()
	events := strings.Split(strings.TrimSuffix(a.body, "\n\n"), "\n\n")
	_, data, _ := strings.Cut(events[len(events)-1], "data: ")
	var e struct {
		Error struct {
			Code       string  `json:"code"`
			RetryAfter float64 `json:"retry_after"`
		} `json:"error"`
		Code       string  `json:"code"`
		RetryAfter float64 `json:"retry_after"`
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		t.Fatalf("%v: %q", err, a.body)
	}
	if a.status != 200 || e.Error.Code != code || e.Error.RetryAfter != after || strings.Contains(a.body, "[DONE]") {
		t.Errorf("%d %q", a.status, a.body)
	}
	if dialect == "responses" && (e.Code != code || e.RetryAfter != after) {
		t.Errorf("the flat form: %q", a.body)
	}
}

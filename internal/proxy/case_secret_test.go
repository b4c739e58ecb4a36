package proxy

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

// Cases of the kind security: what upstream knows of us stays with us.

// upkey is an endpoint's key of which JSON, URLs and base64 make something else.
const upkey = "UPKEY/xyz+abc"

// spellings of upkey within JSON.
var spellings = map[string]string{
	"verbatim":     upkey,
	"JSON slash":   `UPKEY\/xyz+abc`,
	"JSON unicode": `UPKE\u0059/xyz\u002Babc`,
	"percent":      `UPKEY%2fxyz%2Babc`,
	"base64":       base64.StdEncoding.EncodeToString([]byte("Bearer " + upkey)),
}

// leaked reports whether a text holds a part of the key, or what base64 makes of "Bearer".
func leaked(text string) bool {
	return strings.Contains(text, "UPK") || strings.Contains(text, "xyz") || strings.Contains(text, "QmVhcm")
}

// TestCase88KeyInErrors: an error that holds the endpoint's key, in any spelling and under any status, is not the client's.
func TestCase88KeyInErrors(t *testing.T) {
	f := func(name string, status int, zipped bool, body string, headers ...string) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{apiKeys: []string{upkey}}, func(w http.ResponseWriter, r *http.Request) {
				answer := body
				if zipped {
					var b bytes.Buffer
					z := gzip.NewWriter(&b)
					_, _ = z.Write([]byte(body))
					_ = z.Close()
					w.Header().Set("Content-Encoding", "gzip")
					answer = b.String()
				}
				jsonAnswer(status, answer, headers...)(w, r)
			})
			var asks []string
			if zipped {
				asks = []string{"Accept-Encoding", "gzip"}
			}
			a := w.post("/v1/chat/completions", chatBody, asks...)
			if a.status == status && a.header.Get("Content-Encoding") != "" || leaked(a.body) || !strings.Contains(a.body, "evenkeel_upstream_") {
				t.Errorf("%d %v %q", a.status, a.header, a.body)
			}
			for name, values := range a.header {
				if leaked(strings.Join(values, " ")) {
					t.Errorf("%s: %q", name, values)
				}
			}
			if leaked(w.log.String()) {
				t.Errorf("the log: %s", w.log.String())
			}
			w.idle()
		})
	}
	for name, key := range spellings {
		body := `{"error":{"message":"no such thing for ` + key + `","type":"invalid_request_error"}}`
		f("400, "+name, 400, false, body)
		f("500, "+name, 500, false, body)
		f("400 compressed, "+name, 400, true, body)
	}
	f("a redirect", 307, false, "", "Location", "http://127.0.0.1:9/v1?key=UPKEY%2Fxyz%2Babc")
	f("a header", 400, false, `{"error":{"message":"no"}}`, "X-Debug", "Bearer "+upkey)
}

// TestCase88KeyInAnErrorEvent: nor is an error event after content, of which no part passes, nor what follows it; what came
// before does.
func TestCase88KeyInAnErrorEvent(t *testing.T) {
	const ending = "data: [DONE]\n\n"
	for _, d := range []struct{ name, path, body, content, event, after string }{
		{"chat", "/v1/chat/completions", streamBody, roleEvent + delta("hi"),
			"data: {\"error\":{\"message\":\"KEY\",\"type\":\"server_error\"}}\n\n", delta("more") + ending},
		{"responses", "/v1/responses", `{"model":"m","stream":true,"input":"hello"}`,
			"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":4,\"delta\":\"hi\"}\n\n",
			"event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"KEY\",\"sequence_number\":5}\n\n", ""},
		{"messages", "/v1/messages", `{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`,
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n",
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"KEY\"}}\n\n", ""},
	} {
		for name, key := range spellings {
			event := strings.ReplaceAll(d.event, "KEY", "for "+key)
			half := strings.Index(event, "for ") + 6
			for how, pieces := range map[string][]string{
				"in one piece":   {d.content + event + d.after},
				"by itself":      {d.content, event, d.after},
				"with more":      {d.content, event + d.after + ": half a li"},
				"cut":            {d.content, event[:half], event[half:]},
				"cut after line": {d.content, event[:strings.Index(event, "data:")], event[strings.Index(event, "data:"):]},
				"at the end":     {d.content, strings.TrimRight(event, "\n")},
			} {
				t.Run(d.name+", "+name+", "+how, func(t *testing.T) {
					w := newWorld(t, options{apiKeys: []string{upkey}}, sse(pieces...))
					a := w.post(d.path, d.body)
					told(t, a, d.name, "evenkeel_upstream_error", 1)
					if !strings.HasPrefix(a.body, d.content) || leaked(a.body) || strings.Contains(a.body, "more") || strings.Contains(a.body, "half") {
						t.Errorf("%q", a.body)
					}
					last := w.record(1).Last()
					if last.Outcome.Class != "server_error" || leaked(w.log.String()) {
						t.Errorf("%+v\n%s", last.Outcome, w.log.String())
					}
					w.idle()
				})
			}
		}
	}
}

// TestCase88ErrorEventsWithoutTheKey pass as they came, but for those about our account.
func TestCase88ErrorEventsWithoutTheKey(t *testing.T) {
	content := roleEvent + delta("hi")
	event := eventOf(openAIError("server_error", "", "it broke"))
	w := newWorld(t, options{apiKeys: []string{upkey}}, sse(content, event))
	if a := w.post("/v1/chat/completions", streamBody); a.body != content+event {
		t.Errorf("%q", a.body)
	}
	w.idle()
	w = newWorld(t, options{apiKeys: []string{upkey}}, sse(content, eventOf(openAIError("insufficient_quota", "insufficient_quota", "You exceeded your current quota"))))
	told(t, w.post("/v1/chat/completions", streamBody), "chat", "evenkeel_upstream_exhausted", 0)
	w.idle()
}

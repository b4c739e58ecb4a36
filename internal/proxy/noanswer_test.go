package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// failsOver demands that an answer of the first endpoint counts against it and that the second one's reaches the client.
func failsOver(t *testing.T, path, body, class string, first, second upstreamHandler, want string) {
	t.Helper()
	var b atomic.Int32
	w := newWorld(t, options{}, first, counted(&b, second))
	if a := w.post(path, body); a.status != 200 || !strings.Contains(a.body, want) || a.err != nil {
		t.Errorf("client got %d %q (%v)", a.status, a.body, a.err)
	}
	r := w.record(1)
	if o := r.Attempts[0].Outcome; b.Load() != 1 || o.Verdict != route.DeploymentFault || o.Class != class {
		t.Errorf("b asked %d times; the first attempt: %+v, want %s", b.Load(), o, class)
	}
	w.idle()
}

// TestAnswersThatHoldNone: a good status with nothing in it that a model said, or with an error somewhere, is none.
func TestAnswersThatHoldNone(t *testing.T) {
	text := func(kind, body string) upstreamHandler {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		class string
		first upstreamHandler
	}{
		"choices null":          {"truncated", jsonAnswer(200, `{"id":"x","choices":null,"usage":null}`)},
		"blanks":                {"truncated", jsonAnswer(200, "\n\n")},
		"no JSON":               {"truncated", jsonAnswer(200, "Internal Server Error")},
		"a proxy's words":       {"truncated", text("text/plain", "upstream connect error or disconnect/reset before headers")},
		"a page":                {"truncated", text("application/xhtml+xml", "<html>login</html>")},
		"an error in a choice":  {"server_error", jsonAnswer(200, `{"choices":[{"index":0,"finish_reason":"error","message":{"content":""},"error":{"code":502,"message":"gone"}}]}`)},
		"a failed finish":       {"server_error", jsonAnswer(200, `{"choices":[{"index":0,"finish_reason":"error","message":{"content":"ha"}}]}`)},
		"the engine failed":     {"server_error", jsonAnswer(424, `{"error":"Request failed during generation: out of memory","error_type":"generation"}`)},
		"no capacity, by Groq":  {"overloaded", jsonAnswer(498, `{"error":{"message":"Flex tier capacity exceeded","code":"capacity_exceeded"}}`)},
		"a flat error":          {"server_error", jsonAnswer(200, `{"code":1234,"message":"it broke","data":null,"choices":null}`)},
		"a flat 429":            {"rate_limited", jsonAnswer(200, `{"statusCode":429,"message":"Rate limit is exceeded. Try again in 1 seconds."}`)},
		"a detail":              {"server_error", jsonAnswer(200, `{"title":"Bad Gateway","detail":"no worker"}`)},
		"choices null, in gzip": {"truncated", gzipped("application/json", 200, `{"choices":null}`)},
	} {
		t.Run(name, func(t *testing.T) {
			failsOver(t, "/v1/chat/completions", chatBody, c.class, c.first, jsonAnswer(200, goodJSON), goodJSON)
		})
	}
}

// TestStreamsThatHoldNone: the same for streams.
func TestStreamsThatHoldNone(t *testing.T) {
	field := `error: {"code":500,"message":"boom","type":"server_error"}` + "\n\n" // llama.cpp of before October 2025
	for name, c := range map[string]struct{ class, stream string }{
		"[DONE] alone":           {"truncated", doneEvent},
		"[DONE] after the role":  {"truncated", ": c\n\n" + roleEvent + doneEvent},
		"[DONE] without its end": {"truncated", roleEvent + "data: [DONE]"},
		"an error field":         {"server_error", field + doneEvent},
		"one after the role":     {"server_error", roleEvent + strings.ReplaceAll(field, "\n", "\r\n") + doneEvent},
		"an error in a list":     {"overloaded", `data: [{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]` + "\n\n"},
		"an error in a choice":   {"server_error", `data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"x"}}]}` + "\n\n" + doneEvent},
		"a flat error":           {"server_error", `data: {"code":1234,"message":"it broke"}` + "\n\n" + doneEvent},
		"a flat 429":             {"rate_limited", roleEvent + `data: {"statusCode":429,"message":"slow down"}` + "\n\n"},
		"a detail":               {"server_error", `data: {"detail":"no worker"}` + "\n\n"},
		"TGI is busy":            {"overloaded", `data: {"error":"Model is overloaded","error_type":"overloaded"}` + "\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			failsOver(t, "/v1/chat/completions", streamBody, c.class, sse(c.stream), sse(healthy), healthy)
		})
	}
}

// TestFlatErrorsOfOtherAPIs: the same for responses and messages; where no text is generated, an object of any kind is an answer.
func TestFlatErrorsOfOtherAPIs(t *testing.T) {
	const flat = `{"message":"it broke","code":"E12"}`
	for _, path := range []string{"/v1/responses", "/v1/messages", "/v1/completions"} {
		body := func(stream bool) string {
			return fmt.Sprintf(`{"model":"m","stream":%v,"max_tokens":9,"input":"x","prompt":"x","messages":[]}`, stream)
		}
		const good = `{"id":"1","message":"beside an answer","output":[],"content":[{"type":"text","text":"a"}],"choices":[{"text":"a","finish_reason":"stop"}]}`
		failsOver(t, path, body(false), "server_error", jsonAnswer(200, flat), jsonAnswer(200, good), good)
		failsOver(t, path, body(true), "server_error", sse("data: "+flat+"\n\n"), jsonAnswer(200, good), good)
	}
	w := newWorld(t, options{}, jsonAnswer(200, flat))
	if a := w.post("/v1/embeddings", `{"model":"m","input":"x"}`); a.status != 200 || a.body != flat {
		t.Errorf("embeddings: %d %q", a.status, a.body)
	}
	if r := w.record(1); r.Result != exchange.Complete || r.Last().Outcome.Verdict != route.Success {
		t.Errorf("embeddings: %s %+v", r.Result, r.Last().Outcome)
	}
	w.idle()
}

// TestAFlatErrorIsPassedOnIfNobodyIsBetter, as any error is.
func TestAFlatErrorIsPassedOnIfNobodyIsBetter(t *testing.T) {
	const flat = `{"message":"it broke","code":"E12"}`
	w := newWorld(t, options{change: func(g *Generation) { g.MaxAttempts = 1 }}, jsonAnswer(200, flat))
	if a := w.post("/v1/chat/completions", chatBody); a.status != 200 || a.body != flat {
		t.Errorf("%d %q", a.status, a.body)
	}
	if r := w.record(1); r.Result != exchange.UpstreamError || r.Last().Outcome.Verdict != route.DeploymentFault {
		t.Errorf("%s %+v", r.Result, r.Last().Outcome)
	}
	w.idle()
}

// TestTextInPlaceOfAStream: a proxy's words, chunked, answer a request for a stream: that is no answer. Events that say to be
// text are events, also if they come byte by byte.
func TestTextInPlaceOfAStream(t *testing.T) {
	chunked := func(pieces ...string) upstreamHandler {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			for _, p := range pieces {
				_, _ = io.WriteString(w, p)
				w.(http.Flusher).Flush()
			}
		}
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		failsOver(t, path, `{"model":"m","stream":true,"messages":[],"prompt":"x"}`, "truncated", chunked("upstream ", "is gone"), sse(healthy), healthy)
	}
	w := newWorld(t, options{}, chunked(append([]string{"\r\n"}, strings.Split(healthy, "")...)...))
	if a := w.post("/v1/chat/completions", streamBody); a.body != "\r\n"+healthy {
		t.Errorf("byte by byte: %q (%v)", a.body, a.err)
	}
	succeeded(t, w.record(1), 7, 3)
	w.idle()
}

// TestDoneAfterTheRoleAlone: the role went to the client when nothing else came for a while; then the end without an answer
// is a cut, and no [DONE] tells otherwise.
func TestDoneAfterTheRoleAlone(t *testing.T) {
	d := exchange.Deadlines{Deadline: time.Minute, FirstToken: time.Minute, BetweenTokens: time.Minute, Hold: 20 * time.Millisecond}
	s := newTurns(step{roleEvent, roleEvent}, step{doneEvent, ""})
	w := newWorld(t, options{deadlines: d}, s.serve)
	rest, err := s.read(t, w.open("/v1/chat/completions", streamBody).Body)
	if err != nil || !strings.Contains(rest, `"evenkeel_upstream_closed"`) || strings.Contains(rest, "[DONE]") {
		t.Errorf("after the role came %q (%v)", rest, err)
	}
	if r := w.record(1); r.Result != exchange.Cut || r.Last().Outcome.Class != "truncated" {
		t.Errorf("%s %+v", r.Result, r.Last().Outcome)
	}
	w.idle()
}

// TestErrorField: what llama.cpp of before October 2025 sends in a field named error is passed over by all who read events:
// the client gets an error that it can see, unless it is its own fault, and no [DONE].
func TestErrorField(t *testing.T) {
	failed := `error: {"code":500,"message":"boom","type":"server_error"}` + "\n\n"
	once := options{change: func(g *Generation) { g.MaxAttempts = 1 }}

	w := newWorld(t, once, sse(roleEvent, delta("a"), failed+doneEvent))
	a := w.post("/v1/chat/completions", streamBody)
	if want := roleEvent + delta("a") + failed + "data: {"; !strings.HasPrefix(a.body, want) || !strings.Contains(a.body, `"evenkeel_upstream_error"`) || strings.Contains(a.body, "[DONE]") {
		t.Errorf("amid content: got %q", a.body)
	}
	if r := w.record(1); r.Result != exchange.Cut || r.Last().Outcome.Class != "server_error" || r.Last().Outcome.Verdict != route.DeploymentFault {
		t.Errorf("amid content: %s %+v", r.Result, r.Last().Outcome)
	}
	w.idle()

	w = newWorld(t, once, sse(failed, doneEvent))
	if a := w.post("/v1/chat/completions", streamBody); a.status != 502 || a.code() != "evenkeel_upstream_error" {
		t.Errorf("at first: got %d %q", a.status, a.body)
	}
	w.idle()

	long := `error: {"code":400,"message":"the request exceeds the available context size","type":"invalid_request_error"}` + "\n\n"
	var b atomic.Int32
	w = newWorld(t, options{}, sse(long+doneEvent), counted(&b, sse(healthy)))
	if a := w.post("/v1/chat/completions", streamBody); a.body != long+doneEvent || b.Load() != 0 {
		t.Errorf("a prompt that is too long: got %q, b asked %d times", a.body, b.Load())
	}
	if r := w.record(1); r.Result != exchange.ClientFault || r.Last().Outcome.Verdict != route.NotDeploymentFault {
		t.Errorf("a prompt that is too long: %s %+v", r.Result, r.Last().Outcome)
	}
	w.idle()
}

// TestNoEndAfterTheLastChoice: an answer is whole once every choice has its finish_reason. Where the server then neither sends
// [DONE] nor closes, the client has its answer all the same, and the server has given one.
func TestNoEndAfterTheLastChoice(t *testing.T) {
	d := exchange.Deadlines{Deadline: time.Minute, FirstToken: time.Minute, BetweenTokens: 200 * time.Millisecond, Hold: time.Minute}
	stays := func(pieces ...string) upstreamHandler {
		return func(w http.ResponseWriter, r *http.Request) {
			sse(pieces...)(w, r)
			<-r.Context().Done()
		}
	}
	whole := roleEvent + delta("a") + finishEvent
	overBoth(t, func(t *testing.T, o options) {
		o.deadlines = d
		w := newWorld(t, o, stays(whole, usageEvent[:40]))
		if a := w.post("/v1/chat/completions", streamBody); a.body != whole || a.err != nil {
			t.Errorf("client got %q (%v)", a.body, a.err)
		}
		if r := w.record(1); r.Result != exchange.Complete || r.Last().Outcome.Verdict != route.Success {
			t.Errorf("%s %+v", r.Result, r.Last().Outcome)
		}
		w.idle()

		w = newWorld(t, o, stays(roleEvent+delta("a")))
		if a := w.post("/v1/chat/completions", streamBody); !strings.Contains(a.body, `"evenkeel_upstream_timeout"`) {
			t.Errorf("without a finish_reason the client got %q (%v)", a.body, a.err)
		}
		w.idle()
	})
}

// TestEventsThatDoNotSaySo: an event stream under another content type, or none, is one all the same: an error in it can
// move, and the client is told of a cut.
func TestEventsThatDoNotSaySo(t *testing.T) {
	as := func(kind string, pieces ...string) upstreamHandler {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header()["Content-Type"] = []string{kind}
			if kind == "" {
				w.Header()["Content-Type"] = nil
			}
			for _, p := range pieces {
				_, _ = io.WriteString(w, p)
				w.(http.Flusher).Flush()
			}
		}
	}
	for _, kind := range []string{"", "text/plain; charset=utf-8", "application/octet-stream", "application/json"} {
		t.Run(kind, func(t *testing.T) {
			failsOver(t, "/v1/chat/completions", streamBody, "overloaded", as(kind, strings.Replace(errorEvent, "rate_limit_error\",\"code\":429", "overloaded_error\",\"code\":503", 1)), sse(healthy), healthy)
			w := newWorld(t, options{}, as(kind, roleEvent, delta("a")))
			a := w.post("/v1/chat/completions", streamBody)
			if !strings.HasPrefix(a.body, roleEvent+delta("a")) || !strings.Contains(a.body, `"evenkeel_upstream_closed"`) {
				t.Errorf("cut: got %q (%v)", a.body, a.err)
			}
			w.idle()
			w = newWorld(t, options{}, as(kind, "\ufeff: c\n\n", roleEvent+delta("a"), finishEvent+usageEvent+doneEvent))
			if a := w.post("/v1/chat/completions", streamBody); a.body != "\ufeff: c\n\n"+roleEvent+delta("a")+finishEvent+usageEvent+doneEvent {
				t.Errorf("whole: got %q (%v)", a.body, a.err)
			}
			succeeded(t, w.record(1), 7, 3)
			w.idle()
		})
	}
}

// TestChunkedJSONInPlaceOfAStream: a JSON document that answers a request for a stream is held like any other, whatever its framing.
func TestChunkedJSONInPlaceOfAStream(t *testing.T) {
	chunked := func(pieces ...string) upstreamHandler {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			for _, p := range pieces {
				_, _ = io.WriteString(w, p)
				w.(http.Flusher).Flush()
			}
		}
	}
	failsOver(t, "/v1/chat/completions", streamBody, "overloaded", chunked(`{"error":`, `{"message":"x","code":503}}`), sse(healthy), healthy)
	failsOver(t, "/v1/chat/completions", streamBody, "truncated", chunked(goodJSON[:40]), sse(healthy), healthy)
}

// TestNoAnswerThatHoldsTheKey: words in place of an answer may hold the endpoint's credential: they stay here then.
func TestNoAnswerThatHoldsTheKey(t *testing.T) {
	w := newWorld(t, options{apiKeys: []string{"UPKEY-111-of-a"}, change: func(g *Generation) { g.MaxAttempts = 1 }}, jsonAnswer(200, "bad key UPKEY-111-of-a"))
	if a := w.post("/v1/chat/completions", chatBody); a.status != 502 || a.code() != "evenkeel_upstream_closed" || strings.Contains(a.body, "UPKEY") {
		t.Errorf("got %d %q", a.status, a.body)
	}
	w.idle()
	w = newWorld(t, options{apiKeys: []string{"UPKEY-111-of-a"}, change: func(g *Generation) { g.MaxAttempts = 1 }}, jsonAnswer(200, "it is maintained"))
	if a := w.post("/v1/chat/completions", chatBody); a.status != 200 || a.body != "it is maintained" {
		t.Errorf("without the key: got %d %q", a.status, a.body)
	}
	w.idle()
}

// TestRejectedAfterComments: a comment of the first attempt has forced a head out, and the next deployment rejects the
// request: the client hears that it is to blame, and that repeating is useless.
func TestRejectedAfterComments(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/responses"} {
		s := newTurns(step{": wait\n\n", ": wait\n\n"})
		w := newWorld(t, options{}, thenReset(t, s.serve), jsonAnswer(400, `{"error":{"message":"too long","code":"context_length_exceeded"}}`))
		rest, err := s.read(t, w.open(path, `{"model":"m","stream":true,"max_tokens":9,"input":"x","messages":[]}`).Body)
		if err != nil || !strings.Contains(rest, `"evenkeel_upstream_rejected"`) || !strings.Contains(rest, `"invalid_request_error"`) || strings.Contains(rest, "retry_after") {
			t.Errorf("%s: then came %q (%v)", path, rest, err)
		}
		if r := w.record(1); r.Failure == nil || !r.Failure.Final || r.Last().Outcome.Verdict != route.NotDeploymentFault {
			t.Errorf("%s: %+v %+v", path, r.Failure, r.Last().Outcome)
		}
		w.idle()
	}
}

// TestErrorEventWithoutItsEnd: an error event that the stream's end cuts off before its blank line is closed, so that clients
// see it.
func TestErrorEventWithoutItsEnd(t *testing.T) {
	event := strings.TrimRight(errorEvent, "\n")
	for _, end := range []string{"", "\n"} {
		content := roleEvent + delta("a")
		w := newWorld(t, options{}, sse(content, event+end))
		if a := w.post("/v1/chat/completions", streamBody); a.body != content+event+end+"\n\n" || a.err != nil {
			t.Errorf("got %q (%v)", a.body, a.err)
		}
		if r := w.record(1); r.Result != exchange.UpstreamError {
			t.Errorf("%s", r.Result)
		}
		w.idle()
	}
}

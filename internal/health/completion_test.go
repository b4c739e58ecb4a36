package health

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/secret"
	"evenkeel/internal/upstream"
)

// TestRequest: what is sent to each kind.
func TestRequest(t *testing.T) {
	f := func(kindName, path, body string) {
		t.Helper()
		p := &Plan{Prompt: `say "yes"`, MaxTokens: 3}
		e := &Endpoint{Kind: kind(kindName), Header: http.Header{"Authorization": {"Bearer k"}}}
		r, err := p.request(e, "org/m")
		if err != nil {
			t.Fatal(err)
		}
		if r.Method != http.MethodPost || r.Path != path || string(r.Body[0]) != body {
			t.Errorf("%s: %s %s\ngot  %s\nwant %s", kindName, r.Method, r.Path, r.Body[0], body)
		}
		if r.Header.Get("Authorization") != "Bearer k" || r.Header.Get("Content-Type") != "application/json" || len(e.Header) != 1 {
			t.Errorf("%s: headers %v, of the endpoint %v", kindName, r.Header, e.Header)
		}
	}
	const start = `{"model":"org/m","messages":[{"role":"user","content":"say \"yes\""}],`
	f("vllm", "/v1/chat/completions", start+`"max_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`)
	f("openai", "/v1/chat/completions", start+`"max_completion_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`)
	f("openai-compatible", "/v1/chat/completions", start+`"max_tokens":3,"stream":true}`)
	f("anthropic", "/v1/messages", start+`"max_tokens":3,"stream":true}`)
}

// ask probes a deployment once, in a bubble, and returns the result and how long it took.
func ask(t *testing.T, p Plan, kindName string, reply func(*upstream.Stop, *upstream.Request) (*http.Response, error)) (r Result, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		p.Timeout, p.Prompt, p.MaxTokens = 3*time.Second, "ready?", 16
		e := &Endpoint{Name: "a", URL: "http://a", Kind: kind(kindName), Header: http.Header{}, Caller: &fake{reply: reply}}
		e.Header.Set(e.Kind.CredentialHeader, e.Kind.CredentialPrefix+"sk-of-the-endpoint")
		begun := time.Now()
		r = p.ask(context.Background(), e, &Deployment{ID: "a/m", Model: "m"})
		took = time.Since(begun)
	})
	return r, took
}

// TestVerdicts: what an answer is worth.
func TestVerdicts(t *testing.T) {
	f := func(want Verdict, reason string, status int, contentType string, pieces ...string) {
		t.Helper()
		r, _ := ask(t, Plan{}, "vllm", answering(status, contentType, pieces...))
		if r.Verdict != want || r.Reason != reason {
			t.Errorf("%d %q gives %s %q, want %s %q", status, pieces, r.Verdict, r.Reason, want, reason)
		}
	}
	text, stop := chunk(`"content":"hi"`, ""), chunk("", "stop")
	f(OK, "", 200, events, text, stop, done)
	f(OK, "", 200, "Text/Event-Stream; charset=utf-8", strings.ReplaceAll(text+stop, "\n", "\r\n"))
	f(OK, "", 200, events, text, stop) // no [DONE]: it says that it is whole
	f(OK, "", 200, events, chunk(`"role":"assistant","content":""`, ""), chunk(`"reasoning_content":"hm"`, ""), chunk("", "length"), done)
	f(OK, "", 200, events, chunk(`"role":"assistant"`, ""), chunk("", "length"), done) // all thinking is hidden
	f(OK, "", 200, "application/json", `{"choices":[{"message":{"content":"hi"}}]}`)
	f(OK, "", 200, events, text, stop, done, "...") // what comes after the end is not waited for

	f(Failed, "truncated", 200, events, text)
	f(Failed, "truncated", 200, events)
	f(Failed, "truncated", 200, "application/json", `{"choices":[{"mess`)
	f(Failed, "reset", 200, events, text, "!")
	f(Failed, "timeout", 200, events, "...")
	f(Failed, "timeout", 200, events, ": still there\n\n", "...")
	f(Failed, "server_error", 500, "application/json", `{"error":{"message":"no"}}`)
	f(Failed, "overloaded", 503, "application/json", `{"error":{"message":"no"}}`)
	f(Failed, "auth", 401, "application/json", `{}`)
	f(Failed, "server_error", 200, events, `data: {"error":{"message":"CUDA error","type":"internal_server_error"}}`+"\n\n")
	f(Failed, "malformed", 200, events, ": "+strings.Repeat("x", maxAnswer))

	f(Unknown, "rate_limited", 429, "application/json", `{}`)
	f(Unknown, "rate_limited", 200, events, `data: {"error":{"message":"slow down","type":"rate_limit_error"}}`+"\n\n")
	f(Unknown, "overloaded", 503, "retry-after", `{}`)
	f(Unknown, "loading", 503, "application/json", `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`)
	f(Unknown, "client_fault", 400, "application/json", `{"error":{"message":"no chat template"}}`)
	f(Unknown, "client_fault", 404, "text/html", "<html>")
}

// TestClientsBringTheirOwnCredential: a probe without one says nothing about an endpoint that wants one.
func TestClientsBringTheirOwnCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Plan{Timeout: 3 * time.Second, Prompt: "hi", MaxTokens: 1}
		e := &Endpoint{Kind: kind("anthropic"), Header: http.Header{}, Caller: &fake{reply: answering(401, "application/json", "{}")}}
		if r := p.ask(t.Context(), e, &Deployment{}); r.Verdict != Unknown {
			t.Errorf("without a credential: %+v", r)
		}
		e.Header.Set("X-Api-Key", "sk")
		if r := p.ask(t.Context(), e, &Deployment{}); r.Verdict != Failed || r.Reason != "auth" {
			t.Errorf("with one: %+v", r)
		}
	})
}

// TestAnthropic: the same in the other dialect.
func TestAnthropic(t *testing.T) {
	const head = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n"
	const block = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"yes\"}}\n\n"
	const tail = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	r, _ := ask(t, Plan{Expect: regexp.MustCompile("^yes$")}, "anthropic", answering(200, events, head, "", block, tail))
	if r.Verdict != OK || r.TTFT != time.Second || r.Input != 9 || r.Output != 2 {
		t.Errorf("got %+v", r)
	}
	r, _ = ask(t, Plan{}, "anthropic", answering(200, events, head, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n"))
	if r.Verdict != Failed || r.Reason != "overloaded" {
		t.Errorf("an error in the stream: %+v", r)
	}
}

// TestTTFT: to the first content, whatever came before it, thinking included.
func TestTTFT(t *testing.T) {
	f := func(want, took time.Duration, pieces ...string) {
		t.Helper()
		r, got := ask(t, Plan{}, "vllm", answering(200, events, pieces...))
		if r.Verdict != OK || r.TTFT != want || got.Round(100*time.Millisecond) != took {
			t.Errorf("%q: %+v after %v, want a TTFT of %v and the end after %v", pieces, r, got, want, took)
		}
	}
	f(time.Second, 2*time.Second, ": ping\n\n", chunk(`"role":"assistant"`, ""), "", chunk(`"content":"hi"`, ""), "", chunk("", "stop"), done)
	f(time.Second, time.Second, "", chunk(`"reasoning_content":"hm"`, ""), chunk("", "length"), done)
	f(2*time.Second, 3*time.Second, "", "", chunk(`"content":"s"`, ""), "", "", "...") // slow, but it has begun
}

// TestExpectation is held against the whole text, not against what was thought before, and not against nothing.
func TestExpectation(t *testing.T) {
	f := func(expect string, want Verdict, pieces ...string) {
		t.Helper()
		r, _ := ask(t, Plan{Expect: regexp.MustCompile(expect)}, "vllm", answering(200, events, pieces...))
		if r.Verdict != want || want == Missed && r.Reason != "probe_expect" {
			t.Errorf("%s in %q gives %s %q, want %s", expect, pieces, r.Verdict, r.Reason, want)
		}
	}
	piece := func(text string) string { return chunk(`"content":"`+text+`"`, "") }
	stop, length := chunk("", "stop"), chunk("", "length")
	f("(?i)password", OK, piece("pass"), piece("Word"), stop, done)
	f("^password$", Missed, piece("a pass"), piece("word"), stop, done)
	f("grüß", OK, piece("gr\u00fc"), piece(`\u00df`), stop, done)
	f("yes", Missed, chunk(`"reasoning_content":"yes"`, ""), piece("no"), stop, done)
	f("yes", Missed, stop, done)
	f("yes", OK, chunk(`"reasoning_content":"hm"`, ""), length, done)
	f("yes", OK, chunk(`"reasoning_content":"hm"`, ""), stop, done)
	f("yes", OK, chunk(`"reasoning":"hm"`, ""), piece("\\n"), stop, done)
	f("yes", Missed, chunk(`"reasoning":null`, ""), stop, done)
	f("yes", OK, piece("<thi"), piece("nk>water..."), length, done)
	f("yes", OK, piece("<think>water...</think>\\n"), stop, done)
	f("yes", Missed, piece("<think>yes?</think>"), piece("no"), stop, done)
	f("^yes$", OK, piece("<think>no?</th"), piece("ink>yes"), stop, done)
	f("yes", Missed, piece("yes, or not?</think>no"), stop, done) // the prompt's template began the thought
	f("^yesyes$", OK, piece("yes<think>no</think>yes<think>no"), stop, done)
	f("yes", Missed, piece("no<think>yes"), length, done)
	f("yes", Missed, piece("well, "), length, done)
	f("yes", OK, piece("well, "), "...")
	f("yes", Missed, piece("ye"), "data: {\"choices\":[{\"delta\":{\"content\":\ndata: \"-s\"}}]}\n\n", stop, done)
	f("ye-s", OK, piece("ye"), "data: {\"choices\":[{\"delta\":{\"content\":\r\ndata: \"-s\"}}]}\r\n\r\n", stop, done)
}

// TestWhatWasSaid: an answer that is not as expected is told, cut, without thoughts; one that is, is not.
func TestWhatWasSaid(t *testing.T) {
	f := func(answer, want, expected string) {
		t.Helper()
		r, _ := ask(t, Plan{Expect: regexp.MustCompile("(?i)yes")}, "vllm", answering(200, events, chunk(`"content":"`+answer+`"`, ""), chunk("", "stop"), done))
		if r.Said != want || r.Expected != expected {
			t.Errorf("%q: got %q and %q, want %q and %q", answer, r.Said, r.Expected, want, expected)
		}
	}
	f("Yes.", "", "")
	f("my key is s\\u006b-of-the-endpoint", secret.Redacted, "(?i)yes")
	f("", "", "(?i)yes")
	f("<think>yes?</think>No,\\nit is not", "No,\nit is not", "(?i)yes")
	f(strings.Repeat("ü", 80), strings.Repeat("ü", 80), "(?i)yes")
	f(strings.Repeat("ü", 81), strings.Repeat("ü", 80)+"...", "(?i)yes")
}

// TestTokens are the engine's own if it reports them.
func TestTokens(t *testing.T) {
	f := func(input, output int, pieces ...string) {
		t.Helper()
		if r, _ := ask(t, Plan{}, "vllm", answering(200, events, pieces...)); r.Input != input || r.Output != output {
			t.Errorf("%q: %d and %d tokens, want %d and %d", pieces, r.Input, r.Output, input, output)
		}
	}
	two := chunk(`"content":"a"`, "") + chunk(`"content":"b"`, "") + chunk("", "stop")
	f(11, 3, two, `data: {"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3}}`+"\n\n", done)
	f(PromptTokens("ready?"), 2, two, done)
	if r, _ := ask(t, Plan{}, "vllm", answering(500, "application/json", "{}")); r.Input != 0 || r.Output != 0 {
		t.Errorf("an error costs %d and %d tokens", r.Input, r.Output)
	}
}

// TestLost: what a call without an answer says.
func TestLost(t *testing.T) {
	f := func(want Verdict, reason string, calls int, errs ...error) {
		t.Helper()
		caller := &fake{}
		caller.reply = func(*upstream.Stop, *upstream.Request) (*http.Response, error) {
			return nil, errs[min(caller.count(), len(errs))-1]
		}
		p := &Plan{Timeout: time.Second, Prompt: "hi"}
		r := p.ask(t.Context(), &Endpoint{Kind: kind("vllm"), Caller: caller}, &Deployment{})
		if r.Verdict != want || r.Reason != reason || caller.count() != calls {
			t.Errorf("%v gives %s %q after %d calls, want %s %q after %d", errs, r.Verdict, r.Reason, caller.count(), want, reason, calls)
		}
	}
	refused := &upstream.Error{Class: llm.Connect, Unreachable: true, Err: syscall.ECONNREFUSED}
	stale := &upstream.Error{Class: llm.Stale, Err: errors.New("closed")}
	f(Failed, "unreachable", 1, refused)
	f(Failed, "reset", 1, &upstream.Error{Class: llm.Reset, Err: syscall.ECONNRESET})
	f(Failed, "malformed", 1, &upstream.Error{Class: llm.Malformed, Err: errors.New("x")})
	f(Unknown, "no_files", 1, &upstream.Error{Class: llm.Connect, Unreachable: true, Err: syscall.EMFILE})
	f(Failed, "unreachable", 2, stale, refused)
	f(Unknown, "stale", 2, stale)
}

// TestTimeoutEndsTheCall: also one that has not come to an answer.
func TestTimeoutEndsTheCall(t *testing.T) {
	hangs := func(stop *upstream.Stop, _ *upstream.Request) (*http.Response, error) {
		for !stop.Cancelled() {
			time.Sleep(100 * time.Millisecond) // of the bubble
		}
		return nil, &upstream.Error{Class: llm.None, Err: errors.New("cancelled")}
	}
	if r, took := ask(t, Plan{}, "vllm", hangs); r.Verdict != Failed || r.Reason != "timeout" || took > 3100*time.Millisecond {
		t.Errorf("got %+v after %v", r, took)
	}
}

func FuzzSaid(f *testing.F) {
	for _, s := range []string{
		chunk(`"content":"hi"`, "stop") + done, "\uFEFFdata: {}\r\rdata", `{"choices":[{"message":{"content":[{"text":"a"},{"text":"b"}]}}]}`,
		`data: {"delta":{"text":"x","stop_reason":"max_tokens"}}`, "data: {\"choices\":7}\n\n", "data:\ndata:\n\n",
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, events bool) {
		text := said(body, events).text
		if len(text) > 3*len(body) { // a byte that is not UTF-8 becomes a sign of three
			t.Errorf("%d bytes say %d", len(body), len(text))
		}
	})
}

// TestSaidOfAWholeAnswer: for servers that do not stream though asked to.
func TestSaidOfAWholeAnswer(t *testing.T) {
	f := func(body, want string, cut bool) {
		t.Helper()
		if got := said([]byte(body), false); got.text != want || got.cut != cut {
			t.Errorf("%s says %+v; want %q, %v", body, got, want, cut)
		}
	}
	f(`{"choices":[{"message":{"content":"yes"},"finish_reason":"length"}]}`, "yes", true)
	f(`{"choices":[{"message":{"content":[{"type":"text","text":"y"},{"type":"text","text":"es"}]}}]}`, "yes", false)
	f(`{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"yes"}],"stop_reason":"max_tokens"}`, "yes", true)
	f(`{"choices":[{"message":{"content":"<think>no</think>yes","reasoning_content":"no"}}]}`, "yes", false)
	f(`{"choices":[{"message":{"content":null,"refusal":"no"}}]}`, "", false)
	f(`<html>`, "", false)
	for body, want := range map[string]bool{
		`{"content":[{"type":"thinking","thinking":"hm"}],"stop_reason":"end_turn"}`: true,
		`{"choices":[{"message":{"content":"","reasoning":"hm"}}]}`:                  true,
		`{"choices":[{"message":{"content":"hm","reasoning":""}}]}`:                  false,
	} {
		if got := said([]byte(body), false); got.thought != want {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

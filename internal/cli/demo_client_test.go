package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// Parts of answers.
const (
	roleEvent   = `data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	fastToken   = `data: {"choices":[{"delta":{"content":"[fast]"},"finish_reason":null}]}` + "\n\n"
	slowToken   = `data: {"choices":[{"delta":{"content":"[slow]"},"finish_reason":null}]}` + "\n\n"
	wordToken   = `data: {"choices":[{"delta":{"content":" keel"},"finish_reason":null}]}` + "\n\n"
	finishEvent = `data: {"choices":[{"delta":{},"finish_reason":"length"}]}` + "\n\n"
	doneEvent   = "data: [DONE]\n\n"
	errorEvent  = `data: {"error":{"type":"server_error","message":"m","param":null,"code":"evenkeel_cut"}}` + "\n\n"
)

func TestJudge(t *testing.T) {
	type result struct {
		verdict verdict
		reason  string
		tokens  int
	}
	f := func(body string, want result) {
		t.Helper()
		firsts := 0
		// Pieces of one byte: where the network cuts must not matter.
		s := readStream(iotest.OneByteReader(strings.NewReader(body)), func() { firsts++ })
		got, reason := s.judge("fast", 2)
		if (result{got, reason, s.Tokens}) != want {
			t.Errorf("%s\n%v %q with %d tokens, want %+v", body, got, reason, s.Tokens, want)
		}
		if firsts != min(s.Tokens, 1) {
			t.Errorf("%s\nthe first content was told %d times", body, firsts)
		}
	}
	failed := func(reason string, tokens int) result { return result{answerFailed, reason, tokens} }

	f(roleEvent+fastToken+wordToken+finishEvent+doneEvent, result{answerComplete, "", 2})
	f(strings.ReplaceAll(": hello\n\nevent: x\n"+fastToken+wordToken+finishEvent+doneEvent, "\n", "\r\n"), result{answerComplete, "", 2})
	f(roleEvent+fastToken+errorEvent, result{answerToldCut, "", 1})
	f(fastToken+wordToken+errorEvent, result{answerToldCut, "", 2})

	f("", failed("ended without [DONE] and without an error event", 0))
	f(fastToken+wordToken+finishEvent, failed("ended without [DONE] and without an error event", 2))
	f(fastToken+finishEvent+doneEvent, failed("tokens lost or doubled", 1))
	f(fastToken+wordToken+wordToken+finishEvent+doneEvent, failed("tokens lost or doubled", 3))
	f(fastToken+wordToken+doneEvent, failed("no finish reason", 2))
	f(slowToken+wordToken+finishEvent+doneEvent, failed("another engine than the balancer says", 2))
	f(roleEvent+errorEvent, failed("an error event before any content: evenkeel_cut", 0))
	f(fastToken+errorEvent+doneEvent, failed("something came after the end", 1))
	f(fastToken+wordToken+finishEvent+doneEvent+wordToken, failed("something came after the end", 3))
	f(fastToken+"data: {\"choi\n\n", failed("an event that is not JSON", 1))

	s := readStream(strings.NewReader(fastToken+"data: "+strings.Repeat("x", 2<<20)), func() {})
	if got, reason := s.judge("fast", 2); got != answerFailed || reason != "broke off without an error event: bufio.Scanner: token too long" {
		t.Errorf("an endless line: %v %q", got, reason)
	}
	s = readStream(io.MultiReader(strings.NewReader(fastToken), iotest.ErrReader(fmt.Errorf("read tcp: %w", io.ErrUnexpectedEOF))), func() {})
	if got, reason := s.judge("fast", 2); got != answerFailed || reason != "broke off without an error event: unexpected EOF" {
		t.Errorf("a connection that breaks: %v %q", got, reason)
	}
}

func FuzzReadStream(f *testing.F) {
	f.Add(roleEvent + fastToken + wordToken + finishEvent + doneEvent)
	f.Add(fastToken + errorEvent)
	f.Add("data: {\"error\":{\"code\":429}}\n\ndata:{}\n")
	f.Add("data: null\ndata: [\n:\n\r\n")
	f.Fuzz(func(t *testing.T, body string) {
		firsts := 0
		s := readStream(strings.NewReader(body), func() { firsts++ })
		verdict, reason := s.judge("fast", 2)
		if firsts != min(s.Tokens, 1) {
			t.Errorf("the first of %d tokens was told %d times", s.Tokens, firsts)
		}
		if verdict == answerComplete && (!strings.Contains(body, "[DONE]") || s.Tokens != 2) || verdict == answerToldCut && s.Tokens == 0 {
			t.Errorf("%v with %d tokens", verdict, s.Tokens)
		}
		if (verdict == answerFailed) != (reason != "") {
			t.Errorf("%v with the reason %q", verdict, reason)
		}
	})
}

func TestAsk(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("x-evenkeel-deployment", "fast/demo-model")
		h.Set("x-evenkeel-attempts", "2")
		h.Set("x-evenkeel-decision", "strategy=least_tokens; candidates=3; eligible=1; open=1; already_tried=1")
		body, _ := io.ReadAll(r.Body)
		switch string(body) {
		case "whole":
			io.WriteString(w, fastToken+wordToken+finishEvent+doneEvent)
		case "refused":
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, `{"error":{"message":"m","type":"overloaded_error","code":"evenkeel_no_capacity"}}`)
		case "odd":
			w.WriteHeader(http.StatusBadGateway)
			io.WriteString(w, "<html>")
		case "hang":
			io.WriteString(w, fastToken)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	c := &demoClient{http: server.Client(), url: server.URL}
	ctx, cancel := context.WithCancel(t.Context())
	f := func(body string, want verdict, reason string) answer {
		t.Helper()
		firsts := 0
		a := c.ask(ctx, []byte(body), 2, func(engine string, ttft time.Duration) {
			if firsts++; engine != "fast" || ttft <= 0 {
				t.Errorf("%s: first content from %q after %v", body, engine, ttft)
			}
			if body == "hang" {
				cancel()
			}
		})
		if a.verdict != want || a.reason != reason || a.began.IsZero() || a.ended.Before(a.began) || (a.ttft > 0) != (firsts == 1) {
			t.Errorf("%s: %+v, want %v %q", body, a, want, reason)
		}
		return a
	}
	a := f("whole", answerComplete, "")
	if a.engine != "fast" || a.attempts != 2 || a.tokens != 2 || !maps.Equal(a.cuts, map[string]int{"open": 1, "already_tried": 1}) {
		t.Errorf("%+v", a)
	}
	f("refused", answerFailed, "status 503 evenkeel_no_capacity")
	f("odd", answerFailed, "status 502 without a code")
	f("hang", answerDropped, "")

	ctx = t.Context()
	c.url = unusedURL(t)
	f("nobody", answerFailed, "no answer: connection refused")
}

// unusedURL is one that nobody listens at.
func unusedURL(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestInnermost(t *testing.T) {
	if got := innermost(fmt.Errorf("a: %w", fmt.Errorf("b: %w", errors.New("c")))); got != "c" {
		t.Errorf("%q", got)
	}
}

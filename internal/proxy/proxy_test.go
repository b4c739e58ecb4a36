package proxy

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

func TestPlainAnswerPassesWhole(t *testing.T) {
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON, "X-Request-Id", "up-1", "X-Ratelimit-Remaining-Tokens", "5"))
	a := w.post("/v1/chat/completions", chatBody)
	if a.status != 200 || a.body != goodJSON {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	for name, want := range map[string]string{
		"X-Request-Id": "up-1", "X-Ratelimit-Remaining-Tokens": "5", "X-Evenkeel-Model": "m", "X-Evenkeel-Fallback-Depth": "0",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	r := w.record(1)
	if r.Result != exchange.Complete || r.Last().Outcome.InputTokens != 7 || !r.Last().Outcome.Reported {
		t.Errorf("record: %+v", r.Last().Outcome)
	}
	w.idle()
}

func TestStreamPassesByteForByte(t *testing.T) {
	pieces := []string{": hello\n\n", roleEvent, delta("one "), delta("two"), finishEvent, usageEvent, doneEvent}
	w := newWorld(t, options{}, sse(pieces...))
	a := w.post("/v1/chat/completions", streamBody)
	if want := strings.Join(pieces, ""); a.body != want || a.err != nil {
		t.Fatalf("got %q (%v)\nwant %q", a.body, a.err, want)
	}
	r := w.record(1)
	o := r.Last().Outcome
	if r.Result != exchange.Complete || o.OutputTokens != 3 || o.InputTokens != 7 || o.TTFT <= 0 || o.ServedModel != "up" {
		t.Errorf("record: %s %+v", r.Result, o)
	}
	w.idle()
}

func TestConnectFailureMovesOn(t *testing.T) {
	w := newWorldAt(t, options{}, deadURL(t), serve(t, jsonAnswer(200, goodJSON)))
	a := w.post("/v1/chat/completions", chatBody)
	if a.status != 200 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	r := w.record(1)
	if len(r.Attempts) != 2 || r.Attempts[0].Outcome.Class != "connect" || r.Attempts[0].Outcome.Fault != route.Unreachable {
		t.Errorf("attempts: %+v", r.Attempts)
	}
	w.idle()
}

func TestCutStreamEndsWithErrorEvent(t *testing.T) {
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		sse(roleEvent, delta("one"), delta("two"))(rw, r)
		reset(hijack(t, rw))
	})
	a := w.post("/v1/chat/completions", streamBody)
	if !strings.HasPrefix(a.body, roleEvent+delta("one")+delta("two")) {
		t.Fatalf("content lost: %q", a.body)
	}
	if !strings.Contains(a.body, `"code":"evenkeel_upstream_closed"`) || strings.Contains(a.body, "[DONE]") {
		t.Errorf("the cut is not told: %q", a.body)
	}
	if r := w.record(1); r.Result != exchange.Cut || r.Last().Outcome.Verdict != route.DeploymentFault {
		t.Errorf("record: %s %+v", r.Result, r.Last().Outcome)
	}
	w.idle()
}

func TestErrorInStreamBeforeContentMoves(t *testing.T) {
	var asked atomic.Int32
	w := newWorld(t, options{},
		func(rw http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			sse(": wait\n\n", `data: {"error":{"message":"slow down","type":"rate_limit_error"}}`+"\n\n")(rw, r)
		},
		sse(roleEvent, delta("ok"), finishEvent, doneEvent))
	a := w.post("/v1/chat/completions", streamBody)
	// The first endpoint's comment may have passed before its error came.
	if want := roleEvent + delta("ok") + finishEvent + doneEvent; strings.TrimPrefix(a.body, ": wait\n\n") != want {
		t.Fatalf("got %q\nwant %q", a.body, want)
	}
	if asked.Load() != 1 {
		t.Errorf("first endpoint asked %d times", asked.Load())
	}
	if r := w.record(1); r.Attempts[0].Outcome.Class != "rate_limited" {
		t.Errorf("first attempt: %+v", r.Attempts[0].Outcome)
	}
	w.idle()
}

func TestUnknownModelAsksNobody(t *testing.T) {
	w := newWorld(t, options{}, func(http.ResponseWriter, *http.Request) { t.Error("upstream was asked") })
	a := w.post("/v1/chat/completions", `{"model":"nope","messages":[]}`)
	if a.status != 404 || !strings.Contains(a.body, "model_not_found") {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

func TestAliasChangesOnlyTheModel(t *testing.T) {
	w := newWorld(t, options{alias: "org/very-long:name"}, func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.ContentLength != int64(len(b)) || len(r.TransferEncoding) > 0 {
			t.Errorf("length %d of %d bytes, encoding %v", r.ContentLength, len(b), r.TransferEncoding)
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(b)
	})
	a := w.post("/v1/chat/completions", `{ "seed":18446744073709551615, "model" : "m" , "x":1e15 }`+"\n")
	if want := `{ "seed":18446744073709551615, "model" : "org/very-long:name" , "x":1e15 }` + "\n"; a.body != want {
		t.Errorf("got %q\nwant %q", a.body, want)
	}
}

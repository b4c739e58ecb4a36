package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/exchange"
)

// What a hostile review found.

// TestCutStreamWithLength: an event stream that declares its length, and is cut, must leave room for the error event.
func TestCutStreamWithLength(t *testing.T) {
	text := roleEvent + delta("The dose is 5")
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header().Set("Content-Type", "text/event-stream")
		rw.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = io.WriteString(rw, text)
	})
	a := w.post("/v1/chat/completions", streamBody)
	if !strings.HasPrefix(a.body, text) || !strings.Contains(a.body, "evenkeel_upstream_closed") || a.err != nil {
		t.Errorf("%q (%v)", a.body, a.err)
	}
}

// TestHalfALineIsNoContent: a stream that ends cleanly in the middle of a line has not begun, so it may move, and half
// a line never reaches a client as an event.
func TestHalfALineIsNoContent(t *testing.T) {
	good := roleEvent + delta("ok") + finishEvent + doneEvent
	for cut := 1; cut < len(roleEvent+delta("a"))-2; cut += 7 {
		w := newWorld(t, options{}, sse((roleEvent + delta("a"))[:cut]), sse(good))
		if a := w.post("/v1/chat/completions", streamBody); a.body != good {
			t.Fatalf("cut at %d: %q", cut, a.body)
		}
	}
	whole := roleEvent + delta("one")
	w := newWorld(t, options{}, sse(whole, delta("two")[:20]))
	a := w.post("/v1/chat/completions", streamBody)
	rest, ok := strings.CutPrefix(a.body, whole)
	if !ok || strings.Contains(rest, `data: {"id"`) || !strings.Contains(rest, "evenkeel_upstream_closed") {
		t.Errorf("%q", a.body)
	}
}

// TestSpellingOfContentTypes: a move after a forced head is not hindered by how the content type is spelt, and one that
// does not fit is nobody's fault.
func TestSpellingOfContentTypes(t *testing.T) {
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(rw, ": wait\n\n")
		rw.(http.Flusher).Flush()
		_, _ = io.WriteString(rw, `data: {"error":{"message":"no","type":"server_error"}}`+"\n\n")
	}, sse(roleEvent, delta("ok"), finishEvent, doneEvent))
	if a := w.post("/v1/chat/completions", streamBody); !strings.HasSuffix(a.body, finishEvent+doneEvent) {
		t.Errorf("%q", a.body)
	}
	if f := w.deployment(1).Totals.Faults; f != 0 {
		t.Errorf("the second deployment is blamed %d times", f)
	}
}

// TestErrorMemberOfAJob: an `error` in the state of a job is what was asked for.
func TestErrorMemberOfAJob(t *testing.T) {
	job := `{"id":"ft-1","status":"failed","error":{"code":"x","message":"the job failed","param":null}}`
	w := newWorld(t, options{change: func(g *Generation) { g.Chains[""] = []string{"m"} }}, jsonAnswer(200, job))
	for range 5 {
		req, err := http.NewRequest(http.MethodGet, w.url+"/v1/fine_tuning/jobs/ft-1", nil)
		if err != nil {
			t.Fatal(err)
		}
		if a := w.do(req); a.status != 200 || a.body != job {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if totals := w.deployment(0).Totals; totals.Picks != 5 || totals.Faults != 0 {
		t.Errorf("%+v", totals)
	}
}

// TestEchoedCredentialStaysHere: whatever status an answer has that repeats our credential, the client does not get it.
func TestEchoedCredentialStaysHere(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 429, 500} {
		w := newWorld(t, options{apiKeys: []string{"UPKEY-111"}, change: func(g *Generation) { g.MaxAttempts = 1 }},
			jsonAnswer(status, `{"error":{"message":"Incorrect API key provided: UPKEY-111"}}`, "X-Debug", "Bearer UPKEY-111"))
		a := w.post("/v1/chat/completions", chatBody)
		if strings.Contains(a.body, "UPKEY") || a.header.Get("X-Debug") != "" || a.status < 429 {
			t.Errorf("%d: %d %s %v", status, a.status, a.body, a.header)
		}
		w.idle()
	}
}

// TestKeyInTheURLToo: a valid key that stands in the path or in any query parameter would go upstream.
func TestKeyInTheURLToo(t *testing.T) {
	w := newWorld(t, options{change: func(g *Generation) { g.Keys = keys("TEN-222") }}, func(http.ResponseWriter, *http.Request) { t.Error("upstream was asked") })
	for _, path := range []string{"/v1/chat/completions?token=TEN-222", "/v1/chat/completions?sig=TEN-222", "/v1/TEN-222/x"} {
		if a := w.post(path, chatBody, "Authorization", "Bearer TEN-222"); a.status != 400 || strings.Contains(a.body, "TEN-222") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	g := &Generation{}
	for _, name := range []string{"Openai-Api-Key", "Anthropic-Api-Key", "Anthropic-Auth-Token"} {
		if out := g.requestHeader(nil, http.Header{name: {"secret"}}); out[name] != nil {
			t.Errorf("%s goes upstream", name)
		}
	}
}

// TestStreamThatWasNotAskedFor: the deadlines of streams hold for an event stream, whatever the request said.
func TestStreamThatWasNotAskedFor(t *testing.T) {
	w := newWorld(t, options{}, sse(roleEvent, delta("a"), finishEvent, doneEvent))
	if a := w.post("/v1/chat/completions", chatBody); !strings.HasSuffix(a.body, doneEvent) {
		t.Errorf("%q", a.body)
	}
	if r := w.record(1); !r.Facts.Stream || r.Result != exchange.Complete || r.Last().Outcome.TTFT == 0 {
		t.Errorf("%+v", r)
	}
}

// TestChoiceThatNeverCame: of two answers asked for, one is whole and the other never began.
func TestChoiceThatNeverCame(t *testing.T) {
	two := strings.Replace(streamBody, `{`, `{"n":2,`, 1)
	w := newWorld(t, options{}, sse(roleEvent, delta("one"), finishEvent))
	if a := w.post("/v1/chat/completions", two); !strings.Contains(a.body, "evenkeel_upstream_closed") {
		t.Errorf("%q", a.body)
	}
	w = newWorld(t, options{}, sse(roleEvent, delta("one"), finishEvent))
	if a := w.post("/v1/chat/completions", streamBody); a.body != roleEvent+delta("one")+finishEvent {
		t.Errorf("%q", a.body)
	}
}

// deadlineWriter notes the write deadlines it is given.
type deadlineWriter struct {
	*stubWriter
	deadlines []time.Time
}

func (d *deadlineWriter) SetWriteDeadline(t time.Time) error {
	d.deadlines = append(d.deadlines, t)
	return nil
}

// TestClientThatNeverReadsIsGivenUp: writing a stream has a deadline, set once for many chunks, and lifted at the end, since
// the connection's next answer has its own. A small whole answer does without.
func TestClientThatNeverReadsIsGivenUp(t *testing.T) {
	w := newWorld(t, options{}, sse(roleEvent, delta("a"), delta("b"), delta("c"), finishEvent, doneEvent))
	client := &deadlineWriter{stubWriter: newStub()}
	before := time.Now()
	w.proxy.ServeHTTP(client, stubRequest(t.Context(), streamBody))
	if !strings.HasSuffix(client.body.String(), doneEvent) {
		t.Fatalf("%q", client.body.String())
	}
	d := client.deadlines
	if len(d) != 2 || d[0].Before(before.Add(clientPatience)) || d[0].After(time.Now().Add(clientPatience)) || !d[1].IsZero() {
		t.Errorf("write deadlines %v", d)
	}

	w = newWorld(t, options{}, jsonAnswer(200, goodJSON))
	client = &deadlineWriter{stubWriter: newStub()}
	w.proxy.ServeHTTP(client, stubRequest(t.Context(), chatBody))
	if client.body.String() != goodJSON || len(client.deadlines) != 0 {
		t.Errorf("%q, write deadlines %v", client.body.String(), client.deadlines)
	}
}

// Over HTTP/2 a client's window can keep any write waiting, also the last one, after the handler: each answer ends with a
// deadline.
func TestHTTP2ClientThatNeverReadsIsGivenUp(t *testing.T) {
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON))
	for _, ask := range []*http.Request{
		stubRequest(t.Context(), chatBody), stubRequest(t.Context(), `{"model":"none"}`),
		httptest.NewRequest("GET", "/livez", nil), httptest.NewRequest("GET", "/v1/models", nil), httptest.NewRequest("GET", "/nope", nil),
	} {
		ask.ProtoMajor = 2
		client := &deadlineWriter{stubWriter: newStub()}
		w.proxy.ServeHTTP(client, ask)
		d := client.deadlines
		if len(d) == 0 || time.Until(d[len(d)-1]) < clientPatience/2 {
			t.Errorf("%s: write deadlines %v", ask.URL, d)
		}
	}
}

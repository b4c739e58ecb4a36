package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// Cases of the kind sse-error: an error inside a stream that began with 200.

const errorEvent = `data: {"error":{"message":"slow down","type":"rate_limit_error","code":429}}` + "\n\n"

// counted counts the requests that reach a handler.
func counted(n *atomic.Int32, h upstreamHandler) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h(w, r)
	}
}

// then runs one handler and then resets the connection.
func thenReset(t *testing.T, h upstreamHandler) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		reset(hijack(t, w))
	}
}

// thenFIN runs one handler and closes the connection without the last chunk.
func thenFIN(t *testing.T, h upstreamHandler) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		_ = hijack(t, w).Close()
	}
}

// healthy is a stream that no other test endpoint sends.
var healthy = roleEvent + delta("from b") + finishEvent + usageEvent + doneEvent

func TestCase12ErrorAsTheFirstEvent(t *testing.T) {
	anthropic := "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n"
	for name, first := range map[string]string{
		"chat": errorEvent, "named": anthropic, "after the role": roleEvent + errorEvent,
		"no blank line": strings.TrimRight(errorEvent, "\n"), "CRLF": strings.ReplaceAll(errorEvent, "\n", "\r\n"),
		"over three lines": "data: {\"error\":\ndata: {\"type\":\"server_error\",\ndata: \"message\":\"x\"}}\n\n",
		"bare":             "event: error\ndata: overloaded\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			var a, b atomic.Int32
			w := newWorld(t, options{health: route.Health{TripAfter: 3}}, counted(&a, sse(first)), counted(&b, sse(healthy)))
			for range 8 {
				if got := w.post("/v1/chat/completions", streamBody); got.body != healthy || got.err != nil {
					t.Fatalf("client got %q (%v)", got.body, got.err)
				}
			}
			// A named its reason, so it is either out at once or after three faults in a row.
			if a.Load() == 0 || a.Load() > 3 || b.Load() != 8 {
				t.Errorf("a asked %d times, b %d times", a.Load(), b.Load())
			}
			if d := w.deployment(0); d.Totals.Faults != uint64(a.Load()) {
				t.Errorf("a has %+v", d.Totals)
			}
			if r := w.record(1); r.Attempts[0].Outcome.Verdict != route.DeploymentFault || r.Attempts[0].Outcome.Class == "" {
				t.Errorf("first attempt %+v", r.Attempts[0].Outcome)
			}
			w.idle()
		})
	}
}

// Nobody else can answer: the error goes to the client as it came, and counts.
func TestCase12ErrorWithoutAnother(t *testing.T) {
	w := newWorld(t, options{change: func(g *Generation) { g.MaxAttempts = 1 }}, sse(": c\n\n", errorEvent))
	a := w.post("/v1/chat/completions", streamBody)
	if a.body != ": c\n\n"+errorEvent || a.status != 200 || a.err != nil {
		t.Errorf("got %d %q (%v)", a.status, a.body, a.err)
	}
	if r := w.record(1); r.Result != exchange.UpstreamError || r.Last().Outcome.Verdict != route.DeploymentFault {
		t.Errorf("record %s %+v", r.Result, r.Last().Outcome)
	}
	w.idle()
}

// An error that blames the request passes, and counts against nobody.
func TestCase12ErrorOfTheClient(t *testing.T) {
	event := `data: {"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}` + "\n\n"
	var b atomic.Int32
	w := newWorld(t, options{}, sse(event), counted(&b, sse(healthy)))
	if a := w.post("/v1/chat/completions", streamBody); a.body != event {
		t.Errorf("got %q", a.body)
	}
	if r := w.record(1); b.Load() != 0 || r.Result != exchange.ClientFault || r.Last().Outcome.Verdict != route.NotDeploymentFault {
		t.Errorf("b asked %d times; %s %+v", b.Load(), r.Result, r.Last().Outcome)
	}
}

func TestCase14ErrorAmidContent(t *testing.T) {
	event := `data: {"error":{"message":"gone","type":"server_error","code":503}}` + "\n\n"
	overBoth(t, func(t *testing.T, o options) {
		var b atomic.Int32
		content := roleEvent + delta("a") + delta("b") + delta("c")
		w := newWorld(t, o, sse(content, event), counted(&b, sse(healthy)))
		a := w.post("/v1/chat/completions", streamBody)
		if a.body != content+event || a.err != nil {
			t.Errorf("got %q (%v)", a.body, a.err)
		}
		r := w.record(1)
		o2 := r.Last().Outcome
		if b.Load() != 0 || r.Result != exchange.UpstreamError || o2.Verdict != route.DeploymentFault || o2.Class != "overloaded" {
			t.Errorf("b asked %d times; %s %+v", b.Load(), r.Result, o2)
		}
		if o2.Reported || o2.OutputTokens != 3 {
			t.Errorf("tokens %d (reported %v), want the 3 seen, marked as estimated", o2.OutputTokens, o2.Reported)
		}
		w.idle()
	})
}

// rawAnswer reads an answer from a bare HTTP/1.1 connection, as it is framed.
func (w *world) rawAnswer(path, body string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	b, _ := io.ReadAll(bufio.NewReader(c)) // how it ended is in the framing
	return string(b)
}

func TestCase15CutStream(t *testing.T) {
	var content strings.Builder
	content.WriteString(roleEvent)
	for i := range 40 {
		content.WriteString(delta(fmt.Sprint(i)))
	}
	for name, end := range map[string]func(*testing.T, upstreamHandler) upstreamHandler{
		"reset": thenReset, "FIN without the last chunk": thenFIN,
		"clean end": func(_ *testing.T, h upstreamHandler) upstreamHandler { return h },
		"in the middle of a line": func(t *testing.T, h upstreamHandler) upstreamHandler {
			return func(w http.ResponseWriter, r *http.Request) {
				h(w, r)
				_, _ = io.WriteString(w, `data: {"choices":[{"de`)
				w.(http.Flusher).Flush()
				_ = hijack(t, w).Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, o options) {
				var a, b atomic.Int32
				w := newWorld(t, o, counted(&a, end(t, sse(content.String()))), counted(&b, sse(healthy)))
				got := w.post("/v1/chat/completions", streamBody)
				rest, ok := strings.CutPrefix(got.body, content.String())
				if !ok || !strings.HasPrefix(strings.TrimLeft(rest, "\n"), `data: {"error":{`) || !strings.HasSuffix(rest, "}\n\n") {
					t.Errorf("after the content came %q (%v)", rest, got.err)
				}
				if strings.Contains(got.body, "[DONE]") || strings.Contains(got.body, `"finish_reason":"stop"`) {
					t.Error("the cut looks like an end")
				}
				r := w.record(1)
				if r.Result != exchange.Cut || r.Last().Outcome.Verdict != route.DeploymentFault || r.Last().Outcome.OutputTokens != 40 {
					t.Errorf("record %s %+v", r.Result, r.Last().Outcome)
				}
				if a.Load() != 1 || b.Load() != 0 {
					t.Errorf("a asked %d times, b %d times", a.Load(), b.Load())
				}
				w.idle()
			})
		})
	}
}

// The error event is the end of a well-framed answer: an HTTP/1.1 client reads it before the last chunk.
func TestCase15FramingOfACutStream(t *testing.T) {
	w := newWorld(t, options{}, thenReset(t, sse(roleEvent, delta("a"))))
	raw := w.rawAnswer("/v1/chat/completions", streamBody)
	if !strings.Contains(raw, `"code":"evenkeel_upstream_closed"`) || !strings.HasSuffix(raw, "\r\n0\r\n\r\n") {
		t.Errorf("got %q", raw)
	}
}

func TestCase17NoMoveAfterContent(t *testing.T) {
	var b atomic.Int32
	var turn atomic.Int32
	w := newWorld(t, options{change: func(g *Generation) { g.MaxAttempts = 4 }},
		thenReset(t, sse(roleEvent, delta("one"), delta("two"))), counted(&b, sse(healthy)))
	streams := 0
	for range 50 {
		a := w.post("/v1/chat/completions", streamBody)
		switch {
		case a.body == healthy:
			turn.Add(1)
		case strings.HasPrefix(a.body, roleEvent+delta("one")+delta("two")+`data: {"error"`):
			streams++
			if strings.Count(a.body, `"role"`) != 1 {
				t.Errorf("got %q", a.body)
			}
		default:
			t.Errorf("got %q", a.body)
		}
	}
	if b.Load() != turn.Load() || streams == 0 {
		t.Errorf("b was asked %d times for %d answers; %d streams were cut", b.Load(), turn.Load(), streams)
	}
	w.idle()
	for i := range 50 {
		if r := w.record(i + 1); len(r.Attempts) != 1 {
			t.Errorf("request %d made %d attempts", i, len(r.Attempts))
		}
	}
}

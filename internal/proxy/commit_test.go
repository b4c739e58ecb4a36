package proxy

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/exchange"
)

// When an answer may still move to another deployment, and when not any more.

func TestHeldStartMovesWithoutATrace(t *testing.T) {
	padded := strings.Replace(roleEvent, `"model"`, `"pad":"`+strings.Repeat("p", 50<<10)+`","model"`, 1)
	for name, first := range map[string]upstreamHandler{
		"error event":       sse(roleEvent, errorEvent),
		"reset":             thenReset(t, sse(roleEvent)),
		"reset before":      thenReset(t, sse()),
		"clean end":         sse(roleEvent),
		"empty":             sse(),
		"63 events":         thenReset(t, sse(strings.Repeat(roleEvent, 63))),
		"200 KiB":           thenReset(t, sse(strings.Repeat(padded, 4))),
		"half a line":       thenReset(t, sse(roleEvent, delta("a")[:40])),
		"half an event":     thenReset(t, sse(roleEvent, strings.TrimSuffix(delta("a"), "\n"))),
		"comment behind it": thenReset(t, sse(roleEvent, ": held too\n\n")),
		"status 500":        jsonAnswer(500, `{"error":{"message":"x"}}`),
		"503 event stream": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(503)
		},
		"JSON with an error": jsonAnswer(200, `{"error":{"message":"x","type":"server_error"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, o options) {
				w := newWorld(t, o, func(rw http.ResponseWriter, r *http.Request) {
					rw.Header().Set("X-Trace-Of-A", "1")
					first(rw, r)
				}, sse(healthy))
				a := w.post("/v1/chat/completions", streamBody)
				if a.body != healthy || a.err != nil || a.header.Get("X-Trace-Of-A") != "" {
					t.Errorf("client got %q (%v), header %v", clip(a.body), a.err, a.header)
				}
				if r := w.record(1); len(r.Attempts) != 2 || r.Result != exchange.Complete {
					t.Errorf("%d attempts, %s", len(r.Attempts), r.Result)
				}
				w.idle()
			})
		})
	}
}

// What the hold's end lets out stays, though an error follows.
func TestHoldEnds(t *testing.T) {
	padded := strings.Replace(roleEvent, `"model"`, `"pad":"`+strings.Repeat("p", 60<<10)+`","model"`, 1)
	reasoning := strings.Replace(delta("hm"), `"content"`, `"reasoning_content"`, 1)
	tool := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":""}}]}}]}` + "\n\n"
	for name, start := range map[string]string{
		"content": roleEvent + delta("a"), "reasoning": roleEvent + reasoning, "tool call": roleEvent + tool,
		"unknown event": roleEvent + "data: {\"what\":1}\n\n", "not JSON": "data: hello\n\n",
		"64 events": strings.Repeat(roleEvent, 64), "256 KiB": strings.Repeat(padded, 5), "finish": finishEvent,
	} {
		t.Run(name, func(t *testing.T) {
			var b atomic.Int32
			s := newTurns(step{start, start}, step{errorEvent, errorEvent})
			w := newWorld(t, options{}, s.serve, counted(&b, sse(healthy)))
			if rest, err := s.read(t, w.open("/v1/chat/completions", streamBody).Body); rest != "" || err != nil {
				t.Errorf("rest %q (%v)", rest, err)
			}
			if r := w.record(1); b.Load() != 0 || r.Result == exchange.Complete {
				t.Errorf("b asked %d times, %s", b.Load(), r.Result)
			}
			w.idle()
		})
	}
}

func TestHoldEndsByTime(t *testing.T) {
	d := exchange.Deadlines{Deadline: time.Minute, FirstToken: time.Minute, BetweenTokens: time.Minute, Hold: 30 * time.Millisecond}
	var b atomic.Int32
	// The first turn ends only when the client has the role, which nothing but the timer lets out.
	s := newTurns(step{roleEvent, roleEvent}, step{": now at once\n\n", ": now at once\n\n"}, step{errorEvent, errorEvent})
	w := newWorld(t, options{deadlines: d}, s.serve, counted(&b, sse(healthy)))
	if rest, err := s.read(t, w.open("/v1/chat/completions", streamBody).Body); rest != "" || err != nil {
		t.Errorf("rest %q (%v)", rest, err)
	}
	if b.Load() != 0 {
		t.Error("the answer moved")
	}
	w.idle()
}

func TestPartialLines(t *testing.T) {
	const bound = 16 << 10
	for _, c := range []struct {
		size   int
		passes bool
	}{{1, false}, {bound, false}, {bound + 1, true}, {5 * bound, true}} {
		t.Run(strconv.Itoa(c.size), func(t *testing.T) {
			line := delta(strings.Repeat("y", c.size+100))[:c.size]
			var s *turns
			if c.passes {
				s = newTurns(append(opening("a"), step{line, line})...)
			} else {
				s = newTurns(append(opening("a"), step{line, ""})...)
			}
			w := newWorld(t, options{}, thenReset(t, s.serve))
			rest, err := s.read(t, w.open("/v1/chat/completions", streamBody).Body)
			if err != nil || !strings.HasPrefix(rest, "\n\ndata: {\"error\"") || strings.Contains(rest, "yy") {
				t.Errorf("the end is %q (%v)", clip(rest), err)
			}
			w.idle()
		})
	}
}

// A comment forces the head out: another attempt can go on only with the same kind of answer.
func TestMoveAfterAForcedHead(t *testing.T) {
	stream := func(kind string) upstreamHandler {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", kind)
			w.Header().Set("X-Only-Of-B", "1")
			_, _ = io.WriteString(w, healthy)
		}
	}
	for name, c := range map[string]struct {
		second upstreamHandler
		moves  bool
	}{
		"same type":     {stream("text/event-stream"), true},
		"other charset": {stream("text/event-stream; charset=utf-8"), true},
		"NDJSON":        {stream("application/x-ndjson"), false},
		"JSON":          {jsonAnswer(200, goodJSON), false},
		"status 500":    {jsonAnswer(500, goodJSON), false},
		"status 400":    {jsonAnswer(400, goodJSON), false},
		"gzip":          {gzipped("text/event-stream", 200, healthy), false},
		"reset":         {thenReset(t, sse()), false},
		"error event":   {sse(errorEvent), false},
		"comment too":   {sse(": b\n\n", healthy), true},
	} {
		t.Run(name, func(t *testing.T) {
			// The last comment was read with the role, so the first is all that went out.
			s := newTurns(step{": wait\n\n", ": wait\n\n"}, step{roleEvent, ""})
			var first atomic.Int32
			w := newWorld(t, options{change: func(g *Generation) { g.MaxAttempts = 2 }}, counted(&first, thenReset(t, s.serve)), c.second)
			res := w.open("/v1/chat/completions", streamBody, "Accept-Encoding", "gzip")
			rest, err := s.read(t, res.Body)
			if err != nil || res.Header.Get("X-Only-Of-B") != "" || res.Header.Get("Content-Encoding") != "" || res.Header.Get("X-Evenkeel-Id") == "" ||
				res.Header.Get("Cache-Control") != "no-cache" || res.Header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("header %v (%v)", res.Header, err)
			}
			switch {
			case c.moves && strings.TrimPrefix(rest, ": b\n\n") != healthy:
				t.Errorf("got %q", rest)
			case !c.moves && (!strings.HasPrefix(rest, "data: {\"error\"") || strings.Count(rest, "\n\n") != 1):
				t.Errorf("got %q", rest)
			}
			if r := w.record(1); len(r.Attempts) != 2 {
				t.Errorf("%d attempts", len(r.Attempts))
			}
			w.idle()
		})
	}
}

// gzipped answers compressed, whatever was asked for.
func gzipped(kind string, status int, body ...string) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(status)
		z := gzip.NewWriter(w)
		for _, piece := range body {
			_, _ = io.WriteString(z, piece)
			_ = z.Flush()
			w.(http.Flusher).Flush()
		}
		_ = z.Close()
	}
}

func TestWholeAnswerMovesUpTo256KiB(t *testing.T) {
	for name, first := range map[string]upstreamHandler{
		"200 KiB of 400": cutWhole(t, 400<<10, 200<<10), "256 KiB of 400": cutWhole(t, 400<<10, 256<<10),
		"all but one byte": cutWhole(t, 1000, 999),
		"chunked, reset":   thenReset(t, jsonAnswer(200, goodJSON[:50])),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{}, first, jsonAnswer(200, goodJSON))
			if a := w.post("/v1/chat/completions", chatBody); a.status != 200 || a.body != goodJSON || a.err != nil {
				t.Errorf("got %d %q (%v)", a.status, clip(a.body), a.err)
			}
			if r := w.record(1); len(r.Attempts) != 2 || r.Attempts[0].Outcome.Class != "reset" {
				t.Errorf("attempts %+v", r.Attempts)
			}
			w.idle()
		})
	}
}

// chunkedJSON sends size bytes of an answer without a length and breaks off.
func chunkedJSON(t *testing.T, size int) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, `{"x":"`+strings.Repeat("a", size-6))
		w.(http.Flusher).Flush()
		_ = hijack(t, w).Close()
	}
}

// What is too large to be held breaks visibly: the client can never take it for whole.
func TestLargeAnswerThatBreaksIsAborted(t *testing.T) {
	const sent = 300 << 10
	for name, first := range map[string]upstreamHandler{"with a length": cutWhole(t, 400<<10, sent), "chunked": chunkedJSON(t, sent)} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, o options) {
				var b atomic.Int32
				w := newWorld(t, o, first, counted(&b, jsonAnswer(200, goodJSON)))
				a := w.post("/v1/chat/completions", chatBody)
				if a.err == nil || a.status != 200 || len(a.body) > sent {
					t.Errorf("got %d, %d bytes (%v)", a.status, len(a.body), a.err)
				}
				if r := w.record(1); b.Load() != 0 || r.Result != exchange.Cut || r.Failure == nil {
					t.Errorf("b asked %d times, %s %+v", b.Load(), r.Result, r.Failure)
				}
				w.idle()
			})
			w := newWorld(t, options{}, first)
			if raw := w.rawAnswer("/v1/chat/completions", chatBody); strings.HasSuffix(raw, "0\r\n\r\n") || len(raw) >= 400<<10 {
				t.Errorf("%d raw bytes, the last %q", len(raw), raw[len(raw)-20:])
			}
		})
	}
}

// Streams without lines to tell apart commit at their first byte; broken, they are aborted.
func TestOtherStreamsCommitAtTheFirstByte(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, roleEvent)
	_ = z.Flush()
	for name, c := range map[string]struct{ kind, encoding, first string }{
		"NDJSON":      {"application/x-ndjson", "", `{"model":"up","message":{"role":"assistant","content":""},"done":false}` + "\n"},
		"unknown":     {"application/octet-stream", "", "\x00"},
		"audio":       {"audio/mpeg", "", "ID3"},
		"br events":   {"text/event-stream", "br", "\x0b"},
		"gzip events": {"text/event-stream", "gzip", packed.String()},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, o options) {
				var b atomic.Int32
				s := newTurns(step{c.first, c.first})
				s.header = map[string]string{"Content-Type": c.kind}
				if c.encoding != "" {
					s.header["Content-Encoding"] = c.encoding
				}
				w := newWorld(t, o, thenReset(t, s.serve), counted(&b, sse(healthy)))
				res := w.open("/v1/chat/completions", streamBody, "Accept-Encoding", "gzip, br")
				if rest, err := s.read(t, res.Body); err == nil || rest != "" {
					t.Errorf("then came %q (%v)", rest, err)
				}
				if res.Header.Get("Content-Encoding") != c.encoding {
					t.Errorf("header %v", res.Header)
				}
				if r := w.record(1); b.Load() != 0 || r.Result != exchange.Cut {
					t.Errorf("b asked %d times, %s", b.Load(), r.Result)
				}
				w.idle()
			})
		})
	}
}

// A cut stream is told in the words of each dialect.
func TestCutInEachDialect(t *testing.T) {
	named := func(kind, rest string) string {
		return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"" + rest + "}\n\n"
	}
	for _, c := range []struct{ path, body, content, want string }{
		{"/v1/chat/completions", streamBody, roleEvent + delta("a"), "data: {\"error\":{\"type\":\"server_error\",\"message\":"},
		{"/v1/completions", `{"model":"m","stream":true,"prompt":"x"}`, `data: {"choices":[{"index":0,"text":"a"}]}` + "\n\n", "data: {\"error\":{\"type\":\"server_error\",\"message\":"},
		{"/v1/responses", `{"model":"m","stream":true,"input":"x"}`,
			named("response.created", `,"sequence_number":0,"response":{}`) + named("response.output_text.delta", `,"sequence_number":1,"delta":"a"`),
			"event: error\ndata: {\"type\":\"error\",\"code\":\"evenkeel_upstream_closed\","},
		{"/v1/messages", `{"model":"m","stream":true,"max_tokens":9,"messages":[]}`,
			named("message_start", `,"message":{}`) + named("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"a"}`),
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":"},
	} {
		t.Run(c.path, func(t *testing.T) {
			overBoth(t, func(t *testing.T, o options) {
				w := newWorld(t, o, thenReset(t, sse(c.content)))
				a := w.post(c.path, c.body)
				rest, ok := strings.CutPrefix(a.body, c.content)
				if !ok || !strings.HasPrefix(rest, c.want) || !strings.Contains(rest, `"code":"evenkeel_upstream_closed"`) || strings.Contains(a.body, "[DONE]") || a.err != nil {
					t.Errorf("got %q (%v)", a.body, a.err)
				}
				if c.path == "/v1/responses" && !strings.Contains(rest, `"sequence_number":2`) {
					t.Errorf("the event is out of sequence: %q", rest)
				}
				w.idle()
			})
		})
	}
}

// The client saw nothing of the first attempt, so the error event does not count on from it.
func TestSequenceAfterAMove(t *testing.T) {
	created := "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":5,\"response\":{}}\n\n"
	s := newTurns(step{": wait\n\n", ": wait\n\n"}, step{created, ""})
	w := newWorld(t, options{change: func(g *Generation) { g.MaxAttempts = 1 }}, thenReset(t, s.serve))
	rest, err := s.read(t, w.open("/v1/responses", `{"model":"m","stream":true,"input":"x"}`).Body)
	if err != nil || !strings.HasPrefix(rest, "event: error\n") || !strings.Contains(rest, `"sequence_number":0`) {
		t.Errorf("got %q (%v)", rest, err)
	}
}

package proxy

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// Cases of the kind sse-framing: how a stream is cut into lines and events must never matter.

func TestCase01LineEndings(t *testing.T) {
	for name, ends := range map[string][]string{
		"CRLF": {"\r\n"}, "CR": {"\r"}, "LF": {"\n"}, "mixed": {"\r\n", "\n", "\r\n\n", "\r"},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, o options) {
				i := 0
				end := func() string { i++; return ends[i%len(ends)] }
				event := func(data string) string { return strings.TrimRight(data, "\n") + end() + end() }
				first := event(roleEvent) + event(delta("first"))
				steps := []step{{first, first}}
				for n := range 20 {
					data := strings.TrimRight(delta(fmt.Sprint(n)), "\n")
					boundary := end() + end()
					// The line waits for its end; from there on every byte is seen as it is sent.
					steps = append(steps, step{data, ""}, step{boundary[:1], data + boundary[:1]})
					steps = append(steps, shown(strings.Split(boundary[1:], "")...)...)
				}
				steps = append(steps, shown(event(finishEvent), event(usageEvent))...)
				steps = append(steps, step{send: event(doneEvent)})
				s := newTurns(steps...)
				w := newWorld(t, o, s.serve)
				rest, err := s.read(t, w.open("/v1/chat/completions", streamBody).Body)
				if want := steps[len(steps)-1].send; rest != want || err != nil {
					t.Errorf("the end: got %q (%v), want %q", rest, err, want)
				}
				succeeded(t, w.record(1), 7, 3)
				w.idle()
			})
		})
	}
}

func TestCase02Comments(t *testing.T) {
	overBoth(t, func(t *testing.T, o options) {
		waiting := shown(": waiting\n\n", ": waiting\n\n", ": waiting\n\n", ":\n\n", ":\n")
		steps := slices.Concat(waiting, []step{{roleEvent, ""}, {": held with the role\n\n", ""}, {delta("a"), roleEvent + ": held with the role\n\n" + delta("a")}},
			shown(": between\n\n", "event: message\n", ": inside\n", delta("b"), finishEvent, usageEvent, doneEvent))
		s := newTurns(steps...)
		var data time.Time // when the first data was sent
		w := newWorld(t, o, func(rw http.ResponseWriter, r *http.Request) {
			s.serve(&noted{ResponseWriter: rw, before: func(b []byte) {
				if data.IsZero() && strings.HasPrefix(string(b), "data") {
					data = time.Now()
				}
			}}, r)
		})
		res := w.open("/v1/chat/completions", streamBody)
		if rest, err := s.read(t, res.Body); rest != "" || err != nil {
			t.Errorf("rest %q (%v)", rest, err)
		}
		r := w.record(1)
		succeeded(t, r, 7, 3)
		<-s.ended
		if a := r.Last(); a.Started.Add(a.Outcome.TTFT).Before(data) {
			t.Errorf("the first token came at %v by the record, but was sent at %v", a.Started.Add(a.Outcome.TTFT), data)
		}
	})
}

// noted tells of each write before it happens.
type noted struct {
	http.ResponseWriter
	before func([]byte)
}

func (n *noted) Flush() { n.ResponseWriter.(http.Flusher).Flush() }
func (n *noted) Write(b []byte) (int, error) {
	n.before(b)
	return n.ResponseWriter.Write(b)
}

func TestCase02CommentsFeedNoDeadline(t *testing.T) {
	const limit = 300 * time.Millisecond
	for name, start := range map[string]string{"first_token": "", "between_tokens": roleEvent + delta("a")} {
		t.Run(name, func(t *testing.T) {
			d := exchange.Deadlines{Deadline: time.Minute, FirstToken: limit, BetweenTokens: limit, Hold: time.Minute}
			w := newWorld(t, options{deadlines: d, change: func(g *Generation) { g.MaxAttempts = 1 }}, func(rw http.ResponseWriter, r *http.Request) {
				sse(start)(rw, r)
				for r.Context().Err() == nil { // each flush is answered by the proxy's reading, so this is no busy loop
					_, _ = io.WriteString(rw, ": still here\n\n")
					rw.(http.Flusher).Flush()
					<-time.After(limit / 20)
				}
			})
			a := w.post("/v1/chat/completions", streamBody)
			if !strings.Contains(a.body, ": still here") || !strings.Contains(a.body, `"evenkeel_upstream_timeout"`) || strings.Contains(a.body, "[DONE]") {
				t.Errorf("client got %q (%v)", a.body, a.err)
			}
			r := w.record(1)
			if o := r.Last().Outcome; o.Class != "timeout" || o.Verdict != route.DeploymentFault || !strings.HasPrefix(o.Detail, "the limit "+name+" of ") {
				t.Errorf("outcome %+v", o)
			}
			w.idle()
		})
	}
}

func TestCase04MultiLineData(t *testing.T) {
	multi := "data: {\"id\":\"c\",\"choices\":[],\ndata:\"usage\":{\"prompt_tokens\":7,\ndata: \"completion_tokens\":3}}\n\n"
	tight := strings.Replace(delta("b"), "data: ", "data:", 1)
	odd := "retry: 10\nx-unknown: kept\nid: 5\nnocolon\n" + delta("c")
	r := converse(t, options{alias: "upstream-name"}, "/v1/chat/completions", streamBody,
		slices.Concat(opening("a"), shown(tight, odd, finishEvent, multi, "data:[DONE]\n\n"))...)
	succeeded(t, r, 7, 3)
	if r.Last().Outcome.TTFT <= 0 {
		t.Error("no time to first token")
	}
}

func TestCase05StreamEndings(t *testing.T) {
	usage := strings.TrimRight(usageEvent, "\n")
	responses := func(kind, rest string) string {
		return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"" + rest + "}\n\n"
	}
	const responsesBody = `{"model":"m","stream":true,"input":"hello"}`
	head := roleEvent + delta("a") + finishEvent
	for _, c := range []struct{ name, path, body, stream string }{
		{"one LF", "/v1/chat/completions", streamBody, head + usage + "\n"},
		{"no LF", "/v1/chat/completions", streamBody, head + usage},
		{"no LF after DONE", "/v1/chat/completions", streamBody, head + usageEvent + "data: [DONE]"},
		{"CR at the end", "/v1/chat/completions", streamBody, head + usage + "\r"},
		{"no DONE", "/v1/chat/completions", streamBody, head + usageEvent},
		{"usage before the finish", "/v1/chat/completions", streamBody, roleEvent + delta("a") + usageEvent + finishEvent},
		{"comment after DONE", "/v1/chat/completions", streamBody, head + usageEvent + doneEvent + ": bye\n\n"},
		{"responses", "/v1/responses", responsesBody, responses("response.created", `,"response":{"id":"r"}`) +
			responses("response.output_text.delta", `,"delta":"a"`) +
			responses("response.completed", `,"response":{"usage":{"input_tokens":7,"output_tokens":3}}`)},
		{"responses, no last LF", "/v1/responses", responsesBody, responses("response.output_text.delta", `,"delta":"a"`) +
			strings.TrimRight(responses("response.completed", `,"response":{"usage":{"input_tokens":7,"output_tokens":3}}`), "\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, o options) {
				w := newWorld(t, o, sse(c.stream))
				a := w.post(c.path, c.body)
				if a.body != c.stream || a.err != nil {
					t.Errorf("got %q (%v)\nwant %q", a.body, a.err, c.stream)
				}
				succeeded(t, w.record(1), 7, 3)
				if d := w.deployment(0); d.Totals.Successes != 1 || d.Totals.Faults != 0 {
					t.Errorf("totals %+v", d.Totals)
				}
				w.idle()
			})
		})
	}
}

// The answer is whole with its last marker: the slot is free at once, and upstream's connection is given up after
// the documented grace even if upstream holds it open.
func TestCase05HeldOpenAfterDone(t *testing.T) {
	overBoth(t, func(t *testing.T, o options) {
		released := make(chan struct{})
		w := newWorld(t, o, func(rw http.ResponseWriter, r *http.Request) {
			sse(roleEvent, delta("a"), finishEvent, usageEvent, doneEvent)(rw, r)
			<-r.Context().Done()
			close(released)
		})
		want := roleEvent + delta("a") + finishEvent + usageEvent + doneEvent
		res := w.open("/v1/chat/completions", streamBody)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
			t.Fatalf("got %q (%v)", got, err)
		}
		if n := w.deployment(0).InFlight; n != 0 {
			t.Errorf("%d in flight though the client has the last event", n)
		}
		if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
			t.Errorf("then came %q (%v)", rest, err)
		}
		within(t, "upstream being left", released)
		succeeded(t, w.record(1), 7, 3)
		w.idle()
	})
}

func bigEvent(size int) string { return delta(strings.Repeat("x", size)) }

// parts cuts a text into pieces of at most size bytes.
func parts(s string, size int) []string {
	var out []string
	for len(s) > size {
		out, s = append(out, s[:size]), s[size:]
	}
	return append(out, s)
}

func TestCase06LargeEvents(t *testing.T) {
	overBoth(t, func(t *testing.T, o options) {
		steps := opening("a")
		sizes := []int{70 << 10, 1200 << 10, 12 << 20}
		if o.h2 {
			sizes = sizes[:2]
		}
		for _, size := range sizes {
			// More than 16 KiB of a line do not wait for its end, so each piece is seen before the next is sent; but
			// the line's end may come in a piece by itself.
			steps = append(steps, shown(parts(bigEvent(size), 256<<10)...)...)
		}
		steps = append(steps, shown(delta("b"), finishEvent, usageEvent, doneEvent)...)
		succeeded(t, converse(t, o, "/v1/chat/completions", streamBody, steps...), 7, 3)
	})
}

// While twenty clients are in the middle of a large line, none of them has it in memory.
func TestCase06MemoryOfLargeEvents(t *testing.T) {
	const clients, size, allowed = 20, 1 << 20, 256 << 10 // bytes per client: its buffers, its connections
	event := bigEvent(size)
	sent, resume := make(chan struct{}, clients), make(chan struct{})
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		sse(roleEvent, delta("a"), event[:size])(rw, r)
		sent <- struct{}{}
		<-resume
		sse(event[size:], finishEvent, usageEvent, doneEvent)(rw, r)
	})
	want := sha256.Sum256([]byte(roleEvent + delta("a") + event + finishEvent + usageEvent + doneEvent))
	before := heap()
	var all sync.WaitGroup
	for range clients {
		res := w.open("/v1/chat/completions", streamBody)
		all.Go(func() {
			h := sha256.New()
			if _, err := io.Copy(h, res.Body); err != nil || [32]byte(h.Sum(nil)) != want {
				t.Errorf("the answer changed (%v)", err)
			}
		})
	}
	for range clients {
		within(t, "the first part being sent", sent)
	}
	if grown := heap() - before; grown > clients*allowed {
		t.Errorf("%d bytes per client in the middle of a %d byte line, want at most %d", grown/clients, size, allowed)
	}
	close(resume)
	all.Wait()
	for i := range clients {
		succeeded(t, w.record(i+1), 7, 3)
	}
	w.idle()
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestCase08UsageChunk(t *testing.T) {
	usage := `"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}`
	withNull := func(event string) string { return strings.Replace(event, `"model"`, `"usage":null,"model"`, 1) }
	for name, c := range map[string]struct {
		event  string
		before func(string) string
	}{
		"empty choices": {`data: {"id":"c","choices":[],` + usage + "}\n\n", nil},
		"no choices":    {`data: {"id":"c",` + usage + "}\n\n", nil},
		"null before":   {`data: {"id":"c","choices":[],` + usage + "}\n\n", withNull},
		"null after":    {`data: {"id":"c","choices":[],` + usage + "}\n\n" + `data: {"id":"c","choices":[],"usage":null}` + "\n\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if c.before == nil {
				c.before = func(s string) string { return s }
			}
			role, text := c.before(roleEvent), c.before(delta("a"))
			for cut := 1; cut < len(c.event); cut += 13 {
				line := strings.LastIndex(c.event[:cut], "\n") + 1 // what is begun waits for its line's end
				steps := []step{{role, ""}, {text, role + text}, {c.before(finishEvent), c.before(finishEvent)},
					{c.event[:cut], c.event[:line]}, {c.event[cut:], c.event[line:]}, {doneEvent, doneEvent}}
				succeeded(t, converse(t, options{}, "/v1/chat/completions", streamBody, steps...), 7, 3)
			}
		})
	}
}

func TestCase10NamedEvents(t *testing.T) {
	named := func(kind, rest string) string {
		return "event: " + kind + "\ndata: {\"type\": \"" + kind + "\"" + rest + "}\n\n"
	}
	overBoth(t, func(t *testing.T, o options) {
		start := named("message_start", `,"message":{"id":"x","model":"up","usage":{"input_tokens":7,"output_tokens":1}}`) +
			named("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`)
		ping := named("ping", "")
		first := named("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"Hel"}`)
		steps := []step{{start, ""}, {ping, ""}, {ping, ""}, {first, start + ping + ping + first}}
		steps = append(steps, shown(ping, named("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"lo"}`), ping,
			named("content_block_stop", `,"index":0`), named("message_delta", `,"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}`),
			named("message_stop", ""))...)
		r := converse(t, o, "/v1/messages", `{"model":"m","stream":true,"max_tokens":9,"messages":[]}`, steps...)
		succeeded(t, r, 7, 3)
	})
}

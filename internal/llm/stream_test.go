package llm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// facts is all that a Stream says.
type facts struct {
	Tail, Passable                          int
	Open, Content, Release, Terminal        bool
	Done                                    bool
	Err                                     string
	ErrAt                                   int
	Usage                                   Usage
	OutputEstimate, ContentEvents, Sequence int
	Model, Fingerprint                      string
}

func factsOf(s *Stream) facts {
	f := facts{Tail: s.Tail(), Passable: s.Passable(), Open: s.Open(), Content: s.Content(), Release: s.Release(),
		Terminal: s.Terminal(), Done: s.Done(), ErrAt: s.ErrAt(), Usage: s.Usage(), OutputEstimate: s.OutputEstimate(),
		ContentEvents: s.ContentEvents(), Sequence: s.NextSequence(), Model: s.Model(), Fingerprint: s.Fingerprint()}
	if e := s.Err(); e != nil {
		f.Err = fmt.Sprintf("%+v", *e)
	}
	return f
}

// feed gives the text to a meter in pieces of the sizes that next returns. Each piece is overwritten after Feed, since a
// Stream may keep nothing of it.
func feed(s *Stream, text string, next func() int) {
	for len(text) > 0 {
		n := min(next(), len(text))
		piece := []byte(text[:n])
		s.Feed(piece)
		clear(piece)
		text = text[n:]
	}
}

// run gives the text to meters whole, byte by byte and in random pieces, demands that all say the same, and returns the
// facts before and after End.
func run(t testing.TB, api API, framing Framing, text string) (before, after facts) {
	t.Helper()
	s := NewStream(api, framing)
	s.Feed([]byte(text))
	before = factsOf(s)
	s.End()
	after = factsOf(s)
	random := rand.New(rand.NewPCG(1, uint64(len(text))))
	for name, next := range map[string]func() int{
		"bytes":  func() int { return 1 },
		"random": func() int { return 1 + random.IntN(40) },
		"large":  func() int { return 1 + random.IntN(40_000) },
	} {
		if name != "large" && len(text) > 1<<20 {
			continue
		}
		s.Reset(api, framing) // on purpose the same meter: nothing may stay behind
		feed(s, text, next)
		if got := factsOf(s); got != before {
			t.Fatalf("in pieces (%s)\n got %+v\nwant %+v\nfor %.2000q", name, got, before, text)
		}
		s.End()
		if got := factsOf(s); got != after {
			t.Fatalf("in pieces (%s) after End\n got %+v\nwant %+v\nfor %.2000q", name, got, after, text)
		}
	}
	return before, after
}

// delta is a chat event with content.
func delta(content string) string {
	return `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"org/m","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":"` +
		content + `"},"logprobs":null,"finish_reason":null}]}`
}

const (
	role   = `{"id":"c1","model":"org/m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	finish = `{"id":"c1","model":"org/m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usage  = `{"id":"c1","model":"org/m","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":5}}}`
)

var wantUsage = Usage{Input: 100, CachedInput: 64, Output: 20, Reasoning: 5, Reported: true}

// sse joins events as data lines with that line end.
func sse(end string, events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + end + end)
	}
	return b.String()
}

func chatStream() []string {
	events := []string{role}
	for i := range 20 {
		events = append(events, delta(fmt.Sprintf("word %d ", i)))
	}
	return append(events, finish, usage, "[DONE]")
}

func TestCase01CRLFLineEndings(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		_, got := run(t, chatAPI, SSE, sse(end, chatStream()...))
		want := facts{Content: true, Release: true, Terminal: true, Done: true, Usage: wantUsage, OutputEstimate: 36, ContentEvents: 20,
			Model: "org/m", Fingerprint: "fp_1"}
		if got.OutputEstimate < 20 {
			t.Errorf("estimate %d", got.OutputEstimate)
		}
		want.OutputEstimate = got.OutputEstimate
		if got != want {
			t.Errorf("%q\n got %+v\nwant %+v", end, got, want)
		}
	}
	events := chatStream()
	mixed := sse("\r\n", events[:5]...) + sse("\n", events[5:10]...) + sse("\r", events[10:15]...) + "data: " + events[15] + "\r\n\n" + sse("\r\n", events[16:]...)
	if _, got := run(t, chatAPI, SSE, mixed); got.ContentEvents != 20 || got.Usage != wantUsage || !got.Done {
		t.Errorf("mixed: %+v", got)
	}
}

// Each of the four bytes of a boundary in its own packet: the event is seen with the first that ends it.
func TestCase01BoundaryInFourPackets(t *testing.T) {
	s := NewStream(chatAPI, SSE)
	s.Feed([]byte("data: " + delta("x")))
	for i, want := range []int{0, 0, 1, 1} {
		s.Feed([]byte{"\r\n\r\n"[i]})
		if s.ContentEvents() != want || s.Tail() != 0 {
			t.Errorf("after %d bytes: %d events, tail %d", i+1, s.ContentEvents(), s.Tail())
		}
	}
}

func TestCase02KeepAliveComments(t *testing.T) {
	s := NewStream(chatAPI, SSE)
	start := ": waiting\n\n: waiting\n\n:\n\n\nretry: 500\nid: 7\n"
	s.Feed([]byte(start))
	if s.Passable() != len(start) || s.Release() || s.Content() || s.ContentEvents() != 0 || s.Open() {
		t.Errorf("comments: %+v", factsOf(s))
	}
	s.Feed([]byte(": part of a comm"))
	if s.Passable() != len(start) || s.Tail() != len(": part of a comm") || !s.Open() {
		t.Errorf("partial comment: %+v", factsOf(s))
	}
	s.Feed([]byte("ent\n"))
	passable := s.Passable()
	if passable != len(start)+len(": part of a comment\n") {
		t.Errorf("whole comment: passable %d", passable)
	}
	s.Feed([]byte("event: message\n: between\ndata: " + role + "\n\n: held now\n\n"))
	if s.Passable() != passable || s.Release() || s.Content() {
		t.Errorf("role: %+v", factsOf(s))
	}
	s.Feed([]byte(sse("\n", delta("x")) + ": between two deltas\n\n" + sse("\n", delta("y"))))
	if s.Passable() != passable || !s.Release() || !s.Content() || s.ContentEvents() != 2 {
		t.Errorf("deltas: %+v", factsOf(s))
	}
	run(t, chatAPI, SSE, start+": c\r\nevent: x\r: d\ndata: "+role+"\n\n")
}

func TestCase04MultiLineDataAndNoSpace(t *testing.T) {
	multi := "data: {\"choices\":[],\"usage\":\ndata:{\"prompt_tokens\":100,\"prompt_tokens_details\":{\"cached_tokens\":64},\ndata: \"completion_tokens\":20,\"completion_tokens_details\":{\"reasoning_tokens\":5}}}\n\n"
	text := "data:" + delta("a") + "\n\nretry: 10\nunknown: field\nnofield\ndata:" + delta("b") + "\n\n" + multi + "data:[DONE]\n\n"
	_, got := run(t, chatAPI, SSE, text)
	if got.Usage != wantUsage || got.ContentEvents != 2 || !got.Done || got.Err != "" {
		t.Errorf("%+v", got)
	}
	// A line that is one space or nothing is data all the same: the value is joined by LF.
	_, got = run(t, chatAPI, SSE, "data\ndata:\ndata: "+usage+"\ndata\n\n")
	if got.Usage != wantUsage {
		t.Errorf("empty lines: %+v", got.Usage)
	}
	_, got = run(t, chatAPI, SSE, "event: error\ndata: one\ndata:  two\n\n")
	if want := fmt.Sprintf("%+v", UpstreamError{Message: "one\n two"}); got.Err != want {
		t.Errorf("joined text: %q, want %q", got.Err, want)
	}
}

// [DONE] with nothing before it is no answer.
func TestDoneAlone(t *testing.T) {
	f := func(text string, terminal bool) {
		t.Helper()
		_, got := run(t, chatAPI, SSE, text)
		if got.Terminal != terminal || !got.Done || got.Err != "" || got.Release != (terminal || got.Content) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	f(sse("\n", "[DONE]"), false)
	f(": hi\n\n"+sse("\r\n", role, "[DONE]"), false)
	f(sse("\n", role, usage, "[DONE]"), false)
	f(sse("\n", role, finish, "[DONE]"), true)
	f(sse("\n", delta("a"), "[DONE]"), true)
	s := NewStream(chatAPI, SSE)
	s.Feed([]byte(sse("\n", role, "[DONE]")))
	if want := len(sse("\n", role)); s.DoneAt() != want {
		t.Errorf("[DONE] begins at %d, want %d", s.DoneAt(), want)
	}
}

// llama.cpp of before October 2025 sends an error of a stream in a field of that name, and then [DONE].
func TestErrorField(t *testing.T) {
	f := func(text string, want UpstreamError, unheard bool) {
		t.Helper()
		_, got := run(t, chatAPI, SSE, text)
		if got.Err != fmt.Sprintf("%+v", want) {
			t.Errorf("%s: %s, want %+v", text, got.Err, want)
		}
		m := NewStream(chatAPI, SSE)
		m.Feed([]byte(text))
		m.End()
		if m.Unheard() != unheard || m.ErrAt() != strings.Index(text, "error") {
			t.Errorf("%s: unheard %v, at %d", text, m.Unheard(), m.ErrAt())
		}
	}
	full := UpstreamError{Status: 400, Type: "invalid_request_error", Code: "400", Message: "the request exceeds the available context size"}
	const object = `{"code":400,"message":"the request exceeds the available context size","type":"invalid_request_error"}`
	for _, end := range []string{"\n", "\r\n", "\r"} {
		f("error: "+object+end+end+"data: [DONE]"+end+end, full, true)
		f(sse(end, role, delta("x"))+"error:"+object+end+end, full, true)
		f("error: "+object, full, true)
	}
	if _, got := run(t, chatAPI, SSE, "error: {\"message\":\""+strings.Repeat("x", 2*maxEvent)+"\"}\n\n"); got.Err == "" {
		t.Errorf("a large one: %+v", got)
	}
	m := NewStream(chatAPI, SSE)
	m.Feed([]byte("error: " + object + "\n\n"))
	m.Reset(chatAPI, SSE)
	m.Feed([]byte(sse("\n", delta("x"))))
	if m.Err() != nil || m.Unheard() || !m.Content() {
		t.Errorf("after Reset: %+v", factsOf(m))
	}
}

// Errors that other servers than OpenAI put into events of chat.
func TestChatErrorShapes(t *testing.T) {
	f := func(data string, want UpstreamError) {
		t.Helper()
		for _, before := range []string{"", sse("\n", role), sse("\n", role, delta("x"))} {
			_, got := run(t, chatAPI, SSE, before+sse("\n", data, "[DONE]"))
			if got.Err != fmt.Sprintf("%+v", want) {
				t.Errorf("%s: %s, want %+v", data, got.Err, want)
			}
		}
	}
	f(`[{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}]`, UpstreamError{Status: 503, Code: "503", Message: "The model is overloaded."}) // Gemini
	f(`{"error":"Model is overloaded","error_type":"overloaded"}`, UpstreamError{Type: "overloaded", Message: "Model is overloaded"})                                       // TGI
	f(`{"id":"x","choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"gone"}}]}`,
		UpstreamError{Status: 502, Code: "502", Message: "gone"}) // OpenRouter
	f(`{"error":{"code":502,"message":"gone"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`, UpstreamError{Status: 502, Code: "502", Message: "gone"})
	f(`{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`, UpstreamError{Message: `finish_reason "error"`})
	for _, fine := range []string{`[1,2]`, `[{"index":0}]`, `{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null,"error":null}],"error":null}`} {
		if _, got := run(t, chatAPI, SSE, sse("\n", fine)); got.Err != "" || !got.Content {
			t.Errorf("%s: %+v", fine, got)
		}
	}
}

func TestCase05StreamEndings(t *testing.T) {
	whole := sse("\n", role, delta("a"), finish, usage)
	f := func(name, text string, done bool) {
		t.Helper()
		_, got := run(t, chatAPI, SSE, text)
		if !got.Terminal || got.Done != done || got.Usage != wantUsage || got.ContentEvents != 1 || got.Err != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	f("last line ends with one LF", strings.TrimSuffix(whole, "\n"), false)
	f("last line without LF", strings.TrimSuffix(whole, "\n\n"), false)
	f("no [DONE]", whole, false)
	f("[DONE] without LF", whole+"data: [DONE]", true)
	f("[DONE] then silence", whole+"data: [DONE]\n\n", true)

	_, got := run(t, responsesAPI, SSE, "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\",\"sequence_number\":4}\n\n"+
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":5,\"response\":{\"model\":\"m\",\"error\":null,\"usage\":{\"input_tokens\":7,\"output_tokens\":2}}}")
	if want := (Usage{Input: 7, Output: 2, Reported: true}); !got.Done || !got.Terminal || got.Usage != want || got.Sequence != 6 || got.Err != "" {
		t.Errorf("responses: %+v", got)
	}
	// Before End, an event without its blank line has not happened.
	before, after := run(t, chatAPI, SSE, "data: "+delta("x"))
	if before.Content || !after.Content || !after.Open || after.Tail != 0 || before.Tail != len("data: "+delta("x")) {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	// An answer cut after two deltas is not whole.
	if _, got := run(t, chatAPI, SSE, sse("\n", role, delta("a"), delta("b"))); got.Terminal || got.Done {
		t.Errorf("cut: %+v", got)
	}
}

func TestCase06LargeEvents(t *testing.T) {
	for _, size := range []int{maxEvent - 500, maxEvent, 70 << 10, 1200 << 10, 12 << 20} {
		text := sse("\n", role, delta("a"), delta(strings.Repeat("x", size)), finish, usage, "[DONE]")
		_, got := run(t, chatAPI, SSE, text)
		if got.Usage != wantUsage || got.ContentEvents != 2 || !got.Done || got.Model != "org/m" {
			t.Errorf("%d bytes: %+v", size, got)
		}
	}
	// The meter keeps a bounded part of it, and knows early that it is content.
	s := NewStream(chatAPI, SSE)
	s.Feed([]byte("data: "))
	piece := []byte(strings.Repeat("x", 16<<10))
	for i := range 12 << 20 / len(piece) {
		s.Feed(piece)
		if i == 5 && !s.Release() {
			t.Error("96 KiB of one event do not end the hold")
		}
	}
	if kept := cap(s.lines.buf) + cap(s.event.buf) + cap(s.event.probe.capture); kept > 3*maxEvent {
		t.Errorf("keeps %d bytes", kept)
	}
	// Usage inside a large event counts too.
	big := strings.Repeat("y", 100<<10)
	for name, text := range map[string]string{
		"split": `data: {"response":{"output":[{"text":"` + big + `"}],` + "\ndata: " + `"usage":{"input_tokens":7,"output_tokens":2},"model":"m"},"type":"response.completed"}` + "\n\n",
		"whole": `data: {"type":"response.completed","response":{"model":"m","usage":{"input_tokens":7,"output_tokens":2},"output":"` + big + `"}}` + "\n\n",
	} {
		_, got := run(t, responsesAPI, SSE, text)
		if want := (Usage{Input: 7, Output: 2, Reported: true}); got.Usage != want || !got.Done || got.Model != "m" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// A large opening event, recognised by its name, is still no content.
	_, got := run(t, responsesAPI, SSE, "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"instructions\":\""+big+"\"}}\n\n")
	if got.Content || got.Release || got.ContentEvents != 0 {
		t.Errorf("response.created: %+v", got)
	}
	// A finish reason inside a large event.
	_, got = run(t, chatAPI, SSE, sse("\n", `{"choices":[{"index":0,"delta":{"content":"`+big+`"},"finish_reason":"stop"}]}`))
	if !got.Terminal {
		t.Errorf("finish: %+v", got)
	}
}

func TestCase08UsageChunks(t *testing.T) {
	const tokens = `"usage":{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":5}}`
	withNull := strings.Replace(delta("a"), `"choices"`, `"usage":null,"choices"`, 1)
	for name, text := range map[string]string{
		"choices empty":      sse("\n", delta("a"), finish, `{"choices":[],`+tokens+`}`),
		"no choices":         sse("\n", delta("a"), finish, `{`+tokens+`}`),
		"null before":        sse("\n", withNull, withNull, finish, `{"choices":[],`+tokens+`}`),
		"details null":       sse("\n", delta("a"), finish, `{"choices":[],`+tokens+`}`, `{"choices":[],"usage":{"prompt_tokens":100,"prompt_tokens_details":null}}`),
		"in the last delta":  sse("\n", delta("a"), `{"choices":[{"delta":{},"finish_reason":"stop"}],`+tokens+`}`),
		"running then final": sse("\n", strings.Replace(delta("a"), `"choices"`, `"usage":{"prompt_tokens":100,"completion_tokens":1},"choices"`, 1), finish, `{"choices":[],`+tokens+`}`),
	} {
		text += "data: [DONE]\n\n"
		_, got := run(t, chatAPI, SSE, text)
		if got.Usage != wantUsage || !got.Done || !got.Terminal {
			t.Errorf("%s: %+v", name, got)
		}
		// In two packets, cut anywhere in the usage event, with [DONE] in its own.
		at, end := strings.LastIndex(text, `{"prompt_tokens"`), strings.Index(text, "data: [DONE]")
		for cut := at; cut < end; cut++ {
			s := NewStream(chatAPI, SSE)
			s.Feed([]byte(text[:cut]))
			s.Feed([]byte(text[cut:end]))
			if s.Usage() != wantUsage || s.Done() {
				t.Fatalf("%s cut at %d: %+v", name, cut, factsOf(s))
			}
			s.Feed([]byte(text[end:]))
			if !s.Done() {
				t.Fatalf("%s cut at %d: [DONE] not seen", name, cut)
			}
		}
	}
}

// anthropic is a whole stream with pings.
const anthropic = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"claude\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":100,\"cache_creation_input_tokens\":10,\"output_tokens\":1}}}\n\n" +
	"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" +
	"event: ping\ndata: {\"type\": \"ping\"}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n"

const anthropicRest = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n" +
	"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":15,\"input_tokens\":0}}\n\n"

func TestCase10NamedEventsAndPings(t *testing.T) {
	_, start := run(t, messagesAPI, SSE, anthropic)
	if start.Content || start.Release || start.ContentEvents != 0 || start.Passable != 0 || start.Terminal {
		t.Errorf("start: %+v", start)
	}
	_, got := run(t, messagesAPI, SSE, anthropic+anthropicRest)
	if !got.Content || !got.Release || got.ContentEvents != 1 || !got.Terminal || got.Done {
		t.Errorf("deltas: %+v", got)
	}
	_, got = run(t, messagesAPI, SSE, anthropic+anthropicRest+"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	if want := (Usage{Input: 135, CachedInput: 100, Output: 15, Reported: true}); got.Usage != want || !got.Done || got.Model != "claude" || got.Err != "" {
		t.Errorf("whole: %+v", got)
	}
}

func TestCase12ErrorAsFirstFrame(t *testing.T) {
	f := func(api API, framing Framing, text string, want UpstreamError, class Class) {
		t.Helper()
		for _, text := range []string{text, text + "data: [DONE]\n\n", text + sse("\n", delta("x"))} {
			if framing == NDJSON && strings.Contains(text, "data:") {
				continue
			}
			s := NewStream(api, framing)
			s.Feed([]byte(text))
			s.End()
			if s.Err() == nil || *s.Err() != want || s.Release() {
				t.Errorf("%q\n got %+v, release %v\nwant %+v", text, s.Err(), s.Release(), want)
				return
			}
			if got, _ := Classify(200, s.Err()); got != class {
				t.Errorf("%q: class %v, want %v", text, got, class)
			}
			run(t, api, framing, text)
		}
	}
	f(chatAPI, SSE, ": a\n\n: b\n\ndata: {\"error\":{\"message\":\"slow down\",\"type\":\"rate_limit_error\",\"code\":\"rate_limit_exceeded\"}}\n\n",
		UpstreamError{Type: "rate_limit_error", Code: "rate_limit_exceeded", Message: "slow down"}, RateLimited)
	f(chatAPI, SSE, "event: error\ndata: {\"error\":{\"message\":\"no\",\"type\":\"server_error\",\"code\":503,\"retry_after\":1.5}}\n\n",
		UpstreamError{Status: 503, Type: "server_error", Code: "503", Message: "no", RetryAfter: 1500e6}, Overloaded)
	for _, api := range []API{chatAPI, messagesAPI, responsesAPI} {
		f(api, SSE, "data: {\"message\":\"m\",\"code\":\"E1\",\"retry_after\":2}\n\n", UpstreamError{Code: "E1", Message: "m", RetryAfter: 2e9}, ServerError)
		f(api, SSE, "data: {\"detail\":\"m\",\"status\":503}\n\n", UpstreamError{Status: 503, Message: "m"}, Overloaded)
	}
	f(chatAPI, SSE, "data: {\"type\":\"ServerError\",\"message\":\"m\"}\n\n", UpstreamError{Type: "ServerError", Message: "m"}, ServerError)
	f(chatAPI, SSE, "event: error\ndata: it broke\n\n", UpstreamError{Message: "it broke"}, ServerError)
	f(chatAPI, SSE, "event: error\ndata: {\"message\":\"m\",\"code\":\"429\"}\n\n", UpstreamError{Status: 429, Code: "429", Message: "m"}, RateLimited)
	f(chatAPI, SSE, "data: {\"error\":\"text only\"}\n\n", UpstreamError{Message: "text only"}, ServerError)
	f(chatAPI, SSE, "data: {\"error\":true}\n\n", UpstreamError{}, ServerError)
	f(chatAPI, SSE, "data: {\"object\":\"error\",\"message\":\"old vLLM\",\"type\":\"BadRequestError\",\"param\":null,\"code\":400}\n\n",
		UpstreamError{Status: 400, Type: "BadRequestError", Code: "400", Message: "old vLLM"}, ClientFault)
	f(chatAPI, SSE, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}],\"error\":{\"code\":502,\"message\":\"gone\"}}\n\n",
		UpstreamError{Status: 502, Code: "502", Message: "gone"}, ServerError)
	f(messagesAPI, SSE, anthropic+"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
		UpstreamError{Type: "overloaded_error", Message: "Overloaded"}, Overloaded)
	f(responsesAPI, SSE, "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"m\"}}}\n\n",
		UpstreamError{Code: "server_error", Message: "m"}, ServerError)
	f(responsesAPI, SSE, "event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"m\",\"param\":null}\n\n",
		UpstreamError{Type: "error", Code: "rate_limit_exceeded", Message: "m"}, RateLimited)
	f(APIOf("POST", "/api/chat"), NDJSON, "{\"error\":\"model requires more memory\"}\n", UpstreamError{Message: "model requires more memory"}, ServerError)

	big := strings.Repeat("x", 100<<10)
	s := NewStream(messagesAPI, SSE)
	s.Feed([]byte("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"" + big + "\"}}\n\n"))
	if s.Err() == nil || len(s.Err().Message) > maxMessage || s.Release() {
		t.Errorf("large error: %+v", factsOf(s))
	}
}

func TestCase14ErrorInTheMiddle(t *testing.T) {
	text := sse("\n", role, delta("a"), delta("b"), delta("c"), `{"error":{"message":"engine died","type":"server_error","code":503}}`)
	_, got := run(t, chatAPI, SSE, text)
	if !got.Content || !got.Release || got.Terminal || got.Done || got.ContentEvents != 3 || got.Usage.Reported || got.OutputEstimate != 3 {
		t.Errorf("%+v", got)
	}
	s := NewStream(chatAPI, SSE)
	s.Feed([]byte(text))
	if got, _ := Classify(200, s.Err()); got != Overloaded {
		t.Errorf("class of %+v", s.Err())
	}
}

func TestHoldLimits(t *testing.T) {
	if _, got := run(t, chatAPI, SSE, strings.Repeat(sse("\n", role), maxHeldEvents-1)); got.Release {
		t.Error("63 start events end the hold")
	}
	if _, got := run(t, chatAPI, SSE, strings.Repeat(sse("\n", role), maxHeldEvents)); !got.Release || got.Content {
		t.Errorf("64 start events: %+v", got)
	}
	pad := strings.Repeat("p", 50<<10)
	start := `{"pad":"` + pad + `","choices":[]}`
	if _, got := run(t, chatAPI, SSE, strings.Repeat(sse("\n", start), 5)); got.Release || got.Content {
		t.Errorf("250 KiB: %+v", got)
	}
	if _, got := run(t, chatAPI, SSE, strings.Repeat(sse("\n", start), 6)); !got.Release || got.Content {
		t.Errorf("300 KiB: %+v", got)
	}
	// Comments that passed do not count; a line that never ends does.
	if _, got := run(t, chatAPI, SSE, strings.Repeat(": "+pad+"\n", 8)); got.Release {
		t.Error("comments end the hold")
	}
	if _, got := run(t, chatAPI, SSE, strings.Repeat(pad, 8)); !got.Release {
		t.Error("an endless line does not end the hold")
	}
	// The hold ends by size before the error that comes later, and wherever the pieces are cut.
	exact := func(n int) string { // n bytes up to the end of an error event
		tail := "\ndata: {\"error\":\"x\"}\n\n"
		return ": c\n" + strings.Repeat(sse("\n", start), 4) + "x" + strings.Repeat("y", n-4*len(sse("\n", start))-1-len(tail)) + tail
	}
	for n := maxHeldBytes - 3; n <= maxHeldBytes+3; n++ {
		if _, got := run(t, chatAPI, SSE, exact(n)); got.Err == "" || got.Release != (n >= maxHeldBytes) {
			t.Errorf("%d bytes: %+v", n, got)
		}
	}
}

func TestByteOrderMark(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	if before, _ := run(t, chatAPI, SSE, bom+": c\n"+sse("\n", usage)); before.Passable != len(bom+": c\n") || before.Usage != wantUsage {
		t.Errorf("comment: %+v", before)
	}
	if _, got := run(t, chatAPI, SSE, bom+sse("\r\n", usage)); got.Usage != wantUsage || got.Passable != 0 {
		t.Errorf("data: %+v", got)
	}
	// Only at the very start.
	if _, got := run(t, chatAPI, SSE, "\n"+bom+"data: "+usage+"\n\n"); got.Usage.Reported {
		t.Errorf("later: %+v", got)
	}
	if _, got := run(t, otherAPI, NDJSON, bom+`{"prompt_eval_count":3,"done":true}`); got.Usage.Input != 3 {
		t.Errorf("ndjson: %+v", got)
	}
}

func TestTail(t *testing.T) {
	f := func(text string, want int) {
		t.Helper()
		if before, _ := run(t, chatAPI, SSE, text); before.Tail != want {
			t.Errorf("%q: tail %d, want %d", text, before.Tail, want)
		}
	}
	f("", 0)
	f("data", 4)
	f("data: x\n", 0)
	f("data: x\r", 0)
	f("data: x\r\n", 0)
	f("data: x\r\nd", 1)
	f("data: x\r\rda", 2)
	f("\n\n: é", 4)
}

// The events of a stream that broke are closed before an event of our own; whatever was sent, a client then sees the error.
func TestErrorEventAfterAnyCut(t *testing.T) {
	text := sse("\r\n", role, delta("a")) + sse("\n", delta("b")) + sse("\r", delta("c"), finish)
	e := Error{Status: 502, Code: "evenkeel_upstream_cut", Message: "the endpoint broke off"}
	for cut := range len(text) {
		s := NewStream(chatAPI, SSE)
		s.Feed([]byte(text[:cut]))
		client := NewStream(chatAPI, SSE)
		client.Feed([]byte(text[:cut]))
		client.Feed(e.Event(chatAPI, s.Open()))
		if err := client.Err(); err == nil || err.Code != "evenkeel_upstream_cut" || client.Done() {
			t.Fatalf("cut at %d: client sees %+v", cut, factsOf(client))
		}
	}
}

// TestErrAt: the place of an error event is where its first line begins, whatever came before.
func TestErrAt(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\r\n"} {
		for _, before := range []string{"", "\uFEFF", sse(end, role, delta("a")), sse(end, delta("a")) + ": c" + end + "id: 7" + end} {
			event := "event: error" + end + "data: {" + end + `data: "error":{"message":"` + strings.Repeat("x", 100) + `"}}` + end + end
			s := NewStream(chatAPI, SSE)
			feed(s, before+event+sse(end, delta("b")), func() int { return 7 })
			want := len(before)
			if before == "\uFEFF" {
				want = 0 // it belongs to the line
			}
			if s.Err() == nil || s.ErrAt() != want {
				t.Errorf("after %q: %v at %d, want %d", before, s.Err(), s.ErrAt(), want)
			}
			s.Reset(chatAPI, SSE)
			feed(s, before+strings.Replace(event, "xxx", strings.Repeat("x", maxEvent), 1), func() int { return 5000 })
			if s.Err() == nil || s.ErrAt() != want {
				t.Errorf("a big one after %q: %v at %d, want %d", before, s.Err(), s.ErrAt(), want)
			}
		}
	}
}

func TestOutputEstimate(t *testing.T) {
	f := func(want int, events ...string) {
		t.Helper()
		if _, got := run(t, chatAPI, SSE, sse("\n", events...)); got.OutputEstimate != want {
			t.Errorf("%d, want %d", got.OutputEstimate, want)
		}
	}
	f(0, role)
	f(3, delta("a"), delta("b"), delta("c"))
	f(20, delta(strings.Repeat("abcdefghi", 10)))
	f(1, `{"choices":[{"delta":{"tool_calls":[{"function":{"name":"fu","arguments":"{\"a\":1}"}}]}}]}`) // 9 bytes of text
	f(5, delta(" señal"), delta(" beacon"), delta(" 東京"), delta(" ⚓"), delta("[mock-1]"))               // one token each, whatever the script
}

func TestBodyOutputEstimate(t *testing.T) {
	answer := `{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1767225600,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("some words of prose ", 45) + `"},"logprobs":null,"finish_reason":"stop"}]}`
	b := NewBody(chatAPI)
	b.Feed([]byte(answer))
	if got := b.OutputEstimate(); got < 180 || got > 220 { // 900 bytes
		t.Errorf("%d tokens for 900 bytes of text, want about 200", got)
	}
	b.Reset(APIOf("POST", "/v1/embeddings"))
	b.Feed([]byte(answer))
	if got := b.OutputEstimate(); got != 0 {
		t.Errorf("an embedding has no output tokens, got %d", got)
	}
}

func TestStreamAllocs(t *testing.T) {
	for _, api := range []API{chatAPI, messagesAPI, responsesAPI} {
		chunk := []byte(sse("\n", delta("token")))
		switch api.Name {
		case "messages":
			chunk = []byte(anthropicRest)
		case "responses":
			chunk = []byte("event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\",\"sequence_number\":4}\n\n")
		}
		s := NewStream(api, SSE)
		s.Feed(chunk)
		s.Feed(chunk[:100]) // makes the buffers
		s.Feed(chunk[100:])
		if n := testing.AllocsPerRun(100, func() { s.Feed(chunk) }); n != 0 {
			t.Errorf("%s: %.1f allocations per whole chunk", api.Name, n)
		}
		for cut := range chunk {
			if n := testing.AllocsPerRun(2, func() { s.Feed(chunk[:cut]); s.Feed(chunk[cut:]) }); n != 0 {
				t.Errorf("%s: %.1f allocations per chunk cut at %d", api.Name, n, cut)
			}
		}
		if n := testing.AllocsPerRun(10, func() { s.Reset(api, SSE) }); n != 0 {
			t.Errorf("%s: %.1f allocations per Reset", api.Name, n)
		}
	}
}

func BenchmarkFeed(b *testing.B) {
	chunk := []byte(sse("\n", delta("token")))
	burst := bytes.Repeat(chunk, 16)
	for name, pieces := range map[string][][]byte{"whole": {chunk}, "split": {chunk[:120], chunk[120:]}, "burst16": {burst}} {
		b.Run(name, func(b *testing.B) {
			s := NewStream(chatAPI, SSE)
			b.ReportAllocs()
			for b.Loop() {
				for _, p := range pieces {
					s.Feed(p)
				}
			}
			b.ReportMetric(float64(len(chunk)), "B/chunk")
		})
	}
}

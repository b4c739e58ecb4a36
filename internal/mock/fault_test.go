package mock

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

func setFault(t testing.TB, e *Engine, f Fault) {
	t.Helper()
	if err := e.SetFault(f); err != nil {
		t.Fatal(err)
	}
}

// raw sends one request on a connection of its own and returns the bytes of the answer, the body's as they came after
// net/http's framing, and how the body ended.
func raw(t testing.TB, e *Engine, path, body string) (resp *http.Response, got string, err error) {
	t.Helper()
	c := client(t)
	defer c.CloseIdleConnections()
	return post(t, c, e.URL()+path, body)
}

// Faults that cut a stream, after 0 and after 3 events. What is fixed here is what the client gets: which events, and which end.
func TestFaultsThatCutStreams(t *testing.T) {
	const clean = ""
	f := func(fault Fault, wantEvents int, wantEnd, wantTail string) {
		t.Helper()
		e := start(t, Config{OutputTokens: 6})
		setFault(t, e, fault)
		_, got, err := raw(t, e, "/v1/chat/completions", chatBody(streaming))
		if n := len(events(got)); n != wantEvents || !strings.HasSuffix(got, wantTail) {
			t.Errorf("%+v: %d events, want %d, ending in %q: %q", fault, n, wantEvents, wantTail, got)
		}
		if (err == nil) != (wantEnd == clean) || err != nil && !strings.Contains(err.Error(), wantEnd) {
			t.Errorf("%+v: ended with %v, want %q", fault, err, wantEnd)
		}
		if s := settled(t, e); s.Cut != 1 || s.Faults != 1 {
			t.Errorf("%+v: stats %+v", fault, s)
		}
	}
	const fin, rst = "unexpected EOF", "connection reset"
	f(Fault{Kind: "die"}, 0, fin, "")
	f(Fault{Kind: "die", After: 3}, 3, fin, "}\n\n")
	f(Fault{Kind: "close"}, 0, "EOF", "")
	f(Fault{Kind: "reset"}, 0, rst, "")
	f(Fault{Kind: "reset", After: 3}, 3, rst, "}\n\n")
	f(Fault{Kind: "malformed"}, 0, "invalid byte in chunk length", "")
	f(Fault{Kind: "malformed", After: 3}, 3, "invalid byte in chunk length", "")
	f(Fault{Kind: "malformed", Variant: "status_line"}, 0, "malformed HTTP", "")
	f(Fault{Kind: "truncate"}, 7, clean, "\"finish_reason\":null}]}\n\n") // role and six tokens
	f(Fault{Kind: "truncate", After: 3}, 3, clean, "\"finish_reason\":null}]}\n\n")
	f(Fault{Kind: "truncate", Variant: "empty"}, 0, clean, "")
	f(Fault{Kind: "stream_error"}, 2, clean, `"code":"500"}}`+"\n\ndata: [DONE]\n\n")
	f(Fault{Kind: "stream_error", After: 3, Status: 503}, 5, clean, `"code":"503"}}`+"\n\ndata: [DONE]\n\n")
}

func TestFaultsThatCutWholeAnswers(t *testing.T) {
	reference := mustPost(t, client(t), start(t, Config{}).URL()+"/v1/chat/completions", chatBody(""), 200)
	half := reference[:len(reference)/2]
	f := func(fault Fault, wantBody, wantEnd string) {
		t.Helper()
		e := start(t, Config{})
		setFault(t, e, fault)
		_, got, err := raw(t, e, "/v1/chat/completions", chatBody(""))
		if got != wantBody {
			t.Errorf("%+v: body %q, want %q", fault, got, wantBody)
		}
		if (err == nil) != (wantEnd == "") || err != nil && !strings.Contains(err.Error(), wantEnd) {
			t.Errorf("%+v: ended with %v, want %q", fault, err, wantEnd)
		}
		if s := settled(t, e); s.Cut != 1 {
			t.Errorf("%+v: stats %+v", fault, s)
		}
	}
	f(Fault{Kind: "die"}, half, "unexpected EOF")
	f(Fault{Kind: "close"}, "", "EOF")
	f(Fault{Kind: "reset"}, "", "connection reset")
	f(Fault{Kind: "reset", After: 1}, half, "connection reset")
	f(Fault{Kind: "malformed"}, reference, "unexpected EOF")
	f(Fault{Kind: "malformed", Variant: "json"}, half+"}}, not JSON", "")
	f(Fault{Kind: "truncate"}, half, "")
	f(Fault{Kind: "truncate", Variant: "empty"}, "", "")
	f(Fault{Kind: "stream_error"}, `{"error":{"message":"a fault of the mock engine, inside the answer","type":"server_error","param":null,"code":null}}`, "")
}

// A fault that ends an answer cleanly, or has its say in the status, leaves the connection usable.
func TestCleanFaultsKeepTheConnection(t *testing.T) {
	e := start(t, Config{})
	c := client(t)
	for _, f := range []Fault{{Kind: "truncate"}, {Kind: "stream_error", After: 2}, {Kind: "status", Status: 429}, {Kind: "gzip"}} {
		setFault(t, e, f)
		if _, _, err := post(t, c, e.URL()+"/v1/chat/completions", chatBody(streaming)); err != nil {
			t.Errorf("%s: %v", f.Kind, err)
		}
	}
	if n := e.Stats().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestFaultStatus(t *testing.T) {
	e := start(t, Config{})
	c := client(t)
	setFault(t, e, Fault{Kind: "status", Status: 429, RetryAfter: "7"})
	for _, dialect := range []struct{ path, want string }{
		{"/v1/chat/completions", `{"error":{"message":"a fault of the mock engine","type":"rate_limit_error","param":null,"code":null}}`},
		{"/v1/messages", `{"type":"error","error":{"type":"rate_limit_error","message":"a fault of the mock engine"}}`},
	} {
		resp, got, err := post(t, c, e.URL()+dialect.path, chatBody(""))
		if err != nil || resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "7" || got != dialect.want {
			t.Errorf("%s: %v, %v, %s", dialect.path, err, resp, got)
		}
	}
	setFault(t, e, Fault{Kind: "status", Body: "<html>bad gateway</html>", Status: 502})
	if got := mustPost(t, c, e.URL()+"/v1/chat/completions", chatBody(""), 502); got != "<html>bad gateway</html>" {
		t.Errorf("own body: %s", got)
	}
	if resp, err := c.Get(e.URL() + "/health"); err != nil || resp.StatusCode != 200 {
		t.Errorf("health is no API call and stays well: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	setFault(t, e, Fault{Kind: "status", Path: "/health"})
	if resp, err := c.Get(e.URL() + "/health"); err != nil || resp.StatusCode != 500 {
		t.Errorf("a fault with a path: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	mustPost(t, c, e.URL()+"/v1/chat/completions", chatBody(""), 200)
}

func TestFaultRefuse(t *testing.T) {
	e := start(t, Config{OutputTokens: 2, InterToken: 50 * time.Millisecond})
	c := client(t)
	idle, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	running := make(chan string, 1)
	go func() {
		_, got, _ := post(t, c, e.URL()+"/v1/chat/completions", chatBody(streaming))
		running <- got
	}()
	eventually(t, "running and idle", func() bool { s := e.Stats(); return s.Running == 1 && s.OpenConnections == 2 })

	setFault(t, e, Fault{Kind: "refuse"})
	if _, err := net.Dial("tcp", e.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v, want refused", err)
	}
	if n, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("idle connection: %d bytes, %v; want closed", n, err)
	}
	if got := <-running; !strings.HasSuffix(got, "[DONE]\n\n") {
		t.Errorf("running answer was cut: %q", got)
	}
	eventually(t, "no connection left", func() bool { return e.Stats().OpenConnections == 0 })
	if err := e.ClearFault(); err != nil {
		t.Fatal(err)
	}
	mustPost(t, client(t), e.URL()+"/v1/chat/completions", chatBody(""), 200)

	// Refusing outlives a crash.
	setFault(t, e, Fault{Kind: "refuse"})
	e.Kill()
	if err := e.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", e.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after restart: %v, want refused", err)
	}
}

// hang and stall hold their slot until the client leaves, also after the fault is cleared.
func TestFaultsThatWaitForEver(t *testing.T) {
	f := func(fault Fault, more string, wantEvents int) {
		t.Helper()
		e := start(t, Config{Slots: 1})
		setFault(t, e, fault)
		body := chatBody(more)
		nc, err := net.Dial("tcp", e.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		fmt.Fprintf(nc, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		eventually(t, "the fault hit", func() bool { return e.Stats().Faults == 1 && e.Stats().Running == 1 })
		got := ""
		if fault.Kind == "stall" {
			for buf := make([]byte, 4096); len(events(got)) < wantEvents || !strings.Contains(got, "\r\n\r\n"); {
				n, err := nc.Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				got += string(buf[:n])
			}
		}
		nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := nc.Read(make([]byte, 1)); n != 0 || err == nil || !err.(net.Error).Timeout() {
			t.Errorf("%+v: %d bytes more, %v", fault, n, err)
		}
		if n := len(events(got)); n != wantEvents {
			t.Errorf("%+v: %d events, want %d", fault, n, wantEvents)
		}
		if err := e.ClearFault(); err != nil {
			t.Fatal(err)
		}
		if s := e.Stats(); s.Running != 1 {
			t.Errorf("%+v: %+v", fault, s)
		}
		nc.Close()
		if s := settled(t, e); s.Aborted != 1 {
			t.Errorf("%+v: stats %+v", fault, s)
		}
		mustPost(t, client(t), e.URL()+"/v1/chat/completions", chatBody(""), 200)
	}
	f(Fault{Kind: "hang"}, "", 0)
	f(Fault{Kind: "hang"}, streaming, 0)
	f(Fault{Kind: "stall"}, "", 0)
	f(Fault{Kind: "stall"}, streaming, 0)
	f(Fault{Kind: "stall", After: 4}, streaming, 4)
}

func TestFaultSlow(t *testing.T) {
	e := start(t, Config{BaseLatency: 5 * time.Millisecond, InterToken: time.Millisecond, OutputTokens: 6})
	setFault(t, e, Fault{Kind: "slow", Factor: 20})
	begin := time.Now()
	mustPost(t, client(t), e.URL()+"/v1/chat/completions", chatBody(""), 200)
	if took := time.Since(begin); took < 200*time.Millisecond {
		t.Errorf("took %v, want at least 20 × 10 ms", took)
	}
}

// Faults that change the form but not what is said: after undoing the form, the stream is the usual one.
func TestFaultsOfForm(t *testing.T) {
	body := `{"model":"mock-model","stream":true,"stream_options":{"include_usage":true},"max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`
	usual := mustPost(t, client(t), start(t, Config{OutputTokens: 40}).URL()+"/v1/chat/completions", body, 200)
	f := func(fault Fault, undo func(got string) string) {
		t.Helper()
		e := start(t, Config{OutputTokens: 40})
		setFault(t, e, fault)
		_, got, err := raw(t, e, "/v1/chat/completions", body)
		if err != nil {
			t.Errorf("%+v: %v", fault, err)
		}
		if undone := undo(got); undone != usual {
			t.Errorf("%+v:\n%q\nwant\n%q", fault, undone, usual)
		}
		if s := settled(t, e); s.Completed != 1 || s.Faults != 1 {
			t.Errorf("%+v: stats %+v", fault, s)
		}
	}
	lines := strings.Count(usual, "\n")
	f(Fault{Kind: "crlf"}, func(got string) string {
		if n := strings.Count(got, "\r\n"); n != lines {
			t.Errorf("%d CRLF, want %d", n, lines)
		}
		return strings.ReplaceAll(got, "\r\n", "\n")
	})
	f(Fault{Kind: "crlf", Variant: "cr"}, func(got string) string {
		if strings.Contains(got, "\n") {
			t.Error("a line feed among bare CRs")
		}
		return strings.ReplaceAll(got, "\r", "\n")
	})
	f(Fault{Kind: "crlf", Variant: "mixed"}, func(got string) string {
		if n := strings.Count(got, "\r\n"); n != lines/2 {
			t.Errorf("%d CRLF, want half of %d", n, lines)
		}
		return strings.ReplaceAll(got, "\r\n", "\n")
	})
	f(Fault{Kind: "comments", After: 2, Delay: Duration(time.Millisecond)}, func(got string) string {
		undone, found := strings.CutPrefix(got, ": waiting\n\n: waiting\n\n")
		if !found {
			t.Errorf("no comments: %q", got)
		}
		return undone
	})
	f(Fault{Kind: "gzip"}, func(got string) string {
		r, err := gzip.NewReader(strings.NewReader(got))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	})
	f(Fault{Kind: "big_event", Size: 100_000, After: 2}, func(got string) string {
		token := *decode[chatChunk](t, events(usual)[1+2]).Choices[0].Delta.Content
		return strings.ReplaceAll(got, strings.Repeat("x", 100_000), token)
	})
	f(Fault{Kind: "no_usage"}, func(got string) string {
		if strings.Contains(got, "usage") {
			t.Errorf("usage in %q", got)
		}
		return usual
	})
}

// split sends events in pieces that cut line ends and runes; each piece is a chunk of its own.
func TestFaultSplit(t *testing.T) {
	for _, variant := range []string{"lf", "crlf"} {
		e := start(t, Config{OutputTokens: 40})
		usual := mustPost(t, client(t), e.URL()+"/v1/chat/completions", chatBody(streaming), 200)
		setFault(t, e, Fault{Kind: "split", Variant: variant})
		nc, err := net.Dial("tcp", e.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		body := chatBody(streaming)
		fmt.Fprintf(nc, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		b, err := io.ReadAll(nc)
		if err != nil {
			t.Fatal(err)
		}
		_, wire, _ := strings.Cut(string(b), "\r\n\r\n")
		whole, cutRunes, cutEnds := "", 0, 0
		for wire != "" {
			var size int
			fmt.Sscanf(wire, "%x", &size)
			_, wire, _ = strings.Cut(wire, "\r\n")
			piece := wire[:size]
			wire = wire[size+2:]
			if !utf8.ValidString(piece) {
				cutRunes++
			}
			if piece == "\r" || piece == "\n" {
				cutEnds++
			}
			whole += piece
			if size == 0 {
				break
			}
		}
		if strings.ReplaceAll(whole, "\r\n", "\n") != usual || wire != "" {
			t.Errorf("%s: %q\nwant %q, left %q", variant, whole, usual, wire)
		}
		if cutRunes == 0 || cutEnds < len(events(usual)) {
			t.Errorf("%s: %d cut runes, %d cut line ends", variant, cutRunes, cutEnds)
		}
	}
}

func TestFaultInEachDialect(t *testing.T) {
	f := func(path, body, want string) {
		t.Helper()
		e := start(t, Config{})
		setFault(t, e, Fault{Kind: "stream_error", After: 5, Status: 529})
		if got := mustPost(t, client(t), e.URL()+path, body, 200); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q\nwant the end %q", path, got, want)
		}
	}
	const message = `"a fault of the mock engine, inside the stream"`
	f("/v1/completions", `{"model":"mock-model","stream":true,"prompt":"hi"}`,
		`data: {"error":{"message":`+message+`,"type":"server_error","param":null,"code":"529"}}`+"\n\ndata: [DONE]\n\n")
	f("/v1/messages", chatBody(`,"stream":true,"max_tokens":9`),
		`data: {"type":"error","error":{"type":"overloaded_error","message":`+message+`}}`+"\n\n")
	f("/v1/responses", `{"model":"mock-model","stream":true,"input":"hi"}`,
		"event: error\n"+`data: {"type":"error","code":null,"message":`+message+`,"param":null,"sequence_number":5}`+"\n\n")
}

// hits asks n times and writes down which requests the fault hit.
func hits(t *testing.T, e *Engine, n int) string {
	c := client(t)
	pattern := ""
	for range n {
		resp, _, err := post(t, c, e.URL()+"/v1/chat/completions", chatBody(""))
		if err != nil {
			t.Fatal(err)
		}
		pattern += map[bool]string{true: ".", false: "x"}[resp.StatusCode == 200]
	}
	return pattern
}

func TestFaultRateAndCount(t *testing.T) {
	f := func(seed uint64, fault Fault) string {
		e := start(t, Config{Seed: seed})
		fault.Kind = "status"
		setFault(t, e, fault)
		return hits(t, e, 40)
	}
	a := f(7, Fault{Rate: 0.3})
	if n := strings.Count(a, "x"); n < 5 || n > 20 {
		t.Errorf("rate 0.3 hit %d of 40: %s", n, a)
	}
	if again := f(7, Fault{Rate: 0.3}); again != a {
		t.Errorf("same seed: %s and %s", a, again)
	}
	if other := f(8, Fault{Rate: 0.3}); other == a {
		t.Errorf("another seed, the same requests hit: %s", a)
	}
	if got := f(7, Fault{Count: 3}); got != "xxx"+strings.Repeat(".", 37) {
		t.Errorf("count 3: %s", got)
	}
	if got := f(7, Fault{Rate: 0.3, Count: 2}); strings.Count(got, "x") != 2 || !strings.HasPrefix(a, strings.TrimRight(got, ".")) {
		t.Errorf("rate 0.3, count 2: %s, without count %s", got, a)
	}
}

func TestBadFaults(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		fault, err := decodeFault([]byte(text))
		if err == nil {
			_, err = fault.withDefaults()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	f(``, "EOF")
	f(`{"kind":"explode"}`, `kind "explode" is unknown: use one of status, refuse, close, hang, stall`)
	f(`{}`, `kind "" is unknown`)
	f(`{"kind":"die","afer":3}`, `unknown field "afer"`)
	f(`{"kind":"die"} {}`, "more after the JSON object")
	f(`{"kind":"die","after":-1}`, "after -1")
	f(`{"kind":"status","rate":1.5}`, "rate is 1.5")
	f(`{"kind":"status","status":99}`, "status is 99")
	f(`{"kind":"status","delay":5}`, `the duration 5 needs quotes and a unit`)
	f(`{"kind":"status","delay":"5 parsecs"}`, `"5 parsecs" is not a duration`)
	f(`{"kind":"status","retry_after":"1\r\nx: y"}`, "line end")
	f(`{"kind":"refuse","count":3}`, "refuse concerns connections")
	f(`{"kind":"hang","variant":"long"}`, `hang has no variant "long"`)
	f(`{"kind":"crlf","variant":"lfcr"}`, `it has ["crlf" "cr" "mixed"]`)
}

func TestFaultSurvivesJSON(t *testing.T) {
	for _, k := range FaultKinds() {
		fault, err := Fault{Kind: k.Name, Delay: Duration(1500 * time.Millisecond)}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(fault)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeFault(b); err != nil || back != fault {
			t.Errorf("%s came back as %+v, %v", b, back, err)
		}
	}
}

func FuzzDecodeFault(f *testing.F) {
	for _, seed := range []string{`{"kind":"status","status":429,"retry_after":"2","rate":0.5}`, `{"kind":"stall","after":3,"delay":"1s"}`, `{}`, `null`, `{"kind":"hang"}x`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fault, err := decodeFault(b)
		if err != nil {
			return
		}
		if fault, err = fault.withDefaults(); err == nil {
			if again, err := fault.withDefaults(); err != nil || again != fault {
				t.Errorf("defaults applied twice: %+v, %v, then %+v", fault, err, again)
			}
		}
	})
}

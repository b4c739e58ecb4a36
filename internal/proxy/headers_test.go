package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"testing"

	"evenkeel/internal/config"
	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

func TestBodyLimit(t *testing.T) {
	const limit = 100 << 10
	w := newWorld(t, options{change: func(g *Generation) { g.MaxBody = limit }}, jsonAnswer(200, goodJSON))
	body := func(n int) string { return `{"model":"m","x":"` + strings.Repeat("a", n-20) + `"}` }
	chunked := func(s string) string {
		return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(s), s)
	}
	if a := w.post("/v1/chat/completions", body(limit)); a.status != 200 {
		t.Errorf("at the limit: %d %s", a.status, a.body)
	}
	if raw := w.raw(chunked(body(limit))); !strings.HasPrefix(raw, "HTTP/1.1 200") {
		t.Errorf("at the limit, chunked: %q", raw)
	}
	asked := w.deployment(0).Totals
	if a := w.post("/v1/chat/completions", body(limit+1)); a.status != 413 || !strings.Contains(a.body, "evenkeel_body_too_large") || a.header.Get("X-Should-Retry") != "false" {
		t.Errorf("above: %d %s", a.status, a.body)
	}
	if raw := w.raw(chunked(body(limit + 1))); !strings.HasPrefix(raw, "HTTP/1.1 413") {
		t.Errorf("above, chunked: %q", raw)
	}
	if a := w.post("/v1/messages", body(limit+1)); a.status != 413 || !strings.HasPrefix(a.body, `{"type":"error","error":{"type":"`) {
		t.Errorf("above, messages: %d %s", a.status, a.body)
	}
	if got := w.deployment(0).Totals; got != asked {
		t.Errorf("upstream was asked: %+v", got)
	}
	w.idle()
}

func TestRequestAllowList(t *testing.T) {
	for _, c := range []struct {
		name    string
		forward []string
		pass    bool
		goes    bool
	}{
		{"Accept", nil, false, true}, {"Accept-Encoding", nil, false, true}, {"Anthropic-Version", nil, false, true}, {"Anthropic-Beta", nil, false, true},
		{"Openai-Organization", nil, false, true}, {"X-Stainless-Lang", nil, false, true}, {"Traceparent", nil, false, true}, {"Tracestate", nil, false, true},
		{"User-Agent", nil, false, true}, {"X-Request-Id", nil, false, true}, {"Idempotency-Key", nil, false, true}, {"Content-Type", nil, false, true},
		{"X-Custom", nil, false, false}, {"X-Custom", []string{"x-custom"}, false, true}, {"X-Custom", []string{"X-CUSTOM"}, false, true},
		{"Cookie", nil, false, false}, {"Cookie", []string{"cookie"}, false, false}, {"Origin", nil, false, false}, {"Referer", nil, false, false},
		{"Forwarded", nil, false, false}, {"X-Forwarded-For", nil, false, false}, {"X-Real-Ip", nil, false, false},
		{"Authorization", nil, false, false}, {"Authorization", []string{"authorization"}, false, false}, {"Authorization", nil, true, true},
		{"X-Api-Key", nil, false, false}, {"X-Api-Key", nil, true, true}, {"Api-Key", nil, false, false}, {"X-Goog-Api-Key", nil, false, false},
		{"Proxy-Authorization", nil, true, false}, {"Cookie", nil, true, false}, {"Transfer-Encoding", []string{"transfer-encoding"}, false, false},
		{"Host", []string{"host"}, false, false}, {"Expect", []string{"expect"}, false, false}, {"X-Evenkeel-Timeout", []string{"x-evenkeel-timeout"}, false, false},
		{"X-Evenkeel-Anything", nil, true, false}, {"Content-Length", []string{"content-length"}, false, false},
		{"X-Amz-Security-Token", nil, false, false}, {"Ocp-Apim-Subscription-Key", nil, false, false},
		{"Anthropic-Beta_x", nil, false, false}, {"Content_type", nil, false, false}, {"X_api_key", nil, true, false}, {"X_own", []string{"x_own"}, false, true},
	} {
		g := &Generation{Forward: NewHeaderSet(c.forward), PassCredential: c.pass}
		out := g.requestHeader(nil, http.Header{c.name: {"v", "w"}})
		if _, goes := out[c.name]; goes != c.goes && c.name != "User-Agent" || c.goes && !slices.Equal(out[c.name], []string{"v", "w"}) {
			t.Errorf("%s (forward_headers %v, credentials: client %v): got %q", c.name, c.forward, c.pass, out[c.name])
		}
	}
}

// FuzzRequestHeader: whatever a client sends, nothing goes upstream that is not on the list, no credential, nothing of
// this hop, and nothing that Connection names.
func FuzzRequestHeader(f *testing.F) {
	f.Add("Connection: X-Keep, close\r\nX-Keep: 1\r\nAuthorization: Bearer secret\r\n", "X-Keep")
	f.Add("x-api-key: secret\r\nX-API-KEY: two\r\nCookie: a=b\r\nTE: trailers\r\n", "cookie")
	f.Add("Connection: authorization\r\nConnection: Content-Type,, ,\r\nAnthropic-Version: 1\r\ncontent-type: a/b\r\n", "authorization")
	f.Add("x-evenkeel-hops: 2\r\nConnection: x-evenkeel-hops\r\nAnthropic-Model_x: y\r\n", "x-evenkeel-hops")
	f.Add("Anthropic-Secret:\r\nopenai-: x\r\nX-Evenkeel-Pin: a\r\nProxy-Authorization: x\r\n", "x-evenkeel-pin")
	f.Fuzz(func(t *testing.T, block, forward string) {
		mime, err := textproto.NewReader(bufio.NewReader(strings.NewReader(block + "\r\n"))).ReadMIMEHeader()
		if err != nil {
			return
		}
		in := http.Header(mime)
		g := &Generation{Forward: NewHeaderSet([]string{forward})}
		out := g.requestHeader(nil, in)
		for name, values := range out {
			if name == headerHops {
				if n, ok := hops(in); !ok || values[0] != strconv.Itoa(n+1) {
					t.Errorf("%d hops, sent as %q", n, values)
				}
				continue
			}
			listed := forwarded[name] || name == textproto.CanonicalMIMEHeaderKey(forward)
			for _, p := range forwardedPrefixes {
				listed = listed || strings.HasPrefix(name, p)
			}
			if !listed || neverForwarded[name] || slices.Contains(keyHeaders, name) || strings.HasPrefix(name, headerPrefix) {
				t.Errorf("%s goes upstream", name)
			}
			if !slices.Equal(values, in[name]) {
				t.Errorf("%s changed from %q to %q", name, in[name], values)
			}
			for _, line := range in["Connection"] {
				for token := range strings.SplitSeq(line, ",") {
					if strings.EqualFold(strings.TrimSpace(token), name) && name != "Content-Type" {
						t.Errorf("%s goes upstream though Connection names it", name)
					}
				}
			}
		}
	})
}

func TestResponseHeaders(t *testing.T) {
	up := http.Header{
		"X-Request-Id": {"up"}, "Openai-Processing-Ms": {"5"}, "X-Ratelimit-Limit-Requests": {"1"}, "X-Should-Retry": {"true"}, "Cf-Ray": {"x"},
		"Etag": {`"e"`}, "Cache-Control": {"private"}, "X-Multi": {"1", "2"},
		"Set-Cookie": {"a=b"}, "Alt-Svc": {"h3"}, "Strict-Transport-Security": {"max-age=1"}, "Proxy-Authenticate": {"x"}, "X-Evenkeel-Id": {"forged"}, "X-Evenkeel-Model": {"forged"},
	}
	w := newWorld(t, options{change: func(g *Generation) { g.Expose = Exposed{Deployment: true, Attempts: true, Decision: true} }}, func(rw http.ResponseWriter, r *http.Request) {
		for k, v := range up {
			rw.Header()[k] = v
		}
		sse(healthy)(rw, r)
	})
	a := w.post("/v1/chat/completions", streamBody)
	for name, want := range up {
		got := a.header[name]
		switch {
		case withheld[name]:
			if got != nil {
				t.Errorf("%s came through: %q", name, got)
			}
		case strings.HasPrefix(name, headerPrefix):
			if slices.Contains(got, "forged") || len(got) != 1 {
				t.Errorf("%s: %q", name, got)
			}
		case !slices.Equal(got, want):
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"X-Accel-Buffering": "no", "X-Evenkeel-Model": "m", "X-Evenkeel-Fallback-Depth": "0", "X-Evenkeel-Deployment": "a/m", "X-Evenkeel-Attempts": "1"} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if d := a.header.Get("X-Evenkeel-Decision"); !strings.HasPrefix(d, "strategy=in_turn; candidates=1; eligible=1") {
		t.Errorf("decision %q", d)
	}
	if id := a.header.Get("X-Evenkeel-Id"); id != w.record(1).Facts.ID || id == "" {
		t.Errorf("id %q", id)
	}
}

// Every answer says which request it was and how far it fell back, also the ones that nobody upstream gave.
func TestOurHeadersAreAlwaysThere(t *testing.T) {
	w := newWorldAt(t, options{change: func(g *Generation) { g.Keys, g.MaxBody, g.MaxAttempts = keys("right"), 1<<10, 1 }}, deadURL(t))
	for _, c := range []struct {
		path, body, key string
		status          int
	}{
		{"/v1/chat/completions", chatBody, "wrong", 401}, {"/v1/chat/completions", "{", "right", 400}, {"/v1/messages", "{", "right", 400},
		{"/v1/chat/completions", `{"model":"x"}`, "right", 404}, {"/v1/chat/completions", strings.Repeat(" ", 2000), "right", 413},
		{"/nowhere", "{}", "right", 404}, {"/v1/../x", "{}", "right", 400}, {"/v1/chat/completions", chatBody, "right", 502},
	} {
		a := w.post(c.path, c.body, "Authorization", "Bearer "+c.key)
		if a.status != c.status || a.header.Get("X-Evenkeel-Id") == "" || a.header.Get("X-Evenkeel-Fallback-Depth") != "0" || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: got %d %v %s", c.path, clip(c.body), a.status, a.header, a.body)
		}
		if final := a.header.Get("X-Should-Retry") == "false"; final != (c.status < 500) {
			t.Errorf("%s: x-should-retry %q at %d", c.path, a.header.Get("X-Should-Retry"), a.status)
		}
	}
	a := w.post("/v1/chat/completions", chatBody, "Authorization", "Bearer right") // the endpoint is out now
	if a.status != 503 || a.header.Get("Retry-After") == "" || a.header.Get("Retry-After-Ms") == "" {
		t.Errorf("got %d %v %s", a.status, a.header, a.body)
	}
}

func TestHeadAnswersAgreeWithThemselves(t *testing.T) {
	for name, c := range map[string]struct {
		header map[string]string
		want   string // content-length that the client sees
	}{
		"plain":  {map[string]string{"Content-Type": "application/json", "Content-Length": "123"}, "123"},
		"gzip":   {map[string]string{"Content-Type": "application/json", "Content-Length": "50", "Content-Encoding": "gzip"}, ""},
		"events": {map[string]string{"Content-Type": "text/event-stream"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{change: onePlace}, func(rw http.ResponseWriter, _ *http.Request) {
				for k, v := range c.header {
					rw.Header().Set(k, v)
				}
			})
			req, _ := http.NewRequest(http.MethodHead, w.url+"/v1/chat/completions", http.NoBody)
			a := w.do(req)
			if a.status != 200 || a.header.Get("Content-Length") != c.want || a.header.Get("Content-Type") != c.header["Content-Type"] || a.header.Get("Content-Encoding") != "" {
				t.Errorf("got %d %v", a.status, a.header)
			}
			if r := w.record(1); r.Result != exchange.Complete {
				t.Errorf("%s %+v", r.Result, r.Last().Outcome)
			}
		})
	}
}

// onePlace gives requests without a model a place to go, as a single endpoint does.
func onePlace(g *Generation) { g.Chains[""] = []string{"m"} }

// An upstream that switches protocols unasked answered something that is no answer.
func TestUnaskedUpgradeIsMalformed(t *testing.T) {
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		c := hijack(t, rw)
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nGET / HTTP/1.1\r\n\r\n")
		_ = c.Close()
	}, jsonAnswer(200, goodJSON))
	if a := w.post("/v1/chat/completions", chatBody); a.status != 200 || a.body != goodJSON {
		t.Errorf("got %d %q", a.status, a.body)
	}
	if r := w.record(1); r.Attempts[0].Outcome.Class != "malformed" || r.Attempts[0].Outcome.Verdict != route.DeploymentFault {
		t.Errorf("first attempt %+v", r.Attempts[0].Outcome)
	}
	w.idle()
}

// An answer that was encoded twice is passed as it is, whichever way its header says so.
func TestAnswerEncodedTwice(t *testing.T) {
	for _, lines := range [][]string{{"gzip", "br"}, {"gzip, br"}, {"br", "gzip"}} {
		w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header()["Content-Encoding"] = lines
			jsonAnswer(200, "\x1f\x8bodd")(rw, r)
		})
		if a := w.post("/v1/chat/completions", chatBody); a.status != 200 || a.body != "\x1f\x8bodd" || !slices.Equal(a.header["Content-Encoding"], lines) {
			t.Errorf("%v: got %d %q %v", lines, a.status, a.body, a.header)
		}
	}
}

// TestForwardHeadersThatNeverGo: a configuration cannot name a header that would stay here all the same.
func TestForwardHeadersThatNeverGo(t *testing.T) {
	names := []string{headerPin, headerHops, headerPrefix + "Anything"}
	for name := range neverForwarded {
		names = append(names, name)
	}
	for _, name := range names {
		c := config.Default()
		c.ForwardHeaders = []string{strings.ToLower(name)}
		if err := c.Validate(nil); err == nil || !strings.Contains(err.Error(), "forward_headers[0]: ") {
			t.Errorf("%s is accepted: %v", name, err)
		}
		if g := (&Generation{Forward: NewHeaderSet([]string{name})}); g.forwards(textproto.CanonicalMIMEHeaderKey(name)) {
			t.Errorf("%s goes upstream", name)
		}
	}
}

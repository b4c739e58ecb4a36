package proxy

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"evenkeel/internal/llm"
)

// head is a request with a method, a raw target and pairs of header lines.
func head(t testing.TB, method, target string, lines ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	r.Method, r.ContentLength = method, 0
	u, err := r.URL.Parse(target)
	if err != nil {
		t.Fatalf("%q: %v", target, err)
	}
	r.URL = u
	for i := 0; i+1 < len(lines); i += 2 {
		r.Header.Add(lines[i], lines[i+1])
	}
	return r
}

func passGate(r *http.Request) *llm.Error {
	return gate(httptest.NewRecorder(), r, llm.APIOf(r.Method, r.URL.Path))
}

func TestGate(t *testing.T) {
	f := func(r *http.Request, status int, code string) {
		t.Helper()
		e := passGate(r)
		switch {
		case status == 0 && e != nil:
			t.Errorf("%s %s %v: refused: %d %s", r.Method, r.URL, r.Header, e.Status, e.Code)
		case status != 0 && (e == nil || e.Status != status || e.Code != code):
			t.Errorf("%s %s %v: got %+v, want %d %s", r.Method, r.URL, r.Header, e, status, code)
		}
	}
	const chat = "/v1/chat/completions"
	for _, m := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		f(head(t, m, "/v1/files"), 0, "")
	}
	for _, m := range []string{"gEt", "post", "TRACE", "PRI", "PROPFIND", "X", "POST\x00"} {
		f(head(t, m, chat), 405, "evenkeel_bad_method")
	}
	f(head(t, "CONNECT", chat), 400, "evenkeel_no_upgrade")
	version := func(major, minor int) *http.Request {
		r := head(t, "POST", chat)
		r.ProtoMajor, r.ProtoMinor = major, minor
		return r
	}
	f(version(1, 0), 0, "")
	f(version(1, 1), 0, "")
	f(version(2, 0), 0, "")
	f(version(1, 2), 505, "evenkeel_bad_version")
	f(version(3, 0), 505, "evenkeel_bad_version")
	length := func(method string, n int64) *http.Request {
		r := head(t, method, "/v1/files/x")
		r.ContentLength = n
		return r
	}
	f(length("GET", 1), 400, "evenkeel_unexpected_body")
	f(length("HEAD", 9), 400, "evenkeel_unexpected_body")
	f(length("OPTIONS", 9), 400, "evenkeel_unexpected_body")
	f(length("GET", -1), 0, "") // it may be empty
	f(length("DELETE", 9), 0, "")

	f(head(t, "POST", chat, "Connection", "upgrade", "Upgrade", "websocket"), 400, "evenkeel_no_upgrade")
	f(head(t, "POST", chat, "Connection", "close", "Connection", "x, Upgrade", "Upgrade", "h2c, websocket"), 400, "evenkeel_no_upgrade")
	f(head(t, "POST", chat, "Connection", "upgrade", "Upgrade", "h2c", "Upgrade", "websocket"), 400, "evenkeel_no_upgrade")
	f(head(t, "POST", chat, "Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "Http2-Settings", "x"), 0, "")
	f(head(t, "POST", chat, "Upgrade", "websocket"), 0, "") // not for this hop, and not forwarded

	f(head(t, "POST", chat, "Content-Type", "application/json", "Content-Type", "text/plain"), 400, "evenkeel_duplicate_header")
	f(head(t, "POST", chat, "X-Evenkeel-Pin", "a", "X-Evenkeel-Pin", "b"), 400, "evenkeel_duplicate_header")
	f(head(t, "POST", chat, "Accept", "a", "Accept", "b"), 0, "")

	f(head(t, "POST", chat, "X-Evenkeel-Exclude", strings.Repeat("a", longestList)), 0, "")
	f(head(t, "POST", chat, "X-Evenkeel-Exclude", strings.Repeat("a", longestList+1)), 431, "evenkeel_long_header")
	f(head(t, "POST", chat, "Connection", "close", "Connection", strings.Repeat(",", longestList+1)), 431, "evenkeel_long_header")
	f(head(t, "POST", chat, "X-Other", strings.Repeat("a", longestList+1)), 0, "")

	for _, v := range []string{"0", "1", "2"} {
		f(head(t, "POST", chat, "X-Evenkeel-Hops", v), 0, "")
	}
	for _, v := range []string{"3", "4", "9", "10", "-1", "", "x", " 1", "00"} {
		f(head(t, "POST", chat, "X-Evenkeel-Hops", v), 508, "evenkeel_loop")
	}

	many := func(n int, name func(int) string) *http.Request {
		r := head(t, "POST", chat)
		for i := range n {
			r.Header.Add(name(i), "v")
		}
		return r
	}
	apart := func(i int) string { return fmt.Sprintf("X-%d", i) }
	same := func(int) string { return "Accept" }
	f(many(mostHeaderLines, apart), 0, "")
	f(many(mostHeaderLines, same), 0, "")
	f(many(mostHeaderLines+1, apart), 431, "evenkeel_too_many_headers")
	f(many(mostHeaderLines+1, same), 431, "evenkeel_too_many_headers")
}

func TestBadPath(t *testing.T) {
	f := func(p string, local, bad bool) {
		t.Helper()
		if got := badPath(p, local); got != "" != bad {
			t.Errorf("badPath(%q, local %v) = %q", p, local, got)
		}
	}
	for _, p := range []string{"/", "/v1", "/v1/", "/v1/files/a;b", "/v1/files/a..b", "/v1/files/...", "/v1/files/.well-known", "/v1/files/é", "/v1/files/a b", "/v1/a/100%", "/v1/a/%zz", "/v1/..a/b", "/v1/a;/b"} {
		f(p, false, false)
		f(p, true, false)
	}
	for _, p := range []string{"", "*", "v1", "host:443", "/..", "/v1/..", "/v1/../x", "/../v1", "/v1/a\x00", "/v1/a\r\nx", "/v1/\x7f", "/v1/\xc0\xae/x", "/v1/\xff"} {
		f(p, false, true)
		f(p, true, true)
	}
	for _, p := range []string{"//", "//admin", "/v1//x", "/v1/./x", "/v1/.", "/v1/..;/x", "/v1/..;a=b/x", "/v1/.;/x", "/v1/;/x", "/v1/;", `/v1/..\admin`, `/v1/a\b`, "/v1/%2e%2e/x", "/v1/a%2Fb", "/v1/%00"} {
		f(p, false, true)
	}
	// Names of models: a path on Windows, one with a percent sign.
	for _, p := range []string{`/v1/models/C:\models\a.gguf`, "/v1/models/a%25b", "/v1/models/hf.co//x", "/v1/models/a;b"} {
		f(p, true, false)
	}
}

// FuzzGate: what passes the gate is a path that neither a cleaner nor a second decoding would change, a method of the
// list, a bounded header, and no switch of protocols.
func FuzzGate(f *testing.F) {
	for _, s := range []string{
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n", "GET /v1/%2e%2e/admin HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET //admin HTTP/1.0\r\n\r\n", "gEt /v1/..%5Cx HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://10.0.0.1/v1/..;/x HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v1/models/%2e%2e%2f HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/x HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: a,upgrade\r\n\r\n", "POST /v1/x HTTP/1.1\r\nHost: x\r\nX-Evenkeel-Hops: 3\r\n\r\n",
		"GET /v1 HTTP/1.1\r\nHost: x\r\nX-Evenkeel-Hops: \xff\r\n\r\n", "GET /v1/%252e%252e HTTP/1.2\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "GET /v1/%c0%ae%c0%ae/x?a=1;b#c HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return
		}
		api := llm.APIOf(r.Method, r.URL.Path)
		if e := gate(httptest.NewRecorder(), r, api); e != nil {
			if e.Status < 400 || !strings.HasPrefix(e.Code, "evenkeel_") || e.Message == "" || !utf8.ValidString(e.Message) || len(e.Message) > 600 {
				t.Fatalf("a bad refusal: %+v", e)
			}
			return
		}
		if !slices.Contains(strings.Split(allowedMethods, ", "), r.Method) {
			t.Errorf("the method %q passed", r.Method)
		}
		lines := 0
		for _, values := range r.Header {
			lines += len(values)
		}
		if lines > mostHeaderLines {
			t.Errorf("%d header lines passed", lines)
		}
		if n, ok := hops(r.Header); !ok || n >= mostHops {
			t.Errorf("%d hops passed", n)
		}
		p := r.URL.Path
		if strings.Contains(p+"/", "/../") || strings.ContainsFunc(p, func(c rune) bool { return c < ' ' || c == 0x7f }) || !utf8.ValidString(p) {
			t.Errorf("the path %q passed", p)
		}
		if api.Name == "models" && r.Method != "POST" {
			return
		}
		if c := path.Clean(p); c != p && c+"/" != p {
			t.Errorf("the path %q passed, which cleaned is %q", p, c)
		}
		if strings.Contains(p, `\`) {
			t.Errorf("the path %q passed", p)
		}
		if again, err := r.URL.Parse(p); err == nil && again.Path != p && !strings.ContainsAny(p, "?#") {
			t.Errorf("the path %q passed, which decoded again is %q", p, again.Path)
		}
	})
}

// TestGateAllocations: a request that is let in costs nothing here, and its header upstream nothing but the map.
func TestGateAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r, api := ordinary(t)
	g := &Generation{Forward: NewHeaderSet([]string{"x-tenant"})}
	w := httptest.NewRecorder()
	if n := testing.AllocsPerRun(100, func() {
		if gate(w, r, api) != nil {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("the gate allocates %v times", n)
	}
	out := http.Header{}
	if n := testing.AllocsPerRun(100, func() {
		clear(out)
		g.requestHeader(out, r.Header)
	}); n != 0 {
		t.Errorf("a header upstream allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { newID() }); n > 2 {
		t.Errorf("an id allocates %v times", n)
	}
}

// ordinary is what OpenAI's Python client sends.
func ordinary(t testing.TB) (*http.Request, llm.API) {
	r := head(t, "POST", "/v1/chat/completions",
		"Accept", "application/json", "Accept-Encoding", "gzip, deflate", "Connection", "keep-alive", "Content-Type", "application/json",
		"User-Agent", "OpenAI/Python 1.50", "Authorization", "Bearer sk-x", "X-Stainless-Lang", "python", "X-Stainless-Retry-Count", "0",
		"X-Stainless-Runtime", "CPython", "X-Stainless-Async", "false", "X-Custom", "1", "X-Tenant", "t")
	return r, llm.APIOf(r.Method, r.URL.Path)
}

func BenchmarkGate(b *testing.B) {
	r, api := ordinary(b)
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		if gate(w, r, api) != nil {
			b.Fatal("refused")
		}
	}
}

func BenchmarkRequestHeader(b *testing.B) {
	r, _ := ordinary(b)
	g := &Generation{Forward: NewHeaderSet([]string{"x-tenant"})}
	out := http.Header{}
	b.ReportAllocs()
	for b.Loop() {
		clear(out)
		g.requestHeader(out, r.Header)
	}
}

func BenchmarkAdmit(b *testing.B) {
	r, api := ordinary(b)
	g := &Generation{Keys: keys("sk-x")}
	b.ReportAllocs()
	for b.Loop() {
		if _, e := g.admit(r, api); e != nil {
			b.Fatal(e)
		}
	}
}

package upstream

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/secret"
)

// headOf returns the bytes that a plain endpoint at base sends for a request.
func headOf(t testing.TB, o Options, r *Request) string {
	t.Helper()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(e.target.appendHead(nil, r))
}

// Paths and queries arrive as they were written, below the base, and Host is the endpoint's.
func TestRequestLineAndHost(t *testing.T) {
	f := func(base, path, query, want string) {
		t.Helper()
		got := headOf(t, Options{Name: "e", URL: base}, &Request{Method: "GET", Path: path, Query: query, Header: http.Header{}})
		if want = "GET " + strings.Replace(want, " ", " HTTP/1.1\r\nHost: ", 1) + "\r\n\r\n"; got != want {
			t.Errorf("%s + %s ? %s: sent %q, want %q", base, path, query, got, want)
		}
	}
	f("http://h", "/v1/models", "", "/v1/models h")
	f("http://h:8000", "/v1/models", "a=b&c", "/v1/models?a=b&c h:8000")
	f("http://h/base", "/v1/models", "", "/base/v1/models h")
	f("http://h/a%2Fb", "/v1/models", "", "/a%2Fb/v1/models h")
	f("http://[::1]:9001", "/v1/models", "", "/v1/models [::1]:9001")
	f("http://[::1]", "/v1/models", "", "/v1/models [::1]")
	f("http://[fe80::1%25eth0]:9001", "/x", "", "/x [fe80::1]:9001")
	f("http://h", "/v1/models/org%2Fname%3Atag", "", "/v1/models/org%2Fname%3Atag h")
	f("http://h", "/v1/models/a:b@c,d;e=(f)'!$&*+", "", "/v1/models/a:b@c,d;e=(f)'!$&*+ h")
	f("http://h", "/v1/%E2%82%AC/%20/%25", "", "/v1/%E2%82%AC/%20/%25 h")
	f("http://h", "/v1/..//./x", "", "/v1/..//./x h")
	f("http://h", "//other/x", "", "//other/x h")
	f("http://h", "/100%", "", "/100%25 h")
	f("http://h", "/a b\r\nX: y", "", "/a%20b%0D%0AX:%20y h")
	f("http://h", "/x", "a=%2F&b=\"<>#", "/x?a=%2F&b=\"<># h")
	f("http://h", "/x", "a b\tc HTTP/1.1\r\nX: y", "/x?a%20b%09c%20HTTP/1.1%0D%0AX:%20y h")
}

func TestDialledAddress(t *testing.T) {
	f := func(base, want string) {
		t.Helper()
		u, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		if got := newDialer(u, nil, nil, time.Second).addr; got != want {
			t.Errorf("%s: dials %s, want %s", base, got, want)
		}
	}
	f("http://h", "h:80")
	f("http://h:8000/base", "h:8000")
	f("http://[::1]", "[::1]:80")
	f("http://[::1]:9001", "[::1]:9001")
	f("http://[fe80::1%25eth0]:9001", "[fe80::1%eth0]:9001")
}

// A request with a body has its length, one without a body has none unless its method wants one.
func TestFramingOfRequests(t *testing.T) {
	f := func(method string, body [3][]byte, want string) {
		t.Helper()
		h := http.Header{"Host": {"evil"}, "Content-Length": {"99"}, "Transfer-Encoding": {"chunked"}, "Trailer": {"X"}}
		got := headOf(t, Options{Name: "e", URL: "http://h"}, &Request{Method: method, Path: "/x", Header: h, Body: body})
		if want = method + " /x HTTP/1.1\r\nHost: h\r\n" + want + "\r\n"; got != want {
			t.Errorf("%s with %q: sent %q, want %q", method, body, got, want)
		}
	}
	three := [3][]byte{[]byte("a"), []byte("bc"), []byte("d")}
	for _, method := range []string{"POST", "PUT", "PATCH"} {
		f(method, three, "Content-Length: 4\r\n")
		f(method, [3][]byte{}, "Content-Length: 0\r\n")
	}
	for _, method := range []string{"GET", "HEAD", "DELETE", "OPTIONS", "WHATEVER"} {
		f(method, three, "Content-Length: 4\r\n")
		f(method, [3][]byte{}, "")
	}
}

func TestHeaders(t *testing.T) {
	anthropic, _ := llm.LookupKind("anthropic")
	openai, _ := llm.LookupKind("openai")
	f := func(o Options, h http.Header, want ...string) {
		t.Helper()
		o.Name, o.URL = "e", "http://h"
		got := headOf(t, o, &Request{Method: "GET", Path: "/", Header: h})
		lines := strings.Split(strings.TrimSuffix(strings.TrimPrefix(got, "GET / HTTP/1.1\r\nHost: h\r\n"), "\r\n"), "\r\n")
		if lines = slices.DeleteFunc(lines, func(s string) bool { return s == "" }); !slices.Equal(slices.Sorted(slices.Values(lines)), want) {
			t.Errorf("%v: sent %q, want %q", h, lines, want)
		}
	}
	key := secret.New("k")
	f(Options{}, http.Header{"X-A": {"1", "2"}}, "X-A: 1", "X-A: 2")
	f(Options{}, http.Header{"X-A": {"1\r\nX-B: 2", "a\rb", "c\nd", "\x00", "\x1f", "\x7f", "d\te\x80"}}, "X-A: d\te\x80")
	f(Options{}, http.Header{"User-Agent": {""}, "X-Empty": {""}}, "X-Empty: ")
	f(Options{}, http.Header{"User-Agent": {"client/1"}}, "User-Agent: client/1")
	f(Options{Kind: openai, APIKey: key}, http.Header{}, "Authorization: Bearer k")
	f(Options{Kind: openai, APIKey: key}, http.Header{"Authorization": {"Bearer other", "x"}}, "Authorization: Bearer k")
	f(Options{Kind: openai}, http.Header{"Authorization": {"Bearer other"}}, "Authorization: Bearer other")
	f(Options{Kind: anthropic, APIKey: key}, http.Header{}, "Anthropic-Version: 2023-06-01", "X-Api-Key: k")
	f(Options{Kind: anthropic}, http.Header{"Anthropic-Version": {"2099-01-01"}}, "Anthropic-Version: 2099-01-01")
}

// Over sockets: a literal IPv6 address, a base path, a body in three pieces, small and large.
func TestRequestArrives(t *testing.T) {
	type seen struct{ line, host, body string }
	got := make(chan seen, 1)
	serve := func(_ int64, p *peer) {
		for {
			r, body := p.request()
			if r == nil {
				return
			}
			got <- seen{r.Method + " " + r.RequestURI, r.Host, string(body)}
			p.say(ok)
		}
	}
	f := func(base, host string, pieces ...string) {
		t.Helper()
		e, err := New(Options{Name: "e", URL: base})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		r := post("")
		for i, piece := range pieces {
			r.Body[i] = []byte(piece)
		}
		mustFetch(t, e, r)
		want := seen{"POST /base/v1/chat/completions", host, strings.Join(pieces, "")}
		if s := <-got; s != want {
			t.Errorf("%s: arrived as %.200q, want %.200q", base, s, want)
		}
	}
	v4 := newFake(t, serve).Addr().String()
	f("http://"+v4+"/base", v4, "{}")
	f("http://"+v4+"/base", v4, "a", "", "c")
	f("http://"+v4+"/base", v4, "", "b", "")
	f("http://"+v4+"/base", v4, strings.Repeat("a", inOnePiece))
	f("http://"+v4+"/base", v4, strings.Repeat("a", inOnePiece), "b")
	f("http://"+v4+"/base", v4, strings.Repeat("a", 3<<20), strings.Repeat("b", 10), strings.Repeat("c", 3<<20))

	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 loopback: ", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Method + " " + r.RequestURI, r.Host, string(body)}
	})}
	served := make(chan error)
	go func() { served <- server.Serve(l) }() // ends with Close
	defer func() { _ = server.Close(); <-served }()
	f("http://"+l.Addr().String()+"/base", l.Addr().String(), "{}")
}

// token reports whether s may be a method or a header's name (RFC 9110 §5.6.2).
func token(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return r > 0x7e || r <= ' ' || strings.ContainsRune("()<>@,;:\\\"/[]?={}", r)
	}) < 0
}

// Whatever a client may send, exactly one request goes out, and it is the client's.
func FuzzHead(f *testing.F) {
	f.Add("POST", "/v1/chat/completions", "X-A", "1", "{}")
	f.Add("GET", "/v1/models/a%2Fb?x=1&y=%20", "Accept", "*/*", "")
	f.Add("DELETE", "/%25/%zz?%", "User-Agent", "", "b")
	f.Add("PATCH", "//x/../y;z?a b HTTP/1.1\r\nX: y", "X-A", "a\r\nContent-Length: 3\r\n\r\nabc", "body")
	f.Add("POST", "/?#\"<>^`{|}\x80", "Transfer-Encoding", "chunked", "0\r\n\r\n")
	f.Add("OPTIONS", "*", "Host", "evil", "")
	e, err := New(Options{Name: "e", URL: "http://h:1/ba%2Fse"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, target, name, value, body string) {
		in, err := url.ParseRequestURI(target)
		if err != nil || !token(method) || !token(name) {
			return // no server would hand it over
		}
		name = http.CanonicalHeaderKey(name)
		r := &Request{Method: method, Path: in.EscapedPath(), Query: in.RawQuery, Header: http.Header{name: {value}},
			Body: [3][]byte{nil, []byte(body), nil}}
		sent := append(e.target.appendHead(nil, r), body...)

		br := bufio.NewReader(bytes.NewReader(sent))
		got, err := http.ReadRequest(br)
		if err != nil {
			t.Fatalf("%q cannot be read: %v", sent, err)
		}
		uri := "/ba%2Fse" + in.EscapedPath()
		if in.RawQuery != "" {
			uri += "?" + strings.ReplaceAll(in.RawQuery, " ", "%20")
		}
		if got.Method != method || got.RequestURI != uri || got.Host != "h:1" {
			t.Errorf("%s %s at %s, want %s %s at h:1", got.Method, got.RequestURI, got.Host, method, uri)
		}
		if all, err := io.ReadAll(got.Body); err != nil || string(all) != body {
			t.Errorf("body %q, %v, want %q", all, err, body)
		}
		if rest, _ := io.ReadAll(br); len(rest) > 0 {
			t.Errorf("%q follows the request", rest)
		}
		want := http.Header{name: {strings.Trim(value, " \t")}}
		if ours := slices.Contains([]string{"Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Upgrade", "Expect"}, name); ours ||
			strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) || name == "User-Agent" && value == "" {
			want = http.Header{}
		}
		got.Header.Del("Content-Length")
		if name == "Pragma" { // ReadRequest adds Cache-Control beside it
			got.Header.Del("Cache-Control")
		}
		if !maps.EqualFunc(got.Header, want, slices.Equal[[]string]) {
			t.Errorf("headers %q, want %q", got.Header, want)
		}
	})
}

// TestRankOfARequest goes out once, whatever the client said of one; without it the client's word stays. Both protocols send the same.
func TestRankOfARequest(t *testing.T) {
	f := func(rank string, header http.Header, want ...string) {
		t.Helper()
		r := &Request{Method: "GET", Path: "/x", Header: header, Rank: rank}
		got, err := http.ReadRequest(bufio.NewReader(strings.NewReader(headOf(t, Options{Name: "e", URL: "http://h"}, r))))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range []http.Header{got.Header, (&target{}).header(r)} {
			if !slices.Equal(h[headerRank], want) {
				t.Errorf("rank %q, header %v: sent %q, want %q", rank, header, h[headerRank], want)
			}
		}
	}
	client := http.Header{headerRank: {"7", "8"}, "Accept": {"*/*"}}
	f("", http.Header{})
	f("3", http.Header{}, "3")
	f("0", client, "0")
	f("", client, "7", "8")
}

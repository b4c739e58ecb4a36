package safety

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// odd is a request that servers are known to disagree about, and what evenkeel makes of it.
type odd struct {
	name   string
	raw    string
	status int
	code   string // of ours; "" where upstream or the HTTP server itself answers
	closes bool   // the connection takes no other request
	// check looks at what went upstream; nil: nothing may go there.
	check func(*received) string
}

// normal demands a request that is as if it had never been odd.
func normal(r *received) string {
	if want := "POST " + chatPath + " HTTP/1.1"; r.line != want {
		return fmt.Sprintf("the line is %q, want %q", r.line, want)
	}
	if r.body != chatBody {
		return fmt.Sprintf("the body is %q", r.body)
	}
	return ""
}

// without demands a normal request without these texts.
func without(texts ...string) func(*received) string {
	return func(r *received) string {
		for _, text := range texts {
			if strings.Contains(strings.ToLower(r.text()), strings.ToLower(text)) {
				return fmt.Sprintf("it holds %q", text)
			}
		}
		return normal(r)
	}
}

// target demands a GET of this target.
func target(want string) func(*received) string {
	return func(r *received) string {
		if r.line != "GET "+want+" HTTP/1.1" {
			return fmt.Sprintf("the line is %q, want a GET of %s", r.line, want)
		}
		return ""
	}
}

// oddFraming are requests whose end servers see in different places.
func oddFraming() []odd {
	chat := "POST " + chatPath + " HTTP/1.1"
	length := func(values ...string) string {
		var lines []string
		for _, v := range values {
			lines = append(lines, "Content-Length:"+v)
		}
		return request(chat, chatBody, lines...)
	}
	n := fmt.Sprintf(" %d", len(chatBody))
	encoding := func(lines ...string) string { return request(chat, chunked(chatBody), lines...) }
	const te, smuggled = "Transfer-Encoding: chunked", "GET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	chunk := func(body string) string { return request(chat, body, te) }
	rows := []odd{
		{"length and chunked", encoding(te, "Content-Length: 4"), 200, "", true, normal},
		{"length and chunked, the other way round", encoding("Content-Length: 4", te), 200, "", true, normal},
		{"two equal lengths", length(n, n), 200, "", false, normal},
		{"chunked in capitals", encoding("Transfer-Encoding: CHUNKED"), 200, "", true, normal},
		{"a tab before chunked", encoding("Transfer-Encoding:\tchunked"), 200, "", true, normal},
		{"chunked twice", encoding(te, te), 501, "", true, nil},
		{"xchunked", encoding("Transfer-Encoding: xchunked"), 501, "", true, nil},
		{"gzip, chunked", encoding("Transfer-Encoding: gzip, chunked"), 501, "", true, nil},
		{"chunked and identity", encoding(te, "Transfer-Encoding: identity"), 501, "", true, nil},
		{"vertical tab before chunked", encoding("Transfer-Encoding: \vchunked"), 400, "", true, nil},
		{"chunked in HTTP/1.0", request("POST "+chatPath+" HTTP/1.0", chunked(chatBody), te), 400, "evenkeel_missing_model", true, nil},
		{"bare LF after a chunk's size", chunk(fmt.Sprintf("%x\n%s\r\n0\r\n\r\n", len(chatBody), chatBody)), 400, "evenkeel_body_broken", true, nil},
		{"0x before a chunk's size", chunk("0x" + chunked(chatBody)), 400, "evenkeel_body_broken", true, nil},
		{"a chunk's size that overflows", chunk("1" + strings.Repeat("0", 15) + chunked(chatBody)), 400, "evenkeel_body_broken", true, nil},
		{"a chunk that is longer than it says", chunk(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(chatBody)-1, chatBody)), 400, "evenkeel_body_broken", true, nil},
		{"a chunk's size that is negative", chunk("-" + chunked(chatBody)), 400, "evenkeel_body_broken", true, nil},
		{"trailer with a key", request(chat, strings.TrimSuffix(chunked(chatBody), "\r\n")+"Authorization: Bearer SMUGGLED\r\n\r\n", te, "Trailer: Authorization"), 200, "", true, without("SMUGGLED", "trailer")},
		{"a request behind a refused body", post("/nowhere", strings.Repeat("x", 300<<10)) + smuggled, 404, "evenkeel_unknown_path", true, nil},
		{"a request behind a chunked one", encoding(te) + smuggled, 200, "", true, normal},
		{"GET with a body", request("GET /v1/files HTTP/1.1", smuggled, fmt.Sprintf("Content-Length: %d", len(smuggled))), 400, "evenkeel_unexpected_body", false, nil},
		{"GET with a chunked body", request("GET /v1/files HTTP/1.1", chunked(smuggled), te), 400, "evenkeel_body_broken", true, nil},
		{"GET with an empty chunked body", request("GET /v1/files HTTP/1.1", "0\r\n\r\n", te), 200, "", true, target("/v1/files")},
		{"Connection names the length", post(chatPath, chatBody, "Connection: Content-Length"), 200, "", false, normal},
	}
	for _, bad := range [][]string{{n, " 4"}, {" 3, 3"}, {n + "," + n}, {" +3"}, {" 0x3"}, {" -1"}, {""}, {" 3 3"}, {" 99999999999999999999"}} {
		rows = append(rows, odd{"lengths" + strings.Join(bad, " and"), length(bad...), 400, "", true, nil})
	}
	return rows
}

// oddHeads are heads that are no valid HTTP, or hardly.
func oddHeads() []odd {
	chat := "POST " + chatPath + " HTTP/1.1"
	length := fmt.Sprintf("Content-Length: %d", len(chatBody))
	bareLF := strings.ReplaceAll(request(chat, "", length), "\r\n", "\n") + chatBody
	return []odd{
		{"space before the colon", request(chat, chatBody, length, "X-A : 1"), 400, "", true, nil},
		{"space before the colon of the length", request(chat, chatBody, strings.Replace(length, ":", " :", 1)), 400, "", true, nil},
		{"NUL in a value", request(chat, chatBody, length, "X-A: a\x00b"), 400, "", true, nil},
		{"bare CR in a value", request(chat, chatBody, length, "X-Request-Id: a\rX-Api-Key: b"), 400, "", true, nil},
		{"line without a colon", request(chat, chatBody, length, "nonsense"), 400, "", true, nil},
		{"name with a quote", request(chat, chatBody, length, `X"A: 1`), 400, "", true, nil},
		{"bare LF line ends", bareLF, 200, "", false, normal},
		{"a folded line", request(chat, chatBody, length, "X-Request-Id: a", " b: c"), 200, "", false, func(r *received) string {
			if got := r.values("X-Request-Id"); !slices.Equal(got, []string{"a b: c"}) {
				return fmt.Sprintf("the folded value is %q", got)
			}
			return normal(r)
		}},
		{"two hosts", request(chat, chatBody, length, "Host: y"), 400, "", true, nil},
		{"no host", strings.Replace(request(chat, chatBody, length), "Host: x\r\n", "", 1), 400, "", true, nil},
		{"a host with a path", strings.Replace(request(chat, chatBody, length), "Host: x", "Host: a/../b", 1), 400, "", true, nil},
		{"HTTP/1.2", request("POST "+chatPath+" HTTP/1.2", chatBody, length), 505, "evenkeel_bad_version", false, nil},
		{"HTTP/0.9", request("GET /v1/files HTTP/0.9", ""), 505, "", true, nil},
		{"HTTP/0.9 without a version", "GET /v1/files\r\n\r\n", 400, "", true, nil},
		{"HTTP/3.0", request("GET /v1/files HTTP/3.0", ""), 505, "", true, nil},
		{"line break first", "\r\n" + post(chatPath, chatBody), 400, "", true, nil},
		{"a TLS handshake", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 200) + "\r\n\r\n", 400, "", true, nil},
		{"gEt", request("gEt /v1/files HTTP/1.1", ""), 405, "evenkeel_bad_method", false, nil},
		{"TRACE", request("TRACE /v1/files HTTP/1.1", ""), 405, "evenkeel_bad_method", false, nil},
		{"method with a bracket", request("GE[T /v1/files HTTP/1.1", ""), 400, "", true, nil},
		{"1.1 MB in one header", request(chat, chatBody, length, "X-A: "+strings.Repeat("a", 1100<<10)), 431, "", true, nil},
		{"Expect of something else", post(chatPath, chatBody, "Expect: 200-maybe"), 417, "", true, nil},
	}
}

// oddMeaning are valid heads whose meaning servers disagree about.
func oddMeaning() []odd {
	withLine := func(lines ...string) string { return post(chatPath, chatBody, lines...) }
	get := func(t string, lines ...string) string { return request("GET "+t+" HTTP/1.1", "", lines...) }
	rows := []odd{
		{"absolute form with another host", strings.Replace(post(chatPath, chatBody), "POST ", "POST http://10.255.255.1:81", 1), 200, "", false, without("10.255")},
		{"absolute form with https", strings.Replace(post(chatPath, chatBody), "POST ", "POST https://10.255.255.1", 1), 200, "", false, without("10.255")},
		{"another Host", strings.Replace(post(chatPath, chatBody), "Host: x", "Host: metadata.internal", 1), 200, "", false, without("metadata")},
		{"Connection names a header that goes upstream", withLine("X-Request-Id: SMUGGLED", "Connection: X-Request-Id"), 200, "", false, without("SMUGGLED")},
		{"Upgrade with a body", withLine("Connection: Upgrade", "Upgrade: websocket"), 400, "evenkeel_no_upgrade", false, nil},
		{"offer of h2c", withLine("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"), 200, "", false, without("upgrade", "h2c", "http2")},
		{"names with underscores", withLine("Content_Length: 9", "X_Api_Key: SMUGGLED", "Anthropic-Model_x: SMUGGLED"), 200, "", false, without("_", "SMUGGLED")},
		{"spoofed addresses", withLine("X-Forwarded-For: 10.1.2.3", "X-Forwarded-Host: h", "X-Forwarded-Proto: https", "Forwarded: for=10.1.2.3", "X-Real-Ip: 10.1.2.3", "Client-Ip: 10.1.2.3", "True-Client-Ip: 10.1.2.3", "X-Original-Url: /admin", "X-Rewrite-Url: /admin", "X-Http-Method-Override: DELETE"), 200, "", false,
			without("forwarded", "10.1.2.3", "/admin", "delete")},
		{"two content types", withLine("Content-Type: text/plain"), 400, "evenkeel_duplicate_header", false, nil},
		{"semicolons in the query", get("/v1/files?a=1;b=2&c=%zz"), 200, "", false, target("/v1/files?a=1;b=2&c=%zz")},
		{"CONNECT to an API path", request("CONNECT "+chatPath+" HTTP/1.1", ""), 400, "evenkeel_no_upgrade", false, nil},
		{"CONNECT to a host", request("CONNECT 10.255.255.1:443 HTTP/1.1", ""), 400, "evenkeel_no_upgrade", false, nil},
		{"no compression added", withLine(), 200, "", false, without("accept-encoding", "x-forwarded", "\nvia:", "\nte:", "connection")},
	}
	for _, path := range []string{
		"/v1/%2e%2e/admin", "/v1/%2E./admin", "//admin", "/v1//files", "/v1/../admin", "/v1/./files", "/v1/%252e%252e/admin", "/v1/%25252e", "/v1/..;/admin", "/v1/..;a=b/admin",
		"/v1/..%5Cadmin", `/v1/..\admin`, "/v1/..%2fadmin", "/v1/%2e%2e%2fadmin", "/v1/files%00.json", "/v1/files%0d%0aX:%20y", "/v1/%c0%ae%c0%ae/admin", "/v1/files/%ff", "/v1/;/admin",
		"/v1/models/../../admin", "/v1/%2f%2fadmin", "*", "/v1/a%255cb", "/v1/%5c%5cadmin",
	} {
		rows = append(rows, odd{"path " + path, get(path), 400, "evenkeel_bad_path", false, nil})
	}
	for _, path := range []string{"/admin", "/metrics", "/explain/last", "/debug/pprof/", "/v1", "/api/../metrics"[:4]} {
		rows = append(rows, odd{"path " + path, get(path), 404, "evenkeel_unknown_path", false, nil})
	}
	for _, path := range []string{"/v1/files/a%2Fb", "/v1/files/%C3%A9", "/v1/files/a..b/", "/v1/files/a;b?x=/../..", "/v1/files/100%25"} {
		rows = append(rows, odd{"path " + path, get(path), 200, "", false, target(path)})
	}
	return rows
}

// TestOddRequests sends each odd request on a connection of its own, and a plain one after it. Rows C10, C13, C14, C15, C16.
func TestOddRequests(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	e := serveBefore(t, b)
	if u, err := url.Parse(b.url); err != nil || u.Host == "" {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(b.url, "http://")
	rows := slices.Concat(oddFraming(), oddHeads(), oddMeaning())
	for _, o := range rows {
		t.Run(o.name, func(t *testing.T) {
			c := dial(t, e.URL)
			c.send(o.raw)
			method, _, _ := strings.Cut(o.raw, " ")
			a := c.next(method)
			if a.err != nil || a.status != o.status {
				t.Fatalf("got %d %s (%v), want %d", a.status, a.body, a.err, o.status)
			}
			if o.code != "" && !strings.Contains(a.body, `"`+o.code+`"`) {
				t.Errorf("got %s, want the code %s", a.body, o.code)
			}
			if o.closes != !c.serves() {
				t.Errorf("the connection closes: %v, want %v", !o.closes, o.closes)
			}
			got := b.take()
			switch {
			case o.check == nil && len(got) != 0:
				t.Errorf("upstream got\n%s", got[0].text())
			case o.check != nil && len(got) != 1:
				t.Errorf("upstream got %d requests", len(got))
			case o.check != nil:
				if problem := o.check(got[0]); problem != "" {
					t.Errorf("upstream got another request: %s\n%s", problem, got[0].text())
				}
				if h := got[0].values("Host"); !slices.Equal(h, []string{host}) {
					t.Errorf("upstream got the host %q", h)
				}
			}
		})
	}
	if n := len(b.take()); n != 0 {
		t.Errorf("%d more requests came upstream", n)
	}
}

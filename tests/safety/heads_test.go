package safety

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"evenkeel/tests/harness"
)

// memory is the resident memory of the program in bytes.
func memory(t testing.TB, e *harness.Balancer) int64 {
	t.Helper()
	return metric(t, e, "process_resident_memory_bytes")
}

// metric reads a count without labels.
func metric(t testing.TB, e *harness.Balancer, name string) int64 {
	t.Helper()
	return int64(gauge(t, e, name))
}

// TestC04Heads: heads are bounded in bytes and in lines, both ways, and memory stays level.
func TestC04Heads(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	e := serveBefore(t, b)
	lines := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf("X-%d: a", i)
		}
		return out
	}
	f := func(what string, status int, header ...string) {
		t.Helper()
		a := ask(t, e.URL, post(chatPath, chatBody, header...))
		if a.status != status {
			t.Errorf("%s: got %d %s (%v), want %d", what, a.status, a.body, a.err, status)
		}
		if asked := len(b.take()); asked != 0 != (status == 200) {
			t.Errorf("%s: upstream got %d requests", what, asked)
		}
	}
	f("60 KB in one header", 200, "X-A: "+strings.Repeat("a", 60<<10))
	f("80 KB in one header", 431, "X-A: "+strings.Repeat("a", 80<<10))
	f("90 lines", 200, lines(90)...)
	f("101 lines", 431, lines(101)...)
	f("5,000 lines", 431, lines(5000)...)
	same := make([]string, 5000)
	for i := range same {
		same[i] = "Accept: a"
	}
	f("5,000 equal lines", 431, same...)

	level := memory(t, e)
	var work sync.WaitGroup
	for i := range 100 {
		work.Go(func() {
			for range 3 {
				raw := request("POST "+chatPath+" HTTP/1.1", "", lines(6000)...)
				if i%2 == 0 {
					raw = request("POST "+chatPath+" HTTP/1.1", "", "X-A: "+strings.Repeat("a", 1<<20))
				}
				if a := ask(t, e.URL, raw); a.status != 431 {
					t.Errorf("got %d (%v), want 431", a.status, a.err)
				}
			}
		})
	}
	work.Wait()
	if grown := memory(t, e) - level; grown > 300<<20 {
		t.Errorf("300 heads that were refused took %d MB", grown>>20)
	}

	// The other way: what upstream answers.
	for _, c := range []struct {
		what   string
		answer string
		status int
	}{
		{"60 lines", jsonAnswer(200, goodAnswer, lines(60)...), 200},
		{"10,000 lines", jsonAnswer(200, goodAnswer, lines(10000)...), 502},
		{"1 MB in one header", jsonAnswer(200, goodAnswer, "X-A: "+strings.Repeat("a", 1<<20)), 502},
	} {
		b.answers(func(*received) string { return c.answer })
		if a := ask(t, e.URL, post(chatPath, chatBody)); a.status != c.status {
			t.Errorf("upstream answers with %s: got %d %.200s (%v), want %d", c.what, a.status, a.body, a.err, c.status)
		}
		b.answers(nil)
		harness.Eventually(t, patience, "served again", func() bool { return ask(t, e.URL, post(chatPath, chatBody)).status == 200 })
	}
}

// TestC12BrokenFraming: a connection whose framing went wrong carries nothing else, on either side.
func TestC12BrokenFraming(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	e := serveBefore(t, b)
	c := dial(t, e.URL)
	c.send(request("POST "+chatPath+" HTTP/1.1", "5\r\n{\"mod\r\nzz\r\n", "Transfer-Encoding: chunked"))
	if a := c.next("POST"); a.status != 400 || !c.closed() {
		t.Errorf("a broken chunk: got %d %s (%v), or the connection went on", a.status, a.body, a.err)
	}
	const marker = "SMUGGLED"
	second := jsonAnswer(200, `{"model":"m","id":"`+marker+`"}`)
	for _, first := range []string{
		jsonAnswer(200, goodAnswer) + second, // more than was asked for
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 300\r\nContent-Type: application/json\r\n\r\n" + goodAnswer + second,
		"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n" + goodAnswer + second,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\nzz\r\n" + second,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n2\r\n{}xx0\r\n\r\n" + second,
		"HTTP/1.1 204 No Content\r\nContent-Length: 10\r\n\r\n" + second,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n" + second,
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + second,
	} {
		b.answers(func(*received) string { return first })
		a := ask(t, e.URL, post(chatPath, chatBody))
		if strings.Contains(a.body, marker) {
			t.Errorf("%.60q: the client got what was smuggled", first)
		}
		used := map[int]bool{}
		for _, r := range b.take() {
			if used[r.conn] {
				t.Errorf("%.60q: its connection was used again", first)
			}
			used[r.conn] = true
		}
		b.answers(nil)
		harness.Eventually(t, patience, "served again", func() bool {
			a := ask(t, e.URL, post(chatPath, chatBody))
			if strings.Contains(a.body, marker) {
				t.Fatalf("%.60q: another client got what was smuggled", first)
			}
			return a.status == 200 && a.body == goodAnswer
		})
		for _, r := range b.take() {
			if used[r.conn] {
				t.Errorf("%.60q: its connection was used again by another request", first)
			}
		}
	}
}

// TestC14ConnectionStripsNothingOfOurs: naming headers in Connection takes away neither who asks nor what it asks of us.
func TestC14ConnectionStripsNothingOfOurs(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	sum := sha256.Sum256([]byte("TENANT-KEY"))
	e := serveBefore(t, b, fmt.Sprintf("virtual_keys: [{name: gold, sha256: %x}]", sum), "forward_headers: [x-tenant]")
	const strip = "Connection: Authorization, X-Api-Key, X-Evenkeel-Pin, X-Evenkeel-Hops, Content-Type, Content-Length, Host"
	f := func(what string, status int, header ...string) *received {
		t.Helper()
		a := ask(t, e.URL, post(chatPath, chatBody, header...))
		got := b.take()
		if a.status != status || len(got) != 0 != (status == 200) {
			t.Errorf("%s: got %d %s (%v), upstream got %d, want %d", what, a.status, a.body, a.err, len(got), status)
			return nil
		}
		if len(got) == 0 {
			return nil
		}
		if _, story, err := harness.Get(e.AdminURL + "/explain/" + a.header.Get("X-Evenkeel-Id")); err != nil || !strings.Contains(string(story), `"gold"`) {
			t.Errorf("%s: explain does not know the key's name: %s (%v)", what, story, err)
		}
		if strings.Contains(got[0].text(), "TENANT-KEY") {
			t.Errorf("%s: upstream got the client's key", what)
		}
		return got[0]
	}
	f("no key", 401, strip)
	f("a wrong key", 401, strip, "Authorization: Bearer WRONG")
	if r := f("the key, stripped", 200, strip, "Authorization: Bearer TENANT-KEY"); r != nil && (len(r.values("Content-Type")) != 1 || len(r.values("X-Evenkeel-Hops")) != 1) {
		t.Errorf("upstream got\n%s", r.text())
	}
	f("an endpoint that there is not, stripped", 400, strip, "Authorization: Bearer TENANT-KEY", "X-Evenkeel-Pin: other")
	f("the key in a name with underscores", 401, "X_Api_Key: TENANT-KEY")
	if r := f("a header of another name", 200, "Authorization: Bearer TENANT-KEY", "X_Tenant: evil", "X-Tenant: good"); r != nil && strings.Contains(r.text(), "evil") {
		t.Errorf("upstream got\n%s", r.text())
	}
	if strings.Contains(e.Log(), "TENANT-KEY") {
		t.Error("the log holds the key")
	}
}

// TestC15AddressesAreTheSockets: nothing that a client says of its address counts.
func TestC15AddressesAreTheSockets(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	e := serveBefore(t, b, "connections: {per_address: 3}")
	var held []*client
	for i := range 3 {
		c := dial(t, e.URL)
		c.send(post(chatPath, chatBody, fmt.Sprintf("X-Forwarded-For: 10.0.0.%d", i), fmt.Sprintf("Forwarded: for=10.0.0.%d", i), fmt.Sprintf("X-Real-Ip: 10.0.0.%d", i)))
		if a := c.next("POST"); a.status != 200 {
			t.Fatalf("connection %d: got %d (%v)", i, a.status, a.err)
		}
		held = append(held, c)
	}
	served := func() bool {
		raw, err := net.Dial("tcp", strings.TrimPrefix(e.URL, "http://"))
		if err != nil {
			return false // refused at once
		}
		defer raw.Close()
		c := &client{Conn: raw, t: t, r: bufio.NewReader(raw)}
		c.send(post(chatPath, chatBody, "X-Forwarded-For: 10.9.9.9", "Forwarded: for=10.9.9.9"))
		return c.next("POST").status == 200
	}
	if served() {
		t.Error("a spoofed address had connections of its own")
	}
	held[0].Close()
	harness.Eventually(t, patience, "a place is free", served)
	for _, r := range b.take() {
		if strings.Contains(r.text(), "10.") && !strings.Contains(r.text(), "127.0.0.1") || len(r.values("X-Forwarded-For"))+len(r.values("Forwarded"))+len(r.values("X-Real-Ip")) > 0 {
			t.Errorf("upstream got\n%s", r.text())
		}
	}
}

// TestC13NothingPassesBeforeASwitch: bytes that follow a request to switch protocols go nowhere, though upstream would switch.
func TestC13NothingPassesBeforeASwitch(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	b.answers(func(*received) string {
		return "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	})
	e := serveBefore(t, b)
	for _, raw := range []string{
		request("GET /v1/realtime HTTP/1.1", "", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13"),
		post(chatPath, chatBody, "Connection: keep-alive, upgrade", "Upgrade: websocket"),
		post(chatPath, chatBody, "Connection: Upgrade", "Upgrade: h2c, websocket"),
		request("CONNECT x:80 HTTP/1.1", ""), request("CONNECT /v1/files HTTP/1.1", ""),
	} {
		c := dial(t, e.URL)
		c.send(raw)
		if a := c.next("GET"); a.status != 400 || !strings.Contains(a.body, "evenkeel_no_upgrade") {
			t.Errorf("%.40q: got %d %s (%v)", raw, a.status, a.body, a.err)
		}
		c.send("RAW BYTES\r\n\r\n")
		io.Copy(io.Discard, c.r)
		if got := b.take(); len(got) != 0 {
			t.Errorf("%.40q: upstream got\n%s", raw, got[0].text())
		}
	}
	// A client that did not ask for a switch does not get one.
	if a := ask(t, e.URL, post(chatPath, chatBody)); a.status != 502 {
		t.Errorf("an answer that switches: got %d %s (%v), want 502", a.status, a.body, a.err)
	}
}

// TestC16EveryPathAsksForTheKey: no spelling of a path, method or Host gets by the key.
func TestC16EveryPathAsksForTheKey(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	e := serveBefore(t, b, fmt.Sprintf("virtual_keys: [{name: tenant, sha256: %x}]", sha256.Sum256([]byte("KEY"))))
	for _, path := range []string{
		"/v1/chat/completions", "/v1/chat/completions/", "/V1/chat/completions", "/v1/%63hat/completions", "/v1/chat%2Fcompletions", "/chat/completions", "/v1/models", "/v1/models/m", "/v2/models", "/models",
		"/v1/files", "/rerank", "/tokenize", "/livez/", "/livez/../v1/models", "/livez%2f..%2fv1%2fmodels", "//livez", "/readyz?x=/v1", "/livez;/v1/files", "/metrics", "/", "/v1", "/v1/%2e%2e/livez", "http://livez/v1/models",
	} {
		for _, method := range []string{"GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "gEt", "PRI", "TRACE"} {
			a := ask(t, e.URL, request(method+" "+path+" HTTP/1.1", "", "Content-Length: 0", "X-Original-URL: /livez", "X-Http-Method-Override: GET"))
			health := path == "/readyz?x=/v1" && a.status == 200 // that is what the path says
			if a.status < 400 && !health || a.status >= 500 {
				t.Errorf("%s %s: got %d %s (%v)", method, path, a.status, a.body, a.err)
			}
		}
	}
	if got := b.take(); len(got) != 0 {
		t.Errorf("upstream got\n%s", got[0].text())
	}
	if _, err := os.Stat("/proc/self"); err == nil && memory(t, e) > 1<<30 {
		t.Error("that took more than 1 GB")
	}
}

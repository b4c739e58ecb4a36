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
	"time"

	"evenkeel/internal/llm"
)

// sendRaw sends pieces on a connection of their own and returns the answer. What cannot be sent any more does not matter.
func (w *world) sendRaw(pieces ...string) (status int, body string) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	sent := make(chan struct{})
	go func() { // ends when all is sent, or the connection is closed
		defer close(sent)
		for _, p := range pieces {
			_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{strings.NewReader(p)}) // no copy of it all
		}
	}()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = c.Close()
	<-sent
	return res.StatusCode, string(b)
}

const rawHead = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"

// asked is an upstream that counts what it is asked.
func asked(n *atomic.Int32) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		jsonAnswer(200, goodJSON)(w, r)
	}
}

// TestC05BodyLimit: a body of one byte more than max_body gets 413 and no upstream call, announced or not; one of
// just max_body is served. What is announced is refused before it comes.
func TestC05BodyLimit(t *testing.T) {
	for _, limit := range []int{1000, 64 << 10, 3 << 20} {
		var calls atomic.Int32
		w := newWorld(t, options{change: func(g *Generation) { g.MaxBody = int64(limit) }}, asked(&calls))
		f := func(name, framed string, status int) {
			t.Helper()
			before := calls.Load()
			got, body := w.sendRaw(rawHead + framed)
			want, upstream := "evenkeel_body_too_large", int32(0)
			if status == 200 {
				want, upstream = goodJSON, 1
			}
			if got != status || !strings.Contains(body, want) || calls.Load()-before != upstream {
				t.Errorf("max_body %d, %s: %d %s after %d upstream calls", limit, name, got, body, calls.Load()-before)
			}
		}
		announced := func(size int) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, sized(size)) }
		chunked := func(size, pieces int) string {
			var b strings.Builder
			b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
			for rest := sized(size); rest != ""; {
				n := min(len(rest), size/pieces+1)
				fmt.Fprintf(&b, "%x\r\n%s\r\n", n, rest[:n])
				rest = rest[n:]
			}
			return b.String() + "0\r\n\r\n"
		}
		f("just that", announced(limit), 200)
		f("one more", announced(limit+1), 413)
		f("just that, chunked", chunked(limit, 1), 200)
		f("one more, chunked", chunked(limit+1, 1), 413)
		f("just that, in 10 chunks", chunked(limit, 10), 200)
		f("one more, in 10 chunks", chunked(limit+1, 10), 413)
		f("a chunk of 2 GB announced", "Transfer-Encoding: chunked\r\n\r\n80000000\r\n"+strings.Repeat("a", limit+1), 413)
		f("a petabyte announced, and the client waits to be asked", "Expect: 100-continue\r\nContent-Length: 1125899906842624\r\n\r\n", 413)
		if limit == 1000 {
			f("none sent", "Content-Length: 1125899906842624\r\n\r\n", 413)
		}
		until(t, "no body is held", func() bool { return w.proxy.BodyMemory() == 0 })
	}
}

// fastest is the shortest of some runs of f, so that a busy machine does not count.
func fastest(f func()) time.Duration {
	best := time.Hour
	for range 7 {
		began := time.Now()
		f()
		best = min(best, time.Since(began))
	}
	return best
}

// TestC06Nesting: deeply nested JSON is refused with 400, without an upstream call and without more work than its bytes
// are worth.
func TestC06Nesting(t *testing.T) {
	var calls atomic.Int32
	w := newWorld(t, options{}, asked(&calls))
	serve := func(body string) (status int) {
		stub := newStub()
		w.proxy.ServeHTTP(stub, stubRequest(t.Context(), body))
		if stub.status == 400 && !strings.Contains(stub.body.String(), `"code":"evenkeel_invalid_json"`) {
			t.Errorf("%s", stub.body.String())
		}
		return stub.status
	}
	within := 10 * time.Millisecond
	if raceEnabled {
		within *= 10
	}
	for _, open := range []string{"[", `{"a":`, `[{"a":`, " [ "} {
		for _, head := range []string{"", `{"model":"m","messages":`, `{"model":"m","x":`} {
			attack := func(n int) string { return head + strings.Repeat(open, n) }
			short, long := attack(100_000), attack(1_000_000)
			if status := serve(short); status != 400 {
				t.Errorf("100,000 %q after %q: %d", open, head, status)
			}
			took := fastest(func() { serve(short) })
			if took > within {
				t.Errorf("100,000 %q after %q took %v", open, head, took)
			}
			if tenfold := fastest(func() { serve(long) }); tenfold > 40*max(took, within/10) {
				t.Errorf("ten times as many of %q after %q took %v after %v", open, head, tenfold, took)
			}
		}
	}
	// Wide is no harm, and no fault.
	wide := fmt.Sprintf(`{"model":"m","messages":[%s[]]}`, strings.Repeat("[[[[]]]],", 100_000))
	if status := serve(wide); status != 200 || calls.Load() != 1 {
		t.Errorf("wide JSON: %d after %d upstream calls", status, calls.Load())
	}
}

// TestC06DuplicateKeys: engines differ in which of two models they read, so that a body with two reaches none.
func TestC06DuplicateKeys(t *testing.T) {
	var calls atomic.Int32
	w := newWorld(t, options{alias: "up"}, asked(&calls))
	for _, body := range []string{
		`{"model":"m","model":"m"}`,
		`{"model":"m","messages":[],"model":"other"}`,
		`{"model":"other","messages":[],"model":"m"}`,
		`{"model":"m","Model":"other"}`,
		`{"model":"m","MODEL":"other"}`,
		`{"model":"m","mod\u0065l":"other"}`,
		`{"\u006dodel":"m","model":"other"}`,
		`{"model":"m","model":null}`,
		`{"model":"m","model":["other"]}`,
		`{"Model":"m"}`,
	} {
		status, answer := w.sendRaw(fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", rawHead, len(body), body))
		if status != 400 || !strings.Contains(answer, `"param":"model"`) {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("upstream was asked %d times", n)
	}
}

// TestC07EncodedBodies: a compressed body is not inflated but refused, before it is read and whatever else the header
// says.
func TestC07EncodedBodies(t *testing.T) {
	var calls atomic.Int32
	w := newWorld(t, options{}, asked(&calls))
	for _, header := range []string{"gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip", "unheard-of", "identity\r\nContent-Encoding: gzip"} {
		status, answer := w.sendRaw(rawHead + "Expect: 100-continue\r\nContent-Length: 10000000\r\nContent-Encoding: " + header + "\r\n\r\n")
		if status != 415 || !strings.Contains(answer, "evenkeel_encoded_body") {
			t.Errorf("%q: %d %s", header, status, answer)
		}
	}
	if status, answer := w.sendRaw(fmt.Sprintf("%sContent-Encoding: identity\r\nContent-Length: %d\r\n\r\n%s", rawHead, len(chatBody), chatBody)); status != 200 {
		t.Errorf("identity: %d %s", status, answer)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("upstream was asked %d times", n)
	}
}

// FuzzBody: whatever comes as a request, framed by whatever head, is answered by 4xx or passed on as it came.
func FuzzBody(f *testing.F) {
	f.Add("Content-Length: 58\r\n", chatBody)
	f.Add("Transfer-Encoding: chunked\r\n", "3a\r\n"+chatBody+"\r\n0\r\n\r\n")
	f.Add("Transfer-Encoding: chunked\r\n", "3a;x=y\r\n"+chatBody+"\r\n0\r\nTrailer: x\r\n\r\n")
	f.Add("Transfer-Encoding: chunked\r\n", "-1\r\n"+chatBody)
	f.Add("Content-Length: 5\r\nContent-Length: 6\r\n", "{}")
	f.Add("Content-Length: 99999999999999999999\r\n", "{}")
	f.Add("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "\x1f\x8b")
	f.Fuzz(func(t *testing.T, framing, body string) {
		client, server := net.Pipe()
		defer client.Close()
		go func() { // ends with the client
			_, _ = io.WriteString(client, rawHead+framing+"\r\n"+body)
			_ = client.Close() // an end that is cut is one too
		}()
		r, err := http.ReadRequest(bufio.NewReader(server))
		if err != nil {
			return
		}
		var m bodyMemory
		var b requestBody
		const limit = 4 << 10
		e := b.read(newStub(), r, &m, &Generation{MaxBody: limit})
		switch {
		case e == nil:
			if len(b.bytes()) > limit || r.ContentLength > 0 && int64(len(b.bytes())) != r.ContentLength {
				t.Errorf("%d bytes, announced %d", len(b.bytes()), r.ContentLength)
			}
			_, _ = llm.ScanRequest(llm.APIOf(r.Method, r.URL.Path), r.Header.Get("Content-Type"), b.bytes()) // must not panic
		case e.Status < 400 || e.Status > 499 || e.Code == "" || e.Message == "":
			t.Errorf("%+v", e)
		}
		b.release()
		if m.taken.Load() != 0 {
			t.Errorf("%d bytes are left", m.taken.Load())
		}
	})
}

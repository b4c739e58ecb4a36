package proxy

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// Cases of the kind http-headers, and what goes upstream of a client's header.

// keys are the virtual keys of a generation, named after themselves.
func keys(names ...string) map[[32]byte]string {
	m := map[[32]byte]string{}
	for _, n := range names {
		m[sha256.Sum256([]byte(n))] = "key-of-" + n[:1]
	}
	return m
}

// recorder keeps the requests that reached it.
type recorder struct {
	mu   sync.Mutex
	seen []*http.Request
	body [][]byte
	next upstreamHandler
}

func (r *recorder) serve(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	r.seen, r.body = append(r.seen, req), append(r.body, body)
	r.mu.Unlock()
	r.next(w, req)
}

func (r *recorder) last(t *testing.T) (*http.Request, []byte) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) == 0 {
		t.Fatal("upstream was not asked")
	}
	return r.seen[len(r.seen)-1], r.body[len(r.body)-1]
}

func unzip(t *testing.T, s string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(s))
	if err != nil {
		t.Fatalf("%q: %v", clip(s), err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestCase18CompressedAnswers(t *testing.T) {
	const errorJSON = `{"error":{"message":"bad","type":"invalid_request_error"}}`
	for _, accept := range []string{"gzip", "gzip, br;q=0.5", "*", "identity", "gzip;q=0", ""} {
		takes := accept == "gzip" || accept == "gzip, br;q=0.5" || accept == "*"
		for _, c := range []struct {
			name, kind, body, request string
			status                    int
		}{
			{"JSON", "application/json", goodJSON, chatBody, 200}, {"400", "application/json", errorJSON, chatBody, 400},
			{"429", "application/json", errorJSON, chatBody, 429}, {"events", "text/event-stream", healthy, streamBody, 200},
			{"large", "application/json", goodJSON[:len(goodJSON)-1] + `,"pad":"` + strings.Repeat("p", 400<<10) + `"}`, chatBody, 200},
		} {
			t.Run(accept+"/"+c.name, func(t *testing.T) {
				w := newWorld(t, options{alias: "other", change: func(g *Generation) { g.MaxAttempts = 1 }}, gzipped(c.kind, c.status, c.body))
				var header []string
				if accept != "" {
					header = []string{"Accept-Encoding", accept}
				}
				a := w.post("/v1/chat/completions", c.request, header...)
				got := a.body
				if takes {
					got = unzip(t, a.body)
				}
				if a.status != c.status || got != c.body || a.err != nil {
					t.Errorf("got %d %q (%v)", a.status, clip(got), a.err)
				}
				if e := a.header.Get("Content-Encoding"); (e == "gzip") != takes {
					t.Errorf("content-encoding %q", e)
				}
				if l := a.header.Get("Content-Length"); l != "" && l != strconv.Itoa(len(a.body)) {
					t.Errorf("content-length %s of %d bytes", l, len(a.body))
				}
				if c.status == 200 {
					succeeded(t, w.record(1), 7, 3)
				}
				w.idle()
			})
		}
	}
}

// Each event of a compressed stream arrives when it was sent, inflated or not.
func TestCase18CompressedEventsComeOneByOne(t *testing.T) {
	for _, accept := range []string{"gzip", ""} {
		t.Run(accept, func(t *testing.T) {
			took := make(chan struct{})
			w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				rw.Header().Set("Content-Type", "text/event-stream")
				rw.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(rw)
				for _, e := range []string{roleEvent + delta("a"), delta("b"), finishEvent, usageEvent} {
					_, _ = io.WriteString(z, e)
					_ = z.Flush()
					rw.(http.Flusher).Flush()
					select {
					case <-took:
					case <-r.Context().Done():
						return
					}
				}
				_, _ = io.WriteString(z, doneEvent)
				_ = z.Close()
			})
			var header []string
			if accept != "" {
				header = []string{"Accept-Encoding", accept}
			}
			res := w.open("/v1/chat/completions", streamBody, header...)
			var body io.Reader = bufio.NewReader(res.Body)
			if accept == "gzip" {
				z, err := gzip.NewReader(body)
				if err != nil {
					t.Fatal(err)
				}
				body = z
			}
			for _, want := range []string{roleEvent + delta("a"), delta("b"), finishEvent, usageEvent} {
				got := make([]byte, len(want))
				if _, err := io.ReadFull(body, got); err != nil || string(got) != want {
					t.Fatalf("got %q (%v)", got, err)
				}
				took <- struct{}{}
			}
			if rest, err := io.ReadAll(body); string(rest) != doneEvent || err != nil {
				t.Errorf("the end: %q (%v)", rest, err)
			}
			succeeded(t, w.record(1), 7, 3)
		})
	}
}

func TestCompressedAnswerThatIsBroken(t *testing.T) {
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Encoding", "gzip")
		jsonAnswer(200, "this is no gzip at all")(rw, r)
	}, jsonAnswer(200, goodJSON))
	if a := w.post("/v1/chat/completions", chatBody); a.body != goodJSON || a.header.Get("Content-Encoding") != "" {
		t.Errorf("got %d %q %v", a.status, a.body, a.header)
	}
	if r := w.record(1); r.Attempts[0].Outcome.Class != "malformed" {
		t.Errorf("first attempt %+v", r.Attempts[0].Outcome)
	}
}

func TestCase19LengthOfAChangedBody(t *testing.T) {
	const alias = "org/a-much-longer-name:with-a-tag"
	rec := &recorder{next: jsonAnswer(200, goodJSON)}
	w := newWorld(t, options{alias: alias}, rec.serve)
	body := "{\n  \"messages\": [],\n  \"model\" : \"m\" }\n"
	want := strings.Replace(body, `"m"`, `"`+alias+`"`, 1)
	for name, framed := range map[string]string{
		"length":            fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
		"chunked":           fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%X\r\n%s\r\n0\r\n\r\n", len(body), body),
		"two chunks":        fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%X;ext=1\r\n%s\r\n0\r\nTrailer: x\r\n\r\n", 10, body[:10], len(body)-10, body[10:]),
		"zeros in front":    fmt.Sprintf("Content-Length: 000%d\r\n\r\n%s", len(body), body),
		"chunk with zeros":  fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n00%X\r\n%s\r\n0\r\n\r\n", len(body), body),
		"100-continue":      fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		"upper-case header": fmt.Sprintf("CONTENT-LENGTH: %d\r\n\r\n%s", len(body), body),
	} {
		t.Run(name, func(t *testing.T) {
			raw := w.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + framed)
			if !strings.Contains(raw, goodJSON) {
				t.Fatalf("got %q", raw)
			}
			req, got := rec.last(t)
			if string(got) != want || req.ContentLength != int64(len(want)) || len(req.TransferEncoding) > 0 || req.Header.Get("Content-Length") != strconv.Itoa(len(want)) || req.Header.Get("Expect") != "" {
				t.Errorf("upstream got %q, length %d, header %v", got, req.ContentLength, req.Header)
			}
		})
	}
	w.idle()
}

// raw sends bytes on a connection of their own and returns what comes back until its end.
func (w *world) raw(request string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, request)
	b, _ := io.ReadAll(c) // how it ended is in the framing
	return string(b)
}

// The case wants both X-Keep values upstream. Request headers go by an allow-list here, so X-Keep must be named in
// forward_headers; the trailers of an answer are dropped. net/http removes the Connection line of an answer that says
// "close", so what else that line names cannot be known and comes through; the test has it in a line without "close".
func TestCase20HopByHop(t *testing.T) {
	rec := &recorder{next: func(w http.ResponseWriter, r *http.Request) {
		c := hijack(t, w)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: X-Up\r\nX-Up: 1\r\nKeep-Alive: timeout=5\r\n"+
			"X-Stays: 1\r\nTrailer: X-Announced\r\nTransfer-Encoding: chunked\r\n\r\n"+
			fmt.Sprintf("%x\r\n%s\r\n0\r\nX-Announced: 1\r\nX-Sudden: 1\r\n\r\n", len(goodJSON), goodJSON))
		_ = c.Close()
	}}
	w := newWorld(t, options{change: func(g *Generation) { g.Forward = set("x-keep", "x-drop-me") }}, rec.serve)
	raw := w.raw(fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close, X-Drop-Me\r\nX-Drop-Me: 1\r\nTE: trailers\r\n"+
		"Proxy-Authorization: Basic eA==\r\nUpgrade: foo\r\nKeep-Alive: 5\r\nX-Keep: one\r\nX-Keep: two\r\nContent-Length: %d\r\n\r\n%s", len(chatBody), chatBody))
	req, _ := rec.last(t)
	for _, name := range []string{"X-Drop-Me", "Proxy-Authorization", "Upgrade", "Keep-Alive", "Te", "Connection"} {
		if v := req.Header[name]; v != nil {
			t.Errorf("upstream saw %s: %q", name, v)
		}
	}
	if v := req.Header["X-Keep"]; !slices.Equal(v, []string{"one", "two"}) {
		t.Errorf("upstream saw X-Keep: %q", v)
	}
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), nil)
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	body, err := io.ReadAll(res.Body)
	if string(body) != goodJSON || err != nil || res.ContentLength != int64(len(goodJSON)) {
		t.Errorf("body %q (%v), length %d", body, err, res.ContentLength)
	}
	for _, name := range []string{"X-Up", "Keep-Alive", "Trailer", "X-Announced", "X-Sudden"} {
		if res.Header[name] != nil || res.Trailer[name] != nil {
			t.Errorf("the client saw %s", name)
		}
	}
	if strings.Count(raw, "Transfer-Encoding") != 0 || res.Header.Get("X-Stays") != "1" {
		t.Errorf("got %q", raw)
	}
}

// expecting sends a head with Expect: 100-continue and returns what comes first.
func expecting(t *testing.T, w *world, framing, extra string) (net.Conn, *bufio.Reader, string) {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n%s%s\r\n", framing, extra)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return c, r, strings.TrimSpace(line)
}

// The quota of the case's third run does not exist here; a wrong key stands for the refusal on the head alone.
func TestCase21ExpectContinue(t *testing.T) {
	const size = 20 << 20
	big := func(n int) string { return `{"model":"m","x":"` + strings.Repeat("a", n-20) + `"}` }
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	run := func(t *testing.T, h upstreamHandler, change func(*Generation)) *world {
		return newWorld(t, options{change: change}, h)
	}
	answer := func(t *testing.T, r *bufio.Reader) (int, string) {
		t.Helper()
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	t.Run("normal", func(t *testing.T) {
		rec := &recorder{next: jsonAnswer(200, goodJSON)}
		w := run(t, rec.serve, nil)
		c, r, line := expecting(t, w, length(size), "")
		if line != "HTTP/1.1 100 Continue" {
			t.Fatalf("first came %q", line)
		}
		_, _ = r.ReadString('\n')
		body := big(size)
		go func() { _, _ = io.WriteString(c, body) }()
		if status, got := answer(t, r); status != 200 || got != goodJSON {
			t.Errorf("got %d %q", status, got)
		}
		if _, got := rec.last(t); string(got) != body {
			t.Error("upstream got another body")
		}
	})
	t.Run("upstream refuses early", func(t *testing.T) {
		var asked atomic.Int32
		w := run(t, func(rw http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			_, _ = io.ReadFull(r.Body, make([]byte, 64<<10))
			c := hijack(t, rw)
			const refusal = `{"error":{"message":"too large for me"}}`
			fmt.Fprintf(c, "HTTP/1.1 413 Too Large\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(refusal), refusal)
			_ = c.Close()
		}, nil)
		for range 3 {
			a := w.post("/v1/chat/completions", big(size))
			if a.status != 413 || !strings.Contains(a.body, "too large for me") {
				t.Errorf("got %d %q", a.status, a.body)
			}
		}
		if d := w.deployment(0); asked.Load() != 3 || d.Totals.Faults != 0 || d.Breaker.State != route.Closed {
			t.Errorf("asked %d times, %+v", asked.Load(), d.Totals)
		}
		w.idle()
	})
	nobody := func(t *testing.T) upstreamHandler {
		return func(http.ResponseWriter, *http.Request) { t.Error("upstream was asked") }
	}
	t.Run("our limit", func(t *testing.T) {
		w := run(t, nobody(t), func(g *Generation) { g.MaxBody = 1 << 20 })
		_, r, line := expecting(t, w, length(1<<20+1), "")
		if line != "HTTP/1.1 413 Request Entity Too Large" {
			t.Errorf("first came %q", line)
		}
		_, _ = io.Copy(io.Discard, r) // the connection is closed: the body never came
	})
	t.Run("wrong key", func(t *testing.T) {
		w := run(t, nobody(t), func(g *Generation) { g.Keys = keys("right") })
		_, r, line := expecting(t, w, length(size), "Authorization: Bearer wrong\r\n")
		if line != "HTTP/1.1 401 Unauthorized" {
			t.Errorf("first came %q", line)
		}
		_, _ = io.Copy(io.Discard, r)
	})
}

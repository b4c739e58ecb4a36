package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// relay is a world whose one upstream sends what it is told, cut where it is told.
type relay struct {
	*world
	kind, encoding string
	pieces         [][]byte
	asked          []byte
}

func newRelay(t *testing.T, o options) *relay {
	r := &relay{}
	r.world = newWorld(t, o, func(w http.ResponseWriter, req *http.Request) {
		r.asked, _ = io.ReadAll(req.Body)
		w.Header().Set("Content-Type", r.kind)
		if r.encoding != "" {
			w.Header().Set("Content-Encoding", r.encoding)
		}
		for _, p := range r.pieces {
			_, _ = w.Write(p)
			w.(http.Flusher).Flush()
		}
	})
	return r
}

// cut cuts a text at random places, into some hundred pieces at most.
func cut(random *rand.Rand, b []byte) (pieces [][]byte) {
	most := max(1, len(b)/200, min(len(b)/6, 1<<random.IntN(16)))
	for len(b) > 0 {
		n := min(len(b), 1+random.IntN(most))
		pieces, b = append(pieces, b[:n]), b[n:]
	}
	return pieces
}

// ask sends one streamed request in memory, so that thousands are cheap, and returns what the client got.
func (r *relay) ask(t *testing.T, number int, path, accept string) (string, *exchange.Record) {
	t.Helper()
	stub := newStub()
	req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://front"+path, strings.NewReader(streamBody))
	if accept != "" {
		req.Header.Set("Accept-Encoding", accept)
	}
	func() {
		defer func() {
			if fault := recover(); fault != nil && fault != http.ErrAbortHandler {
				t.Fatalf("panic: %v", fault)
			}
		}()
		r.proxy.ServeHTTP(stub, req)
	}()
	return stub.body.String(), r.record(number)
}

// randomStream makes an event stream of odd but legal parts.
func randomStream(random *rand.Rand) string {
	var b strings.Builder
	ends := []string{"\n", "\r\n", "\r"}
	end := ends[random.IntN(3)]
	if random.IntN(8) == 0 {
		b.WriteString("\ufeff")
	}
	parts := []func(){
		func() { b.WriteString(strings.ReplaceAll(delta("grüße 😀"), "\n", end)) },
		func() { b.WriteString(": comment" + end + end) },
		func() { b.WriteString(":" + end) },
		func() { b.WriteString("event: x" + end + "id: 7" + end + "retry: 5" + end + "what" + end + end) },
		func() {
			b.WriteString("data: {\"choices\":[{\"index\":0," + end + "data: \"delta\":{\"content\":\"b\"}}]}" + end + end)
		},
		func() { b.WriteString("data:" + end + end) },
		func() { b.WriteString(end + end) },
		func() { b.WriteString("data: \x00\x00" + end + end) },
		func() { b.WriteString(strings.ReplaceAll(roleEvent, "\n", end)) },
		func() { b.WriteString("data: \xff\xfe not UTF-8" + end + end) },
		func() { end = ends[random.IntN(3)] },
		func() {
			if random.IntN(10) == 0 {
				b.WriteString(strings.ReplaceAll(bigEvent(1+random.IntN(1200<<10)), "\n", end))
			}
		},
	}
	for range random.IntN(25) {
		parts[random.IntN(len(parts))]()
	}
	b.WriteString(strings.ReplaceAll(delta("z")+finishEvent+usageEvent, "\n", end))
	switch random.IntN(4) {
	case 0:
		return strings.TrimRight(b.String(), "\r\n")
	case 1:
		return b.String()
	}
	return b.String() + strings.ReplaceAll(doneEvent, "\n", end)
}

// Whatever a stream holds and wherever the network cuts it, the client gets its bytes, and the facts are those of the
// stream in one piece.
func TestByteIdentityOfStreams(t *testing.T) {
	random := rand.New(rand.NewPCG(2026, 66))
	r := newRelay(t, options{alias: longAlias})
	n := 0
	for range 150 {
		stream := randomStream(random)
		r.kind, r.encoding, r.pieces = "text/event-stream", "", [][]byte{[]byte(stream)}
		got, whole := r.ask(t, n+1, "/v1/chat/completions", "")
		if n++; got != stream {
			t.Fatalf("in one piece: got %q\nwant %q", got, stream)
		}
		succeeded(t, whole, 7, 3)
		for range 2 {
			r.pieces = cut(random, []byte(stream))
			got, cut := r.ask(t, n+1, "/v1/chat/completions", "")
			if n++; got != stream {
				t.Fatalf("in %d pieces: got %q\nwant %q", len(r.pieces), clip(got), clip(stream))
			}
			sameFacts(t, cut, whole)
		}
	}
	r.idle()
}

func sameFacts(t *testing.T, got, want *exchange.Record) {
	t.Helper()
	facts := func(r *exchange.Record) route.Outcome {
		o := r.Last().Outcome
		o.TTFT, o.ITL = 0, 0
		return o
	}
	if facts(got) != facts(want) || got.Result != want.Result {
		t.Fatalf("facts changed with the cuts: %s %+v\nwant %s %+v", got.Result, facts(got), want.Result, facts(want))
	}
}

func TestByteIdentityOfOtherBodies(t *testing.T) {
	random := rand.New(rand.NewPCG(2026, 67))
	r := newRelay(t, options{})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, healthy)
	_ = z.Close()
	lines := `{"model":"up","message":{"content":"a"},"done":false}` + "\n" + `{"model":"up","done":true,"prompt_eval_count":7,"eval_count":3}`
	n := 0
	for _, c := range []struct{ kind, encoding, accept, body string }{
		{"application/x-ndjson", "", "", lines}, {"application/x-ndjson", "", "", lines + "\r\n\n"}, {"text/event-stream", "gzip", "gzip", packed.String()},
		{"application/json", "", "", goodJSON}, {"application/json", "", "", " " + goodJSON + "\n"}, {"application/octet-stream", "", "", "\x00\r\n\xff" + strings.Repeat("ab\n", 50000)},
		{"text/event-stream; charset=utf-8", "", "", healthy}, {"application/json", "br", "br", "\x0b\x02\x80hello\x03"}, {"application/x-own", "", "", "<html>"},
	} {
		for range 20 {
			r.kind, r.encoding, r.pieces = c.kind, c.encoding, cut(random, []byte(c.body))
			got, rec := r.ask(t, n+1, "/v1/chat/completions", c.accept)
			if n++; got != c.body || rec.Result != exchange.Complete {
				t.Fatalf("%s %s in %d pieces: %s, got %q\nwant %q", c.kind, c.encoding, len(r.pieces), rec.Result, clip(got), clip(c.body))
			}
			if o := rec.Last().Outcome; (c.kind != "application/x-own" && c.kind != "application/octet-stream" && c.encoding != "br") && (o.InputTokens != 7 || o.OutputTokens != 3) {
				t.Fatalf("%s %s: tokens %d and %d", c.kind, c.encoding, o.InputTokens, o.OutputTokens)
			}
		}
	}
	r.idle()
}

// FuzzByteIdentity: any bytes as an event stream, cut anywhere. A client gets all of them, or all up to a cut and then
// our error event; and the same facts whatever the cuts are.
func FuzzByteIdentity(f *testing.F) {
	for i, s := range []string{
		healthy, ": c\n\n" + healthy, "\ufeff" + healthy, strings.ReplaceAll(healthy, "\n", "\r\n"), strings.ReplaceAll(healthy, "\n", "\r"), strings.TrimRight(healthy, "\n"),
		roleEvent + delta("a"), errorEvent, roleEvent + errorEvent, delta("a") + errorEvent, "", "\n\n\n", "\r", "data", "data: [DONE]", "event: error\ndata: x\n\n",
		"data: \x00\n\n", strings.Repeat(roleEvent, 70), delta(strings.Repeat("x", 70<<10)), ":\r\n:\n:\rid:1\n", "data: {\"error\":{\"code\":400}}\n\n", "id: \ufeff\n",
	} {
		f.Add([]byte(s), uint64(i), i%3 == 0)
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64, named bool) {
		path := "/v1/chat/completions"
		if named {
			path = "/v1/messages"
		}
		r := newRelay(t, options{change: func(g *Generation) { g.MaxAttempts = 1 }})
		random := rand.New(rand.NewPCG(seed, 1))
		r.kind, r.pieces = "text/event-stream", [][]byte{stream}
		whole, first := r.ask(t, 1, path, "")
		if err := r.router.Override(time.Now(), "deployment", r.deployment(0).ID, route.ForgetFailure); err != nil { // it may have asked to be left alone
			t.Fatal(err)
		}
		r.pieces = cut(random, stream)
		got, second := r.ask(t, 2, path, "")
		for _, c := range []struct {
			got string
			rec *exchange.Record
		}{{whole, first}, {got, second}} {
			switch c.rec.Result {
			case exchange.Complete, exchange.UpstreamError, exchange.ClientFault:
				if c.got != string(stream) {
					t.Errorf("%s: got %q\nwant %q", c.rec.Result, c.got, stream)
				}
			case exchange.Cut:
				i := strings.LastIndex(c.got, `"evenkeel_upstream_closed"`)
				if i < 0 || strings.Contains(c.got[i:], "[DONE]") {
					t.Errorf("the cut is not told: %q", c.got)
				}
			case exchange.Failed:
				if !strings.Contains(c.got, `"evenkeel_`) {
					t.Errorf("the failure is not told: %q", c.got)
				}
			default:
				t.Errorf("ended as %s", c.rec.Result)
			}
		}
		if second.Result != first.Result {
			t.Errorf("in pieces it is %s, whole it is %s", second.Result, first.Result)
		}
		r.idle()
	})
}

package upstream

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// frugal answers every request of n bytes without allocating.
func frugal(n int, answer string) func(int64, *peer) {
	bytes := []byte(answer)
	return func(_ int64, p *peer) {
		room := make([]byte, n)
		for {
			if _, err := io.ReadFull(p.TCPConn, room); err != nil {
				return
			}
			if _, err := p.Write(bytes); err != nil {
				return
			}
		}
	}
}

const chat = "HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nServer: uvicorn\r\nContent-Type: application/json\r\n" +
	"Content-Length: 2\r\n\r\n{}"

// exchange makes the smallest typical request of e, from the outside.
func exchange(t testing.TB, ctx context.Context, e *Endpoint, body []byte) {
	h := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"OpenAI/Python 1.0"}, "Accept": {"application/json"}}
	res, err := do(ctx, e, &Request{Method: "POST", Path: "/v1/chat/completions", Header: h, Body: [3][]byte{body}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
}

// sizeOf is how many bytes the request of exchange has on the wire.
func sizeOf(t testing.TB, body []byte) int {
	t.Helper()
	size := make(chan int, 1)
	e := newFake(t, func(_ int64, p *peer) {
		var seen bytes.Buffer
		p.br.Reset(io.TeeReader(p.TCPConn, &seen))
		if r, _ := p.request(); r != nil {
			size <- seen.Len()
			p.say(ok)
		}
	}).endpoint(t)
	exchange(t, t.Context(), e, body)
	return <-size
}

// A round trip stays within a budget of allocations: four for the answer, and those of the test's own request. 13
// were measured.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; make test runs this without it")
	}
	body := bytes.Repeat([]byte("x"), 1000)
	e := newFake(t, frugal(sizeOf(t, body), chat)).endpoint(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const budget = 15
	if got := testing.AllocsPerRun(500, func() { exchange(t, ctx, e, body) }); got > budget {
		t.Errorf("%v allocations per request, budget %v", got, budget)
	} else {
		t.Logf("%v allocations per request", got)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 1000)
	own := newFake(b, frugal(sizeOf(b, body), chat)).endpoint(b)
	std := newFake(b, frugal(sizeOf(b, body), chat)).endpoint(b)
	base := &url.URL{Scheme: "http", Host: std.target.host}
	std.std, std.pool = newTransport(newDialer(base, nil, nil, time.Second), base, nil), nil
	for _, c := range []struct {
		name string
		*Endpoint
	}{{"own", own}, {"net-http", std}} {
		b.Run(c.name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				exchange(b, ctx, c.Endpoint, body)
			}
		})
	}
	std.Close()
}

package proxy

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/strategy"
	"evenkeel/internal/upstream"
)

// frugal is an endpoint that reads requests, answers each with goodJSON, and allocates nothing for it. It returns its URL.
func frugal(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(goodJSON), goodJSON)
	serve := func(c net.Conn) {
		defer c.Close()
		br := bufio.NewReaderSize(c, 64<<10)
		for {
			length := 0
			for { // the head
				line, err := br.ReadSlice('\n')
				if err != nil {
					return
				}
				if n := len("Content-Length: "); len(line) > n && string(line[:n]) == "Content-Length: " {
					for _, d := range line[n : len(line)-2] {
						length = 10*length + int(d-'0')
					}
				}
				if len(line) == len("\r\n") {
					break
				}
			}
			if _, err := br.Discard(length); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c) // ends with the connection
		}
	}()
	return "http://" + l.Addr().String()
}

// benchProxy is a proxy with one endpoint, whose records go nowhere.
func benchProxy(b *testing.B, url string) *Proxy {
	kind, _ := llm.LookupKind("openai-compatible")
	endpoint, err := upstream.New(upstream.Options{Name: "a", URL: url, Kind: kind})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(endpoint.Close)
	ranking, err := strategy.New("round_robin", nil)
	if err != nil {
		b.Fatal(err)
	}
	router := route.New(route.Options{MaxWaiting: 100})
	spec := route.PoolSpec{Model: "m", Strategy: ranking, Deployments: []route.Deployment{{ID: "a/m", Endpoint: "a", URL: url, Model: "m", Weight: 1}}}
	if _, err := router.Adopt(time.Now(), []route.PoolSpec{spec}); err != nil {
		b.Fatal(err)
	}
	const long = time.Minute
	g := &Generation{
		Chains: map[string][]string{"m": {"m"}}, Endpoints: map[string]*upstream.Endpoint{"a": endpoint}, MaxBody: 32 << 20, MaxAttempts: 3,
		Deadlines: exchange.Deadlines{Deadline: long, FirstToken: long, BetweenTokens: long, Response: long, Hold: long},
	}
	return New(Options{
		Router: router, Budget: exchange.NewBudget(0.1, 10), Current: func() *Generation { return g }, Done: func(Finished) {},
		Logger: slog.New(slog.DiscardHandler),
	})
}

// BenchmarkBodies is the cost of whole requests by the size of their bodies: over two sockets, with the client and the
// endpoint in the same process, but free of allocations of theirs.
func BenchmarkBodies(b *testing.B) {
	for _, size := range []int{500, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			p := benchProxy(b, frugal(b))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			s := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
			go func() { _ = s.Serve(l) }() // ends with s
			defer s.Close()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			request := fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n%s", rawHead, size, sized(size))
			br := bufio.NewReader(c)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(request); err != nil { // the answer comes when all was read
					b.Fatal(err)
				}
				for line := br.Size(); line > len("\r\n"); { // the head
					slice, err := br.ReadSlice('\n')
					if err != nil {
						b.Fatal(err)
					}
					line = len(slice)
				}
				if _, err := br.Discard(len(goodJSON)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReadBody is the reading alone, from memory.
func BenchmarkReadBody(b *testing.B) {
	for _, size := range []int{500, 64 << 10, 1 << 20, 30 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			body := &bodyOf{data: make([]byte, size), piece: 256 << 10}
			r := body.request(true)
			w, g := &deadlines{stubWriter: newStub()}, &Generation{MaxBody: 32 << 20}
			var m bodyMemory
			var held requestBody
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				held, body.at, w.set = requestBody{}, 0, w.set[:0]
				if e := held.read(w, r, &m, g); e != nil {
					b.Fatal(e)
				}
				held.release()
			}
		})
	}
}

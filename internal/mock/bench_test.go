package mock

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func BenchmarkParseCall(b *testing.B) {
	for _, size := range []int{500, 64 << 10, 1 << 20} {
		body := []byte(chatBody(`,"user":"` + strings.Repeat(`twenty-five characters.\n `, size/25) + `"`))
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := parseCall(body, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// repeatConn reads the same request again and again, n times, and throws away what is written.
type repeatConn struct {
	net.Conn
	request []byte
	at, n   int
	writes  int
}

func (r *repeatConn) Read(p []byte) (int, error) {
	if r.at == len(r.request) {
		r.at = 0
	}
	if r.at == 0 {
		if r.n == 0 {
			return 0, io.EOF
		}
		r.n--
	}
	n := copy(p, r.request[r.at:])
	r.at += n
	return n, nil
}
func (r *repeatConn) Write(p []byte) (int, error)     { r.writes++; return len(p), nil }
func (r *repeatConn) SetReadDeadline(time.Time) error { return nil }
func (r *repeatConn) Close() error                    { return nil }

// serveRepeated serves one request n times without a network.
func serveRepeated(t testing.TB, e *Engine, body string, n int) *repeatConn {
	request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	rc := &repeatConn{request: []byte(request), n: n}
	s := &session{}
	s.keep.Store(true)
	newConn(e, s, rc).serve()
	return rc
}

// The figures are without the kernel's part, which is the greater one.
func BenchmarkSmallRequest(b *testing.B) {
	e, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	serveRepeated(b, e, chatBody(""), b.N)
}

func BenchmarkChunk(b *testing.B) {
	e, err := New(Config{OutputTokens: max(1, b.N)})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	serveRepeated(b, e, chatBody(streaming), 1)
}

// A streamed token is one write and no allocation; the other writes of a stream are the role, the finish and the end marker.
func TestCostOfAChunk(t *testing.T) {
	perStream := func(tokens int) (allocs float64, writes int) {
		e, err := New(Config{OutputTokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		allocs = testing.AllocsPerRun(5, func() {
			writes = serveRepeated(t, e, chatBody(streaming), 1).writes
		})
		return allocs, writes
	}
	a, w := perStream(10)
	b, v := perStream(1010)
	if w != 13 || v != 1013 {
		t.Errorf("%d and %d writes for 10 and 1010 tokens, want 3 more than tokens", w, v)
	}
	if b-a > 5 {
		t.Errorf("1000 more tokens make %.0f more allocations", b-a)
	}
}

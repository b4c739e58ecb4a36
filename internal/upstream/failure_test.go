package upstream

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/llm"
)

func TestRefused(t *testing.T) {
	server := newFake(t, answering(ok))
	e := server.endpoint(t)
	server.stop()
	_, err := do(within(t), e, post("{}"))
	mustFail(t, err, llm.Connect, true, false)
	if !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error %q does not say connection refused", err)
	}
}

func TestUnknownName(t *testing.T) {
	e, err := New(Options{Name: "e", URL: "http://no-such-host.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = do(within(t), e, post("{}"))
	mustFail(t, err, llm.Connect, true, false)
}

func TestWrongURL(t *testing.T) {
	_, err := New(Options{Name: "gpu1", URL: "http://[::1"})
	if err == nil || !strings.HasPrefix(err.Error(), "endpoint gpu1: URL: ") {
		t.Errorf("error %v, want one that names the endpoint", err)
	}
}

// dying serves one request and meets the next on the same connection with then.
func dying(then func(p *peer)) func(int64, *peer) {
	return func(_ int64, p *peer) {
		if r, _ := p.request(); r != nil {
			p.say(ok)
			then(p)
		}
	}
}

// A connection that the server ended, or broke, or spoke on while it was idle is not used again: the request is
// sent once, on a new one.
func TestIdleConnectionThatEnded(t *testing.T) {
	f := func(name string, then func(*peer)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			server := newFake(t, dying(func(p *peer) {
				then(p)
				p.untilGone()
			}))
			e := server.endpoint(t)
			pool := e.pool
			for n := int64(1); n <= 5; n++ {
				mustFetch(t, e, post("{}"))
				if got := server.accepted.Load(); got != n {
					t.Fatalf("%d connections after %d requests", got, n)
				}
				eventually(t, "the end arrives", func() bool {
					pool.mu.Lock()
					defer pool.mu.Unlock()
					return len(pool.idle) == 0 || readable(pool.idle[0].sock.Conn)
				})
			}
		})
	}
	f("closed", func(p *peer) { _ = p.CloseWrite() })
	f("reset", func(p *peer) { p.reset() })
	f("answer that nobody asked for", func(p *peer) { p.say("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n") })
	f("late body of nothing", func(p *peer) { p.say("x") })
}

// A server that closes after each answer without a word costs one stale request: from then on connections are
// looked at before they are used, however short they were idle.
func TestServerThatClosesAtOnce(t *testing.T) {
	server := newFake(t, dying(func(*peer) {}))
	e := server.endpoint(t)
	pool := e.pool
	stale := 0
	for range 20 {
		_, _, err := fetch(within(t), e, post("{}"))
		if err != nil {
			mustFail(t, err, llm.Stale, false, true)
			stale++
			continue
		}
		eventually(t, "the end arrives", func() bool {
			pool.mu.Lock()
			defer pool.mu.Unlock()
			return len(pool.idle) == 0 || readable(pool.idle[0].sock.Conn)
		})
	}
	if stale > 1 {
		t.Errorf("%d stale requests, want 1 at most", stale)
	}
}

// A reused connection that dies with the request on it is stale, and takes its siblings along.
func TestStale(t *testing.T) {
	f := func(name string, then func(*peer)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			server := newFake(t, dying(func(p *peer) {
				if r, _ := p.request(); r != nil {
					then(p)
				}
			}))
			e := server.endpoint(t)
			var open []*http.Response
			for range 3 {
				res, err := do(within(t), e, post("{}"))
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, res)
			}
			for _, res := range open {
				_, _ = io.Copy(io.Discard, res.Body)
			}
			if n := idling(e); n != 3 {
				t.Fatalf("%d idle connections, want 3", n)
			}
			_, err := do(within(t), e, post("{}"))
			mustFail(t, err, llm.Stale, false, true)
			if n := idling(e); n != 0 {
				t.Errorf("%d siblings left", n)
			}
			mustFetch(t, e, post("{}"))
			if n := server.accepted.Load(); n != 4 {
				t.Errorf("%d connections, want a fresh one, the 4th", n)
			}
		})
	}
	f("closed", func(*peer) {})
	f("reset", func(p *peer) { p.reset() })
}

// Once a byte of the answer came, a reused connection is no excuse.
func TestReusedButAnswering(t *testing.T) {
	e := newFake(t, dying(func(p *peer) {
		if r, _ := p.request(); r != nil {
			p.say("H")
		}
	})).endpoint(t)
	mustFetch(t, e, post("{}"))
	_, err := do(within(t), e, post("{}"))
	mustFail(t, err, llm.Reset, false, true)
}

// On a fresh connection the endpoint broke it.
func TestResetAfterTheRequest(t *testing.T) {
	e := newFake(t, func(_ int64, p *peer) {
		if r, _ := p.request(); r != nil {
			p.reset()
		}
	}).endpoint(t)
	for range 3 {
		_, err := do(within(t), e, post("{}"))
		mustFail(t, err, llm.Reset, false, true)
	}
}

// Where no byte could be written, the error says so: the request can be sent again whatever it does.
func TestNothingSent(t *testing.T) {
	for _, size := range []int{2, inOnePiece + 1} {
		over := make(chan struct{})
		e := newFake(t, dying(func(*peer) { <-over })).endpoint(t)
		mustFetch(t, e, post("{}"))
		c := lastIdle(e)
		if err := c.sock.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(20*time.Millisecond, func() { close(over) }) // when nothing can be written any more
		_, err := do(within(t), e, post(strings.Repeat("x", size)))
		mustFail(t, err, llm.Stale, false, false)
	}
}

// An endpoint may refuse a large body early. Its answer arrives, however it ends the connection, and that
// connection is not used again.
func TestEarlyRefusal(t *testing.T) {
	const refusal = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\n\r\ntoo large"
	large := strings.Repeat("x", 20<<20)
	f := func(name string, then func(*peer)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			server := newFake(t, func(_ int64, p *peer) {
				if _, err := io.CopyN(io.Discard, p.br, 64<<10); err == nil {
					p.say(refusal)
					then(p)
				}
			})
			e := server.endpoint(t)
			for n := int64(1); n <= 5; n++ {
				r := post("")
				r.Body = [3][]byte{[]byte(large[:10<<20]), []byte("model"), []byte(large[10<<20:])}
				res, body := mustFetch(t, e, r)
				if res.StatusCode != 413 || body != "too large" {
					t.Fatalf("%d %q, want 413", res.StatusCode, body)
				}
				if idling(e) != 0 || server.accepted.Load() != n {
					t.Fatalf("%d idle, %d accepted after %d requests", idling(e), server.accepted.Load(), n)
				}
			}
			eventually(t, "all connections end", func() bool { return server.connections() == 0 })
		})
	}
	f("closes", func(*peer) {})
	f("resets", func(p *peer) { p.reset() })
	f("ends its side", func(p *peer) { _ = p.CloseWrite(); p.untilGone() })
	f("reads on, slowly", func(p *peer) { _, _ = io.CopyN(io.Discard, p.br, 128<<10); p.untilGone() })
}

// An answer may come in any pieces.
func TestByteByByte(t *testing.T) {
	const answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n"
	server := newFake(t, func(_ int64, p *peer) {
		for {
			if r, _ := p.request(); r == nil {
				return
			}
			for i := range len(answer) {
				p.say(answer[i : i+1])
			}
		}
	})
	e := server.endpoint(t)
	for range 5 {
		if _, body := mustFetch(t, e, post("{}")); body != "ok" {
			t.Errorf("body %q", body)
		}
	}
	if n := server.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestErrorText(t *testing.T) {
	err := error(&Error{Class: llm.Reset, Err: io.ErrUnexpectedEOF})
	if got := fmt.Sprint(err); got != "reset: unexpected EOF" {
		t.Errorf("text %q", got)
	}
}

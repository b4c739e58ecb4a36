package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/llm"
)

// Whatever a request waits for, cancelling ends it at once, is nobody's fault, and ends its connection: the
// server sees it go. On a connection used before it is no different.
func TestCancel(t *testing.T) {
	f := func(name string, size int, serve func(p *peer)) {
		t.Helper()
		for _, warm := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				reached := make(chan struct{})
				server := newFake(t, func(_ int64, p *peer) {
					if warm {
						if r, _ := p.request(); r == nil {
							return
						}
						p.say(ok)
					}
					serve(p)
					close(reached)
					p.untilGone()
				})
				e := server.endpoint(t)
				if warm {
					mustFetch(t, e, post("{}"))
				}
				ctx, cancel := context.WithCancel(within(t))
				go func() { // ends when the server is where it should be
					<-reached
					cancel()
				}()
				_, err := do(ctx, e, post(strings.Repeat("x", size)))
				mustFail(t, err, llm.None, false, true)
				if ctx.Err() != context.Canceled {
					t.Error("it hung")
				}
				eventually(t, "the connection ends", func() bool { return server.connections() == 0 })
				if n := idling(e); n != 0 {
					t.Errorf("%d connections kept", n)
				}
			})
		}
	}
	f("waiting for the head", 2, func(p *peer) { _, _ = p.request() })
	f("waiting for the rest of the head", 2, func(p *peer) { _, _ = p.request(); p.say("HTTP/1.1 200 OK\r\nX: ") })
	f("waiting after an interim answer", 2, func(p *peer) { _, _ = p.request(); p.say("HTTP/1.1 100 Continue\r\n\r\n") })
	f("writing a large body", 64<<20, func(p *peer) { _, _ = p.br.ReadByte() })
}

// Cancelling before anything is sent sends nothing, with or without a connection at hand.
func TestCancelledBefore(t *testing.T) {
	server := newFake(t, answering(ok))
	e := server.endpoint(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := do(ctx, e, post("{}"))
	mustFail(t, err, llm.None, false, false)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v is not %v", err, context.Canceled)
	}
	mustFetch(t, e, post("{}"))
	_, err = do(ctx, e, post("{}"))
	mustFail(t, err, llm.None, false, false)
	if idling(e) != 1 || server.accepted.Load() != 1 {
		t.Errorf("%d idle, %d accepted: the connection was touched", idling(e), server.accepted.Load())
	}
}

func TestCancelWhileDialling(t *testing.T) {
	e, err := New(Options{Name: "e", URL: "http://" + full(t), ConnectTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	e.pool.dialer.net.Control = func(string, string, syscall.RawConn) error {
		time.AfterFunc(10*time.Millisecond, cancel) // the socket is there, connect comes next
		return nil
	}
	_, err = do(ctx, e, post("{}"))
	mustFail(t, err, llm.None, false, false)
	if ctx.Err() != context.Canceled {
		t.Error("it hung")
	}
}

func TestConnectTimeout(t *testing.T) {
	e, err := New(Options{Name: "e", URL: "http://" + full(t), ConnectTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = do(within(t), e, post("{}"))
	mustFail(t, err, llm.Connect, true, false)
	var socket net.Error
	if !errors.As(err, &socket) || !socket.Timeout() {
		t.Errorf("error %v is not a timeout", err)
	}
}

// Cancelling ends a read of the body, and a body read to its end does not care.
func TestCancelBody(t *testing.T) {
	for name, head := range map[string]string{
		"length":       "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
		"chunked":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n",
		"until closed": "HTTP/1.1 200 OK\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			server := newFake(t, func(_ int64, p *peer) {
				if r, _ := p.request(); r != nil {
					p.say(head + "ok")
					p.untilGone()
				}
			})
			e := server.endpoint(t)
			ctx, cancel := context.WithCancel(within(t))
			res, err := do(ctx, e, post("{}"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(res.Body, make([]byte, 2)); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(10*time.Millisecond, cancel) // while the read below waits
			_, err = res.Body.Read(make([]byte, 2))
			if err == nil || err == io.EOF || ctx.Err() != context.Canceled {
				t.Errorf("read: %v, context: %v", err, ctx.Err())
			}
			_ = res.Body.Close()
			eventually(t, "the connection ends", func() bool { return server.connections() == 0 })
			if n := idling(e); n != 0 {
				t.Errorf("%d connections kept", n)
			}
		})
	}
}

func TestCancelAfterTheEnd(t *testing.T) {
	server := newFake(t, answering(ok))
	e := server.endpoint(t)
	for range 20 {
		ctx, cancel := context.WithCancel(within(t))
		if _, body, err := fetch(ctx, e, post("{}")); err != nil || body != "ok" {
			t.Fatal(body, err)
		}
		cancel()
	}
	if n := server.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A context that ends while the answer is complete never leaves a closed connection in the pool.
func TestCancelRacesWithTheEnd(t *testing.T) {
	server := newFake(t, answering(ok))
	e := server.endpoint(t)
	for range 300 {
		ctx, cancel := context.WithCancel(within(t))
		raced := make(chan struct{})
		res, err := do(ctx, e, post("{}"))
		if err != nil {
			t.Fatal(err)
		}
		go func() { // ends at once
			cancel()
			close(raced)
		}()
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		<-raced
		if err == nil && string(body) != "ok" {
			t.Fatalf("body %q", body)
		}
		if _, body := mustFetch(t, e, post("{}")); body != "ok" {
			t.Fatalf("the next answer is %q", body)
		}
	}
}

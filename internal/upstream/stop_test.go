package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"evenkeel/internal/llm"
)

// A Stop serves one call after another, and what came too late for one does not reach into the next.
func TestStopIsReused(t *testing.T) {
	server := newFake(t, answering(ok))
	e := server.endpoint(t)
	var stop Stop
	for i := range 10 {
		res, err := e.Do(&stop, post("{}"))
		if i%3 == 1 {
			mustFail(t, err, llm.None, false, false)
			if !errors.Is(err, context.Canceled) || !stop.Cancelled() {
				t.Fatalf("error %v, cancelled %v", err, stop.Cancelled())
			}
			stop.Reset()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "ok" {
			t.Fatalf("body %q, %v", body, err)
		}
		if i%3 == 0 {
			stop.Cancel() // for the next call
			stop.Cancel()
		}
	}
	if n := server.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1: a Stop reached into a pool", n)
	}
}

func TestResetOfARunningCall(t *testing.T) {
	e := newFake(t, answering(ok)).endpoint(t)
	var stop Stop
	res, err := e.Do(&stop, post("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	stop.Reset()
}

// Once a call is over nobody reads its body, however it ended: the caller writes over it. The race detector
// watches.
func TestBodyIsReleased(t *testing.T) {
	refuse := func(answer string) func(int64, *peer) {
		return func(_ int64, p *peer) {
			_, _ = io.CopyN(io.Discard, p.br, 32<<10)
			p.say(answer)
			p.untilGone()
		}
	}
	f := func(name string, serve func(int64, *peer), end func(*Endpoint, *Stop, *Request)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			e := newFake(t, serve).endpoint(t)
			for range 3 {
				var stop Stop
				body := []byte(strings.Repeat("x", 32<<20))
				end(e, &stop, &Request{Method: "POST", Path: "/", Body: [3][]byte{body[:9], body[9:10], body[10:]}})
				for i := 0; i < len(body); i += 4 << 10 {
					body[i] = 'y'
				}
			}
		})
	}
	f("read to the end", refuse("HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"), func(e *Endpoint, s *Stop, r *Request) {
		if res, err := e.Do(s, r); err != nil {
			t.Error(err)
		} else if _, err := io.ReadAll(res.Body); err != nil {
			t.Error(err)
		}
	})
	f("no body", refuse("HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"), func(e *Endpoint, s *Stop, r *Request) {
		if _, err := e.Do(s, r); err != nil {
			t.Error(err)
		}
	})
	f("closed", refuse("HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 9\r\n\r\nno"), func(e *Endpoint, s *Stop, r *Request) {
		if res, err := e.Do(s, r); err != nil {
			t.Error(err)
		} else {
			_ = res.Body.Close()
		}
	})
	f("malformed", refuse("garbage\r\n\r\n"), func(e *Endpoint, s *Stop, r *Request) {
		_, err := e.Do(s, r)
		mustFail(t, err, llm.Malformed, false, true)
	})
	reached := make(chan struct{}, 1)
	f("cancelled", func(_ int64, p *peer) {
		_, _ = p.br.ReadByte()
		reached <- struct{}{}
		p.untilGone()
	}, func(e *Endpoint, s *Stop, r *Request) {
		go func() { // ends when the server is where it should be
			<-reached
			s.Cancel()
		}()
		_, err := e.Do(s, r)
		mustFail(t, err, llm.None, false, true)
	})
}

// The same where net/http reads the body, and over TLS.
func TestBodyIsReleasedOverTLS(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		_, e := secure(t, http2, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, 32<<10)
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, "no")
		})
		for i := range 4 {
			var stop Stop
			body := []byte(strings.Repeat("x", 8<<20))
			res, err := e.Do(&stop, &Request{Method: "POST", Path: "/", Body: [3][]byte{body}})
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				_, _ = io.Copy(io.Discard, res.Body)
			} else {
				_ = res.Body.Close()
			}
			for j := 0; j < len(body); j += 4 << 10 {
				body[j] = 'y'
			}
			stop.Reset()
		}
	})
}

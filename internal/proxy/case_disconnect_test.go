package proxy

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// Cases of the kind disconnect: whoever leaves takes its upstream request along and is nobody's fault.

// endless streams until it is left, and closes gone then.
func endless(gone chan<- struct{}) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		sse(roleEvent, delta("0"), delta("1"), delta("2"))(w, r)
		<-r.Context().Done()
		gone <- struct{}{}
	}
}

func TestCase23ClientLeavesMidStream(t *testing.T) {
	want := roleEvent + delta("0") + delta("1") + delta("2")
	left := func(t *testing.T, w *world, gone <-chan struct{}) {
		t.Helper()
		within(t, "upstream being left", gone)
		r := w.record(1)
		if r.Result != exchange.ClientGone || r.Last().Outcome.Verdict != route.NotDeploymentFault || r.Last().Outcome.Class != "client_gone" {
			t.Errorf("%s %+v", r.Result, r.Last().Outcome)
		}
		w.idle()
	}
	for name, leave := range map[string]func(net.Conn){"FIN": func(c net.Conn) { _ = c.Close() }, "RST": reset} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{}, 1)
			w := newWorld(t, options{}, endless(gone))
			c, err := net.Dial("tcp", w.addr)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(streamBody), streamBody)
			for got := ""; !strings.Contains(got, delta("2")); {
				b := make([]byte, 4096)
				n, err := c.Read(b)
				if got += string(b[:n]); err != nil {
					t.Fatalf("got %q (%v)", got, err)
				}
			}
			leave(c)
			left(t, w, gone)
		})
	}
	t.Run("HTTP/2 reset", func(t *testing.T) {
		gone := make(chan struct{}, 1)
		var calls atomic.Int32
		w := newWorld(t, options{h2: true}, func(rw http.ResponseWriter, r *http.Request) {
			if calls.Add(1) == 1 {
				endless(gone)(rw, r)
				return
			}
			sse(healthy)(rw, r)
		})
		ctx, leave := context.WithCancel(t.Context())
		res, err := w.client.RoundTrip(w.request(ctx, "/v1/chat/completions", streamBody))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, len(want))); err != nil {
			t.Fatal(err)
		}
		leave()
		left(t, w, gone)
		var reused atomic.Bool
		traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused.Store(i.Reused) }})
		if a := w.do(w.request(traced, "/v1/chat/completions", streamBody)); a.body != healthy || !reused.Load() {
			t.Errorf("the next stream of the connection: %q, connection kept: %v", a.body, reused.Load())
		}
	})
}

func (w *world) request(ctx context.Context, path, body string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

// Wherever a request is, its client can leave.
func TestClientLeavesAtEveryStage(t *testing.T) {
	type stage struct {
		name, body string
		upstream   func(reached func()) upstreamHandler // calls reached when the client may leave
		left       bool                                 // upstream has a request to lose
	}
	stages := []stage{
		{"waiting for the head", streamBody, func(reached func()) upstreamHandler {
			return func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // else net/http does not look whether the connection lives
				reached()
				<-r.Context().Done()
			}
		}, true},
		{"held", streamBody, func(reached func()) upstreamHandler {
			return func(w http.ResponseWriter, r *http.Request) { sse(roleEvent)(w, r); reached(); <-r.Context().Done() }
		}, true},
		{"only comments", streamBody, func(reached func()) upstreamHandler {
			return func(w http.ResponseWriter, r *http.Request) { sse(": c\n\n")(w, r); reached(); <-r.Context().Done() }
		}, true},
		{"streaming", streamBody, func(reached func()) upstreamHandler {
			return func(w http.ResponseWriter, r *http.Request) {
				sse(roleEvent, delta("a"))(w, r)
				reached()
				<-r.Context().Done()
			}
		}, true},
		{"whole body", chatBody, func(reached func()) upstreamHandler {
			return func(w http.ResponseWriter, r *http.Request) {
				jsonAnswer(200, goodJSON[:20])(w, r)
				w.(http.Flusher).Flush()
				reached()
				<-r.Context().Done()
			}
		}, true},
		{"pause before a retry", chatBody, func(func()) upstreamHandler { return jsonAnswer(500, "{}") }, false},
	}
	for _, s := range stages {
		t.Run(s.name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, o options) {
				ctx, leave := context.WithCancel(t.Context())
				gone := make(chan struct{}, 10)
				var asked atomic.Int32
				h := s.upstream(leave)
				w := newWorld(t, o, counted(&asked, func(rw http.ResponseWriter, r *http.Request) {
					h(rw, r)
					gone <- struct{}{}
				}))
				if !s.left {
					go func() {
						until(t, "the answer has failed", func() bool { return w.deployment(0).Totals.Faults == 1 })
						leave()
					}()
				}
				if res, err := w.client.RoundTrip(w.request(ctx, "/v1/chat/completions", s.body)); err == nil {
					_, _ = io.Copy(io.Discard, res.Body) // it is cut, or was there before we left
					_ = res.Body.Close()
				}
				within(t, "upstream being left", gone)
				r := w.record(1)
				if r.Result != exchange.ClientGone || asked.Load() != 1 {
					t.Errorf("%s, upstream asked %d times", r.Result, asked.Load())
				}
				if f := w.deployment(0).Totals.Faults; s.left && f != 0 || !s.left && f != 1 {
					t.Errorf("the endpoint was blamed %d times", f)
				}
				w.idle()
			})
		})
	}
}

func TestClientLeavesTheQueue(t *testing.T) {
	overBoth(t, func(t *testing.T, o options) {
		release := make(chan struct{})
		o.limits = route.Limits{InFlight: 1}
		var asked atomic.Int32
		w := newWorld(t, o, counted(&asked, func(rw http.ResponseWriter, r *http.Request) { <-release; jsonAnswer(200, goodJSON)(rw, r) }))
		var first sync.WaitGroup
		first.Go(func() { w.post("/v1/chat/completions", chatBody) })
		until(t, "the slot is taken", func() bool { return asked.Load() == 1 })
		ctx, leave := context.WithCancel(t.Context())
		var second sync.WaitGroup
		second.Go(func() {
			if _, err := w.client.RoundTrip(w.request(ctx, "/v1/chat/completions", chatBody)); err == nil {
				t.Error("it was answered")
			}
		})
		until(t, "the second one waits", func() bool { return w.router.View(time.Now()).Waiting["m"] == 1 })
		leave()
		second.Wait()
		if r := w.record(1); r.Result != exchange.ClientGone || len(r.Attempts) != 0 || r.Status != statusClientGone {
			t.Errorf("%s, %d attempts, status %d", r.Result, len(r.Attempts), r.Status)
		}
		close(release)
		first.Wait()
		if r := w.record(2); r.Result != exchange.Complete {
			t.Errorf("the first one: %s", r.Result)
		}
		w.idle()
	})
}

// A TLS handshake that hangs stands for every connection that is being made.
func TestClientLeavesWhileConnecting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, leave := context.WithCancel(t.Context())
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1))
		leave()
		_, _ = io.Copy(io.Discard, c) // ends when the handshake is given up
	}()
	w := newWorldAt(t, options{}, "https://"+l.Addr().String())
	if _, err := w.client.RoundTrip(w.request(ctx, "/v1/chat/completions", chatBody)); err == nil {
		t.Error("it was answered")
	}
	within(t, "the connection being given up", closed)
	if r := w.record(1); r.Result != exchange.ClientGone || r.Last().Outcome.Fault == route.Unreachable {
		t.Errorf("%s %+v", r.Result, r.Last().Outcome)
	}
	if v := w.router.View(time.Now()); v.Scopes[0].Breaker.State != route.Closed {
		t.Errorf("breaker %v", v.Scopes[0].Breaker)
	}
	w.idle()
}

// A client of HTTP/1.1 that closes its sending side counts as gone, as net/http has it: a server cannot tell it from
// one that closed everything, and holding an engine's slot for it would be the dearer mistake.
func TestHalfClosedClientIsGone(t *testing.T) {
	gone := make(chan struct{}, 1)
	var asked atomic.Int32
	w := newWorld(t, options{}, counted(&asked, endless(gone)))
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(streamBody), streamBody)
	until(t, "upstream is asked", func() bool { return asked.Load() == 1 })
	_ = c.(*net.TCPConn).CloseWrite()
	within(t, "upstream being left", gone)
	if r := w.record(1); r.Result != exchange.ClientGone {
		t.Errorf("%s", r.Result)
	}
	w.idle()
}

func TestCase25AbortsAreNobodysFault(t *testing.T) {
	gone := make(chan struct{}, 100)
	var patient atomic.Bool
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		if patient.Load() {
			sse(healthy)(rw, r)
			return
		}
		endless(gone)(rw, r)
	})
	want := roleEvent + delta("0") + delta("1") + delta("2")
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			res, err := w.client.RoundTrip(w.request(ctx, "/v1/chat/completions", streamBody))
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.ReadFull(res.Body, make([]byte, 1+i*len(want)/50)) // leaves at another byte each
			leave()
		})
	}
	all.Wait()
	for range 50 {
		within(t, "upstream being left", gone)
	}
	w.idle()
	if d := w.deployment(0); d.Totals.Faults != 0 || d.Breaker.State != route.Closed {
		t.Errorf("%+v, breaker %v", d.Totals, d.Breaker.State)
	}
	patient.Store(true)
	if a := w.post("/v1/chat/completions", streamBody); a.body != healthy {
		t.Errorf("the next request: %d %q", a.status, a.body)
	}
}

func TestCase25TimeoutsAreTheEndpointsFault(t *testing.T) {
	const limit = 100 * time.Millisecond
	long := time.Minute
	for _, c := range []struct {
		name, body, detail string
		d                  exchange.Deadlines
		start              string // sent before the silence
	}{
		{"first_token, no head", streamBody, "first_token passed", exchange.Deadlines{Deadline: long, FirstToken: limit, BetweenTokens: long, Hold: long}, ""},
		{"first_token, held", streamBody, "first_token passed", exchange.Deadlines{Deadline: long, FirstToken: limit, BetweenTokens: long, Hold: long}, roleEvent},
		{"response", chatBody, "response passed", exchange.Deadlines{Deadline: long, Response: limit}, ""},
		{"deadline", chatBody, "deadline passed", exchange.Deadlines{Deadline: limit, Response: long}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			gone := make(chan struct{}, 100)
			w := newWorld(t, options{deadlines: c.d, change: func(g *Generation) { g.MaxAttempts = 1 }}, func(rw http.ResponseWriter, r *http.Request) {
				if c.start != "" {
					sse(c.start)(rw, r)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
				gone <- struct{}{}
			})
			var all sync.WaitGroup
			for range 6 {
				all.Go(func() {
					a := w.post("/v1/chat/completions", c.body)
					if a.status != 504 || !strings.HasPrefix(a.body, `{"error":{"type":"timeout_error"`) || a.header.Get("X-Evenkeel-Id") == "" {
						t.Errorf("got %d %q", a.status, a.body)
					}
				})
			}
			all.Wait()
			for i := range 6 {
				within(t, "upstream being left", gone)
				if o := w.record(i + 1).Last().Outcome; o.Verdict != route.DeploymentFault || o.Class != llm.Timeout.String() || !strings.HasPrefix(o.Detail, "the limit "+strings.TrimSuffix(c.detail, " passed")+" of ") {
					t.Errorf("outcome %+v", o)
				}
			}
			w.idle()
			if d := w.deployment(0); d.Totals.Faults != 6 || d.Breaker.State == route.Closed {
				t.Errorf("%+v, breaker %v", d.Totals, d.Breaker.State)
			}
		})
	}
}

// A deadline that the client chose itself, shorter than the operator's, says nothing about the endpoint.
func TestClientsOwnDeadlineBlamesNobody(t *testing.T) {
	gone := make(chan struct{}, 1)
	w := newWorld(t, options{}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		gone <- struct{}{}
	})
	a := w.post("/v1/chat/completions", chatBody, "X-Evenkeel-Timeout", "50ms")
	if a.status != 504 || !strings.Contains(a.body, "evenkeel_deadline_exceeded") {
		t.Errorf("got %d %q", a.status, a.body)
	}
	within(t, "upstream being left", gone)
	if o := w.record(1).Last().Outcome; o.Verdict != route.NotDeploymentFault {
		t.Errorf("outcome %+v", o)
	}
	w.idle()
}

// TestNothingIsRepeatedForWhoLeft: clients who leave as soon as their request has reached the engine, which fails it, are not watched
// yet, since most requests end sooner. Before the pause is over they are: nothing is repeated for them.
func TestNothingIsRepeatedForWhoLeft(t *testing.T) {
	const clients = 30
	reached := make(chan struct{})
	w := newWorld(t, options{health: route.Health{TripAfter: math.MaxInt, MinRequests: math.MaxInt}}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		reached <- struct{}{}
		w.WriteHeader(http.StatusInternalServerError)
	})
	for n := range clients {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(chatBody), chatBody)
		select {
		case <-reached:
		case <-time.After(20 * time.Second):
			t.Fatalf("request %d did not reach the engine", n)
		}
		_ = c.Close()
	}
	more := make(chan int)
	go func() { // who is asked once more must not wait for ever
		n := 0
		for range reached {
			n++
		}
		more <- n
	}()
	for n := range clients {
		if r := w.record(n + 1); len(r.Attempts) != 1 {
			t.Errorf("client %d left, and its request was sent %d times", n, len(r.Attempts))
		}
	}
	w.idle()
	close(reached)
	if n := <-more; n != 0 {
		t.Errorf("%d attempts for clients who had left", n)
	}
}

package proxy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// Cases of the kind lb-counters: whatever happens to requests, what is counted returns to nothing.

// crowd drives requests whose x-request-id says what is to happen to them: "KIND/NUMBER".
type crowd struct {
	t     *testing.T
	leave sync.Map // request id → context.CancelFunc of its client
}

func (c *crowd) endpoint(served *atomic.Int32) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		kind, _, _ := strings.Cut(r.Header.Get("X-Request-Id"), "/")
		switch kind {
		case "calm":
			served.Add(1)
			sse(healthy)(w, r)
			return
		case "reset":
			reset(hijack(c.t, w))
			return
		case "reset in the stream":
			thenReset(c.t, sse(roleEvent, delta("a")))(w, r)
			return
		case "before the head":
			leave, _ := c.leave.Load(r.Header.Get("X-Request-Id"))
			leave.(context.CancelFunc)()
		case "after the head":
			sse(": c\n\n")(w, r)
		case "in the body":
			sse(roleEvent, delta("a"))(w, r)
		}
		<-r.Context().Done()
	}
}

func (c *crowd) send(w *world, kind string, number int, header ...string) {
	ctx, leave := context.WithCancel(c.t.Context())
	defer leave()
	req := w.request(ctx, "/v1/chat/completions", streamBody)
	id := fmt.Sprintf("%s/%d", kind, number)
	req.Header.Set("X-Request-Id", id)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	c.leave.Store(id, leave)
	res, err := w.client.RoundTrip(req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	switch kind {
	case "after the head":
	case "in the body":
		_, _ = io.ReadFull(res.Body, make([]byte, len(roleEvent)))
	default:
		body, err := io.ReadAll(res.Body)
		if kind == "calm" && (string(body) != healthy || err != nil) {
			c.t.Errorf("a calm request got %d %q (%v)", res.StatusCode, body, err)
		}
	}
}

func TestCase44InFlightAfterAborts(t *testing.T) {
	c := &crowd{t: t}
	var served [4]atomic.Int32
	urls := make([]string, 4)
	for i := range 3 {
		urls[i] = serve(t, c.endpoint(&served[i]))
	}
	d := httptest.NewServer(c.endpoint(&served[3]))
	urls[3] = d.URL
	w := newWorldAt(t, options{strategy: "least_connections", health: route.Health{SlowStart: -1}, change: func(g *Generation) { g.MaxAttempts = 1 }}, urls...)

	const aborts, calm = 600, 400
	kinds := []string{"before the head", "after the head", "in the body"}
	random := rand.New(rand.NewPCG(44, 1))
	work := make(chan [2]any)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for job := range work {
				c.send(w, job[0].(string), job[1].(int))
			}
		})
	}
	for i := range aborts {
		work <- [2]any{kinds[random.IntN(3)], i}
	}
	close(work)
	all.Wait()
	for i := range aborts {
		if r := w.record(i + 1); r.Result != exchange.ClientGone {
			t.Fatalf("record %d: %s", i, r.Result)
		}
	}
	w.idle()
	spread := func(what string) {
		t.Helper()
		for i := range served {
			served[i].Store(0)
		}
		for i := range calm {
			c.send(w, "calm", i)
		}
		for i := range served {
			if n := served[i].Load(); n < calm*15/100 || n > calm*35/100 {
				t.Errorf("%s, endpoint %d got %d of %d", what, i, n, calm)
			}
		}
	}
	spread("after the aborts")

	// D goes down with requests running, and returns.
	pin := []string{"X-Evenkeel-Pin", "d"}
	for i := range 6 {
		c.send(w, []string{"reset", "reset in the stream"}[i%2], i, pin...)
	}
	d.CloseClientConnections()
	d.Close()
	c.send(w, "any", 0, pin...)
	var l net.Listener
	until(t, "D's port is free again", func() bool { // another test's connection may have it for a moment
		var err error
		l, err = net.Listen("tcp", d.Listener.Addr().String())
		return err == nil
	})
	again := &httptest.Server{Listener: l, Config: &http.Server{Handler: c.endpoint(&served[3])}}
	again.Start()
	t.Cleanup(again.Close)
	until(t, "D is in again", func() bool {
		a := w.post("/v1/chat/completions", streamBody, append(pin, "X-Request-Id", "calm/0")...)
		return a.status == 200 && w.deployment(3).Breaker.State == route.Closed
	})
	if err := w.router.Override(w.now(), "deployment", "d/m", route.ForgetFailure); err != nil { // failures of late count as load
		t.Fatal(err)
	}
	spread("after the restart")
	w.idle()
}

// Random requests of every kind at once, aborted at random moments.
func TestRandomAbortsLeaveNothingBehind(t *testing.T) {
	c := &crowd{t: t}
	var served atomic.Int32
	w := newWorld(t, options{strategy: "p2c_ewma", limits: route.Limits{InFlight: 3}}, c.endpoint(&served), c.endpoint(&served))
	kinds := []string{"calm", "reset", "reset in the stream", "before the head", "after the head", "in the body"}
	random := rand.New(rand.NewPCG(4, 200))
	const requests = 200
	work := make(chan string, requests)
	for range requests {
		work <- kinds[random.IntN(len(kinds))]
	}
	close(work)
	var all sync.WaitGroup
	var number atomic.Int64
	for range 12 { // more than there is room for: some wait
		all.Go(func() {
			for kind := range work {
				if kind == "calm" {
					kind = "settled" // may meet endpoints that are out
					ctx, leave := context.WithTimeout(t.Context(), time.Duration(number.Load()%7)*time.Millisecond)
					if res, err := w.client.RoundTrip(w.request(ctx, "/v1/chat/completions", streamBody)); err == nil {
						_, _ = io.Copy(io.Discard, res.Body)
						_ = res.Body.Close()
					}
					leave()
					number.Add(1)
					continue
				}
				c.send(w, kind, int(number.Add(1)))
			}
		})
	}
	all.Wait()
	w.idle()
}

func TestCase45CountersAndTies(t *testing.T) {
	var served [3]atomic.Int32
	slow := func(n *atomic.Int32) upstreamHandler { return counted(n, jsonAnswer(200, goodJSON)) }
	w := newWorld(t, options{strategy: "least_connections", change: func(g *Generation) {
		g.Keys = keys("right")
		g.MaxBody = 1 << 10
	}}, slow(&served[0]), slow(&served[1]), slow(&served[2]))
	auth := []string{"Authorization", "Bearer right"}
	for range 20 { // refused before anybody is asked
		for _, c := range []struct {
			body   string
			header []string
			status int
		}{
			{chatBody, nil, 401}, {chatBody, []string{"Authorization", "Bearer wrong"}, 401}, {"{", auth, 400},
			{`{"model":"nope"}`, auth, 404}, {`{"messages":[]}`, auth, 400}, {strings.Repeat(" ", 2<<10), auth, 413},
		} {
			if a := w.post("/v1/chat/completions", c.body, c.header...); a.status != c.status {
				t.Fatalf("got %d %s, want %d", a.status, a.body, c.status)
			}
		}
	}
	w.idle()
	const sequential = 300
	for range sequential {
		if a := w.post("/v1/chat/completions", chatBody, auth...); a.status != 200 {
			t.Fatalf("got %d %s", a.status, a.body)
		}
	}
	for i := range served {
		if n := served[i].Load(); n < sequential*25/100 || n > sequential*42/100 {
			t.Errorf("endpoint %d got %d of %d", i, n, sequential)
		}
	}
	w.idle()
}

// Of the case's limits only in_flight of a deployment exists: whoever finds it full waits, and is told so when the
// deadline passes.
func TestCase47SlotIsAlwaysReturned(t *testing.T) {
	var mode atomic.Value
	var running atomic.Int32
	release := make(chan struct{})
	upstream := func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch mode.Load() {
		case "times out":
			<-r.Context().Done()
		case "502":
			jsonAnswer(502, "{}")(rw, r)
		case "streams":
			sse(roleEvent, delta("a"))(rw, r)
			<-r.Context().Done()
		case "waits":
			running.Add(1)
			<-release
			fallthrough
		default:
			jsonAnswer(200, goodJSON)(rw, r)
		}
	}
	for _, kind := range []string{"times out", "502", "streams", "not JSON", "unknown model"} {
		t.Run(kind, func(t *testing.T) {
			// One deployment with two slots, and one attempt, so that each request speaks of it alone. Six faults in a
			// row would put it out; a good request between them does not change the point.
			w := newWorld(t, options{limits: route.Limits{InFlight: 2}, change: func(g *Generation) { g.MaxAttempts = 1 }}, upstream)
			for i := range 6 {
				mode.Store(kind)
				body := streamBody
				switch kind {
				case "not JSON":
					body = `{"model":`
				case "unknown model":
					body = `{"model":"nope"}`
				}
				ctx, leave := context.WithCancel(t.Context())
				req := w.request(ctx, "/v1/chat/completions", body)
				if kind == "times out" {
					req.Header.Set("X-Evenkeel-Timeout", "20ms")
				}
				res, err := w.client.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if kind == "streams" {
					_, _ = io.ReadFull(res.Body, make([]byte, len(roleEvent)))
					leave()
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				leave()
				if kind == "502" && i%2 == 1 {
					mode.Store("")
					w.post("/v1/chat/completions", chatBody)
				}
			}
			w.idle()
			mode.Store("waits")
			running.Store(0)
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					if a := w.post("/v1/chat/completions", chatBody); a.status != 200 {
						t.Errorf("got %d %s", a.status, a.body)
					}
				})
			}
			until(t, "two requests run", func() bool { return running.Load() == 2 })
			a := w.post("/v1/chat/completions", chatBody, "X-Evenkeel-Timeout", "30ms")
			if a.status != 503 || !strings.Contains(a.body, "evenkeel_queue_timeout") || a.header.Get("Retry-After") != "1" || a.header.Get("Retry-After-Ms") == "" {
				t.Errorf("the third one: %d %s %v", a.status, a.body, a.header)
			}
			release <- struct{}{}
			release <- struct{}{}
			both.Wait()
			w.idle()
		})
	}
}

// The slot is free before the client can know that its answer is whole: its next request never waits.
func TestCase47SlotIsFreeBeforeTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		body     string
		upstream upstreamHandler
	}{"whole": {chatBody, jsonAnswer(200, goodJSON)}, "stream": {streamBody, sse(healthy)}, "error": {chatBody, jsonAnswer(400, goodJSON)}} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, o options) {
				o.limits = route.Limits{InFlight: 1}
				w := newWorld(t, o, c.upstream)
				for i := range 100 {
					w.post("/v1/chat/completions", c.body)
					if r := w.record(i + 1); r.Queued != 0 || len(r.Refusals) != 0 {
						t.Fatalf("request %d waited for %v", i, r.Queued)
					}
				}
				w.idle()
			})
		})
	}
}

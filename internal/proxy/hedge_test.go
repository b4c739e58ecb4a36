package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// hedging is a world whose requests may be hedged, and which knows what first tokens usually take: next to nothing.
type hedging struct {
	*world
	on   atomic.Bool  // requests are hedged
	slow atomic.Int32 // requests that are yet to be answered slowly
	at   string       // the endpoint that alone is slow, "" = all
	left chan string  // endpoints whose slow request was ended by us
	met  sync.Map     // ids of requests that were slow and may be only once
}

// serve answers at once, but the slow ones not before they are cancelled, after what is to be sent before.
func (h *hedging) serve(name string, before string) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		if !h.isSlow(name, r.Header.Get("X-Request-Id")) {
			sse(roleEvent, delta("from "+name), finishEvent, usageEvent, doneEvent)(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if before != "" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, before)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
		h.left <- name
	}
}

// once begins the id of a request of which one attempt alone may be slow.
const once = "once/"

func (h *hedging) isSlow(name, id string) bool {
	if h.at != "" && h.at != name {
		return false
	}
	if _, met := h.met.Load(id); met || h.slow.Add(-1) < 0 {
		return false
	}
	if strings.HasPrefix(id, once) {
		h.met.Store(id, true)
	}
	return true
}

func newHedging(t *testing.T, o options, before string) *hedging {
	t.Helper()
	h := &hedging{left: make(chan string, 100)}
	change := o.change
	o.change = func(g *Generation) {
		g.Hedged = func(string) bool { return h.on.Load() }
		if change != nil {
			change(g)
		}
	}
	h.world = newWorld(t, o, h.serve("a", before), h.serve("b", before))
	h.proxy.Budget.Hedges(1)
	for range 40 {
		if a := h.world.post("/v1/chat/completions", streamBody); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	h.idle()
	h.on.Store(true)
	return h
}

// TestHedgeOverSockets: the first attempt brings nothing, the second one answers; the client sees the second alone, and the
// first endpoint's request ends at once.
func TestHedgeOverSockets(t *testing.T) {
	for name, before := range map[string]string{"no head": "", "a role": roleEvent, "comments": ": working\n\n"} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, h2), func(t *testing.T) {
				h := newHedging(t, options{h2: h2, strategy: "failover"}, before) // so that a is first, whoever is reached first
				h.at = "a"
				h.slow.Store(1)
				a := h.post("/v1/chat/completions", streamBody)
				r := h.record(41)
				first, second := r.Attempts[0], r.Attempts[1]
				if first.Deployment != "a/m" || second.Deployment != "b/m" {
					t.Fatalf("attempts at %s and %s", first.Deployment, second.Deployment)
				}
				body := strings.TrimPrefix(a.body, ": working\n\n")
				if want := roleEvent + delta("from b") + finishEvent + usageEvent + doneEvent; a.err != nil || body != want {
					t.Errorf("client got %q (%v)", a.body, a.err)
				}
				if got := within(t, "the end of the slow request", h.left); got != "a" {
					t.Errorf("%s was ended, not a", got)
				}
				if !first.Waste || first.Hedge || second.Waste || !second.Hedge || r.Result != exchange.Complete || r.Last().Deployment != second.Deployment {
					t.Errorf("%+v", r.Attempts)
				}
				if took := first.Ended.Sub(r.Content); took > 5*time.Second { // far below its deadline
					t.Errorf("the loser ended %v after the first content", took)
				}
				if o := first.Outcome; o.Class != "hedge_lost" || o.Verdict != route.NotDeploymentFault || o.InputTokens == 0 || o.Reported {
					t.Errorf("the loser: %+v", o)
				}
				h.idle()
			})
		}
	}
}

// Requests that could do harm twice, or cost too much, are not sent twice.
func TestWhatIsNeverHedged(t *testing.T) {
	f := func(name, path, body string) {
		t.Run(name, func(t *testing.T) {
			h := newHedging(t, options{change: func(g *Generation) {
				g.Deadlines.FirstToken, g.Deadlines.Response, g.MaxAttempts = 300*time.Millisecond, 300*time.Millisecond, 2
			}}, "")
			h.slow.Store(1)
			if h.post(path, body); len(h.record(41).Attempts) == 0 {
				t.Fatal("no attempt")
			}
			for _, a := range h.record(41).Attempts {
				if a.Hedge {
					t.Errorf("%+v", h.record(41).Attempts)
				}
			}
			h.idle()
		})
	}
	const messages = `"messages":[{"role":"user","content":"hello"}]`
	f("tools", "/v1/chat/completions", `{"model":"m","stream":true,"tools":[{"type":"function","function":{"name":"pay"}}],`+messages+`}`)
	f("functions", "/v1/chat/completions", `{"model":"m","stream":true,"functions":[{"name":"pay"}],`+messages+`}`)
	f("two answers", "/v1/chat/completions", `{"model":"m","stream":true,"n":2,`+messages+`}`)
	f("not streamed", "/v1/chat/completions", chatBody)
	f("in the background", "/v1/responses", `{"model":"m","stream":true,"background":true,"input":"hello"}`)
}

// A client that leaves while two attempts run ends both.
func TestClientLeavesBothAttempts(t *testing.T) {
	h := newHedging(t, options{}, "")
	h.slow.Store(2)
	req, err := http.NewRequest(http.MethodPost, h.url+"/v1/chat/completions", strings.NewReader(streamBody))
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if res, err := h.client.RoundTrip(req.WithContext(ctx)); err == nil {
			res.Body.Close()
		}
	}()
	until(t, "two attempts run", func() bool { return h.slow.Load() <= 0 })
	leave()
	<-gone
	if one, two := within(t, "an end", h.left), within(t, "the other end", h.left); one == two {
		t.Errorf("both attempts were at %s", one)
	}
	if r := h.record(41); r.Result != exchange.ClientGone || len(r.Attempts) != 2 {
		t.Errorf("%s %+v", r.Result, r.Attempts)
	}
	h.idle()
}

// A shutdown ends both attempts.
func TestShutdownOfBothAttempts(t *testing.T) {
	h := newHedging(t, options{}, "")
	h.slow.Store(2)
	answered := make(chan answer, 1)
	go func() { answered <- h.post("/v1/chat/completions", streamBody) }()
	until(t, "two attempts run", func() bool { return h.slow.Load() <= 0 })
	h.proxy.Cut()
	if a := within(t, "an answer", answered); a.status != 503 || !strings.Contains(a.body, "evenkeel_shutting_down") {
		t.Errorf("%d %s", a.status, a.body)
	}
	h.idle()
}

// TestHedgesUnderLoad: many at once, some of them slow at random places; every client gets one whole answer of one
// endpoint, and nothing stays behind.
func TestHedgesUnderLoad(t *testing.T) {
	h := newHedging(t, options{strategy: "p2c_ewma"}, roleEvent)
	h.left = make(chan string, 1000)
	const clients, each = 8, 25
	var all sync.WaitGroup
	h.slow.Store(0)
	for client := range clients {
		all.Go(func() {
			for i := range each {
				if i == each/2 { // 4 %: were more than 5 % slow, waiting for them would be what is usual
					h.slow.Add(1) // one of the requests that come next
				}
				a := h.world.post("/v1/chat/completions", streamBody, "X-Request-Id", fmt.Sprint(once, client, "-", i))
				okA := a.body == roleEvent+delta("from a")+finishEvent+usageEvent+doneEvent
				okB := a.body == roleEvent+delta("from b")+finishEvent+usageEvent+doneEvent
				if a.status != 200 || a.err != nil || !okA && !okB {
					t.Errorf("client got %d %q (%v)", a.status, a.body, a.err)
				}
			}
		})
	}
	all.Wait()
	h.idle()
	hedges, wasted := 0, 0
	for i := range clients * each {
		for _, a := range h.record(41 + i).Attempts {
			if a.Hedge {
				hedges++
			}
			if a.Waste {
				wasted++
			}
		}
	}
	if hedges == 0 || wasted == 0 || wasted > hedges {
		t.Errorf("%d hedges, %d losers", hedges, wasted)
	}
}

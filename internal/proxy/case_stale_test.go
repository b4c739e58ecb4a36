package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// TestCase72IdleConnectionsClosed: an endpoint that closes connections just when they are used again costs no client an
// error, executes no request twice, and is not blamed. Times are those of the report divided by a hundred.
func TestCase72IdleConnectionsClosed(t *testing.T) {
	const idle, jitter = 10 * time.Millisecond, 200 * time.Microsecond
	f := func(name string, requests int, keep func(*executing, net.Conn, *bufio.Reader) bool) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newExecuting(keep, func(c net.Conn) { _ = c.Close() })
			w := newWorldAt(t, options{}, e.listen(t))
			for i := range requests {
				if a := w.post("/v1/chat/completions", large, "X-Request-Id", fmt.Sprint(i)); a.status != 200 || a.body != goodJSON || a.err != nil {
					t.Errorf("got %d %s (%v)", a.status, a.body, a.err)
				}
				<-time.After(idle)
			}
			stale := w.unblamed(requests)
			if n := e.most(); n != 1 || len(e.times) != requests {
				t.Errorf("%d requests were executed, one of them %d times; want each of %d once", len(e.times), n, requests)
			}
			t.Logf("%d connections, %d of them stale when they were used", e.accepted.Load(), stale)
		})
	}
	for i := range 5 {
		f(fmt.Sprint("by time ", i), 100, func(e *executing, c net.Conn, br *bufio.Reader) bool {
			_ = c.SetReadDeadline(time.Now().Add(e.about(idle, jitter)))
			_, err := br.Peek(1)
			_ = c.SetReadDeadline(time.Time{})
			return err == nil
		})
	}
	// The race lost each time: what arrives finds the connection closed, and is not read.
	f("always as it is used", 100, func(_ *executing, _ net.Conn, br *bufio.Reader) bool {
		_, _ = br.Peek(1)
		return false
	})
}

// TestCase72ResetAfterTheRequest: an endpoint that takes a whole request on a kept connection and then resets it may have
// executed it. It gets it once more, and is not blamed; what must not be done twice is not repeated, and the client is told so.
func TestCase72ResetAfterTheRequest(t *testing.T) {
	const requests = 50
	read := func(e *executing, _ net.Conn, br *bufio.Reader) bool { e.read(br); return false }
	for _, attempts := range []int{1, 3} {
		e := newExecuting(read, reset)
		w := newWorldAt(t, options{change: func(g *Generation) { g.MaxAttempts = attempts }}, e.listen(t))
		for i := range requests {
			if a := w.post("/v1/chat/completions", large, "X-Request-Id", fmt.Sprint(i)); a.status != 200 || a.body != goodJSON {
				t.Errorf("got %d %s (%v)", a.status, a.body, a.err)
			}
		}
		if stale := w.unblamed(requests); stale < requests/3 {
			t.Errorf("%d requests met a stale connection", stale)
		}
		if n := e.most(); n != 2 || len(e.times) != requests {
			t.Errorf("%d requests arrived, one of them %d times", len(e.times), n)
		}
	}

	e := newExecuting(read, reset)
	w := newWorldAt(t, options{}, e.listen(t))
	w.post("/v1/chat/completions", large, "X-Request-Id", "first") // a connection to be kept
	a := w.post("/v1/responses", `{"model":"m","background":true,"input":"x"}`, "X-Request-Id", "second")
	if a.status != http.StatusBadGateway || a.header.Get("X-Should-Retry") != "false" {
		t.Errorf("what must not be repeated: %d %v %s", a.status, a.header, a.body)
	}
	if n := e.most(); n != 1 || len(e.times) != 2 {
		t.Errorf("%d requests were executed, one of them %d times", len(e.times), n)
	}
}

// TestCase72StaleConnectionsDoNotMultiplyAttempts: a server that takes a whole request and then resets the kept connection may
// have carried it out. That is repeated once without being counted, and not at each endpoint anew.
func TestCase72StaleConnectionsDoNotMultiplyAttempts(t *testing.T) {
	for _, attempts := range []int{1, 3} {
		var got atomic.Int32
		bad := func(w http.ResponseWriter, _ *http.Request) { reset(hijack(t, w)) }
		w := newWorld(t, options{change: func(g *Generation) { g.MaxAttempts = attempts }},
			poisoned(t, &got, bad), poisoned(t, &got, bad), poisoned(t, &got, bad))
		for range 6 { // connections to be kept
			w.post("/v1/chat/completions", chatBody)
		}
		w.post("/v1/chat/completions", poison)
		if n := int(got.Load()); n > attempts+1 {
			t.Errorf("with %d attempts the request was carried out %d times", attempts, n)
		}
		w.idle()
	}
}

// large is a request of 100 KB.
var large = strings.Replace(chatBody, "hello", strings.Repeat("hello ", 17_000), 1)

// unblamed demands that n requests were answered well, without an attempt that counts or a mark on the endpoint. It
// returns how many stale connections they met.
func (w *world) unblamed(n int) (stale int) {
	w.t.Helper()
	for i := range n {
		r := w.record(i + 1)
		if r.Result != exchange.Complete {
			w.t.Errorf("request %d: %s %+v", i, r.Result, r.Failure)
		}
		for _, a := range r.Attempts[:len(r.Attempts)-1] {
			if stale++; a.Outcome.Class != "stale" {
				w.t.Errorf("request %d: an attempt failed with %q", i, a.Outcome.Class)
			}
		}
	}
	w.idle()
	v := w.router.View(time.Now())
	if d := v.Deployments[0]; d.Breaker.State != route.Closed || d.Breaker.Openings != 0 || d.Totals.Faults != 0 {
		w.t.Errorf("stale connections count against the deployment: %+v, %d faults", d.Breaker, d.Totals.Faults)
	}
	if s := v.Scopes[0]; s.Breaker.State != route.Closed || s.Breaker.Openings != 0 {
		w.t.Errorf("stale connections count against the endpoint: %+v", s.Breaker)
	}
	return stale
}

// executing is an endpoint that counts how often it executes each request, by its id. It answers the first one of each
// connection; keep says whether it waits for another one, and if not, end ends the connection.
type executing struct {
	keep     func(*executing, net.Conn, *bufio.Reader) bool
	end      func(net.Conn)
	accepted atomic.Int32

	mu    sync.Mutex
	times map[string]int
	rnd   *rand.Rand
}

func newExecuting(keep func(*executing, net.Conn, *bufio.Reader) bool, end func(net.Conn)) *executing {
	return &executing{keep: keep, end: end, times: map[string]int{}, rnd: rand.New(rand.NewPCG(72, 72))}
}

// about draws a time that is at most jitter away from d.
func (e *executing) about(d, jitter time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return d - jitter + time.Duration(e.rnd.Int64N(int64(2*jitter)))
}

// listen returns the endpoint's URL. It is served until the test ends.
func (e *executing) listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	ctx := t.Context() // ends before the cleanup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.accepted.Add(1)
			serving.Go(func() {
				defer e.end(c)
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				e.serve(c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return "http://" + l.Addr().String()
}

func (e *executing) serve(c net.Conn) {
	for br := bufio.NewReader(c); e.read(br); {
		if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(goodJSON), goodJSON); err != nil {
			return
		}
		if !e.keep(e, c, br) {
			return
		}
	}
}

// read takes a whole request, which is to execute it.
func (e *executing) read(br *bufio.Reader) bool {
	r, err := http.ReadRequest(br)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.times[r.Header.Get("X-Request-Id")]++
	return true
}

// most is how often the request was executed that was executed most.
func (e *executing) most() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, times := range e.times {
		n = max(n, times)
	}
	return n
}

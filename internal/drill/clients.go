package drill

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/internal/mock"
)

// Clients that leave, read slowly, or send much.
var clientRows = []Row{
	{
		ID:    "R18",
		Fault: "clients that read 1 KB/s of answers of megabytes", Alone: true,
		Promise: "the engine has to wait; memory grows by less than 256 KB for each",
		run:     slowReaders,
		off:     off{defence: "reading no faster than the client does", change: "back_pressure"},
	},
	{
		ID: "R19", Needs: 1,
		Fault:   "clients leave before the first token",
		Promise: "the engine is told within 100 ms",
		run:     leavesBefore,
		off:     off{defence: "watching clients", change: "gone"},
	},
	{
		ID: "R20", Needs: 1,
		Fault:   "clients leave in the middle of a stream",
		Promise: "the engine is told within 100 ms; the tokens until then are recorded, ± 1 %",
		run:     leavesAmid,
		off:     off{defence: "watching clients", change: "gone"},
	},
	{
		ID: "R21", Needs: 1,
		Fault:   "clients leave while a failed request waits to be repeated",
		Promise: "it is not repeated",
		run:     leavesInPause,
		off:     off{defence: "watching clients", change: "gone"},
	},
	{
		ID: "R22", Needs: 1,
		Fault:   "a client closes its sending side after the request (HTTP/1.1)",
		Promise: "as documented: that is leaving, and the engine is told",
		run:     halfClose,
		off:     off{defence: "watching clients", change: "gone"},
	},
	{
		ID: "R23", Alone: true,
		Fault:   "1,000 clients disconnect at once",
		Promise: "/readyz answers within 50 ms (p99), nothing is left behind",
		run:     exodus,
		off:     off{defence: "watching clients", change: "gone"},
	},
	{
		ID: "R65", Alone: true,
		Fault:   "a body of 20 MB whose first attempt fails; then one above max_body",
		Promise: "sent again to the byte, memory bounded; above the limit 413 and no attempt",
		run:     largeBody,
		off:     off{defence: "retries", settings: settings{"retry": settings{"max_attempts": 1}}},
	},
	{
		ID: "R66", Needs: 1,
		Fault:   "two requests with the same request id",
		Promise: "both are served and told apart",
		run:     sameID,
		off:     off{defence: "an id of our own for each request", change: "own_id"},
	},
}

func slowReaders(_ context.Context, b *Bench) (Measured, error) {
	const n, most = 300, 256 << 10
	event := []byte(`data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"` + model + `","choices":[{"index":0,"delta":{"content":"` + strings.Repeat("word ", 800) + `"},"finish_reason":null}]}` + "\n\n")
	f := b.fake("a", func(c *fakeConn, _ int) {
		if !bytes.Contains(c.body, []byte(`"stream":true`)) {
			c.json(http.StatusOK, chatAnswer)
			return
		}
		c.close = true
		c.sse()
		for c.chunk(event) == nil { // as fast as it is taken, without end
		}
	})
	b.serveBy("a", f.url())
	b.set(settings{"models": settings{model: settings{"providers": []settings{{"name": "a", "limits": settings{"tokens": 1 << 30}}}}}})
	x := b.serve()
	b.crowd(x, 2000, 64, request{}) // warm
	ctx, leave := context.WithCancel(b.ctx)
	defer leave()
	var begun, gone sync.WaitGroup
	begun.Add(n)
	var before, after, still int64
	var reading atomic.Int64
	grown := b.grows(x, func() {
		for range n {
			gone.Go(func() { b.sip(ctx, x, &begun, &reading) })
		}
		begun.Wait()
		b.pass(2 * time.Second) // the sockets' buffers fill
		before = f.bytes.Load()
		b.pass(2 * time.Second)
		after, still = f.bytes.Load(), reading.Load()
	})
	leave()
	gone.Wait()
	if still < n {
		return measured("%d of %d clients still read", still, n), brokenf("only %d of %d clients have an answer that they still read", still, n)
	}
	rate := float64(after-before) / 2 / n / 1024
	found := measured("%d clients; memory +%.0f KiB and %.1f KB/s from the engine for each", n, grown/n/1024, rate)
	if rate > 64 {
		return found, brokenf("the engine is read at %.0f KB/s for a client that reads 1 KB/s", rate)
	}
	return found, check(grown/n < most, "memory grew by %.0f KiB per client, at most %d", grown/n/1024, most>>10)
}

// sip reads an answer at 1 KB/s until ctx ends, over a connection whose own buffer is small. It counts in reading while it does.
func (b *Bench) sip(ctx context.Context, x *balancer, begun *sync.WaitGroup, reading *atomic.Int64) {
	b.score.begin()
	defer b.score.running.Add(-1)
	var once sync.Once
	defer once.Do(begun.Done)
	d := net.Dialer{}
	nc, err := d.DialContext(ctx, "tcp", x.host)
	if err != nil {
		return
	}
	defer nc.Close()
	_ = nc.(*net.TCPConn).SetReadBuffer(4096) // a larger one only makes the row weaker
	r := request{model: b.asked(), stream: true, tokens: 8}
	text := r.text()
	fmt.Fprintf(nc, "POST /v1/chat/completions HTTP/1.1\r\nhost: drill\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", len(text), text)
	buf := make([]byte, 1024)
	m, err := nc.Read(buf)
	if err != nil {
		return
	}
	b.score.answered.Add(1)
	if !bytes.HasPrefix(buf[:m], []byte("HTTP/1.1 200 ")) {
		return
	}
	reading.Add(1)
	defer reading.Add(-1)
	once.Do(begun.Done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := nc.Read(buf); err != nil {
			return
		}
	}
}

// noticed is what is promised, and what looking at it every few milliseconds on a busy machine may add.
const noticed = 100*time.Millisecond + 25*time.Millisecond

// leaving sends n requests, and has their clients leave at once when all is prepared. It returns how long it then took
// until no engine worked any more.
func (b *Bench) leaving(x *balancer, n int, r request, prepared func() bool) time.Duration {
	b.http()
	r.limit = 20 * time.Second
	ctx, leave := context.WithCancel(b.ctx)
	defer leave()
	var crowd sync.WaitGroup
	r.ctx = ctx
	for range n {
		crowd.Go(func() { b.ask(x, r) })
	}
	ready := b.until(10*time.Second, prepared)
	if !ready {
		b.stopf("the scene did not come about within 10 s")
	}
	began := time.Now()
	leave()
	b.until(5*time.Second, func() bool { return b.working() == 0 })
	took := time.Since(began)
	crowd.Wait()
	return took
}

// working counts the requests that engines work at.
func (b *Bench) working() (n int) {
	for _, e := range b.engines {
		s := e.Stats()
		n += s.Running + s.Waiting
	}
	return n
}

func leavesBefore(_ context.Context, b *Bench) (Measured, error) {
	const n = 50
	b.fleet(2, mock.Config{BaseLatency: time.Minute})
	x := b.serve()
	worst := time.Duration(0)
	for _, streamed := range []bool{true, false} {
		worst = max(worst, b.leaving(x, n, request{stream: streamed}, func() bool { return b.working() == n }))
	}
	return measured("%d clients left, engines idle after %v", 2*n, worst.Round(time.Millisecond)),
		check(worst <= noticed, "engines worked for %v after their clients had left, at most %v", worst, noticed)
}

func leavesAmid(_ context.Context, b *Bench) (Measured, error) {
	const n = 20
	es := b.fleet(1, mock.Config{InterToken: 2 * time.Millisecond, OutputTokens: 4000})
	x := b.serve()
	sent := func() int64 { return es[0].Stats().OutputTokens }
	worst := b.leaving(x, n, request{stream: true, tokens: 4000}, func() bool { return sent() > 500*n })
	var counted float64
	b.until(2*time.Second, func() bool {
		counted = x.sample().sum("evenkeel_tokens_total", `kind="output"`)
		return x.sample().sum("evenkeel_requests_total", `result="client_gone"`) == n
	})
	apart := math.Abs(counted-float64(sent())) / float64(sent())
	found := measured("engine idle after %v; %.0f tokens recorded of %d sent (%.2f %%)", worst.Round(time.Millisecond), counted, sent(), 100*apart)
	return found, check(worst <= noticed && apart <= 0.01, "engine idle after %v, at most %v; %.0f tokens recorded of %d, ± 1 %%", worst, noticed, counted, sent())
}

func leavesInPause(_ context.Context, b *Bench) (Measured, error) {
	const n = 20
	es := b.fleet(1, mock.Config{})
	b.set(settings{"health_checks": neverTrips})
	x := b.serve()
	b.fault(es[0], mock.Fault{Kind: "status", Status: 500})
	for i := range int64(n) { // one by one: the pause is 100 ms, and a crowd takes about as long to come and to leave
		b.leaving(x, 1, request{}, func() bool { return calls(es[0]) > i })
	}
	b.pass(time.Second)
	later := calls(es[0]) - n
	return measured("%d attempts more in the second after %d clients had left", later, n), check(later == 0, "%d attempts for %d clients", n+later, n)
}

func halfClose(_ context.Context, b *Bench) (Measured, error) {
	b.fleet(1, mock.Config{BaseLatency: 5 * time.Second})
	x := b.serve()
	nc, err := net.Dial("tcp", x.host)
	b.must(err)
	defer nc.Close()
	b.score.begin()
	defer b.score.running.Add(-1)
	r := request{model: b.asked(), stream: true}
	text := r.text()
	fmt.Fprintf(nc, "POST /v1/chat/completions HTTP/1.1\r\nhost: drill\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", len(text), text)
	if !b.until(2*time.Second, func() bool { return b.working() == 1 }) {
		b.stopf("the request did not reach the engine")
	}
	b.must(nc.(*net.TCPConn).CloseWrite())
	began := time.Now()
	b.until(3*time.Second, func() bool { return b.working() == 0 })
	took := time.Since(began)
	_ = nc.SetReadDeadline(time.Now().Add(time.Second)) // whatever comes
	if res, err := http.ReadResponse(bufio.NewReader(nc), nil); err == nil {
		res.Body.Close()
	}
	return measured("engine told after %v", took.Round(time.Millisecond)), check(took <= noticed, "the engine worked on for %v after the client had closed its sending side", took)
}

func exodus(_ context.Context, b *Bench) (Measured, error) {
	const n, most = 1000, 50 * time.Millisecond
	b.fleet(2, mock.Config{InterToken: 200 * time.Millisecond, OutputTokens: 90})
	x := b.serve()
	var conns []net.Conn
	for range n { // they read nothing: a few events fit into any socket
		nc := b.dial(x.host)
		defer nc.Close()
		b.score.begin()
		defer b.score.running.Add(-1)
		r := request{model: b.asked(), stream: true, tokens: 90}
		text := r.text()
		fmt.Fprintf(nc, "POST /v1/chat/completions HTTP/1.1\r\nhost: drill\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", len(text), text)
		conns = append(conns, nc)
	}
	if !b.until(10*time.Second, func() bool { return b.working() == n }) {
		b.stopf("only %d of %d requests reached an engine", b.working(), n)
	}
	probe := b.dial(x.host)
	defer probe.Close()
	answers := bufio.NewReader(probe)
	ready := func() time.Duration {
		began := time.Now()
		fmt.Fprintf(probe, "GET /readyz HTTP/1.1\r\nhost: drill\r\n\r\n")
		res, err := http.ReadResponse(answers, nil)
		b.must(err)
		_, _ = io.Copy(io.Discard, res.Body) // a word
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return time.Hour
		}
		return time.Since(began)
	}
	ready()
	began := time.Now()
	for _, nc := range conns {
		nc.Close()
	}
	idle := time.Duration(0)
	var waits []time.Duration
	for time.Since(began) < 2*time.Second {
		waits = append(waits, ready())
		if idle == 0 && b.working() == 0 {
			idle = time.Since(began)
		}
		b.pass(10 * time.Millisecond)
	}
	p99 := quantile(waits, 0.99)
	found := measured("%d clients left, engines idle after %v; /readyz p99 %v of %d", n, idle.Round(time.Millisecond), p99.Round(100*time.Microsecond), len(waits))
	return found, check(p99 < most && idle > 0, "/readyz p99 %v, at most %v; engines idle after %v", p99, most, idle)
}

func largeBody(_ context.Context, b *Bench) (Measured, error) {
	const size, most = 20 * mib, 100 * mib
	b.set(settings{"strategy": "round_robin"})
	es := b.fleet(2, mock.Config{Record: 4})
	x := b.serve()
	b.fault(es[0], mock.Fault{Kind: "status", Status: 500, Count: 1})
	r := request{model: b.asked(), prompt: strings.Repeat("picture ", size/8)}
	r.body = r.text()
	var t *tally
	grown := b.grows(x, func() { t = b.crowd(x, 2, 1, r) })
	again := t.where(func(a *answer) bool { return a.attempts == 2 })
	found := measured("%d of %d complete, %d after a retry; memory grew by %.0f MiB", t.of(complete), t.total(), again, grown/mib)
	if t.of(complete) < t.total() || again != 1 {
		return found, brokenf("not sent again: %s", t.example())
	}
	for _, e := range es {
		for _, got := range e.Requests() {
			if got.Method == http.MethodPost && !bytes.Equal(got.Body, r.body) {
				return found, brokenf("engine %s got other bytes than the client sent", e.Name())
			}
		}
	}
	asked := calls(es...)
	r.body = append(r.body, bytes.Repeat([]byte(" "), 13*mib)...)
	a := b.crowd(x, 1, 1, r).answers[0]
	if a.status != http.StatusRequestEntityTooLarge || calls(es...) != asked {
		return found, brokenf("%d MiB: status %d (%s) and %d attempts, want 413 and none", len(r.body)/mib, a.status, a.why, calls(es...)-asked)
	}
	return found, check(grown < most, "memory grew by %.0f MiB for a body of %d, at most %d", grown/mib, size/mib, most/mib)
}

func sameID(_ context.Context, b *Bench) (Measured, error) {
	es := b.fleet(2, mock.Config{})
	x := b.serve()
	const id = "drill-duplicate"
	t := b.crowd(x, 2, 2, request{header: map[string]string{"X-Request-Id": id}})
	ids := map[string]bool{}
	for _, a := range t.answers {
		own := a.header.Get("x-evenkeel-id")
		ids[own] = true
		if e := x.explain(own); len(e.Attempts) != 1 {
			return "", brokenf("request %s is remembered with %d attempts", own, len(e.Attempts))
		}
	}
	found := measured("%d served by %d calls, %d ids of ours", t.of(complete), calls(es...), len(ids))
	return found, check(t.of(complete) == 2 && calls(es...) == 2 && len(ids) == 2, "want 2 served, 2 calls and 2 ids: %s", found)
}

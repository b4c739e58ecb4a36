package upstream

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/llm"

	"go.uber.org/goleak"
)

func TestConnectionsAreReused(t *testing.T) {
	server := newFake(t, answering(ok))
	e := server.endpoint(t)
	for range 100 {
		mustFetch(t, e, post("{}"))
	}
	if n := server.accepted.Load(); n != 1 {
		t.Errorf("%d connections for 100 requests in a row, want 1", n)
	}
}

// As many connections as requests at once, and no answer goes to another's request.
func TestConcurrentRequests(t *testing.T) {
	server := newFake(t, func(_ int64, p *peer) {
		for {
			r, body := p.request()
			if r == nil {
				return
			}
			p.say("HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + string(body))
		}
	})
	e := server.endpoint(t)
	const workers = 16
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range 50 {
				want := strings.Repeat(strconv.Itoa(w*1000+i)+" ", 1+i%7*3000)
				if _, body, err := fetch(within(t), e, post(want)); err != nil || body != want {
					t.Errorf("worker %d: %d bytes, %v, want its own %d", w, len(body), err, len(want))
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d connections for %d requests of up to 90 kB by %d at once", server.accepted.Load(), workers*50, workers)
}

func TestIdleConnectionsEnd(t *testing.T) {
	server := newFake(t, answering(ok))
	e := server.endpoint(t)
	p := e.pool
	p.idleTimeout = 50 * time.Millisecond
	for range 2 { // the timer starts again
		a, _ := do(within(t), e, post("{}"))
		b, _ := do(within(t), e, post("{}"))
		for _, res := range []*http.Response{a, b} {
			_, _ = io.Copy(io.Discard, res.Body)
		}
		eventually(t, "idle connections end", func() bool { return server.connections() == 0 && idling(e) == 0 })
		p.mu.Lock()
		if p.sweeping != nil {
			t.Error("the timer goes on for nothing")
		}
		p.mu.Unlock()
	}
}

// The sweep ends what is old, keeps what is not, and comes back for it.
func TestSweepKeepsTheYoung(t *testing.T) {
	server := newFake(t, answering(ok))
	e := server.endpoint(t)
	p := e.pool
	p.idleTimeout = time.Hour
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
	p.mu.Lock()
	for _, c := range p.idle[:2] {
		c.idleSince = c.idleSince.Add(-time.Hour)
	}
	p.mu.Unlock()
	p.sweep()
	if n := idling(e); n != 1 {
		t.Fatalf("%d left, want 1", n)
	}
	if p.sweeping == nil {
		t.Error("nobody comes back for it")
	}
	eventually(t, "two connections end", func() bool { return server.connections() == 1 })
	mustFetch(t, e, post("{}"))
	if n := server.accepted.Load(); n != 3 {
		t.Errorf("%d connections, want the third used again", n)
	}
}

// One that is older than allowed is not used even if the sweep is late.
func TestOldConnectionIsNotUsed(t *testing.T) {
	server := newFake(t, answering(ok))
	e := server.endpoint(t)
	mustFetch(t, e, post("{}"))
	c := e.pool.idle[0]
	c.idleSince = c.idleSince.Add(-idleTimeout)
	mustFetch(t, e, post("{}"))
	if n := server.accepted.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// closing counts how many connections were closed.
type closing struct {
	net.Conn
	closed *atomic.Int64
}

func (c closing) Close() error { c.closed.Add(1); return nil }

func TestMaxIdle(t *testing.T) {
	p := &pool{idleTimeout: time.Hour}
	var closed atomic.Int64
	for range maxIdle + 10 {
		p.open++
		p.put(newConn(p, &socket{Conn: closing{closed: &closed}}, nil))
	}
	if len(p.idle) != maxIdle || closed.Load() != 10 {
		t.Errorf("%d kept and %d closed, want %d and 10", len(p.idle), closed.Load(), maxIdle)
	}
	p.closeIdle()
	if len(p.idle) != 0 || closed.Load() != maxIdle+10 || p.sweeping != nil {
		t.Errorf("%d kept and %d closed after closeIdle", len(p.idle), closed.Load())
	}
}

// Close ends what is unused; a running answer goes on.
func TestClose(t *testing.T) {
	server := newFake(t, answering(ok))
	e := server.endpoint(t)
	running, err := do(within(t), e, post("{}"))
	if err != nil {
		t.Fatal(err)
	}
	mustFetch(t, e, post("{}"))
	e.Close()
	eventually(t, "the unused one ends", func() bool { return server.connections() == 1 })
	if body, err := io.ReadAll(running.Body); err != nil || string(body) != "ok" {
		t.Errorf("the running answer is %q, %v", body, err)
	}
	e.Close()
	eventually(t, "the other ends", func() bool { return server.connections() == 0 })
}

// A server that closes its idle connections just when requests come: no request fails for good, none is
// executed twice. The server of this test executes what it has read.
func TestServerClosesIdleConnections(t *testing.T) {
	const requests, pause = 500, 5 * time.Millisecond
	var mu sync.Mutex
	executed := map[string]int{}
	server := newFake(t, func(n int64, p *peer) {
		random := rand.New(rand.NewPCG(72, uint64(n)))
		for {
			r, _ := p.request()
			if r == nil {
				return
			}
			mu.Lock()
			executed[r.Header.Get("X-Request-Id")]++
			mu.Unlock()
			p.say(ok)
			_ = p.SetReadDeadline(time.Now().Add(pause - time.Millisecond + time.Duration(random.IntN(2000))*time.Microsecond))
			if _, err := p.br.Peek(1); err != nil {
				return
			}
			_ = p.SetReadDeadline(time.Time{})
		}
	})
	e := server.endpoint(t)
	body := strings.Repeat("x", 100_000)
	every := time.NewTicker(pause)
	defer every.Stop()
	stale := 0
	for i := range requests {
		<-every.C
		for again := true; again; {
			r := post(body)
			r.Header.Set("X-Request-Id", strconv.Itoa(i))
			_, answer, err := fetch(within(t), e, r)
			var failed *Error
			if again = errors.As(err, &failed) && failed.Class == llm.Stale; again {
				stale++
			} else if err != nil || answer != "ok" {
				t.Fatalf("request %d: %q, %v", i, answer, err)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for id, n := range executed {
		if n != 1 {
			t.Errorf("request %s was executed %d times", id, n)
		}
	}
	if len(executed) != requests {
		t.Errorf("%d requests were executed, want %d", len(executed), requests)
	}
	t.Logf("%d connections, %d of them stale when used", server.accepted.Load(), stale)
	if n := server.accepted.Load(); n < 3 { // some 80 of 150, fewer where others keep the machine busy
		t.Errorf("%d connections: the server hardly closed any", n)
	}
}

// mixed serves what the path asks for.
func mixed(_ int64, p *peer) {
	for {
		r, err := http.ReadRequest(p.br)
		if err != nil {
			return
		}
		if r.URL.Path == "/refuse" {
			p.say("HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		switch r.URL.Path {
		case "/ok":
			p.say(ok)
		case "/chunked":
			p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
		case "/close":
			p.say("HTTP/1.1 200 OK\r\n\r\nok")
			return
		case "/cut":
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
			return
		case "/garbage":
			p.say("garbage\r\n\r\n")
		case "/twice":
			p.say(ok + ok)
		case "/reset":
			p.reset()
			return
		case "/hang":
			p.untilGone()
		case "/stall":
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
			p.untilGone()
		}
	}
}

// After any mixture of outcomes, at once and in a row, no goroutine, no descriptor and no timer is left.
func TestNothingLeaks(t *testing.T) {
	before, countable := descriptors()
	server := newFake(t, mixed)
	e := server.endpoint(t)
	paths := []string{"/ok", "/chunked", "/close", "/cut", "/garbage", "/twice", "/reset", "/hang", "/stall", "/refuse"}
	const workers, each = 8, 125
	var ended [10]atomic.Int64 // by path, those with a whole answer
	var all sync.WaitGroup
	for w := range workers {
		random := rand.New(rand.NewPCG(1, uint64(w)))
		all.Go(func() {
			for range each {
				which := random.IntN(len(paths))
				timeout := patience
				if which == 7 || which == 8 {
					timeout = 5 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				r := post(strings.Repeat("x", []int{2, 1 << 10, 200 << 10}[random.IntN(3)]))
				r.Path = paths[which]
				_, _, err := fetch(ctx, e, r)
				if ctx.Err() != nil && timeout == patience {
					t.Errorf("%s hung", r.Path)
				}
				if err == nil {
					ended[which].Add(1)
				}
				cancel()
			}
		})
	}
	all.Wait()
	for i, path := range paths {
		t.Logf("%-9s %d whole answers", path, ended[i].Load())
		if bad := strings.Contains("/cut/garbage/reset/hang/stall", path); bad && ended[i].Load() > 0 {
			t.Errorf("%s was taken for a whole answer %d times", path, ended[i].Load())
		}
	}
	e.Close()
	server.stop()
	goleak.VerifyNone(t)
	if countable {
		eventually(t, "descriptors are closed", func() bool {
			after, _ := descriptors()
			return after <= before
		})
	}
}

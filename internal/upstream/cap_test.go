package upstream

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/internal/llm"
)

// capped is a fake's endpoint with a bound of connections.
func capped(t *testing.T, f *fake, most int) *Endpoint {
	t.Helper()
	e, err := New(Options{Name: "fake", URL: "http://" + f.Addr().String(), MaxConnections: most})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// accounted checks that a pool at rest counts what it has.
func accounted(t *testing.T, p *pool) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != len(p.idle) || p.waiting.Len() != 0 {
		t.Errorf("%d open, %d idle, %d waiting", p.open, len(p.idle), p.waiting.Len())
	}
}

// Never more connections than allowed, every request is served, and the connections are used again.
func TestCapHolds(t *testing.T) {
	const most, workers, each = 4, 32, 25
	var now, highest atomic.Int64
	server := newFake(t, func(_ int64, p *peer) {
		n := now.Add(1)
		defer now.Add(-1)
		for h := highest.Load(); n > h && !highest.CompareAndSwap(h, n); h = highest.Load() {
		}
		answering(ok)(0, p)
	})
	e := capped(t, server, most)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range each {
				if _, body, err := fetch(within(t), e, post("{}")); err != nil || body != "ok" {
					t.Errorf("%q, %v", body, err)
				}
			}
		})
	}
	all.Wait()
	if h, n := highest.Load(), server.accepted.Load(); h > most || n > most {
		t.Errorf("%d connections at one time, %d in all, want at most %d", h, n, most)
	}
	accounted(t, e.pool)
}

// In a bubble of synctest: waiters get their turn in the order in which they came, with the very connection that
// became free, or with the right to make one when a connection ended.
func TestCapIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{idleTimeout: time.Hour, most: 1}
		if c, w := p.take(); c != nil || w != nil {
			t.Fatal("no right to make the first connection")
		}
		first := newConn(p, &socket{Conn: closing{closed: new(atomic.Int64)}}, nil)
		var order []int
		turns := make(chan *conn)
		for i := range 5 {
			go func() { // ends after its turn
				var stop Stop
				_, w := p.take()
				c, err := w.wait(&stop)
				if err != nil {
					t.Error(err)
				}
				order = append(order, i)
				turns <- c
			}()
			synctest.Wait() // it has its place
		}
		give := func() { p.put(first) }
		for i, want := range []*conn{first, first, nil, nil, first} {
			if give(); <-turns != want {
				t.Errorf("turn %d: not what was given", i)
			}
			switch {
			case i == 1 || i == 2:
				give = p.freed
			case i == 3:
				give = func() { p.put(first) }
			}
		}
		for i, n := range order {
			if i != n {
				t.Errorf("order %v", order)
				break
			}
		}
		p.put(first)
		accounted(t, p)
		p.closeIdle()
		if p.open != 0 {
			t.Errorf("%d open after the end", p.open)
		}
	})
}

// A request that waits for its turn ends when it is cancelled, as one that was never sent.
func TestCancelWhileWaitingForAConnection(t *testing.T) {
	e := capped(t, newFake(t, answering(ok)), 1)
	running, err := do(within(t), e, post("{}"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	go func() { // ends once the call waits
		eventually(t, "it waits", func() bool {
			e.pool.mu.Lock()
			defer e.pool.mu.Unlock()
			return e.pool.waiting.Len() == 1
		})
		cancel()
	}()
	_, err = do(ctx, e, post("{}"))
	mustFail(t, err, llm.None, false, false)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if body, err := io.ReadAll(running.Body); err != nil || string(body) != "ok" {
		t.Errorf("the running answer is %q, %v", body, err)
	}
	accounted(t, e.pool)
	mustFetch(t, e, post("{}"))
}

// Whatever is cancelled and whatever breaks at whichever moment, no turn is lost: in the end the pool counts
// right and serves.
func TestCapLosesNoTurn(t *testing.T) {
	server := newFake(t, func(n int64, p *peer) {
		for i := int64(0); ; i++ {
			if r, _ := p.request(); r == nil {
				return
			}
			switch (n + i) % 7 {
			case 3:
				return
			case 5:
				p.say("garbage\r\n\r\n")
			default:
				p.say(ok)
			}
		}
	})
	e := capped(t, server, 2)
	var all sync.WaitGroup
	for w := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(5, uint64(w)))
			for range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(3000))*time.Microsecond)
				res, err := do(ctx, e, post("{}"))
				if err == nil {
					if random.IntN(2) == 0 {
						_, _ = io.Copy(io.Discard, res.Body)
					}
					_ = res.Body.Close()
				}
				cancel()
			}
		})
	}
	all.Wait()
	accounted(t, e.pool)
	for range 20 {
		if _, _, err := fetch(within(t), e, post("{}")); err != nil {
			var failed *Error
			if !errors.As(err, &failed) || failed.Class == llm.None {
				t.Fatalf("a request hung: %v", err)
			}
		}
	}
	accounted(t, e.pool)
}

// A connection that could not be made leaves its place to the next.
func TestCapAfterFailedDials(t *testing.T) {
	server := newFake(t, answering(ok))
	e := capped(t, server, 1)
	server.stop()
	for range 3 {
		_, err := do(within(t), e, post("{}"))
		mustFail(t, err, llm.Connect, true, false)
	}
	accounted(t, e.pool)
}

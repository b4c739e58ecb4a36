package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/llm"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for; nothing waits that long unless it fails.
const patience = 10 * time.Second

// fake is a server of bytes: serve gets each connection, the first as number 1, and closes it by returning.
type fake struct {
	*net.TCPListener
	accepted atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
	done  sync.WaitGroup
}

func newFake(t testing.TB, serve func(n int64, c *peer)) *fake {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{TCPListener: l, conns: map[net.Conn]bool{}}
	f.done.Go(func() {
		for {
			raw, err := l.AcceptTCP()
			if err != nil {
				return
			}
			n := f.accepted.Add(1)
			f.note(raw, true)
			f.done.Go(func() {
				defer f.note(raw, false)
				defer raw.Close()
				serve(n, &peer{TCPConn: raw, br: bufio.NewReader(raw)})
			})
		}
	})
	t.Cleanup(f.stop)
	return f
}

func (f *fake) note(c net.Conn, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if open {
		f.conns[c] = true
	} else {
		delete(f.conns, c)
	}
}

// stop ends all connections and waits for what serves them.
func (f *fake) stop() {
	_ = f.Close()
	f.mu.Lock()
	for c := range f.conns {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.done.Wait()
}

// connections is how many are open as the server sees it.
func (f *fake) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// endpoint makes one for the fake and closes it with the test.
func (f *fake) endpoint(t testing.TB) *Endpoint {
	t.Helper()
	e, err := New(Options{Name: "fake", URL: "http://" + f.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// peer is the server's side of a connection.
type peer struct {
	*net.TCPConn
	br *bufio.Reader
}

// request reads a whole request and returns it with its body; nil when the client is gone.
func (p *peer) request() (*http.Request, []byte) {
	r, err := http.ReadRequest(p.br)
	if err != nil {
		return nil, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil
	}
	return r, body
}

func (p *peer) say(answer string) { _, _ = io.WriteString(p.TCPConn, answer) }

// reset ends the connection with RST.
func (p *peer) reset() {
	_ = p.SetLinger(0)
	_ = p.Close()
}

// untilGone waits for the client to close.
func (p *peer) untilGone() { _, _ = io.Copy(io.Discard, p.br) }

// answering is a server that reads requests and answers each with the same bytes, for as long as the client stays.
func answering(answer string) func(int64, *peer) {
	return func(_ int64, p *peer) {
		for {
			if r, _ := p.request(); r == nil {
				return
			}
			p.say(answer)
		}
	}
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func post(body string) *Request {
	return &Request{Method: "POST", Path: "/v1/chat/completions", Header: http.Header{}, Body: [3][]byte{[]byte(body)}}
}

// within returns a context that ends after patience, so that a hang fails instead of blocking.
func within(t testing.TB) context.Context {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	t.Cleanup(stop)
	return ctx
}

// do is e.Do with a context in place of a Stop.
func do(ctx context.Context, e *Endpoint, r *Request) (*http.Response, error) {
	stop := new(Stop)
	if ctx.Err() != nil {
		stop.Cancel()
	}
	context.AfterFunc(ctx, stop.Cancel)
	return e.Do(stop, r)
}

// fetch sends a request and reads the whole answer. The error is that of Do or of the body.
func fetch(ctx context.Context, e *Endpoint, r *Request) (*http.Response, string, error) {
	res, err := do(ctx, e, r)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res, string(body), err
}

// mustFetch is fetch where an answer is certain.
func mustFetch(t *testing.T, e *Endpoint, r *Request) (*http.Response, string) {
	t.Helper()
	res, body, err := fetch(within(t), e, r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.Path, err)
	}
	return res, body
}

// mustFail checks what kind of error err is.
func mustFail(t *testing.T, err error, class llm.Class, unreachable, sent bool) {
	t.Helper()
	var failed *Error
	if !errors.As(err, &failed) {
		t.Fatalf("error %v, want an *Error of class %v", err, class)
	}
	if failed.Class != class || failed.Unreachable != unreachable || failed.Sent != sent {
		t.Errorf("class %v, unreachable %v, sent %v, want %v, %v, %v (%v)",
			failed.Class, failed.Unreachable, failed.Sent, class, unreachable, sent, failed.Err)
	}
}

// eventually polls a condition that goroutines of the kernel or of another side bring about.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// idling is how many unused HTTP/1.1 connections an endpoint keeps.
func idling(e *Endpoint) int {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	return len(e.pool.idle)
}

// lastIdle is the idle connection that the next request gets, or nil.
func lastIdle(e *Endpoint) *conn {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	if n := len(e.pool.idle); n > 0 {
		return e.pool.idle[n-1]
	}
	return nil
}

// usable reports whether an idle connection would be used for a request.
func usable(c *conn) bool {
	if c.tls != nil {
		return c.young() && c.silent()
	}
	_, err := c.sock.readNow(c.look[:])
	return c.young() && err == errNothing
}

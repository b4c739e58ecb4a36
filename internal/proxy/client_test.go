package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/exchange"
)

// watching connects to a front of a world's that keeps connections.
func (w *world) watching() net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.serve(&http.Server{Handler: w.proxy}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

func ask(c net.Conn, body string) {
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// pair is a connection as a Listener of that patience accepts it, and the client's side.
func pair(t *testing.T, patience time.Duration) (net.Conn, net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientListener{l, patience}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), client.Close() })
	return c, client
}

// A client that takes nothing would hold a request's memory, its connection and a drain for ever: whatever is written to it
// is given up, if nobody has set a deadline of its own.
func TestClientThatTakesNothing(t *testing.T) {
	const size = 8 << 20 // more than the sockets hold while nobody reads
	c, _ := pair(t, 50*time.Millisecond)
	if n, err := c.Write(make([]byte, size)); !errors.Is(err, os.ErrDeadlineExceeded) || n == size {
		t.Errorf("a write to who takes nothing: %d bytes, %v", n, err)
	}

	c, client := pair(t, time.Hour)
	_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.Write(make([]byte, size)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write with a deadline: %v", err)
	}
	_ = c.SetWriteDeadline(time.Time{})
	go io.Copy(io.Discard, client) // ends with the test
	if n, err := c.Write(make([]byte, size)); n != size || err != nil {
		t.Errorf("a write that has to wait: %d bytes, %v", n, err)
	}
	// The deadline of a wait that is over is not that of what follows.
	c, client = pair(t, 200*time.Millisecond)
	go io.Copy(io.Discard, client) // ends with the test
	for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
		if n, err := c.Write(make([]byte, size)); n != size || err != nil {
			t.Fatalf("a write to who reads: %d bytes, %v", n, err)
		}
	}
}

// Who leaves is noticed although nothing reads from its connection and nothing is written to it: after a closed
// connection, a broken one, a closed half, and also where more than the request was sent before.
func TestClientThatLeavesIsNoticed(t *testing.T) {
	for name, leave := range map[string]func(net.Conn){
		"FIN": func(c net.Conn) { _ = c.Close() }, "RST": reset,
		"half": func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() },
		"pipelined": func(c net.Conn) {
			ask(c, chatBody)
			_ = c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "pipelined" && !canWatch {
				t.Skip("net/http sees only the first byte of what a client sends in addition")
			}
			asked, gone := make(chan struct{}), make(chan struct{}, 1)
			w := newWorld(t, options{}, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // net/http watches only once it is read
				close(asked)
				<-r.Context().Done()
				gone <- struct{}{}
			})
			c := w.watching()
			ask(c, chatBody)
			<-asked
			leave(c)
			within(t, "upstream being left", gone)
			if r := w.record(1); r.Result != exchange.ClientGone || r.Status != statusClientGone {
				t.Errorf("%s %d", r.Result, r.Status)
			}
			if name == "half" { // silence must not pass for an empty answer
				if b, err := io.ReadAll(c); len(b) > 0 {
					t.Errorf("who still reads gets %q (%v)", b, err)
				}
			}
			w.idle()
		})
	}
}

// A client that stays is not given up, however often its connection is used, whether watched or not.
func TestClientsThatStayAreServed(t *testing.T) {
	var wait time.Duration
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		time.Sleep(wait)
		jsonAnswer(200, goodJSON)(rw, r)
	})
	c := w.watching()
	br := bufio.NewReader(c)
	for i := range 60 {
		wait = 0
		if i%20 == 10 {
			wait = 2 * lastsFrom // long enough to be watched
		}
		if i%7 == 3 { // one that no call serves comes between
			fmt.Fprint(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
			readWhole(t, br)
		}
		ask(c, chatBody)
		if got := readWhole(t, br); got != goodJSON {
			t.Fatalf("request %d: %q", i, got)
		}
	}
	for i := range 60 {
		if r := w.record(i + 1); r.Result != exchange.Complete {
			t.Fatalf("record %d: %s", i+1, r.Result)
		}
	}
	w.idle()
}

func readWhole(t *testing.T, br *bufio.Reader) string {
	t.Helper()
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %v", res.Status, err)
	}
	return string(b)
}

// A call is used for many requests. What comes late of one that has ended, from its timer, its client's watch, its
// ticket or a shutdown, must not reach another.
func TestCallsAreUsedAgainCleanly(t *testing.T) {
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON))
	c := w.watching()
	br := bufio.NewReader(c)
	stop := make(chan struct{})
	var stray sync.WaitGroup
	seen := map[*call]bool{}
	stray.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if c, _ := w.proxy.calls.spare.Get().(*call); c != nil {
				seen[c] = true
				w.proxy.calls.spare.Put(c)
			}
			for c := range seen {
				c.fired()
				c.mu.Lock()
				before := c.epoch - 1
				c.mu.Unlock()
				c.left(before)
				c.poke()
			}
		}
	})
	const requests = 500
	for i := range requests {
		ask(c, chatBody)
		if got := readWhole(t, br); got != goodJSON {
			t.Fatalf("request %d: %q", i, got)
		}
	}
	close(stop)
	stray.Wait()
	for i := range requests {
		if r := w.record(i + 1); r.Result != exchange.Complete || r.Facts.ID == "" {
			t.Fatalf("record %d: %s", i+1, r.Result)
		}
	}
	w.idle()
}

// The deadlines that net/http sets hold, although they reach the socket late.
func TestDeadlinesOfClientsHold(t *testing.T) {
	if !canWatch {
		t.Skip("connections are net/http's own")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = Listener(l)
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 10)
	soon := func() time.Time { return time.Now().Add(20 * time.Millisecond) }
	timesOut := func(what string) {
		t.Helper()
		if n, err := c.Read(b); n != 0 || !isTimeout(err) {
			t.Errorf("%s: read %d bytes, %v", what, n, err)
		}
	}
	_ = c.SetReadDeadline(soon())
	timesOut("a deadline")
	timesOut("a deadline that has passed")
	_ = c.SetReadDeadline(soon())
	timesOut("a later one after it")
	_ = c.SetReadDeadline(time.Now().Add(time.Hour))
	fmt.Fprint(peer, "x")
	if n, err := c.Read(b); n != 1 || err != nil {
		t.Errorf("read %d bytes, %v, want one", n, err)
	}
	_ = c.SetReadDeadline(soon())
	timesOut("an earlier one")
	_ = c.SetReadDeadline(time.Time{})
	read := make(chan error)
	go func() { _, err := c.Read(b); read <- err }()
	for { // until the read waits, so that the deadline must reach it
		cc := c.(*clientConn)
		cc.mu.Lock()
		reading := cc.reading
		cc.mu.Unlock()
		if reading {
			break
		}
		time.Sleep(time.Millisecond)
	}
	_ = c.SetReadDeadline(time.Unix(1, 0))
	if err := <-read; !isTimeout(err) {
		t.Errorf("a read that waits ends with %v, want a timeout", err)
	}
}

func isTimeout(err error) bool {
	return err != nil && strings.Contains(err.Error(), "timeout")
}

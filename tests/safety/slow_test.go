package safety

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/tests/harness"
)

// noise is what a machine that is busy with other tests takes now and then.
const noise = 50 * time.Millisecond

// p99 is the p99 of the time of small requests one after another, which a client who behaves sees.
func p99(t testing.TB, url string, requests int) time.Duration {
	t.Helper()
	c := dial(t, url)
	defer c.Close()
	took := make([]time.Duration, requests)
	for i := range took {
		begun := time.Now()
		c.send(post(chatPath, chatBody))
		if a := c.next("POST"); a.status != 200 {
			t.Fatalf("a client who behaves got %d %s (%v)", a.status, a.body, a.err)
		}
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	return took[requests*99/100]
}

// attack opens connections and keeps them busy by f until it says no, or the connection ends. It returns when each has
// made its first step, and wait returns when the last one has ended.
func attack(t testing.TB, url string, connections int, f func(i, step int, c net.Conn) bool) (wait func() []time.Duration) {
	t.Helper()
	var begun, ended sync.WaitGroup
	lasted := make([]time.Duration, connections)
	for i := range connections {
		c := dial(t, url)
		begun.Add(1)
		ended.Go(func() {
			start := time.Now()
			ok := f(i, 0, c)
			begun.Done()
			for step := 1; ok; step++ {
				ok = f(i, step, c)
			}
			lasted[i] = time.Since(start)
			c.Close()
		})
	}
	begun.Wait()
	return func() []time.Duration { ended.Wait(); slices.Sort(lasted); return lasted }
}

// listenFor waits on a connection for its end, a while at most, and reports whether it is still open.
func listenFor(c net.Conn, d time.Duration) bool {
	c.SetReadDeadline(time.Now().Add(d))
	_, err := io.Copy(io.Discard, c)
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

// othersServed demands that an attack costs clients who behave no more than twice their time, beside noise. What else
// the machine does comes and goes, the attack stays: one good measurement of five is enough.
func othersServed(t *testing.T, url string, calm time.Duration) {
	t.Helper()
	var busy []time.Duration
	for len(busy) < 5 {
		busy = append(busy, p99(t, url, 300))
		if busy[len(busy)-1] <= 2*calm+noise {
			t.Logf("p99 of others: %v without the attack, %v with it", calm, busy)
			return
		}
	}
	t.Errorf("p99 of others is %v, %v without the attack", busy, calm)
}

// TestC01SlowHeads: heads that never end hold a connection for 10 s, and nobody else up.
func TestC01SlowHeads(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	e := serveBefore(t, b)
	calm := p99(t, e.URL, 300)
	wait := attack(t, e.URL, 1000, func(i, step int, c net.Conn) bool {
		if step == 0 {
			io.WriteString(c, "POST "+chatPath+" HTTP/1.1\r\nHost: x\r\n")
		} else if _, err := fmt.Fprintf(c, "X-%d: a\r\n", step); err != nil {
			return false
		}
		return listenFor(c, time.Second)
	})
	othersServed(t, e.URL, calm)
	lasted := wait()
	if first, last := lasted[0], lasted[len(lasted)-1]; first < 5*time.Second || last > 20*time.Second {
		t.Errorf("heads that never ended were waited for between %v and %v, want 10 s", first, last)
	}
	for _, r := range b.take() {
		if r.line != "POST "+chatPath+" HTTP/1.1" || r.body != chatBody {
			t.Fatalf("upstream got\n%s", r.text())
		}
	}
	if n := b.connections(); n > 20 {
		t.Errorf("%d connections upstream", n)
	}
}

// TestC01IdleConnections: connections that never send anything are closed too.
func TestC01IdleConnections(t *testing.T) {
	t.Parallel()
	e := serveBefore(t, newBackend(t))
	wait := attack(t, e.URL, 20, func(i, step int, c net.Conn) bool { return listenFor(c, time.Second) })
	if lasted := wait(); lasted[len(lasted)-1] > 20*time.Second {
		t.Errorf("a connection that sent nothing lasted %v", lasted[len(lasted)-1])
	}
}

// TestC02SlowBodies: a body must come at a rate; a drip ends with 408 within a minute, and nobody upstream is asked.
func TestC02SlowBodies(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	e := serveBefore(t, b)
	calm := p99(t, e.URL, 300)
	b.take()
	var mu sync.Mutex
	ends := map[string]int{}
	wait := attack(t, e.URL, 200, func(i, step int, c net.Conn) bool {
		if step == 0 {
			framing, first := "Content-Length: 1000000", `{`
			if i%2 == 1 {
				framing, first = "Transfer-Encoding: chunked", "fffff\r\n{"
			}
			io.WriteString(c, request("POST "+chatPath+" HTTP/1.1", first, "Content-Type: application/json", framing))
		} else {
			io.WriteString(c, " ") // that it fails shows in what is read
		}
		c.SetReadDeadline(time.Now().Add(time.Second))
		buf := make([]byte, 12)
		n, err := io.ReadFull(c, buf)
		if timeout, ok := err.(net.Error); n == 0 && ok && timeout.Timeout() {
			return true
		}
		mu.Lock()
		ends[string(buf[:n])]++
		mu.Unlock()
		return false
	})
	othersServed(t, e.URL, calm)
	b.take()
	lasted := wait()
	if last := lasted[len(lasted)-1]; last > 75*time.Second {
		t.Errorf("a body that dripped was waited for %v", last)
	}
	if len(ends) != 1 || ends["HTTP/1.1 408"] != 200 {
		t.Errorf("the attackers got %v, want 408", ends)
	}
	if got := b.take(); len(got) != 0 {
		t.Errorf("upstream got %d requests", len(got))
	}
}

// TestC02UnwantedBodies: a request that is refused by its head is answered though its body never comes.
func TestC02UnwantedBodies(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	e := serveBefore(t, b)
	var work sync.WaitGroup
	for _, raw := range []string{
		request("POST /nowhere HTTP/1.1", "", "Content-Length: 1000"), request("POST /livez HTTP/1.1", "", "Content-Length: 1000"), request("POST /readyz HTTP/1.1", "", "Content-Length: 1000"),
		request("POST "+chatPath+" HTTP/1.1", "", "Content-Length: 1000", "Content-Encoding: gzip"), request("POST "+chatPath+" HTTP/1.1", "", "Content-Length: 1000", "Transfer-Encoding: chunked", "Content-Encoding: gzip"),
		request("POST //x HTTP/1.1", "", "Content-Length: 1000"), request("GET /v1/models HTTP/1.1", "", "Content-Length: 1000"), request("POST /v1/models HTTP/1.1", "", "Content-Length: 99999999999"),
		request("POST /nowhere HTTP/1.1", "", "Transfer-Encoding: chunked"), request("GET /v1/models HTTP/1.1", "", "Transfer-Encoding: chunked"),
	} {
		work.Go(func() {
			c := dial(t, e.URL)
			begun := time.Now()
			c.send(raw)
			if a := c.next("POST"); a.status == 0 {
				t.Errorf("%q: no answer: %v", raw, a.err)
			}
			if !c.closed() {
				t.Errorf("%q: the connection stays open", raw)
			}
			if took := time.Since(begun); took > 25*time.Second {
				t.Errorf("%q: it took %v", raw, took)
			}
		})
	}
	work.Wait()
	if got := b.take(); len(got) != 0 {
		t.Errorf("upstream got %d requests", len(got))
	}
}

// TestC03SlowReaders: who takes nothing of an answer is given up after a minute, with what it holds upstream.
func TestC03SlowReaders(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	const slow = 100
	event := "data: " + `{"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"a"}}],"padding":"` + strings.Repeat("a", 16<<10) + `"}` + "\n\n"
	piece := fmt.Sprintf("%x\r\n%s\r\n", len(event), event)
	var pieces atomic.Int64
	b.serve = func(r *received, c net.Conn) bool {
		if !strings.Contains(r.body, `"stream":true`) {
			_, err := io.WriteString(c, jsonAnswer(200, goodAnswer))
			return err == nil
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
			return false
		}
		for range 4 << 10 { // 64 MB, more than any sockets hold
			if _, err := io.WriteString(c, piece); err != nil {
				return false
			}
			pieces.Add(1)
		}
		t.Error("an answer was read to its end that the client did not read")
		return false
	}
	e := serveBefore(t, b)
	calm := p99(t, e.URL, 300)
	streaming := post(chatPath, `{"model":"m","stream":true,"messages":[]}`)
	begun := time.Now()
	for range slow {
		dial(t, e.URL).send(streaming) // and never reads
	}
	harness.Eventually(t, patience, "all stream", func() bool { return e.InFlight(t) == slow })
	before, since := int64(-1), time.Now()
	harness.Eventually(t, patience, "the sockets are full", func() bool {
		if n := pieces.Load(); n != before {
			before, since = n, time.Now()
		}
		return time.Since(since) > time.Second
	})
	othersServed(t, e.URL, calm)
	harness.Eventually(t, 100*time.Second, "those who read nothing are given up", func() bool { return e.InFlight(t) == 0 })
	if took := time.Since(begun); took < 50*time.Second {
		t.Errorf("clients were given up after %v, want a minute", took)
	}
	harness.Eventually(t, patience, "their connections upstream are closed", func() bool { return b.connections() <= 3 })
	if a := ask(t, e.URL, post(chatPath, chatBody)); a.status != http.StatusOK {
		t.Errorf("after it: %d (%v)", a.status, a.err)
	}
}

package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// TestCase85SlowReaders: clients that read nothing, and others that read 10 KB/s, of streams that come as fast as they are
// taken. Times are those of the product divided by fifteen, so that slow readers take as much as there before they could
// be given up.
func TestCase85SlowReaders(t *testing.T) {
	const (
		scale    = 15
		each     = 20 // clients of a kind
		patience = clientPatience / scale
		sip      = 10 << 10 // for each second/scale
	)
	s := &flood{event: delta(strings.Repeat("word ", 800))}
	// What the endpoint takes is held against what clients may take, not against its usual microseconds: those triple
	// when the machine has other work.
	w := newWorld(t, options{health: route.Health{TTFTThreshold: patience}}, s.serve)
	w.proxy.patience = patience

	small := func() time.Duration {
		took := make([]time.Duration, 30)
		for i := range took {
			began := time.Now()
			if a := w.post("/v1/chat/completions", chatBody); a.status != 200 || a.body != goodJSON {
				t.Fatalf("a small request: %d %s", a.status, a.body)
			}
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	w.wholeStream(w.askFor(normal)) // learns a time to the first token
	calm, learned, records := small(), w.deployment(0).TTFT, 31
	before := held()

	var sipping sync.WaitGroup
	began := time.Now()
	for range each {
		w.askFor(stuck) // and never reads
		c := w.askFor(slow)
		sipping.Go(func() {
			if n, err := sipped(c, sip, time.Second/scale); err != nil {
				t.Errorf("a slow reader was cut after %d bytes and %v: %v", n, time.Since(began), err)
			}
		})
	}
	seen, since := int64(-1), time.Now()
	until(t, "upstream has to wait for those who read nothing", func() bool {
		if n := s.stuck.Load(); n != seen {
			seen, since = n, time.Now()
		}
		return seen > 0 && time.Since(since) > 200*time.Millisecond
	})
	running, grown := w.proxy.Running(), (held()-before)/(2*each)
	t.Logf("%d running; memory +%d KiB for each, %d KiB from upstream for each that reads nothing", running, grown>>10, seen/each>>10)
	if running == 2*each && grown > 256<<10 {
		t.Errorf("each slow client holds %d KiB", grown>>10)
	}
	if seen/each > 32<<20 {
		t.Errorf("upstream sent %d MiB for each client that read nothing: it was not slowed", seen/each>>20)
	}

	var reading sync.WaitGroup
	for range each {
		c := w.askFor(normal)
		reading.Go(func() { w.wholeStream(c) })
	}
	reading.Wait()
	// What else the machine does comes and goes: one good measurement of five is enough.
	busy, rounds := small(), 1
	for ; busy > 2*calm+20*time.Millisecond && rounds < 5; rounds++ {
		busy = small()
	}
	if t.Logf("a small request takes %v, %v before", busy, calm); busy > 2*calm+20*time.Millisecond {
		t.Errorf("clients that read slowly cost others: %v for a small request, %v before", busy, calm)
	}
	sipping.Wait()
	w.idle()
	w.judged(records+3*each+30*rounds, each, patience)
	d := w.deployment(0)
	if d.Breaker.State != route.Closed || d.Breaker.Openings != 0 || d.Totals.Faults != 0 || d.TTFT > learned+time.Second {
		t.Errorf("slow clients spoiled what is known of the endpoint: %+v, %d faults, TTFT %v, %v before", d.Breaker, d.Totals.Faults, d.TTFT, learned)
	}
}

// judged demands that of all exchanges those of clients that read nothing, given many, ended by patience and as the
// client's, and all others well; and that no time of a client passes for the endpoint's.
func (w *world) judged(all, given int, patience time.Duration) {
	w.t.Helper()
	w.record(all)
	gone := 0
	for _, r := range w.records {
		o, took := r.Last().Outcome, r.Ended.Sub(r.Started)
		switch r.Result {
		case exchange.Complete:
			if o.Verdict != route.Success {
				w.t.Errorf("a complete answer is judged %v", o.Verdict)
			}
		case exchange.ClientGone:
			if gone++; o.Verdict != route.NotDeploymentFault || o.Class != "client_gone" || r.Status != 200 {
				w.t.Errorf("a client that read nothing: %v %s, status %d", o.Verdict, o.Class, r.Status)
			}
			if took < patience*4/5 || took > patience+3*time.Second {
				w.t.Errorf("a client that read nothing was given up after %v, want %v", took, patience)
			}
		default:
			w.t.Errorf("an exchange ended as %s: %+v", r.Result, o)
		}
		if upstreams := o.ITL * time.Duration(o.OutputTokens-1); r.Facts.MaxOutput == slow && (took < patience || upstreams > took/2) {
			w.t.Errorf("of the %v that a slow reader took, %v pass for upstream's", took, upstreams)
		}
	}
	if gone != given {
		w.t.Errorf("%d clients were given up, want the %d that read nothing", gone, given)
	}
}

// Clients of a flood, as max_tokens tells them apart.
const (
	stuck = 1 + iota
	slow
	normal
)

// flood streams as fast as it is read.
type flood struct {
	event string
	stuck atomic.Int64 // bytes sent to clients that are stuck
}

const floodSize = 1 << 20 // of an answer, but to clients that are stuck

func (s *flood) serve(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	size := floodSize
	switch {
	case !strings.Contains(string(body), `"stream"`):
		jsonAnswer(200, goodJSON)(rw, r)
		return
	case strings.Contains(string(body), fmt.Sprintf(`"max_tokens":%d,`, stuck)):
		size = 200 << 20
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	for sent := 0; sent < size; sent += len(s.event) {
		if _, err := io.WriteString(rw, s.event); err != nil {
			return
		}
		if size > floodSize {
			s.stuck.Add(int64(len(s.event)))
		}
	}
	_, _ = io.WriteString(rw, finishEvent+usageEvent+doneEvent)
}

// askFor sends a request for a stream of a flood over a connection that nobody else uses.
func (w *world) askFor(kind int) net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	body := strings.Replace(streamBody, `"stream"`, fmt.Sprintf(`"max_tokens":%d,"stream"`, kind), 1)
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return c
}

// wholeStream reads a stream of a flood as fast as it comes.
func (w *world) wholeStream(c net.Conn) {
	b, err := io.ReadAll(c)
	if err != nil || len(b) < floodSize || !strings.Contains(string(b[len(b)-100:]), doneEvent) {
		w.t.Errorf("a client that reads got %d bytes of %d (%v)", len(b), floodSize, err)
	}
}

// sipped reads an answer to its end, n bytes at a time.
func sipped(c net.Conn, n int, every time.Duration) (all int, err error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	buf, tail := make([]byte, n), ""
	for {
		<-tick.C
		m, err := io.ReadFull(c, buf)
		all += m
		tail = tail[max(0, len(tail)-100):] + string(buf[max(0, m-100):m])
		switch {
		case err == nil:
		case strings.Contains(tail, doneEvent):
			return all, nil
		default:
			return all, err
		}
	}
}

// held is the memory of this process that is in use.
func held() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

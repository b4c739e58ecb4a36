package proxy

import (
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"evenkeel/internal/exchange"
)

// Of many streams that an upstream answers at once, over connections that are used again and again, none is cut. A
// proxy that passes the request's body on while the answer comes loses a few in ten thousand.
func TestBurstOfFastStreams(t *testing.T) {
	streams, clients := 20000, 32
	if testing.Short() || raceEnabled {
		streams = 2000
	}
	w := newWorld(t, options{strategy: "least_connections"}, sse(healthy), sse(healthy))
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	var left atomic.Int64
	left.Store(int64(streams))
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				res, err := transport.RoundTrip(w.request(t.Context(), "/v1/chat/completions", streamBody))
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if string(body) != healthy || err != nil || res.StatusCode != 200 {
					t.Errorf("got %d %q (%v)", res.StatusCode, body, err)
					return
				}
			}
		})
	}
	all.Wait()
	w.idle()
	for i := range streams {
		if r := w.record(i + 1); r.Result != exchange.Complete || len(r.Attempts) != 1 {
			t.Fatalf("stream %d: %s after %d attempts", i, r.Result, len(r.Attempts))
		}
	}
	for _, d := range w.router.View(w.now()).Deployments {
		if d.Totals.Faults != 0 || d.Totals.Neutral != 0 {
			t.Errorf("%s: %+v", d.ID, d.Totals)
		}
	}
}

// After warm-up a chunk of a stream costs no allocation: from the upstream's socket to the client's.
func TestChunksAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget; make test runs this without it")
	}
	const chunks = 20000
	next, seen := make(chan struct{}), make(chan struct{}, 1)
	chunk := []byte(delta("token"))
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header().Set("Content-Type", "text/event-stream")
		flusher := rw.(http.Flusher)
		for range next {
			_, _ = rw.Write(chunk)
			flusher.Flush()
		}
		_, _ = io.WriteString(rw, finishEvent+doneEvent)
	})
	stub := &countingWriter{stubWriter: newStub(), seen: seen, size: len(chunk)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.proxy.ServeHTTP(stub, stubRequest(t.Context(), streamBody))
	}()
	run := func(n int) {
		for range n {
			next <- struct{}{}
			<-seen
		}
	}
	run(200)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run(chunks)
	runtime.ReadMemStats(&after)
	close(next)
	within(t, "the end of the stream", ended)
	t.Logf("%d allocations in %d chunks", after.Mallocs-before.Mallocs, chunks)
	// The upstream of this test and the runtime allocate now and then; a chunk that did would show as 1.
	if perChunk := float64(after.Mallocs-before.Mallocs) / chunks; perChunk > 0.05 {
		t.Errorf("%.3f allocations per chunk, want 0", perChunk)
	}
	if r := w.record(1); r.Result != exchange.Complete || r.Last().Outcome.OutputTokens != chunks+200 {
		t.Errorf("%s %+v", r.Result, r.Last().Outcome)
	}
}

// countingWriter tells when a chunk has arrived.
type countingWriter struct {
	*stubWriter
	seen  chan struct{}
	size  int
	bytes int
}

func (c *countingWriter) Write(b []byte) (int, error) {
	c.bytes += len(b)
	return len(b), nil
}

func (c *countingWriter) Flush() {
	for ; c.bytes >= c.size; c.bytes -= c.size {
		select {
		case c.seen <- struct{}{}:
		default: // the last events are nobody's turn
		}
	}
}

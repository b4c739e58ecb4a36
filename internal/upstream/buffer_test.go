package upstream

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// A stream that waits for its next token has no buffer, over TLS neither, nor has an idle connection: what it holds
// is far less, with the server's part, which is in the same process.
func TestWaitingStreamsHoldNoBuffer(t *testing.T) {
	token := "8\r\ndata: x\n\r\n"
	script := func(c io.ReadWriter, more <-chan struct{}) {
		room := make([]byte, 512)
		if _, err := c.Read(room); err != nil {
			return
		}
		_, _ = io.WriteString(c, headOfChunks+token)
		<-more
		_, _ = io.WriteString(c, token+"0\r\n\r\n")
		_, _ = c.Read(room) // until it is gone
	}
	f := func(name string, streams int, budget int64, serve func(t *testing.T, script func(io.ReadWriter)) *Endpoint) {
		t.Run(name, func(t *testing.T) {
			more := make(chan struct{})
			e := serve(t, func(c io.ReadWriter) { script(c, more) })
			var before, after runtime.MemStats
			collect(&before)
			waiting, done := make(chan struct{}), make(chan error, streams)
			for range streams {
				go func() { done <- stream(e, waiting) }() // ends with the stream
				<-waiting
			}
			collect(&after)
			if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / int64(streams); each > budget {
				t.Errorf("%d bytes for each stream that waits, budget %d", each, budget)
			} else {
				t.Logf("%d bytes for each stream that waits", each)
			}
			close(more)
			for range streams {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
	f("plain", 200, bufferSize/2, func(t *testing.T, script func(io.ReadWriter)) *Endpoint {
		return newFake(t, func(_ int64, p *peer) { p.br = nil; script(p.TCPConn) }).endpoint(t)
	})
	f("TLS", 50, 3*bufferSize/2, func(t *testing.T, script func(io.ReadWriter)) *Endpoint {
		_, e := secureFake(t, func(c *tls.Conn) { script(c) })
		return e
	})
}

// collect reads how much memory is in use, without what pools have spare.
func collect(m *runtime.MemStats) {
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(m)
}

// stream reads a stream to its end, and says when its first token has come and it waits for the second.
func stream(e *Endpoint, waiting chan<- struct{}) error {
	var stop Stop
	res, err := e.Do(&stop, &Request{Method: "POST", Path: "/", Header: http.Header{}})
	if err != nil {
		waiting <- struct{}{}
		return err
	}
	defer res.Body.Close()
	room := make([]byte, 8)
	_, err = io.ReadFull(res.Body, room)
	waiting <- struct{}{}
	if err == nil {
		Await(res.Body)
		_, err = io.Copy(io.Discard, res.Body)
	}
	return err
}

// A buffer has memory only while it holds something.
func TestBuffer(t *testing.T) {
	var b buffer
	f := func(what, holds string) {
		t.Helper()
		if string(b.bytes()) != holds || b.empty() != (holds == "") || (b.mem == nil) != (holds == "") {
			t.Errorf("%s: it holds %q, memory %v, want %q", what, b.bytes(), b.mem != nil, holds)
		}
	}
	f("at first", "")
	for range 2 {
		b.filled(copy(b.room(), "hello"))
		f("filled", "hello")
		b.skip(0)
		b.skip(2)
		f("partly read", "llo")
		b.skip(3)
		f("read", "")
		b.skip(0)
		b.room()
		b.filled(0)
		f("nothing came", "")
		if n, err := b.readFrom(strings.NewReader("")); n != 0 || err != io.EOF {
			t.Errorf("read %d, %v from nothing", n, err)
		}
		f("at an end", "")
		if n, err := b.readFrom(bytes.NewReader(make([]byte, 2*bufferSize))); n != bufferSize || err != nil {
			t.Errorf("read %d, %v", n, err)
		}
		b.skip(bufferSize)
		f("read again", "")
	}
}

// A chunk costs no allocation, neither where many come at once nor where each is waited for.
func TestChunksAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; make test runs this without it")
	}
	next := make(chan struct{})
	token := []byte("8\r\ndata: x\n\r\n")
	e := newFake(t, func(_ int64, p *peer) {
		if r, _ := p.request(); r == nil {
			return
		}
		p.say(headOfChunks)
		for range next {
			_, _ = p.Write(token)
		}
	}).endpoint(t)
	res, err := do(within(t), e, post("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	defer close(next)
	room := make([]byte, 512)
	got := testing.AllocsPerRun(500, func() {
		next <- struct{}{}
		Await(res.Body)
		if n, err := res.Body.Read(room); n != 8 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations per chunk", got)
	}
}

// Over TLS, records that came together are read together, however small, and what does not fit is not lost.
func TestRecordsOfABurst(t *testing.T) {
	f := func(name string, chunks int, first int) {
		t.Helper()
		_, e := secureFake(t, func(c *tls.Conn) {
			for br := bufio.NewReader(c); ; {
				if _, err := http.ReadRequest(br); err != nil {
					return
				}
				all := &joined{Conn: c.NetConn()}
				c.NetConn().(*joinable).to = all
				_, _ = io.WriteString(c, headOfChunks)
				for range chunks {
					_, _ = io.WriteString(c, "f8\r\ndata: "+strings.Repeat("x", 240)+"\n\n\r\n")
				}
				_, _ = io.WriteString(c, "0\r\n\r\n")
				c.NetConn().(*joinable).to = nil
				_, _ = c.NetConn().Write(all.Bytes())
			}
		})
		for range 3 {
			res, err := do(within(t), e, &Request{Method: "POST", Path: "/", Header: http.Header{}})
			if err != nil {
				t.Fatal(err)
			}
			room := make([]byte, bufferSize)
			n, err := res.Body.Read(room)
			if n < first || err != nil && err != io.EOF {
				t.Errorf("%s: the first read got %d bytes, %v, want %d at least", name, n, err, first)
			}
			rest, err := io.ReadAll(res.Body)
			want := strings.Repeat("data: "+strings.Repeat("x", 240)+"\n\n", chunks)
			if got := string(room[:n]) + string(rest); got != want || err != nil {
				t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, len(want))
			}
		}
	}
	f("small", 2, 2*248)
	f("larger than the buffer", 500, 248)
}

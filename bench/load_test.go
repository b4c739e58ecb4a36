package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// serve accepts connections until the test ends, reads requests and lets answer write what follows; false closes the
// connection.
func serve(t *testing.T, answer func(io.Writer) bool) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { // ends when the listener is closed
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { // ends when the client has closed, or answer returns false
				defer nc.Close()
				br := bufio.NewReader(nc)
				for {
					r, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, r.Body); err != nil || !answer(nc) {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

func chunked(pieces ...string) string {
	var b strings.Builder
	b.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, p := range pieces {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(p), p)
	}
	return b.String()
}

// What the bench is for: no way of losing an answer may go unseen.
func TestEveryLossIsSeen(t *testing.T) {
	const stream, other = "data: 1\n\ndata: [DONE]\n\n", "data: 2\n\ndata: [DONE]\n\n"
	want := answers{[]byte(other), []byte(stream)}
	const end = "0\r\n\r\n"
	f := func(name, raw string, complete, lost, changed int, example string) {
		t.Helper()
		address := serve(t, func(w io.Writer) bool {
			_, err := io.WriteString(w, raw)
			return err == nil && strings.HasSuffix(raw, end)
		})
		var left atomic.Int64
		left.Store(3)
		l := newLoad(cell{name: name, concurrency: 1, stream: true}, way{addresses: []string{address}}, want)
		defer l.close()
		l.run(t.Context(), 0, func() bool { return left.Add(-1) >= 0 })
		sum := l.tally()
		if sum.complete != 3*complete || sum.lost != 3*lost || sum.changed != 3*changed || sum.byEngine[1] != sum.complete {
			t.Errorf("%s: %+v, want 3 × (%d complete, %d lost, %d changed)", name, sum, complete, lost, changed)
		}
		if example != "" && (len(sum.examples) == 0 || !strings.Contains(sum.examples[0], example)) {
			t.Errorf("%s: examples %q, want one with %q", name, sum.examples, example)
		}
	}
	f("whole", chunked(stream)+end, 1, 0, 0, "")
	f("in other pieces", chunked(stream[:5], stream[5:9], stream[9:])+end, 1, 0, 0, "")
	f("with a length", fmt.Sprintf("HTTP/1.1 200 OK\r\ncontent-length: %d\r\nConnection: close\r\n\r\n%s", len(stream), stream), 1, 0, 0, "")
	f("a clean end without [DONE]", chunked(stream[:9])+end, 0, 0, 1, "9 bytes that no engine gave")
	f("an error event at the end", chunked(stream[:9], "data: {\"error\":{}}\n\n")+end, 0, 0, 1, "error")
	f("a byte changed", chunked(strings.Replace(stream, "1", "3", 1))+end, 0, 0, 1, "")
	f("no last chunk", chunked(stream), 0, 1, 0, "unexpected EOF")
	f("closed in a chunk", strings.TrimSuffix(chunked(stream), "[DONE]\n\n\r\n"), 0, 1, 0, "unexpected EOF")
	f("closed in the head", "HTTP/1.1 200 OK\r\nTransf", 0, 1, 0, "unexpected EOF")
	f("closed at once", "", 0, 1, 0, "EOF")
	f("an error status", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nnone", 0, 1, 0, "status 502: none")
	f("no framing", "HTTP/1.1 200 OK\r\n\r\n"+stream, 0, 1, 0, "neither a length nor chunks")
}

func TestTimesOfEvents(t *testing.T) {
	gap := make(chan struct{})
	address := serve(t, func(w io.Writer) bool {
		for i, part := range []string{chunked("role\n\n"), "4\r\n1\n\n2\r\n", "2\r\n\n\n\r\n3\r\n3\n\n\r\n", "4\r\nend\n\r\n1\r\n\n\r\n0\r\n\r\n"} {
			if i > 0 {
				<-gap
			}
			if _, err := io.WriteString(w, part); err != nil {
				return false
			}
		}
		return true
	})
	c := newConn(address, nil, cells[0].request())
	defer c.close()
	var at []time.Time
	go func() {
		for range 3 {
			gap <- struct{}{}
		}
	}()
	begun := time.Now()
	err := c.ask(t.Context(), func(n int, when time.Time) {
		if n != len(at) {
			t.Errorf("event %d is called %d", len(at), n)
		}
		at = append(at, when)
	})
	if err != nil || string(c.body) != "role\n\n1\n\n2\n\n3\n\nend\n\n" || len(at) != 5 {
		t.Fatalf("%d events, body %q, %v", len(at), c.body, err)
	}
	for i, when := range at {
		if when.Before(begun) || when.After(time.Now()) || i > 0 && when.Before(at[i-1]) {
			t.Errorf("event %d at %v after the beginning, the one before at %v", i, when.Sub(begun), at[max(i-1, 0)].Sub(begun))
		}
	}
}

func TestRequestsAreWhatTheySay(t *testing.T) {
	for _, c := range cells {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.request())))
		if err != nil {
			t.Fatalf("cell %s: %v", c.name, err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || int64(len(body)) != r.ContentLength || !bytes.HasPrefix(body, []byte(`{"model":"`+c.model+`"`)) || !json.Valid(body) {
			t.Errorf("cell %s: body %.300s, content-length %d, %v", c.name, body, r.ContentLength, err)
		}
		if most := c.prompt + 1000; len(body) < c.prompt || len(body) > most {
			t.Errorf("cell %s: a body of %d bytes, want %d to %d", c.name, len(body), c.prompt, most)
		}
	}
}

func TestClientsStartOneAfterAnother(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoad(cells[0], way{addresses: []string{"127.0.0.1:1"}}, nil)
	var asked atomic.Int64
	l.run(ctx, time.Hour, func() bool { // only the first starts within this test
		asked.Add(1)
		cancel()
		return false
	})
	if n := asked.Load(); n != 1 {
		t.Errorf("%d clients began, want the first alone", n)
	}
}

// Requests on a schedule do not wait for answers: the server gives none before it has as many requests as clients.
func TestScheduleDoesNotWait(t *testing.T) {
	const clients = 20
	var all sync.WaitGroup
	all.Add(clients)
	address := serve(t, func(w io.Writer) bool {
		all.Done()
		all.Wait()
		_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Evenkeel-Id: abc\r\n\r\nok")
		return err == nil
	})
	left := clients
	l := newLoad(cell{concurrency: clients, rate: 10_000}, way{addresses: []string{address}}, answers{[]byte("ok")})
	defer l.close()
	l.run(t.Context(), 0, func() bool { left--; return left >= 0 })
	if sum := l.tally(); sum.complete != clients || sum.wrong() != 0 {
		t.Errorf("%+v, want %d complete", sum, clients)
	}
	for _, c := range l.clients {
		if len(c.answered) != 1 || c.answered[0].id != "abc" {
			t.Errorf("a client kept the IDs %+v of its answers, want abc", c.answered)
		}
	}
}

// One client cannot answer for a million requests a second: what it sends late counts as late.
func TestLateRequestsCount(t *testing.T) {
	address := serve(t, func(w io.Writer) bool {
		_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		return err == nil
	})
	left := 1000
	l := newLoad(cell{concurrency: 1, rate: 1_000_000}, way{addresses: []string{address}}, answers{[]byte("ok")})
	defer l.close()
	l.run(t.Context(), 0, func() bool { left--; return left >= 0 })
	if sum := l.tally(); sum.complete != 1000 || sum.late < 500 || sum.late > 1000 {
		t.Errorf("%+v, want 1000 complete and most of them late", sum)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(chunked("data: 1\n\n", "data: [DONE]\n\n") + "0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"))
	f.Add([]byte("HTTP/1.1 200\r\nContent-Length: 99999999999\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 \r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := newConn("", nil, nil)
		c.br.Reset(bytes.NewReader(raw))
		h, err := readHead(c.br)
		if err != nil {
			return
		}
		events := 0
		if h.chunked {
			err = c.chunks(func(n int, _ time.Time) { events = n + 1 })
		} else {
			err = c.fixed(h.length)
		}
		if len(c.body) > longestAnswer {
			t.Errorf("a body of %d bytes", len(c.body))
		}
		if err == nil && h.chunked && events != bytes.Count(c.body, []byte("\n\n")) {
			t.Errorf("%d events told, %d in the body %q", events, bytes.Count(c.body, []byte("\n\n")), c.body)
		}
	})
}

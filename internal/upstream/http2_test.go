package upstream

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"evenkeel/internal/llm"
)

// Types of HTTP/2 frames, flags and codes that a server of ours needs (RFC 9113 §6, §7).
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway = 0, 1, 3, 4, 6, 7

	flagEndStream, flagEndHeaders, flagAck = 1, 4, 1

	codeNone, codeRefused = 0, 7
)

// h2peer is the server's side of an HTTP/2 connection, frame by frame, so that it can do what no proper server does at will.
type h2peer struct {
	*tls.Conn
	n int // of this connection, the first is 0
}

func (p *h2peer) write(kind, flags byte, stream uint32, payload ...byte) {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	b = binary.BigEndian.AppendUint32(b, stream)
	_, _ = p.Conn.Write(append(b, payload...)) // who asked will see
}

func number(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func (p *h2peer) reset(stream, code uint32) { p.write(frameReset, 0, stream, number(code)...) }

func (p *h2peer) goAway(last, code uint32) {
	p.write(frameGoAway, 0, 0, append(number(last), number(code)...)...)
}

// head answers with status 200 and no body yet: the one octet is its entry in HPACK's static table.
func (p *h2peer) head(stream uint32) { p.write(frameHeaders, flagEndHeaders, stream, 0x88) }

func (p *h2peer) end(stream uint32, body string) {
	p.write(frameData, flagEndStream, stream, []byte(body)...)
}

// serve reads frames until the client has gone, and calls asked for each request that came whole, with its body.
func (p *h2peer) serve(asked func(p *h2peer, stream uint32, body string)) {
	defer p.Close()
	preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	if _, err := io.ReadFull(p.Conn, preface); err != nil {
		return
	}
	p.write(frameSettings, 0, 0)
	bodies := map[uint32]string{}
	for {
		var h [9]byte
		if _, err := io.ReadFull(p.Conn, h[:]); err != nil {
			return
		}
		payload := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
		if _, err := io.ReadFull(p.Conn, payload); err != nil {
			return
		}
		kind, flags, stream := h[3], h[4], binary.BigEndian.Uint32(h[5:])
		switch {
		case kind == frameSettings && flags&flagAck == 0:
			p.write(frameSettings, flagAck, 0)
		case kind == framePing && flags&flagAck == 0:
			p.write(framePing, flagAck, 0, payload...)
		case kind == frameData:
			bodies[stream] += string(payload)
		}
		if (kind == frameData || kind == frameHeaders) && flags&flagEndStream != 0 {
			asked(p, stream, bodies[stream])
		}
	}
}

// h2server is an endpoint that speaks HTTP/2 as asked says, and nothing else.
func h2server(t *testing.T, asked func(p *h2peer, stream uint32, body string)) *Endpoint {
	t.Helper()
	config := testTLS(t)
	trusted := config.Certificates[0].Leaf
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	work.Go(func() { // ends with l
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			p := &h2peer{c.(*tls.Conn), len(open)}
			open = append(open, c)
			mu.Unlock()
			work.Go(func() { p.serve(asked) }) // ends with c
		}
	})
	e, err := New(Options{Name: "e", URL: "https://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	trust(e, trusted)
	t.Cleanup(func() {
		e.Close()
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		work.Wait()
	})
	return e
}

// A stream that is refused was not looked at, and is sent again, whole.
func TestHTTP2RefusedStreamIsSentAgain(t *testing.T) {
	var mu sync.Mutex
	asked, refused := 0, 0
	e := h2server(t, func(p *h2peer, stream uint32, body string) {
		mu.Lock()
		defer mu.Unlock()
		if asked++; asked%2 == 1 {
			refused++
			p.reset(stream, codeRefused)
			return
		}
		p.head(stream)
		p.end(stream, "for "+body)
	})
	for range 3 {
		if _, body := mustFetch(t, e, post("{1}")); body != "for {1}" {
			t.Errorf("body %q", body)
		}
	}
	if refused != 3 {
		t.Errorf("%d streams were refused", refused)
	}
}

// What is refused again is for another endpoint, and soon: nothing of it was looked at.
func TestHTTP2RefusedAgain(t *testing.T) {
	var asked atomic.Int64
	e := h2server(t, func(p *h2peer, stream uint32, _ string) {
		asked.Add(1)
		p.reset(stream, codeRefused)
	})
	for range 2 { // also over a connection that was used before
		_, err := do(within(t), e, post("{}"))
		mustFail(t, err, llm.Reset, false, false)
	}
	if n := asked.Load(); n != 4 {
		t.Errorf("it was asked %d times, want twice each", n)
	}
}

// A connection that the server ends: streams up to the last that it names finish, others are sent again over another one.
func TestHTTP2GoAway(t *testing.T) {
	running := make(chan struct{})
	finish := make(chan func(), 1)
	e := h2server(t, func(p *h2peer, stream uint32, body string) {
		switch {
		case body == "{slow}":
			p.head(stream)
			p.write(frameData, 0, stream, []byte("begun ")...)
			finish <- func() { p.end(stream, "ended") }
			close(running)
		case p.n == 0:
			p.goAway(1, codeNone) // the slow one is number 1; this one was not looked at
		default:
			p.head(stream)
			p.end(stream, "for "+body)
		}
	})
	type answer struct {
		body string
		err  error
	}
	slow := make(chan answer, 1)
	go func() { // ends with its answer
		_, body, err := fetch(within(t), e, post("{slow}"))
		slow <- answer{body, err}
	}()
	<-running
	for range 3 {
		if _, body := mustFetch(t, e, post("{2}")); body != "for {2}" {
			t.Errorf("body %q", body)
		}
	}
	(<-finish)()
	if a := <-slow; a.err != nil || a.body != "begun ended" {
		t.Errorf("the stream before: %q, %v", a.body, a.err)
	}
}

package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/mock"
	"evenkeel/tests/certs"
)

// overHTTP2 runs a test with clients that speak HTTP/2: over TLS, and without. The test starts the App with its settings.
func overHTTP2(t *testing.T, test func(t *testing.T, start func(settings string) *world)) {
	t.Run("tls", func(t *testing.T) {
		ca := certs.NewAuthority(t, "ours")
		cert, key := ca.Local(t).Write(t, t.TempDir(), "server")
		test(t, func(settings string) *world {
			return startTLS(t, parse(t, fmt.Sprintf("tls: {cert: %s, key: %s}\n", cert, key)+settings), &tls.Config{RootCAs: ca.Pool()})
		})
	})
	t.Run("h2c", func(t *testing.T) {
		test(t, func(settings string) *world {
			w := start(t, parse(t, "h2c: true\n"+settings))
			if a := w.get(w.url + "/livez"); a.status != http.StatusOK || a.proto != "HTTP/1.1" {
				t.Errorf("HTTP/1.1 at the same port: %+v", a)
			}
			w.client.CloseIdleConnections()
			only := &http.Protocols{}
			only.SetUnencryptedHTTP2(true)
			w.client.Transport = byHost{host(w.url), &http.Transport{Protocols: only}, &http.Transport{}}
			return w
		})
	})
}

// byHost asks one host in its own way.
type byHost struct {
	host       string
	way, other *http.Transport
}

func (b byHost) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == b.host {
		return b.way.RoundTrip(r)
	}
	return b.other.RoundTrip(r)
}

func (b byHost) CloseIdleConnections() {
	b.way.CloseIdleConnections()
	b.other.CloseIdleConnections()
}

func TestHTTP2(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}, InterToken: time.Millisecond})
	overHTTP2(t, func(t *testing.T, start func(string) *world) {
		w := start(endpoint(e.URL(), ""))
		w.serves("m")
		if a := w.chat("m"); a.status != http.StatusOK || a.proto != "HTTP/2.0" {
			t.Errorf("%+v", a)
		}
		var many sync.WaitGroup
		for range 60 {
			many.Go(func() {
				if s, err := w.tryStream("m"); err != nil {
					t.Error(err)
				} else {
					w.whole(s)
				}
			})
		}
		many.Wait()
		if got := w.metric("evenkeel_connections", `listener="data"`); got > 2 {
			t.Errorf("%.0f connections for 60 streams at one time", got)
		}
		large := strings.Repeat("x", 5<<20)
		if a := w.do(http.MethodPost, w.url+"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"`+large+`"}]}`); a.status != http.StatusOK {
			t.Errorf("5 MiB: %d %v %.200s", a.status, a.err, a.body)
		}
		if a := w.do(http.MethodPost, w.url+"/v1/chat/completions", strings.Repeat("x", 33<<20)); a.status != http.StatusRequestEntityTooLarge && a.err == nil {
			t.Errorf("33 MiB: %+v", a)
		}
		if a := w.get(w.url+"/livez", "X-Large", strings.Repeat("x", maxHeader+1)); a.err == nil && a.status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a head that is too large: %+v", a)
		}
		if a := w.chat("m"); a.status != http.StatusOK {
			t.Errorf("after that: %+v", a)
		}
	})
}

// A client that takes back its request (RST_STREAM) ends it upstream; its connection and the other streams on it go on.
func TestHTTP2CancelledStream(t *testing.T) {
	overHTTP2(t, func(t *testing.T, start func(string) *world) {
		e := newGated(t, "m")
		w := start(endpoint(e.URL, ""))
		w.serves("m")
		before := e.left.Load()
		stays := w.stream("m")
		var leave []context.CancelFunc
		for _, stream := range []bool{true, true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			leave = append(leave, cancel)
			extra := ""
			if stream {
				extra = streamed
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(body("m", extra)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			go func() { // ends with ctx
				if res, err := w.client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, res.Body) // until it is cancelled
					res.Body.Close()
				}
			}()
		}
		w.await("all run upstream", func() bool { return e.running.Load() == 4 })
		for _, cancel := range leave {
			cancel()
		}
		w.await("three have left upstream", func() bool { return e.left.Load() == before+3 })
		w.await("they are counted as gone", func() bool { return w.metric("evenkeel_requests_total", `result="client_gone"`) == 3 })
		if got := w.metric("evenkeel_connections", `listener="data"`); got > 2 {
			t.Errorf("%.0f connections", got)
		}
		e.open()
		w.whole(stays)
	})
}

func TestHTTP2Drain(t *testing.T) {
	overHTTP2(t, func(t *testing.T, start func(string) *world) {
		e := newGated(t, "m")
		w := start(endpoint(e.URL, "drain_timeout: 60s"))
		w.serves("m")
		s := w.stream("m")
		w.stop()
		w.await("it is not ready", func() bool { return w.get(w.url+"/readyz").status == http.StatusServiceUnavailable })
		e.open()
		w.whole(s)
		w.over()
	})
}

// Frames of HTTP/2 (RFC 9113 §6), for clients that do what none should.
const (
	frameData, frameHeaders, framePriority, frameReset, frameSettings, framePing = 0, 1, 2, 3, 4, 6
	frameWindow, frameContinuation                                               = 8, 9
	endStream, endHeaders                                                        = 1, 4
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(head, stream), payload...)
}

// field is a header in HPACK's plainest form: literal, not indexed, no Huffman code (RFC 7541 §6.2.2).
func field(name, value string) []byte {
	number := func(n int) []byte { // of 7 bits, in one byte or three
		if n < 127 {
			return []byte{byte(n)}
		}
		return []byte{127, byte(n-127)&0x7f | 0x80, byte((n - 127) >> 7)}
	}
	out := append([]byte{0}, number(len(name))...)
	out = append(out, name...)
	return append(append(out, number(len(value))...), value...)
}

// heads is a request's header block.
func heads(method, path string) []byte {
	return slicesOf(field(":method", method), field(":scheme", "http"), field(":authority", "x"), field(":path", path), field("content-type", "application/json"))
}

func slicesOf(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// TestC09Floods lets one client flood its connection in each known way. Others are served all the while, and when it is
// gone, nothing of it is left.
func TestC09Floods(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}, BaseLatency: 50 * time.Millisecond})
	w := start(t, parse(t, "h2c: true\n"+endpoint(e.URL(), "")))
	w.serves("m")
	chat := []byte(body("m", ""))
	const id = 1 // of the first stream
	floods := map[string]func(n uint32) []byte{
		"rapid reset": func(n uint32) []byte { // CVE-2023-44487
			s := id + 2*n
			return slicesOf(frame(frameHeaders, endHeaders, s, heads("POST", "/v1/chat/completions")), frame(frameData, endStream, s, chat), frame(frameReset, 0, s, []byte{0, 0, 0, 8}))
		},
		"made you reset": func(n uint32) []byte { // CVE-2025-8671: the server itself resets
			s := id + 2*n
			return slicesOf(frame(frameHeaders, endHeaders, s, heads("POST", "/v1/chat/completions")), frame(frameData, endStream, s, chat), frame(frameWindow, 0, s, []byte{0, 0, 0, 0}))
		},
		"continuation": func(n uint32) []byte { // CVE-2024-24549 and its like: a head without an end
			if n == 0 {
				return frame(frameHeaders, endStream, id, heads("GET", "/v1/models"))
			}
			return frame(frameContinuation, 0, id, field("x-more", strings.Repeat("x", 1000)))
		},
		"empty continuation": func(n uint32) []byte {
			if n == 0 {
				return frame(frameHeaders, endStream, id, heads("GET", "/v1/models"))
			}
			return frame(frameContinuation, 0, id, nil)
		},
		"settings":      func(uint32) []byte { return frame(frameSettings, 0, 0, nil) },
		"ping":          func(uint32) []byte { return frame(framePing, 0, 0, make([]byte, 8)) },
		"priority":      func(n uint32) []byte { return frame(framePriority, 0, id+2*n, []byte{0, 0, 0, 0, 16}) },
		"window update": func(uint32) []byte { return frame(frameWindow, 0, 0, []byte{0, 0, 0, 1}) },
		"empty data": func(n uint32) []byte {
			if n == 0 {
				return frame(frameHeaders, endHeaders, id, heads("POST", "/v1/chat/completions"))
			}
			return frame(frameData, 0, id, nil)
		},
		"streams that never end": func(n uint32) []byte {
			return frame(frameHeaders, endHeaders, id+2*n, heads("POST", "/v1/chat/completions"))
		},
	}
	goroutines, heap := level()
	for name, piece := range floods {
		t.Run(name, func(t *testing.T) {
			stop, ended := make(chan struct{}), make(chan struct{})
			var sent int
			go func() { // ends with stop
				defer close(ended)
				sent = flood(t, host(w.url), piece, stop)
			}()
			slowest := time.Duration(0)
			for range 8 {
				begun := time.Now()
				if a := w.chat("m"); a.status != http.StatusOK {
					t.Errorf("another client: %+v", a)
				}
				slowest = max(slowest, time.Since(begun))
			}
			close(stop)
			<-ended
			if slowest > 5*time.Second { // the flood has a processor for itself, and this machine may have other work
				t.Errorf("another client waited %v for an answer of 50 ms", slowest)
			}
			if sent < 1000 {
				t.Errorf("only %d pieces were sent: this was no flood", sent)
			}
			t.Logf("%d pieces; the slowest of the others %v", sent, slowest.Round(time.Millisecond))
		})
	}
	w.quiet()
	w.client.CloseIdleConnections()
	w.await("all connections are closed", func() bool { return w.metric("evenkeel_connections", `listener="data"`) == 0 })
	w.await("no more goroutines than before", func() bool { n, _ := level(); return n <= goroutines+5 })
	if _, now := level(); now > heap+32<<20 {
		t.Errorf("the heap grew from %d to %d MiB", heap>>20, now>>20)
	}
}

// level is how many goroutines there are, and how much memory is in use.
func level() (goroutines int, heap uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapInuse
}

// flood sends pieces over one connection, and when that is closed over the next, until stop. It reads nothing, so that
// answers pile up on the other side. It returns how many pieces were sent.
func flood(t *testing.T, address string, piece func(n uint32) []byte, stop <-chan struct{}) (sent int) {
	stopped := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	for !stopped() {
		c, err := net.DialTimeout("tcp", address, patience)
		if err != nil {
			t.Error(err)
			return sent
		}
		out := append([]byte(preface), frame(frameSettings, 0, 0, nil)...)
		for n := uint32(0); n < 1<<30 && !stopped(); n++ {
			if out = append(out, piece(n)...); len(out) < 32<<10 {
				sent++
				continue
			}
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := c.Write(out); err != nil {
				var timeout net.Error
				if errors.As(err, &timeout) && timeout.Timeout() {
					t.Logf("the server stopped reading after %d", n)
				}
				break
			}
			out = out[:0]
		}
		c.Close()
	}
	return sent
}

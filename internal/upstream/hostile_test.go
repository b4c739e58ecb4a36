package upstream

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/secret"
)

// rawRequest is what a server of bytes sees of one request.
type rawRequest struct {
	lengths, codings int
	body             string
}

// rawRequest reads a request without a parser's help: lines up to an empty one, then as much as the one
// Content-Length says.
func (p *peer) rawRequest() (r rawRequest, err error) {
	length := 0
	for first := true; ; first = false {
		line, err := p.br.ReadString('\n')
		if err != nil {
			return r, err
		}
		if line == "\r\n" {
			break
		}
		if !strings.HasSuffix(line, "\r\n") || strings.ContainsAny(line[:len(line)-2], "\r\n\x00") {
			return r, fmt.Errorf("line %q", line)
		}
		if first {
			if strings.Count(line, " ") != 2 || !strings.HasSuffix(line, " HTTP/1.1\r\n") {
				return r, fmt.Errorf("request line %q", line)
			}
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "content-length":
			r.lengths++
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return r, err
			}
		case "transfer-encoding":
			r.codings++
		}
	}
	body := make([]byte, length)
	_, err = io.ReadFull(p.br, body)
	r.body = string(body)
	return r, err
}

// TestC11OneFramingHeader: whatever headers, paths and bodies come, a request has exactly one Content-Length and
// no Transfer-Encoding if it has a body or its method wants one, and neither otherwise; and its body is its body.
func TestC11OneFramingHeader(t *testing.T) {
	const requests = 10_000
	got := make(chan rawRequest, 1)
	e := newFake(t, func(_ int64, p *peer) {
		for {
			r, err := p.rawRequest()
			if err != nil {
				if err != io.EOF && !errors.Is(err, net.ErrClosed) {
					t.Errorf("request cannot be read: %v", err)
				}
				return
			}
			got <- r
			p.say(ok)
		}
	}).endpoint(t)
	random := rand.New(rand.NewPCG(11, 11))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	piece := func() []byte {
		b := make([]byte, random.IntN(1+random.IntN(1+random.IntN(1000))))
		for i := range b {
			b[i] = byte(random.IntN(256))
		}
		return append(b, pick("", "\r\n\r\n", "0\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n")...)
	}
	for i := range requests {
		r := &Request{Method: pick("POST", "POST", "POST", "PUT", "PATCH", "DELETE", "GET", "OPTIONS"), Header: http.Header{}}
		r.Path = pick("/", "/v1/chat/completions", "/a b", "/%", "/x\r\nContent-Length: 7", "/\x00é", "/%0d%0a")
		r.Query = pick("", "a=b", "a b", "x=\r\nTransfer-Encoding: chunked", "\t")
		for range random.IntN(6) {
			name := pick("Content-Length", "Transfer-Encoding", "Te", "Trailer", "Connection", "Expect", "Upgrade", "X-A", "Keep-Alive", "Content_length", "Host")
			value := pick("5", "chunked", "close", "100-continue", "a\r\nContent-Length: 3", "b\nTransfer-Encoding: chunked", "gzip, chunked", "\x00", "", "é", "Content-Length")
			r.Header[name] = append(r.Header[name], value)
		}
		for j := range r.Body {
			if random.IntN(3) > 0 {
				r.Body[j] = piece()
			}
		}
		want := rawRequest{body: string(bytes.Join(r.Body[:], nil))}
		if want.body != "" || r.Method == "POST" || r.Method == "PUT" || r.Method == "PATCH" {
			want.lengths = 1
		}
		if _, _, err := fetch(within(t), e, r); err != nil {
			t.Fatalf("request %d, %+v: %v", i, r, err)
		}
		if g := <-got; g != want {
			t.Fatalf("request %d: %d lengths, %d codings, %d bytes, want %d, 0, %d: %q", i, g.lengths, g.codings, len(g.body), want.lengths, len(want.body), r.Header)
		}
	}
}

// misframed are answers whose framing is wrong, in the head or in the body, each followed by an answer that is
// not one.
var misframed = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\n0\n\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokk\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nbad trailer\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	ok + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
	ok + "\r\n",
}

// TestC12FramingErrorIsNotReused: after an answer whose framing is wrong, or after which something came that
// nobody asked for, the next request goes out on another connection and gets its own answer.
func TestC12FramingErrorIsNotReused(t *testing.T) {
	for _, answer := range misframed {
		server := newFake(t, func(n int64, p *peer) {
			for {
				if r, _ := p.request(); r == nil {
					return
				}
				if n == 1 {
					p.say(answer)
				} else {
					p.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright")
				}
			}
		})
		e := server.endpoint(t)
		_, _, _ = fetch(within(t), e, post("{}"))
		if _, body := mustFetch(t, e, post("{}")); body != "right" || server.accepted.Load() != 2 {
			t.Errorf("%q: the next request got %q on connection %d", answer, body, server.accepted.Load())
		}
	}
}

// Over TLS, what follows an answer may hide in a record that was received and not read yet.
func TestC12SecondAnswerInARecord(t *testing.T) {
	for range 2 {
		var conns atomic.Int64
		_, e := secureFake(t, func(c *tls.Conn) {
			n, br := conns.Add(1), bufio.NewReader(c)
			for {
				r, err := http.ReadRequest(br)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				if n > 1 {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright")
					continue
				}
				// Two records in one write to the socket.
				both := &joined{Conn: c.NetConn()}
				c.NetConn().(*joinable).to = both
				_, _ = io.WriteString(c, ok)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
				c.NetConn().(*joinable).to = nil
				_, _ = c.NetConn().Write(both.Bytes())
			}
		})
		mustFetch(t, e, post("{}"))
		if _, body := mustFetch(t, e, post("{}")); body != "right" || conns.Load() != 2 {
			t.Errorf("the next request got %q on connection %d", body, conns.Load())
		}
	}
}

// joinable is a connection whose writes can be collected.
type joinable struct {
	net.Conn
	to *joined
}

type joined struct {
	net.Conn
	bytes.Buffer
}

func (j *joined) Write(b []byte) (int, error) { return j.Buffer.Write(b) }
func (j *joined) Read(b []byte) (int, error)  { return j.Conn.Read(b) }

func (j *joinable) Write(b []byte) (int, error) {
	if j.to != nil {
		return j.to.Write(b)
	}
	return j.Conn.Write(b)
}

// secureFake is a TLS server of bytes that speaks HTTP/1.1, and an endpoint that trusts it.
func secureFake(t *testing.T, serve func(*tls.Conn)) (*fake, *Endpoint) {
	t.Helper()
	config := testTLS(t)
	server := newFake(t, func(_ int64, p *peer) {
		c := tls.Server(&joinable{Conn: p.TCPConn}, config)
		defer c.Close()
		serve(c)
	})
	e, err := New(Options{Name: "e", URL: "https://" + server.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	trust(e, config.Certificates[0].Leaf)
	return server, e
}

// TestC27ProxyOfTheEnvironmentIsIgnored: requests go to the endpoint, not to what the environment names.
func TestC27ProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	canary := newFake(t, func(int64, *peer) {})
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://"+canary.Addr().String())
	}
	t.Setenv("NO_PROXY", "")
	reached := func(e *Endpoint) {
		t.Helper()
		// A name, since net/http spares the loopback's addresses from the environment's proxy.
		e.pool.dialer.names.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		if _, body := mustFetch(t, e, post("{}")); body != "ok" {
			t.Errorf("body %q", body)
		}
	}
	port := func(a net.Addr) string { return strconv.Itoa(a.(*net.TCPAddr).Port) }

	e, err := New(Options{Name: "e", URL: "http://engine.example:" + port(newFake(t, answering(ok)).Addr())})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	reached(e)
	both(t, func(t *testing.T, http2 bool) {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoAtLeast(2, 0) != http2 {
				t.Errorf("came by %s", r.Proto)
			}
			_, _ = io.WriteString(w, "ok")
		}))
		server.EnableHTTP2, server.TLS = http2, &tls.Config{Certificates: testTLS(t).Certificates}
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		defer server.Close()
		e, err := New(Options{Name: "e", URL: "https://engine.example:" + port(server.Listener.Addr())})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		trust(e, server.Certificate())
		reached(e)
	})
	if n := canary.accepted.Load(); n != 0 {
		t.Errorf("the environment's proxy got %d connections", n)
	}
}

// TestC28NothingIsAddedOrFollowed: no Accept-Encoding is added and no encoding undone, and a redirect is an
// answer like others: the credential does not reach where it points (C29).
func TestC28NothingIsAddedOrFollowed(t *testing.T) {
	canary := newFake(t, answering(ok))
	seen := make(chan http.Header, 1)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, "data")
	_ = z.Close()
	answer := "HTTP/1.1 302 Found\r\nLocation: http://" + canary.Addr().String() + "/\r\nContent-Encoding: gzip\r\nContent-Length: " +
		strconv.Itoa(zipped.Len()) + "\r\n\r\n" + zipped.String()
	server := newFake(t, func(_ int64, p *peer) {
		for {
			r, _ := p.request()
			if r == nil {
				return
			}
			seen <- r.Header
			p.say(answer)
		}
	})
	openai, _ := llm.LookupKind("openai")
	e, err := New(Options{Name: "e", URL: "http://" + server.Addr().String(), Kind: openai, APIKey: secret.New("key")})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	res, body := mustFetch(t, e, &Request{Method: "GET", Path: "/"})
	h := <-seen
	if len(h) != 1 || h.Get("Authorization") != "Bearer key" {
		t.Errorf("headers %q arrived, want the credential alone", h)
	}
	if res.StatusCode != 302 || body != zipped.String() || res.Header.Get("Content-Encoding") != "gzip" || res.Uncompressed {
		t.Errorf("%d, %q, %v", res.StatusCode, body, res.Header)
	}
	if n := canary.accepted.Load(); n != 0 {
		t.Errorf("the redirect's target got %d connections", n)
	}
}

// TestR27GzipBombPassesUntouched: what would be 64 MiB arrives as it was sent.
func TestR27GzipBombPassesUntouched(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = io.CopyN(z, zeros{}, 64<<20)
	_ = z.Close()
	answer := "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(bomb.Len()) + "\r\n\r\n" + bomb.String()
	e := newFake(t, answering(answer)).endpoint(t)
	if _, body := mustFetch(t, e, post("{}")); body != bomb.String() {
		t.Errorf("%d bytes, want the same %d", len(body), bomb.Len())
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// endless says what repeat makes for as long as somebody listens, and tells how many bytes were taken.
func endless(start, repeat string, taken chan<- int) func(int64, *peer) {
	repeat = strings.Repeat(repeat, 1+4096/len(repeat))
	return func(_ int64, p *peer) {
		if r, _ := p.request(); r == nil {
			return
		}
		total, _ := io.WriteString(p.TCPConn, start)
		for {
			n, err := io.WriteString(p.TCPConn, repeat)
			if total += n; err != nil {
				taken <- total
				return
			}
		}
	}
}

// TestR28EndlessHeaders and its like: what never ends is cut at its bound, and its connection with it.
func TestR28EndlessHeaders(t *testing.T) {
	f := func(name, start, repeat string, want error) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			taken := make(chan int, 1)
			server := newFake(t, endless(start, repeat, taken))
			e := server.endpoint(t)
			_, _, err := fetch(within(t), e, post("{}"))
			if err == nil || want != nil && !strings.Contains(err.Error(), want.Error()) {
				t.Errorf("error %v, want %v", err, want)
			}
			<-taken // the server sees the end
			if idling(e) != 0 {
				t.Error("its connection is kept")
			}
		})
	}
	f("one line", "HTTP/1.1 200 OK\r\nX: ", "x", errHeadTooLarge)
	f("long lines", "HTTP/1.1 200 OK\r\n", "X: "+strings.Repeat("x", 2000)+"\r\n", errHeadTooLarge)
	f("short lines", "HTTP/1.1 200 OK\r\n", "X:\r\n", errTooManyFields)
	f("status", "HTTP/1.1 200 ", "x", errHeadTooLarge)
	f("nothing but blanks", "", " ", errHeadTooLarge)
	f("nothing but line ends", "", "\r\n", errStatusLine)
	f("R29, interim answers", "", "HTTP/1.1 100 Continue\r\n\r\n", errInterim)
	f("chunk size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "0", nil)
	f("chunk extension", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", "x", nil)
	f("chunk extensions", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1;"+strings.Repeat("x", 2000)+"\r\nx\r\n", nil)
	f("trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n", errTrailerTooLarge)
	f("trailer line", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", "y", errTrailerTooLarge)
}

// A body that the endpoint does not read does not stand in the way of its answer, nor of the end of the call,
// even where sockets take next to nothing.
func TestBodyThatIsNotRead(t *testing.T) {
	for _, size := range []int{60 << 10, 8 << 20} {
		done, reached := make(chan struct{}), make(chan struct{}, 2)
		server := newFake(t, func(n int64, p *peer) {
			_, _ = p.br.ReadByte()
			if n == 1 {
				p.say(ok)
			} else {
				reached <- struct{}{}
			}
			<-done
		})
		if raw, err := server.SyscallConn(); err != nil || smallBuffers("", "", raw) != nil {
			t.Fatal("buffers: ", err)
		}
		e := server.endpoint(t)
		e.pool.dialer.net.Control = smallBuffers
		if _, body := mustFetch(t, e, post(strings.Repeat("x", size))); body != "ok" {
			t.Errorf("body %q", body)
		}
		var stop Stop
		go func() { // ends when the server has the first of it
			<-reached
			stop.Cancel()
		}()
		_, err := e.Do(&stop, post(strings.Repeat("x", size)))
		mustFail(t, err, llm.None, false, true)
		close(done)
	}
}

// An answer that nobody asked for, and that comes a moment after the one asked for, is not taken for the next one's,
// however soon that is asked for: it may be another client's.
func TestLateSurplusAnswerReachesNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got, said := make(chan struct{}), make(chan struct{})
	var conns atomic.Int64
	go func() { // ends with l
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			first := conns.Add(1) == 1
			go func() { // ends with c, which the endpoint closes
				defer c.Close()
				br := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright")
					if first {
						<-got // so that it is not read with the answer
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
						close(said)
						return
					}
				}
			}()
		}
	}()
	kind, _ := llm.LookupKind("openai-compatible")
	e, err := New(Options{Name: "e", URL: "http://" + l.Addr().String(), Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i := range 20 {
		if _, body := mustFetch(t, e, post("{}")); body != "right" {
			t.Fatalf("request %d got %q", i+1, body)
		}
		if i == 0 {
			close(got)
			<-said
		}
	}
	if n := conns.Load(); n != 20 {
		t.Errorf("%d connections, want one for each request: who said too much once may do it again, too late for a look", n)
	}
	e.pool.mu.Lock()
	e.pool.trusted = time.Time{} // as after a minute
	e.pool.mu.Unlock()
	for range 3 {
		mustFetch(t, e, post("{}"))
	}
	if n := conns.Load(); n != 21 {
		t.Errorf("%d connections, want 21: they are kept again", n)
	}
}

// A connection that was made for a request which then was not sent waits like any other: what comes meanwhile is no answer.
func TestUnusedConnectionIsLookedAt(t *testing.T) {
	server := newFake(t, func(n int64, p *peer) {
		if n == 1 {
			p.say("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			return
		}
		p.request()
		p.say(ok)
	})
	e := server.endpoint(t)
	var stop Stop
	c, err := e.pool.get(&stop, false)
	if err != nil {
		t.Fatal(err)
	}
	e.pool.put(c)
	eventually(t, "the server's words arrive", func() bool { return readable(c.sock.Conn) })
	if res, body := mustFetch(t, e, post("{}")); res.StatusCode != 200 || body != "ok" {
		t.Errorf("%d %q, want the answer of a new connection", res.StatusCode, body)
	}
}

// A server that refuses a request may not have read its body, and read the next request on the connection as part of it.
func TestRefusedRequestEndsItsConnection(t *testing.T) {
	var accepted atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNotFound)
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			accepted.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	kind, _ := llm.LookupKind("openai-compatible")
	e, err := New(Options{Name: "e", URL: server.URL, Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for range 3 {
		mustFetch(t, e, post("{}"))
	}
	if n := accepted.Load(); n != 3 {
		t.Errorf("%d connections, want one for each request that was refused", n)
	}
}

package upstream

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/llm"
)

// addresses makes a lookup that always finds the same.
func addresses(all ...string) func(context.Context, string, string) ([]netip.Addr, error) {
	var found []netip.Addr
	for _, a := range all {
		found = append(found, netip.MustParseAddr(a))
	}
	return func(context.Context, string, string) ([]netip.Addr, error) { return found, nil }
}

// named is an endpoint with a name in place of the address of f.
func named(t *testing.T, f net.Listener, o Options) *Endpoint {
	t.Helper()
	o.Name, o.URL = "e", "http://engine.example:"+strconv.Itoa(f.Addr().(*net.TCPAddr).Port)
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// An address that leads nowhere costs a moment, not the connect timeout, of whichever family the next one is.
func TestAddressThatLeadsNowhere(t *testing.T) {
	server := newFake(t, answering(ok)) // at 127.0.0.1
	port := server.Addr().(*net.TCPAddr).Port
	hole := fullAt(t, "127.0.0.2", port)
	f := func(name string, lookup ...string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			e := named(t, server, Options{ConnectTimeout: time.Hour})
			e.pool.dialer.names.lookup = addresses(lookup...)
			begin := time.Now()
			if _, body := mustFetch(t, e, post("{}")); body != "ok" {
				t.Errorf("body %q", body)
			}
			if took := time.Since(begin); took < headStart && slices.Contains(lookup[:1], hole) || took > patience/2 {
				t.Errorf("took %v", took)
			}
		})
	}
	f("first", hole, "127.0.0.1")
	f("first two", hole, hole, "127.0.0.1")
	f("refused first", "127.0.0.3", "127.0.0.1")
	f("IPv4 in IPv6", hole, "::ffff:127.0.0.1")
	f("after the good one", "127.0.0.1", hole)
}

func TestAlternate(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		var found []netip.Addr
		for _, a := range strings.Fields(in) {
			found = append(found, netip.MustParseAddr(a))
		}
		var got []string
		for _, a := range alternate(found) {
			got = append(got, a.String())
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", in, s, want)
		}
	}
	f("", "")
	f("10.0.0.1", "10.0.0.1")
	f("fd00::1 fd00::2 10.0.0.1 10.0.0.2", "fd00::1 10.0.0.1 fd00::2 10.0.0.2")
	f("10.0.0.1 fd00::1 fd00::2 fd00::3", "10.0.0.1 fd00::1 fd00::2 fd00::3")
	f("::ffff:10.0.0.1 fd00::1", "10.0.0.1 fd00::1")
}

func TestNoAddressAnswers(t *testing.T) {
	server := newFake(t, answering(ok))
	server.stop()
	e := named(t, server, Options{})
	e.pool.dialer.names.lookup = addresses("127.0.0.1", "127.0.0.2")
	_, err := do(within(t), e, post("{}"))
	mustFail(t, err, llm.Connect, true, false)
	if !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error %q", err)
	}
	e.pool.dialer.names.lookup = addresses()
	_, err = do(within(t), e, post("{}"))
	mustFail(t, err, llm.Connect, true, false)
}

// The timeout bounds all addresses together, and cancelling ends the race.
func TestRaceEnds(t *testing.T) {
	server := newFake(t, answering(ok))
	hole := fullAt(t, "127.0.0.2", server.Addr().(*net.TCPAddr).Port)
	e := named(t, server, Options{ConnectTimeout: 300 * time.Millisecond})
	e.pool.dialer.names.lookup = addresses(hole, hole, hole)
	_, err := do(within(t), e, post("{}"))
	mustFail(t, err, llm.Connect, true, false)
	if !strings.Contains(err.Error(), "connect timeout after 300ms") {
		t.Errorf("error %q", err)
	}
	e.pool.dialer.timeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = do(ctx, e, post("{}"))
	mustFail(t, err, llm.None, false, false)
}

// egress is a proxy that connects wherever it is asked to, to one address, and notes what it was asked.
func egress(t *testing.T, to string, asked chan<- string) *fake {
	return newFake(t, func(_ int64, p *peer) {
		r, err := http.ReadRequest(p.br)
		if err != nil {
			return
		}
		asked <- r.Method + " " + r.RequestURI + " " + r.Host
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer up.Close()
		if r.Method == "CONNECT" {
			p.say("HTTP/1.1 200 Connection established\r\nProxy-Agent: test\r\n\r\n")
		} else if err := r.Write(up); err != nil {
			return
		}
		done := make(chan struct{})
		go func() { // ends with either connection
			defer close(done)
			_, _ = io.Copy(p.TCPConn, up)
			_ = p.CloseWrite()
		}()
		_, _ = io.Copy(up, p.br)
		_ = up.Close()
		<-done
	})
}

// A plain endpoint behind a proxy is asked for in absolute form, a TLS one reached through CONNECT, whichever
// protocol it then chooses.
func TestProxy(t *testing.T) {
	asked := make(chan string, 10)
	server := newFake(t, answering(ok))
	e, err := New(Options{Name: "e", URL: "http://engine.example:81/base", Proxy: "http://" + egress(t, server.Addr().String(), asked).Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	mustFetch(t, e, &Request{Method: "POST", Path: "/v1/x", Query: "a=b"})
	if got := <-asked; got != "POST http://engine.example:81/base/v1/x?a=b engine.example:81" {
		t.Errorf("asked %q", got)
	}
	both(t, func(t *testing.T, http2 bool) {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Proto+" "+r.Host+r.RequestURI)
		}))
		server.EnableHTTP2, server.TLS = http2, testTLS(t)
		server.StartTLS()
		defer server.Close()
		e, err := New(Options{Name: "e", URL: "https://engine.example", Proxy: "http://" + egress(t, server.Listener.Addr().String(), asked).Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		trust(e, server.Certificate())
		want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2] + " engine.example/v1/x?a=b"
		for range 3 {
			if _, body := mustFetch(t, e, &Request{Method: "POST", Path: "/v1/x", Query: "a=b"}); body != want {
				t.Errorf("came as %q, want %q", body, want)
			}
		}
		if got := <-asked; got != "CONNECT engine.example:443 engine.example:443" || len(asked) != 0 {
			t.Errorf("asked %q and %d more", got, len(asked))
		}
	})
}

// A proxy that does not do what it is for is named.
func TestProxyFails(t *testing.T) {
	f := func(name string, serve func(*peer), want string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			proxy := newFake(t, func(_ int64, p *peer) {
				_, _ = http.ReadRequest(p.br)
				serve(p)
			}).Addr().String()
			e, err := New(Options{Name: "e", URL: "https://engine.example", Proxy: "http://" + proxy, ConnectTimeout: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			_, err = do(within(t), e, post("{}"))
			mustFail(t, err, llm.Connect, true, false)
			if want = "proxy " + proxy + ": " + want; !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not hold %q", err, want)
			}
		})
	}
	f("refuses", func(p *peer) { p.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n") }, "it refuses to connect to engine.example:443: 403 Forbidden")
	f("wants a password", func(p *peer) { p.say("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") }, "it refuses to connect to engine.example:443: 407 ")
	f("closes", func(*peer) {}, "")
	f("garbage", func(p *peer) { p.say("SSH-2.0-OpenSSH\r\n\r\n"); p.untilGone() }, "malformed status line")
	f("says too much", func(p *peer) { p.say("HTTP/1.1 200 OK\r\n\r\nhello"); p.untilGone() }, "it says more than it was asked")
	f("endless", func(p *peer) { p.say("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxHeaderBytes)); p.untilGone() }, "the head of the answer is larger")
	f("silence", (*peer).untilGone, "connect timeout after 300ms")
}

// An endpoint may choose another protocol than before: no request fails for that. One may be stale, as after any
// restart of a server.
func TestProtocolChanges(t *testing.T) {
	config := testTLS(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	e, err := New(Options{Name: "e", URL: "https://" + addr})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	trust(e, config.Certificates[0].Leaf)
	for i, proto := range []string{"HTTP/1.1", "HTTP/2.0", "HTTP/1.1", "HTTP/2.0", "HTTP/2.0"} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
		if i > 0 {
			if l, err = net.Listen("tcp", addr); err != nil {
				t.Fatal(err)
			}
		}
		_ = server.Listener.Close()
		server.Listener, server.EnableHTTP2, server.TLS = l, proto == "HTTP/2.0", config.Clone()
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		for range 3 {
			_, body, err := fetch(within(t), e, post("{}"))
			if err != nil {
				var failed *Error // of which something was sent or not: the server may be gone before
				if !errors.As(err, &failed) || failed.Class != llm.Stale {
					t.Fatalf("%v, want stale", err)
				}
				_, body, err = fetch(within(t), e, post("{}"))
			}
			if body != proto || err != nil {
				t.Errorf("%d: came by %s, %v, want %s", i, body, err, proto)
			}
		}
		e.Close() // so that the server need not wait for idle connections
		server.Close()
	}
	accounted(t, e.pool)
}

// Many first requests at once find one endpoint that speaks HTTP/2, and no connection is left over.
func TestFirstRequestsOverHTTP2(t *testing.T) {
	server, e := secure(t, true, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	const n = 20
	bodies := make(chan string, n)
	for range n {
		go func() { // ends with its answer
			_, body, err := fetch(within(t), e, post("{}"))
			if err != nil {
				body = err.Error()
			}
			bodies <- body
		}()
	}
	for range n {
		if body := <-bodies; body != "HTTP/2.0" {
			t.Errorf("%q", body)
		}
	}
	if c := e.std.taken(); c != nil {
		t.Error("a connection is left over")
	}
	accounted(t, e.pool)
	server.CloseClientConnections()
}

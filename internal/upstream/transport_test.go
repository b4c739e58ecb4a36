package upstream

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/llm"
)

// secure is an HTTPS server, and an endpoint that trusts it.
func secure(t *testing.T, http2 bool, h http.HandlerFunc) (*httptest.Server, *Endpoint) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	e, err := New(Options{Name: "e", URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close) // before the server, which waits for idle connections
	trust(e, server.Certificate())
	return server, e
}

// trust makes an endpoint that is not connected yet accept what cert signed.
func trust(e *Endpoint, cert *x509.Certificate) {
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	config := e.pool.dialer.tls.loaded
	config.RootCAs = pool
}

// both runs a test over HTTP/1.1 and HTTP/2.
func both(t *testing.T, f func(t *testing.T, http2 bool)) {
	t.Run("HTTP1", func(t *testing.T) { f(t, false) })
	t.Run("HTTP2", func(t *testing.T) { f(t, true) })
}

func TestOverTLS(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		var mu sync.Mutex
		clients := map[string]bool{}
		server, e := secure(t, http2, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			clients[r.RemoteAddr] = true
			mu.Unlock()
			body, err := io.ReadAll(r.Body)
			if err != nil || r.ContentLength != int64(len(body)) || len(r.TransferEncoding) > 0 {
				t.Errorf("%d bytes with length %d, coding %v: %v", len(body), r.ContentLength, r.TransferEncoding, err)
			}
			if r.RequestURI != "/v1/models/a%2Fb?x=1%202" {
				t.Errorf("arrived at %s", r.RequestURI)
			}
			for _, name := range []string{"User-Agent", "Accept-Encoding"} {
				if r.Header[name] != nil {
					t.Errorf("net/http added %s: %q", name, r.Header[name])
				}
			}
			w.Header().Set("X-Host", r.Host)
			_, _ = w.Write(body)
		})
		for _, size := range []int{1, 10, 100_000, 20 << 20} {
			body := bytes.Repeat([]byte("0123456789"), size/10+1)
			r := &Request{Method: "POST", Path: "/v1/models/a%2Fb", Query: "x=1 2", Header: http.Header{}}
			r.Body = [3][]byte{body[:size/3], body[size/3 : size/2], body[size/2 : size]}
			res, got := mustFetch(t, e, r)
			if got != string(body[:size]) {
				t.Errorf("%d bytes came back, want the same %d", len(got), size)
			}
			if res.ProtoAtLeast(2, 0) != http2 || "https://"+res.Header.Get("X-Host") != server.URL {
				t.Errorf("%s to %s", res.Proto, res.Header.Get("X-Host"))
			}
		}
		if len(clients) != 1 {
			t.Errorf("%d connections, want 1", len(clients))
		}
	})
}

// certificate makes one that signs itself, valid for a name or address until a time.
func certificate(t *testing.T, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// testTLS is the configuration of a server at 127.0.0.1 and engine.example whose certificate signs itself.
func testTLS(t *testing.T) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certificate(t, func(c *x509.Certificate) { c.DNSNames = []string{"engine.example"} })}}
}

// A server that cannot prove who it is gets nothing, and the error says what is wrong with it.
func TestCertificates(t *testing.T) {
	f := func(name string, trusted bool, change func(*x509.Certificate), want string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t, change)}}
			server.StartTLS()
			defer server.Close()
			e, err := New(Options{Name: "e", URL: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if trusted {
				trust(e, server.Certificate())
			}
			_, err = do(within(t), e, post("secret"))
			if want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			mustFail(t, err, llm.Connect, true, false)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not hold %q", err, want)
			}
			if n := asked.Load(); n > 0 {
				t.Errorf("%d requests arrived", n)
			}
		})
	}
	f("good", true, func(*x509.Certificate) {}, "")
	f("expired", true, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }, "certificate has expired")
	f("not yet valid", true, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, "not yet valid")
	f("of another address", true, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }, "certificate is valid for 10.0.0.1, not 127.0.0.1")
	f("of a name only", true, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"api.example"} }, "doesn't contain any IP SANs")
	f("unknown authority", false, func(*x509.Certificate) {}, "unknown authority")
}

// What fails before the handshake is done is a failure to connect.
func TestHandshakeFails(t *testing.T) {
	f := func(name string, serve func(p *peer), want string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			server := newFake(t, func(_ int64, p *peer) { serve(p) })
			e, err := New(Options{Name: "e", URL: "https://" + server.Addr().String(), ConnectTimeout: 200 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			_, err = do(within(t), e, post("{}"))
			mustFail(t, err, llm.Connect, true, false)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not hold %q", err, want)
			}
		})
	}
	f("silence", (*peer).untilGone, "TLS handshake: connect timeout after 200ms")
	f("closed", func(*peer) {}, "")
	f("plain HTTP", func(p *peer) { p.say("HTTP/1.1 400 Bad Request\r\n\r\n"); p.untilGone() }, "does not look like a TLS handshake")

	server := newFake(t, (func(int64, *peer))(nil))
	addr := server.Addr().String()
	server.stop()
	e, err := New(Options{Name: "e", URL: "https://" + addr})
	if err != nil {
		t.Fatal(err)
	}
	_, err = do(within(t), e, post("{}"))
	mustFail(t, err, llm.Connect, true, false)
}

// hijack ends an HTTP/1.1 connection after some bytes.
func hijack(w http.ResponseWriter, bytes string) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_, _ = io.WriteString(c, bytes)
		_ = c.Close()
	}
}

func TestBrokenOverTLS(t *testing.T) {
	f := func(name, answer string, warm bool, class llm.Class) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			_, e := secure(t, false, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.URL.Path != "/warm" {
					hijack(w, answer)
				}
			})
			if warm {
				r := post("{}")
				r.Path = "/warm"
				mustFetch(t, e, r)
			}
			_, err := do(within(t), e, post("{}"))
			mustFail(t, err, class, false, true)
		})
	}
	f("closed", "", false, llm.Reset)
	f("closed, reused", "", true, llm.Stale)
	f("half a head", "HTTP/1.1 200 OK\r\nX: y\r\n", false, llm.Reset)
	f("half a head, reused", "HTTP/1.1 200 OK\r\nX: y\r\n", true, llm.Reset)
	f("garbage", "garbage\r\n\r\n", false, llm.Malformed)
	f("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", false, llm.Malformed)
	f("endless head", "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 2*maxHeaderBytes), false, llm.Malformed)
}

func TestBodyCutOverTLS(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		_, e := secure(t, http2, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		res, body, err := fetch(within(t), e, post("{}"))
		if err == nil || res == nil || body != "data: 1\n\n" {
			t.Fatalf("%q, %v, want an error after the first event", body, err)
		}
		if got := BrokenBody(err); got != llm.Reset {
			t.Errorf("class %v, want reset (%v)", got, err)
		}
	})
}

func TestStreamRefusedOverHTTP2(t *testing.T) {
	_, e := secure(t, true, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := do(within(t), e, post("{}"))
	mustFail(t, err, llm.Reset, false, true)
}

// Cancelling ends a request at every stage.
func TestCancelOverTLS(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		for _, path := range []string{"/head", "/body", "/upload"} {
			reached, left := make(chan struct{}), make(chan struct{})
			_, e := secure(t, http2, func(w http.ResponseWriter, r *http.Request) {
				defer close(left)
				switch path {
				case "/head":
					_, _ = io.Copy(io.Discard, r.Body)
				case "/body":
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(w, "x")
					_ = http.NewResponseController(w).Flush()
				case "/upload":
					_, _ = r.Body.Read(make([]byte, 1))
				}
				close(reached)
				if path == "/upload" {
					_, _ = io.Copy(io.Discard, r.Body) // its end shows here
				} else {
					<-r.Context().Done()
				}
				panic(http.ErrAbortHandler) // a clean end could still arrive
			})
			ctx, cancel := context.WithCancel(within(t))
			go func() { // ends with the handler's start
				<-reached
				cancel()
			}()
			size := 2
			if path == "/upload" {
				size = 64 << 20
			}
			_, _, err := fetch(ctx, e, &Request{Method: "POST", Path: path, Header: http.Header{}, Body: [3][]byte{make([]byte, size)}})
			if err == nil || ctx.Err() != context.Canceled {
				t.Fatalf("%s: %v, context %v", path, err, ctx.Err())
			}
			var failed *Error
			if errors.As(err, &failed) {
				mustFail(t, err, llm.None, false, true)
			} else if path != "/body" {
				t.Errorf("%s: %v is not an *Error", path, err)
			}
			<-left
		}
	})
}

// The refusal of a large body arrives although the server closes while it is still written.
func TestEarlyRefusalOverTLS(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		_, e := secure(t, http2, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, 64<<10)
			if r.URL.Path == "/reset" && !http2 {
				c, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\n\r\ntoo large")
					_ = c.(*tls.Conn).NetConn().(*net.TCPConn).SetLinger(0)
					_ = c.(*tls.Conn).NetConn().Close()
				}
				return
			}
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, "too large")
		})
		for i := range 10 {
			path := []string{"/", "/reset"}[i%2]
			res, body := mustFetch(t, e, &Request{Method: "POST", Path: path, Header: http.Header{}, Body: [3][]byte{make([]byte, 20<<20)}})
			if res.StatusCode != 413 || body != "too large" {
				t.Fatalf("%d %q, want 413", res.StatusCode, body)
			}
		}
	})
}

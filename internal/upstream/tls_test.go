package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/llm"
)

// pemFiles writes a certificate and its key as files of a directory.
func pemFiles(t *testing.T, dir, name string, c tls.Certificate) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// client makes a client's certificate with a serial number by which it is known.
func client(t *testing.T, serial int64) tls.Certificate {
	return certificate(t, func(c *x509.Certificate) {
		c.SerialNumber = big.NewInt(serial)
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	})
}

// tlsServer answers with the serial number of the client's certificate and the name that the client asked for.
func tlsServer(t *testing.T, http2 bool, config *tls.Config) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serial := "none"
		if certs := r.TLS.PeerCertificates; len(certs) > 0 {
			serial = certs[0].SerialNumber.String()
		}
		_, _ = io.WriteString(w, serial+" "+r.TLS.ServerName)
	}))
	server.EnableHTTP2, server.TLS = http2, config
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// An authority of one's own, a client certificate and another server name, all from files; and files that change
// are followed, while broken ones are not.
func TestCertificatesFromFiles(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		dir := t.TempDir()
		of := certificate(t, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"inside.example"} })
		ca, _ := pemFiles(t, dir, "ca", of)
		cert, key := pemFiles(t, dir, "client", client(t, 1))
		server := tlsServer(t, http2, &tls.Config{Certificates: []tls.Certificate{of}, ClientAuth: tls.RequireAnyClientCert})
		e, err := New(Options{Name: "e", URL: server.URL, TLS: TLS{CA: ca, Cert: cert, Key: key, ServerName: "inside.example"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		says := func(want string) {
			t.Helper()
			var body string
			eventually(t, "the server knows us as "+want, func() bool {
				e.Close() // so that the next request makes another connection, unless net/http is not done with the last
				_, body = mustFetch(t, e, post("{}"))
				return body == want+" inside.example"
			})
		}
		touch := func(ago time.Duration) { // a clock may be too coarse to tell two versions apart
			for _, name := range []string{cert, key} {
				if err := os.Chtimes(name, time.Time{}, time.Now().Add(-ago)); err != nil {
					t.Fatal(err)
				}
			}
		}
		says("1")
		pemFiles(t, dir, "client", client(t, 2))
		touch(3 * time.Hour)
		says("2")
		if err := os.WriteFile(key, []byte("half a ke"), 0o600); err != nil {
			t.Fatal(err)
		}
		touch(2 * time.Hour)
		says("2")
		pemFiles(t, dir, "client", client(t, 3))
		touch(time.Hour)
		says("3")
	})
}

// Whoever needs a client certificate and gets none refuses; that is a failure to connect or a broken connection,
// as the version of TLS has it, and never an answer.
func TestClientCertificateMissing(t *testing.T) {
	config := testTLS(t)
	config.ClientAuth, config.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12
	server := tlsServer(t, false, config)
	e, err := New(Options{Name: "e", URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	trust(e, server.Certificate())
	_, err = do(within(t), e, post("{}"))
	mustFail(t, err, llm.Connect, true, false)
}

func TestOldTLSIsRefused(t *testing.T) {
	config := testTLS(t)
	config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	server := tlsServer(t, false, config)
	e, err := New(Options{Name: "e", URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	trust(e, server.Certificate())
	_, err = do(within(t), e, post("{}"))
	mustFail(t, err, llm.Connect, true, false)
	if !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("error %q", err)
	}
}

// Idle connections over TLS are used again, and a session ticket that comes late does not end them.
func TestTLSConnectionsAreReused(t *testing.T) {
	var dialled int
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) }))
	server.TLS = testTLS(t)
	server.StartTLS()
	defer server.Close()
	e, err := New(Options{Name: "e", URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	trust(e, server.Certificate())
	seen := map[string]bool{}
	for range 10 {
		_, body := mustFetch(t, e, post("{}"))
		if !seen[body] {
			seen[body] = true
			dialled++
		}
		if lastIdle(e) == nil {
			t.Fatal("no connection is kept")
		}
	}
	if dialled != 1 {
		t.Errorf("%d connections, want 1", dialled)
	}
	server.CloseClientConnections()
	eventually(t, "the end arrives", func() bool {
		c := lastIdle(e)
		return readable(c.sock.Conn)
	})
	if c := lastIdle(e); usable(c) {
		t.Error("a connection that the server closed passes for alive")
	}
}

// Every setting that cannot work is refused with its name, its value and what to write.
func TestOptionsThatCannotWork(t *testing.T) {
	dir := t.TempDir()
	cert, key := pemFiles(t, dir, "a", client(t, 1))
	_, other := pemFiles(t, dir, "b", client(t, 2))
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(o Options, want ...string) {
		t.Helper()
		o.Name = "gpu1"
		if o.URL == "" {
			o.URL = "https://h"
		}
		_, err := New(o)
		if err == nil {
			t.Errorf("%+v: no error", o)
			return
		}
		for _, w := range append(want, "endpoint gpu1: ") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: error %q does not hold %q", o, err, w)
			}
		}
	}
	f(Options{TLS: TLS{CA: filepath.Join(dir, "none.pem")}}, "tls.ca: ", "none.pem", "no such file")
	f(Options{TLS: TLS{CA: empty}}, "tls.ca: ", "empty.pem", "holds no certificate", "BEGIN CERTIFICATE")
	f(Options{TLS: TLS{Cert: cert}}, "tls.cert and tls.key go together")
	f(Options{TLS: TLS{Key: key}}, "tls.cert and tls.key go together")
	f(Options{TLS: TLS{Cert: cert, Key: other}}, "tls.cert ", "a.crt", "b.key", "does not match")
	f(Options{TLS: TLS{Cert: empty, Key: key}}, "tls.cert ", "empty.pem")
	f(Options{URL: "http://h", TLS: TLS{CA: cert}}, "tls is set", "http://h is not https")
	f(Options{Proxy: "http://user:secret@p:3128"}, "user or password", "http://host:port")
	f(Options{Proxy: "socks5://p:1080"}, "socks5://p:1080", "http://host:port")
	f(Options{Proxy: "p:3128"}, "p:3128", "http://host:port")
	f(Options{Proxy: "http://p:3128/path"}, "http://host:port")
	f(Options{MaxConnections: -1}, "max_connections is -1", "0 (no bound)")
	if _, err := New(Options{Name: "e", URL: "https://h", Proxy: "http://u:secret@p:1"}); strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q tells the password", err)
	}
}

// Two Options are the same only if nothing differs that an endpoint goes by.
func TestSame(t *testing.T) {
	base := Options{Name: "e", URL: "https://h"}
	for _, change := range []func(*Options){
		func(o *Options) { o.TLS.CA = "x" }, func(o *Options) { o.TLS.ServerName = "x" }, func(o *Options) { o.Proxy = "http://p:1" },
		func(o *Options) { o.MaxConnections = 1 }, func(o *Options) { o.ConnectTimeout = 1 }, func(o *Options) { o.URL = "https://i" },
	} {
		other := base
		change(&other)
		if base.Same(other) || !other.Same(other) {
			t.Errorf("%+v and %+v", base, other)
		}
	}
}

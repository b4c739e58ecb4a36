package app

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/mock"
	"evenkeel/tests/certs"
)

// TestFailedHandshakeReasons: what net/http logs of handshakes that really fail is understood.
func TestFailedHandshakeReasons(t *testing.T) {
	ours, theirs := certs.NewAuthority(t, "ours"), certs.NewAuthority(t, "theirs")
	told := make(chan string, 1)
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ours.Local(t).TLS(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: theirs.Pool()}
	s.Config.ErrorLog = handshakes{func(from, reason string) { told <- from + ": " + reason }, log.New(io.Discard, "", 0)}.logger()
	s.StartTLS()
	defer s.Close()
	f := func(want string, c *tls.Config) {
		t.Helper()
		if c == nil {
			if res, err := http.Get("http://" + s.Listener.Addr().String()); err == nil {
				res.Body.Close()
			}
		} else if conn, err := tls.Dial("tcp", s.Listener.Addr().String(), c); err == nil { // TLS 1.3: the client is done first
			_, _ = conn.Read(make([]byte, 1)) // until the server has judged
			conn.Close()
		}
		select {
		case got := <-told:
			if !strings.HasPrefix(got, "127.0.0.1: ") || !strings.Contains(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("nothing is told, want %q", want)
		}
	}
	of := func(p certs.Pair) *tls.Config {
		pair := p.TLS(t) // shown whatever authorities the server names
		return &tls.Config{RootCAs: ours.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	}
	f("client didn't provide a certificate", &tls.Config{RootCAs: ours.Pool()})
	f("signed by unknown authority", of(ours.Local(t)))
	f("has expired", of(theirs.Issue(t, time.Now().Add(-time.Hour), "localhost")))
	f("remote error: tls: bad certificate", &tls.Config{}) // the client does not know our authority
	f("client offered only unsupported versions", &tls.Config{RootCAs: ours.Pool(), MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10})
	f("client sent an HTTP request to an HTTPS server", nil)
}

func TestFailedHandshakeLines(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		got := "passed on"
		var next bytes.Buffer
		h := handshakes{func(from, reason string) { got = from + " | " + reason }, log.New(&next, "", 0)}
		h.logger().Println(line)
		if got != want || (got == "passed on") != (next.String() == line+"\n") {
			t.Errorf("%q: %q and %q, want %q", line, got, next.String(), want)
		}
	}
	const failed = "http: TLS handshake error from "
	f(failed+"10.0.0.7:40000: tls: client didn't provide a certificate", "10.0.0.7 | client didn't provide a certificate")
	f(failed+"[fe80::1%eth0]:40000: read tcp a->b: i/o timeout", "fe80::1%eth0 | read tcp a->b: i/o timeout")
	f(failed+"pipe: tls: x", "pipe | x")
	f(failed+"10.0.0.7:40000: EOF", "passed on") // a probe that only connects
	f(failed+"10.0.0.7:40000: read tcp 10.0.0.1:443->10.0.0.7:40000: read: connection reset by peer", "passed on")
	f(failed, "passed on")
	f("http: Accept error: no files", "passed on")
}

// A client that TLS turns away is counted and told, though no request of it was ever seen.
func TestFailedHandshakesAreVisible(t *testing.T) {
	dir, ca := t.TempDir(), certs.NewAuthority(t, "ours")
	cert, key := ca.Local(t).Write(t, dir, "server")
	clients := certs.WriteFile(t, dir, "clients.pem", ca.PEM)
	e := engine(t, mock.Config{Models: []string{"m"}})
	w := startTLS(t, parse(t, fmt.Sprintf("tls: {cert: %s, key: %s, client_ca: %s}\n", cert, key, clients)+endpoint(e.URL(), "")),
		&tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Local(t).TLS(t)}})
	w.serves("m")
	count := func() float64 {
		return w.metric("evenkeel_connections_refused_total", `listener="data"`, `reason="tls_handshake"`)
	}
	if n := count(); n != 0 {
		t.Errorf("%v before any failed", n)
	}
	if conn, err := net.Dial("tcp", host(w.url)); err != nil { // a probe
		t.Fatal(err)
	} else {
		conn.Close()
	}
	const tries = 3
	for range tries {
		if conn, err := tls.Dial("tcp", host(w.url), &tls.Config{RootCAs: ca.Pool()}); err == nil {
			_, _ = conn.Read(make([]byte, 1))
			conn.Close()
		}
	}
	w.await("the handshakes are counted", func() bool { return count() == tries })
	line := ""
	for l := range strings.Lines(w.log.text()) {
		if strings.Contains(l, `"reason":"tls_handshake"`) {
			line += l
		}
	}
	for _, want := range []string{`"level":"WARN"`, `"msg":"connections are refused"`, `"error":"client didn't provide a certificate"`, `"from":"127.0.0.1"`} {
		if !strings.Contains(line, want) {
			t.Errorf("%q does not say %s", line, want)
		}
	}
	if n := strings.Count(line, "\n"); n > 2 { // one a second
		t.Errorf("%d lines for %d handshakes:\n%s", n, tries, line)
	}
}

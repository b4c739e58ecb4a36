package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/mock"
	"evenkeel/internal/route"
	"evenkeel/internal/telemetry"
	"evenkeel/tests/certs"
)

// shown is the certificate that a server shows, or an error.
func shown(address string, c *tls.Config) (*x509.Certificate, error) {
	conn, err := tls.Dial("tcp", address, c)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}

func host(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	return rest
}

func TestC48TLSOnBothListeners(t *testing.T) {
	dir, ca := t.TempDir(), certs.NewAuthority(t, "ours")
	cert, key := ca.Local(t).Write(t, dir, "server")
	e := engine(t, mock.Config{Models: []string{"m"}})
	w := startTLS(t, parse(t, fmt.Sprintf("tls: {cert: %s, key: %s}\nadmin_tls: {cert: %s, key: %s}\n", cert, key, cert, key)+endpoint(e.URL(), "")),
		&tls.Config{RootCAs: ca.Pool()})
	w.serves("m")
	if a := w.chat("m"); a.status != http.StatusOK {
		t.Errorf("%+v", a)
	}
	w.whole(w.stream("m"))
	if a := w.get(w.admin + "/explain/last"); a.status != http.StatusOK {
		t.Errorf("admin: %+v", a)
	}
	_, port, err := net.SplitHostPort(host(w.admin))
	if err != nil {
		t.Fatal(err)
	}
	if a := w.get("https://localhost:" + port + "/livez"); a.status != http.StatusOK {
		t.Errorf("the admin listener by the name of its certificate: %+v", a)
	}
	// Versions and protocols.
	f := func(url string, least, most uint16, protocols []string, version uint16, protocol string) {
		t.Helper()
		c, err := tls.Dial("tcp", host(url), &tls.Config{RootCAs: ca.Pool(), MinVersion: least, MaxVersion: most, NextProtos: protocols})
		if err != nil {
			if version != 0 {
				t.Errorf("TLS %x to %x: %v", least, most, err)
			}
			return
		}
		defer c.Close()
		if s := c.ConnectionState(); s.Version != version || s.NegotiatedProtocol != protocol {
			t.Errorf("TLS %x to %x: got %x with %q, want %x with %q", least, most, s.Version, s.NegotiatedProtocol, version, protocol)
		}
	}
	for _, url := range []string{w.url, w.admin} {
		f(url, tls.VersionTLS10, tls.VersionTLS11, nil, 0, "")
		f(url, 0, tls.VersionTLS12, []string{"http/1.1"}, tls.VersionTLS12, "http/1.1")
		f(url, 0, 0, []string{"h2", "http/1.1"}, tls.VersionTLS13, "h2")
		f(url, 0, 0, nil, tls.VersionTLS13, "")
		if _, err := shown(host(url), &tls.Config{}); err == nil {
			t.Error("a client that does not know the authority was content")
		}
		// Who speaks HTTP to TLS gets an answer that says so.
		if a := w.get("http://" + host(url) + "/livez"); a.status != http.StatusBadRequest || !strings.Contains(a.body, "HTTP request to an HTTPS server") {
			t.Errorf("plain HTTP: %+v", a)
		}
	}
	until := ca.Local(t).TLS(t).Leaf.NotAfter.Unix() // of the same day
	for _, l := range []string{"data", "admin"} {
		if got := w.metric("evenkeel_certificate_expiry_timestamp_seconds", `listener="`+l+`"`); got < float64(until-86400) || got > float64(until) {
			t.Errorf("%s: the certificate ends at %.0f, want about %d", l, got, until)
		}
	}
}

func TestC48ClientCertificates(t *testing.T) {
	dir, ours, theirs := t.TempDir(), certs.NewAuthority(t, "ours"), certs.NewAuthority(t, "theirs")
	cert, key := ours.Local(t).Write(t, dir, "server")
	clients := certs.WriteFile(t, dir, "clients.pem", theirs.PEM)
	e := engine(t, mock.Config{Models: []string{"m"}})
	text := fmt.Sprintf("tls: {cert: %s, key: %s, client_ca: %s}\n", cert, key, clients) + endpoint(e.URL(), "")
	good := &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{theirs.Local(t).TLS(t)}, ClientSessionCache: tls.NewLRUClientSessionCache(10)}
	w := startTLS(t, parse(t, text), good.Clone())
	w.serves("m")
	if a := w.chat("m"); a.status != http.StatusOK {
		t.Errorf("%+v", a)
	}
	// asked does one request on a new connection.
	asked := func(c *tls.Config) error {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.Clone(), DisableKeepAlives: true}}
		res, err := client.Get(w.url + "/livez")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.ReadAll(res.Body)
		return err
	}
	refused := func(what string, c *tls.Config) {
		t.Helper()
		if err := asked(c); err == nil || !strings.Contains(err.Error(), "tls:") {
			t.Errorf("%s: %v, want to be refused", what, err)
		}
	}
	of := func(p certs.Pair) *tls.Config {
		return &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{p.TLS(t)}}
	}
	refused("no certificate", &tls.Config{RootCAs: ours.Pool()})
	refused("a certificate of another authority", of(ours.Local(t)))
	refused("a certificate that has expired", of(theirs.Issue(t, time.Now().Add(-time.Hour), "localhost")))
	for range 2 { // the second resumes the session of the first
		if err := asked(good); err != nil {
			t.Errorf("a good certificate: %v", err)
		}
	}
	// Another authority takes over: what was good is refused, also for who would resume a session.
	certs.WriteFile(t, dir, "clients.pem", ours.PEM)
	if err := w.app.Reload(parse(t, text)); err != nil {
		t.Fatal(err)
	}
	refused("a certificate of the authority before", good)
	if err := asked(of(ours.Local(t))); err != nil {
		t.Errorf("a certificate of the new authority: %v", err)
	}
	certs.WriteFile(t, dir, "clients.pem", theirs.PEM) // for the checks at the end
	if err := w.app.Reload(parse(t, text)); err != nil {
		t.Fatal(err)
	}
}

// A certificate is renewed while requests run: none fails, and new connections see the new one.
func TestC48RenewalUnderTraffic(t *testing.T) {
	dir, ca := t.TempDir(), certs.NewAuthority(t, "ours")
	cert, key := ca.Local(t).Write(t, dir, "server")
	e := engine(t, mock.Config{Models: []string{"m"}, InterToken: 5 * time.Millisecond, OutputTokens: 20})
	text := fmt.Sprintf("tls: {cert: %s, key: %s}\n", cert, key) + endpoint(e.URL(), "")
	client := &tls.Config{RootCAs: ca.Pool()}
	w := startTLS(t, parse(t, text), client)
	w.serves("m")
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	for n := range 4 {
		traffic.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if s, err := w.tryStream("m"); err != nil {
					t.Error(err)
				} else {
					w.whole(s)
				}
				if n%2 == 0 { // half of them make new connections all the time
					w.client.CloseIdleConnections()
				}
			}
		})
	}
	for range 5 {
		pair := ca.Local(t)
		pair.Write(t, dir, "server")
		if err := w.app.Reload(parse(t, text)); err != nil {
			t.Error(err)
		}
		if got, err := shown(host(w.url), client); err != nil || !got.Equal(pair.TLS(t).Leaf) {
			t.Errorf("after a reload the certificate is not the new one: %v", err)
		}
	}
	close(stop)
	traffic.Wait()
	// What does not fit refuses the reload as a whole, and changes nothing.
	before, err := shown(host(w.url), client)
	if err != nil {
		t.Fatal(err)
	}
	certs.WriteFile(t, dir, "server.key", ca.Local(t).Key)
	if _, err = parseErr(text); err == nil || !strings.Contains(err.Error(), "does not go with the certificate") {
		t.Errorf("the key of another certificate: %v", err)
	}
	if after, err := shown(host(w.url), client); err != nil || !after.Equal(before) {
		t.Errorf("a pair that does not fit was used: %v", err)
	}
}

// usable is what the metric says of the files of the data listener's certificate.
func usable(m *telemetry.Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	_, value, _ := strings.Cut(w.Body.String(), `evenkeel_certificate_reload_successful{listener="data"} `)
	value, _, _ = strings.Cut(value, "\n")
	return value
}

// TestNewFilesAreTaken renews files without anybody saying so, in all the ways that tools do.
func TestNewFilesAreTaken(t *testing.T) {
	dir, ca := t.TempDir(), certs.NewAuthority(t, "ours")
	first, second := ca.Local(t), ca.Issue(t, time.Now().Add(48*time.Hour), "localhost")
	// As a Kubernetes volume: links through a link to a folder, which is swapped.
	for name, pair := range map[string]certs.Pair{"v1": first, "v2": second} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		pair.Write(t, filepath.Join(dir, name), "tls")
	}
	link := func(to, name string) {
		t.Helper()
		if err := errors.Join(os.Symlink(to, filepath.Join(dir, name+".new")), os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	link("v1", "..data")
	link("..data/tls.pem", "tls.pem")
	link("..data/tls.key", "tls.key")
	files := config.ListenerTLS{Cert: filepath.Join(dir, "tls.pem"), Key: filepath.Join(dir, "tls.key")}

	metrics, err := telemetry.New(telemetry.Options{View: func() route.View { return route.View{} }, Known: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	log := newLogBuffer()
	synctest.Test(t, func(t *testing.T) {
		i, err := newIdentity("tls", files, metrics.Listener("data"), slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		go i.watch(ctx) // ends with ctx
		check := func(what string, after time.Duration, want certs.Pair, logged ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := i.current.Load().Certificates[0].Leaf; !got.Equal(want.TLS(t).Leaf) {
				t.Errorf("%s: the wrong certificate is in use", what)
			}
			for _, text := range logged {
				if !strings.Contains(log.text(), text) {
					t.Errorf("%s: the log lacks %q:\n%s", what, text, log.text())
				}
			}
		}
		time.Sleep(time.Second) // so that looks and changes never come at the same instant
		check("nothing has changed", certificateLook, first)
		if log.text() != "" {
			t.Errorf("logged for nothing: %s", log.text())
		}
		link("v2", "..data")
		check("the folder was swapped", certificateLook, second, `msg="new certificate" setting=tls`, "level=WARN msg=certificate") // of the bubble's year 2000
		// In the middle of a renewal that replaces one file after the other nothing is said.
		before := log.text()
		third := ca.Local(t)
		certs.WriteFile(t, dir, "tls.pem", third.Cert)
		check("half a pair", certificateLook, second)
		if log.text() != before {
			t.Errorf("told of a renewal that goes on: %s", log.text())
		}
		certs.WriteFile(t, dir, "tls.key", third.Key)
		check("a whole pair", certificateLook, third)
		// What stays broken is told, once.
		certs.WriteFile(t, dir, "tls.key", first.Key)
		check("another key", 5*certificateLook, third, "level=ERROR", "new files of a certificate cannot be used", "tls.key: ", "does not go with the certificate")
		if n := strings.Count(log.text(), "cannot be used"); n != 1 {
			t.Errorf("told %d times:\n%s", n, log.text())
		}
		if good := usable(metrics); good != "0" {
			t.Errorf("the metric says %q", good)
		}
		certs.WriteFile(t, dir, "tls.key", third.Key)
		check("the key is back", certificateLook, third)
		if good := usable(metrics); good != "1" {
			t.Errorf("the metric says %q", good)
		}
		if err := os.Remove(filepath.Join(dir, "tls.pem")); err != nil {
			t.Fatal(err)
		}
		check("no file", 2*certificateLook, third, "does not exist")
		first.Write(t, dir, "tls")
		check("new files", certificateLook, first)
		stop()
		synctest.Wait()
	})
}

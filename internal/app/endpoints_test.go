package app

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/discovery"
	"evenkeel/internal/mock"
	"evenkeel/tests/certs"
)

// An endpoint with an authority of its own, which asks for our certificate, is discovered and served.
func TestEndpointTLS(t *testing.T) {
	dir, ours, theirs := t.TempDir(), certs.NewAuthority(t, "ours"), certs.NewAuthority(t, "theirs")
	cert, key := ours.Local(t).Write(t, dir, "client")
	ca := certs.WriteFile(t, dir, "ca.pem", theirs.PEM)
	inner := theirs.Issue(t, time.Now().AddDate(1, 0, 0), "gpu-1.internal")
	e := engine(t, mock.Config{Models: []string{"m"}, TLS: &tls.Config{
		Certificates: []tls.Certificate{inner.TLS(t)}, ClientCAs: ours.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}})
	f := func(settings, why string) {
		t.Helper()
		w := start(t, parse(t, fmt.Sprintf("endpoints: {e: {url: 'https://%s'%s}}", e.Addr(), settings)))
		if why != "" {
			w.logged("endpoint does not answer yet; it joins when it does", why)
			if a := w.chat("m"); a.status != http.StatusServiceUnavailable {
				t.Errorf("%s: %+v", settings, a)
			}
			return
		}
		w.serves("m")
		if a := w.chat("m"); a.status != http.StatusOK {
			t.Errorf("%s: %+v", settings, a)
		}
		w.whole(w.stream("m"))
	}
	full := fmt.Sprintf(", tls: {ca: %s, cert: %s, key: %s, server_name: gpu-1.internal}", ca, cert, key)
	f(full, "")
	f(strings.Replace(full, "ca: "+ca+", ", "", 1), "certificate signed by unknown authority")
	f(strings.Replace(full, ", server_name: gpu-1.internal", "", 1), "doesn't contain any IP SANs")
	f(strings.Replace(full, "gpu-1.internal", "gpu-2.internal", 1), "not gpu-2.internal")
	f(fmt.Sprintf(", tls: {ca: %s, server_name: gpu-1.internal}", ca), "certificate required")
}

// newProxy is an egress proxy, which counts what goes through it.
func newProxy(t *testing.T) (url string, tunnels, requests *atomic.Int64) {
	t.Helper()
	tunnels, requests = &atomic.Int64{}, &atomic.Int64{}
	forward := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, FlushInterval: -1}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			if !r.URL.IsAbs() {
				t.Errorf("the proxy was asked for %q, want an absolute address", r.RequestURI)
			}
			requests.Add(1)
			forward.ServeHTTP(w, r)
			return
		}
		tunnels.Add(1)
		there, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer there.Close()
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer here.Close()
		if _, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		done := make(chan struct{})
		go func() { // ends with either connection
			defer close(done)
			_, _ = io.Copy(there, here)
			there.Close()
		}()
		_, _ = io.Copy(here, there)
		here.Close()
		<-done
	}))
	t.Cleanup(s.Close)
	return s.URL, tunnels, requests
}

// Requests and probes both take the configured proxy.
func TestEndpointProxy(t *testing.T) {
	ca := certs.NewAuthority(t, "theirs")
	file := certs.WriteFile(t, t.TempDir(), "ca.pem", ca.PEM)
	plain := engine(t, mock.Config{Models: []string{"m"}})
	secure := engine(t, mock.Config{Models: []string{"m"}, TLS: &tls.Config{Certificates: []tls.Certificate{ca.Local(t).TLS(t)}}})

	proxy, tunnels, requests := newProxy(t)
	w := start(t, parse(t, fmt.Sprintf("endpoints: {e: {url: 'https://%s', proxy: '%s', tls: {ca: %s}}}", secure.Addr(), proxy, file)))
	w.serves("m")
	if probes := tunnels.Load(); probes == 0 {
		t.Error("probes went past the proxy")
	}
	if a := w.chat("m"); a.status != http.StatusOK || requests.Load() != 0 || tunnels.Load() < 2 {
		t.Errorf("https: %d tunnels, %d requests, %+v", tunnels.Load(), requests.Load(), a)
	}
	w.whole(w.stream("m"))
	w.stop()
	w.over()

	proxy, tunnels, requests = newProxy(t)
	w = start(t, parse(t, fmt.Sprintf("endpoints: {e: {url: '%s', proxy: '%s'}}", plain.URL(), proxy)))
	w.serves("m")
	before := requests.Load()
	if before == 0 {
		t.Error("probes went past the proxy")
	}
	if a := w.chat("m"); a.status != http.StatusOK || tunnels.Load() != 0 || requests.Load() <= before {
		t.Errorf("http: %d tunnels, %d requests, %+v", tunnels.Load(), requests.Load(), a)
	}
	w.whole(w.stream("m"))
}

// A request above max_connections waits for a connection. Probes do not: an endpoint that is busy is not down.
func TestEndpointMaxConnections(t *testing.T) {
	e := newGated(t, "m")
	w := start(t, parse(t, fmt.Sprintf("endpoints: {e: {url: %q, max_connections: 1}}", e.URL)))
	w.serves("m")
	first := w.stream("m")
	second := make(chan answer, 1)
	go func() { second <- w.chat("m") }()
	w.await("the second one is on its way", func() bool { return w.app.proxy.Running() == 2 })
	target := discovery.Target{Name: "e", URL: e.URL}
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.URL+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := w.app.way(target).RoundTrip(req)
		if err != nil {
			t.Fatalf("a probe of a busy endpoint: %v", err)
		}
		res.Body.Close()
	}
	if n := e.started.Load(); n != 1 {
		t.Errorf("%d requests are upstream, and one connection is allowed", n)
	}
	e.open()
	w.whole(first)
	if a := <-second; a.status != http.StatusOK {
		t.Errorf("the one that waited: %+v", a)
	}
}

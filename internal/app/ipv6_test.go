package app

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"evenkeel/internal/config"
	"evenkeel/internal/mock"
	"evenkeel/internal/secret"
)

// TestCase75IPv6: an endpoint at a literal address, one whose name has IPv6 addresses only, and a listener for both
// families; brackets stand wherever an address has a port beside it.
func TestCase75IPv6(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("no IPv6 loopback: ", err)
	} else {
		l.Close()
	}
	literal := engine(t, mock.Config{Name: "literal", Models: []string{"m"}, Listen: "[::1]:0", Record: 100})
	named := engine(t, mock.Config{Name: "named", Models: []string{"n"}, Listen: "[::1]:0", Record: 100})
	d, err := mock.NewDNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	d.Set(poolHost, mock.DNSAnswer{TTL: poolTTL, Addresses: []netip.Addr{netip.IPv6Loopback()}})
	_, port, _ := net.SplitHostPort(named.Addr())
	w := start(t, parse(t, fmt.Sprintf("listen: '[::]:0'\nauth: none\ndns_server: %s\nendpoints:\n  %q: {url: \"http://%s\"}\n  pool: {url: \"dns+http://%s:%s\"}\n",
		d.Addr(), literal.Addr(), literal.Addr(), poolHost, port)))
	w.serves("m", "n")
	_, own, err := net.SplitHostPort(strings.TrimPrefix(w.url, "http://"))
	if err != nil || !strings.HasPrefix(w.url, "http://[::]:") {
		t.Fatalf("it listens at %s (%v)", w.url, err)
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, model := range []string{"m", "n"} {
			a := w.do(http.MethodPost, "http://"+net.JoinHostPort(host, own)+"/v1/chat/completions", body(model, ""), "X-Forwarded-For", "2001:db8::7, [2001:db8::8]:443")
			if a.status != http.StatusOK {
				t.Errorf("%s asked over %s: %d %s (%v)", model, host, a.status, a.body, a.err)
			}
		}
	}
	f := func(e *mock.Engine, host, deployment string) {
		t.Helper()
		for _, r := range e.Requests() {
			if r.Host != host || r.Header.Get("X-Forwarded-For") != "" {
				t.Errorf("%s got Host %q, %v, want %q", e.Name(), r.Host, r.Header, host)
			}
		}
		w.await("metrics call it "+deployment, func() bool { return w.metric("evenkeel_attempts_total", fmt.Sprintf("deployment=%q", deployment)) == 2 })
		w.logged("exchange", deployment)
	}
	f(literal, literal.Addr(), literal.Addr()+"/m")
	f(named, poolHost+":"+port, "pool@[::1]:"+port+"/n")
	w.logged("endpoint serves", "url:http://"+literal.Addr())
	all := w.log.text() + w.get(w.admin+"/metrics").body + w.get(w.admin+"/deployments?format=text").body
	for _, e := range []*mock.Engine{literal, named} { // no text has one without brackets
		if bare := strings.NewReplacer("[", "", "]", "").Replace(e.Addr()); strings.Contains(all, bare) {
			i := strings.Index(all, bare)
			t.Errorf("an address without brackets: %s", all[max(0, i-100):min(len(all), i+50)])
		}
	}
}

// TestCase75InvalidLiterals are refused by the configuration, with the setting, the value and what to write instead.
func TestCase75InvalidLiterals(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		_, err := parseErr(text)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %v, want one with %q", text, err, part)
			}
		}
	}
	for _, url := range []string{"http://[::1:9001", "http://::1:9001", "http://[::g]:9001", "http://[1::2::3]:9001", "http://[::1]9001", "http://[127.0.0.1]:9001"} {
		f(fmt.Sprintf("endpoints: {a: {url: %q}}", url), "endpoints.a.url", url, "http://[::1]:8000")
		if _, err := config.FromURLs([]string{url}, secret.String{}); err == nil || !strings.Contains(err.Error(), url) || !strings.Contains(err.Error(), "http://[::1]:8000") {
			t.Errorf("%s on the command line: %v", url, err)
		}
	}
	for _, listen := range []string{"::1:9000", "[::1:9000", "[::g]:9000", "[::1]9000"} {
		f(fmt.Sprintf("listen: %q\nendpoints: {a: {url: \"http://h:1\"}}", listen), "listen", listen)
	}
}

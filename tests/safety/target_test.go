package safety

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"evenkeel/tests/harness"
)

// hostile are URLs that lead a server where it should not go. CANARY is a listener that must see no connection.
func hostile(canary string) []string {
	urls := []string{
		"http://169.254.169.254/latest/meta-data/", "http://169.254.169.254:80/v1", "http://[::ffff:169.254.169.254]/", "http://[::ffff:a9fe:a9fe]/", "http://[0:0:0:0:0:ffff:a9fe:a9fe]/",
		"http://2852039166/", "http://0xa9fea9fe/", "http://0251.0376.0251.0376/", "http://169.254.43518/", "http://metadata.google.internal/computeMetadata/v1/", "http://metadata/", "http://100.100.100.200/latest",
		"http://[fd00:ec2::254]/", "http://[fe80::1%25eth0]/", "http://192.0.0.192/opc/v1/", "http://instance-data/", "http://kubernetes.default.svc/api", "http://169.254.170.2/v2/credentials",
		"http://localhost/", "http://127.1/", "http://0x7f.1/", "http://0/", "http://0.0.0.0/", "http://[::]/", "http://[::1]/", "http://[::1%25x]/", "http://[::ffff:7f00:1]/", "http://[64:ff9b::7f00:1]/",
		"http://2130706433/", "http://017700000001/", "http://127.0.0.1.nip.io/", "http://localtest.me/", "http://①②⑦.⓪.⓪.①/", "http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.0.1/", "http://100.64.0.1/", "http://224.0.0.1/",
		"http://user:pass@127.0.0.1/", "http://good.example@127.0.0.1/", "http://127.0.0.1#@good.example/", "http://good.example\\@127.0.0.1/", "//127.0.0.1/", "http:127.0.0.1", "http:/127.0.0.1", "http:///127.0.0.1",
		"file:///etc/passwd", "gopher://127.0.0.1:6379/_INFO", "dict://127.0.0.1:11211/stats", "ftp://127.0.0.1/", "ldap://127.0.0.1/", "unix:///var/run/docker.sock", "jar:http://127.0.0.1!/", "data:text/plain,hi",
	}
	for _, form := range []string{"http://%s/", "http://%s/v1", "http://%s/v1/chat/completions", "https://%s", "%s", "//%s/", "http://x@%s/"} {
		urls = append(urls, fmt.Sprintf(form, canary))
	}
	return urls
}

// canary is a listener that counts who comes.
func canary(t testing.TB) (address string, visits *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	visits = new(atomic.Int64)
	done := make(chan struct{})
	go func() { // ends when the listener is closed
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			visits.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), visits
}

// TestC26NobodyChoosesTheTarget: no URL in any part of a request steers where it goes, which stays the one endpoint.
func TestC26NobodyChoosesTheTarget(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	address, visits := canary(t)
	e := serveBefore(t, b)
	host := strings.TrimPrefix(b.url, "http://")
	urls := hostile(address)
	if len(urls) < 60 {
		t.Fatalf("only %d URLs", len(urls))
	}
	for _, u := range urls {
		body := fmt.Sprintf(`{"model":"m","base_url":%[1]q,"api_base":%[1]q,"proxy":%[1]q,"metadata":{"url":%[1]q},"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%[1]q}}]}]}`, u)
		query := "?" + url.Values{"base_url": {u}, "api_base": {u}, "url": {u}}.Encode()
		var lines []string
		for _, name := range []string{"X-Portkey-Custom-Host", "X-Base-Url", "Base-Url", "Api-Base", "X-Forwarded-Host", "X-Original-Url", "X-Upstream", "X-Evenkeel-Endpoint", "X-Evenkeel-Url", "Helicone-Target-Url",
			"Helicone-OpenAI-Api-Base", "Anthropic-Base-Url", "Openai-Base-Url", "Destination", "Proxy", "X-Stainless-Base-Url", "Via", "Referer", "Origin"} {
			lines = append(lines, name+": "+u)
		}
		raw := post(chatPath+query, body, lines...)
		hosted := strings.Replace(post(chatPath, body), "Host: x", "Host: "+u, 1)
		absolute := strings.Replace(post(chatPath, body), "POST /", "POST "+strings.TrimSuffix(u, "/")+"/", 1)
		model := post(chatPath, fmt.Sprintf(`{"model":%q,"messages":[]}`, u))
		pinned := post(chatPath, body, "X-Evenkeel-Pin: "+u)
		below := request("GET /v1/"+u+" HTTP/1.1", "")
		for kind, raw := range map[string]string{"fields and headers": raw, "Host": hosted, "target": absolute, "model": model, "pin": pinned, "path": below} {
			a := ask(t, e.URL, raw)
			if kind == "fields and headers" && a.status != 200 {
				t.Errorf("%s in %s: got %d %s (%v): an image's URL is the endpoint's to judge", u, kind, a.status, a.body, a.err)
			}
			for _, r := range b.take() {
				if h := r.values("Host"); len(h) != 1 || h[0] != host || !strings.HasPrefix(strings.SplitN(r.line, " ", 2)[1], "/v1/") {
					t.Errorf("%s in %s: upstream got\n%s", u, kind, r.text())
				}
				if kind == "fields and headers" && r.body != body {
					t.Errorf("%s: the body was changed to %s", u, r.body)
				}
			}
		}
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("%d connections to an address that clients named", n)
	}
}

// TestC28RedirectsAreNotFollowed: a redirect is the client's to judge, and no key goes with it; nothing is compressed or
// inflated that was not asked for.
func TestC28RedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	address, visits := canary(t)
	e := serveBefore(t, b)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, where := range []string{"http://" + address + "/v1/chat/completions", "http://169.254.169.254/latest/meta-data/", "//" + address, "https://" + address} {
			b.answers(func(*received) string { return jsonAnswer(status, "{}", "Location: "+where) })
			a := ask(t, e.URL, post(chatPath, chatBody))
			if a.status != status || a.header.Get("Location") != where {
				t.Errorf("%d to %s: got %d %v (%v)", status, where, a.status, a.header, a.err)
			}
			if n := len(b.take()); n != 1 {
				t.Errorf("%d to %s: upstream got %d requests", status, where, n)
			}
		}
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
	b.answers(nil)
	for _, asked := range []string{"", "gzip", "br, gzip;q=0"} {
		var lines []string
		if asked != "" {
			lines = []string{"Accept-Encoding: " + asked}
		}
		ask(t, e.URL, post(chatPath, chatBody, lines...))
		for _, r := range b.take() {
			if got := strings.Join(r.values("Accept-Encoding"), "|"); got != asked {
				t.Errorf("the client accepts %q, upstream got %q", asked, got)
			}
		}
	}
}

// TestC27EnvironmentChoosesNoProxy: HTTP_PROXY and its kin change nothing.
func TestC27EnvironmentChoosesNoProxy(t *testing.T) {
	address, visits := canary(t)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "http://"+address)
	}
	t.Setenv("NO_PROXY", "")
	// net/http takes no proxy for what it calls loopback; 0.0.0.0, which leads to this machine too, is not that.
	b := newBackend(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	secure, direct := canary(t)
	config := fmt.Sprintf("endpoints:\n  up: {url: 'http://0.0.0.0:%s', kind: openai-compatible, models: [m]}\n  tls: {url: 'https://0.0.0.0:%s', kind: openai-compatible, models: [s]}\n", port, strings.TrimPrefix(secure, "127.0.0.1:"))
	path := filepath.Join(t.TempDir(), "evenkeel.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	e := harness.Evenkeel(t, "--config", path)
	if a := ask(t, e.URL, post(chatPath, chatBody)); a.status != 200 || len(b.take()) != 1 {
		t.Errorf("got %d %s (%v)", a.status, a.body, a.err)
	}
	if a := ask(t, e.URL, post(chatPath, `{"model":"s","messages":[]}`)); a.status < 500 || direct.Load() == 0 { // nobody speaks TLS there
		t.Errorf("got %d %s (%v), after %d connections", a.status, a.body, a.err, direct.Load())
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("%d connections to the proxy that the environment names", n)
	}
}

// relay passes connections on to an address that may change.
type relay struct {
	url    string
	target atomic.Pointer[string]
}

func newRelay(t testing.TB) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{url: "http://" + l.Addr().String()}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", *r.target.Load())
			if err != nil {
				in.Close()
				continue
			}
			pass := func(to, from net.Conn) { io.Copy(to, from); to.Close(); from.Close() }
			work.Go(func() { pass(out, in) })
			work.Go(func() { pass(in, out) })
		}
	})
	t.Cleanup(func() { // after evenkeel has ended, which ends the connections: cleanups run in the reverse order
		l.Close()
		work.Wait()
	})
	return r
}

// TestC37Loop: an endpoint that leads back to evenkeel answers 508 after three rounds, and soon no more requests run.
func TestC37Loop(t *testing.T) {
	t.Parallel()
	r, b := newRelay(t), newBackend(t)
	real := strings.TrimPrefix(b.url, "http://")
	r.target.Store(&real) // until it is known where evenkeel listens
	path := filepath.Join(t.TempDir(), "evenkeel.yaml")
	if err := os.WriteFile(path, []byte("endpoints:\n  self: {url: "+r.url+", kind: openai-compatible, models: [m]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := harness.Evenkeel(t, "--config", path)
	address := strings.TrimPrefix(e.URL, "http://")
	r.target.Store(&address)
	a := ask(t, e.URL, post(chatPath, chatBody))
	if a.status != 508 || !strings.Contains(a.body, `"evenkeel_loop"`) {
		t.Errorf("got %d %s (%v), want 508", a.status, a.body, a.err)
	}
	harness.Eventually(t, patience, "nothing runs", func() bool { return e.InFlight(t) == 0 })
	exchanges := func() int { return strings.Count(e.Log(), " id=ek-") }
	harness.Eventually(t, patience, "all are logged", func() bool { return exchanges() >= 4 })
	if n := exchanges(); n > 12 {
		t.Errorf("one request became %d", n)
	}
	// A chain of three is none.
	if a := ask(t, e.URL, post(chatPath, chatBody, "X-Evenkeel-Hops: 3")); a.status != 508 {
		t.Errorf("after three: %d %s", a.status, a.body)
	}
}

// TestC37OwnAddress: check and serve refuse an endpoint that is the balancer's own listener.
func TestC37OwnAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ listen, url string }{
		{"127.0.0.1:8123", "http://127.0.0.1:8123"}, {"127.0.0.1:8123", "http://localhost:8123/v1"}, {"localhost:8123", "http://[::1]:8123"}, {"127.0.0.1:80", "http://127.0.0.1"},
	} {
		path := filepath.Join(t.TempDir(), "evenkeel.yaml")
		if err := os.WriteFile(path, []byte("listen: "+c.listen+"\nendpoints:\n  self: {url: '"+c.url+"'}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(harness.Program(t), "check", path).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "endpoints.self.url") || !strings.Contains(string(out), "listen") {
			t.Errorf("listen %s, url %s: %v: %s", c.listen, c.url, err, out)
		}
	}
}

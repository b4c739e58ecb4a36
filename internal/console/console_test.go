package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/ledger"
	"evenkeel/internal/route"
)

func newConsole(o Options) http.Handler {
	if o.Ring == nil {
		o.Ring = ledger.NewRing(1 << 20)
		for _, s := range stories {
			o.Ring.Add(s.record())
		}
		o.Ring.Add(failover())
	}
	if o.View == nil {
		o.View = testView
	}
	o.Version = "v0.1.0"
	o.Now = func() time.Time { return start }
	return Handler(o)
}

func testView() route.View {
	open := route.BreakerView{State: route.Open, Reason: "connect", Since: start.Add(-time.Second), Until: start.Add(3 * time.Second), Out: 4 * time.Second}
	return route.View{
		Epoch: 4,
		Deployments: []route.DeploymentView{
			{ID: "gpu-1/m", Endpoint: "gpu-1", URL: "http://user:hunter2@10.0.0.1:8000/v1?key=hunter2#hunter2", Model: "m", Member: true, Weight: 1, InFlight: 3,
				Limits: route.Limits{InFlight: 8, Tokens: 100000}, Tokens: 4100, Work: 3000, TTFT: 310 * time.Millisecond, ServedModel: "org/m",
				Totals: route.Totals{Picks: 1200, Successes: 1190, Faults: 4, Neutral: 6},
				Signal: route.Signal{At: start.Add(-1500 * time.Millisecond), Running: 5, Waiting: route.NotTold, KVUse: 0.25, CacheTokens: 432_000}},
			{ID: "gpu-2/m", Endpoint: "gpu-2", URL: "http://10.0.0.2:8000", Model: "m", Member: true, Weight: 0.5, Breaker: open},
			{ID: "gpu-3/m", Endpoint: "gpu-3", URL: "%", Model: "m", Member: true, Weight: 1, Breaker: route.BreakerView{State: route.HalfOpen, Reason: "reset"}},
			{ID: "gpu-4/m", Endpoint: "gpu-4", Model: "m", Member: true},
			{ID: "gpu-5/m", Endpoint: "gpu-5", Model: "m", Weight: 1, InFlight: 1},
			{ID: "gpu-6/m", Endpoint: "gpu-6", URL: "http://10.0.0.6:8000", Model: "m", Member: true, Weight: 1},
		},
		Scopes:  []route.ScopeView{{Kind: route.EndpointScope, Name: "gpu-1", InFlight: 3, Tokens: 4100}, {Kind: route.EndpointScope, Name: "gpu-6", URL: "http://10.0.0.6:8000", Breaker: open}},
		Waiting: map[string]int{"m": 2, "big": 1},
	}
}

// get asks the console; headers come in pairs. Host sets the host.
func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	r.Host = "127.0.0.1:8081"
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestRoutes(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "evenkeel_in_flight 1\n") })
	h := newConsole(Options{Metrics: metrics})
	story := Explain(failover()).Text()
	f := func(path string, status int, contentType, contains string, headers ...string) {
		t.Helper()
		w := get(h, path, headers...)
		if w.Code != status || !strings.HasPrefix(w.Header().Get("Content-Type"), contentType) || !strings.Contains(w.Body.String(), contains) {
			t.Errorf("%s: %d %s\n%s\nwant %d %s with %q", path, w.Code, w.Header().Get("Content-Type"), w.Body, status, contentType, contains)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", path, w.Header())
		}
	}
	const text, asJSON = "text/plain; charset=utf-8", "application/json"
	f("/", 200, text, "/explain/last")
	f("/", 200, text, "Evenkeel v0.1.0")
	f("/livez", 200, text, "ok")
	f("/readyz", 200, text, "ready")
	f("/metrics", 200, "text/plain", "evenkeel_in_flight")
	f("/explain/req-failover", 200, asJSON, `"id": "req-failover"`)
	f("/explain/req-failover?format=json", 200, asJSON, `"id": "req-failover"`, "Accept", "text/plain")
	f("/explain/req-failover?format=text", 200, text, story)
	f("/explain/req-failover", 200, text, story, "Accept", "text/plain")
	f("/explain/last", 200, text, story, "Accept", "text/plain")
	f("/explain/last", 200, asJSON, `"ttft_seconds": 0.398`, "Accept", "text/html,*/*;q=0.8")
	f("/explain/last?format=xml", 400, asJSON, `format \"xml\" is not known: it is text or json`)
	f("/explain/nobody", 404, asJSON, `no finished request \"nobody\" is known: 15 requests ended since the start; one that still runs is not among them`)
	f("/explain/"+strings.Repeat("x", 5000), 404, asJSON, `xxx...\" is known`)
	f("/explain/nobody?format=text", 404, text, `no finished request "nobody" is known`)
	f("/explain", 200, asJSON, `"kept": 15`)
	f("/explain?format=text", 200, text, "15 of 15 requests")
	f("/explain?n=2&format=text", 200, text, "2 of 15 requests")
	for _, n := range []string{"0", "-1", "1001", "x", "99999999999999999999"} {
		f("/explain?n="+n, 400, asJSON, "it must be a number from 1 to 1000")
	}
	f("/deployments", 200, asJSON, `"work_tokens": 3000`)
	f("/deployments?format=text", 200, text, "out (connect) for 3.00 s")
	f("/nothing", 404, text, "not found")
}

func TestRecentGolden(t *testing.T) {
	w := get(newConsole(Options{}), "/explain?format=text")
	golden(t, "recent.txt", w.Body.Bytes())
	w = get(newConsole(Options{}), "/explain?n=1")
	golden(t, "recent.json", w.Body.Bytes())
}

func TestDeploymentsGolden(t *testing.T) {
	h := newConsole(Options{})
	asText, asJSON := get(h, "/deployments?format=text"), get(h, "/deployments")
	golden(t, "deployments.txt", asText.Body.Bytes())
	golden(t, "deployments.json", asJSON.Body.Bytes())
	if s := asText.Body.String() + asJSON.Body.String(); strings.Contains(s, "hunter2") || strings.Contains(s, "user") {
		t.Error("a URL's credentials are shown")
	}
	var back Fleet
	if err := json.Unmarshal(asJSON.Body.Bytes(), &back); err != nil || len(back.Deployments) != 6 {
		t.Errorf("the JSON cannot be read back: %v", err)
	}
}

// A single endpoint has a place for requests without a model. It is no deployment that anybody set up.
func TestPlaceForRequestsWithoutAModel(t *testing.T) {
	f := func(running int, want string) {
		t.Helper()
		view := route.View{
			Deployments: []route.DeploymentView{{ID: "gpu-3/", Endpoint: "gpu-3", Member: true, Weight: 1, InFlight: running}},
			Scopes:      []route.ScopeView{{Kind: route.EndpointScope, Name: "gpu-3", InFlight: running, Breaker: route.BreakerView{State: route.HalfOpen, Reason: "unreachable"}}},
		}
		text := get(newConsole(Options{View: func() route.View { return view }}), "/deployments?format=text").Body.String()
		if !strings.HasPrefix(text, want) || strings.Contains(text, "gpu-3/") != (running > 0) || !strings.Contains(text, "endpoint gpu-3  on trial (unreachable)") {
			t.Errorf("%d running:\n%s", running, text)
		}
	}
	f(0, "0 deployments (epoch 0)\n\nshared ")
	f(1, "1 deployment (epoch 0)\n\ndeployment ")
}

func TestUnlistedModelIsMarked(t *testing.T) {
	h := newConsole(Options{Unlisted: func(endpoint, model string) bool { return endpoint == "gpu-1" && model == "m" }})
	if text := get(h, "/deployments?format=text").Body.String(); strings.Count(text, "the endpoint does not list this model") != 1 {
		t.Error(text)
	}
	if text := get(h, "/deployments").Body.String(); strings.Count(text, `"unlisted": true`) != 1 {
		t.Error(text)
	}
}

func TestStoryOfARequestWithoutAModel(t *testing.T) {
	r := simple()
	r.Facts.Model, r.Facts.API, r.Model, r.Attempts[0].Model = "", "other", "", ""
	if text := Explain(r).Text(); !strings.Contains(text, " UTC: no model, other,") || strings.Contains(text, "as model") {
		t.Error(text)
	}
}

func TestWhatTheRingHolds(t *testing.T) {
	f := func(ring *ledger.Ring, want string) {
		t.Helper()
		for _, path := range []string{"/explain/x", "/explain/last"} {
			if path == "/explain/last" && ring.Usage().Records > 0 {
				continue
			}
			if w := get(newConsole(Options{Ring: ring}), path, "Accept", "text/plain"); w.Code != 404 || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %d %q, want 404 with %q", path, w.Code, w.Body, want)
			}
		}
	}
	f(ledger.NewRing(0), "switched off (explain.ring_mib is 0)")
	f(ledger.NewRing(1000), "none has ended since the start")
	full := ledger.NewRing(5000)
	for range 20 {
		full.Add(clientGone())
	}
	f(full, fmt.Sprintf("the last %s are kept, from 2026-03-01 12:00:00 UTC on; older ones are gone", count(full.Usage().Records, "request")))
}

func TestReadiness(t *testing.T) {
	var ready error
	h := newConsole(Options{Ready: func() error { return ready }})
	if w := get(h, "/readyz"); w.Code != 200 {
		t.Errorf("ready: %d", w.Code)
	}
	ready = errors.New("draining\x1b[2J")
	if w := get(h, "/readyz"); w.Code != 503 || w.Body.String() != "not ready: draining\\x1b[2J\n" {
		t.Errorf("not ready: %d %q", w.Code, w.Body)
	}
	if w := get(h, "/livez"); w.Code != 200 {
		t.Errorf("alive though not ready: %d", w.Code)
	}
}

func TestOtherSitesAreRefused(t *testing.T) {
	h := newConsole(Options{Hosts: []string{"Console.example.com"}})
	f := func(want int, headers ...string) {
		t.Helper()
		w := get(h, "/explain/last", headers...)
		if w.Code != want {
			t.Errorf("%q: status %d, want %d", headers, w.Code, want)
		}
		if want == 403 && strings.Contains(w.Body.String(), "req-") {
			t.Errorf("%q: the refusal tells about a request: %s", headers, w.Body)
		}
		if w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q: the answer is open to other sites", headers)
		}
	}
	for _, host := range []string{"127.0.0.1:8081", "127.0.0.1", "[::1]:8081", "[::1]", "10.1.2.3:80", "localhost:8081", "LOCALHOST", "localhost.", "console.example.com:8081", ""} {
		f(200, "Host", host)
	}
	for _, host := range []string{"evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example:8081", "127.0.0.1.nip.io",
		"xconsole.example.com", "[::1", "localhost:8081:1", "evil@127.0.0.1", "127.0.0.1/", "0x7f.1", "."} {
		f(403, "Host", host)
	}
	f(200, "Origin", "http://127.0.0.1:8081")
	f(200, "Host", "localhost:8081", "Origin", "http://LOCALHOST:8081")
	for _, origin := range []string{"null", "http://evil.example", "http://127.0.0.1:3000", "http://127.0.0.1", "http://localhost:8081", "file://", "%", "ftp://127.0.0.1:8081"} {
		f(403, "Origin", origin)
	}
	f(403, "Origin", "http://127.0.0.1:8081", "Origin", "http://evil.example")
}

// A refusal of a host says which are answered, and where more come from.
func TestRefusedHostIsToldTheNames(t *testing.T) {
	f := func(want string, names ...string) {
		t.Helper()
		w := get(Handler(Options{Ring: ledger.NewRing(0), Hosts: names}), "/", "Host", "lb-7:8081")
		if text := w.Body.String(); w.Code != 403 || !strings.Contains(text, `host "lb-7:8081" is refused`) || !strings.Contains(text, ": ask by "+want+"; more names") ||
			!strings.Contains(text, "admin_tls") || !strings.Contains(text, "admin: in the configuration") {
			t.Errorf("%q: %d %s, want %q", names, w.Code, text, want)
		}
	}
	f("IP address or localhost")
	f("IP address or localhost", "127.0.0.1", "", "::1")
	f("IP address, localhost or lb.example", "lb.example")
	f("IP address, localhost, lb.example or lb", "0.0.0.0", "lb.example", "localhost", "lb", "lb.example")
}

func TestOnlyReads(t *testing.T) {
	h := newConsole(Options{})
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "NONSENSE"} {
		r := httptest.NewRequest(method, "/explain/last", nil)
		r.Host = "127.0.0.1:8081"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: status %d, allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
}

// Over a real socket: HEAD has a length and no body.
func TestHead(t *testing.T) {
	s := httptest.NewServer(newConsole(Options{}))
	defer s.Close()
	client := s.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Head(s.URL + "/explain/last")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.ContentLength <= 0 {
		t.Errorf("status %d, length %d", resp.StatusCode, resp.ContentLength)
	}
}

func TestPrefersText(t *testing.T) {
	f := func(accept string, want bool) {
		t.Helper()
		if got := prefersText(accept); got != want {
			t.Errorf("prefersText(%q) = %v", accept, got)
		}
	}
	f("", false)
	f("*/*", false)
	f("text/plain", true)
	f("Text/Plain; charset=utf-8", true)
	f("application/json, text/plain, */*", false)
	f("text/plain, application/json", true)
	f("application/json;q=0.5, text/plain;q=0.6", true)
	f("text/plain;q=0", false)
	f("text/plain;q=2", false)
	f("text/plain;q=NaN", false)
	f("text/html,application/xhtml+xml,*/*;q=0.8", false)
	f(",;,/,text/plain", true)
}

func FuzzPrefersText(f *testing.F) {
	for _, s := range []string{"text/plain", "application/json;q=0.5, text/plain;q=0.6", "*/*", ";;q=,", "text/plain;q=\"1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		if prefersText(accept) && !strings.Contains(strings.ToLower(accept), "text/plain") {
			t.Errorf("%q does not name text/plain", accept)
		}
	})
}

// Whatever a Host header says, only addresses and localhost pass: a browser never puts another site's
// page under these.
func FuzzHostAllowed(f *testing.F) {
	for _, s := range []string{"127.0.0.1:8081", "[::1]:8081", "localhost", "evil.example:80", "[fe80::1%25eth0]:1", "", "[", "localhost..", "::1", "[localhost]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !hostAllowed(host, nil) || host == "" {
			return
		}
		name := host
		if h, _, err := net.SplitHostPort(host); err == nil {
			name = h
		}
		name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
		_, err := netip.ParseAddr(name)
		if err != nil && !strings.EqualFold(strings.TrimSuffix(name, "."), "localhost") {
			t.Errorf("%q is allowed", host)
		}
	})
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[2J", "\u202e", "\xff\xfe", "\ufffd", "a\r\nb", "漢字"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := clean(s)
		if clean(out) != out {
			t.Errorf("clean(%q) = %q is not clean", s, out)
		}
		for _, r := range out {
			if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
				t.Errorf("clean(%q) keeps %q", s, r)
			}
		}
	})
}

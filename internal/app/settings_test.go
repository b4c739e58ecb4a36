package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"evenkeel/internal/mock"
	"evenkeel/internal/strategy"
)

// posts are the API calls that an engine recorded.
func posts(e *mock.Engine) []mock.Recorded {
	return slices.DeleteFunc(e.Requests(), func(r mock.Recorded) bool { return r.Method != http.MethodPost })
}

func TestAlias(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"org/real-model"}, Record: 50})
	w := start(t, parse(t, endpoint(e.URL(), "models: {nice: {providers: [{name: e, model: org/real-model}]}}")))
	w.serves("nice", "org/real-model")
	a := w.chat("nice")
	if a.status != http.StatusOK || a.header.Get("X-Evenkeel-Model") != "nice" || !strings.Contains(a.body, `"model":"org/real-model"`) {
		t.Errorf("%d, x-evenkeel-model %q, body %s", a.status, a.header.Get("X-Evenkeel-Model"), a.body)
	}
	// Nothing but the bytes of the name may change.
	want := strings.Replace(body("nice", ""), `"nice"`, `"org/real-model"`, 1)
	if sent := posts(e); len(sent) != 1 || string(sent[0].Body) != want {
		t.Errorf("the engine got %q, want once %q", sent, want)
	}
}

func TestWeights(t *testing.T) {
	three := engine(t, mock.Config{Name: "three", Models: []string{"m"}})
	one := engine(t, mock.Config{Name: "one", Models: []string{"m"}})
	never := engine(t, mock.Config{Name: "never", Models: []string{"m"}})
	w := start(t, parse(t, fmt.Sprintf(`
strategy: weighted
endpoints:
  three: {url: %q, weight: 1.5}
  one: {url: %q}
  never: {url: %q, weight: 0}
models:
  m: {providers: [{name: three, weight: 2}, {name: one}, {name: never, weight: 5}]}
`, three.URL(), one.URL(), never.URL())))
	w.serves("m")
	seen := map[string]int{}
	for range 40 {
		seen[answered(w.chat("m"))]++
	}
	if seen["three"] != 30 || seen["one"] != 10 {
		t.Errorf("of 40 requests %v, want 30 and 10 for weights 3 and 1", seen)
	}
}

func TestStrategyPerModel(t *testing.T) {
	a, b := engine(t, mock.Config{Models: []string{"x", "y"}}), engine(t, mock.Config{Models: []string{"x", "y"}})
	w := start(t, parse(t, fmt.Sprintf(`
endpoints: {a: {url: %q}, b: {url: %q}}
strategy: least_connections
models: {x: {strategy: {name: p2c_ewma, half_life: 3s}}}
`, a.URL(), b.URL())))
	w.serves("x", "y")
	for model, want := range map[string]string{"x": "p2c_ewma", "y": "least_connections"} {
		w.await("both endpoints serve "+model, func() bool {
			id := w.chat(model).header.Get("X-Evenkeel-Id")
			w.await("it can be explained", func() bool { return w.app.ring.Find(id) != nil })
			return len(w.app.ring.Find(id).Attempts[0].Decision.Candidates) == 2
		})
		if got := w.app.ring.Last(1)[0].Attempts[0].Decision.Strategy; got != want {
			t.Errorf("%s was placed by %s, want %s", model, got, want)
		}
	}
}

// More requests than the limit allows wait, and are let in in the order in which they came.
func TestLimitQueuesInOrder(t *testing.T) {
	for _, where := range []string{
		"endpoints: {e: {url: %q, limits: {in_flight: 1}}}",
		"endpoints: {e: {url: %q}}\nmodels: {m: {providers: [{name: e, limits: {in_flight: 1}}]}}",
	} {
		e := newGated(t, "m")
		w := start(t, parse(t, fmt.Sprintf(where, e.URL)))
		w.serves("m")
		const requests = 6
		answers := make(chan answer, requests)
		var want []string
		for i := range requests {
			id := fmt.Sprint("request-", i)
			want = append(want, id)
			go func() { answers <- w.chat("m", "X-Request-Id", id) }()
			w.await("the request runs or waits", func() bool {
				return int(e.running.Load())+int(w.metric("evenkeel_queue_depth")) == i+1
			})
		}
		if n := e.running.Load(); n != 1 {
			t.Errorf("%d requests run, want 1", n)
		}
		e.open()
		for range requests {
			if a := <-answers; a.status != http.StatusOK {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		if !slices.Equal(e.ids, want) {
			t.Errorf("the engine saw %v, want %v", e.ids, want)
		}
		w.await("the records say of all but the first that they waited", func() bool {
			waited := 0
			for _, r := range w.app.ring.Last(requests) {
				if r.Queued > 0 && len(r.Refusals) > 0 {
					waited++
				}
			}
			return waited == requests-1
		})
	}
}

func TestQueueBound(t *testing.T) {
	e := newGated(t, "m")
	w := start(t, parse(t, fmt.Sprintf("endpoints: {e: {url: %q, limits: {in_flight: 1}}}\nqueue: {max_waiting: 1}", e.URL)))
	w.serves("m")
	answers := make(chan answer, 2)
	go func() { answers <- w.chat("m") }()
	w.await("one runs", func() bool { return e.running.Load() == 1 })
	go func() { answers <- w.chat("m") }()
	w.await("one waits", func() bool { return w.metric("evenkeel_queue_depth") == 1 })
	if a := w.chat("m"); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "evenkeel_queue_full") || a.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d %s", a.status, a.body)
	}
	e.open()
	for range 2 {
		if a := <-answers; a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

func TestFallbackChain(t *testing.T) {
	e := engine(t, mock.Config{Name: "second", Models: []string{"small"}})
	w := start(t, parse(t, fmt.Sprintf(`
endpoints: {dead: {url: "http://%s"}, well: {url: %q}}
models:
  large:
    providers: [{name: dead}]
    fallback_chain: [nowhere, small]
`, freeAddr(t), e.URL())))
	w.serves("large", "small")
	a := w.chat("large")
	h := a.header
	if a.status != http.StatusOK || answered(a) != "second" || h.Get("X-Evenkeel-Model") != "small" || h.Get("X-Evenkeel-Fallback-Depth") != "1" {
		t.Errorf("%d %v %s", a.status, h, a.body)
	}
	a = w.chat("large", "x-evenkeel-fallback", "off")
	if a.status != http.StatusServiceUnavailable && a.status != http.StatusBadGateway || a.header.Get("X-Evenkeel-Fallback-Depth") != "0" {
		t.Errorf("with fallback off: %d %v %s", a.status, a.header, a.body)
	}
	if a := w.chat("small"); a.status != http.StatusOK || a.header.Get("X-Evenkeel-Fallback-Depth") != "0" {
		t.Errorf("asked directly: %d %v", a.status, a.header)
	}
}

// A model that is configured and served nowhere is not listed, and its fallbacks are tried.
func TestModelServedNowhere(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"m"}})
	w := start(t, parse(t, endpoint(e.URL(), "models: {lost: {}, found: {fallback_chain: [m]}}")))
	w.serves("m")
	if a := w.chat("lost"); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "evenkeel_no_deployment") {
		t.Errorf("without fallback: %d %s", a.status, a.body)
	}
	if a := w.chat("found"); a.status != http.StatusOK || a.header.Get("X-Evenkeel-Fallback-Depth") != "1" {
		t.Errorf("with fallback: %d %v %s", a.status, a.header, a.body)
	}
}

func TestPinAndExclude(t *testing.T) {
	a, b := engine(t, mock.Config{Name: "a", Models: []string{"m"}}), engine(t, mock.Config{Name: "b", Models: []string{"m"}})
	w := start(t, parse(t, fmt.Sprintf("endpoints: {a: {url: %q}, b: {url: %q}}\nmodels: {m: {providers: [{name: a}, {name: b}]}}", a.URL(), b.URL())))
	w.serves("m")
	for _, c := range []struct{ header, value, want string }{
		{"x-evenkeel-pin", "a", "a"},
		{"x-evenkeel-pin", "b/m", "b"},
		{"x-evenkeel-exclude", "a", "b"},
		{"x-evenkeel-exclude", " nobody , b/m", "a"},
	} {
		for range 4 {
			if got := w.chat("m", c.header, c.value); got.status != http.StatusOK || answered(got) != c.want {
				t.Errorf("%s: %s: %d by %q, want %q", c.header, c.value, got.status, answered(got), c.want)
			}
		}
	}
	for header, value := range map[string]string{"x-evenkeel-pin": "c", "x-evenkeel-exclude": "a,b"} {
		got := w.chat("m", header, value)
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, "evenkeel_no_deployment") {
			t.Errorf("%s: %s: %d %s", header, value, got.status, got.body)
		}
	}
}

func TestClientTimeout(t *testing.T) {
	e := newGated(t, "m")
	w := start(t, parse(t, endpoint(e.URL, "")))
	w.serves("m")
	if a := w.chat("m", "x-evenkeel-timeout", "30ms"); a.status != http.StatusGatewayTimeout || !strings.Contains(a.body, "evenkeel_deadline_exceeded") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.chat("m", "x-evenkeel-timeout", "soon"); a.status != http.StatusBadRequest || !strings.Contains(a.body, "x-evenkeel-timeout") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if d := w.find("e/m"); d.Breaker.State != 0 {
		t.Errorf("a client's own short deadline tripped the breaker: %+v", d.Breaker)
	}
}

func TestExposedHeaders(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"m"}})
	optional := []string{"X-Evenkeel-Deployment", "X-Evenkeel-Attempts", "X-Evenkeel-Decision"}
	w := start(t, parse(t, endpoint(e.URL(), "")))
	w.serves("m")
	a := w.chat("m")
	for _, name := range []string{"X-Evenkeel-Id", "X-Evenkeel-Model", "X-Evenkeel-Fallback-Depth"} {
		if a.header.Get(name) == "" {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range optional {
		if v := a.header.Get(name); v != "" {
			t.Errorf("%s: %s is shown unasked", name, v)
		}
	}
	w.reload(endpoint(e.URL(), "expose_headers: [deployment, attempts, decision]"))
	a = w.chat("m")
	if got := []string{a.header.Get(optional[0]), a.header.Get(optional[1])}; !slices.Equal(got, []string{"e/m", "1"}) ||
		!strings.Contains(a.header.Get(optional[2]), strategy.Default) {
		t.Errorf("got %v and %q", got, a.header.Get(optional[2]))
	}
}

func TestForwardedHeaders(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"m"}, Record: 50})
	w := start(t, parse(t, endpoint(e.URL(), "forward_headers: [X-Team]")))
	w.serves("m")
	a := w.chat("m", "X-Team", "blue", "X-Other", "red", "Anthropic-Beta", "tools", "Authorization", "Bearer "+clientKey,
		"Cookie", "s="+clientKey, "X-Evenkeel-Pin", "e")
	if a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	h := posts(e)[0].Header
	if h.Get("X-Team") != "blue" || h.Get("Anthropic-Beta") != "tools" {
		t.Errorf("headers are missing upstream: %v", h)
	}
	for _, name := range []string{"X-Other", "Authorization", "Cookie", "X-Evenkeel-Pin"} {
		if h.Get(name) != "" {
			t.Errorf("%s went upstream", name)
		}
	}
}

func TestVirtualKeys(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"m"}, APIKey: upstreamKey, Record: 50})
	sum := sha256.Sum256([]byte(clientKey))
	w := start(t, parse(t, fmt.Sprintf(`
endpoints: {e: {url: %q, api_key: "${UPSTREAM_KEY}"}}
virtual_keys: [{name: support-agent, sha256: %s}]
`, e.URL(), hex.EncodeToString(sum[:]))))
	w.logged("endpoint serves", "m")
	for _, headers := range [][]string{nil, {"Authorization", "Bearer " + canary + "wrong"}, {"X-Api-Key", canary + "wrong"}} {
		if a := w.chat("m", headers...); a.status != http.StatusUnauthorized || !strings.Contains(a.body, "invalid_api_key") {
			t.Errorf("with %v: %d %s", headers, a.status, a.body)
		}
		if a := w.get(w.url+"/v1/models", headers...); a.status != http.StatusUnauthorized {
			t.Errorf("models with %v: %d", headers, a.status)
		}
	}
	if n := len(posts(e)); n != 0 {
		t.Errorf("%d requests without a valid key reached the engine", n)
	}
	for _, headers := range [][]string{{"Authorization", "Bearer " + clientKey}, {"X-Api-Key", clientKey}} {
		if a := w.chat("m", headers...); a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	for _, r := range posts(e) {
		if r.Header.Get("Authorization") != "Bearer "+upstreamKey || r.Header.Get("X-Api-Key") != "" {
			t.Errorf("the engine did not get its own key alone")
		}
	}
	const strangers = 6
	w.await("a line is logged for each request", func() bool { return len(w.lines("exchange")) == strangers+2 })
	for _, l := range w.lines("exchange") {
		if l["result"] == "rejected" {
			if l["level"] != "DEBUG" || l["key"] != nil || l["code"] != "evenkeel_invalid_api_key" {
				t.Errorf("a stranger's request: %v", l)
			}
			continue
		}
		if l["key"] != "support-agent" {
			t.Errorf("the log does not name the key: %v", l)
		}
	}
	if w.get(w.url+"/readyz").status != http.StatusOK {
		t.Error("readyz asks for a key")
	}
}

func TestClientCredentials(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"m"}, APIKey: clientKey, Record: 50})
	w := start(t, parse(t, fmt.Sprintf("endpoints: {e: {url: %q, models: [m]}}\ncredentials: client", e.URL())))
	w.serves("m")
	if a := w.chat("m", "Authorization", "Bearer "+clientKey); a.status != http.StatusOK {
		t.Errorf("with the key: %d %s", a.status, a.body)
	}
	if a := w.chat("m"); a.status != http.StatusUnauthorized {
		t.Errorf("without: %d %s, want the engine's own 401", a.status, a.body)
	}
}

func TestMaxBody(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"m"}, Record: 50})
	w := start(t, parse(t, endpoint(e.URL(), "max_body: 200")))
	w.serves("m")
	fits := body("m", "")
	fits += strings.Repeat(" ", 200-len(fits))
	for _, c := range []struct {
		body string
		want int
	}{{fits, http.StatusOK}, {fits + " ", http.StatusRequestEntityTooLarge}} {
		a := w.do(http.MethodPost, w.url+"/v1/chat/completions", c.body)
		if a.status != c.want {
			t.Errorf("%d bytes: %d %s, want %d", len(c.body), a.status, a.body, c.want)
		}
	}
	if n := len(posts(e)); n != 1 {
		t.Errorf("the engine got %d requests, want 1", n)
	}
}

// The metrics listener answers nothing but metrics.
func TestMetricsListener(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}})
	c := parse(t, endpoint(e.URL(), "metrics: 127.0.0.1:0"))
	w := start(t, c)
	var addr string
	w.await("it listens", func() bool {
		for _, l := range w.lines("listening") {
			if l["for"] == "metrics" {
				addr = l["addr"].(string)
			}
		}
		return addr != ""
	})
	if a := w.get("http://" + addr + "/metrics"); a.status != http.StatusOK || !strings.Contains(a.body, "evenkeel_build_info") {
		t.Errorf("%d %.100s", a.status, a.body)
	}
	if a := w.get("http://" + addr + "/explain/last"); strings.Contains(a.body, "explain") || json.Valid([]byte(a.body)) {
		t.Errorf("it answers /explain/last: %.200s", a.body)
	}
}

// A model that nobody has is refused in the words of the client's API, and nobody is asked.
func TestUnknownModel(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"m"}, Record: 50})
	w := start(t, parse(t, endpoint(e.URL(), "")))
	w.serves("m")
	for path, want := range map[string]string{
		"/v1/chat/completions": `"code":"model_not_found"`,
		"/v1/messages":         `"type":"not_found_error"`,
		"/v1/embeddings":       `"code":"model_not_found"`,
	} {
		a := w.do(http.MethodPost, w.url+path, body("unknown", `,"max_tokens":5,"input":"x"`))
		if a.status != http.StatusNotFound || !strings.Contains(a.body, want) || !strings.Contains(a.body, "unknown") {
			t.Errorf("%s: %d %s, want 404 with %s", path, a.status, a.body, want)
		}
	}
	if n := len(posts(e)); n != 0 {
		t.Errorf("the engine was asked %d times", n)
	}
}

// The client's own request id need not be unique: both are served, and told apart by ours.
func TestSameRequestIDTwice(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"m"}, Record: 50})
	w := start(t, parse(t, endpoint(e.URL(), "")))
	w.serves("m")
	ids := map[string]bool{}
	for range 2 {
		a := w.chat("m", "X-Request-Id", "the-same")
		if a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
		ids[a.header.Get("X-Evenkeel-Id")] = true
	}
	if len(ids) != 2 || len(posts(e)) != 2 {
		t.Errorf("ids %v, %d requests upstream; want 2 of each", ids, len(posts(e)))
	}
	w.await("both are logged", func() bool { return len(w.lines("exchange")) == 2 })
}

// Without an admin listener everything else works.
func TestWithoutAdminListener(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}})
	c := *parse(t, endpoint(e.URL(), "explain: {ring_mib: 0}"))
	c.Admin = ""
	a, err := New(&c, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.Listen()
	if err != nil {
		t.Fatal(err)
	}
	if l.Admin != nil || l.Metrics != nil {
		t.Errorf("listeners %+v, want that for data alone", l)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, l) }() // ends with ctx
	w := &world{t: t, app: a, url: "http://" + l.Data.Addr().String(), client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	w.serves("m")
	if got := w.chat("m"); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := len(a.ring.Last(1)); n != 0 {
		t.Errorf("%d records are kept in a ring of 0 MiB", n)
	}
}

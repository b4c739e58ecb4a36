package app

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/mock"
	"evenkeel/internal/secret"
)

// freeAddr is an address where nothing listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestEndpointJoinsWhenItComesUp(t *testing.T) {
	addr := freeAddr(t)
	w := start(t, fromURLs(t, "", "http://"+addr))
	if a := w.get(w.url + "/readyz"); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "no model") {
		t.Errorf("readyz before the first model: %d %q, want 503 and why", a.status, a.body)
	}
	w.logged("endpoint does not answer yet; it joins when it does", addr)
	if a := w.chat("m"); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "evenkeel_model_not_ready") {
		t.Errorf("before the first model: %d %s, want 503", a.status, a.body)
	}
	began := time.Now()
	engine(t, mock.Config{Listen: addr, Name: "late", Models: []string{"m"}})
	w.await("it is ready", func() bool { return w.get(w.url+"/readyz").status == http.StatusOK })
	took := time.Since(began)
	t.Logf("joined after %v", took.Round(time.Millisecond))
	if took > 5*time.Second { // about one second on a calm machine
		t.Errorf("the endpoint joined after %v", took)
	}
	if a := w.chat("m"); a.status != http.StatusOK || answered(a) != "late" {
		t.Errorf("after it joined: %d %s", a.status, a.body)
	}
	w.logged("endpoint serves", "m", addr)
}

func TestModelsOfAllEndpoints(t *testing.T) {
	one := engine(t, mock.Config{Name: "one", Models: []string{"only-one", "both"}})
	two := engine(t, mock.Config{Name: "two", Models: []string{"both", "only-two"}})
	w := start(t, fromURLs(t, "", one.URL(), two.URL()+"/v1"))
	w.serves("both", "only-one", "only-two")
	for range 5 {
		for model, want := range map[string]string{"only-one": "one", "only-two": "two"} {
			if a := w.chat(model); a.status != http.StatusOK || answered(a) != want {
				t.Errorf("%s: %d by %q, want %q: %s", model, a.status, answered(a), want, a.body)
			}
		}
	}
	seen := map[string]int{}
	for range 40 {
		seen[answered(w.chat("both"))]++
	}
	if seen["one"] == 0 || seen["two"] == 0 || seen["one"]+seen["two"] != 40 {
		t.Errorf("a model of both was served by %v", seen)
	}
	if a := w.chat(""); a.status != http.StatusBadRequest {
		t.Errorf("chat without a model: %d %s, want 400", a.status, a.body)
	}
	if a := w.get(w.url + "/v1/files"); a.status != http.StatusNotFound || !strings.Contains(a.body, "2 endpoints") {
		t.Errorf("no model and two endpoints: %d %s, want 404 that says why", a.status, a.body)
	}
}

// A path that needs no model has one place to go.
func TestNoModelSingleEndpoint(t *testing.T) {
	e := engine(t, mock.Config{Name: "one", Models: []string{"m"}, Record: 50})
	w := start(t, fromURLs(t, "", e.URL()))
	w.serves("m")
	a := w.get(w.url + "/v1/files?limit=3")
	if a.status != http.StatusNotFound || !strings.Contains(a.body, "nothing at /v1/files") {
		t.Errorf("%d %s, want the engine's own 404", a.status, a.body)
	}
	passed := false
	for _, r := range e.Requests() {
		passed = passed || r.Path == "/v1/files?limit=3"
	}
	if !passed {
		t.Error("the engine did not see the request")
	}
}

func TestEndpointReturnsWithOtherModels(t *testing.T) {
	old := engine(t, mock.Config{Name: "old", Models: []string{"before"}})
	w := start(t, fromURLs(t, "", old.URL()))
	w.serves("before")
	addr := old.Addr()
	old.Kill()
	if a := w.chat("before"); a.status != http.StatusBadGateway && a.status != http.StatusServiceUnavailable {
		t.Errorf("while it is down: %d %s", a.status, a.body)
	}
	if got := w.models(); len(got) != 1 || got[0] != "before" {
		t.Errorf("while it is down %q are listed, want what it served", got)
	}
	engine(t, mock.Config{Listen: addr, Name: "new", Models: []string{"after"}})
	w.serves("after")
	if a := w.chat("after"); a.status != http.StatusOK || answered(a) != "new" {
		t.Errorf("%d by %q: %s", a.status, answered(a), a.body)
	}
	if a := w.chat("before"); a.status != http.StatusNotFound {
		t.Errorf("the model that is gone: %d %s, want 404", a.status, a.body)
	}
}

func TestUpstreamKey(t *testing.T) {
	e := engine(t, mock.Config{Name: "locked", Models: []string{"m"}, APIKey: upstreamKey, Record: 50})
	w := start(t, fromURLs(t, upstreamKey, e.URL()))
	w.serves("m")
	if a := w.chat("m", "Authorization", "Bearer "+clientKey); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, r := range e.Requests() {
		if got := r.Header.Get("Authorization"); got != "Bearer "+upstreamKey {
			t.Errorf("%s %s came with another key than the configured one", r.Method, r.Path)
		}
	}
}

func TestWrongUpstreamKey(t *testing.T) {
	e := engine(t, mock.Config{Name: "locked", Models: []string{"m"}, APIKey: "another"})
	w := start(t, fromURLs(t, upstreamKey, e.URL()))
	w.logged("endpoint answers, but not as expected", "401", "does not accept the key", "--upstream-key")
	if a := w.get(w.url + "/readyz"); a.status != http.StatusServiceUnavailable {
		t.Errorf("readyz: %d %q", a.status, a.body)
	}
	refusesOurCredential(w)
}

// refusesOurCredential: nobody can say that a model does not exist which an endpoint may have that refuses our key.
func refusesOurCredential(w *world) {
	w.t.Helper()
	a := w.chat("m")
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "evenkeel_model_not_ready") || !strings.Contains(a.body, "refused the credential") {
		w.t.Errorf("%d %s", a.status, a.body)
	}
}

func TestMissingUpstreamKey(t *testing.T) {
	e := engine(t, mock.Config{Name: "locked", Models: []string{"m"}, APIKey: "another"})
	w := start(t, fromURLs(t, "", e.URL()))
	w.logged("endpoint answers, but not as expected", "401", "needs a key", "--upstream-key")
	refusesOurCredential(w)
}

func TestDuplicateURLs(t *testing.T) {
	_, err := config.FromURLs([]string{"http://127.0.0.1:9001", "http://127.0.0.1:9001/v1"}, secret.String{})
	if err == nil || !strings.Contains(err.Error(), "are both named 127.0.0.1:9001; remove one") {
		t.Errorf("got %v", err)
	}
}

// An endpoint that takes connections and never answers must not keep the others from being served.
func TestHangingEndpointDoesNotHoldUpTheStart(t *testing.T) {
	hangs := engine(t, mock.Config{Name: "hangs", Models: []string{"h"}})
	if err := hangs.SetFault(mock.Fault{Kind: "hang", Path: "/"}); err != nil {
		t.Fatal(err)
	}
	well := engine(t, mock.Config{Name: "well", Models: []string{"m"}})
	w := start(t, fromURLs(t, "", hangs.URL(), well.URL()))
	if a := w.chat("m"); a.status != http.StatusOK || answered(a) != "well" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

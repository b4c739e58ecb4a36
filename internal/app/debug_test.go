package app

import (
	"net/http"
	"strings"
	"testing"

	"evenkeel/internal/mock"
)

// Profiles are on the admin listener and nowhere else.
func TestC24NoDebugRoutesOnDataAndMetrics(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m", "n"}})
	w := start(t, parse(t, "metrics: 127.0.0.1:0\nendpoints: {a: {url: "+e.URL()+", kind: vllm, models: [m]}, b: {url: "+e.URL()+"/b, kind: vllm, models: [n]}}"))
	shows := func(a answer) bool {
		return a.err != nil || strings.Contains(a.body, "goroutine ") || strings.HasPrefix(a.body, "\x1f\x8b") || strings.HasPrefix(a.body, "go 1.") || strings.Contains(a.body, "cmdline")
	}
	for _, path := range []string{"/debug", "/debug/", "/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline",
		"/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1", "/debug/vars", "/debug/requests", "/debug/events", "//debug/pprof/heap"} {
		if a := w.get(w.url + path); shows(a) || a.status < 400 {
			t.Errorf("the data listener answers %s: %+v", path, a)
		}
		if a := w.get("http://" + w.address("metrics") + path); shows(a) {
			t.Errorf("the metrics listener answers %s: %+v", path, a)
		}
	}
	if a := w.get(w.admin + "/debug/pprof/goroutine?debug=2"); a.status != http.StatusOK || !shows(a) {
		t.Errorf("the admin listener has no profiles: %+v", a)
	}
}

// address is where the App listens for "data", "admin" or "metrics".
func (w *world) address(what string) string {
	w.t.Helper()
	for _, l := range w.lines("listening") {
		if l["for"] == what {
			return l["addr"].(string)
		}
	}
	w.t.Fatalf("no listener for %s", what)
	return ""
}

package proxy

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// TestLoadReport reads the forms that engines send, and nothing out of what is none.
func TestLoadReport(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	report := func(waiting, running int, use float64) route.Signal {
		return route.Signal{At: at, Waiting: waiting, Running: running, KVUse: use}
	}
	const none = route.NotTold
	for text, want := range map[string]route.Signal{
		"TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3.0":      report(3, none, 0.4),
		`JSON {"named_metrics": {"kv_cache_usage_perc": 0.25, "num_requests_waiting": 2.0}}`:      report(2, none, 0.25),
		"named_metrics.num_requests_running:7,application_utilization:4":                          report(none, 7, none),
		"TEXT cpu_utilization=0.3, named_metrics.kv_cache_utilization=1.5":                        report(none, none, 1),
		"TEXT named_metrics.num_requests_waiting=1e300":                                           report(math.MaxInt32, none, none),
		`JSON {"cpu_utilization":0.1,"named_metrics":{"num_requests_waiting":1,"other":"later"}}`: {},
	} {
		if got, ok := loadReport(text, at); ok != (want != route.Signal{}) || ok && got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "BIN CZqZmZmZmbk/MQ==", "TEXT", "JSON", "JSON [", "TEXT kv_cache_usage_perc=0.4", "TEXT named_metrics.kv_cache_usage_perc=NaN",
		"TEXT named_metrics.num_requests_waiting=-3", "TEXT named_metrics.num_requests_waiting", "JSON {\"named_metrics\":null}",
		"TEXT named_metrics.num_requests_waiting=3," + strings.Repeat("x", longestReport),
	} {
		if got, ok := loadReport(text, at); ok {
			t.Errorf("%.60q is taken for %+v", text, got)
		}
	}
}

func FuzzLoadReport(f *testing.F) {
	f.Add("TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3.0")
	f.Add(`JSON {"named_metrics": {"kv_cache_usage_perc": 0.25, "num_requests_running": 1e999}}`)
	f.Add("named_metrics.num_requests_running:7,application_utilization:4")
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := loadReport(text, time.Time{})
		if s.Running < route.NotTold || s.Waiting < route.NotTold || s.KVUse != route.NotTold && !(s.KVUse >= 0 && s.KVUse <= 1) ||
			ok == (s == route.Untold(time.Time{})) {
			t.Errorf("%v, %+v", ok, s)
		}
	})
}

// TestLoadReportOfAnAnswer: where a client asks for a load report, the router hears of it too, and the client gets it as it came.
func TestLoadReportOfAnAnswer(t *testing.T) {
	const report = "TEXT named_metrics.kv_cache_usage_perc=0.5, named_metrics.num_requests_waiting=4.0"
	w := newWorld(t, options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Endpoint-Load-Metrics-Format") == "TEXT" {
			w.Header().Set("Endpoint-Load-Metrics", report)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`)
	})
	const body = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	signal := func() route.Signal { return w.router.View(time.Now()).Deployments[0].Signal }
	if a := w.post("/v1/chat/completions", body); a.status != 200 || !signal().At.IsZero() {
		t.Errorf("not asked for: %d, %+v", a.status, signal())
	}
	a := w.post("/v1/chat/completions", body, "Endpoint-Load-Metrics-Format", "TEXT")
	if s := signal(); a.status != 200 || s.Waiting != 4 || s.KVUse != 0.5 || s.Running != route.NotTold || time.Since(s.At) > time.Minute {
		t.Errorf("%d, %+v", a.status, s)
	}
	if got := a.header.Get("Endpoint-Load-Metrics"); got != report {
		t.Errorf("the client got %q", got)
	}
}

package telemetry

import (
	"testing"
	"time"

	"evenkeel/internal/route"
)

// TestSignals: what an engine does not say has no series, nor has who never said anything; and readings leave with their endpoint.
func TestSignals(t *testing.T) {
	silent := route.Untold(start.Add(-3 * time.Second))
	w := &world{now: start, view: route.View{
		Deployments: []route.DeploymentView{
			{ID: "a/m", Member: true, Signal: route.Signal{At: start.Add(-time.Second), Running: 7, Waiting: 0, KVUse: 0.5}},
			{ID: "b/m", Member: true, Signal: silent, SignalIgnored: true},
			{ID: "c/m", Member: true},
			{ID: "d/m", Signal: silent},
		},
		Scopes: []route.ScopeView{{Kind: route.EndpointScope, Name: "a"}},
	}}
	m := newMetrics(t, w)
	m.Heard("a", "ok")
	m.Heard("a", "ok")
	m.Heard("a", "failed")
	wantSeries(t, m, "evenkeel_engine_requests",
		`evenkeel_engine_requests{deployment="a/m",state="running"} 7`, `evenkeel_engine_requests{deployment="a/m",state="waiting"} 0`)
	wantSeries(t, m, "evenkeel_engine_kv_cache_use", `evenkeel_engine_kv_cache_use{deployment="a/m"} 0.5`)
	wantSeries(t, m, "evenkeel_signal_age_seconds", `evenkeel_signal_age_seconds{deployment="a/m"} 1`, `evenkeel_signal_age_seconds{deployment="b/m"} 3`)
	wantSeries(t, m, "evenkeel_signal_ignored", `evenkeel_signal_ignored{deployment="a/m"} 0`, `evenkeel_signal_ignored{deployment="b/m"} 1`)
	wantSeries(t, m, "evenkeel_signal_reads_total",
		`evenkeel_signal_reads_total{endpoint="a",result="failed"} 1`, `evenkeel_signal_reads_total{endpoint="a",result="ok"} 2`)

	w.view = route.View{}
	scrape(t, m)
	w.now = w.now.Add(forgetAfter)
	scrape(t, m)
	wantSeries(t, m, "evenkeel_signal")
}

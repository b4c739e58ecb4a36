package telemetry

import (
	"testing"
	"time"

	"evenkeel/internal/route"
)

func TestProbes(t *testing.T) {
	w := &world{now: start, view: route.View{
		Deployments: []route.DeploymentView{{ID: "gpu-1/large"}}, Scopes: []route.ScopeView{{Kind: route.EndpointScope, Name: "gpu-1"}},
	}}
	m := newMetrics(t, w)
	m.Probed(Probe{Name: "gpu-1/large", Result: "ok", TTFT: 2 * time.Second, Input: 9, Output: 3})
	m.Probed(Probe{Name: "gpu-1/large", Result: "ok", Input: 9})
	m.Probed(Probe{Name: "gpu-1/large", Result: "failed"})
	m.Probed(Probe{Page: true, Name: "gpu-1", Result: "unknown"})
	all := func() {
		t.Helper()
		wantSeries(t, m, "evenkeel_probes_total",
			`evenkeel_probes_total{name="gpu-1",result="unknown",scope="endpoint"} 1`,
			`evenkeel_probes_total{name="gpu-1/large",result="failed",scope="deployment"} 1`,
			`evenkeel_probes_total{name="gpu-1/large",result="ok",scope="deployment"} 2`)
		wantSeries(t, m, "evenkeel_probe_tokens_total",
			`evenkeel_probe_tokens_total{deployment="gpu-1/large",kind="input"} 18`,
			`evenkeel_probe_tokens_total{deployment="gpu-1/large",kind="output"} 3`)
		wantSeries(t, m, "evenkeel_probe_time_to_first_token_seconds_sum", `evenkeel_probe_time_to_first_token_seconds_sum{deployment="gpu-1/large"} 2`)
	}
	all()
	w.now = w.now.Add(2 * forgetAfter)
	all() // it is still there

	w.view = route.View{}
	scrape(t, m)
	w.now = w.now.Add(forgetAfter)
	scrape(t, m)
	wantSeries(t, m, "evenkeel_probe")
}

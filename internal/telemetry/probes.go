package telemetry

import "time"

// Probe is an active probe that has ended.
type Probe struct {
	Page          bool          // of an endpoint, else of a deployment
	Name          string        // of the endpoint, or ID of the deployment
	Result        string        // of a fixed set
	TTFT          time.Duration // 0 = not measured
	Input, Output int           // tokens
}

type probeKey struct {
	page         bool
	name, result string
}

func (k probeKey) labels() []string {
	scope := "deployment"
	if k.page {
		scope = "endpoint"
	}
	return []string{scope, k.name, k.result}
}

type probeTokenKey struct{ deployment, kind string }

func (k probeTokenKey) labels() []string { return []string{k.deployment, k.kind} }

// Probed counts a probe.
func (m *Metrics) Probed(p Probe) {
	m.probes.of(probeKey{p.Page, p.Name, p.Result}).Inc()
	if p.TTFT > 0 {
		m.probeTTFT.of(p.Name).Observe(p.TTFT.Seconds())
	}
	if p.Input > 0 {
		m.probeTokens.of(probeTokenKey{p.Name, "input"}).Add(float64(p.Input))
	}
	if p.Output > 0 {
		m.probeTokens.of(probeTokenKey{p.Name, "output"}).Add(float64(p.Output))
	}
}

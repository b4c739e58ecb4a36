package app

import (
	"net/http"
	"regexp"
	"slices"

	"evenkeel/internal/config"
	"evenkeel/internal/discovery"
	"evenkeel/internal/health"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/telemetry"
	"evenkeel/internal/upstream"
)

// probing is what a generation probes, and whom it asks for load: over connections beside those of requests, so that a deployment is not taken for
// ill because all that it may have are in use.
func probing(g *Generation, reports map[string]discovery.Report, connections map[string]*upstream.Endpoint) *health.Plan {
	c := g.fleet
	h := &c.HealthChecks
	p := &health.Plan{
		Interval: h.Interval, Timeout: h.Timeout, Prompt: h.ProbePrompt, MaxTokens: h.ProbeMaxTokens, PageFailures: h.UnhealthyThreshold,
		Signals: h.SignalInterval,
	}
	if p.Interval == 0 && p.Signals == 0 {
		return p
	}
	if h.ProbeExpect != "" {
		p.Expect = regexp.MustCompile(h.ProbeExpect) // validated
	}
	named, served := namedDeployments(c), deploymentsByEndpoint(g.pools)
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		kind := kindOf(e, reports)
		probed := health.Endpoint{Name: e.Name, URL: e.URL, Kind: kind, Header: probeHeader(kind, e), Caller: connections[e.Name]}
		for _, d := range served[e.Name] {
			d.Ask = named[d.ID] || len(served[e.Name]) == 1
			probed.Deployments = append(probed.Deployments, d)
			probed.Ranks = len(d.Parts)
		}
		p.Endpoints = append(p.Endpoints, probed)
	}
	return p
}

// namedDeployments are the IDs of what the configuration names. Of endpoints that serve several models, only those are
// sent completions: others may be a whole catalogue, and an engine that loads a model when it is asked would load one
// after the other.
func namedDeployments(c *config.Config) map[string]bool {
	named := map[string]bool{}
	for _, m := range c.Models {
		for _, p := range m.Providers {
			named[p.Name+"/"+p.Model] = true
		}
	}
	for i := range c.Endpoints {
		for _, model := range c.Endpoints[i].Models {
			named[deploymentID(&c.Endpoints[i], "", model)] = true
		}
	}
	return named
}

// deploymentsByEndpoint are what endpoints serve, those of one model at all ranks as one: the server answers for them all.
func deploymentsByEndpoint(pools []route.PoolSpec) map[string][]health.Deployment {
	served, seen := map[string][]health.Deployment{}, map[string]bool{}
	for _, pool := range pools {
		for _, d := range pool.Deployments {
			if d.Model == "" || seen[d.ID] {
				continue
			}
			seen[d.ID] = true
			if list := served[d.Endpoint]; d.Rank != "" && d.Rank != "0" {
				i := slices.IndexFunc(list, func(o health.Deployment) bool { return o.Model == d.Model })
				list[i].Parts = append(list[i].Parts, d.ID)
				continue
			}
			one := health.Deployment{ID: d.Endpoint + "/" + d.Model, Model: d.Model, Scopes: d.Scopes}
			if d.Rank != "" {
				one.Parts = []string{d.ID}
			}
			served[d.Endpoint] = append(served[d.Endpoint], one)
		}
	}
	return served
}

func probeHeader(kind llm.Kind, e *config.Endpoint) http.Header {
	h := http.Header{"User-Agent": {"evenkeel-probe"}}
	for _, d := range kind.DefaultHeaders {
		h.Set(d.Name, d.Value)
	}
	if !e.APIKey.IsZero() {
		h.Set(kind.CredentialHeader, kind.CredentialPrefix+e.APIKey.Reveal())
	}
	return h
}

// probed takes a probe that has ended: into the metrics, and into the log if it came to something else than the one
// before.
func (a *App) probed(r health.Result) {
	a.metrics.Probed(telemetry.Probe{Page: r.Page, Name: r.Name, Result: string(r.Verdict), TTFT: r.TTFT, Input: r.Input, Output: r.Output})
	if !r.Changed {
		return
	}
	log := a.logger.With("deployment", r.Name)
	if r.Page {
		log = a.logger.With("endpoint", r.Name)
	}
	switch {
	case r.Verdict == health.Failed:
		log.Warn("a probe failed", "reason", r.Reason)
	case r.Verdict == health.Missed:
		log.Warn("a probe was answered, but not as health_checks.probe_expect says", "answer", r.Said, "expected", r.Expected)
	case r.Verdict == health.OK && (r.Before == health.Failed || r.Before == health.Missed):
		log.Info("probes succeed again")
	case r.Reason == llm.ClientFault.String():
		log.Warn("cannot be probed: it refuses the probe as a request; its probes say nothing")
	default:
		log.Debug("a probe", "verdict", string(r.Verdict), "reason", r.Reason)
	}
}

// heard takes a question for an engine's signals that has ended: into the metrics, and into the log if something changed.
func (a *App) heard(h health.Hearing) {
	a.metrics.Heard(h.Endpoint, string(h.Verdict))
	log := a.logger.With("endpoint", h.Endpoint)
	switch d := h.Dispute; {
	case d != nil && d.Ignored:
		log.Warn("what the engine says of its load contradicts what is in flight there, and is ignored until it does not",
			"in_flight", d.InFlight, "says_running", d.Running, "says_waiting", d.Waiting)
	case d != nil:
		log.Info("what the engine says of its load is believed again")
	}
	if h.Changed {
		log.Debug("signals of the engine", "verdict", string(h.Verdict), "reason", h.Reason)
	}
}

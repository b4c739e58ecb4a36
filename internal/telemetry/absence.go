package telemetry

import (
	"sync"
	"time"

	"evenkeel/internal/route"
)

// forgetAfter is how long series outlive the deployment or model they speak of: long enough that every
// scraper has seen the last values and a restart keeps its counters, short enough that a fleet of
// short-lived replicas does not pile up series.
const forgetAfter = time.Hour

// absence remembers since when deployments and models are gone that series speak of.
type absence struct {
	mu    sync.Mutex
	since map[name]time.Time
}

// name is that of a model, or of a deployment.
type name struct {
	model bool
	text  string
}

// update takes which names are here (true) or gone and returns those gone for forgetAfter.
func (a *absence) update(now time.Time, names map[name]bool) map[name]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	expired := map[name]bool{}
	for n, here := range names {
		since, gone := a.since[n]
		switch {
		case here:
			delete(a.since, n)
		case !gone:
			a.since[n] = now
		case now.Sub(since) >= forgetAfter:
			delete(a.since, n)
			expired[n] = true
		}
	}
	return expired
}

// forget removes the series of what left long ago. It is called at every scrape.
func (m *Metrics) forget(view *route.View) {
	names := map[name]bool{}
	seen := func(model string) { names[name{true, model}] = model == otherModel || m.options.Known(model) }
	m.requests.each(func(k requestKey) { seen(k.model) })
	m.fallbacks.each(func(k fallbackKey) { seen(k.from); seen(k.to) })
	m.hedges.each(func(k hedgeKey) { seen(k.model) })
	m.attempts.each(func(k attemptKey) { names[name{false, k.deployment}] = false })
	m.probes.each(func(k probeKey) { names[name{false, k.name}] = false })
	m.hearings.each(func(k hearingKey) { names[name{false, k.endpoint}] = false })
	for i := range view.Deployments {
		names[name{false, view.Deployments[i].ID}] = true
	}
	for i := range view.Scopes { // names of endpoints, unlike IDs, have no slash
		if s := &view.Scopes[i]; s.Kind == route.EndpointScope {
			names[name{false, s.Name}] = true
		}
	}
	expired := m.absence.update(m.options.Now(), names)
	if len(expired) == 0 {
		return
	}
	model := func(model string) bool { return expired[name{true, model}] }
	served := func(t target) bool { return expired[name{false, t.deployment}] }
	m.requests.forget(func(k requestKey) bool { return model(k.model) })
	m.depth.forget(model)
	m.attempts.forget(func(k attemptKey) bool { return served(k.target) })
	m.ttft.forget(served)
	m.itl.forget(served)
	m.tokens.forget(func(k tokenKey) bool { return served(k.target) })
	m.waste.forget(func(k wasteKey) bool { return served(k.target) })
	m.hedges.forget(func(k hedgeKey) bool { return model(k.model) })
	m.fallbacks.forget(func(k fallbackKey) bool { return model(k.from) || model(k.to) })
	probed := func(who string) bool { return expired[name{false, who}] }
	m.probes.forget(func(k probeKey) bool { return probed(k.name) })
	m.probeTokens.forget(func(k probeTokenKey) bool { return probed(k.deployment) })
	m.probeTTFT.forget(probed)
	m.hearings.forget(func(k hearingKey) bool { return probed(k.endpoint) })
}

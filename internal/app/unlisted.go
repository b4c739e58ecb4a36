package app

import (
	"slices"
	"strings"

	"evenkeel/internal/config"
	"evenkeel/internal/console"
	"evenkeel/internal/discovery"
)

// provider is a place where the configuration says that a model is served, under the name that it has there.
type provider struct{ model, endpoint, upstream string }

// unlisted finds the providers whose endpoint lists models, but not theirs: most often a typing error, which else
// shows only as errors of that endpoint. The values say what was meant, or what there is.
func unlisted(c *config.Config, reports map[string]discovery.Report) map[provider]string {
	found := map[provider]string{}
	for i := range c.Models {
		m := &c.Models[i]
		for j := range m.Providers {
			p := &m.Providers[j]
			r := reports[p.Name]
			if len(r.Models) == 0 || len(r.Target.Models) > 0 { // not known, or the operator's own word
				continue
			}
			names := modelNames(r)
			if slices.Contains(names, p.Model) || r.Kind == "ollama" && slices.Contains(names, p.Model+":latest") {
				continue
			}
			found[provider{m.Name, p.Name, p.Model}] = strings.TrimPrefix(config.DidYouMean(p.Model, names), "; ")
		}
	}
	return found
}

// warnUnlisted warns of those providers that it did not warn of before. Callers hold mu.
func (a *App) warnUnlisted(c *config.Config) {
	now := unlisted(c, a.reports)
	for p, hint := range now {
		if _, before := a.unlisted[p]; !before {
			a.logger.Warn("endpoint does not list the model of a provider", "model", p.model, "endpoint", p.endpoint, "provider_model", p.upstream, "hint", hint)
		}
	}
	a.unlisted = now
}

// isUnlisted reports whether some provider's model, under its name at the endpoint, is not in the endpoint's list.
func (a *App) isUnlisted(endpoint, upstream string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p := range a.unlisted {
		if p.endpoint == endpoint && p.upstream == upstream {
			return true
		}
	}
	return false
}

// silent lists the endpoints that have no deployment, in order of the fleet, and why: most often they have not answered yet.
func (a *App) silent() (found []console.Silent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.current.Load()
	serving := map[string]bool{}
	for _, p := range g.pools {
		for i := range p.Deployments {
			serving[p.Deployments[i].Endpoint] = serving[p.Deployments[i].Endpoint] || p.Model != "" // that is for requests without one
		}
	}
	for i := range g.fleet.Endpoints {
		e := &g.fleet.Endpoints[i]
		if serving[e.Name] {
			continue
		}
		s := console.Silent{Endpoint: e.Name, URL: e.URL, Reason: "it has not been asked yet"}
		switch r, known := a.reports[e.Name]; {
		case known && r.Err != nil:
			s.Reason = r.Err.Error()
		case known:
			s.Reason = "it lists no models"
		}
		found = append(found, s)
	}
	return found
}

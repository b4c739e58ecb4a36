package config

import (
	"maps"
	"strconv"
)

func (v *validator) models() {
	endpoints, models := words{}, words{}
	for _, e := range v.config.Endpoints {
		endpoints.add(e.Name)
		for _, name := range e.Models {
			models.add(name)
		}
	}
	for _, m := range v.config.Models {
		models.add(m.Name)
	}
	for _, m := range v.config.Models {
		at := (*path)(nil).keys("models", m.Name)
		v.name(at, m.Name, "")
		v.providers(at.key("providers"), m, endpoints)
		v.chain(at.key("fallback_chain"), m, models)
		if m.Affinity != nil {
			v.affinity(at.key("affinity"), *m.Affinity)
		}
	}
	v.affinity((*path)(nil).key("affinity"), v.config.Affinity)
	v.hedge((*path)(nil).key("hedge"), models)
	v.sharedLimits()
	v.products()
}

// products demands that the weight of a provider and that of its endpoint, each of which is one, multiply to one.
func (v *validator) products() {
	weights := map[string]float64{}
	for _, e := range v.config.Endpoints {
		weights[e.Name] = e.Weight
	}
	for _, m := range v.config.Models {
		for i, p := range m.Providers {
			w, known := weights[p.Name]
			if known && fits(w) && fits(p.Weight) && !fits(w*p.Weight) {
				v.fail((*path)(nil).keys("models", m.Name, "providers").index(i).key("weight"),
					"%v times %v, which is %s, is %v; the product must be 0, or 0.000001 to 1000000000: change one of the two",
					p.Weight, w, (*path)(nil).keys("endpoints", p.Name, "weight"), w*p.Weight)
			}
		}
	}
}

// sharedLimits demands the same limits wherever models share a deployment: it is limited once, whoever asks for it.
func (v *validator) sharedLimits() {
	type deployment struct{ endpoint, model string }
	type use struct {
		by     string
		limits Limits
	}
	first := map[deployment]use{}
	for _, m := range v.config.Models {
		for i, p := range m.Providers {
			d := deployment{p.Name, p.Model}
			before, again := first[d]
			if !again {
				first[d] = use{m.Name, p.Limits}
			} else if before.by != m.Name && before.limits != p.Limits {
				v.fail((*path)(nil).keys("models", m.Name, "providers").index(i).key("limits"),
					"%s at endpoint %s has other limits as a provider of %s; write the same in both", show(p.Model), p.Name, show(before.by))
			}
		}
	}
}

// words is a set of names.
type words map[string]struct{}

func (w words) add(name string) { w[name] = struct{}{} }

func (w words) has(name string) bool {
	_, ok := w[name]
	return ok
}

// near gives the end of a message about an unknown name: the nearest known one, if there is one.
func (v *validator) near(name string, known words) string {
	if len(v.problems) >= most || len(v.warnings) >= most {
		return "" // it is not printed, and costs a walk over all names
	}
	if near := nearest(name, maps.Keys(known)); near != "" {
		return "; did you mean " + strconv.Quote(near) + "?"
	}
	return ""
}

func (v *validator) providers(all *path, m Model, endpoints words) {
	type deployment struct{ endpoint, model string }
	seen := map[deployment]bool{}
	pickable := len(m.Providers) == 0
	if m.Providers != nil && len(m.Providers) == 0 {
		v.warn(all, "is empty, which means every endpoint that serves %s; remove it, or name endpoints: [{name: gpu-1}]", show(m.Name))
	}
	for i, p := range m.Providers {
		at := all.index(i)
		switch {
		case p.Name == "":
			if v.missing(at, "name") {
				v.fail(at, "needs a name: that of the endpoint which serves the model")
			}
		case !endpoints.has(p.Name):
			v.absent(at.key("name"), p.Name, endpoints)
		case seen[deployment{p.Name, p.Model}]:
			v.fail(at, "endpoint %s serves %s twice; add up the weights", p.Name, show(p.Model))
		}
		seen[deployment{p.Name, p.Model}] = true
		if p.Model != "" {
			v.name(at.key("model"), p.Model, "")
		}
		v.limits(at, p.Limits)
		v.domain(at.key("failure_domain"), p.FailureDomain)
		v.notNegative(at.key("context_window"), p.ContextWindow)
		v.price(at.key("price"), p.Price)
		if v.weight(at.key("weight"), p.Weight) {
			pickable = true
		}
	}
	if !pickable {
		v.fail(all, "every weight is 0, so nothing could be picked; give one provider a weight above 0")
	}
}

// absent is for a provider that names an endpoint which is not there: a file of endpoints may hold it later.
func (v *validator) absent(at *path, name string, endpoints words) {
	switch {
	case v.config.EndpointsFile == "" && !v.broken.has("endpoints_file"):
		v.fail(at, "no endpoint is named %s%s", show(name), v.near(name, endpoints))
	case v.endpointsKnown():
		v.warn(at, "no endpoint is named %s at present; the provider is left out until endpoints_file holds it", show(name))
	}
}

// endpointsKnown reports whether every endpoint that is written could be read: else nothing can be said of one that is not
// there, nor of the models.
func (v *validator) endpointsKnown() bool {
	return !v.broken.has("") && !v.broken.has("endpoints") && !v.broken.has("endpoints_file")
}

func (v *validator) price(at *path, p Price) {
	for _, one := range []struct {
		key     string
		dollars float64
	}{{"input", p.Input}, {"cached_input", p.CachedInput}, {"output", p.Output}, {"request", p.Request}} {
		if !(one.dollars >= 0) {
			v.fail(at.key(one.key), "must be 0 or more, is %v", one.dollars)
		}
	}
}

func (v *validator) chain(all *path, m Model, models words) {
	seen := words{}
	for i, link := range m.FallbackChain {
		at := all.index(i)
		switch {
		case link == m.Name:
			v.fail(at, "a model cannot fall back to itself; remove it")
		case seen.has(link):
			v.fail(at, "%s is in the chain twice; remove one", show(link))
		case !models.has(link):
			if v.endpointsKnown() {
				v.warn(at, "no model %s is configured; the link is skipped while no endpoint serves it%s", show(link), v.near(link, models))
			}
		}
		seen.add(link)
	}
}

package litellm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"evenkeel/internal/config"
)

// model is a name that clients ask for.
type model struct {
	name         string
	deployments  []*deployment
	chain        []string
	chained      bool   // it has a chain of its own
	strategy     string // empty: the general one
	strategyNote string
	aliasOf      string
}

// deployment is an entry of model_list, or several that are one here.
type deployment struct {
	at       value // its model
	endpoint *endpoint
	upstream string
	weight   float64 // what is written; 0: the default
	order    float64
	ordered  bool
	weights  [3]float64 // the weight, rpm and tpm of the input, 0 for what is not written
	limits   limits
	weightAt value
	orderAt  value
	limitAt  value // the first limit by the minute
	price    []setting
	region   string
	context  int
}

// limits are 0 where there is none.
type limits struct{ inFlight, rpm, tpm int }

// served is what is one deployment here.
type served struct {
	endpoint *endpoint
	model    string
}

func (d *deployment) served() served { return served{d.endpoint, d.upstream} }

// readModels reads the model_list.
func (c *converter) readModels(top, router *section) {
	list, written := top.get("model_list")
	if !written {
		return
	}
	parallel, _, good := router.whole("default_max_parallel_requests", 1)
	if good {
		c.settings = append(c.settings, "default_max_parallel_requests")
	}
	for _, item := range list.items() {
		c.deployments++
		if s := item.section(); s != nil {
			c.readDeployment(s, item, parallel)
		}
	}
}

// longestName bounds names, in bytes, as config does.
const longestName = 256

// fitting reports whether a name can be one of ours.
func fitting(name string) bool {
	return name != "" && len(name) <= longestName && !strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
}

func (c *converter) readDeployment(s *section, item value, parallel int) {
	params, info := s.below("litellm_params"), s.below("model_info")
	name, named := s.text("model_name")
	id, hasID := params.text("model")
	if !named || !hasID {
		c.left(item, "needs a model_name and litellm_params with a model; the deployment is left out")
		return
	}
	at, _ := params.get("model")
	custom, _ := params.text("custom_llm_provider")
	prefix, upstream := split(id, custom)
	for _, b := range bridges {
		if rest, is := strings.CutPrefix(upstream, b); is {
			upstream = rest
			c.changed(at, "%s only tells LiteLLM how to ask and is left out; clients choose /v1/chat/completions or /v1/responses themselves", b)
		}
	}
	nameAt, _ := s.get("model_name")
	if !fitting(name) || !fitting(upstream) {
		c.left(nameAt, "names are not empty here, hold no spaces or control characters, and at most %d bytes; the deployment is left out", longestName)
		return
	}
	if strings.Contains(name, "*") {
		c.readWildcard(params, info, nameAt, at, name, prefix, upstream)
		s.rest(nil)
		return
	}
	if strings.Contains(upstream, "*") {
		c.left(at, "is a pattern, and model_name is not; the deployment is left out")
		return
	}
	e, served := c.target(params, prefix, at)
	if !served {
		return // one reason is enough
	}
	d := &deployment{at: at, endpoint: c.put(e), upstream: upstream, limits: limits{inFlight: parallel}}
	d.endpoint.serves(upstream)
	c.readParams(d, params, info)
	c.readPrice(d, params, info)
	params.rest(paramsLeft)
	for _, key := range []string{"id", "mode", "base_model", "db_model", "created_at", "updated_at", "created_by", "updated_by", "description", "litellm_provider", "discoverable"} {
		info.idle(key, "says nothing about where requests go")
	}
	info.rest(infoLeft)
	s.rest(nil)
	c.carried++
	m := c.byName[name]
	if m == nil {
		m = &model{name: name}
		c.models, c.byName[name] = append(c.models, m), m
	}
	m.deployments = append(m.deployments, d)
}

// readWildcard makes an endpoint whose models are what it lists. Patterns of names are not known here.
func (c *converter) readWildcard(params, info *section, nameAt, at value, name, prefix, upstream string) {
	if !strings.HasSuffix(upstream, "*") || prefix == "" {
		c.left(nameAt, "a pattern that leads to one model, or to none that a provider tells, has no counterpart in this version; name the models")
		return
	}
	e, served := c.target(params, prefix, at)
	if !served {
		return
	}
	c.put(e).all = true
	params.rest(paramsLeft)
	info.rest(infoLeft)
	c.carried++
	own := "under its own name"
	if begin := strings.TrimSuffix(name, "*"); begin != strings.TrimSuffix(upstream, "*") {
		own += ", without " + plainKey(begin) + " in front"
	}
	c.changed(nameAt, "there are no patterns here: the endpoint serves every model that it lists, %s; what it does not list is refused", own)
}

// readParams reads what a deployment may be used for.
func (c *converter) readParams(d *deployment, params, info *section) {
	if w, v, good := params.number("weight", 0); good {
		d.weights[0], d.weightAt = w, v
	}
	if n, v, good := params.whole("rpm", 1); good {
		d.weights[1], d.limits.rpm, d.limitAt = float64(n), n, v
	}
	if n, v, good := params.whole("tpm", 1); good {
		d.weights[2], d.limits.tpm = float64(n), n
		if d.limitAt.c == nil {
			d.limitAt = v
		}
	}
	if d.limitAt.c != nil && !c.usage {
		c.changed(d.limitAt, "is a limit under every strategy here, beyond which requests go elsewhere or wait; LiteLLM's other strategies than usage-based ones do not keep it")
	}
	if n, _, good := params.whole("max_parallel_requests", 1); good {
		d.limits.inFlight = n
	}
	if n, v, good := params.number("order", -mostNumber); good {
		d.order, d.ordered, d.orderAt = n, true, v
	}
	if n, _, good := info.whole("max_input_tokens", 1); good {
		d.context = n
	}
	if v, written := params.get("region_name"); written {
		if word := v.at.Value.Text; plainWord.MatchString(word) && d.endpoint.where.kind == "openai" {
			d.region = word
		} else {
			c.left(v, "a region is a word, and for hosted providers only")
		}
	}
}

// perMillion is what our prices are for; those of LiteLLM are for one token.
const perMillion = 1e6

func (c *converter) readPrice(d *deployment, params, info *section) {
	for _, p := range []struct{ key, ours string }{
		{"input_cost_per_token", "input"}, {"cache_read_input_token_cost", "cached_input"}, {"output_cost_per_token", "output"},
	} {
		dollars, at, good := params.number(p.key, 0)
		if fromInfo, v, is := info.number(p.key, 0); is && good {
			c.left(v, "does not count: %s is written too", at.path)
		} else if is {
			dollars, good = fromInfo, true
		}
		if good {
			d.price = append(d.price, setting{p.ours, number(dollars * perMillion)})
		}
	}
}

// number writes a number without the noise of binary fractions.
func number(x float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.9f", x), "0"), ".")
}

// finishModels decides what weights, orders and limits become, once all deployments are known.
func (c *converter) finishModels() {
	for _, m := range c.models {
		c.join(m)
	}
	c.shareLimits()
	for _, m := range c.models {
		switch {
		case slices.ContainsFunc(m.deployments, func(d *deployment) bool { return d.ordered }) && len(m.deployments) > 1:
			c.failover(m)
		case c.shuffled && len(m.deployments) > 1:
			c.shares(m)
		}
		c.unused(m)
	}
}

// join makes one of what is one deployment here.
func (c *converter) join(m *model) {
	first := map[served]*deployment{}
	m.deployments = slices.DeleteFunc(m.deployments, func(d *deployment) bool {
		o := first[d.served()]
		if o == nil {
			first[d.served()] = d
			return false
		}
		for i := range o.weights {
			o.weights[i] += d.weights[i]
		}
		sum := func(a *int, b int) {
			if *a == 0 || b == 0 {
				*a = 0 // one of them has no limit
			} else {
				*a += b
			}
		}
		sum(&o.limits.rpm, d.limits.rpm)
		sum(&o.limits.tpm, d.limits.tpm)
		sum(&o.limits.inFlight, d.limits.inFlight)
		c.changed(d.at, "is the same model at the same address with the same key as at line %d: it is one deployment here, with the sum of their weights and limits", o.at.at.Line)
		return true
	})
}

// shareLimits gives a deployment that several models have the same limits in all of them: it is limited once.
func (c *converter) shareLimits() {
	type use struct {
		at     value
		limits *limits
	}
	all := map[served][]use{}
	for _, m := range c.models {
		for _, d := range m.deployments {
			all[d.served()] = append(all[d.served()], use{d.at, &d.limits})
		}
	}
	for _, m := range c.models {
		for _, d := range m.deployments {
			var most limits
			uses := all[d.served()]
			delete(all, d.served())
			differ := false
			for _, u := range uses {
				differ = differ || *u.limits != *uses[0].limits
				most = limits{max(most.inFlight, u.limits.inFlight), max(most.rpm, u.limits.rpm), max(most.tpm, u.limits.tpm)}
			}
			if !differ {
				continue
			}
			for _, u := range uses {
				*u.limits = most
			}
			c.changed(uses[1].at, "several model_names share this model at this endpoint, which is limited once here: the highest of their limits hold for all together")
		}
	}
}

// failover turns orders into a list.
func (c *converter) failover(m *model) {
	last := func(d *deployment) int {
		if d.ordered {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(m.deployments, func(a, b *deployment) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(a.order, b.order))
	})
	m.strategy, m.strategyNote = "failover", "order: the first that is in use"
	at := m.deployments[0].orderAt
	for i, d := range m.deployments[1:] {
		if before := m.deployments[i]; before.ordered == d.ordered && before.order == d.order {
			c.changed(at, "order becomes strategy failover, which uses one deployment at a time: those of %s that have the same order are not shared between, but used one after another", show(m.name))
			return
		}
	}
	c.changed(at, "order becomes strategy failover: the first that is in use, and back to it once it has been well for a minute")
}

// leastShare is the part of the smallest weight that those without one get: in LiteLLM they are for when the others are out.
const leastShare = 1000

// shares turns the weights of simple-shuffle into ours: weight counts, else rpm, else tpm.
func (c *converter) shares(m *model) {
	for i, key := range []string{"weight", "rpm", "tpm"} {
		least, most := math.Inf(1), 0.0
		for _, d := range m.deployments {
			if w := d.weights[i]; w > 0 {
				least, most = min(least, w), max(most, w)
			}
		}
		if most == 0 {
			continue
		}
		scale := 1.0
		if most > 1e6 || least < 1e-2 {
			scale = 1e6 / most
		}
		m.strategy, m.strategyNote = "weighted", "simple-shuffle by "+key
		for _, d := range m.deployments {
			if d.weights[i] > 0 {
				d.weight = max(d.weights[i]*scale, 1e-5)
				continue
			}
			d.weight = max(least*scale/leastShare, 1e-5)
			c.changed(d.at, "has no %s, so LiteLLM uses it only while all others of %s are out; here it gets a thousandth of the smallest share", key, show(m.name))
		}
		c.changed(m.deployments[0].at, "simple-shuffle by %s becomes strategy weighted, which keeps the shares exactly; it does not look at load", key)
		return
	}
	c.changed(m.deployments[0].at, "several deployments without weights, of which simple-shuffle picks one at random; the default predicted_wait takes the one that is expected to answer "+
		"first. round_robin gives equal numbers")
}

// unused reports the weights and orders that nothing uses.
func (c *converter) unused(m *model) {
	if len(m.deployments) == 1 {
		for _, v := range []value{m.deployments[0].weightAt, m.deployments[0].orderAt} {
			if v.c != nil {
				c.report.Idle = append(c.report.Idle, finding(v, "there is no other deployment of this model"))
			}
		}
		return
	}
	for _, d := range m.deployments {
		if d.weights[0] > 0 && m.strategy != "weighted" {
			c.left(d.weightAt, "is for simple-shuffle alone, in LiteLLM too; here order or another strategy decides")
		}
	}
}

// readAliases makes models of the model_group_alias.
func (c *converter) readAliases(router *section) {
	s := router.below("model_group_alias")
	if s == nil {
		return
	}
	for _, e := range s.entries {
		v, _ := s.get(e.Key)
		target := e.Value.Text
		if e.Value.Kind == config.TreeMap {
			inner := c.section(v.path, e.Value)
			target, _ = inner.text("model")
			if hidden, on := inner.on("hidden"); on {
				c.changed(hidden, "models are listed under all their names here")
			}
			inner.rest(nil)
		}
		group := c.byName[target]
		switch {
		case group == nil || group.aliasOf != "":
			c.left(v, "its model did not carry over, or is not one of model_list")
		case !fitting(e.Key):
			c.left(v, "names hold no spaces or control characters here")
		case c.byName[e.Key] != nil:
			c.left(v, "a model of model_list has this name; LiteLLM takes the alias, here the model stays")
		default:
			m := &model{name: e.Key, deployments: group.deployments, strategy: group.strategy, strategyNote: group.strategyNote, aliasOf: group.name}
			c.models, c.byName[e.Key] = append(c.models, m), m
		}
	}
}

// show quotes a name for a message.
func show(name string) string { return config.Show(name) }

package drill

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"evenkeel/internal/mock"
)

// owned is somebody's own configuration, with mock engines in place of its endpoints. All that decides what becomes of a
// request stays: models, strategies, retries, limits of what runs at one time.
type owned struct {
	all       settings
	model     string   // that clients ask for: the one with the most deployments
	serving   []string // its endpoints
	upstreams map[string][]string
}

// readOwned reads the files of a configuration as they are: secrets and paths in them are not looked at.
func readOwned(files []string) (*owned, error) {
	all := settings{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var part settings
		if err := yaml.Unmarshal(text, &part); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if part, err = withEndpoints(part, filepath.Dir(name)); err != nil {
			return nil, err
		}
		all = merged(all, part)
	}
	settle(all)
	o := &owned{all: all, upstreams: map[string][]string{}}
	o.serve()
	if len(mapAt(all, "endpoints")) == 0 {
		return nil, fmt.Errorf("%s: there are no endpoints; give all files of the configuration", strings.Join(files, ", "))
	}
	if o.model == "" {
		return nil, fmt.Errorf("%s: no endpoint says which models it serves: the drill needs `models` at an endpoint, or `providers` of a model, since the mocks have no others", strings.Join(files, ", "))
	}
	return o, nil
}

// withEndpoints merges the file of endpoints that part names, if it does. A relative path starts at dir.
func withEndpoints(part settings, dir string) (settings, error) {
	name := textAt(part, "endpoints_file")
	if name == "" {
		return part, nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("endpoints_file: %w", err)
	}
	var file settings
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return merged(part, settings{"endpoints": mapAt(file, "endpoints")}), nil
}

// settle drops the file of endpoints, which are known by now, and with it the providers that name none of them: only where
// there is such a file may they.
func settle(all settings) {
	if textAt(all, "endpoints_file") == "" {
		return
	}
	delete(all, "endpoints_file")
	models := maps.Clone(mapAt(all, "models"))
	for name := range models {
		m := maps.Clone(mapAt(models, name))
		providers := listAt(m, "providers")
		present := slices.DeleteFunc(slices.Clone(providers), func(p any) bool {
			provider, _ := p.(settings)
			return provider != nil && mapAt(all, "endpoints")[textAt(provider, "name")] == nil
		})
		switch {
		case len(present) == len(providers):
		case len(present) == 0: // an empty list would be every endpoint
			delete(models, name)
		default:
			m["providers"] = present
			models[name] = m
		}
	}
	if models != nil {
		all["models"] = models
	}
}

// mapAt and listAt read a part that may be missing, or of another kind: evenkeel itself will say so.
func mapAt(in settings, key string) settings { m, _ := in[key].(settings); return m }
func listAt(in settings, key string) []any   { l, _ := in[key].([]any); return l }
func textAt(in settings, key string) string  { t, _ := in[key].(string); return t }

// serve finds out who serves what.
func (o *owned) serve() {
	by := map[string][]string{} // endpoints by model
	note := func(model, endpoint, upstream string) {
		if !slices.Contains(by[model], endpoint) {
			by[model] = append(by[model], endpoint)
		}
		if !slices.Contains(o.upstreams[endpoint], upstream) {
			o.upstreams[endpoint] = append(o.upstreams[endpoint], upstream)
		}
	}
	endpoints := mapAt(o.all, "endpoints")
	for _, name := range slices.Sorted(maps.Keys(endpoints)) {
		for _, m := range listAt(mapAt(endpoints, name), "models") {
			note(fmt.Sprint(m), name, fmt.Sprint(m))
		}
	}
	models := mapAt(o.all, "models")
	for _, name := range slices.Sorted(maps.Keys(models)) {
		for _, p := range listAt(mapAt(models, name), "providers") {
			provider, ok := p.(settings)
			if !ok {
				provider = settings{"name": p}
			}
			if at := textAt(provider, "name"); endpoints[at] != nil {
				note(name, at, cmpOr(textAt(provider, "model"), name))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if len(by[name]) > len(o.serving) {
			o.model, o.serving = name, slices.Sorted(slices.Values(by[name]))
		}
	}
}

// elsewhere are the settings that speak of the place where the configuration runs, who may connect, and what is told: the
// drill has its own.
var elsewhere = []string{"listen", "admin", "metrics", "tls", "admin_tls", "virtual_keys", "auth", "credentials", "log", "explain", "trace", "expose_headers", "dns_server", "endpoints"}

// hostOf is the host of an endpoint's URL; empty if it cannot be read, or has none.
func hostOf(address string) string {
	u, err := url.Parse(strings.TrimPrefix(address, "dns+"))
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// asked is the model that clients ask for.
func (b *Bench) asked() string {
	if b.owned != nil {
		return b.owned.model
	}
	return model
}

// adopt makes the configuration the bench's, and starts its engines. It returns those of the model that clients ask for; if
// the row is about one engine, only the first, and clients ask for that.
func (b *Bench) adopt(n int, c mock.Config) []*mock.Engine {
	o := b.owned
	own := maps.Clone(o.all)
	for _, key := range elsewhere {
		delete(own, key)
	}
	b.base = merged(own, b.base)
	if own["strategy"] != nil { // a row's own would try another configuration
		b.base["strategy"] = own["strategy"]
	} else {
		delete(b.base, "strategy")
	}
	var serving []*mock.Engine
	for _, name := range slices.Sorted(maps.Keys(mapAt(o.all, "endpoints"))) {
		c.Name, c.Models, c.Seed = "", o.upstreams[name], 0
		e := b.engine(c)
		at := maps.Clone(mapAt(mapAt(o.all, "endpoints"), name))
		for _, key := range []string{"api_key", "tls", "proxy", "health_checks"} {
			delete(at, key)
		}
		if limits := maps.Clone(mapAt(at, "limits")); limits != nil { // they would hold up the drill's traffic
			delete(limits, "rpm")
			delete(limits, "tpm")
			at["limits"] = limits
		}
		if host := hostOf(textAt(at, "url")); host != "" && at["failure_domain"] == nil { // the mocks have one host for all
			at["failure_domain"] = host
		}
		at["url"] = e.URL()
		b.serveBy(name, e.URL())
		b.endpoints[name] = at
		if slices.Contains(o.serving, name) {
			serving = append(serving, e)
		}
	}
	if n == 1 {
		b.pin = o.serving[0]
		return serving[:1]
	}
	return serving
}

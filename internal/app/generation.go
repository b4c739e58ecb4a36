// Package app puts the parts together: it builds a generation from a configuration and the fleet that was
// found, swaps it in whole, and runs the listeners and background work.
package app

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"evenkeel/internal/config"
	"evenkeel/internal/discovery"
	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/proxy"
	"evenkeel/internal/route"
	"evenkeel/internal/strategy"
	"evenkeel/internal/upstream"
)

// Generation is everything built from one configuration and the fleet as known then. It is immutable.
type Generation struct {
	Config *config.Config
	Proxy  proxy.Generation
	fleet  *config.Config // Config with each pool replaced by its members as known then
	pools  []route.PoolSpec
}

// Strategy builds a configured strategy. An unknown name is an error that names the nearest known one. It is
// the check that config.Validate asks for.
func Strategy(s config.Strategy) (route.Strategy, error) {
	built, err := strategy.New(s.Name, s.Decode)
	var unknown *strategy.UnknownError
	if errors.As(err, &unknown) {
		return nil, fmt.Errorf("unknown strategy %q%s", s.Name, config.DidYouMean(s.Name, strategy.Names()))
	}
	return built, err
}

// CheckStrategy reports what is wrong with a configured strategy.
func CheckStrategy(s config.Strategy) error {
	_, err := Strategy(s)
	return err
}

// builder makes a Generation. reports hold what discovery found, by endpoint name.
type builder struct {
	written *config.Config
	config  *config.Config // with the members of pools
	reports map[string]discovery.Report
	pools   map[string]*route.PoolSpec
	limits  map[string]config.Limits // of configured deployments, by ID without a rank
	owners  map[string]string        // model → owned_by
}

func build(c, fleet *config.Config, reports map[string]discovery.Report, endpoints map[string]*upstream.Endpoint) (*Generation, error) {
	b := &builder{written: c, config: fleet, reports: reports, pools: map[string]*route.PoolSpec{}, limits: map[string]config.Limits{}, owners: map[string]string{}}
	if err := b.configured(); err != nil {
		return nil, err
	}
	b.discovered()
	if err := b.strategies(); err != nil {
		return nil, err
	}
	g := &Generation{Config: c, fleet: fleet}
	for _, name := range slices.Sorted(maps.Keys(b.pools)) {
		g.pools = append(g.pools, *b.pools[name])
	}
	g.Proxy = b.proxy(endpoints)
	return g, nil
}

// configured makes the pools of models that the configuration describes.
func (b *builder) configured() error {
	for _, m := range b.config.Models {
		pool := &route.PoolSpec{Model: m.Name}
		b.pools[m.Name] = pool
		for _, p := range m.Providers {
			e := b.endpoint(p.Name)
			if e == nil && b.written.EndpointsFile != "" {
				continue // the file may hold it later
			}
			if e == nil {
				return fmt.Errorf("model %q: no endpoint is named %q", m.Name, p.Name)
			}
			b.limits[deploymentID(e, "", p.Model)] = p.Limits
			for _, rank := range b.ranks(e) {
				d := b.deployment(e, rank, p.Model, p.Weight, p.Limits)
				d.Price = route.Price(p.Price)
				d.Domain = cmp.Or(p.FailureDomain, b.domainOf(e, p.Region))
				pool.Deployments = append(pool.Deployments, d)
			}
		}
	}
	return nil
}

// discovered adds what endpoints serve under its own name, unless the configuration says where a model is served.
func (b *builder) discovered() {
	placed := map[string]bool{}
	for _, m := range b.written.Models {
		placed[m.Name] = len(m.Providers) > 0
	}
	for i := range b.config.Endpoints {
		e := &b.config.Endpoints[i]
		for _, name := range b.serves(e) {
			if placed[name] {
				continue
			}
			pool := b.pools[name]
			if pool == nil {
				pool = &route.PoolSpec{Model: name}
				b.pools[name] = pool
			}
			// It may be an alias's deployment too, and is limited once.
			for _, rank := range b.ranks(e) {
				pool.Deployments = append(pool.Deployments, b.deployment(e, rank, name, 1, b.limits[deploymentID(e, "", name)]))
			}
		}
	}
	if len(b.written.Endpoints) == 1 { // a request without a model has one place to go
		b.pools[""] = &route.PoolSpec{}
		for i := range b.config.Endpoints {
			d := b.deployment(&b.config.Endpoints[i], "", "", 1, config.Limits{})
			d.Limits = route.Limits{}
			b.pools[""].Deployments = append(b.pools[""].Deployments, d)
		}
	}
}

func (b *builder) endpoint(name string) *config.Endpoint {
	i := slices.IndexFunc(b.config.Endpoints, func(e config.Endpoint) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &b.config.Endpoints[i]
}

// serves lists what an endpoint serves: what the operator says, else what it says itself.
func (b *builder) serves(e *config.Endpoint) []string {
	if len(e.Models) > 0 {
		return e.Models
	}
	var names []string
	for _, m := range b.reports[e.Name].Models {
		if !slices.Contains(names, m.ID) {
			names = append(names, m.ID)
		}
		if m.OwnedBy != "" {
			b.owners[m.ID] = m.OwnedBy
		}
	}
	return names
}

// deployment is that of a model at an endpoint, or at one of its ranks.
func (b *builder) deployment(e *config.Endpoint, rank, model string, weight float64, limits config.Limits) route.Deployment {
	cache := b.reports[e.Name].KVTokens
	if rank != "" {
		cache /= cmp.Or(b.reports[e.Name].Ranks, e.DataParallel)
	}
	tokens := cmp.Or(limits.Tokens, cache)
	if tokens == 0 && !hosted(e.Kind) {
		tokens = route.DefaultTokens
	}
	return route.Deployment{
		ID: deploymentID(e, rank, model), Endpoint: e.Name, URL: e.URL, Model: model, Rank: rank, Base: b.base(e, rank, model), Weight: e.Weight * weight,
		Domain: b.domainOf(e, ""), Cache: cache,
		Limits: route.Limits{InFlight: limits.InFlight, Tokens: tokens, RPM: limits.RPM, TPM: limits.TPM},
		Scopes: b.scopes(e),
	}
}

// domainOf is what an endpoint is likely to fail together with: what the operator says, else all that runs on its host. A
// provider with a fleet of its own is not one host: there it is what is served for the same account in the same region.
func (b *builder) domainOf(e *config.Endpoint, region string) string {
	if e.FailureDomain != "" {
		return e.FailureDomain
	}
	host := cmp.Or(hostOf(e.Address), hostname(e.URL))
	if !hosted(e.Kind) {
		return host
	}
	if !e.APIKey.IsZero() {
		host += " " + b.credential(e).Name
	}
	return strings.TrimSpace(host + " " + region)
}

// hostname is the host of a URL without its port.
func hostname(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// hostOf is the host of an address; empty if there is none.
func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// scopes are what a deployment shares with others: its endpoint, and its credential if it has one.
func (b *builder) scopes(e *config.Endpoint) []route.Scope {
	list := []route.Scope{scope(e)}
	if !e.APIKey.IsZero() {
		list = append(list, b.credential(e))
	}
	return list
}

// credential is the scope of an endpoint's key: that of the first endpoint with the same one whose key is checked by the same.
func (b *builder) credential(e *config.Endpoint) route.Scope {
	at := keyChecker(e)
	first := slices.IndexFunc(b.config.Endpoints, func(o config.Endpoint) bool { return o.APIKey.Equal(e.APIKey) && keyChecker(&o) == at })
	name := b.config.Endpoints[first].Name
	if hosted(e.Kind) {
		name = poolName(name)
	}
	return route.Scope{Kind: route.CredentialScope, Name: name, URL: at}
}

// keyChecker says who knows an endpoint's key: a provider, at all addresses of its host, or else the one server at an address,
// since of engines that were given the same key each counts and refuses for itself.
func keyChecker(e *config.Endpoint) string {
	if u, err := url.Parse(e.URL); err == nil && !hosted(e.Kind) {
		return cmp.Or(e.Address, u.Host)
	}
	return hostname(e.URL)
}

// poolName is the name of the pool of an endpoint, which stays while members come and go, or that of an endpoint that is in none.
func poolName(endpoint string) string {
	name, _, _ := strings.Cut(endpoint, "@")
	return name
}

// deploymentID names a deployment; rank is empty where there are none.
func deploymentID(e *config.Endpoint, rank, model string) string {
	if rank != "" {
		return e.Name + "#" + rank + "/" + model
	}
	return e.Name + "/" + model
}

// hosted reports whether a kind is a provider with a fleet of its own, whose KV cache is not ours to fill.
func hosted(kind string) bool { return kind == "openai" || kind == "anthropic" }

func scope(e *config.Endpoint) route.Scope {
	return route.Scope{Kind: route.EndpointScope, Name: e.Name, URL: e.URL,
		Limits: route.Limits(e.Limits)}
}

func (b *builder) strategies() error {
	own := map[string]config.Strategy{}
	for _, m := range b.config.Models {
		if m.Strategy != nil {
			own[m.Name] = *m.Strategy
		}
	}
	for name, pool := range b.pools {
		s, ok := own[name]
		if !ok {
			s = b.config.Strategy
		}
		built, err := Strategy(s)
		if err != nil {
			return err
		}
		pool.Strategy, pool.Affinity = built, affinity(b.affinityOf(name), built)
	}
	return nil
}

// affinityOf is the affinity that holds for a model.
func (b *builder) affinityOf(model string) config.Affinity {
	for i := range b.config.Models {
		if m := &b.config.Models[i]; m.Name == model && m.Affinity != nil {
			return *m.Affinity
		}
	}
	return b.config.Affinity
}

func affinity(a config.Affinity, s route.Strategy) route.Affinity {
	mode := map[string]route.AffinityMode{config.AffinitySession: route.SessionAffinity, config.AffinityPrefix: route.PrefixAffinity}[a.Mode]
	if exact, ok := s.(route.Exact); a.Mode == config.AffinityAuto && !(ok && exact.Exact()) {
		mode = route.PrefixAffinity
	}
	return route.Affinity{Mode: mode, SlowdownLimit: a.SlowdownLimit}
}

func (b *builder) proxy(endpoints map[string]*upstream.Endpoint) proxy.Generation {
	c := b.config
	g := proxy.Generation{
		Chains: map[string][]string{}, Endpoints: endpoints, Keys: map[[32]byte]string{},
		PassCredential: c.Credentials == config.CredentialsClient, Forward: proxy.NewHeaderSet(c.ForwardHeaders),
		MaxBody: int64(c.MaxBody), BodyMemory: bodyMemory(c, debug.SetMemoryLimit(-1)), MaxAttempts: c.Retry.MaxAttempts, Deadlines: deadlines(c),
	}
	if c.Hedge.Enabled {
		g.Hedged = func(model string) bool { return len(c.Hedge.Models) == 0 || slices.Contains(c.Hedge.Models, model) }
	}
	byAddress := map[string]bool{}
	for name := range b.pools {
		byAddress[name] = b.affinityOf(name).ClientAddress
	}
	g.AddressSession = func(model string) bool { return byAddress[model] }
	for _, x := range c.ExposeHeaders {
		g.Expose.Deployment = g.Expose.Deployment || x == "deployment"
		g.Expose.Attempts = g.Expose.Attempts || x == "attempts"
		g.Expose.Decision = g.Expose.Decision || x == "decision"
	}
	for _, k := range c.VirtualKeys {
		var sum [32]byte
		if n, err := hex.Decode(sum[:], []byte(k.SHA256)); err != nil || n != len(sum) {
			panic("BUG: app: a key's hash was not validated: " + k.Name)
		}
		g.Keys[sum] = k.Name
	}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		if r := b.reports[e.Name]; len(e.Models) == 0 && r.Models == nil {
			switch {
			case r.Refused:
				g.Refusing++
			case !r.Reachable || r.Kind == "": // down since we know it, or loading
				g.Unanswered++
			}
		}
	}
	g.Unanswered += b.emptyPools()
	for name, pool := range b.pools {
		g.Chains[name] = []string{name}
		if name != "" && len(pool.Deployments) > 0 {
			g.Models = append(g.Models, proxy.Model{ID: name, OwnedBy: cmp.Or(b.owners[name], "evenkeel")})
		}
	}
	for _, m := range c.Models {
		for _, next := range m.FallbackChain {
			if b.pools[next] != nil && !slices.Contains(g.Chains[m.Name], next) {
				g.Chains[m.Name] = append(g.Chains[m.Name], next)
			}
		}
	}
	slices.SortFunc(g.Models, func(a, b proxy.Model) int { return strings.Compare(a.ID, b.ID) })
	return g
}

// emptyPools is the number of pools without a member.
func (b *builder) emptyPools() (n int) {
	for i := range b.written.Endpoints {
		pool := &b.written.Endpoints[i]
		if _, isPool := pool.PoolHost(); isPool && !slices.ContainsFunc(b.config.Endpoints, func(e config.Endpoint) bool { return strings.HasPrefix(e.Name, pool.Name+"@") }) {
			n++
		}
	}
	return n
}

func deadlines(c *config.Config) exchange.Deadlines {
	d := c.Deadlines
	return exchange.Deadlines{Deadline: d.Deadline, FirstToken: d.FirstToken, BetweenTokens: d.BetweenTokens, Response: d.Response, Hold: c.HoldTimeout}
}

// mostBodyMemory is what request bodies may take where the configuration does not say.
const mostBodyMemory = 1 << 30 // bytes

// bodyMemory is the configured bound of the request bodies held at one time, else a quarter of the process's memory
// limit, within 1 GiB and not so little that two of the largest do not fit, unless these would take more than half of the
// limit; one fits in any case, beside the room that is for small ones.
func bodyMemory(c *config.Config, limit int64) int64 {
	if c.BodyMemory != 0 {
		return int64(c.BodyMemory)
	}
	largest := int64(c.MaxBody)
	return max(min(mostBodyMemory, limit/4), min(2*largest, limit/2), largest+largest/8)
}

// kindOf is an endpoint's kind: as configured, else as found, else the habits that most share.
func kindOf(e *config.Endpoint, reports map[string]discovery.Report) llm.Kind {
	for _, name := range []string{e.Kind, reports[e.Name].Kind, "openai-compatible"} {
		if k, ok := llm.LookupKind(name); ok {
			return k
		}
	}
	panic("BUG: app: the kinds table lacks openai-compatible")
}

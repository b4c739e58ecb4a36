package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/discovery"
	"evenkeel/internal/exchange"
	"evenkeel/internal/ledger"
	"evenkeel/internal/proxy"
	"evenkeel/internal/route"
	"evenkeel/internal/telemetry"
	"evenkeel/internal/upstream"
)

// App is a running balancer.
type App struct {
	logger  *slog.Logger
	version string
	router  *route.Router
	budget  *exchange.Budget
	ring    *ledger.Ring
	metrics *telemetry.Metrics
	proxy   *proxy.Proxy
	current atomic.Pointer[Generation]

	probes http.RoundTripper
	wake   chan struct{} // the configuration changed: watch other targets

	mu        sync.Mutex // serialises changes of the generation
	reports   map[string]discovery.Report
	endpoints map[string]*upstream.Endpoint
	settings  map[string]upstream.Options // what each of endpoints was made from

	first     chan struct{} // closed when every endpoint has been asked once
	firstOnce sync.Once
}

// Options of an App.
type Options struct {
	Logger  *slog.Logger
	Version string
}

// New builds an App from a validated configuration. Nothing runs until Run.
func New(c *config.Config, o Options) (*App, error) {
	a := &App{
		logger: o.Logger, version: o.Version,
		router: route.New(route.Options{MaxWaiting: c.Queue.MaxWaiting}),
		budget: exchange.NewBudget(c.Retry.BudgetRatio, float64(c.Retry.BudgetMin)),
		ring:   ledger.NewRing(c.Explain.RingMiB << 20),
		probes: &http.Transport{IdleConnTimeout: 4 * time.Second, MaxIdleConnsPerHost: 1, DisableCompression: true},
		wake:   make(chan struct{}, 1), first: make(chan struct{}),
		reports: map[string]discovery.Report{}, endpoints: map[string]*upstream.Endpoint{}, settings: map[string]upstream.Options{},
	}
	metrics, err := telemetry.New(telemetry.Options{
		View:    func() route.View { return a.router.View(time.Now()) },
		Known:   func(model string) bool { return a.current.Load().Proxy.Chains[model] != nil },
		Version: o.Version,
	})
	if err != nil {
		return nil, err
	}
	a.metrics = metrics
	a.proxy = proxy.New(proxy.Options{
		Router: a.router, Budget: a.budget, Logger: o.Logger, Done: a.finished,
		Current: func() *proxy.Generation { return &a.current.Load().Proxy },
	})
	if err := a.adopt(c); err != nil {
		return nil, err
	}
	return a, nil
}

// Reload replaces the configuration: all of it, or nothing and an error. Running requests are not touched.
// Settings that only a new process can change are reported as warnings in the log.
func (a *App) Reload(c *config.Config) error {
	old := a.current.Load().Config
	if err := a.adopt(c); err != nil {
		a.metrics.Reloaded(false, time.Now())
		return err
	}
	a.metrics.Reloaded(true, time.Now())
	for _, fixed := range []struct {
		setting string
		changed bool
	}{
		{"listen", old.Listen != c.Listen}, {"admin", old.Admin != c.Admin}, {"metrics", old.Metrics != c.Metrics},
		{"log", old.Log != c.Log}, {"explain.ring_mib", old.Explain != c.Explain},
	} {
		if fixed.changed {
			a.logger.Warn("a changed setting takes effect only after a restart", "setting", fixed.setting)
		}
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return nil
}

// adopt makes c the configuration.
func (a *App) adopt(c *config.Config) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	reports := map[string]discovery.Report{}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		if r, ok := a.reports[e.Name]; ok && r.Target.URL == e.URL {
			reports[e.Name] = r
		}
	}
	if err := a.rebuild(c, reports); err != nil {
		return err
	}
	a.router.Configure(route.Options{MaxWaiting: c.Queue.MaxWaiting})
	a.budget.Configure(c.Retry.BudgetRatio, float64(c.Retry.BudgetMin))
	return nil
}

// rebuild makes and swaps in a generation. Callers hold mu.
func (a *App) rebuild(c *config.Config, reports map[string]discovery.Report) error {
	endpoints, settings, err := a.connect(c, reports)
	if err != nil {
		return err
	}
	g, err := build(c, reports, endpoints)
	if err != nil {
		return err
	}
	// The generation first: whoever is granted a new deployment finds its endpoint there.
	old := a.current.Swap(g)
	if _, err := a.router.Adopt(time.Now(), g.pools); err != nil {
		a.current.Store(old)
		return err
	}
	for name, e := range a.endpoints {
		if endpoints[name] != e {
			e.Close()
		}
	}
	a.reports, a.endpoints, a.settings = reports, endpoints, settings
	return nil
}

// connect makes the endpoints of a configuration, keeping those that did not change with their connections.
func (a *App) connect(c *config.Config, reports map[string]discovery.Report) (map[string]*upstream.Endpoint, map[string]upstream.Options, error) {
	endpoints, settings := map[string]*upstream.Endpoint{}, map[string]upstream.Options{}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		o := upstream.Options{Name: e.Name, URL: e.URL, Kind: kindOf(e, reports), APIKey: e.APIKey, ConnectTimeout: c.Deadlines.Connect}
		settings[e.Name] = o
		if old, ok := a.settings[e.Name]; ok && old.Same(o) {
			endpoints[e.Name] = a.endpoints[e.Name]
			continue
		}
		made, err := upstream.New(o)
		if err != nil {
			return nil, nil, err
		}
		endpoints[e.Name] = made
	}
	return endpoints, settings, nil
}

// found takes what discovery learned about an endpoint.
func (a *App) found(r discovery.Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.current.Load()
	var e *config.Endpoint
	for i := range g.Config.Endpoints {
		if c := &g.Config.Endpoints[i]; c.Name == r.Target.Name && c.URL == r.Target.URL {
			e = c
		}
	}
	if e == nil {
		return // it left the configuration meanwhile
	}
	if !r.Reachable || r.Err == nil { // one that answers oddly, while it loads for instance, is neither up nor down
		a.router.Observe(time.Now(), scope(e), r.Reachable)
	}
	old, known := a.reports[r.Target.Name]
	if known && same(old, r) {
		return
	}
	a.announce(old, r, known)
	reports := make(map[string]discovery.Report, len(a.reports)+1)
	for name, report := range a.reports {
		reports[name] = report
	}
	reports[r.Target.Name] = r
	if err := a.rebuild(g.Config, reports); err != nil {
		a.logger.Error("what was found at an endpoint could not be used", "endpoint", r.Target.Name, "error", err)
	}
	if len(a.reports) == len(g.Config.Endpoints) {
		a.firstOnce.Do(func() { close(a.first) })
	}
}

// same reports whether two reports describe the same thing.
func same(a, b discovery.Report) bool {
	if a.Reachable != b.Reachable || a.Kind != b.Kind || a.KVTokens != b.KVTokens || len(a.Models) != len(b.Models) ||
		(a.Err == nil) != (b.Err == nil) || a.Err != nil && a.Err.Error() != b.Err.Error() {
		return false
	}
	for i := range a.Models {
		if a.Models[i] != b.Models[i] {
			return false
		}
	}
	return true
}

func (a *App) announce(old, r discovery.Report, known bool) {
	log := a.logger.With("endpoint", r.Target.Name, "url", r.Target.URL)
	switch {
	case !r.Reachable && (!known || old.Reachable):
		log.Warn("endpoint does not answer; it joins when it does", "error", r.Err)
	case r.Reachable && r.Err != nil:
		log.Warn("endpoint answers, but not as expected", "kind", r.Kind, "error", r.Err)
	case r.Reachable:
		names := make([]string, len(r.Models))
		for i, m := range r.Models {
			names[i] = m.ID
		}
		log.Info("endpoint serves", "kind", r.Kind, "version", r.Version, "models", names, "kv_tokens", r.KVTokens)
	}
}

// watch runs discovery, and starts it over when the configuration changed.
func (a *App) watch(ctx context.Context) {
	for ctx.Err() == nil {
		c := a.current.Load().Config
		var targets []discovery.Target
		for i := range c.Endpoints {
			e := &c.Endpoints[i]
			targets = append(targets, discovery.Target{Name: e.Name, URL: e.URL, Kind: e.Kind, APIKey: e.APIKey, Models: e.Models})
		}
		round, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { // ends with round
			defer close(done)
			discovery.Watch(round, targets, discovery.Options{RoundTripper: a.probes, Out: a.out}, a.found)
		}()
		select {
		case <-ctx.Done():
		case <-a.wake:
		}
		stop()
		<-done
	}
}

// out reports whether requests to a target are held back.
func (a *App) out(t discovery.Target) bool {
	return a.router.Out(time.Now(), route.Scope{Kind: route.EndpointScope, Name: t.Name, URL: t.URL})
}

// tickEvery is the coarsest grain of what comes by time alone.
const tickEvery = 250 * time.Millisecond

// tick lets waiters in whose chance comes by time alone.
func (a *App) tick(ctx context.Context) {
	timer := time.NewTimer(tickEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait := tickEvery
		if next := a.router.Tick(time.Now()); !next.IsZero() {
			wait = min(max(time.Until(next), time.Millisecond), tickEvery)
		}
		timer.Reset(wait)
	}
}

// Ready returns an error that says why no traffic should come here, nil if it may.
func (a *App) Ready() error {
	if why := a.proxy.Ready(); why != "" {
		return errors.New(why)
	}
	return nil
}

// Summary says in a few words what is served, for people.
func (a *App) Summary() string {
	g := a.current.Load()
	return fmt.Sprintf("%d endpoints, %d models", len(g.Config.Endpoints), len(g.Proxy.Models))
}

// ReloadFailed notes that a configuration could not be read.
func (a *App) ReloadFailed() { a.metrics.Reloaded(false, time.Now()) }

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/discovery"
	"evenkeel/internal/exchange"
	"evenkeel/internal/health"
	"evenkeel/internal/ledger"
	"evenkeel/internal/proxy"
	"evenkeel/internal/route"
	"evenkeel/internal/telemetry"
)

// App is a running balancer.
type App struct {
	logger  *slog.Logger
	lines   Lines
	version string
	router  *route.Router
	budget  *exchange.Budget
	ring    *ledger.Ring
	trace   *ledger.Recorder // nil = traffic is not recorded
	metrics *telemetry.Metrics
	memory  *memoryGuard
	checker *health.Checker
	proxy   *proxy.Proxy
	current atomic.Pointer[Generation]

	wake chan struct{} // there are other endpoints to watch

	mu       sync.Mutex // serialises changes of the generation
	reports  map[string]discovery.Report
	hosts    map[string]resolved // whose addresses are endpoints
	requests connected           // the endpoints as requests reach them
	probes   connected           // and as discovery does
	held     map[string]bool     // endpoints that are up and not announced: they are about to say more
	unlisted map[provider]string // what was warned of

	misranked map[string]misranking // likewise, by endpoint

	first     chan struct{} // closed when every endpoint has been asked once
	firstOnce sync.Once

	listeners listeners
	strangers throttle // of lines about requests without a valid key
	repeats   repeats

	heir      *Heir         // nil if there was no process before
	sockets   Listeners     // as Run has them; guarded by mu
	handed    chan struct{} // closed when another process has taken over
	hurry     chan struct{} // closed when a drain may not go on
	hurryOnce sync.Once
	seed      uint64 // of this process
}

// Options of an App.
type Options struct {
	Logger  *slog.Logger
	Lines   Lines // where the log's line for each exchange goes, at the levels that Logger has switched on
	Version string
	Heir    *Heir // what the process before has left; nil = there was none
}

// New builds an App from a validated configuration. Nothing runs until Run.
func New(c *config.Config, o Options) (*App, error) {
	seed := rand.Uint64()
	a := &App{
		logger: o.Logger, lines: o.Lines, version: o.Version, heir: o.Heir,
		router:  route.New(routing(c, seed)),
		seed:    seed,
		budget:  exchange.NewBudget(c.Retry.BudgetRatio, float64(c.Retry.BudgetMin)),
		repeats: repeats{logger: o.Logger},
		ring:    ledger.NewRing(c.Explain.RingMiB << 20),
		wake:    make(chan struct{}, 1), first: make(chan struct{}), hurry: make(chan struct{}), handed: make(chan struct{}),
		reports: map[string]discovery.Report{}, held: map[string]bool{},
	}
	trace, prefixes, err := recorder(c.Trace, o)
	if err != nil {
		return nil, err
	}
	if prefixes == nil {
		prefixes = prefixKey(c)
	}
	a.trace = trace
	metrics, err := telemetry.New(telemetry.Options{
		View:     func() route.View { return a.router.View(time.Now()) },
		Known:    func(model string) bool { return model != "" && a.current.Load().Proxy.Chains[model] != nil },
		Bodies:   func() int64 { return a.proxy.BodyMemory() },
		Shortage: func() int { return int(a.memory.shortage()) },
		Trace:    func() telemetry.Trace { return telemetry.Trace(a.trace.Usage()) },
		Version:  o.Version,
	})
	if err != nil {
		return nil, err
	}
	a.metrics, a.memory = metrics, newMemoryGuard(o.Logger)
	a.checker = health.New(health.Options{Router: a.router, Done: a.probed, Heard: a.heard, Seed: rand.Uint64()})
	if a.listeners, err = newListeners(c, metrics, o.Logger); err != nil {
		return nil, err
	}
	a.proxy = proxy.New(proxy.Options{
		Router: a.router, Budget: a.budget, Logger: o.Logger, Done: a.finished,
		Current: func() *proxy.Generation { return &a.current.Load().Proxy }, Shortage: a.memory.shortage,
		Prefixes: prefixes,
	})
	if err := a.adopt(c); err != nil {
		return nil, err
	}
	return a, nil
}

// Reload replaces the configuration: all of it, or nothing and an error. Running requests are not touched.
// Settings that only a new process can change stay as they are, and a warning in the log names them.
func (a *App) Reload(c *config.Config) error {
	old := a.current.Load().Config
	kept, changed := keepFixed(old, c)
	renew := func() {}
	err := kept.Validate(CheckStrategy)
	if err == nil {
		renew, err = a.listeners.renewal(kept)
	}
	switch {
	case err == nil:
		if err = a.adopt(kept); err == nil {
			a.forgiveNewKeys(old, kept)
			renew()
		}
	case len(changed) > 0: // as a listener that others reach, for which c has no keys since it moves it
		err = fmt.Errorf("it needs a restart, since %s can change only then: %w", strings.Join(changed, ", "), err)
	}
	a.metrics.Reloaded(err == nil, time.Now())
	if err != nil {
		return err
	}
	for _, setting := range changed {
		a.logger.Warn("a changed setting takes effect only after a restart", "setting", setting)
	}
	a.changed()
	return nil
}

// keepFixed returns c with the settings that cannot change while the process runs as old has them, and which of
// them c would change.
func keepFixed(old, c *config.Config) (kept *config.Config, changed []string) {
	k := *c
	keep := func(setting string, differs bool) {
		if differs {
			changed = append(changed, setting)
		}
	}
	keep("listen", k.Listen != old.Listen)
	keep("admin", k.Admin != old.Admin)
	keep("metrics", k.Metrics != old.Metrics)
	keep("tls", k.TLS.On() != old.TLS.On())
	keep("admin_tls", k.AdminTLS.On() != old.AdminTLS.On())
	keep("h2c", k.H2C != old.H2C)
	keep("log", k.Log != old.Log)
	keep("explain.ring_mib", k.Explain != old.Explain)
	keep("trace", k.Trace != old.Trace)
	k.Listen, k.Admin, k.Metrics, k.H2C, k.Log, k.Explain, k.Trace = old.Listen, old.Admin, old.Metrics, old.H2C, old.Log, old.Explain, old.Trace
	if k.TLS.On() != old.TLS.On() { // other files are taken
		k.TLS = old.TLS
	}
	if k.AdminTLS.On() != old.AdminTLS.On() {
		k.AdminTLS = old.AdminTLS
	}
	return &k, changed
}

// adopt makes c the configuration.
func (a *App) adopt(c *config.Config) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	hosts := map[string]resolved{}
	for _, host := range poolHosts(c) {
		if r, known := a.hosts[host]; known {
			hosts[host] = r
		}
	}
	if err := a.rebuild(c, hosts, a.reports); err != nil {
		return err
	}
	a.router.Configure(routing(c, a.seed))
	a.budget.Configure(c.Retry.BudgetRatio, float64(c.Retry.BudgetMin))
	a.budget.Hedges(c.Hedge.BudgetRatio)
	return nil
}

// rebuild makes and swaps in a generation, and forgets the reports of who left. Callers hold mu.
func (a *App) rebuild(c *config.Config, hosts map[string]resolved, known map[string]discovery.Report) error {
	f := fleet(c, hosts)
	reports := map[string]discovery.Report{}
	for i := range f.Endpoints {
		e := &f.Endpoints[i]
		if r, ok := known[e.Name]; ok && r.Target.URL == e.URL {
			reports[e.Name] = r
		}
	}
	requests, probes, err := a.connect(f, reports)
	if err != nil {
		return err
	}
	g, err := build(c, f, reports, requests.endpoints)
	if err != nil {
		return err
	}
	// The generation first: whoever is granted a new deployment finds its endpoint there.
	old := a.current.Swap(g)
	if _, err := a.router.Adopt(time.Now(), g.pools); err != nil {
		a.current.Store(old)
		return err
	}
	a.requests.close(requests)
	a.probes.close(probes)
	a.checker.Set(probing(g, reports, probes.endpoints))
	a.hosts, a.reports, a.requests, a.probes = hosts, reports, requests, probes
	a.warnUnlisted(f)
	a.warnRanks(f)
	return nil
}

// found takes what discovery learned about an endpoint.
func (a *App) found(r discovery.Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.looked()
	g := a.current.Load()
	var e *config.Endpoint
	for i := range g.fleet.Endpoints {
		if c := &g.fleet.Endpoints[i]; c.Name == r.Target.Name && c.URL == r.Target.URL {
			e = c
		}
	}
	if e == nil {
		return // it left the configuration meanwhile
	}
	now := time.Now()
	switch {
	case r.Reachable && r.Err != nil: // one that answers oddly, while it loads for instance, is neither up nor down
	case errors.Is(r.Err, syscall.EMFILE) || errors.Is(r.Err, syscall.ENFILE): // it is we who cannot ask
	case errors.Is(r.Err, context.DeadlineExceeded) && a.router.Answers(now, scope(e)): // too busy with requests for a page
	default:
		a.router.Observe(now, scope(e), r.Reachable)
	}
	old, known := a.reports[r.Target.Name]
	if known {
		r = remembering(old, r)
	}
	if known && same(old, r) && !a.held[r.Target.Name] {
		return
	}
	a.announce(old, r, known)
	reports := make(map[string]discovery.Report, len(a.reports)+1)
	for name, report := range a.reports {
		reports[name] = report
	}
	reports[r.Target.Name] = r
	if err := a.rebuild(g.Config, a.hosts, reports); err != nil {
		a.logger.Error("what was found at an endpoint could not be used", "endpoint", r.Target.Name, "error", err)
	}
}

// tickEvery is the coarsest grain of what comes by time alone.
const tickEvery = 250 * time.Millisecond

// tick lets waiters in whose chance comes by time alone, and tells what went out or came back.
func (a *App) tick(ctx context.Context) {
	outages := newOutages(a.logger)
	timer := time.NewTimer(tickEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait := tickEvery
		now := time.Now()
		outages.look(now, a.router.View)
		if next := a.router.Tick(now); !next.IsZero() {
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

// Summary says in a few words what is served, for people. Until every endpoint was asked, nobody knows how many models.
func (a *App) Summary() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.current.Load()
	endpoints := count(max(len(g.fleet.Endpoints), len(g.Config.Endpoints)), "endpoint")
	if len(a.reports) < len(g.fleet.Endpoints) || len(a.hosts) < len(poolHosts(g.Config)) {
		return endpoints
	}
	return endpoints + ", " + count(len(g.Proxy.Models), "model")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Config returns the configuration that holds. It is read-only.
func (a *App) Config() *config.Config { return a.current.Load().Config }

// ReloadFailed notes that a configuration could not be read.
func (a *App) ReloadFailed() { a.metrics.Reloaded(false, time.Now()) }

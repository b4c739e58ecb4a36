// Package telemetry tells Prometheus what happens. What is counted per request comes from finished
// exchange.Records; what is a state (load, queues, breakers) is read from the Router at scrape time, so it
// cannot drift.
package telemetry

import (
	"errors"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// Options of Metrics.
type Options struct {
	View     func() route.View       // the fleet's state now; called once per scrape
	Known    func(model string) bool // whether clients may ask for a model of this name; bounds the label
	Bodies   func() int64            // bytes that request bodies take now; nil = 0
	Shortage func() int              // how near the memory limit is, as evenkeel_memory_shortage; nil = not at all
	Trace    func() Trace            // what became of exchanges that were to be recorded; nil = none were
	Version  string
	Now      func() time.Time // nil = time.Now
}

// otherModel stands for all names of models that are not known, and for requests that name none.
const otherModel = "other"

// Metrics holds all metrics of one process. All methods may be called concurrently.
type Metrics struct {
	options  Options
	registry *prometheus.Registry
	scraping sync.Mutex // one scrape is gathered at a time: many at once would take the processors from requests

	requests *children[requestKey, prometheus.Counter]
	depth    *children[string, prometheus.Observer]
	attempts *children[attemptKey, prometheus.Counter]
	ttft     *children[target, prometheus.Observer]
	itl      *children[target, prometheus.Observer]
	tokens   *children[tokenKey, prometheus.Counter]
	overhead prometheus.Observer
	absence  absence

	probes      *children[probeKey, prometheus.Counter]
	hearings    *children[hearingKey, prometheus.Counter]
	probeTokens *children[probeTokenKey, prometheus.Counter]
	probeTTFT   *children[string, prometheus.Observer]

	fallbacks *children[fallbackKey, prometheus.Counter]
	hedges    *children[hedgeKey, prometheus.Counter]
	waste     *children[wasteKey, prometheus.Counter]

	reloadOK, reloadTime prometheus.Gauge

	connections, certExpiry, certReload *prometheus.GaugeVec // see Listener
	refused                             *prometheus.CounterVec
}

type requestKey struct {
	model, api string
	result     exchange.Result
	status     int
}

func (k requestKey) labels() []string {
	status := "other"
	switch {
	case k.status == 0:
		status = "none"
	case k.status >= 100 && k.status <= 599:
		status = strconv.Itoa(k.status)
	}
	return []string{k.model, k.api, string(k.result), status}
}

// target is a model at a deployment.
type target struct{ model, deployment string }

func (t target) labels() []string { return []string{t.model, t.deployment} }

type attemptKey struct {
	target
	verdict route.Verdict
	class   string
}

func (k attemptKey) labels() []string {
	class := k.class
	if class == "" {
		class = "none"
	}
	return append(k.target.labels(), k.verdict.String(), class)
}

type tokenKey struct {
	target
	kind     string
	reported bool
}

func (k tokenKey) labels() []string {
	source := "estimated"
	if k.reported {
		source = "reported"
	}
	return append(k.target.labels(), k.kind, source)
}

// New returns metrics that start at zero.
func New(o Options) (*Metrics, error) {
	if o.View == nil || o.Known == nil {
		return nil, errors.New("telemetry: View and Known are needed")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Bodies == nil {
		o.Bodies = func() int64 { return 0 }
	}
	if o.Shortage == nil {
		o.Shortage = func() int { return 0 }
	}
	if o.Trace == nil {
		o.Trace = func() Trace { return Trace{} }
	}
	m := &Metrics{options: o, registry: prometheus.NewRegistry(), absence: absence{since: map[name]time.Time{}}}
	requestsVec, depthVec, attemptsVec := requests.counter(), fallbackDepth.histogram(), attempts.counter()
	ttftVec, itlVec, tokensVec, overheadVec := ttft.histogram(), itl.histogram(), tokens.counter(), overhead.histogram()
	buildVec, okVec, timeVec := buildInfo.gauge(), reloadOK.gauge(), reloadTime.gauge()

	m.requests = newChildren(requestsVec, requestKey.labels)
	m.depth = newChildren(depthVec, func(model string) []string { return []string{model} })
	m.attempts = newChildren(attemptsVec, attemptKey.labels)
	m.ttft = newChildren(ttftVec, target.labels)
	m.itl = newChildren(itlVec, target.labels)
	m.tokens = newChildren(tokensVec, tokenKey.labels)
	m.overhead = overheadVec.WithLabelValues()
	m.connections, m.refused, m.certExpiry, m.certReload = connections.gauge(), refusedConnections.counter(), certExpiry.gauge(), certReload.gauge()
	m.reloadOK, m.reloadTime = okVec.WithLabelValues(), timeVec.WithLabelValues()
	probesVec, probeTokensVec, probeTTFTVec := probes.counter(), probeTokens.counter(), probeTTFT.histogram()
	m.probes = newChildren(probesVec, probeKey.labels)
	m.probeTokens = newChildren(probeTokensVec, probeTokenKey.labels)
	m.probeTTFT = newChildren(probeTTFTVec, func(deployment string) []string { return []string{deployment} })
	hearingsVec := signalReads.counter()
	m.hearings = newChildren(hearingsVec, hearingKey.labels)
	fallbacksVec, hedgesVec, wasteVec := fallbacks.counter(), hedges.counter(), waste.counter()
	m.fallbacks = newChildren(fallbacksVec, fallbackKey.labels)
	m.hedges = newChildren(hedgesVec, hedgeKey.labels)
	m.waste = newChildren(wasteVec, wasteKey.labels)
	buildVec.WithLabelValues(valid(o.Version), runtime.Version()).Set(1)

	for _, c := range append(traceCounters(o.Trace), []prometheus.Collector{
		requestsVec, depthVec, attemptsVec, ttftVec, itlVec, tokensVec, overheadVec, buildVec, okVec, timeVec,
		hearingsVec, probesVec, probeTokensVec, probeTTFTVec, fallbacksVec, hedgesVec, wasteVec, m.connections, m.refused, m.certExpiry, m.certReload,
		newFleet(m), bodyBytes.gaugeFunc(func() float64 { return float64(o.Bodies()) }), memoryShortage.gaugeFunc(func() float64 { return float64(o.Shortage()) }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}...) {
		if err := m.registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Observe counts a request that has ended. added is the time the balancer itself took before the first
// dispatch; 0 or less means that it was not measured.
func (m *Metrics) Observe(rec *exchange.Record, added time.Duration) {
	model := m.model(rec)
	m.requests.of(requestKey{model, rec.Facts.API, rec.Result, rec.Status}).Inc()
	if rec.Result == exchange.Rejected {
		return
	}
	m.depth.of(model).Observe(float64(rec.Depth))
	if added > 0 {
		m.overhead.Observe(added.Seconds())
	}
	if rec.Depth > 0 {
		m.countFallbacks(rec, model)
	}
	for i := range rec.Attempts {
		a := &rec.Attempts[i]
		m.attempt(a)
		if a.Hedge || a.Waste {
			m.countHedge(rec, a)
		}
	}
}

func (m *Metrics) attempt(a *exchange.Attempt) {
	t, o := target{named(a.Model), a.Deployment}, &a.Outcome
	m.attempts.of(attemptKey{t, o.Verdict, o.Class}).Inc()
	if o.Verdict == route.Success && o.TTFT > 0 {
		m.ttft.of(t).Observe(o.TTFT.Seconds())
		if o.ITL > 0 {
			m.itl.of(t).Observe(o.ITL.Seconds())
		}
	}
	m.count(t, "input", o.Reported, o.InputTokens-o.CachedTokens)
	m.count(t, "cached_input", o.Reported, o.CachedTokens)
	m.count(t, "output", o.Reported, o.OutputTokens)
}

func (m *Metrics) count(t target, kind string, reported bool, n int) {
	if n > 0 {
		m.tokens.of(tokenKey{t, kind, reported}).Add(float64(n))
	}
}

// model bounds the label: a client may ask for anything. What was dispatched under its own name is known.
func (m *Metrics) model(rec *exchange.Record) string {
	name := rec.Facts.Model
	if len(rec.Attempts) > 0 && rec.Attempts[0].Model == name || m.options.Known(name) {
		return named(name)
	}
	return otherModel
}

// named is the label of a model that is known, and of none.
func named(model string) string {
	if model == "" {
		return otherModel
	}
	return model
}

// Handler answers scrapes, at /metrics; anything else is not found.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.GathererFunc(m.gather), promhttp.HandlerOpts{Registry: m.registry, EnableOpenMetrics: true}))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "only GET /metrics is answered here", http.StatusNotFound)
	})
	return mux
}

func (m *Metrics) gather() ([]*dto.MetricFamily, error) {
	m.scraping.Lock()
	defer m.scraping.Unlock()
	return m.registry.Gather()
}

// Reloaded says that the configuration was loaded, or that it could not be.
func (m *Metrics) Reloaded(ok bool, now time.Time) {
	if !ok {
		m.reloadOK.Set(0)
		return
	}
	m.reloadOK.Set(1)
	m.reloadTime.Set(float64(now.UnixMilli()) / 1000)
}

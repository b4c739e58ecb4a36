// Package proxy is the HTTP shell around the exchange: listeners' handlers, bodies, sockets and streaming.
// It runs the actions of an exchange.Exchange and reports events to it; it decides nothing about routing.
//
// The files follow a request: proxy.go (entry), gate.go, auth.go, body.go, facts.go, call.go (the exchange's shell),
// attempt.go (one upstream call), source.go and reply.go (reading and metering its answer), relay.go (what the client sees).
package proxy

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/upstream"
)

// Generation is everything one configuration and fleet give the proxy. It is immutable.
type Generation struct {
	Chains         map[string][]string           // model → itself and its fallbacks; "" if a request without a model has one place to go
	Unanswered     int                           // endpoints that have not said yet what they serve
	Refusing       int                           // endpoints that do not say what they serve, since they refuse our credential
	Models         []Model                       // what GET /v1/models lists, sorted by ID
	Endpoints      map[string]*upstream.Endpoint // by name
	Keys           map[[32]byte]string           // SHA-256 of a virtual key → its name; empty = no authentication
	PassCredential bool                          // the client's own key goes upstream
	Forward        HeaderSet                     // more request headers that go upstream
	Expose         Exposed
	MaxBody        int64
	BodyMemory     int64 // bytes of request bodies that may be held at one time, over all requests; 0 = 1 GiB
	MaxAttempts    int
	Hedged         func(model string) bool // whether requests for a model may have a second attempt beside the first; nil = none
	AddressSession func(model string) bool // whether requests for a model that name no session have their client's address for one; nil = none
	Deadlines      exchange.Deadlines
}

// Model is one line of GET /v1/models.
type Model struct {
	ID      string
	OwnedBy string
	Created int64 // Unix seconds
}

// Exposed says which optional response headers the operator shows.
type Exposed struct {
	Deployment, Attempts, Decision bool
}

// Finished is what the proxy tells about an exchange that ended.
type Finished struct {
	Record   *exchange.Record
	Overhead time.Duration // from the last byte of the request to the first dispatch, without queueing
	Stranger bool          // rejected before it was known who asks
	Prefix   []uint64      // hash chain of the prompt (route.Facts.Prefix); it is the caller's until Done returns
	Session  string        // the client's own name for its session, "" = it gave none
}

// Options of a Proxy.
type Options struct {
	Router   *route.Router
	Budget   *exchange.Budget
	Current  func() *Generation // the generation for a new request
	Done     func(Finished)     // called once per exchange, after the client's answer; must not block
	Shortage func() Shortage    // how near the memory limit is; nil = there is none
	Prefixes *llm.PrefixKey     // that prompts are hashed with; nil = one of its own, so that their hashes mean nothing elsewhere
	Logger   *slog.Logger
}

// Proxy serves clients.
type Proxy struct {
	Options
	draining atomic.Bool
	calls    calls
	running  atomic.Int64
	bodies   bodyMemory
	leaves   leaves

	patience time.Duration // how long a client may take nothing of its answer
}

// New returns a Proxy.
func New(o Options) *Proxy {
	if o.Prefixes == nil {
		var secret [32]byte
		_, _ = rand.Read(secret[:]) // never fails (crypto/rand)
		o.Prefixes = llm.NewPrefixKey(secret)
	}
	return &Proxy{Options: o, patience: clientPatience}
}

// Drain makes /readyz fail, so that no new requests are sent here. Those that come are still served.
func (p *Proxy) Drain() { p.draining.Store(true) }

// Cut ends the requests that still run: with an error event where an answer has begun.
func (p *Proxy) Cut() { p.calls.shutDown() }

// Close ends what watches over clients; no request may be served any more.
func (p *Proxy) Close() { p.leaves.close() }

// Running returns how many requests for models are being served.
func (p *Proxy) Running() int64 { return p.running.Load() }

// Ready returns why the proxy should get no traffic, "" if it should.
func (p *Proxy) Ready() string {
	switch g := p.Current(); {
	case p.draining.Load():
		return "draining"
	case len(g.Models) == 0:
		return "no model is served yet"
	}
	return ""
}

// ServeHTTP serves one client request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor > 1 {
		defer p.boundLastWrite(w)
	}
	switch r.URL.Path {
	case "/livez":
		unwanted(w, r)
		plain(w, http.StatusOK, "ok\n")
		return
	case "/readyz":
		unwanted(w, r)
		if why := p.Ready(); why != "" {
			plain(w, http.StatusServiceUnavailable, why+"\n")
			return
		}
		plain(w, http.StatusOK, "ok\n")
		return
	}
	id := newID()
	api := llm.APIOf(r.Method, r.URL.Path)
	g := p.Current()
	arrived := time.Now()
	tenant, failure := g.enter(w, r, api)
	if failure != nil {
		w.Header()[headerID] = []string{id}
		unwanted(w, r)
		linger(w, r, false)
		p.reject(w, api, &route.Facts{ID: id, API: api.Name, Arrived: arrived}, failure, true)
		return
	}
	if api.Name == "models" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		w.Header()[headerID] = []string{id}
		unwanted(w, r)
		g.serveModels(w, r, api)
		return
	}
	if failure := p.shed(r); failure != nil {
		w.Header()[headerID] = []string{id}
		linger(w, r, true)
		p.reject(w, api, &route.Facts{ID: id, API: api.Name, Tenant: tenant, Arrived: arrived}, failure, false)
		return
	}
	p.running.Add(1)
	defer p.running.Add(-1)
	c, _ := p.calls.spare.Get().(*call)
	if c == nil {
		c = newCall(p)
	}
	c.begin(w, r, g, api, id, tenant, arrived)
	c.serve()
}

// notReadyRetry is when to ask again for a model that may come: endpoints that are down are asked more often.
const notReadyRetry = time.Second

// reject turns a request away that nobody needs to be asked for, and tells of it as of any other.
func (p *Proxy) reject(w http.ResponseWriter, api llm.API, f *route.Facts, e *llm.Error, stranger bool) {
	failure := &exchange.Failure{Status: e.Status, Code: e.Code, Message: e.Message, Final: final(e.Status)}
	if !failure.Final {
		failure.RetryIn = notReadyRetry.Milliseconds()
		retryHeaders(w.Header(), failure)
	}
	writeError(w, api, e)
	rec := &exchange.Record{
		Facts: *f, Started: f.Arrived, Ended: time.Now(), Result: exchange.Rejected, Status: e.Status, Failure: failure,
	}
	rec.Facts.Model, rec.Facts.Prefix = clip(f.Model), nil
	p.Done(Finished{Stranger: stranger, Record: rec})
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a probe that left needs no answer
}

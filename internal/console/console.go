// Package console answers the admin listener: what happened to a request and why (/explain), how the fleet
// stands and orders about it (/admin/deployments), metrics and probes.
package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/ledger"
	"evenkeel/internal/route"
)

// Options of the console.
type Options struct {
	Ring    *ledger.Ring      // recent requests
	Metrics http.Handler      // answers /metrics; nil = there is none
	View    func() route.View // the fleet's state now
	Ready   func() error      // why requests should not be sent here, nil if they may; nil = always ready
	// Unlisted reports whether an endpoint is known to list models, but not this one that it is to serve; nil = never.
	Unlisted func(endpoint, model string) bool
	// Silent lists the endpoints of which nothing is known that they could serve, and why; nil = there are none.
	Silent func() []Silent
	// Order carries out an order about a deployment, an endpoint or a credential; by says who gives it. Nil: orders are not taken.
	Order   func(kind, name string, o route.Override, by string) error
	Version string
	Hosts   []string         // names the console may be asked for by, beside IP addresses and localhost; without port
	Now     func() time.Time // nil = time.Now
}

// How many requests /explain lists.
const (
	listedByDefault = 30
	listedAtMost    = 1000
)

type console struct{ Options }

// Handler returns the console. It has no authentication of its own: it belongs on a loopback address, or
// behind something that authenticates. What a browser may be tricked into asking is refused (see guard).
func Handler(o Options) http.Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Unlisted == nil {
		o.Unlisted = func(string, string) bool { return false }
	}
	if o.Silent == nil {
		o.Silent = func() []Silent { return nil }
	}
	c := &console{o}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.index)
	mux.HandleFunc("GET /explain", c.recent)
	mux.HandleFunc("GET /explain/last", c.last)
	mux.HandleFunc("GET /explain/{id}", c.explain)
	mux.HandleFunc("GET /deployments", c.deployments)
	mux.HandleFunc("GET "+ordersPath, c.deployments)
	if o.Order != nil {
		mux.HandleFunc("POST "+ordersPath, c.order)
	}
	mux.HandleFunc("GET /debug/pprof/{$}", c.profiles)
	mux.HandleFunc("GET /debug/pprof/{name}", c.profile)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", c.readyz)
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Metrics)
	}
	return guard(o.Hosts, mux)
}

func (c *console) index(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "Evenkeel "+c.Version+`

/explain            recent requests
/explain/last       why the last request went where it went, and what came of it
/explain/ID         the same for the request of that x-evenkeel-id
/admin/deployments  what can be picked, and how it stands; POST gives orders (also /deployments, for reading)
/metrics            for Prometheus
/debug/pprof/       profiles of this process
/livez, /readyz     probes

/explain and /deployments answer in JSON; add ?format=text, or send "Accept: text/plain", to read them.
`)
}

func (c *console) readyz(w http.ResponseWriter, _ *http.Request) {
	if c.Ready != nil {
		if err := c.Ready(); err != nil {
			writeText(w, http.StatusServiceUnavailable, "not ready: "+clean(err.Error())+"\n")
			return
		}
	}
	writeText(w, http.StatusOK, "ready\n")
}

func (c *console) explain(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	rec := c.Ring.Find(id)
	if rec == nil {
		c.fail(w, r, http.StatusNotFound, fmt.Sprintf("no finished request %q is known: %s", shortened(id), c.kept()))
		return
	}
	c.tell(w, r, rec)
}

func (c *console) last(w http.ResponseWriter, r *http.Request) {
	records := c.Ring.Last(1)
	if len(records) == 0 {
		c.fail(w, r, http.StatusNotFound, "no request can be explained: "+c.kept())
		return
	}
	c.tell(w, r, records[0])
}

func (c *console) tell(w http.ResponseWriter, r *http.Request, rec *exchange.Record) {
	e := Explain(rec)
	c.answer(w, r, e, e.Text)
}

// kept says what the Ring holds, for those who miss something in it.
func (c *console) kept() string {
	u := c.Ring.Usage()
	switch {
	case u.Limit == 0:
		return "the record of recent requests is switched off (explain.ring_mib is 0)"
	case u.Records == 0:
		return "none has ended since the start"
	case u.Evicted == 0:
		return fmt.Sprintf("%s ended since the start; one that still runs is not among them", count(u.Records, "request"))
	}
	return fmt.Sprintf("the last %s are kept, from %s on; older ones are gone (explain.ring_mib bounds their memory), and one that still runs is not among them",
		count(u.Records, "request"), u.Oldest.UTC().Format("2006-01-02 15:04:05 UTC"))
}

func (c *console) recent(w http.ResponseWriter, r *http.Request) {
	n := listedByDefault
	if text := r.URL.Query().Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > listedAtMost {
			c.fail(w, r, http.StatusBadRequest, fmt.Sprintf("n is %q, it must be a number from 1 to %d", shortened(text), listedAtMost))
			return
		}
	}
	list := summarise(c.Ring.Usage(), c.Ring.Last(n))
	c.answer(w, r, list, list.Text)
}

// deployments answers GET. What belongs to an order is refused: it would seem to have been given.
func (c *console) deployments(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Has("order") {
		c.refuseOrder(w, r)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(q)) {
		if key != "format" {
			c.fail(w, r, http.StatusBadRequest, fmt.Sprintf("%q is not understood: all deployments are listed, and there is format alone, text or json", shortened(key)))
			return
		}
	}
	c.fleet(w, r)
}

func (c *console) fleet(w http.ResponseWriter, r *http.Request) {
	f := describe(c.View(), c.Unlisted, c.Now())
	for _, s := range c.Silent() {
		s.URL = bareURL(s.URL)
		f.Silent = append(f.Silent, s)
	}
	c.answer(w, r, f, f.Text)
}

// answer writes a view in the form that was asked for.
func (c *console) answer(w http.ResponseWriter, r *http.Request, view any, text func() string) {
	asText, err := wantsText(r)
	switch {
	case err != nil:
		c.fail(w, r, http.StatusBadRequest, err.Error())
	case asText:
		writeText(w, http.StatusOK, text())
	default:
		writeJSON(w, http.StatusOK, view)
	}
}

func (c *console) fail(w http.ResponseWriter, r *http.Request, status int, message string) {
	if asText, _ := wantsText(r); asText {
		writeText(w, status, message+"\n")
		return
	}
	writeJSON(w, status, map[string]string{"error": message})
}

// shortened bounds what an answer repeats of a request.
func shortened(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

func writeText(w http.ResponseWriter, status int, text string) {
	write(w, status, "text/plain; charset=utf-8", []byte(text))
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // a client that left is nobody's concern here
}

func writeJSON(w http.ResponseWriter, status int, view any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(view); err != nil {
		panic("BUG: console: " + err.Error()) // views hold nothing that JSON cannot say
	}
	write(w, status, "application/json", b.Bytes())
}

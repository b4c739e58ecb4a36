package discovery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// prober asks one endpoint again and again and remembers what it learned. It belongs to one goroutine.
type prober struct {
	client client
	last   Report
	facts  facts // of the engine last seen here
	// Of the last ping: the status (0: no HTTP answer) and the models listed (nil: it brought no list).
	status int
	list   []ModelInfo
	// sure is true while the kind is that of the server that is there now. A server that was away may have come back as
	// another one.
	sure bool
}

func newProber(t Target, rt http.RoundTripper, timeout time.Duration) *prober {
	if rt == nil {
		rt = http.DefaultTransport
	}
	p := &prober{client: client{rt: rt, target: t, timeout: timeout}}
	p.last = Report{Target: t, Kind: t.Kind}
	if len(t.Models) > 0 {
		p.last.Models = p.merge(nil)
	}
	return p
}

// ready reports whether the server is there and not still on its way: 502 to 504 is what an engine that loads its model
// says, and a proxy whose engine is not up.
func (p *prober) ready() bool { return p.last.Reachable && (p.status < 502 || p.status > 504) }

// round is one probe: the GET for the models, and if requests are not held back from the endpoint, what the engine says
// of itself. It reports once or twice: what comes back is reported at once with what was known of it, and again with what
// it says now. Nothing is reported once parent has ended.
func (p *prober) round(parent context.Context, held bool, out func(Report)) {
	ctx, cancel := context.WithTimeout(parent, probeTimeout)
	defer cancel()
	p.client.failed = nil
	wasReady := p.ready()
	if held || !wasReady {
		p.sure = false
	}
	p.ping(ctx)
	back := p.ready() && !wasReady
	inspect := p.ready() && (back || !held)
	if parent.Err() == nil && (!inspect || back && p.last.Kind != "") {
		out(p.last)
	}
	if inspect {
		p.inspect(ctx)
		if parent.Err() == nil {
			out(p.last)
		}
	}
}

// ping asks for the models. That is the cheapest page that all kinds have, and with the owners it often tells the kind.
func (p *prober) ping(ctx context.Context) {
	path := "/v1/models"
	if p.last.Kind == "anthropic" {
		path += "?limit=1000" // one page for all: its default is 20
	}
	a := p.client.get(ctx, p.last.Kind, path)
	p.status, p.last.Reachable, p.last.Err, p.list = a.status, a.status != 0, a.err, nil
	p.last.Refused = refuses(a.status)
	switch {
	case a.err != nil:
	case a.status == http.StatusOK:
		list, err := parseModels(a.body)
		if err != nil {
			p.last.Err = fmt.Errorf("GET %s: 200, but %w", path, err)
		}
		if list != nil {
			p.takeList(list)
		}
	default:
		p.last.Err = p.explain(path, a)
	}
	if len(p.client.target.Models) > 0 && (p.status == http.StatusOK || noPage(p.status)) {
		p.last.Err = nil // somebody answered, and the list is not needed
	}
}

// refuses reports whether a status says that the credential is not accepted, or lacking.
func refuses(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// noPage reports whether a status says that there is nothing to GET at a path.
func noPage(status int) bool {
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented
}

func (p *prober) takeList(list []ModelInfo) {
	p.list = list
	if kind := ownersKind(list); kind != "" && p.client.target.Kind == "" {
		if kind != p.last.Kind {
			p.last.Kind, p.last.Version, p.last.KVTokens, p.last.Ranks, p.facts = kind, "", 0, 0, facts{}
		}
		p.sure = true
	}
	p.last.Models = p.merge(list)
}

// inspect finds out the kind, unless it is configured or sure, and reads the engine's pages.
func (p *prober) inspect(ctx context.Context) {
	c := &p.client
	kind, f := p.last.Kind, facts{}
	switch {
	case c.target.Kind == "" && !p.sure:
		kind, f = identify(ctx, c)
	case engineOf(kind) != nil:
		engineOf(kind).ask(ctx, c, &f)
	}
	if c.failed != nil { // the answers are not complete: keep what was known, and ask again next time
		if p.last.Kind == "" {
			p.last.Kind = generic
		}
		if p.last.Err == nil {
			p.last.Err = fmt.Errorf("asking which engine it is: %w", c.failed)
		}
		return
	}
	p.sure = true
	p.facts = f
	p.last.Kind, p.last.Version, p.last.KVTokens, p.last.Ranks = kind, f.version, f.kvTokens, f.ranks
	switch {
	case p.list != nil || len(c.target.Models) > 0:
		p.last.Models = p.merge(p.list)
	case noPage(p.status) && f.models != nil:
		p.last.Models, p.last.Err = p.merge(f.models), nil
	}
}

// merge returns the models that are served, of those that the endpoint lists, with what is known of each.
func (p *prober) merge(list []ModelInfo) []ModelInfo {
	served := slices.Clone(list)
	if names := p.client.target.Models; len(names) > 0 {
		listed := byID(list)
		served = make([]ModelInfo, len(names))
		for i, name := range names {
			served[i] = listed[name]
			served[i].ID = name
		}
	}
	own := byID(p.facts.models)
	for i := range served {
		if m := &served[i]; m.ContextWindow == 0 {
			m.ContextWindow = cmp.Or(own[m.ID].ContextWindow, p.facts.contextWindow)
		}
	}
	return served
}

func byID(models []ModelInfo) map[string]ModelInfo {
	index := make(map[string]ModelInfo, len(models))
	for _, m := range models {
		index[m.ID] = m
	}
	return index
}

// explain says what a status other than 200 means for the operator.
func (p *prober) explain(path string, a answer) error {
	got := fmt.Sprintf("GET %s: %d %s", path, a.status, http.StatusText(a.status))
	t := p.client.target
	switch {
	case refuses(a.status):
		if t.APIKey.IsZero() {
			return fmt.Errorf("%s: endpoint %q needs a key: set its api_key, or --upstream-key", got, t.Name)
		}
		return fmt.Errorf("%s: endpoint %q does not accept the key that is set as api_key or --upstream-key", got, t.Name)
	case bytes.Contains(a.body, []byte("Loading model")):
		return fmt.Errorf("%s: the engine is still loading its model", got)
	case a.status >= 300 && a.status < 400:
		return fmt.Errorf("%s: it redirects to %s, which is not followed: write the final address as the url of endpoint %q",
			got, p.client.location(a), t.Name)
	case noPage(a.status):
		return fmt.Errorf("%s: endpoint %q lists no models there: name those to serve in its models", got, t.Name)
	case a.status >= 500:
		return fmt.Errorf("%s: the server is not ready", got)
	}
	return errors.New(got)
}

package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"evenkeel/internal/config"
	"evenkeel/internal/discovery"
	"evenkeel/internal/llm"
	"evenkeel/internal/upstream"
)

// connected are endpoints by name, with what each was made from. It is a value that nobody changes any more.
type connected struct {
	endpoints map[string]*upstream.Endpoint
	from      map[string]upstream.Options
}

// renewed returns the endpoints of a list. Those that are in c and did not change are kept, with their connections.
func (c connected) renewed(list []upstream.Options) (connected, error) {
	next := connected{map[string]*upstream.Endpoint{}, map[string]upstream.Options{}}
	for _, o := range list {
		next.from[o.Name] = o
		if old, ok := c.from[o.Name]; ok && old.Same(o) {
			next.endpoints[o.Name] = c.endpoints[o.Name]
			continue
		}
		made, err := upstream.New(o)
		if err != nil {
			return connected{}, err
		}
		next.endpoints[o.Name] = made
	}
	return next, nil
}

// close closes the endpoints that are not in next.
func (c connected) close(next connected) {
	for name, e := range c.endpoints {
		if next.endpoints[name] != e {
			e.Close()
		}
	}
}

// connect makes the endpoints of a configuration: those for requests, and those for probes, which go the same way but
// over connections of their own, so that an endpoint is not taken for down because all that it may have are in use.
func (a *App) connect(c *config.Config, reports map[string]discovery.Report) (requests, probes connected, err error) {
	var forRequests, forProbes []upstream.Options
	generic, _ := llm.LookupKind("openai-compatible")
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		o := upstream.Options{
			Name: e.Name, URL: e.URL, Address: e.Address, ConnectTimeout: c.Deadlines.Connect, Proxy: e.Proxy,
			TLS: upstream.TLS{CA: e.TLS.CA, Cert: e.TLS.Cert, Key: e.TLS.Key, ServerName: e.TLS.ServerName},
		}
		o.Kind = generic // what a kind wants to see, probes say themselves
		forProbes = append(forProbes, o)
		o.Kind, o.APIKey, o.MaxConnections = kindOf(e, reports), e.APIKey, e.MaxConnections
		forRequests = append(forRequests, o)
	}
	if requests, err = a.requests.renewed(forRequests); err != nil {
		return connected{}, connected{}, err
	}
	probes, err = a.probes.renewed(forProbes)
	return requests, probes, err
}

// way is how discovery reaches a target.
func (a *App) way(t discovery.Target) http.RoundTripper { return way{a, t} }

type way struct {
	app    *App
	target discovery.Target
}

var errNoEndpoint = errors.New("the endpoint is no longer configured")

// RoundTrip implements http.RoundTripper for GETs below the target's URL.
func (w way) RoundTrip(r *http.Request) (*http.Response, error) {
	w.app.mu.Lock()
	e, from := w.app.probes.endpoints[w.target.Name], w.app.probes.from[w.target.Name]
	w.app.mu.Unlock()
	if e == nil || from.URL != w.target.URL {
		return nil, errNoEndpoint
	}
	base, err := url.Parse(from.URL)
	if err != nil {
		return nil, err
	}
	ask := &upstream.Request{Method: r.Method, Path: r.URL.EscapedPath()[len(base.EscapedPath()):], Query: r.URL.RawQuery, Header: r.Header}
	for first := true; ; first = false {
		stop := &upstream.Stop{}
		leave := context.AfterFunc(r.Context(), stop.Cancel)
		res, err := e.Do(stop, ask)
		if err == nil {
			res.Body = &probed{res.Body, r.Context(), leave}
			return res, nil
		}
		leave()
		var failed *upstream.Error
		switch {
		case r.Context().Err() != nil:
			return nil, r.Context().Err()
		case !errors.As(err, &failed):
			return nil, err
		case failed.Class != llm.Stale || !first: // else the connection was too old, which says nothing about the endpoint
			return nil, failed.Err
		}
	}
}

// probed is the body of an answer, until whose end the context holds.
type probed struct {
	io.ReadCloser
	ctx   context.Context
	leave func() bool
}

// Read implements io.Reader.
func (p *probed) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if err != nil && err != io.EOF && p.ctx.Err() != nil {
		err = p.ctx.Err()
	}
	return n, err
}

// Close implements io.Closer.
func (p *probed) Close() error {
	defer p.leave()
	return p.ReadCloser.Close()
}

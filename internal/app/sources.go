package app

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"evenkeel/internal/config"
	"evenkeel/internal/discovery"
	"evenkeel/internal/route"
)

// resolved is what is known of a host whose addresses are endpoints. It is a value that nobody changes any more.
type resolved struct {
	members []netip.Addr
	failure string // met by the last look-up, empty if none
}

// fleet returns c with each pool replaced by its members, in endpoints and providers.
func fleet(c *config.Config, hosts map[string]resolved) *config.Config {
	members := map[string][]config.Endpoint{}
	f := *c
	f.Endpoints = nil
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		host, isPool := e.PoolHost()
		if !isPool {
			f.Endpoints = append(f.Endpoints, *e)
			continue
		}
		members[e.Name] = []config.Endpoint{}
		for _, address := range hosts[host].members {
			members[e.Name] = append(members[e.Name], e.Member(address))
		}
		f.Endpoints = append(f.Endpoints, members[e.Name]...)
	}
	if len(members) == 0 {
		return c
	}
	f.Models = slices.Clone(c.Models)
	for i := range f.Models {
		var providers []config.Provider
		for _, p := range f.Models[i].Providers {
			pool, isPool := members[p.Name]
			if !isPool {
				providers = append(providers, p)
			}
			for _, m := range pool {
				p.Name = m.Name
				providers = append(providers, p)
			}
		}
		f.Models[i].Providers = providers
	}
	return &f
}

// poolHosts lists the hosts whose addresses are endpoints.
func poolHosts(c *config.Config) []string {
	var hosts []string
	for i := range c.Endpoints {
		if host, isPool := c.Endpoints[i].PoolHost(); isPool && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// resolve takes the addresses that a host has now.
func (a *App) resolve(host string, r discovery.Addresses) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.looked()
	g := a.current.Load()
	if !slices.Contains(poolHosts(g.Config), host) {
		return // it left the configuration meanwhile
	}
	old, known := a.hosts[host]
	now := resolved{members: r.List}
	log := a.logger.With("host", host)
	switch {
	case r.Err != nil:
		now.failure = r.Err.Error()
	case r.Gone:
		now.failure = "the name has no address"
		now.members = slices.DeleteFunc(slices.Clone(old.members), func(m netip.Addr) bool { return !a.answers(g, host, m) })
	}
	if now.failure != old.failure && now.failure != "" {
		log.Warn("a pool's name cannot be resolved; the addresses it had stay", "error", now.failure, "addresses", len(now.members))
	}
	if now.failure == "" && old.failure != "" {
		log.Info("a pool's name can be resolved again")
	}
	if known && now.failure == old.failure && slices.Equal(now.members, old.members) {
		return
	}
	hosts := make(map[string]resolved, len(a.hosts)+1)
	for h, was := range a.hosts {
		hosts[h] = was
	}
	hosts[host] = now
	if added, removed := difference(old.members, now.members); len(added)+len(removed) > 0 {
		log.Info("a pool changes", "added", added, "removed", removed, "addresses", len(now.members))
	}
	if err := a.rebuild(g.Config, hosts, a.reports); err != nil {
		log.Error("a pool's addresses could not be used", "error", err)
	}
	a.changed()
}

// answers reports whether some server answers at a member of a host's pools, as far as is known. Callers hold mu.
func (a *App) answers(g *Generation, host string, member netip.Addr) bool {
	for i := range g.Config.Endpoints {
		e := &g.Config.Endpoints[i]
		if h, isPool := e.PoolHost(); isPool && h == host && a.reports[e.Member(member).Name].Reachable {
			return true
		}
	}
	return false
}

// difference lists who is only in new, and who is only in old.
func difference(old, new []netip.Addr) (added, removed []string) {
	for _, m := range new {
		if !slices.Contains(old, m) {
			added = append(added, m.String())
		}
	}
	for _, m := range old {
		if !slices.Contains(new, m) {
			removed = append(removed, m.String())
		}
	}
	return added, removed
}

// looked notes once that every name was looked up and every endpoint asked. Callers hold mu.
func (a *App) looked() {
	g := a.current.Load()
	for _, host := range poolHosts(g.Config) {
		if _, known := a.hosts[host]; !known {
			return
		}
	}
	if len(a.reports) == len(g.fleet.Endpoints) {
		a.firstOnce.Do(func() { close(a.first) })
	}
}

// targets lists whom discovery asks.
func targets(c *config.Config) []discovery.Target {
	list := make([]discovery.Target, len(c.Endpoints))
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		list[i] = discovery.Target{Name: e.Name, URL: e.URL, Kind: e.Kind, APIKey: e.APIKey, Models: e.Models}
	}
	return list
}

// watch keeps one goroutine for each endpoint, which asks it what it is, and one for each host whose addresses are
// endpoints. It starts and ends them as those come and go, and returns when ctx has ended and they have.
func (a *App) watch(ctx context.Context) {
	w := watchers{ctx: ctx, running: map[any]*watcher{}}
	defer w.work.Wait()
	for ctx.Err() == nil {
		g := a.current.Load()
		w.begin()
		for _, t := range targets(g.fleet) {
			w.keep(t.Name, t, func(ctx context.Context) {
				discovery.Watch(ctx, []discovery.Target{t}, discovery.Options{Way: a.way, Out: a.out}, a.found)
			})
		}
		for _, host := range poolHosts(g.Config) {
			w.keep([1]string{host}, g.Config.DNSServer, func(ctx context.Context) {
				discovery.Resolve(ctx, host, discovery.ResolveOptions{Server: g.Config.DNSServer}, func(r discovery.Addresses) { a.resolve(host, r) })
			})
		}
		w.end()
		select {
		case <-ctx.Done():
		case <-a.wake:
		}
	}
}

// changed makes watch look at whom there is to ask.
func (a *App) changed() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// out reports whether requests to a target are held back.
func (a *App) out(t discovery.Target) bool {
	return a.router.Out(route.Scope{Kind: route.EndpointScope, Name: t.Name, URL: t.URL})
}

// watchers are goroutines by what they watch. It belongs to one goroutine.
type watchers struct {
	ctx     context.Context
	work    sync.WaitGroup
	running map[any]*watcher
}

// watcher is a goroutine that watches something as what describes it.
type watcher struct {
	what  any
	stop  context.CancelFunc
	ended chan struct{}
	kept  bool
}

// begin, keep for each, end: whoever was not kept, or is described otherwise than before, is stopped.
func (w *watchers) begin() {
	for _, r := range w.running {
		r.kept = false
	}
}

func (w *watchers) keep(key, what any, run func(context.Context)) {
	old := w.running[key]
	if old != nil && reflect.DeepEqual(old.what, what) {
		old.kept = true
		return
	}
	ctx, stop := context.WithCancel(w.ctx)
	next := &watcher{what: what, stop: stop, ended: make(chan struct{}), kept: true}
	w.running[key] = next
	if old != nil {
		old.stop()
	}
	w.work.Go(func() { // ends with ctx
		defer close(next.ended)
		if old != nil {
			<-old.ended // two would report by turns
		}
		run(ctx)
	})
}

func (w *watchers) end() {
	for key, r := range w.running {
		if !r.kept {
			r.stop()
			delete(w.running, key)
		}
	}
}

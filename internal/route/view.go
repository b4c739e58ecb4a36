package route

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// View is a snapshot for metrics and people.
type View struct {
	Epoch       uint64
	Deployments []DeploymentView // by ID
	Scopes      []ScopeView      // by kind, name and URL
	Waiting     map[string]int   // waiters by model
}

// DeploymentView is what is known about one deployment.
type DeploymentView struct {
	ID, Endpoint, URL, Model string
	Member                   bool // false: left the fleet, but requests still run there
	Weight                   float64
	Limits                   Limits
	InFlight, Tokens, Work   int
	TTFT                     time.Duration // learned, 0 = nothing yet
	Breaker                  BreakerView
	ServedModel              string
	Totals                   Totals
}

// ScopeView is what is known about one scope.
type ScopeView struct {
	Kind             ScopeKind
	Name, URL        string
	InFlight, Tokens int
	Limits           Limits
	Breaker          BreakerView
}

// BreakerView is the state of a breaker, and why and since when it is so.
type BreakerView struct {
	State  BreakerState
	Reason string
	Since  time.Time     // when it tripped, zero if closed
	Until  time.Time     // when a trial is let through
	Out    time.Duration // length of the present time out
}

func (b *breaker) view(now time.Time) BreakerView {
	if !b.tripped {
		return BreakerView{}
	}
	return BreakerView{State: b.state(now), Reason: b.reason, Since: b.since, Until: b.until, Out: b.out}
}

// View takes a snapshot.
func (r *Router) View(now time.Time) View {
	r.mu.Lock()
	v := View{Epoch: r.epoch, Waiting: maps.Clone(r.waiting)}
	for _, n := range r.nodes {
		v.Deployments = append(v.Deployments, DeploymentView{
			ID: n.dep.ID, Endpoint: n.dep.Endpoint, URL: n.dep.URL, Model: n.dep.Model, Member: n.member,
			Weight: n.dep.Weight, Limits: n.limits, InFlight: n.inFlight, Tokens: n.tokens, Work: n.work,
			TTFT: time.Duration(n.ttft.seconds * float64(time.Second)), Breaker: n.breaker.view(now),
			ServedModel: n.served, Totals: n.totals,
		})
	}
	for k, u := range r.units {
		if k.kind == 'd' {
			continue
		}
		v.Scopes = append(v.Scopes, ScopeView{
			Kind: ScopeKind(k.kind - 's'), Name: k.name, URL: k.url, InFlight: u.inFlight, Tokens: u.tokens,
			Limits: u.limits, Breaker: u.breaker.view(now),
		})
	}
	r.mu.Unlock()
	slices.SortFunc(v.Deployments, func(a, b DeploymentView) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.URL, b.URL))
	})
	slices.SortFunc(v.Scopes, func(a, b ScopeView) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.URL, b.URL))
	})
	return v
}

// Out reports whether requests to a scope are held back now.
func (r *Router) Out(now time.Time, s Scope) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.units[s.key()]
	return u != nil && u.breaker.tripped
}

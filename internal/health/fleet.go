package health

import (
	"time"

	"evenkeel/internal/route"
)

// fleet is what the Router knew at one time.
type fleet struct {
	deployments map[key]*route.DeploymentView
	scopes      map[route.Scope]route.BreakerState
}

func look(v route.View) *fleet {
	f := &fleet{map[key]*route.DeploymentView{}, map[route.Scope]route.BreakerState{}}
	for i := range v.Deployments {
		if d := &v.Deployments[i]; d.Member {
			f.deployments[key{name: d.ID, url: d.URL}] = d
		}
	}
	for i := range v.Scopes {
		s := &v.Scopes[i]
		f.scopes[route.Scope{Kind: s.Kind, Name: s.Name, URL: s.URL}] = s.Breaker.State
	}
	return f
}

// expectEvery is how many turns may be skipped, because requests succeed, where an answer is expected to match: whether
// it does, requests do not say.
const expectEvery = 10

// wants reports whether it is worth its while, and its money, to probe a target now.
func (f *fleet) wants(now time.Time, p *Plan, t *target) bool {
	if t.deployment == nil {
		return !f.scopes[route.Scope{Kind: route.EndpointScope, Name: t.endpoint.Name, URL: t.endpoint.URL}].Out()
	}
	for _, s := range t.deployment.Scopes {
		s.Limits = route.Limits{}
		if f.scopes[s].Out() { // nobody answers there, or the credential is refused: that is found out otherwise
			return false
		}
	}
	for _, id := range t.deployment.all() {
		if d := f.deployments[key{name: id, url: t.endpoint.URL}]; d != nil && d.Weight != 0 && wanted(now, p, t, d) {
			return true
		}
	}
	return false
}

// wanted reports whether a probe would say something of one of the deployments of a target.
func wanted(now time.Time, p *Plan, t *target, d *route.DeploymentView) bool {
	switch d.Breaker.State {
	case route.Cooling, route.Drained, route.Disabled:
		return false
	case route.Closed, route.SlowStart:
		if p.Expect != nil && now.Sub(t.asked) >= expectEvery*p.Interval {
			return true
		}
		return d.Heard.IsZero() || now.Sub(d.Heard) >= p.Interval
	}
	return true
}

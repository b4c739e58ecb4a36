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
	FullFor                  time.Duration // until its limits per minute let the next request pass, 0 = now
	TTFT                     time.Duration // learned, 0 = nothing yet
	P95                      time.Duration // of the time to the first token, 0 = nothing yet
	Domain                   string        // failure domain
	Breaker                  BreakerView
	Recent                   Tally     // results in the window
	Heard                    time.Time // when it last answered a request or went on doing so, zero = never
	ServedModel, Fingerprint string
	Drifts                   uint64 // how often model or fingerprint changed
	Totals                   Totals
	Foresight                Foresight
	Signal                   Signal // what its engine said last, At is zero = nothing
	SignalIgnored            bool   // since it contradicts what is in flight
}

// Foresight is how good forecasts of a deployment's times to the first token have been, over its last 100 streamed successes.
type Foresight struct {
	Error   float64 // mean of the logarithm of what came over what was forecast, whichever way
	Answers int     // that Error rests on, 0 = none
	// Regret is the mean time by which first tokens came later than was forecast where they would come soonest, of the other candidates;
	// what came sooner counts as 0. It is known where the strategy looks at forecasts.
	Regret  time.Duration
	Choices int // that Regret rests on, 0 = none
}

// ScopeView is what is known about one scope.
type ScopeView struct {
	Kind             ScopeKind
	Name, URL        string
	InFlight, Tokens int
	FullFor          time.Duration // as of a deployment
	Limits           Limits
	Breaker          BreakerView
}

// BreakerView is the state of a breaker, and why and since when it is so.
type BreakerView struct {
	State  BreakerState
	Rule   Rule          // why it opened, RuleNone if it is not open
	Reason string        // the class of the error that did it, or what else is the matter
	Since  time.Time     // when it tripped, zero if it did not
	Until  time.Time     // when a trial is let through, or the pause that upstream asked for ends
	Out    time.Duration // length of the present time out, without jitter
	Share  float64       // part of its traffic that it gets, if its state lets anything through
	Order  Override      // of the operator, that holds

	Openings uint64 // so far
	Last     string // reason of the last one
}

func (b *breaker) view(now time.Time) BreakerView {
	v := BreakerView{State: b.state(now), Share: b.share(now), Order: b.order, Openings: b.opened, Last: b.last}
	if b.tripped {
		v.Rule, v.Reason, v.Since, v.Until, v.Out = b.rule, b.reason, b.since, b.until, b.out
	}
	switch v.State {
	case Cooling:
		v.Until, v.Reason = b.cool, b.coolReason
	case Degraded:
		v.Reason = cmp.Or(b.missed, b.page)
		if b.slow.share() < 1 {
			v.Reason = "slow"
		}
	case SlowStart:
		v.Since, v.Until = b.back, b.back.Add(b.ramp)
	}
	return v
}

// View takes a snapshot.
func (r *Router) View(now time.Time) View {
	r.mu.Lock()
	v := View{Epoch: r.epoch, Waiting: maps.Clone(r.waiting)}
	for model, held := range r.held {
		v.Waiting[model] += len(held)
	}
	for _, n := range r.nodes {
		v.Deployments = append(v.Deployments, DeploymentView{
			FullFor: n.fullFor(now),
			ID:      n.dep.ID, Endpoint: n.dep.Endpoint, URL: n.dep.URL, Model: n.dep.Model, Member: n.member,
			Weight: n.dep.Weight, Limits: n.limits, InFlight: n.inFlight, Tokens: n.tokens, Work: n.work,
			TTFT: time.Duration(n.ttft.seconds * float64(time.Second)), Breaker: n.breaker.view(now),
			P95: time.Duration(n.recent.quantile(now, 1) * float64(time.Second)), Domain: n.dep.domain(),
			Recent: n.breaker.window.sum(now, r.health.Window), Heard: n.heard, ServedModel: n.served, Fingerprint: n.fingerprint, Drifts: n.drifts,
			Foresight: Foresight{
				Error: n.off.value, Answers: n.off.n, Regret: time.Duration(n.regret.value * float64(time.Second)), Choices: n.regret.n,
			},
			Totals: n.totals,
		})
		if h := n.hint; h != nil {
			d := &v.Deployments[len(v.Deployments)-1]
			d.Signal, d.SignalIgnored = h.told, h.ignored
			if n.dep.Base != "" && n.places() > 0 {
				d.Signal.Unloaded = !slices.Contains(n.adapters, n.dep.Model)
			}
		}
	}
	for k, u := range r.units {
		if k.kind == 'd' {
			continue
		}
		v.Scopes = append(v.Scopes, ScopeView{
			FullFor: u.fullFor(now),
			Kind:    ScopeKind(k.kind - 's'), Name: k.name, URL: k.url, InFlight: u.inFlight, Tokens: u.tokens,
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

// Out reports whether requests to a scope are held back now because of what happened there, to it or to all
// deployments that share it. Nobody would notice then that it went away and came back.
func (r *Router) Out(s Scope) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.units[s.key()]
	if u == nil || u.breaker.tripped {
		return u != nil
	}
	out := false
	for _, n := range u.sharers {
		switch {
		case n.dep.Model == "": // for requests without a model: hardly ever asked
		case !n.breaker.tripped || !n.breaker.rule.ofProcess():
			return false
		default:
			out = true
		}
	}
	return out
}

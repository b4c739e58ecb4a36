package console

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"evenkeel/internal/route"
)

// Fleet is what /deployments says.
type Fleet struct {
	Epoch       uint64         `json:"epoch"`
	Deployments []Deployment   `json:"deployments"`
	Scopes      []Scope        `json:"scopes"`
	Waiting     map[string]int `json:"waiting"` // requests in the queue, by model

	now time.Time
}

// Deployment is how one deployment stands.
type Deployment struct {
	ID          string  `json:"id"`
	Endpoint    string  `json:"endpoint"`
	URL         string  `json:"url"` // without credentials
	Model       string  `json:"model"`
	ServedModel string  `json:"served_model,omitempty"` // as its last answer says
	Member      bool    `json:"member"`                 // false: left the fleet, but requests still run there
	Unlisted    bool    `json:"unlisted,omitempty"`     // the endpoint lists models, but not this one
	Weight      float64 `json:"weight"`
	Limits      Limits  `json:"limits"`
	InFlight    int     `json:"in_flight"`
	Tokens      int     `json:"tokens"`
	WorkTokens  int     `json:"work_tokens"`
	TTFTSeconds float64 `json:"ttft_seconds,omitempty"` // learned
	Breaker     Breaker `json:"breaker"`
	Totals      Totals  `json:"totals"`
}

// Totals count attempts since the deployment joined.
type Totals struct {
	Picks     uint64 `json:"picks"`
	Successes uint64 `json:"successes"`
	Faults    uint64 `json:"faults"`
	Neutral   uint64 `json:"neutral"` // that say nothing about the deployment
}

// Scope is how something that deployments share stands.
type Scope struct {
	Kind     string  `json:"kind"`
	Name     string  `json:"name"`
	URL      string  `json:"url,omitempty"`
	Limits   Limits  `json:"limits"`
	InFlight int     `json:"in_flight"`
	Tokens   int     `json:"tokens"`
	Breaker  Breaker `json:"breaker"`
}

// Limits bound what may run at once; 0 = no limit.
type Limits struct {
	InFlight int `json:"in_flight"`
	Tokens   int `json:"tokens"`
	RPM      int `json:"rpm"` // requests per minute
	TPM      int `json:"tpm"` // tokens per minute
}

// Breaker says whether requests pass, and if not, why and how long.
type Breaker struct {
	State      string     `json:"state"`
	Reason     string     `json:"reason,omitempty"`
	Since      *time.Time `json:"since,omitempty"`
	Until      *time.Time `json:"until,omitempty"` // when a trial passes
	OutSeconds float64    `json:"out_seconds,omitempty"`
}

func describe(v route.View, unlisted func(endpoint, model string) bool, now time.Time) *Fleet {
	f := &Fleet{Epoch: v.Epoch, Waiting: v.Waiting, now: now, Deployments: make([]Deployment, 0, len(v.Deployments)), Scopes: make([]Scope, len(v.Scopes))}
	if f.Waiting == nil {
		f.Waiting = map[string]int{}
	}
	for i := range v.Deployments {
		d := &v.Deployments[i]
		if d.Model == "" && d.InFlight == 0 { // where requests without a model would go: nothing that an operator set up
			continue
		}
		f.Deployments = append(f.Deployments, Deployment{
			ID: d.ID, Endpoint: d.Endpoint, URL: bareURL(d.URL), Model: d.Model, ServedModel: d.ServedModel, Member: d.Member, Weight: d.Weight,
			Unlisted: unlisted(d.Endpoint, d.Model),
			Limits:   Limits(d.Limits), InFlight: d.InFlight, Tokens: d.Tokens, WorkTokens: d.Work, TTFTSeconds: d.TTFT.Seconds(),
			Breaker: describeBreaker(&d.Breaker), Totals: Totals(d.Totals),
		})
	}
	for i := range v.Scopes {
		s := &v.Scopes[i]
		f.Scopes[i] = Scope{
			Kind: s.Kind.String(), Name: s.Name, URL: bareURL(s.URL), Limits: Limits(s.Limits), InFlight: s.InFlight, Tokens: s.Tokens,
			Breaker: describeBreaker(&s.Breaker),
		}
	}
	return f
}

func describeBreaker(b *route.BreakerView) Breaker {
	out := Breaker{State: b.State.String(), Reason: b.Reason, OutSeconds: b.Out.Seconds()}
	if b.State != route.Closed {
		out.Since, out.Until = &b.Since, &b.Until
	}
	return out
}

// bareURL drops the parts of a URL that can hold a secret.
func bareURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return ""
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
	return u.String()
}

// Text lays the fleet out for people.
func (f *Fleet) Text() string {
	rows := [][]string{{"deployment", "state", "in flight", "tokens", "work tokens", "TTFT", "weight", "picks", "successes", "faults"}}
	for i := range f.Deployments {
		d := &f.Deployments[i]
		rows = append(rows, []string{
			clean(d.ID), f.state(d), used(d.InFlight, d.Limits.InFlight), used(d.Tokens, d.Limits.Tokens), grouped(float64(d.WorkTokens)),
			known(d.TTFTSeconds), number(d.Weight), number(float64(d.Totals.Picks)), number(float64(d.Totals.Successes)), number(float64(d.Totals.Faults)),
		})
	}
	right := map[int]bool{2: true, 3: true, 4: true, 5: true, 6: true, 7: true, 8: true, 9: true}
	text := fmt.Sprintf("%s (epoch %d)\n", count(len(f.Deployments), "deployment"), f.Epoch)
	if len(f.Deployments) > 0 {
		text += "\n" + table("", right, rows)
	}
	if len(f.Scopes) > 0 {
		rows = [][]string{{"shared", "state", "in flight", "tokens"}}
		for i := range f.Scopes {
			s := &f.Scopes[i]
			rows = append(rows, []string{
				s.Kind + " " + clean(s.Name), s.Breaker.words(f.now), used(s.InFlight, s.Limits.InFlight), used(s.Tokens, s.Limits.Tokens),
			})
		}
		text += "\n" + table("", right, rows)
	}
	for _, model := range slices.Sorted(maps.Keys(f.Waiting)) {
		text += fmt.Sprintf("\n%s in the queue for %s", count(f.Waiting[model], "request"), modelText(model))
	}
	if len(f.Waiting) > 0 {
		text += "\n"
	}
	return text
}

func (f *Fleet) state(d *Deployment) string {
	switch {
	case !d.Member:
		return "leaving"
	case d.Weight == 0:
		return "switched off"
	case d.Breaker.State != route.Closed.String():
		return d.Breaker.words(f.now)
	}
	for i := range f.Scopes { // a deployment is out with its endpoint
		s := &f.Scopes[i]
		if s.Kind == route.EndpointScope.String() && s.Name == d.Endpoint && s.URL == d.URL && s.Breaker.State != route.Closed.String() {
			return "endpoint " + s.Breaker.words(f.now)
		}
	}
	if d.Unlisted {
		return "the endpoint does not list this model"
	}
	return d.Breaker.words(f.now)
}

func (b *Breaker) words(now time.Time) string {
	switch b.State {
	case route.Closed.String():
		return "ok"
	case route.HalfOpen.String():
		return "on trial (" + clean(b.Reason) + ")"
	}
	text := "out (" + clean(b.Reason) + ")"
	if b.Until != nil && b.Until.After(now) {
		text += " for " + seconds(b.Until.Sub(now).Seconds())
	}
	return text
}

// used writes a load with its limit.
func used(n, limit int) string {
	if limit <= 0 {
		return grouped(float64(n))
	}
	return grouped(float64(n)) + "/" + grouped(float64(limit))
}

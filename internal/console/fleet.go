package console

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"evenkeel/internal/route"
)

// Fleet is what /deployments says.
type Fleet struct {
	Epoch       uint64         `json:"epoch"`
	Deployments []Deployment   `json:"deployments"`
	Scopes      []Scope        `json:"scopes"`
	Silent      []Silent       `json:"silent,omitempty"`
	Waiting     map[string]int `json:"waiting"` // requests in the queue, by model

	now time.Time
}

// Silent is an endpoint of the configuration that has no deployment: nobody knows what it could serve.
type Silent struct {
	Endpoint string `json:"endpoint"`
	URL      string `json:"url"` // without credentials
	Reason   string `json:"reason"`
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
	P95Seconds  float64 `json:"ttft_p95_seconds,omitempty"`
	Domain      string  `json:"failure_domain,omitempty"`
	FullFor     float64 `json:"full_for_seconds,omitempty"` // until its limits per minute let the next request pass
	Fingerprint string  `json:"fingerprint,omitempty"`
	Changes     uint64  `json:"served_model_changes,omitempty"` // how often model or fingerprint changed
	// Of its last 100 streamed successes, left out while nothing is known.
	ForecastError *float64 `json:"forecast_error,omitempty"` // mean logarithm of times to first token over what was forecast, whichever way
	RegretSeconds *float64 `json:"regret_seconds,omitempty"` // by which they came later than was forecast elsewhere
	Breaker       Breaker  `json:"breaker"`
	Recent        Results  `json:"recent"`
	Totals        Totals   `json:"totals"`
	Signal        *Signal  `json:"signal,omitempty"` // what its engine said last
}

// Results counts those of the last while (health_checks.window).
type Results struct {
	OK      int `json:"ok"`
	Failed  int `json:"failed"`
	Limited int `json:"limited"` // 429s that named no time
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
	FullFor  float64 `json:"full_for_seconds,omitempty"` // as of a deployment
	Breaker  Breaker `json:"breaker"`
}

// Limits bound what may run at once; 0 = no limit.
type Limits struct {
	InFlight int `json:"in_flight"`
	Tokens   int `json:"tokens"`
	RPM      int `json:"rpm"` // requests per minute
	TPM      int `json:"tpm"` // tokens per minute
}

// Breaker says what passes, and if that is not all, why and how long.
type Breaker struct {
	State      string     `json:"state"`
	Rule       string     `json:"rule,omitempty"`   // that opened it
	Reason     string     `json:"reason,omitempty"` // the class of the error that did, or what else is the matter
	Order      string     `json:"order,omitempty"`  // of the operator, that holds: drain, disable or force
	Share      float64    `json:"share"`            // part of its traffic that it gets while its state lets requests through
	Since      *time.Time `json:"since,omitempty"`
	Until      *time.Time `json:"until,omitempty"` // when a trial passes, the pause ends, or the slow start does
	OutSeconds float64    `json:"out_seconds,omitempty"`
	Openings   uint64     `json:"openings"` // so far
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
		described := Deployment{
			ID: d.ID, Endpoint: d.Endpoint, URL: bareURL(d.URL), Model: d.Model, ServedModel: d.ServedModel, Member: d.Member, Weight: d.Weight,
			Unlisted: unlisted(d.Endpoint, d.Model),
			Limits:   Limits(d.Limits), InFlight: d.InFlight, Tokens: d.Tokens, WorkTokens: d.Work, TTFTSeconds: d.TTFT.Seconds(),
			P95Seconds: d.P95.Seconds(), Domain: d.Domain, FullFor: round3(d.FullFor.Seconds()), Fingerprint: d.Fingerprint, Changes: d.Drifts,
			Breaker: describeBreaker(&d.Breaker), Recent: Results{d.Recent.OK, d.Recent.Failed, d.Recent.Limited}, Totals: Totals(d.Totals),
			Signal: describeSignal(now, d),
		}
		if d.Foresight.Answers > 0 {
			described.ForecastError = &d.Foresight.Error
		}
		if d.Foresight.Choices > 0 {
			regret := d.Foresight.Regret.Seconds()
			described.RegretSeconds = &regret
		}
		f.Deployments = append(f.Deployments, described)
	}
	for i := range v.Scopes {
		s := &v.Scopes[i]
		f.Scopes[i] = Scope{
			Kind: s.Kind.String(), Name: s.Name, URL: bareURL(s.URL), Limits: Limits(s.Limits), InFlight: s.InFlight, Tokens: s.Tokens,
			FullFor: round3(s.FullFor.Seconds()), Breaker: describeBreaker(&s.Breaker),
		}
	}
	return f
}

func describeBreaker(b *route.BreakerView) Breaker {
	out := Breaker{
		State: b.State.String(), Rule: string(b.Rule), Reason: b.Reason, Share: round3(b.Share), OutSeconds: b.Out.Seconds(), Openings: b.Openings,
	}
	if b.Order != route.Automatic {
		out.Order = b.Order.String()
	}
	if !b.Since.IsZero() {
		out.Since = &b.Since
	}
	if !b.Until.IsZero() {
		out.Until = &b.Until
	}
	return out
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }

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
				s.Kind + " " + clean(s.Name), s.Breaker.words(f.now) + full(s.FullFor), used(s.InFlight, s.Limits.InFlight), used(s.Tokens, s.Limits.Tokens),
			})
		}
		text += "\n" + table("", right, rows)
	}
	if len(f.Silent) > 0 {
		rows = [][]string{{"endpoint", "serves nothing yet, since"}}
		for _, s := range f.Silent {
			rows = append(rows, []string{clean(s.Endpoint), clean(s.Reason)})
		}
		text += "\n" + table("", nil, rows)
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
	words := d.Breaker.words(f.now) + full(d.FullFor)
	for i := range f.Scopes { // a deployment is out with its endpoint
		s := &f.Scopes[i]
		switch {
		case s.Kind != route.EndpointScope.String() || s.Name != d.Endpoint || s.URL != d.URL:
		case s.Breaker.State != route.Closed.String():
			return "endpoint " + s.Breaker.words(f.now)
		case s.Breaker.byOrder() != "":
			words += ", endpoint" + s.Breaker.byOrder()
		case s.FullFor > 0:
			words += ", endpoint" + strings.TrimPrefix(full(s.FullFor), ",")
		}
	}
	if d.Unlisted {
		return "the endpoint does not list this model"
	}
	return words
}

// full says that limits per minute are used up, "" if they are not.
func full(s float64) string {
	if s <= 0 {
		return ""
	}
	return ", at its limit per minute for " + seconds(s)
}

// byOrder is what an order does that no state shows.
func (b *Breaker) byOrder() string {
	if b.Order == route.Force.String() {
		return " forced by order"
	}
	return ""
}

func (b *Breaker) words(now time.Time) string {
	words := b.stateWords(now)
	if order := b.byOrder(); order != "" {
		words += "," + order
	}
	return words
}

func (b *Breaker) stateWords(now time.Time) string {
	left := ""
	if b.Until != nil && b.Until.After(now) {
		left = " for " + seconds(b.Until.Sub(now).Seconds())
	}
	reason := ""
	if b.Reason != "" {
		reason = " (" + clean(b.Reason) + ")"
	}
	switch b.State {
	case route.Closed.String():
		return "ok"
	case route.HalfOpen.String():
		return "on trial" + reason
	case route.Degraded.String():
		return fmt.Sprintf("degraded%s, gets %s of its share", reason, percent(b.Share))
	case route.SlowStart.String():
		return fmt.Sprintf("slow start, gets %s of its share", percent(b.Share))
	case route.Cooling.String():
		return "left alone" + reason + left
	case route.Open.String():
		return "out" + reason + left
	}
	return b.State // by order
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// used writes a load with its limit.
func used(n, limit int) string {
	if limit <= 0 {
		return grouped(float64(n))
	}
	return grouped(float64(n)) + "/" + grouped(float64(limit))
}

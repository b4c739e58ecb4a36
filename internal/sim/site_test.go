package sim

import (
	"strings"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// twoModels is a site in which small and large are at deployments of their own and share one, and large falls back to small.
func twoModels(t *testing.T) *Site {
	t.Helper()
	d := func(id string, limits route.Limits) route.Deployment {
		endpoint, m, _ := strings.Cut(id, "/")
		return route.Deployment{ID: id, Endpoint: endpoint, URL: "http://" + endpoint, Model: m, Weight: 1, Limits: limits}
	}
	s := mustStrategy(t, "round_robin")
	return &Site{
		Pools: []route.PoolSpec{
			{Model: "large", Strategy: s, Deployments: []route.Deployment{d("a/large", route.Limits{RPM: 1})}},
			{Model: "small", Strategy: s, Deployments: []route.Deployment{d("a/small", route.Limits{}), d("b/small", route.Limits{})}},
			{Model: "alias", Strategy: s, Deployments: []route.Deployment{d("b/small", route.Limits{})}},
		},
		Chains: map[string][]string{"large": {"large", "small"}},
	}
}

// TestSite: each model has its deployments, limits and fallbacks, and a deployment of two models is one.
func TestSite(t *testing.T) {
	var source listed
	for i, m := range []string{"large", "large", "small", "alias", "alias", "none"} {
		source = append(source, Request{At: time.Duration(i) * time.Second, Model: m, PromptTokens: 10, OutputTokens: 2})
	}
	went := map[string]string{}
	fleet := mustFleet(t, Options{
		Servers: engines(t, 3, "vllm-8192"), Site: twoModels(t), Source: &source, Stream: true,
		Plan:   exchange.Plan{MaxAttempts: 2, Repeatable: true, Deadlines: exchange.Deadlines{Deadline: 10 * time.Second}},
		Budget: Budget{Ratio: 1, Smallest: 10},
		Record: func(r *Request, rec *exchange.Record) {
			last := "nowhere"
			if a := rec.Last(); a != nil {
				last = a.Deployment
			}
			went[rec.Facts.Model] += " " + last + " " + string(rec.Result)
		},
	})
	if err := fleet.Finish(time.Minute); err != nil {
		t.Fatal(err)
	}
	for m, want := range map[string]string{
		"alias": " b/small complete b/small complete",
		"none":  " nowhere refused",
	} {
		if went[m] != want {
			t.Errorf("%s: went%s, want%s", m, went[m], want)
		}
	}
	if got := went["large"]; !strings.Contains(got, " a/large complete") || !strings.Contains(got, "/small complete") {
		t.Errorf("large: went%s, want one answered there and one by the fallback, since there is one a minute", got)
	}
	if picks := fleet.Result().Picks; len(picks) != 3 || picks[0] != 1 || picks[1]+picks[2] != 4 {
		t.Errorf("the deployments were picked %v times", picks)
	}
}

func TestSiteErrors(t *testing.T) {
	bad := func(want string, o Options) {
		t.Helper()
		o.Source = &listed{}
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that says %q", err, want)
		}
	}
	bad("2 servers for the 3 deployments of the site", Options{Site: twoModels(t), Servers: engines(t, 2, "vllm-8192")})
	bad("of its own", Options{Site: twoModels(t), Servers: engines(t, 3, "vllm-8192"), Strategy: mustStrategy(t, "round_robin")})
	bad("of its own", Options{Site: twoModels(t), Servers: engines(t, 3, "vllm-8192"), Limits: route.Limits{RPM: 1}})
}

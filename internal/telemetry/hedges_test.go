package telemetry

import (
	"testing"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

func TestFallbacksSayWhy(t *testing.T) {
	m := newMetrics(t, &world{models: []string{"large", "small"}, now: start})
	failed := route.Outcome{Verdict: route.DeploymentFault, Class: "overloaded"}
	m.Observe(&exchange.Record{Facts: route.Facts{Model: "large", API: "chat"}, Depth: 1, Result: exchange.Complete, Attempts: []exchange.Attempt{
		{Model: "large", Deployment: "a/large", Outcome: failed}, {Model: "small", Deployment: "b/small"},
	}}, 0)
	full := &route.Refusal{Kind: route.QueueFull, Decision: &route.Decision{Model: "large"}}
	m.Observe(&exchange.Record{Facts: route.Facts{Model: "large", API: "chat"}, Depth: 1, Result: exchange.Complete, Refusals: []*route.Refusal{full}, Attempts: []exchange.Attempt{
		{Model: "small", Deployment: "b/small"},
	}}, 0)
	wantSeries(t, m, "evenkeel_fallbacks_total", `evenkeel_fallbacks_total{from="large",reason="overloaded",to="small"} 1`, `evenkeel_fallbacks_total{from="large",reason="queue_full",to="small"} 1`)
}

func TestHedgesAndTheirWaste(t *testing.T) {
	m := newMetrics(t, &world{models: []string{"large", "small"}, now: start})
	lost := exchange.Attempt{Model: "large", Deployment: "a/large", Waste: true, Outcome: route.Outcome{Class: "hedge_lost", InputTokens: 30, OutputTokens: 2}}
	won := exchange.Attempt{Model: "large", Deployment: "b/large", Hedge: true, Outcome: route.Outcome{Verdict: route.Success}}
	m.Observe(&exchange.Record{Facts: route.Facts{Model: "large", API: "chat"}, Result: exchange.Complete, Attempts: []exchange.Attempt{lost, won}}, 0)
	lost.Hedge, won.Hedge = true, false
	m.Observe(&exchange.Record{Facts: route.Facts{Model: "large", API: "chat"}, Result: exchange.Complete, Attempts: []exchange.Attempt{won, lost}}, 0)
	wantSeries(t, m, "evenkeel_hedges_total", `evenkeel_hedges_total{model="large",result="lost"} 1`, `evenkeel_hedges_total{model="large",result="won"} 1`)
	wantSeries(t, m, "evenkeel_wasted_tokens_total", `evenkeel_wasted_tokens_total{deployment="a/large",kind="input",model="large"} 60`, `evenkeel_wasted_tokens_total{deployment="a/large",kind="output",model="large"} 4`)
}

// hedgedFallback is a request that fell back to another model and was hedged there.
func hedgedFallback() *exchange.Record {
	return &exchange.Record{Facts: route.Facts{Model: "large", API: "chat"}, Depth: 1, Result: exchange.Complete, Attempts: []exchange.Attempt{
		{Model: "small", Deployment: "a/small", Waste: true, Outcome: route.Outcome{Class: "hedge_lost", InputTokens: 30}},
		{Model: "small", Deployment: "b/small", Hedge: true, Outcome: route.Outcome{Verdict: route.Success}},
	}}
}

func TestHedgesOfTheDepartedAreForgotten(t *testing.T) {
	w := &world{models: []string{"large", "small"}, now: start, view: route.View{Deployments: []route.DeploymentView{{ID: "a/small"}, {ID: "b/small"}}}}
	m := newMetrics(t, w)
	m.Observe(hedgedFallback(), 0)
	if n := len(series(t, m, "evenkeel_hedges")) + len(series(t, m, "evenkeel_fallbacks")) + len(series(t, m, "evenkeel_wasted")); n != 4 {
		t.Errorf("%d series", n)
	}
	w.models, w.view = nil, route.View{}
	scrape(t, m)
	w.now = w.now.Add(forgetAfter)
	scrape(t, m)
	wantSeries(t, m, "evenkeel_hedges")
	wantSeries(t, m, "evenkeel_fallbacks")
	wantSeries(t, m, "evenkeel_wasted")
}

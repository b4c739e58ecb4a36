package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// TestCore: what serve would do with a configuration, without asking anybody.
func TestCore(t *testing.T) {
	c := parse(t, `
endpoints:
  a: {url: http://a:8000}
  b: {url: http://b:8000, weight: 2, limits: {in_flight: 4}}
  pool: {url: dns+http://pool:8000, limits: {tokens: 5000}}
models:
  big:
    providers:
      - {name: a, price: {input: 2, output: 8}}
      - {name: pool, model: huge, price: {input: 1}}
    fallback_chain: [small]
  small: {strategy: round_robin}
strategy: least_connections
deadlines: {first_token: 7s}
retry: {max_attempts: 5}
hedge: {enabled: true, models: [small]}
`)
	core, err := NewCore(c, Found{Models: []string{"small"}, Members: 2, KVTokens: func(endpoint string) int { return 1000 * len(endpoint) }})
	if err != nil {
		t.Fatal(err)
	}
	pools, tokens := map[string][]string{}, map[string]int{}
	for _, p := range core.Pools {
		for _, d := range p.Deployments {
			pools[p.Model] = append(pools[p.Model], d.ID)
			tokens[d.ID] = d.Limits.Tokens
			if d.Price != route.Price(core.Prices[d.ID]) {
				t.Errorf("%s has price %+v", d.ID, d.Price)
			}
		}
	}
	members := []string{"pool@198.18.0.1:8000", "pool@198.18.0.2:8000"}
	for model, want := range map[string][]string{
		"big":   {"a/big", members[0] + "/huge", members[1] + "/huge"},
		"small": {"a/small", "b/small", members[0] + "/small", members[1] + "/small"},
	} {
		if !slices.Equal(pools[model], want) {
			t.Errorf("%s is at %q, want %q", model, pools[model], want)
		}
	}
	if tokens["a/big"] != 1000 || tokens[members[0]+"/small"] != 20000 {
		t.Errorf("limits of tokens %v", tokens)
	}
	if got := core.Chains["big"]; !slices.Equal(got, []string{"big", "small"}) {
		t.Errorf("big is tried as %q", got)
	}
	if core.MaxAttempts != 5 || core.Deadlines.FirstToken != 7*time.Second || core.Hedged("big") || !core.Hedged("small") {
		t.Errorf("%+v", core)
	}
	if p := core.Prices["a/big"]; p.Output != 8 || core.Prices[members[1]+"/huge"].Input != 1 || len(core.Prices) != 3 {
		t.Errorf("prices %+v", core.Prices)
	}
}

func TestCoreServesNothing(t *testing.T) {
	c := parse(t, "endpoints: {pool: {url: 'dns+http://pool:8000'}, other: {url: 'http://a:1'}}")
	if _, err := NewCore(c, Found{Members: 1}); err == nil || !strings.Contains(err.Error(), "no endpoint lists a model") {
		t.Errorf("got %v", err)
	}
}

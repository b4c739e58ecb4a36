package app

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"evenkeel/internal/mock"
)

// TestFailureDomains: engines fail with their host, providers with the account and the region.
func TestFailureDomains(t *testing.T) {
	a, err := New(parse(t, `
endpoints:
  gpu-1: {url: "http://10.0.0.1:8000", kind: vllm}
  gpu-2: {url: "http://10.0.0.1:8001", kind: vllm}
  open-1: {kind: openai, api_key: one}
  open-2: {kind: openai, api_key: two}
  open-3: {kind: openai, api_key: one}
models:
  m:
    providers: [{name: gpu-1, region: here}, {name: gpu-2}, {name: open-1}, {name: open-2}, {name: open-3, region: eu}]
  n:
    providers: [{name: open-3}]
`), Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.closeEndpoints)
	domains(t, a, map[string]string{
		"gpu-1/m": "10.0.0.1", "gpu-2/m": "10.0.0.1", "open-1/m": "api.openai.com open-1", "open-2/m": "api.openai.com open-2",
		"open-3/m": "api.openai.com open-1 eu", "open-3/n": "api.openai.com open-1",
	})
}

// domains demands that the deployments fail with what want says, by ID.
func domains(t *testing.T, a *App, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, d := range a.router.View(time.Now()).Deployments {
		got[d.ID] = d.Domain
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("failure domains\n%v\nwant\n%v", got, want)
	}
}

// TestFailureDomainSetting: a provider's word comes before its endpoint's, that before the default; a pool's holds for all its
// members; a reload changes it.
func TestFailureDomainSetting(t *testing.T) {
	const text = `
endpoints:
  gpu-1: {url: "http://10.0.0.1:8000", kind: vllm, failure_domain: rack-1, models: [own]}
  gpu-2: {url: "http://10.0.0.2:8000", kind: vllm%s}
  pool: {url: "dns+http://engines:8000", kind: vllm, failure_domain: zone-b}
  open: {kind: openai, api_key: one, failure_domain: azure}
models:
  m:
    providers: [{name: gpu-1}, {name: gpu-2, failure_domain: rack-7}, {name: pool}, {name: open, region: eu}]
  n:
    providers: [{name: gpu-2}, {name: open, region: eu, failure_domain: azure-eu}]
`
	c := parse(t, fmt.Sprintf(text, ""))
	a, err := New(c, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.closeEndpoints)
	want := map[string]string{
		"gpu-1/own": "rack-1", "gpu-1/m": "rack-1", "gpu-2/m": "rack-7", "open/m": "azure", "gpu-2/n": "10.0.0.2", "open/n": "azure-eu",
	}
	domains(t, a, want)
	if err := a.Reload(parse(t, fmt.Sprintf(text, ", failure_domain: rack-2"))); err != nil {
		t.Fatal(err)
	}
	want["gpu-2/n"] = "rack-2"
	domains(t, a, want)

	members := fleet(c, map[string]resolved{"engines": {members: []netip.Addr{netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.0.1.2")}}})
	n := 0
	for _, e := range members.Endpoints {
		if e.Address != "" {
			n++
			if e.FailureDomain != "zone-b" {
				t.Errorf("%s fails with %q", e.Name, e.FailureDomain)
			}
		}
	}
	if n != 2 {
		t.Errorf("%d members", n)
	}
}

// TestAttemptsKeepToTheFailureDomainsThatWereSet: of three engines on one host, two of which are said to fail together, the
// next attempt and a hedge go to the other one; after a reload that says otherwise, to another one.
func TestAttemptsKeepToTheFailureDomainsThatWereSet(t *testing.T) {
	names := []string{"a", "b", "c"}
	engines := map[string]*mock.Engine{}
	for _, name := range names {
		engines[name] = engine(t, mock.Config{Name: name, Models: []string{"m"}})
	}
	config := func(a, b, c string) string {
		return fmt.Sprintf(`
endpoints:
  a: {url: %q, failure_domain: %s, models: [m]}
  b: {url: %q, failure_domain: %s, models: [m]}
  c: {url: %q, failure_domain: %s, models: [m]}
strategy: round_robin
retry: {max_attempts: 2, budget_min: 1000, budget_ratio: 1}
hedge: {enabled: true, budget_ratio: 1}
health_checks: {min_requests: 100000, circuit_breaker: {trip_after: 100000}}
`, engines["a"].URL(), a, engines["b"].URL(), b, engines["c"].URL(), c)
	}
	everywhere := func(f mock.Fault) {
		t.Helper()
		for _, e := range engines {
			if err := e.SetFault(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	w := start(t, parse(t, config("rack-1", "rack-1", "rack-2")))
	usual := func() { // from which is known what is usual
		t.Helper()
		for _, e := range engines {
			if err := e.ClearFault(); err != nil {
				t.Fatal(err)
			}
		}
		for range 200 {
			w.whole(w.stream("m"))
		}
	}
	usual()
	seconds := func(of map[string]string, times int, ask func()) {
		t.Helper()
		for range times {
			before := len(w.app.ring.Last(1000))
			ask()
			w.await("the request is recorded", func() bool { return len(w.app.ring.Last(1000)) > before })
			r := w.app.ring.Last(1)[0]
			if len(r.Attempts) != 2 {
				t.Fatalf("%d attempts", len(r.Attempts))
			}
			first, second := r.Attempts[0].Deployment, r.Attempts[1].Deployment
			if of[first] == of[second] {
				t.Errorf("%s and then %s, both in %s", first, second, of[first])
			}
		}
	}
	failing := func() { w.chat("m") }
	slow := func() { w.whole(w.stream("m")) } // more than a few would be usual
	one := map[string]string{"a/m": "rack-1", "b/m": "rack-1", "c/m": "rack-2"}
	everywhere(mock.Fault{Kind: "status", Status: 500})
	seconds(one, 6, failing)
	everywhere(mock.Fault{Kind: "no_usage", Delay: mock.Duration(300 * time.Millisecond)})
	seconds(one, 2, slow)

	w.reload(config("rack-1", "rack-2", "rack-1"))
	usual()
	other := map[string]string{"a/m": "rack-1", "b/m": "rack-2", "c/m": "rack-1"}
	everywhere(mock.Fault{Kind: "no_usage", Delay: mock.Duration(300 * time.Millisecond)})
	seconds(other, 2, slow)
	everywhere(mock.Fault{Kind: "status", Status: 500})
	seconds(other, 6, failing)
}

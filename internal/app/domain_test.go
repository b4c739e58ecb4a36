package app

import (
	"log/slog"
	"testing"
	"time"
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
	want := map[string]string{
		"gpu-1/m": "10.0.0.1", "gpu-2/m": "10.0.0.1", "open-1/m": "api.openai.com open-1", "open-2/m": "api.openai.com open-2",
		"open-3/m": "api.openai.com open-1 eu", "open-3/n": "api.openai.com open-1",
	}
	for _, d := range a.router.View(time.Now()).Deployments {
		if d.Domain != want[d.ID] {
			t.Errorf("%s fails with %q, want %q", d.ID, d.Domain, want[d.ID])
		}
		delete(want, d.ID)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

package app

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"evenkeel/internal/discovery"
)

func TestProviderThatTheEndpointDoesNotList(t *testing.T) {
	const text = "endpoints: {e: {url: 'http://127.0.0.1:1'}, f: {url: 'http://127.0.0.1:2', models: [other]}}\n"
	c := parse(t, text+"models: {nice: {providers: [{name: e, model: org/model-7B}]}, said: {providers: [{name: f, model: another}]}}")
	logger, log := linesLogger(slog.LevelWarn)
	a, err := New(c, Options{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	targets := targets(a.current.Load().Config)
	found := func(i int, kind, want string, models ...string) {
		t.Helper()
		r := discovery.Report{Target: targets[i], Reachable: true, Kind: kind}
		for _, m := range models {
			r.Models = append(r.Models, discovery.ModelInfo{ID: m})
		}
		a.found(r)
		if got := log.taken(); got != want {
			t.Errorf("with %q: logged\n%s\nwant\n%s", models, got, want)
		}
	}
	const warning = `level=WARN msg="endpoint does not list the model of a provider" model=nice endpoint=e provider_model=org/model-7B hint=`
	found(0, "openai-compatible", "")
	found(0, "openai-compatible", warning+`"did you mean \"org/model-7b-it\"?"`, "org/model-7b-it", "quite-another")
	found(0, "openai-compatible", "", "org/model-7b-it", "quite-another", "and-more")
	if !a.isUnlisted("e", "org/model-7B") || a.isUnlisted("e", "quite-another") || a.isUnlisted("f", "another") {
		t.Error("other models are marked than were warned of")
	}
	found(0, "openai-compatible", "", "org/model-7B")
	found(0, "openai-compatible", warning+`"known are: m"`, "m")
	found(0, "ollama", "", "org/model-7B:latest")
	found(1, "openai-compatible", "", "other") // it serves what the operator says
	if err := a.Reload(parse(t, text+"models: {nice: {providers: [{name: e, model: org/model-7}]}}")); err != nil {
		t.Fatal(err)
	}
	if got := log.taken(); !strings.Contains(got, "provider_model=org/model-7 hint=") || strings.Count(got, "level=") != 1 {
		t.Errorf("after a reload: %s", got)
	}
}

// TestSilentEndpoints: who looks for an endpoint that has no deployment is told why it has none.
func TestSilentEndpoints(t *testing.T) {
	c := parse(t, "endpoints: {e: {url: 'http://127.0.0.1:1'}, f: {url: 'http://127.0.0.1:2'}, g: {url: 'http://127.0.0.1:3', models: [m]}}")
	a, err := New(c, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	targets := targets(a.current.Load().Config)
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, s := range a.silent() {
			got = append(got, s.Endpoint+": "+s.Reason)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	expect("e: it has not been asked yet", "f: it has not been asked yet")
	a.found(discovery.Report{Target: targets[0], Err: errors.New("connection refused")})
	a.found(discovery.Report{Target: targets[1], Reachable: true, Kind: "openai-compatible"})
	expect("e: connection refused", "f: it lists no models")
	a.found(discovery.Report{Target: targets[0], Reachable: true, Kind: "openai-compatible", Models: []discovery.ModelInfo{{ID: "m"}}})
	expect("f: it lists no models")
}

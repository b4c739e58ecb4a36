package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/secret"
)

func readAll(t *testing.T, paths ...string) []File {
	t.Helper()
	var files []File
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{filepath.ToSlash(p), data})
	}
	return files
}

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// anyEnv has every variable.
func anyEnv(name string) (string, bool) { return "value-of-" + name, true }

func lines(warnings []Warning) string {
	var b strings.Builder
	for _, w := range warnings {
		b.WriteString(w.String() + "\n")
	}
	return b.String()
}

// TestUnresolvedKeysAreNotTheSame: what could not be read is not compared.
func TestUnresolvedKeysAreNotTheSame(t *testing.T) {
	f := func(a, b, want string) {
		t.Helper()
		text := fmt.Sprintf("endpoints:\n  a: {kind: openai, api_key: '%s'}\n  b: {kind: openai, api_key: '%s'}\n", a, b)
		_, warnings, _ := Load([]File{{"a.yaml", []byte(text)}}, env("SET", "sk"))
		if got := lines(warnings); got != want {
			t.Errorf("%s and %s warn of %q, want %q", a, b, got, want)
		}
	}
	f("${SET}", "${SET}", "a.yaml:3:3: endpoints.b.url: is the address and key of endpoint a too; it will count as two\n")
	f("${NOT_SET}", "${NOT_SET_EITHER}", "")
	f("${NOT_SET}", "${SET}", "")
}

// TestGoodFile compares a file that has every key with what it must give.
func TestGoodFile(t *testing.T) {
	from := sources{env: env("KEY_ONE", "sk-one", "HOST", "Alpha.Example"), read: readSecret}
	got, warnings, err := load(readAll(t, "testdata/good.yaml"), from)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Validate(nil); err != nil {
		t.Error(err)
	}
	limits := Limits{InFlight: 64, Tokens: 200_000, RPM: 60, TPM: 70}
	want := &Config{
		Listen:         "[::1]:9000",
		Admin:          "127.0.0.1:9001",
		Metrics:        "0.0.0.0:9464",
		ForwardHeaders: []string{"x-team", "X-Trace"},
		ExposeHeaders:  []string{"deployment", "attempts", "decision"},
		MaxBody:        3 << 19,
		BodyMemory:     64 << 20,
		AdminTLS:       ListenerTLS{"/etc/evenkeel/admin.pem", "admin.key", "testdata/ca.pem"},
		H2C:            true,
		Connections:    Connections{Max: 5000, PerAddress: 50},
		DrainTimeout:   500 * time.Millisecond,
		HoldTimeout:    90 * time.Second,
		DNSServer:      "10.0.0.53:53",
		EndpointsFile:  "testdata/fleet.yaml",
		Strategy:       Strategy{"p2c_ewma", map[string]any{"half_life": "5s", "cold_after_seconds": 90}},
		Deadlines: Deadlines{
			Deadline: time.Minute, FirstToken: 1500 * time.Millisecond, BetweenTokens: 7 * time.Second,
			Response: 2 * time.Minute, Connect: 250 * time.Millisecond,
		},
		Retry:    Retry{MaxAttempts: 5, BudgetRatio: 0.25, BudgetMin: 3},
		Hedge:    Hedge{Enabled: true, BudgetRatio: 0.02, Models: []string{"small"}},
		Affinity: Affinity{Mode: "session", SlowdownLimit: 3, ClientAddress: true},
		Queue:    Queue{MaxWaiting: 0},
		HealthChecks: HealthChecks{
			Interval: 15 * time.Second, Timeout: 2 * time.Second, ProbePrompt: "ready?", ProbeMaxTokens: 3, ProbeExpect: "(?i)yes",
			UnhealthyThreshold: 4, HealthyThreshold: 5, SignalInterval: 500 * time.Millisecond, Window: 20 * time.Second, MinRequests: 6, ErrorRateThreshold: 0.05,
			CircuitBreaker: CircuitBreaker{TripAfter: 10, ResetAfter: time.Minute, LongestReset: 10 * time.Minute},
			SlowStart:      45 * time.Second, MaxEjection: 0.25, PanicThresholdPercent: 20,
			TTFTThreshold: 800 * time.Millisecond, TTFTOpen: 20 * time.Second,
			RateLimitPause: 2 * time.Second, LongestRetryAfter: 2 * time.Minute, CredentialRetry: 7 * time.Minute,
		},
		Log:         Log{Level: "debug", Format: "json"},
		Explain:     Explain{RingMiB: 64},
		Trace:       Trace{Path: "testdata/traces/a.jsonl", MaxMiB: 64},
		VirtualKeys: []VirtualKey{{"support", "5d5f0a0e0e1bb17e08a8a0d2e5dd0b3f43ff6d9f0b9c4e41a2be3a2b6f3b4c01"}},
		Endpoints: []Endpoint{
			{Name: "zeta", URL: "http://gpu-1:8000", Kind: "vllm", DataParallel: 4, APIKey: secret.New("sk-one"), Weight: 0.5, Limits: limits},
			{Name: "alpha", URL: "https://alpha.example/openai", Kind: "openai-compatible", APIKey: secret.New("sk-literal"), DataParallel: 1, Weight: 1, Models: []string{"small", "7"}, FailureDomain: "rack-1"},
			{Name: "[::1]:8000", URL: "http://[::1]:8000", APIKey: secret.New("sk-from-a-file"), DataParallel: 1, Weight: 1},
			{Name: "openai", URL: "https://api.openai.com", Kind: "openai", DataParallel: 1, Weight: 1, Limits: Limits{InFlight: 64, Tokens: 1, RPM: 60, TPM: 70}},
			{Name: "idle", URL: "https://idle", DataParallel: 1, Weight: 0, TLS: EndpointTLS{"testdata/ca.pem", "testdata/c.pem", "testdata/c.key", "gpu"},
				Proxy: "http://proxy:3128", MaxConnections: 9},
		},
		Models: []Model{
			{
				Name: "vendor/big.model:tag",
				Providers: []Provider{
					{Name: "zeta", Model: "Big/Model", Weight: 70, Region: "eu", ContextWindow: 8192, Supports: []string{"tools", "vision"}, FailureDomain: "rack-2"},
					{Name: "alpha", Model: "vendor/big.model:tag", Weight: 30, ContextWindow: 4096, Limits: limits,
						Price: Price{Input: 2.5, CachedInput: 1.25, Output: 10, Request: 0.001}},
				},
				FallbackChain: []string{"small", "absent"},
				Strategy:      &Strategy{Name: "round_robin"},
			},
			{Name: "small"},
			{Name: "chained", FallbackChain: []string{"vendor/big.model:tag"}, Strategy: &Strategy{Name: "p2c_ewma"}, Affinity: &Affinity{Mode: "none", SlowdownLimit: 2.5}},
		},
	}
	got.reads, got.places, got.decoded = nil, nil, report{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	wantWarnings := `testdata/good.yaml:38:83: endpoints.alpha.api_key: is a secret in plain text; write ${NAME} for an environment variable, or file:PATH
testdata/good.yaml:46:64: accepted, not acted on by this version: context_window (2 places)
testdata/good.yaml:46:86: accepted, not acted on by this version: supports
testdata/good.yaml:52:29: models["vendor/big.model:tag"].fallback_chain[1]: no model "absent" is configured; the link is skipped while no endpoint serves it
testdata/good.yaml:60:1: accepted, not acted on by this version: routing_rules
testdata/good.yaml:65:1: accepted, not acted on by this version: profiles
`
	if got := lines(warnings); got != wantWarnings {
		t.Errorf("warnings\n%swant\n%s", got, wantWarnings)
	}
}

// TestPriceIsActedOn: simulate counts with prices, and regions are failure domains, so that nothing warns of them.
func TestPriceIsActedOn(t *testing.T) {
	text := "endpoints: {a: {url: 'http://a:1'}}\nmodels: {m: {providers: [{name: a, region: eu, price: {input: 2}, supports: [tools]}]}}\n"
	c, warnings, err := Load([]File{{"a.yaml", []byte(text)}}, env())
	if err != nil || c.Models[0].Providers[0].Price.Input != 2 || lines(warnings) != "a.yaml:2:67: accepted, not acted on by this version: supports\n" {
		t.Errorf("%v, warnings %q", err, lines(warnings))
	}
}

// TestNoEndpointsOnPurpose: an empty set that is written as one is a set, of which a warning tells; none at all is refused.
func TestNoEndpointsOnPurpose(t *testing.T) {
	const none = "endpoints: there is none; write one such as endpoints: {gpu-1: {url: http://10.0.0.1:8000}}, or endpoints: {} to begin without"
	f := func(text, wantWarnings, wantErr string) {
		t.Helper()
		c, warnings, err := Load([]File{{"a.yaml", []byte("listen: 127.0.0.1:1\n" + text)}}, env())
		if err == nil {
			err = c.Validate(nil)
		}
		if got := lines(warnings); got != wantWarnings || fmt.Sprint(err) != wantErr {
			t.Errorf("%q: %v, warnings %q", text, err, got)
		}
	}
	f("endpoints: {}\n", "a.yaml:2:1: endpoints: holds none: nothing is served until there is one\n", "<nil>")
	f("endpoints:\n", "", "a.yaml:2:1: "+none)
	f("", "", "a.yaml: "+none)
	f("endpoints: {}\nmodels: {m: {providers: [{name: gone}]}}\n", "a.yaml:2:1: endpoints: holds none: nothing is served until there is one\n",
		`a.yaml:3:27: models.m.providers[0].name: no endpoint is named "gone"`)
}

func TestEmptyFilesGiveTheDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing yet\n", "---\n", "~", "endpoints:\nmodels:\ndeadlines:\nvirtual_keys:\n"} {
		got, warnings, err := Load([]File{{"a.yaml", []byte(text)}}, env())
		if err != nil || len(warnings) > 0 {
			t.Errorf("%q: %v, %v", text, err, warnings)
			continue
		}
		got.reads, got.places, got.decoded = nil, nil, report{}
		if want := Default(); !reflect.DeepEqual(*got, want) {
			t.Errorf("%q gives %+v", text, got)
		}
	}
}

func TestExamplesLoad(t *testing.T) {
	for _, paths := range [][]string{
		{"../../examples/evenkeel.yaml"},
		{"../../examples/endpoints.yaml", "../../examples/support-agent.yaml"},
	} {
		c, _, err := Load(readAll(t, paths...), anyEnv)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(checkStrategy); err != nil {
			t.Error(err)
		}
	}
}

// TestExampleStatesTheDefaults takes the comment signs off the complete example, so that what it calls defaults are
// the defaults.
func TestExampleStatesTheDefaults(t *testing.T) {
	data, err := os.ReadFile("../../examples/evenkeel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	notDefaults := []string{"trace", "tls", "admin_tls", "auth", "credentials", "virtual_keys", "forward_headers", "expose_headers"}
	var text strings.Builder
	for line := range strings.SplitSeq(string(data), "\n") {
		bare, isComment := strings.CutPrefix(line, "# ")
		key, _, _ := strings.Cut(strings.TrimSpace(bare), ":")
		isSetting := isComment && (strings.HasPrefix(bare, "  ") && !strings.Contains(key, " ") || isTopKey(key))
		for _, n := range notDefaults {
			isSetting = isSetting && key != n && !strings.Contains(bare, "- {name: support-agent")
		}
		if isSetting {
			text.WriteString(bare + "\n")
		}
	}
	for _, must := range []string{"listen:", "  connect: 2s", "retry:", "explain:"} {
		if !strings.Contains(text.String(), must) {
			t.Fatalf("the example no longer states %q:\n%s", must, text.String())
		}
	}
	got, _, err := Load([]File{{"defaults.yaml", []byte(text.String())}}, env())
	if err != nil {
		t.Fatal(err)
	}
	got.reads, got.places, got.decoded = nil, nil, report{}
	if want := Default(); !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v\nwant %+v", *got, want)
	}
}

func isTopKey(key string) bool {
	_, ok := find(fieldsOf(reflect.TypeFor[document]()), key)
	return ok
}

// TestOtherSpellings loads a policy that writes max_tokens for context_window and durations as numbers.
func TestOtherSpellings(t *testing.T) {
	const endpoints = "endpoints: {a: {url: http://a}, b: {url: http://b}}"
	const policy = `
models:
  large:
    providers:
      - {name: a, weight: 70, region: us-east-1, max_tokens: 128000, supports: [tools, vision, json_mode]}
      - {name: b, weight: 30, region: eastus2, max_tokens: 128000}
    fallback_chain: [small]
  small: {providers: [{name: b}]}
routing_rules:
  - match: 
      tools: true
      complexity: high
    model: large
  - match: {max_tokens: "< 4000", no_tools: true}
    model: small
  - default: small
health_checks:
  interval_seconds: 15
  probe_prompt: "Say 'yes' -> "
  max_tokens: 3
  ttft_threshold_ms: 800
  error_rate_threshold: 0.05
  circuit_breaker:
    trip_after: 10
    reset_after_seconds: 60
`
	c, _, err := Load([]File{{"endpoints.yaml", []byte(endpoints)}, {"policy.yaml", []byte(policy)}}, env())
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Models[0].Providers[0]; p.ContextWindow != 128_000 || p.Weight != 70 {
		t.Errorf("got %+v", p)
	}

	typo := strings.Replace(policy, "weight: 30", "wieght: 30", 1)
	_, _, err = Load([]File{{"endpoints.yaml", []byte(endpoints)}, {"policy.yaml", []byte(typo)}}, env())
	want := `policy.yaml:6:19: models.large.providers[1]: unknown key "wieght"; did you mean "weight"?`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestFilesMerge(t *testing.T) {
	f := func(want string, texts ...string) {
		t.Helper()
		var files []File
		for i, text := range texts {
			files = append(files, File{string(rune('a'+i)) + ".yaml", []byte(text)})
		}
		c, _, err := Load(files, env())
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			for _, e := range c.Endpoints {
				got += e.Name + "=" + e.URL + "," + e.Kind + " "
			}
			got += c.Deadlines.Connect.String() + " " + c.Deadlines.Response.String()
		}
		if got != want {
			t.Errorf("%q gives\n%s\nwant\n%s", texts, got, want)
		}
	}
	f("x=http://x, y=http://y, 2s 10m0s", "endpoints: {x: {url: http://x}}", "endpoints: {y: {url: http://y}}")
	f("y=http://y,vllm x=http://x, 2s 10m0s", "endpoints: {y: {url: http://y}, x: {url: http://x}}", "endpoints: {y: {kind: vllm}}")
	f("1s 3s", "deadlines: {connect: 1s}", "deadlines: {response: 3s}")
	f("b.yaml:1:13: deadlines.connect: is set twice; the first is at a.yaml:1:13", "deadlines: {connect: 1s}", "deadlines: {connect: 1s}")
	f("b.yaml:1:17: endpoints.x.url: is set twice; the first is at a.yaml:1:17", "endpoints: {x: {url: http://x}}", "endpoints: {x: {url: http://y}}")
	f("b.yaml:1:1: strategy: is set twice; the first is at a.yaml:1:1", "strategy: round_robin", "strategy: {name: round_robin, x: 1}")
	f("b.yaml:1:1: forward_headers: is set twice; the first is at a.yaml:1:1", "forward_headers: [a]", "forward_headers: [b]")
	f("a.yaml:1:1: unknown key \"lisen\"; did you mean \"listen\"?\nb.yaml:1:17: endpoints.x: unknown key \"kid\"; did you mean \"kind\"?\nc.yaml:2:1: not YAML: did not find expected node content (while parsing a flow node from line 2); is a bracket left open?",
		"lisen: x", "endpoints: {x: {kid: vllm}}", "models: [")
	f("b.yaml:2:1: endpoints: is set twice; the first is at b.yaml:1:1", "endpoints: {x: {url: http://x}}", "endpoints: {y: {url: http://y}}\nendpoints: {z: {url: http://z}}")
	// The same file twice sets everything twice.
	c := "endpoints: {x: {url: http://x}}"
	f("b.yaml:1:17: endpoints.x.url: is set twice; the first is at a.yaml:1:17", c, c)
}

func TestLoadFiles(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")
	write(t, one, "endpoints: {x: {url: http://x, api_key: \"file:keys/x\"}}")
	write(t, two, "log: {level: warn}")
	write(t, filepath.Join(dir, "keys", "x"), "sk-x\n")
	c, warnings, err := LoadFiles(one, two)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if c.Endpoints[0].APIKey.Reveal() != "sk-x" || c.Log.Level != "warn" {
		t.Errorf("got %+v", c)
	}

	big := filepath.Join(dir, "big.yaml")
	write(t, big, strings.Repeat("#", maxFile+1))
	_, _, err = LoadFiles(filepath.Join(dir, "absent.yaml"), dir)
	if got, want := err.Error(), filepath.Join(dir, "absent.yaml")+": no such file or directory\n"+dir+": is a directory"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_, _, err = LoadFiles(big)
	if want := big + ": is larger than 4 MiB, the most that a config file may have"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWarnings of settings that are valid and do less than they seem to.
func TestWarnings(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, warnings, err := Load([]File{{"a.yaml", []byte("endpoints: {a: {url: http://a}}\n" + text)}}, anyEnv)
		if got := strings.TrimSuffix(lines(warnings), "\n"); err != nil || got != want {
			t.Errorf("%q: %v\ngot  %s\nwant %s", text, err, got, want)
		}
	}
	f("virtual_keys: []", "a.yaml:2:1: virtual_keys: is empty, so no key is asked for; remove it, or list keys: [{name: support-agent, sha256: HASH-OF-THE-KEY}]")
	f("virtual_keys:", "")
	f("models: {m: {providers: []}}", `a.yaml:2:14: models.m.providers: is empty, which means every endpoint that serves "m"; remove it, or name endpoints: [{name: gpu-1}]`)
	f("models: {m: {}}", "")
	f("deadlines: {first_token: 20m}", "a.yaml:2:13: deadlines.first_token: 20m0s never takes effect: deadline ends a request without content after 10m0s")
	f("trace: {max_mib: 64}", "a.yaml:2:1: trace: has no path, so that nothing is recorded; write path: trace.jsonl, or remove it")
	f("deadlines: {deadline: 1m, first_token: 2m}", "a.yaml:2:27: deadlines.first_token: 2m0s never takes effect: deadline ends a request without content after 1m0s")
	f("deadlines: {deadline: 1m}", "")
	f("deadlines: {deadline: 1m, first_token: 1m}", "")
	f("health_checks: {probe_prompt: hi, interval: 0s}", "a.yaml:2:35: health_checks.interval: is 0, so probe_prompt is never sent")
	f("health_checks: {interval: 2s, timeout: 3s}", "a.yaml:2:31: health_checks.timeout: is longer than interval, 2s: the next probe waits until the one before has ended; "+
		"write a longer interval or a shorter timeout, or leave timeout out")
}

func TestDidYouMean(t *testing.T) {
	f := func(word, want string, known ...string) {
		t.Helper()
		if got := DidYouMean(word, known); got != want {
			t.Errorf("%s of %q: got %q, want %q", word, known, got, want)
		}
	}
	f("retries", `; did you mean "retry"?`, "metrics", "retry")
	f("fallback", `; did you mean "fallback_chain"?`, "fallback_chain", "metrics")
	f("Deadline", `; did you mean "deadlines"?`, "deadlines", "deadline_of_others")
	f("wieght", `; did you mean "weight"?`, "weight", "url")
	f("first_token_timeout", `; did you mean "first_token"?`, "first_token", "response")
	f("models_of_mine", `; known are: metrics, strategy`, "metrics", "strategy")
	f("roundrobin", `; did you mean "round_robin"?`, "round_robin", "rounder")
}

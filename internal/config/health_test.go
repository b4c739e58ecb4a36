package config

import (
	"strings"
	"testing"
	"time"
)

// TestHealthChecksFollow: what is not written follows from what is.
func TestHealthChecksFollow(t *testing.T) {
	f := func(text string, interval, slowStart, longest time.Duration) {
		t.Helper()
		c, _, err := Load([]File{{"a.yaml", []byte("health_checks: {" + text + "}")}}, env())
		if err != nil {
			t.Fatal(err)
		}
		if h := c.HealthChecks; h.Interval != interval || h.SlowStart != slowStart || h.CircuitBreaker.LongestReset != longest {
			t.Errorf("%s gives %+v", text, h)
		}
	}
	f("", 0, time.Minute, 300*time.Second)
	f("probe_prompt: hi", 30*time.Second, time.Minute, 300*time.Second)
	f("probe_prompt: hi, interval: 0s", 0, time.Minute, 300*time.Second)
	f("probe_prompt: hi, interval_seconds: 15", 15*time.Second, time.Minute, 300*time.Second)
	f("interval: 15s", 15*time.Second, time.Minute, 300*time.Second)
	f("slow_start: 0s", 0, 0, 300*time.Second)
	f("circuit_breaker: {reset_after: 10m}", 0, 20*time.Minute, 10*time.Minute)
	f("circuit_breaker: {reset_after: 1m}, slow_start_ms: 500", 0, 500*time.Millisecond, 300*time.Second)
}

// TestProbeTimeoutFollowsTheInterval where it is not written, and only one that is written is warned of.
func TestProbeTimeoutFollowsTheInterval(t *testing.T) {
	f := func(text string, want time.Duration) {
		t.Helper()
		c, warnings, err := Load([]File{{"a.yaml", []byte("health_checks: {" + text + "}")}}, env())
		if err != nil || len(warnings) > 0 || c.HealthChecks.Timeout != want {
			t.Errorf("%s gives %s, want %s; %v %v", text, c.HealthChecks.Timeout, want, warnings, err)
		}
	}
	f("", 3*time.Second)
	f("interval: 0s", 3*time.Second)
	f("interval: 2s", 2*time.Second)
	f("interval: 15s", 3*time.Second)
	f("interval: 15s, timeout: 10s", 10*time.Second)
	f("probe_prompt: hi", 3*time.Second)
}

// TestWarningsRestOnSoundValues: an error of a value does not bring a warning about the default in its place.
func TestWarningsRestOnSoundValues(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, warnings, err := Load([]File{{"a.yaml", []byte(text)}}, env())
		if problems, ok := err.(Problems); !ok || len(problems) != 1 || problems[0].Path != want || len(warnings) > 0 {
			t.Errorf("%s:\n%v\nwarnings %v", text, err, warnings)
		}
	}
	f("deadlines: {first_token: 5}", "deadlines.first_token")
	f("deadlines: {first_token: 80s, deadline: 5}", "deadlines.deadline")
	f("deadlines: {first_token: 80s, deadline: -5s}", "deadlines.deadline")
	f("health_checks: {interval: 2s, timeout: 5}", "health_checks.timeout")
	f("health_checks: {interval: 2, timeout: 5s}", "health_checks.interval")
	f("health_checks: {interval: 50ms, timeout: 5s}", "health_checks.interval")
	f("health_checks: {interval: x, probe_prompt: hi}", "health_checks.interval")
	f("connections: {max: -1, per_address: 5}", "connections.max")
	f("hedge: {enabled: true, budget_ratio: 0.3}\nretry: {budget_ratio: x}", "retry.budget_ratio")
	f("endpoints: {a: {url: http://a, api_key: \"a\\tb\"}}", "endpoints.a.api_key")
}

// TestBackslashInDoubleQuotes: a regular expression in them is told how to be written.
func TestBackslashInDoubleQuotes(t *testing.T) {
	f := func(value string) {
		t.Helper()
		_, _, err := Load([]File{{"a.yaml", []byte("health_checks: {probe_expect: " + value + "}")}}, env())
		if err == nil || !strings.Contains(err.Error(), "in double quotes a backslash begins an escape; write the text in single quotes") {
			t.Errorf("%s: %v", value, err)
		}
	}
	f(`"m\d"`)
	f(`"m\x{1}"`)
}

// TestReferencePolicy: the spellings of the policy that people bring along.
func TestReferencePolicy(t *testing.T) {
	c, warnings, err := Load([]File{{"a.yaml", []byte(`
health_checks:
  interval_seconds: 15
  probe_prompt: "Classify: 'reset password' -> category:"
  max_tokens: 3
  ttft_threshold_ms: 800
  error_rate_threshold: 0.05
  circuit_breaker:
    trip_after: 10
    reset_after_seconds: 60
`)}}, env())
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	want := defaultHealthChecks()
	want.Interval, want.ProbePrompt, want.ProbeMaxTokens = 15*time.Second, "Classify: 'reset password' -> category:", 3
	want.TTFTThreshold, want.ErrorRateThreshold = 800*time.Millisecond, 0.05
	want.CircuitBreaker.TripAfter, want.CircuitBreaker.ResetAfter, want.SlowStart = 10, time.Minute, 2*time.Minute
	if c.HealthChecks != want {
		t.Errorf("got  %+v\nwant %+v", c.HealthChecks, want)
	}
}

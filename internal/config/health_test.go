package config

import (
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

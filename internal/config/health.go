package config

import (
	"regexp"
	"time"
)

// HealthChecks says when a deployment, or what deployments share, is let out of use and back in, and whether it is probed.
type HealthChecks struct {
	// Interval is from one probe of a deployment or endpoint to the next. 0 sends none.
	Interval time.Duration `yaml:"interval"`
	// Timeout is for one probe: until its answer begins. Unset, it is not longer than Interval.
	Timeout time.Duration `yaml:"timeout"`
	// ProbePrompt is what deployments are asked; empty asks none, and only the free pages of engines are looked at.
	ProbePrompt string `yaml:"probe_prompt"`
	// ProbeMaxTokens bounds the answer to a probe, in tokens.
	ProbeMaxTokens int `yaml:"probe_max_tokens,also=max_tokens"`
	// ProbeExpect is a regular expression that the answer must match; empty takes any.
	ProbeExpect string `yaml:"probe_expect"`
	// UnhealthyThreshold probes that fail in a row open, HealthyThreshold that succeed in a row close.
	UnhealthyThreshold int `yaml:"unhealthy_threshold"`
	HealthyThreshold   int `yaml:"healthy_threshold"`
	// SignalInterval is from one question for an engine's load to the next; 0 asks none. It costs an engine the answer alone.
	SignalInterval time.Duration `yaml:"signal_interval"`

	// Window is what the results of requests are counted over. Before it holds MinRequests, no rate opens anything.
	Window             time.Duration  `yaml:"window"`
	MinRequests        int            `yaml:"min_requests"`
	ErrorRateThreshold float64        `yaml:"error_rate_threshold"` // share of failures that opens, above 0 to 1
	CircuitBreaker     CircuitBreaker `yaml:"circuit_breaker"`
	// SlowStart is how long traffic grows after a return; 0 gives all of it at once.
	SlowStart time.Duration `yaml:"slow_start"`
	// MaxEjection is the share of a pool that rates and slowness may take out, 0 to 1.
	MaxEjection float64 `yaml:"max_ejection"`
	// PanicThresholdPercent: when less than this much of a pool is in use, all of it is; 0 is never.
	PanicThresholdPercent float64 `yaml:"panic_threshold_percent"`
	// TTFTThreshold degrades who takes longer to the first token of a small request; 0 is off. TTFTOpen takes out.
	TTFTThreshold time.Duration `yaml:"ttft_threshold"`
	TTFTOpen      time.Duration `yaml:"ttft_open"`
	// RateLimitPause follows a 429 that names no time, LongestRetryAfter bounds what one may name, and CredentialRetry
	// follows a refused credential or an empty account.
	RateLimitPause    time.Duration `yaml:"rate_limit_pause"`
	LongestRetryAfter time.Duration `yaml:"longest_retry_after"`
	CredentialRetry   time.Duration `yaml:"credential_retry"`
}

// CircuitBreaker counts failures in a row.
type CircuitBreaker struct {
	TripAfter int `yaml:"trip_after"`
	// ResetAfter is how long the first time out lasts; the n-th in a row lasts n times as long, at most LongestReset.
	ResetAfter   time.Duration `yaml:"reset_after"`
	LongestReset time.Duration `yaml:"longest_reset"`
}

// probeInterval is the interval where a prompt is written and no interval.
const probeInterval = 30 * time.Second

// shortestProbeInterval keeps a slip of the unit from becoming a load.
const shortestProbeInterval = 100 * time.Millisecond

func defaultHealthChecks() HealthChecks {
	return HealthChecks{
		Timeout: 3 * time.Second, ProbeMaxTokens: 16, UnhealthyThreshold: 3, HealthyThreshold: 2, SignalInterval: time.Second,
		Window: 30 * time.Second, MinRequests: 10, ErrorRateThreshold: 0.5,
		CircuitBreaker: CircuitBreaker{TripAfter: 5, ResetAfter: 30 * time.Second, LongestReset: 300 * time.Second},
		SlowStart:      60 * time.Second, MaxEjection: 0.5, TTFTOpen: 30 * time.Second,
		RateLimitPause: time.Second, LongestRetryAfter: 60 * time.Second, CredentialRetry: 5 * time.Minute,
	}
}

// complete fills in what follows from other settings. written reports whether a setting of the section was.
func (h *HealthChecks) complete(written func(keys ...string) bool) {
	if h.ProbePrompt != "" && !written("interval") {
		h.Interval = probeInterval
	}
	if h.Interval > 0 && !written("timeout") {
		h.Timeout = min(h.Timeout, h.Interval)
	}
	if !written("slow_start") {
		h.SlowStart = 2 * h.CircuitBreaker.ResetAfter
	}
	if !written("circuit_breaker", "longest_reset") {
		h.CircuitBreaker.LongestReset = max(h.CircuitBreaker.LongestReset, h.CircuitBreaker.ResetAfter)
	}
}

func (v *validator) healthChecks(at *path, h HealthChecks) {
	if h.Interval != 0 && h.Interval < shortestProbeInterval {
		v.fail(at.key("interval"), "must be 0, for no probes, or at least %s, is %s", shortestProbeInterval, h.Interval)
	}
	if h.SignalInterval != 0 && h.SignalInterval < shortestProbeInterval {
		v.fail(at.key("signal_interval"), "must be 0, to ask engines for no load, or at least %s, is %s", shortestProbeInterval, h.SignalInterval)
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"timeout", h.Timeout}, {"window", h.Window}, {"ttft_open", h.TTFTOpen}, {"rate_limit_pause", h.RateLimitPause},
		{"longest_retry_after", h.LongestRetryAfter}, {"credential_retry", h.CredentialRetry},
	} {
		v.positive(at.key(d.key), d.value)
	}
	v.atLeastOne(at.key("probe_max_tokens"), h.ProbeMaxTokens)
	v.atLeastOne(at.key("unhealthy_threshold"), h.UnhealthyThreshold)
	v.atLeastOne(at.key("healthy_threshold"), h.HealthyThreshold)
	v.atLeastOne(at.key("min_requests"), h.MinRequests)
	v.atLeastOne(at.keys("circuit_breaker", "trip_after"), h.CircuitBreaker.TripAfter)
	if r := h.ErrorRateThreshold; !(r > 0 && r <= 1) {
		v.fail(at.key("error_rate_threshold"), "must be a share above 0 and at most 1, as 0.5 for half of the requests, is %v", r)
	}
	if r := h.MaxEjection; !(r >= 0 && r <= 1) {
		v.fail(at.key("max_ejection"), "must be a share from 0 to 1, as 0.5 for half of the deployments, is %v", r)
	}
	if p := h.PanicThresholdPercent; !(p >= 0 && p <= 100) {
		v.fail(at.key("panic_threshold_percent"), "must be 0, for never, to 100, is %v", p)
	}
	if h.SlowStart < 0 {
		v.fail(at.key("slow_start"), "must be 0, for none, or more, is %s", h.SlowStart)
	}
	v.ttft(at, h)
	v.circuitBreaker(at.key("circuit_breaker"), h.CircuitBreaker)
	v.probe(at, h)
}

func (v *validator) ttft(at *path, h HealthChecks) {
	switch {
	case h.TTFTThreshold < 0:
		v.fail(at.key("ttft_threshold"), "must be 0, for none, or more, is %s", h.TTFTThreshold)
	case h.TTFTThreshold >= h.TTFTOpen && h.TTFTOpen > 0:
		v.fail(at.key("ttft_threshold"), "must be less than ttft_open, which is %s, is %s", h.TTFTOpen, h.TTFTThreshold)
	}
}

func (v *validator) circuitBreaker(at *path, b CircuitBreaker) {
	v.positive(at.key("reset_after"), b.ResetAfter)
	if b.LongestReset < b.ResetAfter {
		v.fail(at.key("longest_reset"), "must be at least reset_after, which is %s, is %s", b.ResetAfter, b.LongestReset)
	}
}

func (v *validator) probe(at *path, h HealthChecks) {
	if _, err := regexp.Compile(h.ProbeExpect); err != nil {
		v.fail(at.key("probe_expect"), "is not a regular expression as Go knows them (RE2): %s", show(err.Error()))
	}
	switch {
	case h.ProbePrompt != "" && h.Interval == 0 && v.sound(at.key("probe_prompt"), at.key("interval")):
		v.warn(at.key("interval"), "is 0, so probe_prompt is never sent")
	case h.ProbePrompt == "" && h.ProbeExpect != "":
		v.fail(at.key("probe_expect"), "needs a probe_prompt: without one, nothing is asked whose answer could match")
	}
	if h.Interval > 0 && h.Timeout > h.Interval && v.sound(at.key("timeout"), at.key("interval")) {
		v.warn(at.key("timeout"), "is longer than interval, %s: the next probe waits until the one before has ended; "+
			"write a longer interval or a shorter timeout, or leave timeout out", h.Interval)
	}
}

func (v *validator) atLeastOne(at *path, n int) {
	if n < 1 {
		v.fail(at, "must be 1 or more, is %d", n)
	}
}

// ProbesCost returns the warning for probes that cost so many dollars a day.
func (c *Config) ProbesCost(dollars float64) Warning {
	v := newValidator(c)
	v.warn((*path)(nil).keys("health_checks", "probe_prompt"),
		"the probes cost up to %.2f $ a day at the prices of providers; a longer interval, or a shorter answer (probe_max_tokens), costs less", dollars)
	return v.warnings[0]
}

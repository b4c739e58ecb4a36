package app

import (
	"math"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/route"
)

// routing are the options of the router that a configuration asks for.
func routing(c *config.Config, seed uint64) route.Options {
	return route.Options{MaxWaiting: c.Queue.MaxWaiting, Health: healthRules(&c.HealthChecks), Seed: seed}
}

// healthRules gives the settings as the router has them, where a zero is what was left out.
func healthRules(h *config.HealthChecks) route.Health {
	return route.Health{
		Window: h.Window, MinRequests: h.MinRequests, ErrorRate: h.ErrorRateThreshold,
		TripAfter: h.CircuitBreaker.TripAfter, ResetAfter: h.CircuitBreaker.ResetAfter, LongestReset: h.CircuitBreaker.LongestReset,
		SlowStart: off(h.SlowStart, -time.Nanosecond), MaxEjection: off(h.MaxEjection, math.SmallestNonzeroFloat64),
		PanicThreshold: h.PanicThresholdPercent / 100, TTFTThreshold: h.TTFTThreshold, TTFTOpen: h.TTFTOpen,
		RateLimitPause: h.RateLimitPause, LongestRetryAfter: h.LongestRetryAfter, CredentialRetry: h.CredentialRetry,
		UnhealthyProbes: h.UnhealthyThreshold, HealthyProbes: h.HealthyThreshold,
	}
}

// off returns what the router takes for nothing where v is zero.
func off[T time.Duration | float64](v, nothing T) T {
	if v == 0 {
		return nothing
	}
	return v
}

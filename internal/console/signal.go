package console

import (
	"time"

	"evenkeel/internal/route"
)

// Signal is what an engine said of itself, of all its clients together. What it does not say is left out.
type Signal struct {
	AgeSeconds  float64  `json:"age_seconds"`
	Running     *int     `json:"running,omitempty"`
	Waiting     *int     `json:"waiting,omitempty"`
	KVUse       *float64 `json:"kv_cache_use,omitempty"` // part of the cache that running requests hold
	CacheTokens int      `json:"cache_tokens,omitempty"` // that the cache holds
	Unloaded    bool     `json:"unloaded,omitempty"`     // the model is not in its memory
	Ignored     bool     `json:"ignored,omitempty"`      // it contradicts what is in flight
}

func describeSignal(now time.Time, d *route.DeploymentView) *Signal {
	s := d.Signal
	if s.At.IsZero() {
		return nil
	}
	out := &Signal{AgeSeconds: round3(max(now.Sub(s.At).Seconds(), 0)), CacheTokens: s.CacheTokens, Unloaded: s.Unloaded, Ignored: d.SignalIgnored}
	if s.Running != route.NotTold {
		out.Running = &s.Running
	}
	if s.Waiting != route.NotTold {
		out.Waiting = &s.Waiting
	}
	if s.KVUse != route.NotTold {
		use := round3(s.KVUse)
		out.KVUse = &use
	}
	return out
}

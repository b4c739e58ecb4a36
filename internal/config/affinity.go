package config

import "slices"

// Affinity keeps requests at deployments that have seen what came before them.
type Affinity struct {
	// Mode is one of the following.
	Mode string `yaml:"mode"`
	// SlowdownLimit is how many times slower than the others a deployment may be that holds all of a prompt.
	SlowdownLimit float64 `yaml:"slowdown_limit"`
	// ClientAddress makes the client's address the session of requests that name none.
	ClientAddress bool `yaml:"client_address"`
}

// Values of Affinity.Mode. AffinityAuto is AffinityPrefix, but AffinityNone under strategies that promise exact shares.
const (
	AffinityAuto    = "auto"
	AffinityNone    = "none"
	AffinitySession = "session"
	AffinityPrefix  = "prefix"
)

func (a *Affinity) setDefaults() { *a = Affinity{Mode: AffinityAuto, SlowdownLimit: 2.5} }

var affinityModes = []string{AffinityAuto, AffinityNone, AffinitySession, AffinityPrefix}

// form is how it is written, for one that was written as text.
func (Affinity) form(text string) string {
	if !slices.Contains(affinityModes, text) {
		text = AffinitySession
	}
	return "{mode: " + text + "}"
}

func (v *validator) affinity(at *path, a Affinity) {
	v.oneOf(at.key("mode"), a.Mode, affinityModes...)
	if l := a.SlowdownLimit; !(l >= 1) {
		v.fail(at.key("slowdown_limit"), "must be 1 or more, is %v: 1 keeps nothing at who is slower than the others; to keep nothing at all write mode: none", l)
	}
	if a.ClientAddress && a.Mode == AffinityNone && v.sound(at.key("mode")) {
		v.warn(at.key("client_address"), "never takes effect: mode is none")
	}
}

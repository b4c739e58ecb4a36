package route

import "time"

// Health says when a deployment, or what deployments share, is let out of use and back in. Zero fields take their
// value of DefaultHealth.
type Health struct {
	Window            time.Duration // results older than this say nothing about rates
	MinRequests       int           // results in the window before a rate may open anything
	ErrorRate         float64       // share of failures in the window that opens
	TripAfter         int           // failures in a row that open
	ResetAfter        time.Duration // how long the first opening lasts; the n-th in a row lasts n times as long
	LongestReset      time.Duration // and at most this; as long without an opening starts the count anew
	SlowStart         time.Duration // ramp after a return; 0 = 2 × ResetAfter, negative = none
	MaxEjection       float64       // rates and slowness take nobody out, or make less used, when more than this share of a pool were
	PanicThreshold    float64       // when less than this share of a pool is in use, breakers are passed over; 0 = never
	TTFTThreshold     time.Duration // small requests and probes that take longer make a deployment less used; 0 = off
	TTFTOpen          time.Duration // and if they take longer than this, it is down for who waits
	RateLimitPause    time.Duration // pause after a 429 that names no time
	LongestRetryAfter time.Duration // the longest pause that upstream may ask for
	CredentialRetry   time.Duration // time out after a refused credential or an empty account
	UnhealthyProbes   int           // probes that fail in a row and open
	HealthyProbes     int           // probes that succeed in a row and close

	seed uint64 // Options.Seed
}

// DefaultHealth holds the defaults. Its reset times are those of Envoy's outlier detection (base_ejection_time 30 s,
// max_ejection_time 300 s).
var DefaultHealth = Health{
	Window: 30 * time.Second, MinRequests: 10, ErrorRate: 0.5, TripAfter: 5,
	ResetAfter: 30 * time.Second, LongestReset: 300 * time.Second, MaxEjection: 0.5,
	TTFTOpen: 30 * time.Second, RateLimitPause: time.Second, LongestRetryAfter: time.Minute, CredentialRetry: 5 * time.Minute,
	UnhealthyProbes: 3, HealthyProbes: 2,
}

// minFailures is how many failures a window needs, whatever their share, before it opens anything.
const minFailures = 5

// limitedShare is the share of 429s in the window that opens when nobody says for how long.
const limitedShare = 0.5

// Times out of an endpoint where nobody answers: the time doubles, since such an outage is seen from outside too and
// ends then (see Router.Observe).
const (
	firstOutage = time.Second
	loadPause   = time.Second // how long a deployment that loads its model is left alone
)

func (h Health) withDefaults() Health {
	d := DefaultHealth
	orElse(&h.Window, d.Window)
	h.Window = max(h.Window, windowCells) // no cell is shorter than the clock's grain
	orElse(&h.MinRequests, d.MinRequests)
	orElse(&h.ErrorRate, d.ErrorRate)
	orElse(&h.TripAfter, d.TripAfter)
	orElse(&h.ResetAfter, d.ResetAfter)
	orElse(&h.LongestReset, d.LongestReset)
	h.LongestReset = max(h.LongestReset, h.ResetAfter)
	orElse(&h.SlowStart, 2*h.ResetAfter)
	h.SlowStart = max(h.SlowStart, 0)
	orElse(&h.MaxEjection, d.MaxEjection)
	orElse(&h.TTFTOpen, d.TTFTOpen)
	orElse(&h.RateLimitPause, d.RateLimitPause)
	orElse(&h.LongestRetryAfter, d.LongestRetryAfter)
	orElse(&h.CredentialRetry, d.CredentialRetry)
	orElse(&h.UnhealthyProbes, d.UnhealthyProbes)
	orElse(&h.HealthyProbes, d.HealthyProbes)
	return h
}

func orElse[T int | float64 | time.Duration](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}

// Fault says what a DeploymentFault is about.
type Fault uint8

// The faults. A Failure is counted; all others say what is the matter at once.
const (
	Failure       Fault = iota // an error: a 5xx, an answer that breaks off, one of our deadlines
	RateLimited                // 429: a quota is used up, nothing is ill
	Unreachable                // nobody answers at the address: refused, no TLS
	Reset                      // a new connection broke before any byte of an answer
	BrokeOff                   // the connection broke amid the answer: counted, but many at once are one thing, a process that died
	BadCredential              // our credential was refused
	Exhausted                  // the account behind the credential is empty
	NotServed                  // the endpoint does not know the model
	Loading                    // the model is being loaded
)

func (f Fault) String() string {
	return [...]string{"failure", "rate_limited", "unreachable", "reset", "broke_off", "bad_credential", "exhausted", "not_served", "loading"}[f]
}

// Rule is why a breaker opened.
type Rule string

// The rules.
const (
	RuleNone        Rule = ""
	RuleConsecutive Rule = "consecutive_failures"
	RuleErrorRate   Rule = "error_rate"
	RuleSlow        Rule = "slow"
	RuleRateLimited Rule = "rate_limited" // 429s without a time
	RuleUnreachable Rule = "unreachable"
	RuleReset       Rule = "reset" // connections that broke
	RuleCredential  Rule = "credential"
	RuleNotServed   Rule = "not_served"
	RuleProbe       Rule = "probe"
)

// ofProcess reports whether what opened by a rule was the matter of a process, and is over when that is: not so a refused
// credential, and a quota that is used up.
func (r Rule) ofProcess() bool { return r != RuleCredential && r != RuleRateLimited }

// passable reports whether a panic may pass over an opening: not if it is certain that nothing comes of it.
func (r Rule) passable() bool { return r != RuleCredential && r != RuleNotServed }

// ofProbes reports whether a probe tells as much as a request that what opened by a rule is over.
func (r Rule) ofProbes() bool {
	return r == RuleProbe || r == RuleUnreachable || r == RuleReset || r == RuleSlow
}

// BreakerState is what a deployment, or what deployments share, lets through.
type BreakerState uint8

// The states.
const (
	Closed    BreakerState = iota // all requests
	Degraded                      // a part of its share: it is slow, or a probe is not content with it
	SlowStart                     // a growing part of its share: it is just back
	HalfOpen                      // one trial at a time
	Cooling                       // none until the time that upstream asked for
	Open                          // none until its time is over
	Drained                       // none, by order; what runs may finish
	Disabled                      // none, by order
)

var stateNames = [...]string{"closed", "degraded", "slow_start", "half_open", "cooling", "open", "drained", "disabled"}

func (s BreakerState) String() string { return stateNames[s] }

// States returns all states in order.
func States() []BreakerState {
	return []BreakerState{Closed, Degraded, SlowStart, HalfOpen, Cooling, Open, Drained, Disabled}
}

// Out reports whether the state lets nothing through but trials.
func (s BreakerState) Out() bool { return s >= HalfOpen }

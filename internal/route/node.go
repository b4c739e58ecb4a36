package route

import (
	"time"

	"evenkeel/internal/quota"
)

// key identifies live state: the same name at another URL is another thing.
type key struct {
	kind byte // 'd' for a deployment, 'e' for an engine, 's'+ScopeKind for scopes
	name string
	url  string
}

// unit is what deployments and scopes have in common: limits, what is in use, and a breaker.
// All fields are guarded by Router.mu.
type unit struct {
	// What every decision looks at comes first, side by side: of many deployments, each line of memory counts.
	limits   Limits
	inFlight int
	tokens   int    // reserved: prompt plus expected output of what is in flight
	blocked  uint64 // the sweep in which an earlier waiter claimed the next room here
	breaker  breaker

	key      key
	label    string // for people: "endpoint gpu-1"; "" for a deployment
	requests quota.Bucket
	volume   quota.Bucket // tokens
	member   bool
	sharers  []*node // of a scope: the deployments of the fleet that share it
}

// setLimits replaces the limits. What was used of them stays used.
func (u *unit) setLimits(now time.Time, l Limits) {
	if u.limits.RPM != l.RPM {
		u.requests.SetPerMinute(now, l.RPM)
	}
	if u.limits.TPM != l.TPM {
		u.volume.SetPerMinute(now, l.TPM)
	}
	u.limits = l
}

// full says by which limit a request of this many tokens has no room now, and how long until it has, if that comes by
// time alone. A request larger than the limit of tokens is admitted when nothing else runs, else it could never be served.
func (u *unit) full(now time.Time, tokens int) (Cut, time.Duration) {
	l := &u.limits
	if l.InFlight > 0 && u.inFlight >= l.InFlight {
		return CutInFlight, 0
	}
	if l.Tokens > 0 && u.inFlight > 0 {
		if u.tokens+tokens > l.Tokens {
			return CutTokens, 0
		}
		if u.breaker.ramp > 0 { // a recovery that met the whole load at once would be the next outage
			if part := u.breaker.rampShare(now); part < 1 && float64(u.tokens+tokens) > part*float64(l.Tokens) {
				return CutTokens, 0
			}
		}
	}
	if l.RPM > 0 || l.TPM > 0 {
		if wait := max(u.requests.Wait(now, 1), u.volume.Wait(now, float64(tokens))); wait > 0 {
			return CutQuota, wait
		}
	}
	return CutNone, 0
}

// node is the live state of one deployment. It outlives membership in the fleet: what left stays until
// its last lease ends, and if it comes back before, it comes back with its state.
type node struct {
	// What every decision looks at comes first, as in unit.
	units []*unit // its own and its scopes'; all must be eligible. Leases hold their own pointers
	work  int     // outstanding token work: not yet prefilled prompt plus expected output not yet seen
	ttft  estimate
	*engine
	off    mean    // of forecasts, as Outlook.Error
	regret mean    // see Foresight
	failed decayed // failures of late, which count as load: who fails fast is not idle
	recent recent
	unit

	dep    *Deployment // newest description
	pace   pace
	picked time.Time
	heard  time.Time // when it last answered, or went on answering

	served, fingerprint string // as the last answer that named them says
	drifts              uint64 // how often they changed

	totals Totals
}

// Totals count a deployment's attempts since it joined.
type Totals struct {
	Picks, Successes, Faults, Neutral uint64
}

// Tuning holds the time constants of what the Router learns about a deployment's speed.
type Tuning struct {
	HalfLife  time.Duration // after this long without news an old value has weight one half
	ColdAfter time.Duration // the first sample after this long without one is discounted
}

// DefaultTuning is used where a strategy does not say otherwise.
var DefaultTuning = Tuning{HalfLife: 10 * time.Second, ColdAfter: time.Minute}

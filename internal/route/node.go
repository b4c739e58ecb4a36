package route

import "time"

// key identifies live state: the same name at another URL is another thing.
type key struct {
	kind byte // 'd' for a deployment, 's'+ScopeKind for scopes
	name string
	url  string
}

// unit is what deployments and scopes have in common: limits, what is in use, and a breaker.
// All fields are guarded by Router.mu.
type unit struct {
	key      key
	label    string // for people: "endpoint gpu-1"; "" for a deployment
	limits   Limits
	inFlight int
	tokens   int // reserved: prompt plus expected output of what is in flight
	member   bool
	breaker  breaker
	blocked  uint64 // the sweep in which an earlier waiter claimed the next room here
}

// fits reports whether a request of this many tokens has room. A request larger than the limit is
// admitted when nothing else runs, else it could never be served.
func (u *unit) fits(tokens int) bool {
	if u.limits.InFlight > 0 && u.inFlight >= u.limits.InFlight {
		return false
	}
	if u.limits.Tokens > 0 && u.tokens+tokens > u.limits.Tokens && u.inFlight > 0 {
		return false
	}
	return true
}

// node is the live state of one deployment. It outlives membership in the fleet: what left stays until
// its last lease ends, and if it comes back before, it comes back with its state.
type node struct {
	unit
	dep    *Deployment // newest description
	units  []*unit     // its own and its scopes'; all must be eligible. Leases hold their own pointers
	work   int         // outstanding token work: not yet prefilled prompt plus expected output not yet seen
	ttft   estimate
	served string // model string of the last answer
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

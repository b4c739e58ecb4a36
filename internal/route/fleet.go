package route

import "fmt"

// DefaultTokens is the limit of reserved tokens per deployment when neither the configuration nor the
// engine says how many its KV cache holds.
const DefaultTokens = 100_000

// Limits bound what may run at once. 0 means no limit.
type Limits struct {
	InFlight int // requests
	Tokens   int // prompt tokens plus expected output tokens; a larger single request is admitted when idle
}

// Scope is what several deployments share, such as their endpoint: its limits and its breaker hold for
// all of them together. A scope is identified by Kind, Name and URL.
type Scope struct {
	Kind   ScopeKind
	Name   string
	URL    string
	Limits Limits
}

// ScopeKind says what a scope stands for.
type ScopeKind uint8

// The kinds of scope.
const (
	EndpointScope ScopeKind = iota
	CredentialScope
)

func (k ScopeKind) String() string {
	switch k {
	case EndpointScope:
		return "endpoint"
	case CredentialScope:
		return "credential"
	}
	return fmt.Sprintf("scope(%d)", uint8(k))
}

// Deployment describes one model served at one endpoint with one credential: the unit that is picked,
// measured, broken and limited. It is immutable once it was given to the Router. Its live state is found
// by ID and URL, so that the same name at a new URL starts fresh.
type Deployment struct {
	ID       string  // endpoint/model, or endpoint#key/model
	Endpoint string  // endpoint name, without a slash
	URL      string  // base URL of the endpoint
	Model    string  // the name upstream knows the model by
	Weight   float64 // relative capacity, > 0; 0 = never picked
	Limits   Limits  // of this deployment alone
	Scopes   []Scope // at most MaxScopes; all must be eligible too
}

// MaxScopes is the most scopes one deployment may have.
const MaxScopes = 3

// PoolSpec says which deployments serve one model, and how one of them is chosen.
type PoolSpec struct {
	Model       string
	Deployments []Deployment
	Strategy    Strategy
}

// pool is a PoolSpec bound to live state. Its spec parts never change; its run is guarded by Router.mu.
type pool struct {
	model    string
	nodes    []*node
	strategy Strategy
	tuning   Tuning
	stats    *modelStats
	run      run
}

// run counts picks since the set of eligible nodes last changed. Strategies that promise exact shares
// need it; it is kept here so that strategies stay free of state.
type run struct {
	members []*node
	picks   []int64
	total   int64
}

func (r *run) is(eligible []*node) bool {
	if len(r.members) != len(eligible) {
		return false
	}
	for i, n := range eligible {
		if r.members[i] != n {
			return false
		}
	}
	return true
}

func (r *run) chosen(eligible []*node, i int) {
	if !r.is(eligible) {
		r.members = append(r.members[:0], eligible...)
		r.picks = append(r.picks[:0], make([]int64, len(eligible))...)
		r.total = 0
	}
	r.picks[i]++
	r.total++
}

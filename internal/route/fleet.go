package route

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// DefaultTokens is the limit of reserved tokens per deployment when neither the configuration nor the
// engine says how many its KV cache holds.
const DefaultTokens = 100_000

// Limits bound what may run at once. 0 means no limit.
type Limits struct {
	InFlight int // requests
	Tokens   int // prompt tokens plus expected output tokens; a larger single request is admitted when idle
	RPM      int // requests per minute, as a token bucket that holds a minute's worth
	TPM      int // tokens per minute, likewise; charged with the estimate, settled with what the engine reports
}

func (l Limits) negative() bool { return l.InFlight < 0 || l.Tokens < 0 || l.RPM < 0 || l.TPM < 0 }

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
	Rank     string  // of the endpoint's data-parallel ranks the one that serves it, "" = it has one engine, or chooses itself
	Base     string  // ID of the deployment of the model that this one is an adapter (LoRA) of, "" = it is none: one engine serves both
	Domain   string  // failure domain: what is likely to fail together has the same, such as a host; "" = its own
	Cache    int     // tokens that its prefix cache holds, 0 = not known
	Weight   float64 // relative capacity, from 1e-6 to 1e9; 0 = never picked
	Price    Price
	Limits   Limits  // of this deployment alone
	Scopes   []Scope // at most MaxScopes; all must be eligible too
}

// shares reports whether two deployments have an endpoint, a credential or another scope in common.
func (d *Deployment) shares(o *Deployment) bool {
	return d.Endpoint == o.Endpoint || slices.ContainsFunc(d.Scopes, func(s Scope) bool {
		return slices.ContainsFunc(o.Scopes, func(t Scope) bool { return s.key() == t.key() })
	})
}

func (d *Deployment) key() key { return key{'d', d.ID, d.URL} }

// engine is the key of the engine that serves it.
func (d *Deployment) engine() key { return key{'e', cmp.Or(d.Base, d.ID), d.URL} }

// called reports whether a name that a client pins or excludes stands for the deployment: its own, that of its endpoint, or that of its rank.
func (d *Deployment) called(name string) bool {
	if name == d.ID || name == d.Endpoint {
		return true
	}
	rank, found := strings.CutPrefix(name, d.Endpoint+"#")
	return found && d.Rank != "" && rank == d.Rank
}

func (s *Scope) key() key { return key{scopeKey(s.Kind), s.Name, s.URL} }

func scopeKey(k ScopeKind) byte { return 's' + byte(k) }

// The range of weights: sums and quotients of them stay exact enough.
const (
	minWeight = 1e-6
	maxWeight = 1e9
)

// MaxScopes is the most scopes one deployment may have.
const MaxScopes = 3

// PoolSpec says which deployments serve one model, and how one of them is chosen.
type PoolSpec struct {
	Model       string
	Deployments []Deployment
	Strategy    Strategy
	Affinity    Affinity
}

// pool is a PoolSpec bound to live state. Guarded by Router.mu.
type pool struct {
	model    string
	members  []member
	strategy Strategy
	tuning   Tuning
	steady   bool // see Steady
	strain   strain
	stats    *modelStats
	fleet    fleetMedian
	foresees bool   // see Foresighted
	holder   Holder // nil = nothing is held
	look     look
	affinity Affinity
	runs     []run // the last one used first
	picks    uint64
}

// member is what belongs to a deployment and a pool together. A deployment may serve several models.
type member struct {
	node     *node
	dep      *Deployment // as this pool describes it
	lastPick uint64      // Router.picks when this pool last chose it, 0 = never
	turn     uint64      // pool.picks then
}

const (
	maxRuns = 32   // sets of eligible members that a pool remembers
	runIdle = 1000 // picks of the pool after which a set that was not eligible meanwhile may be forgotten
)

// run counts the picks made while one set of members was eligible. Strategies that promise exact shares need
// it; it is kept here so that strategies stay free of state. When a set is eligible again its run goes on:
// shares come out right however often members come and go, and one who comes back has nothing to catch up.
type run struct {
	set   []share
	picks []int64
	total int64
	used  uint64 // pool.picks when it was last used
}

type share struct {
	node   *node
	weight float64
}

func (r *run) isOf(eligible []*member) bool {
	if len(r.set) != len(eligible) {
		return false
	}
	for i, m := range eligible {
		if r.set[i] != (share{m.node, m.dep.Weight}) {
			return false
		}
	}
	return true
}

// run returns the run of a set of members and makes it the last one used, or nil if there are too many to
// remember this one (runs cut short after a pick or two would favour the heavy) or if it was chosen for the request's sake.
func (p *pool) run(eligible []*member, kept bool) *run {
	p.picks++
	if kept {
		return nil
	}
	at := 0
	for at < len(p.runs) && !p.runs[at].isOf(eligible) {
		at++
	}
	if at == len(p.runs) {
		switch {
		case at < maxRuns:
			p.runs = append(p.runs, run{})
		case p.picks-p.runs[at-1].used > runIdle:
			at--
		default:
			return nil
		}
		p.runs[at].begin(eligible)
	}
	p.runs[at].used = p.picks
	found := p.runs[at]
	copy(p.runs[1:at+1], p.runs[:at])
	p.runs[0] = found
	return &p.runs[0]
}

func (r *run) begin(eligible []*member) {
	r.set, r.picks, r.total = r.set[:0], r.picks[:0], 0
	for _, m := range eligible {
		r.set = append(r.set, share{m.node, m.dep.Weight})
		r.picks = append(r.picks, 0)
	}
}

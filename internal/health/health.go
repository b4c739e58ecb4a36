// Package health asks deployments and endpoints whether they are well, where the operator wants that: by the health
// pages of known engines, which cost nothing, and by short streamed completions, which do. What it finds goes to
// route.Router.Probed, which weighs it against what requests say. It also reads what engines tell of their load and the size of their
// caches, for route.Router.Signal.
package health

import (
	"net/http"
	"regexp"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/upstream"
)

// Plan says what is probed, how and how often. It is a value that nobody changes any more once it is set.
type Plan struct {
	Interval time.Duration // from one probe of a target to the next; 0 sends none
	Timeout  time.Duration // of one probe
	Prompt   string        // what deployments are asked; empty asks none
	// MaxTokens bounds the answer, in tokens.
	MaxTokens int
	Expect    *regexp.Regexp // what the answer must match; nil takes any
	// PageFailures is how many pages in a row must complain before they are believed.
	PageFailures int
	// Signals is from one question for an engine's load to the next; 0 asks none. Longer where the answer takes long.
	Signals   time.Duration
	Endpoints []Endpoint
}

// Endpoint is a base URL and what is served there.
type Endpoint struct {
	Name, URL string
	Kind      llm.Kind
	Header    http.Header // what all probes carry: the credential, and what the kind wants to see. Only read
	Caller    Caller
	// Ranks are the data-parallel ranks that requests are sent to, by number from 0 on; 0 where the server chooses.
	Ranks int
	// Deployments are all that the endpoint serves: its page speaks of them all.
	Deployments []Deployment
}

// Deployment is one model at an endpoint.
type Deployment struct {
	ID, Model string
	// Parts are the IDs of the deployments that it stands for where there is one for each rank, which are asked together; nil = itself.
	Parts  []string
	Scopes []route.Scope // what it shares with others: while one is out, nothing is asked
	Ask    bool          // whether it is sent completions
}

// all are the IDs that the Router knows.
func (d *Deployment) all() []string {
	if d.Parts == nil {
		return []string{d.ID}
	}
	return d.Parts
}

// Caller sends a request, as upstream.Endpoint does.
type Caller interface {
	Do(*upstream.Stop, *upstream.Request) (*http.Response, error)
}

// Verdict is what one probe came to.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "ok"
	Missed  Verdict = "missed"  // it answers, and not as it should
	Failed  Verdict = "failed"  // it does not answer
	Unknown Verdict = "unknown" // neither up nor down: a quota is used up, there is no such page, it cannot be asked like this
)

// Result is one probe that has ended.
type Result struct {
	Page          bool   // of an endpoint's page, else a completion of a deployment
	Name          string // of the endpoint, or ID of the deployment
	Verdict       Verdict
	Reason        string        // why it is not OK, of a fixed set: an error class or one of those below
	Said          string        // of one that was missed: how the answer begins, without what the model thought
	Expected      string        // and what it should match
	Before        Verdict       // of the one before, "" = it is the first
	Changed       bool          // the one before came to another verdict or had another reason
	TTFT          time.Duration // 0 = not measured
	Input, Output int           // tokens, of a completion

	unreachable bool // nobody answers at the address
	believed    bool // so many pages in a row have complained that it is so
}

// Reasons beside the names of error classes.
const (
	unreachable = "unreachable"  // nobody answers at the address
	mismatch    = "probe_expect" // the answer does not match
	complains   = "health_page"  // the page says that something is the matter
	noPage      = "no_page"      // there is none at the path
	noFiles     = "no_files"     // this process may open no more
)

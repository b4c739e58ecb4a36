package route

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// first takes the first candidate: tests of what comes before and after ranking need no more.
type first struct{}

func (first) Pick(*Round) int { return 0 }

// seeded takes any candidate.
type seeded struct{}

func (seeded) Pick(r *Round) int { return r.IntN(len(r.Candidates)) }

// dep describes id ("endpoint/model") with weight 1 and an unlimited scope for its endpoint.
func dep(id string, limits Limits) Deployment { return depWith(id, limits, Limits{}) }

func depWith(id string, own, endpoint Limits) Deployment {
	name, model := id, ""
	for i := range id {
		if id[i] == '/' {
			name, model = id[:i], id[i+1:]
			break
		}
	}
	s := scope(name)
	s.Limits = endpoint
	return Deployment{ID: id, Endpoint: name, URL: s.URL, Model: model, Weight: 1, Limits: own, Scopes: []Scope{s}}
}

func scope(endpoint string) Scope {
	return Scope{Kind: EndpointScope, Name: endpoint, URL: "http://" + endpoint}
}

func pool1(model string, deps ...Deployment) PoolSpec {
	return PoolSpec{Model: model, Strategy: first{}, Deployments: deps}
}

func newRouter(t testing.TB, specs ...PoolSpec) *Router {
	t.Helper()
	r := New(Options{})
	adopt(t, r, start, specs...)
	return r
}

// newRouterWith is newRouter with health rules of its own.
func newRouterWith(t testing.TB, h Health, specs ...PoolSpec) *Router {
	t.Helper()
	r := New(Options{Health: h})
	adopt(t, r, start, specs...)
	return r
}

func adopt(t testing.TB, r *Router, now time.Time, specs ...PoolSpec) {
	t.Helper()
	if _, err := r.Adopt(now, specs); err != nil {
		t.Fatal(err)
	}
}

// query asks for a model with a prompt of about 10 tokens and an answer of at most 10.
func query(model string) Query {
	return Query{Model: model, Facts: &Facts{Model: model, PromptBytes: 38, MaxOutput: 10}}
}

func tokens(model string, n int) Query {
	return Query{Model: model, Facts: &Facts{Model: model, MaxOutput: n}}
}

func pinned(model, id string) Query {
	q := query(model)
	q.Facts.Pin = id
	return q
}

func mustPick(t testing.TB, r *Router, now time.Time, q Query) *Lease {
	t.Helper()
	l, refusal := r.Pick(now, q)
	if l == nil {
		t.Fatalf("pick of %s was refused: %v, cuts %v", q.Model, refusal.Kind, refusal.Decision.CutCounts())
	}
	return l
}

func mustRefuse(t testing.TB, r *Router, now time.Time, q Query, want RefusalKind) *Refusal {
	t.Helper()
	l, refusal := r.Pick(now, q)
	if l != nil {
		t.Fatalf("pick of %s got %s, want refusal %v", q.Model, l.Deployment().ID, want)
	}
	if refusal.Kind != want {
		t.Fatalf("pick of %s was refused as %v, want %v; cuts %v", q.Model, refusal.Kind, want, refusal.Decision.CutCounts())
	}
	return refusal
}

// waiter is a Ticket with a count of its wake-ups.
type waiter struct {
	*Ticket
	woken int
}

func wait(t testing.TB, r *Router, now time.Time, q Query) *waiter {
	t.Helper()
	w := &waiter{}
	ticket, refusal := r.Wait(now, q, func() { w.woken++ })
	if refusal != nil {
		t.Fatalf("waiting was refused: %v", refusal.Kind)
	}
	w.Ticket = ticket
	return w
}

func (w *waiter) mustWait(t testing.TB) {
	t.Helper()
	if l, f := w.Result(); l != nil || f != nil || w.woken != 0 {
		t.Fatalf("lease %v, refusal %v, woken %d times; want it to wait", l, f, w.woken)
	}
}

func (w *waiter) mustGet(t testing.TB) *Lease {
	t.Helper()
	l, f := w.Result()
	if l == nil || f != nil || w.woken != 1 {
		t.Fatalf("lease %v, refusal %v, woken %d times; want a lease and one wake-up", l, f, w.woken)
	}
	return l
}

func success() Outcome { return Outcome{Verdict: Success, Answered: true, Status: 200} }

func broken() Outcome {
	return Outcome{Verdict: DeploymentFault, Class: "upstream_5xx", Answered: true, Status: 500}
}

func unreachable() Outcome {
	return Outcome{Verdict: DeploymentFault, Class: "connect", Fault: Unreachable}
}

// fault is a DeploymentFault that is about f, answered unless nobody could.
func fault(f Fault) Outcome {
	return Outcome{Verdict: DeploymentFault, Class: f.String(), Fault: f, Answered: f != Unreachable && f != Reset}
}

// asked is a fault whose answer says for how long to stay away.
func asked(f Fault, retryAfter time.Duration) Outcome {
	o := fault(f)
	o.RetryAfter = retryAfter
	return o
}

// took is a streamed success.
func took(ttft time.Duration) Outcome {
	o := success()
	o.TTFT = ttft
	return o
}

// end ends n requests to a deployment, one after the other, with the outcome.
func end(t testing.TB, r *Router, now time.Time, id string, n int, o Outcome) {
	t.Helper()
	for range n {
		mustPick(t, r, now, pinned("m", id)).Done(now, o)
	}
}

// at is the time d after start.
func at(d time.Duration) time.Time { return start.Add(d) }

func state(t testing.TB, r *Router, now time.Time, id string) BreakerState {
	t.Helper()
	return node1(t, r, now, id).Breaker.State
}

// cutOf returns why a deployment was cut in a decision.
func cutOf(t testing.TB, d *Decision, id string) Cut {
	t.Helper()
	for _, c := range d.Candidates {
		if c.ID == id {
			return c.Cut
		}
	}
	t.Fatalf("%s is no candidate", id)
	return CutNone
}

func left() Outcome { return Outcome{Class: "client_gone"} }

func node1(t testing.TB, r *Router, now time.Time, id string) DeploymentView {
	t.Helper()
	for _, d := range r.View(now).Deployments {
		if d.ID == id {
			return d
		}
	}
	t.Fatalf("no deployment %s", id)
	return DeploymentView{}
}

func scopeView(t testing.TB, r *Router, now time.Time, name string) ScopeView {
	t.Helper()
	for _, s := range r.View(now).Scopes {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no scope %s", name)
	return ScopeView{}
}

// mustBeIdle fails if anything is still counted anywhere.
func mustBeIdle(t testing.TB, r *Router, now time.Time) {
	t.Helper()
	v := r.View(now)
	for _, d := range v.Deployments {
		if d.InFlight != 0 || d.Tokens != 0 || d.Work != 0 {
			t.Errorf("%s still counts in-flight %d, tokens %d, work %d", d.ID, d.InFlight, d.Tokens, d.Work)
		}
	}
	for _, s := range v.Scopes {
		if s.InFlight != 0 || s.Tokens != 0 {
			t.Errorf("%v %s still counts in-flight %d, tokens %d", s.Kind, s.Name, s.InFlight, s.Tokens)
		}
	}
	for k, e := range r.engines {
		if e.line.waiting != 0 || e.line.charged != 0 || e.running != 0 || e.held != 0 || e.ahead != 0 {
			t.Errorf("%s: %d prompts of %v s still stand in its line, %d run, with %d tokens, %d of them ahead", k.name, e.line.waiting, e.line.charged, e.running, e.held, e.ahead)
		}
	}
	if len(v.Waiting) != 0 || len(r.queues) != 0 {
		t.Errorf("still waiting: %v in %d queues", v.Waiting, len(r.queues))
	}
}

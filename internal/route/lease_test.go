package route

import (
	"math"
	"testing"
	"time"
)

// TestDoneTwiceCountsOnce, and nothing that comes after Done counts at all.
func TestDoneTwiceCountsOnce(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	other := mustPick(t, r, start, query("m"))
	l := mustPick(t, r, start, query("m"))
	l.Done(start, success())
	before := node1(t, r, start, "a/m")
	for range 5 {
		l.Done(start, broken())
		l.FirstToken(start)
		l.Progress(at(time.Minute), 1_000_000)
	}
	if after := node1(t, r, start, "a/m"); after != before {
		t.Errorf("changed from %+v to %+v", before, after)
	}
	if before.InFlight != 1 || before.Tokens != 20 || before.Work != 20 {
		t.Errorf("the other request counts as %+v, want in-flight 1, 20 tokens, work 20", before)
	}
	other.Done(start, left())
	mustBeIdle(t, r, start)
	if got := node1(t, r, start, "a/m").Totals; got != (Totals{Picks: 2, Successes: 1, Neutral: 1}) {
		t.Errorf("totals %+v", got)
	}
}

// TestLeaveAndReturnKeepsTheLimit: a deployment that leaves the fleet and returns while its requests run
// never runs more than its limit.
func TestLeaveAndReturnKeepsTheLimit(t *testing.T) {
	spec := pool1("m", depWith("a/m", Limits{InFlight: 2}, Limits{InFlight: 2}))
	r := newRouter(t, spec)
	one, two := mustPick(t, r, start, query("m")), mustPick(t, r, start, query("m"))
	mustRefuse(t, r, start, query("m"), Saturated)

	adopt(t, r, start)
	mustRefuse(t, r, start, query("m"), NoModel)
	if d := node1(t, r, start, "a/m"); d.Member || d.InFlight != 2 {
		t.Errorf("away: member %v, in-flight %d, want no, 2", d.Member, d.InFlight)
	}
	one.Done(start, success()) // away
	adopt(t, r, start, spec)
	three := mustPick(t, r, start, query("m"))
	mustRefuse(t, r, start, query("m"), Saturated)

	// The same name at a new URL is another thing: it starts fresh, and the old one's requests end where they began.
	moved := spec.Deployments[0]
	moved.URL, moved.Scopes = "http://elsewhere", []Scope{{Kind: EndpointScope, Name: "a", URL: "http://elsewhere", Limits: Limits{InFlight: 2}}}
	adopt(t, r, start, pool1("m", moved))
	four := mustPick(t, r, start, query("m"))
	two.Done(start, success())
	mustPick(t, r, start, query("m")).Done(start, success())
	three.Done(start, success())
	four.Done(start, success())
	mustBeIdle(t, r, start)
	if n := len(r.View(start).Deployments); n != 1 {
		t.Errorf("%d deployments are remembered, want 1", n)
	}
}

func TestOversizeIsAdmittedOnlyWhenIdle(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{Tokens: 100})))
	huge := mustPick(t, r, start, tokens("m", 5000))
	refusal := mustRefuse(t, r, start, tokens("m", 1), Saturated)
	if c := refusal.Decision.Candidates[0].Cut; c != CutTokens {
		t.Errorf("cut is %q, want %q", c, CutTokens)
	}
	huge.Done(start, success())

	small := mustPick(t, r, start, tokens("m", 1))
	mustRefuse(t, r, start, tokens("m", 5000), Saturated)
	exact := mustPick(t, r, start, tokens("m", 99))
	mustRefuse(t, r, start, tokens("m", 1), Saturated)
	small.Done(start, success())
	exact.Done(start, success())
	mustPick(t, r, start, tokens("m", 5000)).Done(start, success())
	mustBeIdle(t, r, start)
}

// TestEndpointLimitHoldsOverModels: what two models run at one endpoint counts together.
func TestEndpointLimitHoldsOverModels(t *testing.T) {
	both := Limits{InFlight: 2}
	r := newRouter(t, pool1("m", depWith("a/m", Limits{}, both)), pool1("n", depWith("a/n", Limits{}, both)))
	m, n := mustPick(t, r, start, query("m")), mustPick(t, r, start, query("n"))
	for _, model := range []string{"m", "n"} {
		refusal := mustRefuse(t, r, start, query(model), Saturated)
		if c := refusal.Decision.Candidates[0]; c.Cut != CutInFlight || c.CutBy != "endpoint a" {
			t.Errorf("%s is cut by %q %q, want the endpoint's in-flight limit", model, c.Cut, c.CutBy)
		}
	}
	m.Done(start, success())
	mustPick(t, r, start, query("n")).Done(start, success())
	n.Done(start, success())
	mustBeIdle(t, r, start)
}

// TestOutstandingWork: a prompt's work ends with the first token, output's as it is produced, all of it at Done.
func TestOutstandingWork(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	q := query("m")
	q.Facts.PromptBytes, q.Facts.MaxOutput = 380, 50
	l := mustPick(t, r, start, q)
	f := func(what string, work, tokens int) {
		t.Helper()
		if d := node1(t, r, start, "a/m"); d.Work != work || d.Tokens != tokens {
			t.Errorf("%s: work %d, tokens %d, want %d, %d", what, d.Work, d.Tokens, work, tokens)
		}
	}
	f("picked", 150, 150)
	l.Progress(at(100*time.Millisecond), 10)
	f("too soon to be told", 150, 150)
	l.FirstToken(at(time.Second))
	f("first token", 50, 150)
	l.FirstToken(at(time.Second))
	f("first token again", 50, 150)
	l.Progress(at(1249*time.Millisecond), 20)
	f("too soon again", 50, 150)
	l.Progress(at(1250*time.Millisecond), 20)
	f("20 tokens", 30, 150)
	l.Progress(at(2*time.Second), 80)
	f("more than expected", 0, 180)
	l.Done(at(2*time.Second), success())
	f("done", 0, 0)
}

// TestAbsurdTokenCounts: no number that a client or an engine names may upset the sums.
func TestAbsurdTokenCounts(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{Tokens: 1000})))
	for _, n := range []int{math.MaxInt, math.MaxInt - 100, math.MinInt, -1, 1 << 62, 0} {
		q := Query{Model: "m", Facts: &Facts{PromptBytes: n, MaxOutput: n}}
		l := mustPick(t, r, start, q)
		if d := node1(t, r, start, "a/m"); d.Tokens <= 0 || d.Work <= 0 {
			t.Errorf("%d: tokens %d, work %d, want more than 0", n, d.Tokens, d.Work)
		}
		if n > 0 {
			mustRefuse(t, r, start, query("m"), Saturated)
		}
		l.FirstToken(start)
		l.Progress(at(time.Second), n)
		l.Progress(at(time.Minute), -n)
		o := success()
		o.Reported, o.InputTokens, o.OutputTokens = true, n, n
		l.Done(at(time.Minute), o)
		mustBeIdle(t, r, start)
	}
	l := mustPick(t, r, start, Query{Model: "m", Facts: &Facts{PromptBytes: 1000}})
	if p, o := l.Decision().Prompt, l.Decision().Output; p < 0 || p > mostTokens || o < 0 || o > mostTokens {
		t.Errorf("after that, a request is estimated at %d+%d tokens", p, o)
	}
}

// TestEstimatesAreLearned: output from the request's limit, else the learned mean, else 200; bytes per token
// from what engines report.
func TestEstimatesAreLearned(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})), pool1("n", dep("a/n", Limits{})))
	f := func(model string, facts Facts, prompt, output int) *Lease {
		t.Helper()
		l := mustPick(t, r, start, Query{Model: model, Facts: &facts})
		if d := l.Decision(); d.Prompt != prompt || d.Output != output || l.Prompt() != prompt {
			t.Errorf("estimated %d+%d, want %d+%d", d.Prompt, d.Output, prompt, output)
		}
		return l
	}
	used := func(l *Lease, v Verdict, reported bool, in, out int) {
		l.Done(start, Outcome{Verdict: v, Reported: reported, InputTokens: in, OutputTokens: out})
	}
	used(f("m", Facts{PromptBytes: 3800}, 1000, 200), Success, false, 10, 10) // our own estimate teaches nothing
	used(f("m", Facts{PromptBytes: 3800, MaxOutput: 7}, 1000, 7), Success, true, 1900, 100)
	used(f("m", Facts{PromptBytes: 3800}, 1900, 100), Success, true, 1900, 301)
	used(f("m", Facts{PromptBytes: 3800}, 1900, 201), DeploymentFault, true, 0, 9000) // broken off: not a length
	used(f("m", Facts{}, 0, 201), NotDeploymentFault, true, 0, 9000)
	used(f("m", Facts{}, 0, 201), Success, true, 500, 201) // an image, say: no text to compare with
	used(f("m", Facts{PromptBytes: 3800}, 1900, 201), Success, true, 0, 0)
	f("n", Facts{PromptBytes: 3800}, 1000, 200) // another model learned nothing
}

func TestAnswersAreRemembered(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{})))
	o := success()
	o.ServedModel, o.TTFT = "m-2026", 250*time.Millisecond
	mustPick(t, r, start, query("m")).Done(start, o)
	mustPick(t, r, start, query("m")).Done(start, success())
	d := node1(t, r, start, "a/m")
	if d.ServedModel != "m-2026" || d.TTFT != 250*time.Millisecond || d.Model != "m" || d.Endpoint != "a" {
		t.Errorf("view is %+v", d)
	}
}

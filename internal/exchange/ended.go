package exchange

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// ended takes the end of an attempt: it settles the lease and decides what follows.
func (x *Exchange) ended(now time.Time, lane Lane, end *End) {
	f := &x.flights[lane]
	if x.state != flying || f.lease == nil {
		return
	}
	x.judge(f, end)
	o, deployment, won := &end.Outcome, f.lease.Deployment(), x.committed && x.won == lane
	if won && x.rec.Facts.Stream && !x.contentAt.IsZero() {
		o.TTFT = x.contentAt.Sub(f.lease.Begun())
		if o.OutputTokens > 1 && x.lastContent.After(x.contentAt) {
			o.ITL = max(0, x.lastContent.Sub(x.contentAt)-x.blocked) / time.Duration(o.OutputTokens-1)
		}
	}
	x.release(now, f, o)
	switch {
	case x.ending, x.committed && !won:
		x.close(now)
	case f.stopped == stoppedGone:
		x.conclude(now, ClientGone, nil)
	case won && !end.Broken:
		x.conclude(now, resultOf(o.Verdict, end.Class), nil)
	case won:
		failure := x.failureOf(end, f.stopped)
		failure.Cut = true
		x.conclude(now, Cut, failure)
	case o.Verdict == route.Success, o.Verdict == route.NotDeploymentFault && end.Held && !end.Class.Retryable() && !(lane == Hedge && x.running()):
		x.commit(lane)
		x.conclude(now, resultOf(o.Verdict, end.Class), nil)
	default:
		x.failedAt(deployment, lane, end)
		switch {
		case x.running(): // the other one may still win
		case x.mayRepeat(now, end):
			x.try(now)
		default:
			x.giveUp(now)
		}
	}
}

// failedAt notes an attempt that ended without an answer for the client.
func (x *Exchange) failedAt(d *route.Deployment, lane Lane, end *End) {
	f := &x.flights[lane]
	x.last, x.lastLane, x.timeout = end, lane, f.stopped
	x.rec.decisive = f.attempt + 1
	if end.Class == llm.Stale {
		x.stale++ // says nothing about the deployment
		return
	}
	if end.Class == llm.Connect && end.Outcome.Verdict == route.DeploymentFault {
		x.nobody++
	}
	x.tried = append(x.tried, d.ID)
	if d.Domain != "" {
		x.away = append(x.away, d.Domain)
	}
	if after := end.Outcome.RetryAfter; after > 0 && (x.soonest == 0 || after < x.soonest) {
		x.soonest = after
	}
}

// judge overrules what the shell saw where the exchange itself was the cause.
func (x *Exchange) judge(f *flight, end *End) {
	o := &end.Outcome
	switch f.stopped {
	case "":
	case stoppedLost:
		x.judgeLost(f, end)
	case stoppedGone:
		o.Verdict, o.Class, o.Detail = route.NotDeploymentFault, "client_gone", ""
		end.Held = false
	case stoppedShutdown:
		o.Verdict, o.Class, o.Detail = route.NotDeploymentFault, "shutdown", "the balancer shut down"
		end.Class, end.Held, end.Broken = llm.None, false, true
	default:
		if x.committed && f == &x.flights[x.won] && end.Class == llm.None && !end.Broken {
			return // the answer is whole: only the end of it was waited for
		}
		// Our own timeouts count against the deployment, but not a shorter one that the client chose, nor one that had passed
		// for the most part when the attempt began: under overload all who waited end like that.
		o.Verdict = route.DeploymentFault
		if d := x.deadline(); f.stopped == "deadline" && (d == x.plan.ClientDeadline || f.lease.Begun().Sub(x.rec.Started) > d/2) {
			o.Verdict = route.NotDeploymentFault
		}
		end.Class, end.Held, end.Broken = llm.Timeout, false, true
		o.Class, o.Detail = llm.Timeout.String(), fmt.Sprintf("the limit %s of %v passed", f.stopped, x.limit(f.stopped))
		o.Fault = route.Failure
	}
}

// judgeLost words the end of the attempt that lost to the other one. What it cost is known at least in part. If it took
// longer than usual, that is known too: were it forgotten, what is usual would shrink with every hedge, and a deployment
// that always loses would never look slow.
func (x *Exchange) judgeLost(f *flight, end *End) {
	o := &end.Outcome
	o.Verdict, o.Class, o.Detail = route.NotDeploymentFault, "hedge_lost", "the other attempt had content first"
	end.Held = false
	if o.InputTokens == 0 {
		o.InputTokens, o.Reported = f.lease.Prompt(), false
	}
	if p := f.lease.Patience(); p > 0 && !x.contentAt.IsZero() {
		if waited := x.contentAt.Sub(f.lease.Begun()); waited >= p {
			o.Waited = waited
		}
	}
}

// limit is the length of the deadline that passed.
func (x *Exchange) limit(passed string) time.Duration {
	switch d := &x.plan.Deadlines; passed {
	case "first_token":
		return d.FirstToken
	case "between_tokens":
		return d.BetweenTokens
	case "response":
		return d.Response
	}
	return x.deadline()
}

func (x *Exchange) release(now time.Time, f *flight, o *route.Outcome) {
	a := &x.rec.Attempts[f.attempt]
	f.lease.Done(now, *o)
	a.Ended, a.Outcome, a.Drift = now, *o, f.lease.Drift()
	f.lease = nil
}

// mostStale is how many stale connections an exchange may meet before they count as attempts: the next connection to the
// same endpoint is new, and a server that took the request before it closed may have carried it out.
const mostStale = 1

// mostNobody is how many endpoints an exchange may find where nobody answers before they count as attempts. Nobody had to work
// for it, and each is out at once for all others too: a request must not fail since most of a fleet has just died.
const mostNobody = 10

func (x *Exchange) mayRepeat(now time.Time, end *End) bool {
	return end.Class.Retryable() &&
		x.attempts() < x.plan.MaxAttempts &&
		(!end.Sent || x.plan.Repeatable) &&
		!x.deadlinePassed(now)
}

func resultOf(v route.Verdict, c llm.Class) Result {
	switch {
	case v == route.Success:
		return Complete
	case c == llm.ClientFault:
		return ClientFault
	}
	return UpstreamError
}

// giveUp ends the exchange without an answer of success: with upstream's own error if one is at hand, else
// with ours.
func (x *Exchange) giveUp(now time.Time) {
	switch last := x.last; {
	case last != nil && last.Held && !x.sooner(last) && !x.misleads(last):
		x.commit(x.lastLane)
		x.conclude(now, UpstreamError, nil)
	case last != nil && (last.Class != llm.Connect || !x.awaited()):
		x.conclude(now, Failed, x.failureOf(last, x.timeout))
	case x.failed != nil:
		x.conclude(now, Refused, refusalOf(x.failed, x.rec.Facts.Pin))
	default:
		x.conclude(now, Refused, &Failure{Status: 503, Code: "evenkeel_queue_timeout", RetryIn: 1000,
			Message: fmt.Sprintf("No deployment of model %q had room within the deadline of %v.", x.plan.Models[x.model], x.deadline())})
	}
}

// sooner reports whether somebody who was asked before may be asked again sooner than this answer of upstream's says.
func (x *Exchange) sooner(last *End) bool {
	return last.Class == llm.RateLimited && x.soonest > 0 && x.soonest < last.Outcome.RetryAfter
}

// awaited reports whether a deployment has asked to be left alone, for its model is being loaded or a limit is reached: then
// there is something to wait for, and that another one is not there is not what a client should hear.
func (x *Exchange) awaited() bool {
	return x.failed != nil && slices.ContainsFunc(x.failed.Decision.CutCounts(), func(c route.CutCount) bool { return c.Cut == route.CutCooling })
}

// misleads reports whether upstream's answer says that it does not know the model, while another deployment has failed in
// another way, or is out: a client must not take that for the last word.
func (x *Exchange) misleads(last *End) bool {
	if last.Class != llm.NotServed {
		return false
	}
	asked := map[string]bool{}
	for i := range x.rec.Attempts {
		a := &x.rec.Attempts[i]
		asked[a.Deployment] = true
		if c := a.Outcome.Class; c != llm.NotServed.String() && c != llm.Stale.String() {
			return true
		}
	}
	return x.failed != nil && slices.ContainsFunc(x.failed.Decision.Candidates, func(c route.Candidate) bool {
		return !asked[c.ID] && (c.Cut == route.CutOpen || c.Cut == route.CutTrial || c.Cut == route.CutCooling)
	})
}

// conclusion is what comes of an exchange.
type conclusion struct {
	result  Result
	failure *Failure // for the client, if the result is one of ours
}

// conclude ends the exchange as soon as nothing runs any more.
func (x *Exchange) conclude(now time.Time, r Result, f *Failure) {
	x.ending, x.closing = true, conclusion{r, f}
	x.close(now)
}

// close ends the exchange if it is to end and nothing runs any more.
func (x *Exchange) close(now time.Time) {
	if !x.ending || x.running() {
		return
	}
	x.settle(now, x.closing.result)
	if f := x.closing.failure; f != nil {
		x.rec.Failure = f
		x.act(Action{Kind: Fail, Failure: f})
		return
	}
	x.act(Action{Kind: Finish})
}

// failureOf words the end of an attempt for the client.
func (x *Exchange) failureOf(end *End, stopped string) *Failure {
	if stopped == stoppedShutdown {
		return shuttingDown()
	}
	f := wordsOf(end, stopped)
	if f.RetryIn > 0 && x.soonest > 0 {
		f.RetryIn = x.soonest.Milliseconds()
	}
	switch end.Class {
	case llm.Timeout, llm.Reset, llm.Stale, llm.Truncated, llm.Malformed: // the engine may have done the work
		f.Final = f.Final || end.Sent && !x.plan.Repeatable
	}
	return f
}

func wordsOf(end *End, timeout string) *Failure {
	switch end.Class {
	case llm.Timeout:
		if timeout == "deadline" {
			return &Failure{Status: 504, Code: "evenkeel_deadline_exceeded", Message: "The deadline passed before the model answered."}
		}
		return &Failure{Status: 504, Code: "evenkeel_upstream_timeout", Message: "The model took too long: the limit " + timeout + " passed."}
	case llm.Connect:
		if end.Outcome.Verdict == route.NotDeploymentFault { // nothing is wrong there
			return &Failure{Status: 503, Code: "evenkeel_no_connection", Message: "The balancer itself could not make a connection to the model's server.", RetryIn: 1000}
		}
		return &Failure{Status: 502, Code: "evenkeel_upstream_unreachable", Message: "No connection to the model's server could be made.", RetryIn: 1000}
	case llm.Auth:
		if end.Outcome.Fault == route.Failure { // it did not say that this is about the key
			return &Failure{Status: 502, Code: "evenkeel_upstream_forbidden", Final: true, Message: "The model's server, or something before it such as a firewall, answered 403 and did not say why."}
		}
		return &Failure{Status: 502, Code: "evenkeel_upstream_credential", Final: true, Message: "The model's server refused the balancer's credential, not yours. Its operator must mend that."}
	case llm.Exhausted:
		return &Failure{Status: 502, Code: "evenkeel_upstream_exhausted", Final: true, Message: "The balancer's account at the model's server is empty, not yours. Its operator must mend that."}
	case llm.NotServed:
		return &Failure{Status: 503, Code: "evenkeel_no_deployment", Message: "The deployments that serve the model cannot take the request now.", RetryIn: 1000}
	case llm.Loading:
		return &Failure{Status: 503, Code: "evenkeel_upstream_loading", Message: "The model's server is loading the model.", RetryIn: retryIn(end)}
	case llm.RateLimited:
		return &Failure{Status: 429, Code: "evenkeel_upstream_rate_limited", Message: "The model's server limits the rate of requests.", RetryIn: retryIn(end)}
	case llm.Overloaded:
		return &Failure{Status: 503, Code: "evenkeel_upstream_overloaded", Message: "The model's server is overloaded.", RetryIn: retryIn(end)}
	case llm.Reset, llm.Truncated, llm.Stale:
		return &Failure{Status: 502, Code: "evenkeel_upstream_closed", Message: "The model's server broke the connection before the answer was complete."}
	case llm.ClientFault: // its own answer cannot follow the head that the client has
		return &Failure{Status: 400, Code: "evenkeel_upstream_rejected", Final: true, Message: "The model's server rejected the request, not the balancer. Its words are lost, since the stream had begun: send it without stream to see them."}
	case llm.Malformed:
		return &Failure{Status: 502, Code: "evenkeel_upstream_malformed", Message: "The model's server sent an answer that is not valid HTTP."}
	}
	return &Failure{Status: 502, Code: "evenkeel_upstream_error", Message: "The model's server failed."}
}

func retryIn(end *End) int64 {
	if d := end.Outcome.RetryAfter; d > 0 {
		return d.Milliseconds()
	}
	return 1000
}

// noPlace is what a client is told that is promised no place, so that it does not ask again and again: no later is heeded
// by SDKs.
const noPlace = time.Minute

// comeBack words a refusal for overload. A time to come back is one at which there will be room; without one there is no
// use in trying again soon.
func comeBack(r *route.Refusal, code, message string) *Failure {
	f := &Failure{Status: 503, Code: code, RetryIn: cmp.Or(r.RetryIn, noPlace).Milliseconds(), Message: message, Final: r.RetryIn == 0}
	if f.Final {
		f.Message += " The next places are promised to others."
	}
	return f
}

// refusalOf words a refusal for the client: it counts reasons and names no deployment but the one that was asked for.
func refusalOf(r *route.Refusal, pin string) *Failure {
	model := r.Decision.Model
	switch r.Kind {
	case route.NoModel:
		return &Failure{Status: 404, Code: "model_not_found", Final: true,
			Message: fmt.Sprintf("The model %q does not exist here. GET /v1/models lists those that do.", model)}
	case route.QueueFull:
		return comeBack(r, "evenkeel_queue_full", fmt.Sprintf("Too many requests wait for model %q already.", model))
	case route.PerMinute:
		return comeBack(r, "evenkeel_queue_timeout", fmt.Sprintf("What serves model %q is at its limits per minute, and has no room before this request's deadline.", model))
	case route.TooLate:
		return comeBack(r, "evenkeel_queue_timeout", fmt.Sprintf("So many requests wait for model %q that this one's deadline would pass before its turn.", model))
	}
	if counts := r.Decision.CutCounts(); len(counts) == 1 && counts[0].Cut == route.CutPinned {
		return &Failure{Status: 400, Code: "evenkeel_no_deployment", Final: true,
			Message: fmt.Sprintf("x-evenkeel-pin: no deployment of model %q is called %.200q, and no endpoint that serves it.", model, pin)}
	}
	if unfit(r.Decision) {
		return &Failure{Status: 400, Code: "evenkeel_no_deployment", Final: true,
			Message: fmt.Sprintf("No deployment of model %q may take the request: %s.", model, countCuts(r.Decision))}
	}
	f := &Failure{Status: 503, Code: "evenkeel_no_deployment", RetryIn: max(r.RetryIn.Milliseconds(), 1),
		Message: fmt.Sprintf("No deployment of model %q can take the request: %s.", model, countCuts(r.Decision))}
	if r.Limited {
		f.Status, f.Code = 429, "evenkeel_upstream_rate_limited"
		f.Message = fmt.Sprintf("The servers of model %q limit the rate of requests: %s.", model, countCuts(r.Decision))
	}
	if r.RetryIn == 0 {
		f.RetryIn = 1000
	}
	return f
}

var cutWords = map[route.Cut]string{
	route.CutWeight:   "switched off (weight 0)",
	route.CutPinned:   "not the one the request names",
	route.CutExcluded: "excluded by the request",
	route.CutTried:    "already tried",
	route.CutOpen:     "out after failures",
	route.CutTrial:    "on trial after failures",
	route.CutInFlight: "at the limit of requests",
	route.CutTokens:   "at the limit of tokens",
	route.CutEarlier:  "promised to earlier requests",

	route.CutDrained:   "drained",
	route.CutDisabled:  "disabled",
	route.CutCooling:   "asked to be left alone",
	route.CutQuota:     "at the limit per minute",
	route.CutDomain:    "in the same failure domain",
	route.CutOnTrial:   "on trial after failures",
	route.CutDegraded:  "degraded",
	route.CutSlowStart: "just back",
	route.CutAffinity:  "not where it belongs",
	route.CutLeft:      "slow or busy",
}

// unfit reports whether it is the request itself that keeps every deployment from it.
func unfit(d *route.Decision) bool {
	counts := d.CutCounts()
	for _, c := range counts {
		if c.Cut != route.CutPinned && c.Cut != route.CutExcluded {
			return false
		}
	}
	return len(counts) > 0
}

func countCuts(d *route.Decision) string {
	counts := d.CutCounts()
	if len(counts) == 0 {
		return "none is known"
	}
	var parts []string
	for _, c := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", c.Count, cutWords[c.Cut]))
	}
	return strings.Join(parts, ", ")
}

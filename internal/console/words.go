package console

import (
	"strings"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// cutWords says why a deployment was not eligible. A test holds it against route's constants, and
// docs/explain.md against it.
var cutWords = map[route.Cut]string{
	route.CutWeight:   "switched off (weight 0)",
	route.CutPinned:   "the request names another one",
	route.CutExcluded: "the request excludes it",
	route.CutTried:    "already tried by this request",
	route.CutOpen:     "out after failures",
	route.CutTrial:    "out after failures, a trial is running",
	route.CutInFlight: "full: at its limit of requests",
	route.CutTokens:   "full: at its limit of tokens",
	route.CutEarlier:  "its next room belongs to a request that waits longer",

	route.CutDrained:   "drained by order",
	route.CutDisabled:  "disabled by order",
	route.CutCooling:   "asked to be left alone",
	route.CutQuota:     "full: at its limit per minute",
	route.CutDomain:    "in the failure domain of an earlier attempt",
	route.CutOnTrial:   "on trial, and this request has failed once already",
	route.CutDegraded:  "degraded, and this request is not of its part",
	route.CutSlowStart: "in slow start, and this request is not of its part",
	route.CutAffinity:  "what this request continues is elsewhere",
	route.CutLeft:      "slower or busier than affinity allows",
}

func cutText(cut string) string {
	if words, ok := cutWords[route.Cut(cut)]; ok {
		return words
	}
	return clean(cut)
}

// reason is a candidate's cut in full: why, by whom, for how long.
func (c *Candidate) reason() string {
	if c.Cut == "" {
		return ""
	}
	text := cutText(c.Cut)
	if c.CutBy != "" {
		text += " (" + clean(c.CutBy) + ")"
	}
	if c.UntilSeconds > 0 {
		text += ", for another " + seconds(c.UntilSeconds)
	}
	return text
}

// tally counts reasons in words: "2 already tried by this request, 1 out after failures".
func tally(d *Decision) string {
	var order []string
	counts := map[string]int{}
	add := func(cut string, n int) {
		if cut == "" {
			return
		}
		if counts[cut] == 0 {
			order = append(order, cut)
		}
		counts[cut] += n
	}
	for i := range d.Candidates {
		add(d.Candidates[i].Cut, 1)
	}
	for _, o := range d.Omitted {
		add(o.Cut, o.Count)
	}
	var parts []string
	for _, cut := range order {
		parts = append(parts, grouped(float64(counts[cut]))+" "+cutText(cut))
	}
	return strings.Join(parts, "; ")
}

// refusalWords says what a refusal means, after "deployment of MODEL at TIME: ".
var refusalWords = map[route.RefusalKind]string{
	route.Saturated:   "all that could serve it were full",
	route.Held:        "the one that was best for it was not ready to begin",
	route.Unavailable: "nobody could serve it",
	route.NoModel:     "no model of this name is served",
	route.QueueFull:   "as many requests as allowed waited for this model already, or were promised a place",
	route.PerMinute:   "limits per minute would have left no room before the deadline",
	route.TooLate:     "so many waited for this model already that the deadline would have passed first",
}

func refusalText(kind string) string {
	for k, words := range refusalWords {
		if k.String() == kind {
			return words
		}
	}
	return clean(kind)
}

// ending says in one sentence what the client got, where the headline does not say it all.
func (e *Explanation) ending() string {
	switch exchange.Result(e.Result) {
	case exchange.ClientFault:
		return "The model's server refused the request as it was; its answer was passed on."
	case exchange.UpstreamError:
		return "The model's server answered with an error, which was passed on."
	case exchange.ClientGone:
		if e.ContentSeconds > 0 {
			return "The client left after " + seconds(e.DurationSeconds) + ", in the middle of the answer."
		}
		return "The client left after " + seconds(e.DurationSeconds) + ", before any content."
	case exchange.Aborted:
		return "The balancer ended the request before it was over."
	}
	f := e.Failure
	if f == nil {
		return ""
	}
	text := "The client was told: " + number(float64(f.Status)) + " " + clean(f.Code) + ": " + clean(f.Message)
	if f.Cut {
		end := "The client got an error event, no clean end: "
		if !e.Facts.Stream { // there is no form in which it could be told
			end = "The client's connection (over HTTP/2: its stream) was broken, so that it does not take the part for the whole: "
		}
		text = "The answer broke after content had been sent. " + end + clean(f.Code) + ": " + clean(f.Message)
	}
	switch {
	case f.Final:
		text += " Repeating is useless."
	case f.RetryInSeconds > 0:
		text += " It may try again in " + seconds(f.RetryInSeconds) + "."
	}
	return text
}

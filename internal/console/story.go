package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"evenkeel/internal/route"
)

// Text tells the request to people: a headline, then every step with the numbers that decided it, then what
// the client got. Lines end with a newline. Nothing in it can upset a terminal.
func (e *Explanation) Text() string {
	var b strings.Builder
	b.WriteString(e.headline())
	var before *step
	steps := e.steps()
	for i := range steps {
		s := &steps[i]
		fmt.Fprintf(&b, "\n%d. %s\n", i+1, e.heading(s, before))
		if d := s.decision; d != nil && len(d.Candidates) > 0 {
			b.WriteString("\n" + candidates(d))
		}
		if s.attempt != nil {
			b.WriteString("\n   " + s.attempt.result() + "\n")
		}
		before = s
	}
	if idle := e.DurationSeconds - endOf(before); e.QueuedSeconds > 0 && idle >= leastIdle {
		fmt.Fprintf(&b, "\nThen it waited %s in the queue, and no deployment had room for it in that time.\n", seconds(idle))
	}
	if end := e.ending(); end != "" {
		b.WriteString("\n" + end + "\n")
	}
	return b.String()
}

func (e *Explanation) headline() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s: %s", clean(e.ID), e.Arrived.UTC().Format("2006-01-02 15:04:05.000 UTC"), modelText(e.Facts.Model))
	if e.Facts.API != "" {
		b.WriteString(", " + clean(e.Facts.API))
	}
	if e.Facts.Stream {
		b.WriteString(", streamed")
	}
	if e.Facts.Tenant != "" {
		b.WriteString(", tenant " + clean(e.Facts.Tenant))
	}
	if steps := e.steps(); len(steps) > 0 && steps[0].decision != nil {
		if d := steps[0].decision; d.PromptTokens > 0 {
			fmt.Fprintf(&b, ", %s in and %s out expected", count(d.PromptTokens, "token"), grouped(float64(d.OutputTokens)))
		}
	}
	fmt.Fprintf(&b, "\n%s", clean(e.Result))
	if e.Status > 0 {
		fmt.Fprintf(&b, ", status %d", e.Status)
	}
	b.WriteString(", " + seconds(e.DurationSeconds))
	var parts []string
	if e.QueuedSeconds > 0 {
		parts = append(parts, seconds(e.QueuedSeconds)+" in the queue")
	}
	if e.ContentSeconds > 0 {
		parts = append(parts, "first content after "+seconds(e.ContentSeconds))
	}
	if len(e.Attempts) > 1 {
		parts = append(parts, count(len(e.Attempts), "attempt"))
	}
	switch {
	case e.FallbackDepth > 0 && len(e.Attempts) > 0 && e.Model != e.Facts.Model:
		parts = append(parts, "fallback to "+clean(e.Model))
	case e.FallbackDepth > 0:
		parts = append(parts, count(e.FallbackDepth, "fallback model")+" tried in vain")
	}
	if len(parts) > 0 {
		b.WriteString(" (" + strings.Join(parts, ", ") + ")")
	}
	b.WriteString("\n")
	return b.String()
}

// step is an attempt or a refusal.
type step struct {
	attempt  *Attempt
	refusal  *Refusal
	decision *Decision
	model    string
	begun    float64 // seconds after arrival
	ended    float64
}

// steps puts attempts and refusals in the order in which the router was asked.
func (e *Explanation) steps() []step {
	var steps []step
	for i := range e.Attempts {
		a := &e.Attempts[i]
		steps = append(steps, step{attempt: a, decision: a.Decision, model: a.Model, begun: a.StartedSeconds, ended: a.StartedSeconds + a.DurationSeconds})
	}
	for i := range e.Refusals {
		f := &e.Refusals[i]
		s := step{refusal: f, decision: f.Decision}
		if d := f.Decision; d != nil {
			s.model, s.begun, s.ended = d.Model, d.AtSeconds, d.AtSeconds
		}
		steps = append(steps, s)
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		if a.decision != nil && b.decision != nil && a.decision.Draw != b.decision.Draw {
			return cmp.Compare(a.decision.Draw, b.decision.Draw)
		}
		return cmp.Compare(a.begun, b.begun) // a question that waited is asked again with its draw
	})
	return steps
}

// heading says what a step is, seen from the one before it.
func (e *Explanation) heading(s, before *step) string {
	var b strings.Builder
	if idle := s.begun - endOf(before); idle >= leastIdle {
		fmt.Fprintf(&b, "After %s", seconds(idle))
		if e.QueuedSeconds > 0 && idle <= e.QueuedSeconds+leastIdle { // pauses before another try are not in the queue's time
			b.WriteString(" in the queue")
		}
		b.WriteString(": ")
	}
	if s.refusal != nil {
		b.WriteString(s.refused(before))
		return b.String()
	}
	model := e.Facts.Model
	if before != nil {
		model = before.model
	}
	switch {
	case s.model != model && before == nil:
		fmt.Fprintf(&b, "as model %s, ", clean(s.model))
	case s.model != model:
		fmt.Fprintf(&b, "fallback to model %s: ", clean(s.model))
	case s.attempt.Hedge && before != nil:
		fmt.Fprintf(&b, "After %s without content there, hedge to ", seconds(s.begun-before.begun))
	case before != nil && before.attempt != nil && before.attempt.Deployment == s.attempt.Deployment:
		b.WriteString("once more ")
	case before != nil && before.attempt != nil:
		b.WriteString("failover to ")
	}
	b.WriteString(clean(s.attempt.Deployment))
	if s.decision != nil {
		b.WriteString(", " + s.decision.why() + s.decision.Home.left())
	}
	return b.String()
}

// leastIdle is the gap between two steps, in seconds, from which on it is told.
const leastIdle = 1e-3

// endOf returns when a step ended, in seconds after arrival; nil stands for the arrival.
func endOf(s *step) float64 {
	if s == nil {
		return 0
	}
	return s.ended
}

// refused says why the router gave no deployment.
func (s *step) refused(before *step) string {
	other := ""
	if before != nil && before.attempt != nil && before.model == s.model {
		other = "other "
	}
	text := fmt.Sprintf("no %sdeployment of %s: %s", other, modelText(s.model), refusalText(s.refusal.Kind))
	if d := s.decision; d != nil && len(d.Candidates) > fewCandidates {
		text += " (" + tally(d) + ")"
	}
	if s.refusal.RetryInSeconds > 0 {
		text += "; the soonest may be tried in " + seconds(s.refusal.RetryInSeconds)
	}
	return text
}

// fewCandidates are taken in at a glance, without a count of reasons.
const fewCandidates = 5

// why says what the choice rests on.
func (d *Decision) why() string {
	by := "chosen by " + clean(d.Strategy)
	switch kept := d.Home != nil && d.Home.Left == ""; {
	case kept && d.Eligible == 1:
		return "kept where " + d.Home.what() + " is"
	case kept:
		by += " of those that have " + d.Home.what()
	case d.Eligible == 1:
		return by + ": the only one eligible"
	}
	scored, equal := 0, 0
	lowest := true
	var chosen *float64
	for i := range d.Candidates {
		if d.Candidates[i].Deployment == d.Chosen {
			chosen = d.Candidates[i].Score
		}
	}
	for i := range d.Candidates {
		s := d.Candidates[i].Score
		if s == nil || chosen == nil {
			continue
		}
		scored++
		lowest = lowest && *chosen <= *s
		if *s == *chosen {
			equal++
		}
	}
	for _, o := range d.Omitted { // the best are kept: those left out score no lower
		if o.Cut == "" && scored > 0 && scored == listed(d) {
			scored += o.Count
		}
	}
	switch {
	case scored < 2:
		return fmt.Sprintf("%s out of %d", by, d.Eligible)
	case !lowest && d.Strategy == "predicted_wait":
		return fmt.Sprintf("%s: by lot, nearly the lowest of %d scores%s", by, scored, d.undrawn(scored))
	case !lowest:
		return fmt.Sprintf("%s out of %d, not by score alone", by, d.Eligible)
	case equal > 1:
		return fmt.Sprintf("%s: lowest of %d scores, equal with %s%s", by, scored, count(equal-1, "other"), d.undrawn(scored))
	}
	return fmt.Sprintf("%s: lowest of %d scores%s", by, scored, d.undrawn(scored))
}

// listed counts the eligible candidates that the decision lists.
func listed(d *Decision) int {
	n := 0
	for i := range d.Candidates {
		if d.Candidates[i].Cut == "" {
			n++
		}
	}
	return n
}

func (d *Decision) undrawn(scored int) string {
	if scored >= d.Eligible {
		return ""
	}
	return fmt.Sprintf(" (%d of %d eligible were looked at)", scored, d.Eligible)
}

// result says what an attempt came to.
func (a *Attempt) result() string {
	o := &a.Outcome
	var b strings.Builder
	switch {
	case o.Verdict == "success":
		fmt.Fprintf(&b, "= success after %s", seconds(a.DurationSeconds))
	default:
		fmt.Fprintf(&b, "= %s after %s", clean(cmp.Or(o.Class, o.Verdict)), seconds(a.DurationSeconds))
		if o.Status > 0 {
			fmt.Fprintf(&b, ", status %d", o.Status)
		}
		if o.Detail != "" {
			b.WriteString(": " + clean(o.Detail))
		}
		b.WriteString(" [" + blame(o) + "]")
		if a.Waste {
			b.WriteString(", its tokens are waste")
		}
		if o.RetryAfterSeconds > 0 {
			b.WriteString(", asks to be left alone for " + seconds(o.RetryAfterSeconds))
		}
	}
	var parts []string
	if o.TTFTSeconds > 0 {
		parts = append(parts, "first token after "+seconds(o.TTFTSeconds))
	}
	if o.ITLSeconds > 0 {
		parts = append(parts, "then one every "+seconds(o.ITLSeconds))
	}
	if tokens := o.tokens(); tokens != "" {
		parts = append(parts, tokens)
	}
	if o.ServedModel != "" && o.ServedModel != a.Model {
		parts = append(parts, "answered as "+clean(o.ServedModel))
	}
	if a.Drift != "" {
		parts = append(parts, "changed: "+clean(a.Drift))
	}
	if len(parts) > 0 {
		b.WriteString("; " + strings.Join(parts, ", "))
	}
	return b.String()
}

func (o *Outcome) tokens() string {
	if o.InputTokens+o.OutputTokens == 0 {
		return ""
	}
	cached := ""
	if o.CachedTokens > 0 {
		cached = " (" + grouped(float64(o.CachedTokens)) + " cached)"
	}
	text := fmt.Sprintf("%s%s in, %s out", count(o.InputTokens, "token"), cached, grouped(float64(o.OutputTokens)))
	if !o.TokensReported {
		text += " (estimated)"
	}
	return text
}

// blame says against whom an outcome counts.
func blame(o *Outcome) string {
	switch o.Fault {
	case "":
		return "counts against nobody"
	case route.Unreachable.String(), route.Reset.String():
		return "counts against the whole endpoint"
	case route.BadCredential.String(), route.Exhausted.String():
		return "counts against the credential"
	case route.RateLimited.String():
		return "its quota is used up"
	case route.Loading.String():
		return "it is not ready yet"
	}
	return "counts against the deployment"
}

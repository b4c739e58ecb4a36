package fit

import (
	"fmt"
	"math"
	"strings"
)

// describe fills in all of r but what was tried.
func (s *search) describe(r *Result) {
	r.Engine = s.fitted()
	r.Seen = s.seen()
	for k, p := range parameters {
		r.Parameters = append(r.Parameters, Parameter{
			Name: p.name, Value: *p.of(&r.Engine.Timing), Error: min(s.scale[k], max(s.errors[k], s.open[k])), Missing: s.missing(k, r.Seen),
		})
	}
	s.misses = s.residuals(s.costs) // and what predicted says is of the same costs
	r.TTFT, r.ITL, r.Total = s.quality(ttft, r.HeldOut), s.quality(itl, r.HeldOut), s.quality(total, r.HeldOut)
	r.Deployments = s.paces()
}

// missing says why a cost is not identified, "" if it is.
func (s *search) missing(k int, seen Seen) string {
	switch {
	case s.scale[k] == 0:
		return "no time that is known depends on it"
	case s.mask[k] && s.costs[k] > 0 && s.errors[k] <= vague*s.costs[k]:
		return ""
	}
	switch k {
	case base:
		return "it cannot be told from the other costs"
	case prefill:
		return "it cannot be told from Base and Token: prompts are too much alike, or it is nothing"
	case token, pair:
		return fmt.Sprintf("no prompt is long enough to show it: at most %d tokens were computed, in a context of %d", seen.Computed, seen.Context)
	case sequence:
		return fmt.Sprintf("it cannot be told from Base and Context: up to %d requests were there at once, and their contexts are too much alike", seen.Concurrent)
	default:
		return fmt.Sprintf("no context is long enough to show it: at most %d tokens", seen.Context)
	}
}

// undisturbed is how many others a request may have had beside it, in the mean, to count as alone.
const undisturbed = 0.05

func (s *search) seen() Seen {
	out := Seen{Requests: len(s.requests)}
	prompt, cached := 0, 0
	for _, group := range s.groups {
		load := newCrowd(s.requests, group, make([]vector, len(s.requests)))
		out.Concurrent = max(out.Concurrent, int(load.present.most()))
		for _, i := range group {
			q := &s.requests[i]
			prompt, cached = prompt+q.PromptTokens, cached+min(q.CachedTokens, q.PromptTokens)
			out.Computed = max(out.Computed, q.PromptTokens-q.CachedTokens)
			out.Context = max(out.Context, q.PromptTokens+q.OutputTokens)
			if q.TTFT > 0 && load.present.mean(q.At, q.At+q.TTFT)-1 <= undisturbed {
				out.Alone++
			}
		}
	}
	out.Cached = float64(cached) / float64(prompt)
	return out
}

// quality compares the times of one kind, as the last replay has them.
func (s *search) quality(k kind, held bool) (q Quality) {
	var errors, observed []float64
	sum, predicted, squares := 0.0, 0.0, 0.0
	for _, t := range s.targets {
		if t.kind != k || t.held != held {
			continue
		}
		p := s.predicted(t)
		errors = append(errors, math.Abs(p/t.seconds-1))
		observed = append(observed, t.seconds)
		sum += t.seconds
		predicted += p
		squares += (p - t.seconds) * (p - t.seconds)
	}
	n := len(errors)
	if n == 0 {
		return q
	}
	variance := 0.0
	for _, o := range observed {
		variance += (o - sum/float64(n)) * (o - sum/float64(n))
	}
	q = Quality{Requests: n, Median: quantile(errors, 0.5), P90: quantile(errors, 0.9), Bias: predicted / sum}
	if variance > 0 {
		q.Explained = 1 - squares/variance
	}
	return q
}

// paces compares the deployments.
func (s *search) paces() []Pace {
	out := make([]Pace, 0, len(s.groups))
	misses := map[string][]float64{}
	for i, t := range s.targets {
		name := s.requests[t.request].Deployment
		misses[name] = append(misses[name], -s.misses[i])
	}
	for _, group := range s.groups {
		p := Pace{Deployment: s.requests[group[0]].Deployment, Requests: len(group)}
		if m := misses[p.Deployment]; len(m) > 0 {
			p.Slower = math.Exp(quantile(m, 0.5))
		}
		out = append(out, p)
	}
	return out
}

// String prints the result for a person, in lines.
func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s engine, from %d requests, %d of them alone, up to %d at once:\n", r.Engine.Scheduler, r.Seen.Requests, r.Seen.Alone, r.Seen.Concurrent)
	for _, p := range r.Parameters {
		fmt.Fprintf(&b, "  %-8s %10.4g s ± %.1g", p.Name, p.Value, p.Error)
		if p.Missing != "" {
			fmt.Fprintf(&b, "  not identified: %s", p.Missing)
		}
		b.WriteByte('\n')
	}
	which := "the requests it was fitted to"
	if r.HeldOut {
		which = "requests held out"
	}
	fmt.Fprintf(&b, "on %s:\n", which)
	for _, l := range []struct {
		name string
		q    Quality
	}{{"TTFT", r.TTFT}, {"ITL", r.ITL}, {"total", r.Total}} {
		if l.q.Requests > 0 {
			fmt.Fprintf(&b, "  %-6s off by %.1f %% (median) and %.1f %% (p90), mean %.1f %% of the observed, R² %.2f, %d requests\n",
				l.name, 100*l.q.Median, 100*l.q.P90, 100*l.q.Bias, l.q.Explained, l.q.Requests)
		}
	}
	for _, p := range r.Deployments {
		if len(r.Deployments) > 1 && p.Slower > 0 {
			fmt.Fprintf(&b, "  %s takes %.2f × as long, %d requests\n", p.Deployment, p.Slower, p.Requests)
		}
	}
	if r.Seen.Cached == 0 {
		b.WriteString("no request found anything in a cache: if the engines have one and do not report it, prompts look cheaper than they are\n")
	}
	fmt.Fprintf(&b, "beyond %d computed prompt tokens, a context of %d and %d requests at once it extrapolates\n", r.Seen.Computed, r.Seen.Context, r.Seen.Concurrent)
	return b.String()
}

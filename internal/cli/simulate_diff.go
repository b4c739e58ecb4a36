package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"evenkeel/internal/console"
	"evenkeel/internal/exchange"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/report"
	"evenkeel/internal/sim/study"
)

// explain finds the first requests that went elsewhere under another side than under the first, and tells both decisions. The
// simulations are run once more, as far as that: records of all requests would not fit into memory.
func (x *experiment) explain(ctx context.Context, r *report.Report, most int) ([]report.Section, error) {
	p, seed := x.prepared[0], x.seeds[0]
	var out []report.Section
	for i := 1; i < len(x.sides); i++ {
		a, b := &x.sides[0], &x.sides[i]
		if a.opaque || b.opaque {
			continue
		}
		runs := [2]*report.Run{&r.Policies[0].Runs[0], &r.Policies[i].Runs[0]}
		differing, all, byLot := report.Differing(runs[0].Watch, runs[1].Watch, most)
		s := report.Section{Title: fmt.Sprintf("%s and %s disagree on where to send %d of %d requests first (seed %d); of %d more, lots decided among equals",
			a.name, b.name, all, p.Row.Requests, seed, byLot)}
		if len(differing) > 0 {
			var told [2]map[int]told
			var errs [2]error
			together(2, func(k int) { told[k], errs[k] = [2]*side{a, b}[k].again(ctx, p, seed, differing) })
			for _, err := range errs {
				if err != nil {
					return nil, err
				}
			}
			for _, n := range differing {
				s.Text += tellDifference(a, b, told[0][n], told[1][n], n)
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// told is a request and what became of it.
type told struct {
	request sim.Request
	record  *exchange.Record
}

// again runs a side once more until some requests are over, and returns them by their place in the order of arrival.
func (s *side) again(ctx context.Context, p *study.Prepared, seed uint64, wanted []int) (map[int]told, error) {
	found := map[int]told{}
	want := map[int]bool{}
	for _, n := range wanted {
		want[n] = true
	}
	fleet, err := s.fleet(p, seed, func(r *sim.Request, rec *exchange.Record) {
		if n := report.Ordinal(rec); want[n] {
			found[n] = told{*r, rec}
		}
	})
	if err != nil {
		return nil, err
	}
	for k := 0; k < runSlices && len(found) < len(want); k++ {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		fleet.Run(time.Duration(float64(p.Last) * float64(k+1) / runSlices))
	}
	if len(found) < len(want) {
		if err = fleet.FinishUnless(p.Last, func() bool { return ctx.Err() != nil }); err == nil {
			err = ctx.Err()
		}
	}
	return found, err
}

// tellDifference tells both decisions about a request.
func tellDifference(a, b *side, x, y told, ordinal int) string {
	var t strings.Builder
	q := &x.request
	fmt.Fprintf(&t, "request %d", ordinal+1)
	if q.Recorded != nil {
		fmt.Fprintf(&t, " (%s)", report.Printable(q.Recorded.ID))
	}
	fmt.Fprintf(&t, " at %s: %d tokens in, %d out", clockOf(q.At), q.PromptTokens, q.OutputTokens)
	if q.Tenant != "" {
		t.WriteString(", tenant " + report.Printable(q.Tenant))
	}
	t.WriteString("\n" + tellChoice(a.name, x.record) + tellChoice(b.name, y.record) + "\n")
	return t.String()
}

// tellChoice tells where a request went first, why, and what came of it.
func tellChoice(side string, rec *exchange.Record) string {
	e := console.Explain(rec)
	if len(e.Attempts) == 0 || e.Attempts[0].Decision == nil {
		why := ""
		if len(e.Refusals) > 0 {
			why = " (" + e.Refusals[0].Kind + ")"
		}
		return fmt.Sprintf("  %s: nowhere%s; %s, status %d\n", side, why, e.Result, e.Status)
	}
	first := &e.Attempts[0]
	came := string(rec.Result)
	if rec.Result == exchange.Complete && !rec.Content.IsZero() {
		came = "first content after " + brief(rec.Content.Sub(rec.Started))
	}
	if n := len(e.Attempts); n > 1 {
		came += fmt.Sprintf(", %d attempts", n)
	}
	if rec.Queued > 0 {
		came += fmt.Sprintf(", %s of that in the queue", brief(rec.Queued))
	}
	why, field, _ := strings.Cut(first.Decision.Text(), "\n\n")
	return fmt.Sprintf("  %s: %s, %s\n%s    = %s\n", side, first.Deployment, why, strings.ReplaceAll("\n"+field, "\n   ", "\n  ")[1:], came)
}

// clockOf words a time since the start.
func clockOf(d time.Duration) string { return d.Round(time.Millisecond).String() }

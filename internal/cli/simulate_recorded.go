package cli

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/report"
)

// asRecorded says what a recorded trace tells of its own requests, to hold what was simulated against: of those that are measured, if
// the trace is played once and whole, else of all. It is false if the trace tells nothing.
func (f *simulateFlags) asRecorded(x *experiment) (report.Fact, bool) {
	row := &x.prepared[0].Row
	t := row.Workload.Trace
	if t == nil || !t.IsRecorded() {
		return report.Fact{}, false
	}
	from, of := time.Duration(0), ", of the whole trace"
	if f.requests == 0 && row.Copies == 1 {
		from, of = time.Duration(row.BurnIn*float64(t.Last())), ""
	}
	var ttft sim.Series
	failed, limited, prompt, cached := 0, 0, 0, 0
	cost, priced := 0.0, x.sides[0].cost != nil
	for i, r := range t.Rows() {
		if r.At < from {
			continue
		}
		e := r.Recorded
		for k := range e.Attempts {
			a := &e.Attempts[k]
			priced = priced && (f.price != nil || slices.Contains(x.sides[0].deployments, a.Deployment))
			if priced {
				cost += x.sides[0].cost(&exchange.Attempt{Deployment: a.Deployment, Outcome: route.Outcome{
					Answered: a.Class == "" || a.Output > 0, InputTokens: a.Input, CachedTokens: a.Cached, OutputTokens: a.Output,
				}})
			}
		}
		if e.Status == http.StatusTooManyRequests {
			limited++
		}
		if e.Result != exchange.Complete {
			failed++
			continue
		}
		if e.First > 0 {
			ttft.Add(i, e.First.Seconds())
		}
		if last := e.Last(); last != nil && !last.Estimated {
			prompt, cached = prompt+last.Input, cached+last.Cached
		}
	}
	took := func(s float64) string { return brief(time.Duration(s * float64(time.Second))) }
	text := fmt.Sprintf("TTFT mean %s, p50 %s, p99 %s", took(ttft.Mean()), took(ttft.Quantile(.5)), took(ttft.Quantile(.99)))
	if prompt > 0 {
		text += fmt.Sprintf("; hit share %.1f %%", 100*float64(cached)/float64(prompt))
	} else {
		text += "; engines told no tokens"
	}
	text += fmt.Sprintf("; %d failed, %d of them by a 429", failed, limited)
	if priced {
		text += fmt.Sprintf("; %.4f $ at the prices of %s", cost, x.sides[0].name)
	}
	return report.Fact{Name: "as recorded", Value: text + of}, true
}

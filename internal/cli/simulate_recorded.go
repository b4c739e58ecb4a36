package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/report"
	"evenkeel/internal/trace"
)

// mostRecordedTenants is how many tenants asRecorded tells of.
const mostRecordedTenants = 20

// asRecorded says what a recorded trace tells of its own requests, to hold what was simulated against: of those that are measured, if
// the trace is played once and whole, else of all; and then of each tenant's, of the busiest if there are many. It is empty if the
// trace tells nothing.
func (f *simulateFlags) asRecorded(x *experiment) []report.Fact {
	row := &x.prepared[0].Row
	t := row.Workload.Trace
	if t == nil || !t.IsRecorded() {
		return nil
	}
	from, of := time.Duration(0), ", of the whole trace"
	if f.requests == 0 && row.Copies == 1 {
		from, of = time.Duration(row.BurnIn*float64(t.Last())), ""
	}
	cost := f.recordedCost(x)
	all, tenants := recorded{priced: cost != nil}, map[string]*recorded{}
	for i, r := range t.Rows() {
		if r.At < from {
			continue
		}
		e := r.Recorded
		own := tenants[e.Tenant]
		if own == nil {
			own = &recorded{tenant: e.Tenant, priced: cost != nil}
			tenants[e.Tenant] = own
		}
		for _, tally := range []*recorded{&all, own} {
			tally.add(i, e, cost)
		}
	}
	prices := x.sides[0].name
	facts := []report.Fact{{Name: "as recorded", Value: all.text(prices) + of}}
	if len(tenants) < 2 {
		return facts
	}
	var busiest []*recorded
	for _, own := range tenants {
		busiest = append(busiest, own)
	}
	slices.SortFunc(busiest, func(a, b *recorded) int {
		return cmp.Or(cmp.Compare(b.requests, a.requests), cmp.Compare(a.tenant, b.tenant))
	})
	for _, own := range busiest[:min(len(busiest), mostRecordedTenants)] {
		name := cmp.Or(report.Printable(own.tenant), "(none)")
		facts = append(facts, report.Fact{Name: "  " + name, Value: fmt.Sprintf("%d requests; %s", own.requests, own.text(prices))})
	}
	return facts
}

// recordedCost returns what an attempt that was recorded costs at the prices of the first side, and false for one whose price is not
// known. It is nil where there are no prices.
func (f *simulateFlags) recordedCost(x *experiment) func(*trace.Attempt) (float64, bool) {
	side := &x.sides[0]
	if side.cost == nil {
		return nil
	}
	return func(a *trace.Attempt) (float64, bool) {
		if f.price == nil && !slices.Contains(side.deployments, a.Deployment) {
			return 0, false
		}
		return side.cost(&exchange.Attempt{Deployment: a.Deployment, Outcome: route.Outcome{
			Answered: a.Class == "" || a.Output > 0, InputTokens: a.Input, CachedTokens: a.Cached, OutputTokens: a.Output,
		}}), true
	}
}

// recorded adds up what became of requests when they were recorded.
type recorded struct {
	tenant string

	ttft                      sim.Series
	requests, failed, limited int
	prompt, cached            int // tokens, of answers whose engine told them
	cost                      float64
	priced                    bool // the price of each attempt is known
}

func (r *recorded) add(i int, e *trace.Entry, cost func(*trace.Attempt) (float64, bool)) {
	r.requests++
	for k := range e.Attempts {
		if r.priced {
			dollars, known := cost(&e.Attempts[k])
			r.cost += dollars
			r.priced = known
		}
	}
	if e.Status == http.StatusTooManyRequests {
		r.limited++
	}
	if e.Result != exchange.Complete {
		r.failed++
		return
	}
	if e.First > 0 {
		r.ttft.Add(i, e.First.Seconds())
	}
	if last := e.Last(); last != nil && !last.Estimated {
		r.prompt, r.cached = r.prompt+last.Input, r.cached+last.Cached
	}
}

func (r *recorded) text(prices string) string {
	took := func(s float64) string { return brief(time.Duration(s * float64(time.Second))) }
	text := "TTFT not known"
	if r.ttft.Count() > 0 {
		text = fmt.Sprintf("TTFT mean %s, p50 %s, p99 %s", took(r.ttft.Mean()), took(r.ttft.Quantile(.5)), took(r.ttft.Quantile(.99)))
	}
	if r.prompt > 0 {
		text += fmt.Sprintf("; hit share %.1f %%", 100*float64(r.cached)/float64(r.prompt))
	} else {
		text += "; engines told no tokens"
	}
	text += fmt.Sprintf("; %d failed, %d of them by a 429", r.failed, r.limited)
	if r.priced {
		text += fmt.Sprintf("; %.4f $ at the prices of %s", r.cost, prices)
	}
	return text
}

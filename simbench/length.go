package main

import (
	"context"
	"fmt"
	"math"

	"evenkeel/internal/sim/study"
)

// pilot is the policy that tells how long requests of a row last.
const pilot = "peer:lmetric"

const (
	pilotRequests = 2_000 // of the first pilot, for 8 deployments
	pilots        = 6     // at most
	pilotGrowth   = 4     // each is at most so many times as long as the one before: what comes first is cold, and says little
	lengthMargin  = 1.1   // other seeds and policies have longer requests
	hopeless      = 2     // a row that is not stable, and would have to be so many times as long, never will be long enough
)

// length returns how many requests of a row are played: so many that it lasts spec.Lengths times as long as 99 % of the requests. The
// longest come seldom, so a pilot of a length that the one before found finds more. Where backlog grows so do they, and no length is enough.
func (b *bench) length(ctx context.Context, s *spec, base study.Row) (int, error) {
	if s.Variant == whole {
		return 0, nil
	}
	fleet := float64(s.N) / 8
	base.Requests = int(math.Ceil(pilotRequests * fleet))
	for n := range pilots {
		r, err := b.pilot(ctx, s, base)
		if err != nil {
			return 0, err
		}
		wanted := min(lengthMargin*s.Lengths*r.Outcome.TotalP99*r.Load.Rate, pilotGrowth*float64(base.Requests))
		requests := int(math.Ceil(min(max(wanted, float64(s.Least)*fleet), float64(s.Most)*fleet)))
		if n > 0 && (requests <= base.Requests || !r.Outcome.Stable() && requests > hopeless*base.Requests) {
			break
		}
		base.Requests = requests
	}
	return base.Requests, nil
}

// pilot plays a pilot of a row.
func (b *bench) pilot(ctx context.Context, s *spec, base study.Row) (*result, error) {
	p, err := study.Strategy(pilot)
	if err != nil {
		return nil, err
	}
	p.Name = "pilot"
	c := cell{Spec: s, Requests: base.Requests, Seed: s.seed(0)}
	return b.result(ctx, c, policy{p, peer}, func() (*study.Prepared, error) { return study.Prepare(base, c.Seed) })
}

// lasts returns how long the row is, in multiples of the 99th percentile of a request's duration under its best policy.
func (t *table) lasts() float64 {
	return t.load.Span / t.leader().of(func(o *study.Outcome) float64 { return o.TotalP99 })
}

// short reports whether the row is not as long as it should be. Of one where backlog grows nothing else can be expected, and the whole
// trace is as long as it is.
func (t *table) short() bool { return t.stable && t.lasts() < t.spec.Lengths }

// lengths says whether rows are long enough for what they show to be no matter of how they begin and end.
func (b *bench) lengths(d document, tables []*table) {
	stable, short := 0, ""
	for _, t := range tables {
		if t.stable && t.spec.Variant != whole {
			stable++
		}
		if t.short() {
			short += fmt.Sprintf(", %s (%.1f)", t.spec.name(), t.lasts())
		}
	}
	if stable == 0 {
		return
	}
	all := tables[0].spec.Lengths
	for _, t := range tables {
		all = max(all, t.spec.Lengths)
	}
	d.line("Rows are so long that they last %.0f times as long as 99 %% of their requests do under the best policy, and the first fifth of a row is not measured. Of %d stable rows that are made that long, these are not: %s. The column “lasts” has it for each.\n",
		all, stable, orNone(short))
}

func orNone(list string) string {
	if list == "" {
		return "none"
	}
	return list[len(", "):]
}

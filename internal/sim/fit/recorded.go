package fit

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"evenkeel/internal/sim"
)

// Recorded returns what a recorded trace (sim.ReadRecorded) tells of the deployments that keep names, nil = of all; they should be
// engines of one kind with one model. Each attempt is an observation; of a long trace it returns at least the first Options.Most at its
// default, and not all. The times of one count that came to its end and whose engine
// reported its tokens; the others are load.
//
// An engine that caches prefixes must report what it found, or computing a prompt looks cheaper than it is.
func Recorded(t *sim.Trace, keep func(deployment string) bool) ([]Observation, error) {
	var out []Observation
	recorded := false
	until := time.Duration(math.MaxInt64) // what begins later is not among the first
	for _, row := range t.Rows() {
		if row.Recorded == nil {
			continue
		}
		recorded = true
		if row.At > until {
			break
		}
		for _, a := range row.Recorded.Attempts {
			if keep != nil && !keep(a.Deployment) {
				continue
			}
			o := Observation{
				Deployment: a.Deployment, At: row.At + a.Sent, PromptTokens: min(row.PromptTokens, mostTokens), OutputTokens: min(a.Output, mostTokens),
			}
			if whole := a.Class == "" && !a.Waste; whole && !a.Estimated && a.Input > 0 {
				o.PromptTokens, o.CachedTokens = min(a.Input, mostTokens), min(a.Cached, mostTokens)
				o.TTFT, o.Total = a.TTFT, max(a.TTFT, a.Took)
			} else if whole {
				o.OutputTokens = min(row.OutputTokens, mostTokens)
			}
			out = append(out, o)
		}
		if len(out) >= defaultMost && until == math.MaxInt64 {
			until = slices.MaxFunc(out, func(a, b Observation) int { return cmp.Compare(a.At, b.At) }).At
		}
	}
	switch {
	case !recorded:
		return nil, errors.New("fit: this trace says nothing of how long requests took: record one (the setting trace.path)")
	case len(out) > 0 && !slices.ContainsFunc(out, func(o Observation) bool { return o.Total > 0 }):
		return nil, errors.New("fit: no engine in this trace reported how many tokens an answer had: streamed answers tell if the client asks for it with stream_options: {include_usage: true}")
	case len(out) == 0:
		return nil, errors.New("fit: no attempt in this trace went to a deployment of that name")
	}
	return out, nil
}

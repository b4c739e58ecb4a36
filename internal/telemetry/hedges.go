package telemetry

import "evenkeel/internal/exchange"

type fallbackKey struct{ from, to, reason string }

func (k fallbackKey) labels() []string { return []string{k.from, k.to, k.reason} }

type hedgeKey struct{ model, result string }

func (k hedgeKey) labels() []string { return []string{k.model, k.result} }

type wasteKey struct {
	target
	kind string
}

func (k wasteKey) labels() []string { return append(k.target.labels(), k.kind) }

// countFallbacks counts the steps from one model to the next.
func (m *Metrics) countFallbacks(rec *exchange.Record, asked string) {
	from, fromModel, reason := asked, rec.Facts.Model, ""
	for i := range rec.Attempts {
		a := &rec.Attempts[i]
		if a.Model != fromModel {
			if reason == "" {
				reason = refusedBecause(rec, fromModel)
			}
			m.fallbacks.of(fallbackKey{from, named(a.Model), reason}).Inc()
			from, fromModel = named(a.Model), a.Model
		}
		reason = a.Outcome.Class
	}
}

// refusedBecause is why a model got no attempt.
func refusedBecause(rec *exchange.Record, model string) string {
	reason := "unavailable"
	for _, f := range rec.Refusals {
		if f.Decision != nil && f.Decision.Model == model {
			reason = f.Kind.String()
		}
	}
	return reason
}

// countHedge counts what came of an attempt that was one, or lost against one.
func (m *Metrics) countHedge(rec *exchange.Record, a *exchange.Attempt) {
	t := target{named(a.Model), a.Deployment}
	if a.Waste {
		m.waste.of(wasteKey{t, "input"}).Add(float64(a.Outcome.InputTokens))
		m.waste.of(wasteKey{t, "output"}).Add(float64(a.Outcome.OutputTokens))
	}
	if !a.Hedge {
		return
	}
	result := "failed"
	switch {
	case a.Waste:
		result = "lost"
	case a == rec.Last() && a.Outcome.Class == "":
		result = "won"
	}
	m.hedges.of(hedgeKey{t.model, result}).Inc()
}

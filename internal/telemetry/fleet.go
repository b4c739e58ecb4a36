package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/internal/route"
)

// fleet is the part that is read from the Router at scrape time.
type fleet struct {
	metrics                                      *Metrics
	inFlight, queueDepth                         *prometheus.Desc
	breakerState, breakerOpenings, servedChanges *prometheus.Desc
	forecastError, regret                        *prometheus.Desc
	signals                                      signals
}

func newFleet(m *Metrics) *fleet {
	return &fleet{
		metrics: m, inFlight: inFlight.desc(), queueDepth: queueDepth.desc(),
		breakerState: breakerState.desc(), breakerOpenings: breakerOpenings.desc(), servedChanges: servedChanges.desc(),
		forecastError: forecastError.desc(), regret: regret.desc(),
		signals: newSignals(),
	}
}

// Describe implements prometheus.Collector.
func (f *fleet) Describe(out chan<- *prometheus.Desc) {
	out <- f.inFlight
	out <- f.queueDepth
	out <- f.breakerState
	out <- f.breakerOpenings
	out <- f.servedChanges
	out <- f.forecastError
	out <- f.regret
	f.signals.describe(out)
}

// Collect implements prometheus.Collector. The same name may stand for two things for a while, when an
// endpoint moved to another URL: their load adds up, and the worse breaker and the worse forecasts show.
func (f *fleet) Collect(out chan<- prometheus.Metric) {
	view := f.metrics.options.View()
	f.metrics.forget(&view)
	running, waiting := map[string]float64{}, map[string]float64{}
	breakers, openings := map[[2]string]route.BreakerState{}, map[[2]string]uint64{}
	breaker := func(scope, name string, b *route.BreakerView) {
		k := [2]string{scope, valid(name)}
		breakers[k] = max(breakers[k], b.State)
		openings[k] += b.Openings
	}
	changes, off, regrets := map[string]uint64{}, map[string]float64{}, map[string]float64{}
	for i := range view.Deployments {
		d := &view.Deployments[i]
		running[valid(d.ID)] += float64(d.InFlight)
		breaker("deployment", d.ID, &d.Breaker)
		changes[valid(d.ID)] += d.Drifts
		if d.Foresight.Answers > 0 {
			off[valid(d.ID)] = max(off[valid(d.ID)], d.Foresight.Error)
		}
		if d.Foresight.Choices > 0 {
			regrets[valid(d.ID)] = max(regrets[valid(d.ID)], d.Foresight.Regret.Seconds())
		}
	}
	for i := range view.Scopes {
		s := &view.Scopes[i]
		breaker(s.Kind.String(), s.Name, &s.Breaker)
	}
	f.metrics.depth.each(func(model string) {
		if model != otherModel {
			waiting[valid(model)] = 0
		}
	})
	for model, n := range view.Waiting {
		waiting[valid(named(model))] += float64(n)
	}
	for id, n := range running {
		out <- prometheus.MustNewConstMetric(f.inFlight, prometheus.GaugeValue, n, id)
	}
	for model, n := range waiting {
		out <- prometheus.MustNewConstMetric(f.queueDepth, prometheus.GaugeValue, n, model)
	}
	for k, s := range breakers {
		out <- prometheus.MustNewConstMetric(f.breakerState, prometheus.GaugeValue, float64(s), k[0], k[1])
		out <- prometheus.MustNewConstMetric(f.breakerOpenings, prometheus.CounterValue, float64(openings[k]), k[0], k[1])
	}
	for id, n := range changes {
		out <- prometheus.MustNewConstMetric(f.servedChanges, prometheus.CounterValue, float64(n), id)
	}
	for id, x := range off {
		out <- prometheus.MustNewConstMetric(f.forecastError, prometheus.GaugeValue, x, id)
	}
	for id, x := range regrets {
		out <- prometheus.MustNewConstMetric(f.regret, prometheus.GaugeValue, x, id)
	}
	f.signals.collect(f.metrics.options.Now(), &view, out)
}

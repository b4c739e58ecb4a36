package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/internal/route"
)

type hearingKey struct{ endpoint, result string }

func (k hearingKey) labels() []string { return []string{k.endpoint, k.result} }

// Heard counts a question for an engine's signals.
func (m *Metrics) Heard(endpoint, result string) { m.hearings.of(hearingKey{endpoint, result}).Inc() }

// signals is the part of fleet about what engines said last.
type signals struct{ requests, kvUse, age, ignored *prometheus.Desc }

func newSignals() signals {
	return signals{requests: engineRequests.desc(), kvUse: engineKVUse.desc(), age: signalAge.desc(), ignored: signalIgnored.desc()}
}

func (s *signals) describe(out chan<- *prometheus.Desc) {
	out <- s.requests
	out <- s.kvUse
	out <- s.age
	out <- s.ignored
}

// collect sends what is in view. Of a name that stands for two things for a while the newer signal shows.
func (s *signals) collect(now time.Time, view *route.View, out chan<- prometheus.Metric) {
	newest := map[string]*route.DeploymentView{}
	for i := range view.Deployments {
		d := &view.Deployments[i]
		id := valid(d.ID)
		if other := newest[id]; d.Member && !d.Signal.At.IsZero() && (other == nil || d.Signal.At.After(other.Signal.At)) {
			newest[id] = d
		}
	}
	for id, d := range newest {
		tell := func(what *prometheus.Desc, value float64, labels ...string) {
			if value >= 0 {
				out <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, append([]string{id}, labels...)...)
			}
		}
		tell(s.requests, float64(d.Signal.Running), "running")
		tell(s.requests, float64(d.Signal.Waiting), "waiting")
		tell(s.kvUse, d.Signal.KVUse)
		tell(s.age, max(now.Sub(d.Signal.At).Seconds(), 0))
		ignored := 0.0
		if d.SignalIgnored {
			ignored = 1
		}
		tell(s.ignored, ignored)
	}
}

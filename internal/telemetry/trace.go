package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Trace counts exchanges that were to be recorded in the trace.
type Trace struct {
	Written uint64
	Busy    uint64 // dropped, since too many waited to be written
	Failed  uint64 // dropped, since the file could not be written
}

// traceCounters are read at scrape time.
func traceCounters(trace func() Trace) []prometheus.Collector {
	result := func(name string, count func(Trace) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: traced.name, Help: traced.help, ConstLabels: prometheus.Labels{traced.labels[0].name: name},
		}, func() float64 { return float64(count(trace())) })
	}
	return []prometheus.Collector{
		result("written", func(t Trace) uint64 { return t.Written }),
		result("busy", func(t Trace) uint64 { return t.Busy }),
		result("failed", func(t Trace) uint64 { return t.Failed }),
	}
}

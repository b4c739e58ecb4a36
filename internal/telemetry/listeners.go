package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Listener counts what happens at one listener, before anything is a request. Safe for concurrent use.
type Listener struct {
	metrics *Metrics
	name    string
	open    prometheus.Gauge
	refused map[Refusal]prometheus.Counter
}

// Refusal says why a connection was not taken.
type Refusal string

// What a connection is refused for.
const (
	RefusedMax        Refusal = "max"
	RefusedPerAddress Refusal = "per_address"
	RefusedAccept     Refusal = "accept_error"
	RefusedHandshake  Refusal = "tls_handshake" // it had been taken
)

// Listener returns the metrics of a listener, all at zero. name is data, admin or metrics.
func (m *Metrics) Listener(name string) *Listener {
	l := &Listener{m, name, m.connections.WithLabelValues(name), map[Refusal]prometheus.Counter{}}
	for _, why := range []Refusal{RefusedMax, RefusedPerAddress, RefusedAccept, RefusedHandshake} {
		l.refused[why] = m.refused.WithLabelValues(name, string(why))
	}
	return l
}

// Opened counts a connection that was taken.
func (l *Listener) Opened() { l.open.Inc() }

// Closed counts the end of one.
func (l *Listener) Closed() { l.open.Dec() }

// Refused counts a connection that was not taken.
func (l *Listener) Refused(why Refusal) { l.refused[why].Inc() }

// Certificate says until when the certificate in use is valid.
func (l *Listener) Certificate(until time.Time) {
	l.metrics.certExpiry.WithLabelValues(l.name).Set(float64(until.Unix()))
}

// CertificateReloaded says whether the files of the certificate could be used when they were last read.
func (l *Listener) CertificateReloaded(ok bool) {
	value := 0.0
	if ok {
		value = 1
	}
	l.metrics.certReload.WithLabelValues(l.name).Set(value)
}

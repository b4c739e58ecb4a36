package proxy

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"evenkeel/internal/route"
)

const (
	headerLoad    = "Endpoint-Load-Metrics" // ORCA; an answer has it where the request asks for it by endpoint-load-metrics-format
	longestReport = 4 << 10                 // bytes
	namedMetrics  = "named_metrics."
)

// overhear takes what the head of an answer says of its engine's load. It comes late, and only with answers that are not streamed: it adds to
// what the engine's page says.
func (r *reply) overhear() {
	values := r.res.Header[headerLoad]
	if len(values) == 0 {
		return
	}
	if s, ok := loadReport(values[0], r.at); ok {
		d := r.lease.Deployment()
		r.c.p.Router.Signal(r.at, route.Scope{Kind: route.EndpointScope, Name: d.Endpoint, URL: d.URL}, "", s)
	}
}

// loadReport reads a load report in its forms as text: "TEXT named_metrics.kv_cache_usage_perc=0.4, ..." (the first word may be missing, and a
// colon stand for =) and `JSON {"named_metrics": {"kv_cache_usage_perc": 0.4}}`. ok is false if it says nothing that is known here.
func loadReport(text string, at time.Time) (s route.Signal, ok bool) {
	s = route.Untold(at)
	if len(text) > longestReport {
		return s, false
	}
	take := func(name string, x float64) {
		if !(x >= 0) {
			return
		}
		switch name {
		case "kv_cache_usage_perc", "kv_cache_utilization":
			s.KVUse = min(x, 1)
		case "num_requests_waiting":
			s.Waiting = int(min(x, math.MaxInt32))
		case "num_requests_running":
			s.Running = int(min(x, math.MaxInt32))
		default:
			return
		}
		ok = true
	}
	text = strings.TrimSpace(text)
	if body, isJSON := strings.CutPrefix(text, "JSON "); isJSON {
		var report struct {
			Named map[string]json.Number `json:"named_metrics"`
		}
		if json.Unmarshal([]byte(body), &report) != nil {
			return s, false
		}
		for name, n := range report.Named {
			if x, err := n.Float64(); err == nil {
				take(name, x)
			}
		}
		return s, ok
	}
	for pair := range strings.SplitSeq(strings.TrimPrefix(text, "TEXT "), ",") {
		name, value, found := strings.Cut(strings.TrimSpace(pair), "=")
		if !found {
			name, value, _ = strings.Cut(strings.TrimSpace(pair), ":")
		}
		name, named := strings.CutPrefix(strings.TrimSpace(name), namedMetrics)
		if x, err := strconv.ParseFloat(strings.TrimSpace(value), 64); named && err == nil {
			take(name, x)
		}
	}
	return s, ok
}

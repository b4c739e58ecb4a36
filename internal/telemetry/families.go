package telemetry

import "github.com/prometheus/client_golang/prometheus"

// family describes one metric: it is made from this description, and docs/metrics.md is written from it.
type family struct {
	name    string
	kind    kind
	unit    string
	help    string
	labels  []label
	buckets []float64 // of a histogram
	query   string    // an example in PromQL
	answers string    // what the example says
}

type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

type label struct{ name, values string }

// Labels that several metrics have.
var (
	modelLabel = label{"model", "name of a configured or discovered model; `other` for any other name that a client sent, and for none"}
	servedBy   = label{"model", "name of a configured or discovered model: the one asked for, or a fallback; `other` for requests that name none"}
	deployment = label{"deployment", "ID of a deployment: `endpoint/model`"}
	listener   = label{"listener", "`data`, `admin`, `metrics`"}
)

// The boundaries of OpenTelemetry's semantic conventions for generative AI (gen_ai.server.time_to_first_token
// and .time_per_output_token), which engines use too, so that their figures and ours can be laid side by
// side. Ours go on to the longest deadlines, and down to what small models do.
var (
	ttftBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 320, 640}
	itlBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5}
)

var (
	requests = &family{
		name: "evenkeel_requests_total", kind: counter, unit: "requests",
		help: "Client requests that have ended.",
		labels: []label{
			modelLabel,
			{"api", "what the path means: `chat`, `completions`, `responses`, `embeddings`, `messages`, ...; `other`"},
			{"result", "`complete`, `rejected` (turned away on sight: a bad key, path or body, an unknown model), `client_fault` (the model refused the request as it was), `upstream_error` (the model's own error was passed on), " +
				"`refused` (no deployment could take it), `failed` (attempts were made, none answered), `cut` (the answer broke after content was sent), " +
				"`client_gone`, `aborted`"},
			{"status", "the HTTP status that the client saw, as it is (529 stays 529); `none` if it left before, `other` for numbers that HTTP does not have"},
		},
		query:   `sum by (model) (rate(evenkeel_requests_total{result=~"refused|failed|cut|upstream_error"}[5m])) / sum by (model) (rate(evenkeel_requests_total[5m]))`,
		answers: "the share of requests that got no good answer",
	}
	ttft = &family{
		name: "evenkeel_time_to_first_token_seconds", kind: histogram, unit: "seconds",
		help:    "From dispatch of an attempt to its first content. Streamed answers of successful attempts only.",
		labels:  []label{servedBy, deployment},
		buckets: ttftBuckets,
		query:   `histogram_quantile(0.99, sum by (deployment, le) (rate(evenkeel_time_to_first_token_seconds_bucket[5m])))`,
		answers: "the 99th percentile of time to first token per deployment",
	}
	itl = &family{
		name: "evenkeel_time_per_output_token_seconds", kind: histogram, unit: "seconds",
		help:    "Mean time between the output tokens of one answer after its first. Streamed answers of successful attempts only.",
		labels:  []label{servedBy, deployment},
		buckets: itlBuckets,
		query:   `histogram_quantile(0.5, sum by (deployment, le) (rate(evenkeel_time_per_output_token_seconds_bucket[5m])))`,
		answers: "the median time between tokens per deployment",
	}
	inFlight = &family{
		name: "evenkeel_in_flight", kind: gauge, unit: "requests",
		help:    "Attempts running now, counted exactly at scrape time. A deployment that left the fleet has no series once nothing runs there.",
		labels:  []label{deployment},
		query:   `max_over_time(evenkeel_in_flight[5m])`,
		answers: "the highest load seen on each deployment",
	}
	queueDepth = &family{
		name: "evenkeel_queue_depth", kind: gauge, unit: "requests",
		help:    "Requests that wait for room, or are held until a deployment is ready, now, read at scrape time. A model has a series from its first request on.",
		labels:  []label{servedBy},
		query:   `sum(evenkeel_queue_depth) > 0`,
		answers: "whether demand exceeds what the fleet may take",
	}
	tokens = &family{
		name: "evenkeel_tokens_total", kind: counter, unit: "tokens",
		help: "Tokens of all attempts. The kinds do not overlap: their sum is all tokens.",
		labels: []label{
			servedBy, deployment,
			{"kind", "`input` (read anew), `cached_input` (found in the engine's prefix cache), `output` (with reasoning)"},
			{"source", "`reported` by the engine, or `estimated` where it reports none"},
		},
		query: `sum by (deployment) (rate(evenkeel_tokens_total{kind="cached_input"}[5m])) / ` +
			`sum by (deployment) (rate(evenkeel_tokens_total{kind=~"input|cached_input"}[5m]))`,
		answers: "the share of prompt tokens that prefix caches saved",
	}
	attempts = &family{
		name: "evenkeel_attempts_total", kind: counter, unit: "attempts",
		help: "Uses of a deployment that have ended. A request that fails over makes several.",
		labels: []label{
			servedBy, deployment,
			{"result", "`success`, `deployment_fault` (counts against the deployment), `not_deployment_fault` (the client's fault, or it left)"},
			{"class", "`none` for success, else the class of error: `client_fault`, `rate_limited`, `overloaded`, `server_error`, `auth`, `exhausted`, `not_served`, `loading`, `connect`, " +
				"`reset`, `truncated`, `timeout`, `malformed`, `stale`, `hedge_lost`, `client_gone`, `cancelled`, `shutdown`, `aborted`"},
		},
		query:   `sum(rate(evenkeel_attempts_total[5m])) / sum(rate(evenkeel_requests_total[5m]))`,
		answers: "attempts per request: how much retries add to the load",
	}
	fallbackDepth = &family{
		name: "evenkeel_fallback_depth", kind: histogram, unit: "models",
		help:    "Models tried per request, less one: 0 if the model that was asked for took it.",
		labels:  []label{modelLabel},
		buckets: []float64{0, 1, 2, 3, 4},
		query:   `1 - sum by (model) (rate(evenkeel_fallback_depth_bucket{le="0"}[5m])) / sum by (model) (rate(evenkeel_fallback_depth_count[5m]))`,
		answers: "the share of requests that went on to another model",
	}
	fallbacks = &family{
		name: "evenkeel_fallbacks_total", kind: counter, unit: "fallbacks",
		help: "Steps of requests from one model to another of its fallback chain.",
		labels: []label{
			{"from", "the model that could not take it: the one asked for, or a fallback"},
			{"to", "the model that was asked next"},
			{"reason", "the class of error of the last attempt at `from`, as in `evenkeel_attempts_total`; without an attempt `saturated`, `unavailable`, `no_model` or `queue_full`"},
		},
		query:   `sum by (from, to, reason) (increase(evenkeel_fallbacks_total[1h]))`,
		answers: "which models stood in for which in the last hour, and why",
	}
	hedges = &family{
		name: "evenkeel_hedges_total", kind: counter, unit: "attempts",
		help: "Second attempts beside one that took longer than usual. They are in `evenkeel_attempts_total` too.",
		labels: []label{
			servedBy,
			{"result", "`won` (its answer went to the client), `lost` (the first one had content sooner), `failed`"},
		},
		query:   `sum(rate(evenkeel_hedges_total{result="won"}[1h])) / sum(rate(evenkeel_hedges_total[1h]))`,
		answers: "how many hedges were worth it",
	}
	waste = &family{
		name: "evenkeel_wasted_tokens_total", kind: counter, unit: "tokens",
		help: "Tokens of attempts that were given up since another attempt of their request had content first. An engine may have done more than can be seen; what it " +
			"read is estimated. They are in `evenkeel_tokens_total` too.",
		labels:  []label{servedBy, deployment, {"kind", "`input`, `output`"}},
		query:   `sum(rate(evenkeel_wasted_tokens_total[1h])) / sum(rate(evenkeel_tokens_total[1h]))`,
		answers: "the share of tokens that hedging costs",
	}
	breakerState = &family{
		name: "evenkeel_breaker_state", kind: gauge, unit: "state",
		help: "0 closed (all requests pass), 1 degraded (a part of its share), 2 slow start (a growing part of it), 3 half-open (one trial at a time), " +
			"4 cooling (none until the time that upstream asked for), 5 open (none), 6 drained and 7 disabled (none, by order). Read at scrape time.",
		labels: []label{
			{"scope", "`deployment`, or what deployments share: `endpoint`, `credential`"},
			{"name", "ID of the deployment, or name of the endpoint or credential"},
		},
		query:   `max_over_time(evenkeel_breaker_state[10m]) == 5`,
		answers: "who was out in the last ten minutes",
	}
	breakerOpenings = &family{
		name: "evenkeel_breaker_openings_total", kind: counter, unit: "openings",
		help:    "How often a breaker opened, also if it was closed again before anybody looked. Read at scrape time.",
		labels:  breakerState.labels,
		query:   `sum by (scope, name) (increase(evenkeel_breaker_openings_total[1h])) > 3`,
		answers: "who goes out again and again",
	}
	probes = &family{
		name: "evenkeel_probes_total", kind: counter, unit: "probes",
		help: "Active probes that have ended: completions of deployments, and health pages of endpoints.",
		labels: []label{
			{"scope", "`deployment` for a completion, `endpoint` for a health page"},
			{"name", "ID of the deployment, or name of the endpoint"},
			{"result", "`ok`, `missed` (it answers, and not as `probe_expect` says), `failed`, `unknown` (neither up nor down: a quota is used up, there is no such page, it cannot be asked like this)"},
		},
		query:   `sum by (name) (rate(evenkeel_probes_total{result="failed"}[10m])) / sum by (name) (rate(evenkeel_probes_total[10m])) > 0.5`,
		answers: "whose probes mostly fail",
	}
	engineRequests = &family{
		name: "evenkeel_engine_requests", kind: gauge, unit: "requests",
		help:    "What the engine behind a deployment says it has, of all its clients, as heard last. What it does not say has no series. Read at scrape time.",
		labels:  []label{deployment, {"state", "`running`, `waiting`"}},
		query:   `sum by (deployment) (evenkeel_engine_requests) - on (deployment) evenkeel_in_flight > 5`,
		answers: "where others send many requests too",
	}
	engineKVUse = &family{
		name: "evenkeel_engine_kv_cache_use", kind: gauge, unit: "share",
		help:    "Part of its KV cache that running requests hold, as the engine behind a deployment said last. Read at scrape time.",
		labels:  []label{deployment},
		query:   `max_over_time(evenkeel_engine_kv_cache_use[10m]) > 0.9`,
		answers: "whose cache was nearly full",
	}
	signalAge = &family{
		name: "evenkeel_signal_age_seconds", kind: gauge, unit: "seconds",
		help:    "How old what the engine behind a deployment said last is. Who never said anything has no series. Read at scrape time.",
		labels:  []label{deployment},
		query:   `evenkeel_signal_age_seconds > 30`,
		answers: "who says nothing any more",
	}
	signalIgnored = &family{
		name: "evenkeel_signal_ignored", kind: gauge, unit: "0 or 1",
		help:    "1 while what the engine says is ignored, since it contradicted what is in flight there for 30 s. Read at scrape time.",
		labels:  []label{deployment},
		query:   `max_over_time(evenkeel_signal_ignored[1h]) > 0`,
		answers: "whose signals were not believed",
	}
	signalReads = &family{
		name: "evenkeel_signal_reads_total", kind: counter, unit: "reads",
		help:    "Questions to engines for their load, that were answered or not.",
		labels:  []label{{"endpoint", "name of an endpoint"}, {"result", "`ok`, `failed`, `unknown` (there is no such page)"}},
		query:   `sum by (endpoint) (rate(evenkeel_signal_reads_total{result="failed"}[10m])) > 0`,
		answers: "who does not answer",
	}
	probeTokens = &family{
		name: "evenkeel_probe_tokens_total", kind: counter, unit: "tokens",
		help:    "Tokens that probes cost, as the engine reports them, else estimated. They are not in evenkeel_tokens_total.",
		labels:  []label{deployment, {"kind", "`input`, `output`"}},
		query:   `sum by (kind) (increase(evenkeel_probe_tokens_total[1d]))`,
		answers: "the tokens of a day that were spent on probes",
	}
	probeTTFT = &family{
		name: "evenkeel_probe_time_to_first_token_seconds", kind: histogram, unit: "seconds",
		help:    "From the start of a probe to its first content, connecting included. Streamed answers only.",
		labels:  []label{deployment},
		buckets: ttftBuckets,
		query:   `histogram_quantile(0.5, sum by (deployment, le) (rate(evenkeel_probe_time_to_first_token_seconds_bucket[15m])))`,
		answers: "the median time to first token of a prompt that is always the same",
	}
	servedChanges = &family{
		name: "evenkeel_served_model_changes_total", kind: counter, unit: "changes",
		help:    "How often a deployment's answers began to name another model or another system fingerprint than those before. Read at scrape time.",
		labels:  []label{deployment},
		query:   `increase(evenkeel_served_model_changes_total[1d]) > 0`,
		answers: "whose model is no longer the one of yesterday",
	}
	forecastError = &family{
		name: "evenkeel_forecast_error", kind: gauge, unit: "logarithm",
		help: "How far times to first token were from what was forecast, whichever way: the mean size of ln(measured / forecast) over the deployment's last 100 streamed " +
			"successes, whatever the strategy. 0.1 is a tenth off, 0.7 twice or half. Read at scrape time.",
		labels:  []label{deployment},
		query:   `evenkeel_forecast_error > 0.7`,
		answers: "whose times to first token cannot be foretold, so that `predicted_wait` is not for them",
	}
	regret = &family{
		name: "evenkeel_regret_seconds", kind: gauge, unit: "seconds",
		help: "How much later first tokens came than was forecast where they would have come soonest, of the other candidates: the mean over the deployment's last 100 streamed " +
			"successes, where sooner counts as 0. Some of it is meant: to spare those behind, or money. Only under strategies that look at forecasts. Read at scrape time.",
		labels:  []label{deployment},
		query:   `topk(3, evenkeel_regret_seconds)`,
		answers: "which deployments disappoint those who were sent there",
	}
	overhead = &family{
		name: "evenkeel_overhead_seconds", kind: histogram, unit: "seconds",
		help:    "Time that the balancer itself adds to a request before it is dispatched; waiting for room and for attempts that failed is not in it.",
		buckets: []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
		query:   `histogram_quantile(0.99, sum by (le) (rate(evenkeel_overhead_seconds_bucket[5m])))`,
		answers: "the 99th percentile of what Evenkeel costs a request",
	}
	bodyBytes = &family{
		name: "evenkeel_request_body_bytes", kind: gauge, unit: "bytes",
		help:    "Memory that the bodies of running requests take: until they are sent and cannot be needed again.",
		query:   `max_over_time(evenkeel_request_body_bytes[1h])`,
		answers: "the most in the last hour, to compare with `body_memory`",
	}
	memoryShortage = &family{
		name: "evenkeel_memory_shortage", kind: gauge, unit: "state",
		help:    "How near the process is to its memory limit: 0 not near, 1 large requests are refused, 2 all new requests are.",
		query:   `max_over_time(evenkeel_memory_shortage[1h])`,
		answers: "whether memory was short in the last hour",
	}
	connections = &family{
		name: "evenkeel_connections", kind: gauge, unit: "connections",
		help:    "Client connections that are open now.",
		labels:  []label{listener},
		query:   `max_over_time(evenkeel_connections{listener="data"}[1h])`,
		answers: "the most that were open in the last hour, to compare with `connections.max`",
	}
	refusedConnections = &family{
		name: "evenkeel_connections_refused_total", kind: counter, unit: "connections",
		help: "Connections that were closed at once, could not be taken, or whose TLS handshake failed.",
		labels: []label{
			listener,
			{"reason", "`max` and `per_address` (a limit below `connections`), `accept_error` (the system gave none, mostly for lack of file descriptors), `tls_handshake` (no valid certificate of a client, a client that refuses ours, or no TLS at all; the log says which)"},
		},
		query:   `sum by (reason) (rate(evenkeel_connections_refused_total[5m])) > 0`,
		answers: "whether clients are turned away before they can ask, and why",
	}
	certExpiry = &family{
		name: "evenkeel_certificate_expiry_timestamp_seconds", kind: gauge, unit: "seconds since 1970",
		help:    "Until when the certificate in use is valid. Only listeners with TLS have one.",
		labels:  []label{listener},
		query:   `(evenkeel_certificate_expiry_timestamp_seconds - time()) / 86400 < 14`,
		answers: "whose certificate ends within 14 days: alert on it",
	}
	certReload = &family{
		name: "evenkeel_certificate_reload_successful", kind: gauge, unit: "boolean",
		help:    "1 if the files of the certificate could be used when they were last read, 0 if not, and the certificate before them stays in use.",
		labels:  []label{listener},
		query:   `evenkeel_certificate_reload_successful == 0`,
		answers: "who has new files that do not work: alert on it",
	}
	traced = &family{
		name: "evenkeel_trace_exchanges_total", kind: counter, unit: "exchanges",
		help:    "Exchanges that were to be recorded in the trace (`trace.path`).",
		labels:  []label{{"result", "`written`, `busy` (lost, since too many waited to be written: the disk is too slow), `failed` (lost, since the file cannot be written; the log says why)"}},
		query:   `sum by (result) (rate(evenkeel_trace_exchanges_total{result!="written"}[5m])) > 0`,
		answers: "whether the trace has gaps, and why",
	}
	buildInfo = &family{
		name: "evenkeel_build_info", kind: gauge, unit: "info",
		help:    "Always 1; its labels tell what runs.",
		labels:  []label{{"version", "of Evenkeel"}, {"go_version", "that it was built with"}},
		query:   `count by (version) (evenkeel_build_info)`,
		answers: "which versions run",
	}
	reloadOK = &family{
		name: "evenkeel_config_last_reload_successful", kind: gauge, unit: "boolean",
		help:    "1 if the last attempt to load the configuration succeeded, 0 if it failed and the one before stays in use.",
		query:   `evenkeel_config_last_reload_successful == 0`,
		answers: "who runs with an older configuration than its files say: alert on it",
	}
	reloadTime = &family{
		name: "evenkeel_config_last_reload_success_timestamp_seconds", kind: gauge, unit: "seconds since 1970",
		help:    "When the configuration in use was loaded.",
		query:   `time() - evenkeel_config_last_reload_success_timestamp_seconds`,
		answers: "the age of the configuration in use",
	}
)

// families lists all metrics, in the order of the documentation.
var families = []*family{
	requests, ttft, itl, inFlight, queueDepth, tokens, attempts, fallbackDepth, fallbacks, hedges, waste, breakerState, breakerOpenings, probes, probeTokens, probeTTFT,
	engineRequests, engineKVUse, signalAge, signalIgnored, signalReads, servedChanges, forecastError, regret, overhead,
	bodyBytes, memoryShortage, connections, refusedConnections, certExpiry, certReload, traced, buildInfo, reloadOK, reloadTime,
}

func (f *family) labelNames() []string {
	var names []string
	for _, l := range f.labels {
		names = append(names, l.name)
	}
	return names
}

func (f *family) counter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.name, Help: f.help}, f.labelNames())
}

func (f *family) gauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.name, Help: f.help}, f.labelNames())
}

// gaugeFunc is a gauge whose value is asked for at scrape time.
func (f *family) gaugeFunc(value func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: f.name, Help: f.help}, value)
}

func (f *family) histogram() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.name, Help: f.help, Buckets: f.buckets}, f.labelNames())
}

// desc describes a metric whose values are made at scrape time.
func (f *family) desc() *prometheus.Desc {
	return prometheus.NewDesc(f.name, f.help, f.labelNames(), nil)
}

package mock

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Upper bounds of vLLM's histograms, in seconds and tokens.
var (
	ttftBounds  = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	gapBounds   = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	e2eBounds   = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	tokenBounds = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000}
)

// histogram counts times or tokens. Safe for concurrent use.
type histogram struct {
	bounds  []float64
	unit    float64        // how many of what is observed are one of what bounds are in
	buckets []atomic.Int64 // not cumulative; the last is for what is above all bounds
	sum     atomic.Int64   // as observed
}

func newHistogram(bounds []float64, unit float64) histogram {
	return histogram{bounds: bounds, unit: unit, buckets: make([]atomic.Int64, len(bounds)+1)}
}

// latencies is a histogram of seconds, which observes durations.
func latencies(bounds []float64) histogram { return newHistogram(bounds, float64(time.Second)) }

// observe counts a value so many times.
func (h *histogram) observe(value, times int64) {
	i := 0
	for v := float64(value) / h.unit; i < len(h.bounds) && v > h.bounds[i]; i++ {
	}
	h.buckets[i].Add(times)
	h.sum.Add(value * times)
}

// exposition is Prometheus text with the names and labels that vLLM uses.
type exposition struct {
	bytes.Buffer
	labels string
}

func (x *exposition) family(name, kind, help string) {
	fmt.Fprintf(x, "# HELP vllm:%s %s\n# TYPE vllm:%[1]s %[3]s\n", name, help, kind)
}

func (x *exposition) sample(name, labels string, value any) {
	fmt.Fprintf(x, "vllm:%s{%s} %v\n", name, labels, value)
}

func (x *exposition) metric(name, kind, help string, value any) {
	x.family(name, kind, help)
	x.sample(name, x.labels, value)
}

func (x *exposition) histogram(name, help string, h *histogram) {
	x.family(name, "histogram", help)
	sum := int64(0)
	for i := range h.buckets {
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = boundLabel(h.bounds[i])
		}
		sum += h.buckets[i].Load()
		fmt.Fprintf(x, "vllm:%s_bucket{%s,le=%q} %d\n", name, x.labels, bound, sum)
	}
	fmt.Fprintf(x, "vllm:%s_sum{%s} %v\nvllm:%[1]s_count{%[2]s} %[4]d\n", name, x.labels, float64(h.sum.Load())/h.unit, sum)
}

// boundLabel writes a bound as Python does, "1.0": who asks for a bucket by its label, as rules for objectives do, must find it.
func boundLabel(bound float64) string {
	s := strconv.FormatFloat(bound, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// metrics is what the engine answers at /metrics.
func (e *Engine) metrics() []byte {
	n := &e.count
	model := labelEscaper.Replace(e.cfg.Models[0])
	loads := e.loads()
	x := exposition{labels: `engine="0",model_name="` + model + `"`}
	each := func(name, kind, help string, of func(*load) any) {
		x.family(name, kind, help)
		for i := range loads {
			x.sample(name, fmt.Sprintf(`engine="%d",model_name="%s"`, i, model), of(&loads[i]))
		}
	}
	each("num_requests_running", "gauge", "Requests that run.", func(l *load) any { return l.running })
	each("num_requests_waiting", "gauge", "Requests that wait to run.", func(l *load) any { return l.waiting })
	each("kv_cache_usage_perc", "gauge", "KV cache usage as a fraction: 1 is full.", func(l *load) any { return l.kvUse })
	each("prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.", func(l *load) any { return l.queried })
	each("prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.", func(l *load) any { return l.cached })
	x.metric("prompt_tokens_total", "counter", "Prompt tokens processed.", n.promptTokens.Load())
	x.metric("generation_tokens_total", "counter", "Output tokens sent.", n.outputTokens.Load())
	x.family("request_success_total", "counter", "Requests answered to the end, by what ended them.")
	for _, by := range []struct {
		reason string
		count  int64
	}{{"stop", n.stopped.Load()}, {"length", n.limited.Load()}, {"abort", 0}, {"error", 0}} { // vLLM, too, does not count clients that leave
		x.sample("request_success_total", `engine="0",finished_reason="`+by.reason+`",model_name="`+model+`"`, by.count)
	}
	each("num_preemptions_total", "counter", "Times that a request lost its memory to others.", func(l *load) any { return l.preemptions })
	x.histogram("time_to_first_token_seconds", "From the request to its first token.", &e.ttft)
	x.histogram("inter_token_latency_seconds", "From a token to the next.", &e.gaps)
	x.histogram("e2e_request_latency_seconds", "From the request to the end of its answer.", &e.e2e)
	x.histogram("request_prompt_tokens", "Prompt tokens of a request.", &e.promptLengths)
	x.histogram("request_generation_tokens", "Output tokens of a request.", &e.outputLengths)
	x.family("cache_config_info", "gauge", "Size of the KV cache.")
	for i := range loads { // vLLM tells each the blocks of all
		x.sample("cache_config_info",
			fmt.Sprintf(`block_size="%d",engine="%d",num_gpu_blocks="%d"`, e.cfg.blockTokens(), i, len(loads)*e.cfg.KVTokens/e.cfg.blockTokens()), 1)
	}
	e.adapterMetrics(&x)
	return x.Bytes()
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// load is what the engine says of itself.
type load struct {
	running, waiting             int
	kvUse                        float64
	queried, cached, preemptions uint64 // tokens, tokens, times; of this start of a modelled engine
	adapterLoads                 uint64
}

// loads are those of each rank.
func (e *Engine) loads() []load {
	all := make([]load, e.cfg.DataParallel)
	if e.cfg.Engine == nil {
		l := &all[0]
		l.kvUse = min(1, float64(e.count.heldTokens.Load())/float64(e.cfg.KVTokens))
		l.running, l.waiting = e.slots.load()
		return all
	}
	for i, d := range e.drivers() {
		l := d.load()
		all[i] = load{
			running: l.Running, waiting: l.Waiting, kvUse: float64(l.Used) / float64(l.Blocks),
			queried: l.PromptTokens, cached: l.CachedTokens, preemptions: l.Preemptions, adapterLoads: l.AdapterLoads,
		}
	}
	return all
}

// drivers are those of the ranks, none while the engine is stopped.
func (e *Engine) drivers() []*driver {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.session == nil {
		return nil
	}
	return e.session.drivers
}

// adapterMetrics tells as vLLM does which adapters have requests, of all ranks together: in both lists alike, and with the time as the value.
func (e *Engine) adapterMetrics(x *exposition) {
	if len(e.cfg.Adapters) == 0 {
		return
	}
	var active []string
	for _, d := range e.drivers() {
		running, waiting := d.adapters()
		active = append(append(active, running...), waiting...)
	}
	slices.Sort(active)
	list := labelEscaper.Replace(strings.Join(slices.Compact(active), ","))
	x.family("lora_requests_info", "gauge", "Adapters with requests.")
	x.sample("lora_requests_info", fmt.Sprintf(`max_lora="%d",running_lora_adapters="%s",waiting_lora_adapters="%[2]s"`, e.cfg.Engine.MaxAdapters, list),
		float64(time.Now().UnixMicro())/1e6)
}

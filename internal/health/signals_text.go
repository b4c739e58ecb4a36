package health

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// sample is one line of Prometheus' text format.
type sample struct {
	name, labels string // labels as between the braces
	value        float64
}

// label returns the value of a label, "" if it has none.
func (s *sample) label(name string) string {
	for n, v := range llm.Labels(s.labels) {
		if n == name {
			return v
		}
	}
	return ""
}

// samples yields those lines whose name begins with prefix. What is malformed is passed over.
func samples(text []byte, prefix string) func(yield func(*sample) bool) {
	return func(yield func(*sample) bool) {
		for line := range bytes.Lines(text) {
			if !bytes.HasPrefix(line, []byte(prefix)) {
				continue
			}
			if s, ok := parseSample(string(line)); ok && !yield(&s) {
				return
			}
		}
	}
}

func parseSample(line string) (s sample, ok bool) {
	at := strings.IndexAny(line, "{ \t")
	if at < 0 {
		return s, false
	}
	s.name = line[:at]
	rest := line[at:]
	if rest[0] == '{' {
		end := strings.LastIndexByte(rest, '}')
		if end < 0 {
			return s, false
		}
		s.labels, rest = rest[1:end], rest[end+1:]
	}
	fields := strings.Fields(rest) // the value, perhaps a timestamp
	if len(fields) == 0 {
		return s, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	s.value = value
	return s, err == nil || math.IsInf(value, 0)
}

// vllmEngine is what one of a server's engines says, or all of them together.
type vllmEngine struct {
	running, waiting, use, legacy sum
}

// mostEngines bounds how many engines of a server are told apart.
const mostEngines = 1024

// readVLLM reads vLLM's metrics, those of each data-parallel rank (label engine) and all together. Under Ray the colon of the names is an
// underscore. With --disable-log-stats there are none.
func readVLLM(text []byte, t *told) bool {
	var all vllmEngine
	var size llm.CacheSize
	var adapters adapterPage
	ranks := map[int]*vllmEngine{}
	for s := range samples(text, "vllm") {
		name := s.name[len("vllm"):]
		if name == "" || name[0] != ':' && name[0] != '_' {
			continue
		}
		switch name[1:] {
		case "cache_config_info":
			size.Add(s.labels)
			continue
		case "lora_requests_info":
			adapters.add(s)
			continue
		}
		if !all.add(name[1:], s.value) {
			continue
		}
		if n, err := strconv.Atoi(s.label("engine")); err == nil && n >= 0 {
			if ranks[n] == nil && len(ranks) < mostEngines {
				ranks[n] = &vllmEngine{}
			}
			if e := ranks[n]; e != nil {
				e.add(name[1:], s.value)
			}
		}
	}
	all.tell(&t.Signal)
	t.CacheTokens, t.Adapters, t.Several = size.Tokens(), adapters.told(), all.running.n > 1
	// A server that has a part of the ranks calls them by their numbers among all, and takes them by their place among its own.
	for _, n := range slices.Sorted(maps.Keys(ranks)) {
		rank := route.Untold(t.At)
		ranks[n].tell(&rank)
		rank.CacheTokens = size.Each()
		if t.Adapters != nil { // which rank has which is not told
			rank.Adapters = &route.Adapters{Room: t.Adapters.Room}
		}
		t.ranks = append(t.ranks, rank)
	}
	return all.running.n+all.waiting.n > 0
}

// add takes a sample and reports whether it is one that matters.
func (e *vllmEngine) add(name string, value float64) bool {
	switch name {
	case "num_requests_running":
		e.running.add(value)
	case "num_requests_waiting":
		e.waiting.add(value)
	case "kv_cache_usage_perc":
		e.use.add(value)
	case "gpu_cache_usage_perc": // before 0.10
		e.legacy.add(value)
	default:
		return false
	}
	return true
}

func (e *vllmEngine) tell(s *route.Signal) {
	if e.use.n == 0 {
		e.use = e.legacy
	}
	s.Running, s.Waiting, s.KVUse = e.running.count(), e.waiting.count(), e.use.share()
}

// adapterPage is what vLLM's page says of adapters (LoRA). Each set of them that ever had requests is a sample of its own, whose value is
// when that was: the newest holds. An adapter without requests is in none, though it may well be in memory.
type adapterPage struct {
	newest float64
	labels string
}

func (p *adapterPage) add(s *sample) {
	if s.value >= p.newest {
		p.newest, p.labels = s.value, s.labels
	}
}

const (
	mostAdapters   = 256 // that are read of a page
	longestAdapter = 512 // bytes of a name
)

// told is nil if the page says nothing that can be.
func (p *adapterPage) told() *route.Adapters {
	var a route.Adapters
	for name, value := range llm.Labels(p.labels) {
		switch name {
		case "max_lora":
			a.Room, _ = strconv.Atoi(value)
		case "running_lora_adapters", "waiting_lora_adapters":
			for adapter := range strings.SplitSeq(value, ",") {
				if adapter != "" && len(adapter) <= longestAdapter && len(a.Active) < mostAdapters && !slices.Contains(a.Active, adapter) {
					a.Active = append(a.Active, strings.Clone(adapter))
				}
			}
		}
	}
	if a.Room < 1 {
		return nil
	}
	return &a
}

// readSGLangMetrics reads SGLang's metrics, which need --enable-metrics, summed over its data-parallel ranks. Of ranks that share the work of
// one request each may tell the same: the first counts.
func readSGLangMetrics(text []byte, t *told) bool {
	var running, waiting, use, full, size sum
	for s := range samples(text, "sglang") {
		name := s.name[len("sglang"):]
		if name == "" || name[0] != ':' && name[0] != '_' || !firstRank(s) {
			continue
		}
		switch name[1:] {
		case "num_running_reqs":
			running.add(s.value)
		case "num_queue_reqs":
			waiting.add(s.value)
		case "token_usage":
			use.add(s.value)
		case "full_token_usage": // of layers that keep all tokens
			full.add(s.value)
		case "max_total_num_tokens":
			size.add(s.value)
		}
	}
	if full.n > 0 {
		use = full
	}
	t.Running, t.Waiting, t.KVUse, t.CacheTokens, t.Several = running.count(), waiting.count(), use.share(), size.tokens(), running.n > 1
	return running.n+waiting.n > 0
}

func firstRank(s *sample) bool {
	for _, rank := range [...]string{"tp_rank", "pp_rank"} {
		if r := s.label(rank); r != "" && r != "0" {
			return false
		}
	}
	return true
}

// readTGI reads the metrics of Text Generation Inference. Nothing of its cache is among them.
func readTGI(text []byte, t *told) bool {
	var running, waiting sum
	for s := range samples(text, "tgi_") {
		switch s.name {
		case "tgi_batch_current_size":
			running.add(s.value)
		case "tgi_queue_size":
			waiting.add(s.value)
		}
	}
	t.Running, t.Waiting = running.count(), waiting.count()
	return running.n+waiting.n > 0
}

// readLlamacppMetrics reads the metrics of llama.cpp's server, which need --metrics.
func readLlamacppMetrics(text []byte, t *told) bool {
	var running, waiting, use sum
	for s := range samples(text, "llamacpp:") {
		switch s.name {
		case "llamacpp:requests_processing":
			running.add(s.value)
		case "llamacpp:requests_deferred":
			waiting.add(s.value)
		case "llamacpp:kv_cache_usage_ratio": // until 2025
			use.add(s.value)
		}
	}
	t.Running, t.Waiting, t.KVUse = running.count(), waiting.count(), use.share()
	return running.n+waiting.n > 0
}

// readTriton reads the metrics of Triton: those of its TensorRT-LLM backend, where it has one, else how many requests wait.
func readTriton(text []byte, t *told) bool {
	var running, waiting, pending, use, blocks, blockTokens sum
	for s := range samples(text, "nv_") {
		switch s.name {
		case "nv_trt_llm_request_metrics":
			switch s.label("request_type") {
			case "scheduled":
				running.add(s.value)
			case "waiting":
				waiting.add(s.value)
			}
		case "nv_trt_llm_kv_cache_block_metrics":
			switch s.label("kv_cache_block_type") {
			case "fraction":
				use.add(s.value)
			case "max":
				blocks.add(s.value)
			case "tokens_per":
				blockTokens.add(s.value)
			}
		case "nv_inference_pending_request_count":
			pending.add(s.value)
		}
	}
	if waiting.n == 0 {
		waiting = pending
	}
	t.Running, t.Waiting, t.KVUse, t.CacheTokens = running.count(), waiting.count(), use.share(), cacheSize(&blocks, &blockTokens)
	return running.n+waiting.n > 0
}

// readTensorRT reads the metrics of trtllm-serve.
func readTensorRT(text []byte, t *told) bool {
	var running, waiting, use, blocks, blockTokens sum
	for s := range samples(text, "trtllm_") {
		switch s.name {
		case "trtllm_num_requests_running":
			running.add(s.value)
		case "trtllm_num_requests_waiting":
			waiting.add(s.value)
		case "trtllm_kv_cache_utilization":
			use.add(s.value)
		case "trtllm_kv_cache_max_blocks":
			blocks.add(s.value)
		case "trtllm_kv_cache_tokens_per_block":
			blockTokens.add(s.value)
		}
	}
	t.Running, t.Waiting, t.KVUse, t.CacheTokens = running.count(), waiting.count(), use.share(), cacheSize(&blocks, &blockTokens)
	return running.n+waiting.n > 0
}

// cacheSize is the blocks of all engines times the tokens of one.
func cacheSize(blocks, tokens *sum) int {
	if tokens.n == 0 {
		return 0
	}
	size := sum{total: blocks.total * tokens.total / float64(tokens.n), n: 1}
	return size.tokens()
}

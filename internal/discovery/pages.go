package discovery

import (
	"bytes"
	"math"
	"strconv"

	"evenkeel/internal/llm"
)

// vllmMetrics reads vLLM's metrics: whether there is any series of vLLM's, how many tokens the KV cache holds, summed
// over the engines (data-parallel ranks) behind the server, and how many of these there are; 0 if they do not say. Under Ray the colon of
// the names is an underscore.
func vllmMetrics(text []byte) (tokens, ranks int, found bool) {
	var size llm.CacheSize
	engines := map[string]bool{}
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte("vllm"))
		if !ok || len(rest) == 0 || rest[0] != ':' && rest[0] != '_' {
			continue
		}
		found = true
		if labels, ok := bytes.CutPrefix(rest[1:], []byte("cache_config_info{")); ok {
			size.Add(string(labels))
		}
		if labels, ok := bytes.CutPrefix(rest[1:], []byte("num_requests_running{")); ok {
			for name, value := range llm.Labels(string(labels)) {
				if _, err := strconv.ParseUint(value, 10, 16); name == "engine" && err == nil {
					engines[value] = true
				}
			}
		}
	}
	return size.Tokens(), len(engines), found
}

// sglangServerInfo reads SGLang's page about itself: its arguments, its scheduler and its state in one object.
// max_total_num_tokens is that of one data-parallel rank.
func sglangServerInfo(body []byte, f *facts) bool {
	var page struct {
		Version        string `json:"version"`
		MaxTotalTokens *count `json:"max_total_num_tokens"`
		States         []any  `json:"internal_states"`
		Ranks          count  `json:"dp_size"`
		ContextLength  count  `json:"context_length"`
	}
	if !decode(body, &page) || page.MaxTotalTokens == nil && page.States == nil {
		return false
	}
	f.version, f.contextWindow = clean(page.Version), int(page.ContextLength)
	if page.MaxTotalTokens != nil {
		f.kvTokens = product(int(*page.MaxTotalTokens), max(1, int(page.Ranks)))
	}
	return true
}

// llamacppProps reads the properties page of llama.cpp's server. n_ctx is that of one slot.
func llamacppProps(body []byte, f *facts) bool {
	var page struct {
		Slots     count  `json:"total_slots"`
		BuildInfo string `json:"build_info"`
		Settings  struct {
			ContextLength count `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if !decode(body, &page) || page.Slots == 0 {
		return false
	}
	f.version, f.contextWindow = clean(page.BuildInfo), int(page.Settings.ContextLength)
	f.kvTokens = product(int(page.Settings.ContextLength), int(page.Slots))
	return true
}

// tgiInfo reads the information page of Text Generation Inference. max_batch_total_tokens is what it found to fit into
// the memory for its cache.
func tgiInfo(body []byte, f *facts) bool {
	var page struct {
		ModelID        string `json:"model_id"`
		Version        string `json:"version"`
		MaxTotalTokens count  `json:"max_total_tokens"`
		MaxBatchTokens count  `json:"max_batch_total_tokens"`
	}
	if !decode(body, &page) || page.ModelID == "" || page.MaxTotalTokens == 0 {
		return false
	}
	f.version, f.contextWindow, f.kvTokens = clean(page.Version), int(page.MaxTotalTokens), int(page.MaxBatchTokens)
	if usable(page.ModelID) {
		f.models = []ModelInfo{{ID: page.ModelID, ContextWindow: f.contextWindow}}
	}
	return true
}

// product multiplies two numbers that are at most 2³¹−1.
func product(a, b int) int {
	if a > 0 && b > math.MaxInt32/a {
		return math.MaxInt32
	}
	return a * b
}

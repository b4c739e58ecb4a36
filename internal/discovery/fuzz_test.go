package discovery

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// FuzzModels: whatever a list holds, what comes out can be used as it is.
func FuzzModels(f *testing.F) {
	for _, served := range []pages{vllm, sglang, llamacpp, ollama, lmstudio} {
		f.Add([]byte(served["/v1/models"]))
	}
	f.Add([]byte(lmstudio["/api/v0/models"]))
	f.Add([]byte(`{"data":[{"type":"model","id":"claude-opus-4","display_name":"Claude Opus 4","created_at":"2025-05-22T00:00:00Z","max_input_tokens":200000}],"has_more":false}`))
	f.Add([]byte(`[{"id":"a","context_length":8192},{"id":"a"},{"id":"a\nb"},{"id":7},null,"x",{"id":"b","context_length":"many"}]`))
	f.Add([]byte(`{"data":[{"id":"a","max_model_len":-1,"meta":null},{"id":"b","max_model_len":1e99},{"id":"c","max_model_len":4096.5}]}`))
	f.Add([]byte(`{"data":[{"id":"a","parent":"b"},{"id":"c","parent":[7]}]}`))
	f.Add([]byte(`{"data":null}`))
	f.Add([]byte(`{"data":`))
	f.Fuzz(func(t *testing.T, body []byte) {
		models, err := parseModels(body)
		if models == nil && err == nil {
			t.Fatal("neither models nor an error")
		}
		seen := map[string]bool{}
		for _, m := range models {
			if m.ID == "" || len(m.ID) > maxText || strings.ContainsAny(m.ID, "\x00\n\r\t") || seen[m.ID] {
				t.Errorf("model ID %q is not usable or comes twice", m.ID)
			}
			if len(m.Parent) > maxText || m.ContextWindow < 0 || m.ContextWindow > math.MaxInt32 {
				t.Errorf("%q: context window %d, parent %q", m.ID, m.ContextWindow, m.Parent)
			}
			seen[m.ID] = true
		}
		if kind := ownersKind(models); kind != "" && engineOf(kind) == nil {
			t.Errorf("kind %q", kind)
		}
	})
}

// FuzzKVTokens: every reader of an engine's size gives a number of tokens that can be a limit.
func FuzzKVTokens(f *testing.F) {
	f.Add([]byte(vllm["/metrics"]))
	f.Add([]byte(sglang["/get_server_info"]))
	f.Add([]byte(llamacpp["/props"]))
	f.Add([]byte(tgi["/info"]))
	f.Add([]byte(`vllm:cache_config_info{block_size="2147483647",num_gpu_blocks="2147483647"} 1`))
	f.Add([]byte(`vllm:cache_config_info{a="\"} 1,",block_size="16",num_gpu_blocks="`))
	f.Add([]byte(`{"max_total_num_tokens":2147483647,"dp_size":2147483647}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		tokens, ranks, found := vllmMetrics(body)
		if (tokens > 0 || ranks > 0) && !found {
			t.Error("a size or ranks without a series")
		}
		for _, read := range []func([]byte, *facts) bool{sglangServerInfo, llamacppProps, tgiInfo} {
			var got facts
			if !read(body, &got) && (got.kvTokens != 0 || got.version != "" || got.models != nil) {
				t.Errorf("facts of a page that is not recognised: %+v", got)
			}
			if got.contextWindow < 0 || got.contextWindow > math.MaxInt32 {
				t.Errorf("context window %d", got.contextWindow)
			}
			tokens = max(tokens, got.kvTokens)
			if got.kvTokens < 0 {
				t.Errorf("%d tokens", got.kvTokens)
			}
		}
		if tokens < 0 || tokens > math.MaxInt32 {
			t.Errorf("%d tokens", tokens)
		}
	})
}

func TestVLLMMetrics(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		tokens, ranks, found := vllmMetrics([]byte(text))
		got := fmt.Sprintf("%d %t", tokens, found)
		if ranks > 0 {
			got += fmt.Sprintf(" %d", ranks)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	f("", "0 false")
	f("# TYPE vllm:num_requests_running gauge\n", "0 false") // --disable-log-stats
	f("vllmx_requests 1\nother{x=\"vllm:cache_config_info{\"} 1\n", "0 false")
	f("vllm:num_requests_running{engine=\"0\"} 0\n", "0 true 1")
	f("vllm:num_requests_running{engine=\"6\",model_name=\"m\"} 0\nvllm:num_requests_running{engine=\"7\",model_name=\"m\"} 0\n", "0 true 2")
	f("vllm:num_requests_running{engine=\"\"} 0\nvllm:num_requests_running{engine=\"-1\"} 0\n", "0 true")
	f("vllm_num_requests_running 0\n", "0 true") // under Ray
	f(`vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0`, "1600 true")
	f(`vllm_cache_config_info{ num_gpu_blocks="100", block_size="16" } 1.0`, "1600 true")
	f(`vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0`, "0 true")
	f(`vllm:cache_config_info{block_size="16",num_gpu_blocks="-5"} 1.0`, "0 true")
	f(`vllm:cache_config_info{block_size="16",num_gpu_blocks_override="7",num_gpu_blocks="100"} 1.0`, "1600 true")
	f(`vllm:cache_config_info{block_size="16",kv_cache_size_tokens="1234",num_gpu_blocks="100"} 1.0`, "1234 true")
	f(`vllm:cache_config_info{block_size="16",kv_cache_size_tokens="None",num_gpu_blocks="100"} 1.0`, "1600 true")
	f(`vllm:cache_config_info{quote="a\"b,block_size=\"9",block_size="16",num_gpu_blocks="100"} 1.0`, "1600 true")
	f(`vllm:cache_config_info{block_size="16",num_gpu_blocks="100`, "0 true")
	// Two data-parallel ranks: blocks are told of both together, sizes of each.
	f("vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"150\"} 1.0\nvllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"150\"} 1.0\n", "2400 true")
	f("vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"1600\"} 1.0\nvllm:cache_config_info{engine=\"1\",kv_cache_size_tokens=\"800\"} 1.0\n", "2400 true")
	f(`vllm:cache_config_info{block_size="65536",num_gpu_blocks="65536"} 1.0`, "2147483647 true")
}

// TestParents: adapters name the model that they belong to; what is no name makes no model unusable.
func TestParents(t *testing.T) {
	models, err := parseModels([]byte(`{"data":[{"id":"base","owned_by":"vllm","parent":null},{"id":"sql","parent":"base"},{"id":"a","parent":7},{"id":"b","parent":{}},{"id":"c","parent":" x"},{"id":"d"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "base", "", "", "", ""} {
		if models[i].Parent != want {
			t.Errorf("%s: parent %q, want %q", models[i].ID, models[i].Parent, want)
		}
	}
}

package health

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// metrics of vLLM 0.19 with two data-parallel ranks, cut to what matters and some of what does not.
const vllmPage = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-32B"} 7.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-32B"} 5.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-32B"} 3.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen3-32B"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="Qwen/Qwen3-32B",reason="capacity"} 3.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-32B"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="Qwen/Qwen3-32B"} 0.25
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",gpu_memory_utilization="0.9",num_gpu_blocks="27000",num_gpu_blocks_override="None",swap_space="4"} 1.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="1",gpu_memory_utilization="0.9",num_gpu_blocks="27000",num_gpu_blocks_override="None",swap_space="4"} 1.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="Qwen/Qwen3-32B"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="Qwen/Qwen3-32B"} 812.0
`

const vllmOldPage = `vllm:num_requests_running{model_name="m"} 2.0 1712345678000
vllm:num_requests_waiting{model_name="m"} 0.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.125
vllm:cpu_cache_usage_perc{model_name="m"} 0.9
`

const sglangLoads = `{"timestamp":"2026-09-14T10:00:00Z","version":"0.5.9","loads":[
 {"dp_rank":0,"num_running_reqs":11,"num_waiting_reqs":4,"num_waiting_uncached_tokens":5210,"num_used_tokens":80000,"num_total_tokens":95000,
  "max_total_num_tokens":161721,"max_running_requests":2048,"token_usage":0.4947,"gen_throughput":1834.2,"cache_hit_rate":0.0,"utilization":0.0},
 {"dp_rank":1,"num_running_reqs":9,"num_waiting_reqs":0,"num_waiting_uncached_tokens":0,"num_used_tokens":40000,"num_total_tokens":40000,
  "max_total_num_tokens":161721,"max_running_requests":2048,"token_usage":0.2473,"gen_throughput":901.5,"cache_hit_rate":0.0,"utilization":0.0}]}`

const sglangMetricsPage = `sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 12.0
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 12.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 2.0
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.9
sglang:full_token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.3
sglang:max_total_num_tokens{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 161721.0
sglang:cache_hit_rate{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.0
`

const tgiPage = `# TYPE tgi_queue_size gauge
tgi_queue_size 3
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 8
# TYPE tgi_batch_current_max_tokens gauge
tgi_batch_current_max_tokens 15360
tgi_request_duration_bucket{le="0.015"} 0
`

const llamacppPage = `# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 3318
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 5
# TYPE llamacpp:n_busy_slots_per_decode gauge
llamacpp:n_busy_slots_per_decode 1.9
`

const llamacppSlots = `[{"id":0,"id_task":135,"n_ctx":4096,"speculative":false,"is_processing":true,"params":{"n_predict":-1},"next_token":[{"n_decoded":136}]},
 {"id":1,"id_task":-1,"n_ctx":4096,"speculative":false,"is_processing":false}]`

const tritonPage = `nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 6
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 16
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 64
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 22
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.4375
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="tensorrt_llm",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 1750
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 4000
nv_inference_pending_request_count{model="ensemble",version="1"} 0
`

const tensorRTPage = `trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 4.0
trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 1.0
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.25
trtllm_kv_cache_max_blocks{engine_type="trtllm",model_name="m"} 1000.0
trtllm_kv_cache_tokens_per_block{engine_type="trtllm",model_name="m"} 32.0
`

const ollamaPage = `{"models":[{"name":"llama3.2:3b","model":"llama3.2:3b","size":3825819519,"digest":"a80c","details":{"family":"llama"},
 "expires_at":"2026-09-14T10:05:00Z","size_vram":3825819519,"context_length":4096}]}`

const lmstudioPage = `{"object":"list","data":[{"id":"qwen2.5-7b","object":"model","type":"llm","state":"loaded","max_context_length":32768},
 {"id":"gemma-3-4b","object":"model","type":"llm","state":"not-loaded","max_context_length":8192}]}`

func load(running, waiting int, use float64, size int) told {
	return told{Signal: route.Signal{Running: running, Waiting: waiting, KVUse: use, CacheTokens: size}}
}

// several says that it is of several engines together.
func (t told) several() told {
	t.Several = true
	return t
}

// with adds what each rank says.
func (t told) with(ranks ...told) told {
	t.Several = true
	for _, r := range ranks {
		t.ranks = append(t.ranks, r.Signal)
	}
	return t
}

// adapters adds what is said of adapters.
func (t told) adapters(room int, active ...string) told {
	t.Adapters = &route.Adapters{Room: room, Active: active}
	return t
}

// vllmAdapters is what a page says of adapters: the newest set holds, and all that ever were stay.
const vllmAdapters = `# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 1.7e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql,chat",waiting_lora_adapters="sql,chat"} 1.7000003e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql",waiting_lora_adapters="sql"} 1.7000001e+09
`

// TestSignalPages reads what engines answer.
func TestSignalPages(t *testing.T) {
	const none = route.NotTold
	for _, x := range []struct {
		name, body string
		read       func([]byte, *told) bool
		want       told
	}{
		{"vllm", vllmPage, readVLLM, load(12, 3, 0.375, 432_000).with(load(7, 3, 0.5, 216_000), load(5, 0, 0.25, 216_000))},
		{"vllm, ranks of another node", strings.NewReplacer(`engine="0"`, `engine="10"`, `engine="1"`, `engine="9"`).Replace(vllmPage), readVLLM,
			load(12, 3, 0.375, 432_000).with(load(5, 0, 0.25, 216_000), load(7, 3, 0.5, 216_000))},
		{"vllm, adapters", vllmOldPage + vllmAdapters, readVLLM, load(2, 0, 0.125, 0).adapters(4, "sql", "chat")},
		{"vllm, adapters at ranks", vllmPage + vllmAdapters, readVLLM, load(12, 3, 0.375, 432_000).adapters(4, "sql", "chat").
			with(load(7, 3, 0.5, 216_000).adapters(4), load(5, 0, 0.25, 216_000).adapters(4))},
		{"vllm, adapters, no room told", vllmOldPage + `vllm:lora_requests_info{max_lora="?",running_lora_adapters="a"} 1` + "\n", readVLLM, load(2, 0, 0.125, 0)},
		{"vllm before 0.10", vllmOldPage, readVLLM, load(2, 0, 0.125, 0)},
		{"vllm under Ray", strings.ReplaceAll(vllmPage, "vllm:", "vllm_"), readVLLM,
			load(12, 3, 0.375, 432_000).with(load(7, 3, 0.5, 216_000), load(5, 0, 0.25, 216_000))},
		{"vllm, sizes that do not fit", "vllm:num_requests_running 1e300\nvllm:num_requests_waiting NaN\nvllm:kv_cache_usage_perc 7\n", readVLLM,
			load(math.MaxInt32, none, 1, 0)},
		{"sglang loads", sglangLoads, readSGLangLoads, load(20, 4, 0.371, 323_442).several()},
		{"sglang loads, starting", `{"loads":[{"dp_rank":0,"num_running_reqs":0,"num_waiting_reqs":0,"max_total_num_tokens":0,"token_usage":null}]}`,
			readSGLangLoads, load(0, 0, none, 0)},
		{"sglang metrics", sglangMetricsPage, readSGLangMetrics, load(12, 2, 0.3, 161_721)},
		{"tgi", tgiPage, readTGI, load(8, 3, none, 0)},
		{"llama.cpp metrics", llamacppPage, readLlamacppMetrics, load(2, 5, none, 0)},
		{"llama.cpp slots", llamacppSlots, readLlamacppSlots, load(1, none, none, 0)},
		{"triton", tritonPage, readTriton, load(16, 6, 0.4375, 256_000)},
		{"triton without TensorRT-LLM", "nv_inference_pending_request_count{model=\"vllm\",version=\"1\"} 9\n", readTriton, load(none, 9, none, 0)},
		{"trtllm-serve", tensorRTPage, readTensorRT, load(4, 1, 0.25, 32_000)},
		{"ollama", ollamaPage, readOllama, told{Signal: route.Untold(time.Time{}), loaded: []string{"llama3.2:3b"}}},
		{"ollama, nothing loaded", `{"models":[]}`, readOllama, told{Signal: route.Untold(time.Time{}), loaded: []string{}}},
		{"lmstudio", lmstudioPage, readLMStudio, told{Signal: route.Untold(time.Time{}), loaded: []string{"qwen2.5-7b"}}},
	} {
		got := told{Signal: route.Untold(time.Time{})}
		if !x.read([]byte(x.body), &got) || math.Abs(got.KVUse-x.want.KVUse) > 1e-9 {
			t.Errorf("%s: %+v, want %+v", x.name, got, x.want)
		}
		if got.KVUse = x.want.KVUse; !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %+v, want %+v", x.name, got, x.want)
		}
	}
}

// TestNoSignalPages: what says nothing of load is no such page: not told is not idle.
func TestNoSignalPages(t *testing.T) {
	for _, body := range []string{
		"", "{}", "[]", "null", "404 page not found", `{"loads":[]}`, `{"detail":"Not Found"}`, `{"server_load":0}`, "vllm", "vllm:", "vllm:num_requests_running",
		"vllm:num_requests_running{", "vllm:num_requests_running{a=\"b\"}", "vllm:num_requests_running -1", "python_gc_objects_collected_total 3", `[{"id":0}]`,
		`{"data":[{"id":"m","object":"model"}]}`, "<!DOCTYPE html><title>Sign in</title>", strings.Repeat("[", 1<<16),
	} {
		for kind, pages := range signalPages {
			for _, p := range pages {
				got := told{Signal: route.Untold(time.Time{})}
				if p.read([]byte(body), &got) {
					t.Errorf("%s%s takes %.40q for %+v", kind, p.path, body, got)
				}
			}
		}
	}
}

// FuzzSignalPages: whatever a server sends, what is read of it is in range.
func FuzzSignalPages(f *testing.F) {
	for _, body := range []string{vllmPage, vllmOldPage, sglangLoads, sglangMetricsPage, tgiPage, llamacppPage, llamacppSlots, tritonPage, tensorRTPage, ollamaPage,
		lmstudioPage, vllmOldPage + vllmAdapters, "vllm:num_requests_running{engine=\"-1\"} 1\nvllm:num_requests_running{engine=\"99999999999\"} 1\n", "vllm:num_requests_running{a=\"\\\"}\",b=\"} 3\"} 4e400", `{"loads":[{"num_running_reqs":1e999}]}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for kind, pages := range signalPages {
			for _, p := range pages {
				got := told{Signal: route.Untold(time.Time{})}
				found := p.read(body, &got)
				switch {
				case got.Running < route.NotTold, got.Waiting < route.NotTold, got.CacheTokens < 0, got.Running > math.MaxInt32, got.Waiting > math.MaxInt32,
					got.KVUse != route.NotTold && !(got.KVUse >= 0 && got.KVUse <= 1), len(got.loaded) > maxLoaded,
					found && got.Running == route.NotTold && got.Waiting == route.NotTold && got.loaded == nil:
					t.Errorf("%s%s: %v, %+v", kind, p.path, found, got)
				}
				if a := got.Adapters; a != nil && (a.Room < 1 || len(a.Active) > mostAdapters) || len(got.ranks) > mostEngines {
					t.Errorf("%s%s: %d ranks, adapters %+v", kind, p.path, len(got.ranks), a)
				}
				for _, r := range got.ranks {
					if r.Running < route.NotTold || r.Waiting < route.NotTold || r.CacheTokens < 0 || r.CacheTokens > math.MaxInt32 || r.KVUse > 1 {
						t.Errorf("%s%s: %+v", kind, p.path, r)
					}
				}
			}
		}
	})
}

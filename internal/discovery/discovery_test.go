package discovery

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"evenkeel/internal/llm"
	"evenkeel/internal/secret"
)

// The engines as they answer over HTTP: the parts that are read, with neighbours.
var (
	vllm = pages{
		"/v1/models": `{"object":"list","data":[{"id":"Qwen/Qwen3-8B","object":"model","created":1,"owned_by":"vllm","root":"Qwen/Qwen3-8B","parent":null,"max_model_len":40960},
			{"id":"sql-lora","object":"model","owned_by":"vllm","root":"/adapters/sql","parent":"Qwen/Qwen3-8B"}]}`,
		"/version": `{"version":"0.26.1"}`,
		"/metrics": `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 0.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="2340",num_gpu_blocks_override="None",sliding_window="None"} 1.0
`,
	}
	sglang = pages{
		"/v1/models":       `{"object":"list","data":[{"id":"qwen/qwen2.5-0.5b-instruct","object":"model","owned_by":"sglang","root":"qwen/qwen2.5-0.5b-instruct","max_model_len":32768}]}`,
		"/get_server_info": `{"model_path":"qwen/qwen2.5-0.5b-instruct","context_length":null,"dp_size":2,"status":"ready","max_total_num_tokens":20480,"internal_states":[{},{}],"version":"0.5.9"}`,
	}
	llamacpp = pages{
		"/v1/models": `{"models":[{"name":"m.gguf"}],"object":"list","data":[{"id":"m.gguf","object":"model","owned_by":"llamacpp","meta":{"n_ctx_train":131072}}]}`,
		"/props":     `{"default_generation_settings":{"params":{"seed":1},"n_ctx":4096},"total_slots":4,"model_path":"m.gguf","build_info":"b6123-abcdef"}`,
	}
	ollama = pages{
		"/v1/models":   `{"object":"list","data":[{"id":"llama3.2:latest","object":"model","owned_by":"library"},{"id":"me/mine:latest","object":"model","owned_by":"me"}]}`,
		"/api/version": `{"version":"0.14.2"}`,
		"/api/tags":    `{"models":[{"name":"llama3.2:latest","model":"llama3.2:latest","size":1},{"name":"me/mine:latest","size":2}]}`,
		"/":            `Ollama is running`,
	}
	lmstudio = pages{
		"/v1/models": `{"object":"list","data":[{"id":"qwen3-8b","object":"model","owned_by":"organization_owner"},{"id":"gemma-3-4b","object":"model","owned_by":"organization_owner"}]}`,
		"/api/v0/models": `{"object":"list","data":[{"id":"qwen3-8b","type":"llm","state":"loaded","max_context_length":131072,"loaded_context_length":8192},
			{"id":"gemma-3-4b","type":"vlm","state":"not-loaded","max_context_length":32768}]}`,
	}
	tgi = pages{
		"/info": `{"model_id":"HuggingFaceH4/zephyr-7b-beta","model_dtype":"torch.float16","max_input_tokens":4095,"max_total_tokens":4096,"max_batch_total_tokens":32000,"version":"3.3.4"}`,
	}
	triton = pages{
		"/v2": `{"name":"triton","version":"2.60.0","extensions":["classification"]}`,
	}
)

func TestProbeRecognisesEngines(t *testing.T) {
	f := func(served pages, want string) {
		t.Helper()
		url := listen(t, &server{pages: served})
		r := Probe(context.Background(), transport(t), Target{Name: "gpu-1", URL: url})
		if got := describe(r); got != want {
			t.Errorf("got  %s\nwant %s (%v)", got, want, r.Err)
		}
	}
	f(vllm, "up=true kind=vllm version=0.26.1 models=Qwen/Qwen3-8B/40960,sql-lora/0 kv=37440")
	f(sglang, "up=true kind=sglang version=0.5.9 models=qwen/qwen2.5-0.5b-instruct/32768 kv=40960")
	f(llamacpp, "up=true kind=llamacpp version=b6123-abcdef models=m.gguf/4096 kv=16384")
	f(ollama, "up=true kind=ollama version=0.14.2 models=llama3.2:latest/0,me/mine:latest/0 kv=0")
	f(lmstudio, "up=true kind=lmstudio version= models=qwen3-8b/8192,gemma-3-4b/32768 kv=0")
	f(tgi, "up=true kind=tgi version=3.3.4 models=HuggingFaceH4/zephyr-7b-beta/4096 kv=32000")
	f(triton, "up=true kind=triton version=2.60.0 models=? kv=0")
	f(pages{}, "up=true kind=openai-compatible version= models=? kv=0")

	// Without an owner that tells, the engine's own pages do.
	f(with(vllm, "/v1/models", `{"data":[{"id":"m","owned_by":"acme"}]}`), "up=true kind=vllm version=0.26.1 models=m/0 kv=37440")
	f(with(sglang, "/v1/models", `{"data":[{"id":"m"}]}`), "up=true kind=sglang version=0.5.9 models=m/0 kv=40960")
	f(with(llamacpp, "/v1/models", `{"data":[{"id":"m"}]}`), "up=true kind=llamacpp version=b6123-abcdef models=m/4096 kv=16384")
	// A new Ollama without a model, and an old one without the page.
	f(with(ollama, "/v1/models", `{"object":"list","data":null}`), "up=true kind=ollama version=0.14.2 models= kv=0")
	f(with(ollama, "/v1/models", `404 page not found`), "up=true kind=ollama version=0.14.2 models=llama3.2:latest/0,me/mine:latest/0 kv=0")

	// What imitates an engine is not taken for it.
	f(pages{"/v1/models": `{"data":[{"id":"m","owned_by":"gateway"}]}`, "/version": `{"version":"1.0"}`, "/metrics": "gateway_requests_total 1\n"},
		"up=true kind=openai-compatible version= models=m/0 kv=0")
	f(pages{"/v1/models": `{"data":[{"id":"m","owned_by":"llama-swap"}]}`, "/api/version": `{"version":"0.0.0"}`, "/api/tags": `{"models":[]}`, "/": "<html>"},
		"up=true kind=openai-compatible version= models=m/0 kv=0")
	f(pages{"/v1/models": `{"data":[{"id":"a","owned_by":"vllm"},{"id":"b","owned_by":"sglang"}]}`},
		"up=true kind=openai-compatible version= models=a/0,b/0 kv=0")
	f(pages{"/v1/models": `[{"id":"a","context_length":8192}]`, "/info": `{"model_id":"embedder","max_input_length":512}`, "/v2": `{"name":"mlserver"}`},
		"up=true kind=openai-compatible version= models=a/8192 kv=0")
}

func with(served pages, path, body string) pages {
	changed := pages{path: body}
	for p, b := range served {
		if p != path {
			changed[p] = b
		}
	}
	return changed
}

// Every engine that can be found must be a kind that the rest of the program knows.
func TestEnginesAreKinds(t *testing.T) {
	for _, e := range engines {
		if _, ok := llm.LookupKind(e.kind); !ok {
			t.Errorf("engine %q is not in the table of kinds", e.kind)
		}
	}
	if _, ok := llm.LookupKind(generic); !ok {
		t.Errorf("%q is not in the table of kinds", generic)
	}
}

// TestHiddenVersionHidesNoCache: a vLLM behind something that does not pass /version on was given the limit of engines that say nothing
// of their size, which sent conversations away from where they are cached.
func TestHiddenVersionHidesNoCache(t *testing.T) {
	f := func(kind, owner, want string) {
		t.Helper()
		served := with(with(vllm, "/version", "404 page not found"), "/v1/models", `{"data":[{"id":"m","owned_by":"`+owner+`"}]}`)
		r := Probe(context.Background(), transport(t), Target{Name: "gpu-1", Kind: kind, URL: listen(t, &server{pages: served})})
		if got := describe(r); got != want {
			t.Errorf("kind %q: got %s, want %s (%v)", kind, got, want, r.Err)
		}
	}
	f("vllm", "acme", "up=true kind=vllm version= models=m/0 kv=37440")
	f("", "acme", "up=true kind=openai-compatible version= models=m/0 kv=0")
}

func TestProbeAsksNoMoreThanNeeded(t *testing.T) {
	f := func(target Target, served pages, want string) {
		t.Helper()
		s := &server{pages: served}
		target.URL = "http://gpu-1:8000/base"
		under := pages{}
		for path, body := range served {
			under["/base"+path] = body
		}
		s.pages = under
		Probe(context.Background(), s, target)
		wantPaths(t, s.asked(), strings.Fields(strings.ReplaceAll(" "+want, " /", " /base/"))...)
	}
	f(Target{}, vllm, "/v1/models /version /metrics")
	f(Target{}, llamacpp, "/v1/models /props")
	f(Target{}, pages{}, "/v1/models /version /server_info /get_server_info /props /api/version /api/v0/models /info /v2")
	f(Target{Kind: "vllm"}, vllm, "/v1/models /version /metrics")
	f(Target{Kind: "openai"}, vllm, "/v1/models")
	f(Target{Kind: "openai-compatible"}, vllm, "/v1/models")
	f(Target{Kind: "anthropic"}, pages{}, "/v1/models?limit=1000")
	f(Target{}, pages{"/v1/models": `503 {"error":{"message":"Loading model","type":"unavailable_error","code":503}}`}, "/v1/models")
}

func TestProbeSendsTheCredentialOfTheKind(t *testing.T) {
	f := func(kind, header, want string) {
		t.Helper()
		s := &server{pages: vllm}
		Probe(context.Background(), s, Target{Kind: kind, URL: "http://gpu-1:8000", APIKey: secret.New("sk-1")})
		for i, h := range s.heads {
			if got := h.Get(header); got != want {
				t.Errorf("kind %q, GET %s: %s is %q, want %q", kind, s.seen[i], header, got, want)
			}
		}
	}
	f("", "Authorization", "Bearer sk-1")
	f("vllm", "Authorization", "Bearer sk-1")
	f("anthropic", "X-Api-Key", "sk-1")
	f("anthropic", "Authorization", "")
	f("anthropic", "Anthropic-Version", "2023-06-01")
}

func TestProbeWithModelsListedByTheOperator(t *testing.T) {
	f := func(list, want string, wantErr bool) {
		t.Helper()
		s := &server{pages: pages{"/v1/models": list}}
		r := Probe(context.Background(), s, Target{Name: "gpu-1", Kind: "openai", URL: "http://gpu-1", Models: []string{"b", "x"}})
		if got := describe(r); got != want || (r.Err != nil) != wantErr {
			t.Errorf("%s: got %s, error %v", list, got, r.Err)
		}
	}
	f(`{"data":[{"id":"a"},{"id":"b","context_window":8192}]}`, "up=true kind=openai version= models=b/8192,x/0 kv=0", false)
	f(`404 no such page`, "up=true kind=openai version= models=b/0,x/0 kv=0", false)
	f(`<html>hello</html>`, "up=true kind=openai version= models=b/0,x/0 kv=0", false)
	f(`401 {}`, "up=true kind=openai version= models=b/0,x/0 kv=0", true)
	f(`503 {}`, "up=true kind=openai version= models=b/0,x/0 kv=0", true)

	r := Probe(context.Background(), &server{down: true}, Target{URL: "http://gpu-1", Models: []string{"b"}})
	if got, want := describe(r), "up=false kind= version= models=b/0 kv=0"; got != want || r.Err == nil {
		t.Errorf("down: got %s, want %s, error %v", got, want, r.Err)
	}
}

func TestProbeErrors(t *testing.T) {
	f := func(key, list, want string) {
		t.Helper()
		s := &server{pages: pages{"/v1/models": list}}
		r := Probe(context.Background(), s, Target{Name: "gpu-1", URL: "http://gpu-1", APIKey: secret.New(key)})
		if !r.Reachable {
			t.Errorf("%s: not reachable, but it answered", list)
		}
		if r.Err == nil || r.Err.Error() != want {
			t.Errorf("%s: got error\n     %v\nwant %s", list, r.Err, want)
		}
		if refused := list == "401 {}" || list == "403 {}"; r.Refused != refused {
			t.Errorf("%s: refused is %v", list, r.Refused)
		}
	}
	f("", `401 {}`, `GET /v1/models: 401 Unauthorized: endpoint "gpu-1" needs a key: set its api_key, or --upstream-key`)
	f("sk-1", `403 {}`, `GET /v1/models: 403 Forbidden: endpoint "gpu-1" does not accept the key that is set as api_key or --upstream-key`)
	f("", `404 x`, `GET /v1/models: 404 Not Found: endpoint "gpu-1" lists no models there: name those to serve in its models`)
	f("", `429 x`, `GET /v1/models: 429 Too Many Requests`)
	f("", `503 {"error":{"message":"Loading model"}}`, `GET /v1/models: 503 Service Unavailable: the engine is still loading its model`)
	f("", `502 x`, `GET /v1/models: 502 Bad Gateway: the server is not ready`)
	f("", `302 x`, `GET /v1/models: 302 Found: it redirects to another address, which is not followed: write the final address as the url of endpoint "gpu-1"`)
	f("", `hello`, `GET /v1/models: 200, but the answer is no JSON object`)
	f("", `null`, `GET /v1/models: 200, but the answer is no JSON object`)
	f("", `{"models":[]}`, `GET /v1/models: 200, but the answer has no "data"`)
	f("", `{"data":{"id":"m"}}`, `GET /v1/models: 200, but "data" in the answer is no list`)
	f("", `{"data":[{"id":"m"},{"name":"n"}]}`, `GET /v1/models: 200, but 1 of 2 listed models have no usable ID (1 to 512 printable bytes)`)
	f("", `{"data":[`+strings.Repeat(`{},`, 5000)+`{}]}`, `GET /v1/models: 200, but it lists 5001 models, more than 4096: name those to serve in the endpoint's models`)
	f("", strings.Repeat(" ", maxBody+1), `GET /v1/models: the answer is longer than 4 MiB`)

	r := Probe(context.Background(), nil, Target{Name: "gpu-1", URL: "http://[::1"})
	if want := `GET /v1/models: the URL of endpoint "gpu-1" is not usable`; r.Reachable || r.Err == nil || r.Err.Error() != want {
		t.Errorf("got %v, want %s", r.Err, want)
	}
}

// A server that is only half there keeps what is known: unknown is not down.
func TestProbeStopsAtTheFirstPageThatHangs(t *testing.T) {
	s := &server{pages: pages{"/v1/models": `{"data":[{"id":"m"}]}`}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := Probe(ctx, hangsAfter{s, 1, cancel}, Target{URL: "http://gpu-1"})
	if got, want := describe(r), "up=true kind=openai-compatible version= models=m/0 kv=0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wantPaths(t, s.asked(), "/v1/models")
	if r.Err == nil || !strings.Contains(r.Err.Error(), "asking which engine it is: GET /version: ") {
		t.Errorf("got error %v", r.Err)
	}
}

// hangsAfter answers the first GETs; at the next one it lets the prober's time run out.
type hangsAfter struct {
	*server
	answers int
	timeUp  func()
}

func (h hangsAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	hang := len(h.seen) >= h.answers
	h.mu.Unlock()
	if hang {
		h.timeUp()
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return h.server.RoundTrip(r)
}

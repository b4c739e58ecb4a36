package mock

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

func TestMetrics(t *testing.T) {
	e := start(t, Config{Models: []string{`odd"name`}, KVTokens: 3200, OutputTokens: 4})
	c := client(t)
	mustPost(t, c, e.URL()+"/v1/chat/completions", `{"model":"odd\"name","messages":[{"role":"user","content":"12345678"}]}`, 200)
	settled(t, e)
	setFault(t, e, Fault{Kind: "hang"})
	go post(t, c, e.URL()+"/v1/chat/completions", `{"model":"odd\"name","messages":[{"role":"user","content":"`+strings.Repeat("x", 4*1596)+`"}]}`)
	eventually(t, "running", func() bool { return e.Stats().Running == 1 })
	resp, err := c.Get(e.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	line := regexp.MustCompile(`^(# (HELP|TYPE) vllm:[a-z0-9_]+ .+|vllm:[a-z0-9_]+\{([a-z_]+="([^"\\]|\\.)*",?)*\} ([0-9.e+-]+))$`)
	for l := range strings.Lines(string(b)) {
		if !line.MatchString(strings.TrimSuffix(l, "\n")) {
			t.Errorf("not a line of Prometheus text: %q", l)
		}
	}
	labels := `{engine="0",model_name="odd\"name"} `
	for _, want := range []string{
		"vllm:num_requests_running" + labels + "1\n", "vllm:num_requests_waiting" + labels + "0\n",
		"vllm:kv_cache_usage_perc" + labels + "0.5\n", "vllm:prompt_tokens_total" + labels + "2\n",
		"vllm:generation_tokens_total" + labels + "4\n", "vllm:time_to_first_token_seconds_count" + labels + "1\n",
		"vllm:e2e_request_latency_seconds_count" + labels + "1\n", `vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="200"} 1` + "\n",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in\n%s", want, b)
		}
	}
	e.Kill()
}

// A refused request is no success, and a success says what ended it.
func TestMetricsCountSuccessByReason(t *testing.T) {
	e := start(t, Config{OutputTokens: 4, APIKey: "sesame", Engine: new(small())})
	ask := func(key, more string, status int) {
		t.Helper()
		req, _ := http.NewRequest("POST", e.URL()+"/v1/chat/completions", strings.NewReader(chatBody(more)))
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		if resp.Body.Close(); resp.StatusCode != status {
			t.Fatalf("%s: status %d, want %d", more, resp.StatusCode, status)
		}
	}
	ask("wrong", "", 401)
	ask("sesame", `,"mock":{"prompt_tokens":433000}`, 400)
	ask("sesame", `,"max_tokens":-1`, 400)
	ask("sesame", "", 200)
	ask("sesame", `,"max_tokens":3`, 200)
	ask("sesame", `,"max_tokens":2,"stream":true`, 200)
	settled(t, e)
	got := string(e.metrics())
	for reason, want := range map[string]int{"stop": 1, "length": 2, "abort": 0, "error": 0} {
		line := fmt.Sprintf(`vllm:request_success_total{engine="0",finished_reason="%s",model_name="mock-model"} %d`+"\n", reason, want)
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}

// docs/mock.md names the metrics that there are.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/mock.md")
	if err != nil {
		t.Fatal(err)
	}
	m := small()
	m.MaxAdapters = 1
	e, err := New(Config{Engine: &m, Adapters: []string{"adapter"}})
	if err != nil {
		t.Fatal(err)
	}
	names := func(pattern, text string) []string {
		var all []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	shown, told := names(`(?m)^# TYPE (vllm:\w+)`, string(e.metrics())), names("`(vllm:\\w+)`", string(page))
	if !slices.Equal(shown, told) {
		t.Errorf("/metrics has\n%q, docs/mock.md\n%q", shown, told)
	}
}

// The lengths and times that dashboards draw.
func TestMetricsMeasureRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := small() // 10 ms for a step, 1 ms for each prompt token and each sequence that decodes
		b := newBench(t, Config{Engine: &m, OutputTokens: 5})
		b.ask("/v1/chat/completions", chatBody(`,"stream":true,"mock":{"prompt_tokens":20}`)).answer()
		b.ask("/v1/chat/completions", chatBody(`,"max_tokens":3,"mock":{"prompt_tokens":30}`)).answer()
		b.ask("/v1/embeddings", `{"model":"mock-model","input":"12345678"}`).answer()
		synctest.Wait()
		got := string(b.e.metrics())
		labels := `{engine="0",model_name="mock-model"} `
		for _, want := range []string{
			"time_to_first_token_seconds_sum" + labels + "0.082\n", // 30 ms, 40 ms and 12 ms
			"inter_token_latency_seconds_sum" + labels + "0.066\n", "inter_token_latency_seconds_count" + labels + "6\n",
			`inter_token_latency_seconds_bucket{engine="0",model_name="mock-model",le="0.01"} 0` + "\n",
			`inter_token_latency_seconds_bucket{engine="0",model_name="mock-model",le="0.025"} 6` + "\n",
			"request_prompt_tokens_sum" + labels + "52\n", "request_prompt_tokens_count" + labels + "3\n",
			`request_prompt_tokens_bucket{engine="0",model_name="mock-model",le="20.0"} 2` + "\n",
			"request_generation_tokens_sum" + labels + "8\n", "request_generation_tokens_count" + labels + "3\n",
		} {
			if !strings.Contains(got, "\nvllm:"+want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
	})
}

// An objective such as "TTFT up to 1 s" names its bucket by the label that vLLM gives it.
func TestMetricsLabelBucketsAsVLLM(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	got := string(e.metrics())
	for _, want := range []string{
		`time_to_first_token_seconds_bucket{engine="0",model_name="mock-model",le="0.001"} 0`,
		`time_to_first_token_seconds_bucket{engine="0",model_name="mock-model",le="1.0"} 0`,
		`time_to_first_token_seconds_bucket{engine="0",model_name="mock-model",le="2560.0"} 0`,
		`request_prompt_tokens_bucket{engine="0",model_name="mock-model",le="200000.0"} 0`,
		`e2e_request_latency_seconds_bucket{engine="0",model_name="mock-model",le="+Inf"} 0`,
	} {
		if !strings.Contains(got, "\nvllm:"+want+"\n") {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

package mock

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// served starts an engine until the test ends.
func served(t *testing.T, c Config) *Engine {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// say sends a prompt, with a rank unless it is empty, and returns status and answer.
func say(t *testing.T, e *Engine, model, rank string) (int, string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"%s"}]}`, model, strings.Repeat("the same ", 10))
	req, err := http.NewRequest(http.MethodPost, e.URL()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if rank != "" {
		req.Header.Set("x-data-parallel-rank", rank)
	}
	return fetch(t, req)
}

func fetch(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func page(t *testing.T, e *Engine, path string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, e.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, text := fetch(t, req)
	return text
}

// TestRanks: each has a cache of its own, the header chooses, and metrics tell of each.
func TestRanks(t *testing.T) {
	m := small()
	e := served(t, Config{Engine: &m, DataParallel: 3, OutputTokens: 1})
	for i, x := range []struct {
		rank   string
		cached bool
	}{{"1", false}, {"1", true}, {"2", false}, {"1", true}, {"0", false}} {
		status, answer := say(t, e, "mock-model", x.rank)
		if status != http.StatusOK || strings.Contains(answer, `"cached_tokens":0`) == x.cached {
			t.Errorf("%d, rank %s: %d %s", i, x.rank, status, answer)
		}
	}
	for _, rank := range []string{"3", "-1"} {
		if status, answer := say(t, e, "mock-model", rank); status != http.StatusBadRequest || !strings.Contains(answer, "data_parallel_rank "+rank+" is out of range [0, 3).") {
			t.Errorf("rank %s: %d %s", rank, status, answer)
		}
	}
	for _, rank := range []string{"", "one"} { // as if it were not there
		if status, answer := say(t, e, "mock-model", rank); status != http.StatusOK {
			t.Errorf("rank %q: %d %s", rank, status, answer)
		}
	}
	text := page(t, e, "/metrics")
	for _, line := range []string{
		`vllm:num_requests_running{engine="2",model_name="mock-model"} 0`, `vllm:prefix_cache_queries_total{engine="1",model_name="mock-model"}`,
		`vllm:cache_config_info{block_size="4",engine="0",num_gpu_blocks="192"} 1`, `vllm:cache_config_info{block_size="4",engine="2",num_gpu_blocks="192"} 1`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	if strings.Contains(text, "lora") || strings.Contains(text, `engine="3"`) {
		t.Errorf("too much is told:\n%s", text)
	}
}

// TestAdapters are models beside the first one, with a parent, and loaded once where there is room.
func TestAdapters(t *testing.T) {
	m := small()
	m.MaxAdapters, m.AdapterLoad = 2, 50*time.Millisecond
	e := served(t, Config{Engine: &m, Models: []string{"base"}, Adapters: []string{"sql", "chat"}, OutputTokens: 1, OwnedBy: "vllm"})
	for _, model := range []string{"sql", "chat", "sql", "base"} {
		if status, answer := say(t, e, model, ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", model, status, answer)
		}
	}
	if n := e.Stats().AdapterLoads; n != 2 {
		t.Errorf("%d adapters were loaded", n)
	}
	if list := page(t, e, "/v1/models"); strings.Count(list, `"parent":"base"`) != 2 || strings.Count(list, `"id"`) != 3 {
		t.Errorf("models: %s", list)
	}
	if text := page(t, e, "/metrics"); !strings.Contains(text, `vllm:lora_requests_info{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""} `) {
		t.Errorf("metrics:\n%s", text)
	}
	for _, c := range []Config{{DataParallel: 2}, {Adapters: []string{"a"}}, {Engine: &m, DataParallel: -1}, {Engine: &m, Adapters: []string{""}}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}

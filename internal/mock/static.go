package mock

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
)

// static answers what is not an API call: models, health, version, metrics.
func (c *conn) static(path string) error {
	id, isModel := strings.CutPrefix(path, "/v1/models/")
	known := isModel || path == "/v1/models" || path == "/health" || path == "/metrics" ||
		path == "/version" && c.engine.cfg.OwnedBy == "vllm"
	allowed := c.req.Method == http.MethodGet || c.req.Method == http.MethodHead
	switch {
	case !known && dialects[path] == nil:
		return c.fail(chat{}, problem{status: http.StatusNotFound, message: "there is nothing at " + path})
	case !known || !allowed:
		allow := "allow: GET, HEAD"
		if !known {
			allow = "allow: POST"
		}
		return c.fail(c.dialect(), problem{status: http.StatusMethodNotAllowed, message: c.req.Method + " is not allowed at " + path}, allow)
	case isModel:
		model := c.engine.models[id]
		if model == nil {
			return c.unknownModel(chat{}, id)
		}
		return c.respond(http.StatusOK, jsonType, c.engine.modelObject(nil, model))
	case path == "/v1/models":
		return c.respond(http.StatusOK, jsonType, c.engine.modelList())
	case path == "/metrics":
		return c.respond(http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", c.engine.metrics())
	case path == "/version":
		return c.respond(http.StatusOK, jsonType, []byte(`{"version":"0.0.0+mock"}`))
	}
	return c.respond(http.StatusOK, "", nil) // health
}

func (e *Engine) modelObject(b, quoted []byte) []byte {
	return app(b, `{"id":`, quoted, `,"object":"model","created":`, created, `,"owned_by":`, quote(e.cfg.OwnedBy), `}`)
}

func (e *Engine) modelList() []byte {
	b := []byte(`{"object":"list","data":[`)
	for i, m := range e.cfg.Models {
		if i > 0 {
			b = append(b, ',')
		}
		b = e.modelObject(b, e.models[m])
	}
	return append(b, "]}"...)
}

// metrics is Prometheus text with the names and labels that vLLM uses.
func (e *Engine) metrics() []byte {
	n := &e.count
	running, waiting := e.slots.load()
	model := labelEscaper.Replace(e.cfg.Models[0])
	var b bytes.Buffer
	write := func(name, kind, help, labels string, value any) {
		fmt.Fprintf(&b, "# HELP vllm:%s %s\n# TYPE vllm:%[1]s %[3]s\nvllm:%[1]s{%[4]s} %[5]v\n", name, help, kind, labels, value)
	}
	labels := `engine="0",model_name="` + model + `"`
	write("num_requests_running", "gauge", "Requests that hold a slot.", labels, running)
	write("num_requests_waiting", "gauge", "Requests that wait for a slot.", labels, waiting)
	write("kv_cache_usage_perc", "gauge", "KV cache usage as a fraction: 1 is full.", labels,
		min(1, float64(n.heldTokens.Load())/float64(e.cfg.KVTokens)))
	write("prompt_tokens_total", "counter", "Prompt tokens processed.", labels, n.promptTokens.Load())
	write("generation_tokens_total", "counter", "Output tokens sent.", labels, n.outputTokens.Load())
	write("request_success_total", "counter", "Requests answered to the end.", `engine="0",finished_reason="stop",model_name="`+model+`"`, n.completed.Load())
	write("num_preemptions_total", "counter", "Preemptions; a mock engine has none.", labels, 0)
	write("cache_config_info", "gauge", "Size of the KV cache.",
		fmt.Sprintf(`block_size="%d",engine="0",num_gpu_blocks="%d"`, kvBlockTokens, e.cfg.KVTokens/kvBlockTokens), 1)
	return b.Bytes()
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

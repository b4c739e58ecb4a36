package mock

import (
	"net/http"
	"slices"
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
		return c.respond(http.StatusOK, jsonType, c.engine.modelObject(nil, id))
	case path == "/v1/models":
		return c.respond(http.StatusOK, jsonType, c.engine.modelList())
	case path == "/metrics":
		return c.respond(http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", c.engine.metrics())
	case path == "/version":
		return c.respond(http.StatusOK, jsonType, []byte(`{"version":"0.0.0+mock"}`))
	}
	return c.respond(http.StatusOK, "", nil) // health
}

func (e *Engine) modelObject(b []byte, model string) []byte {
	b = app(b, `{"id":`, e.models[model], `,"object":"model","created":`, created, `,"owned_by":`, quote(e.cfg.OwnedBy))
	if slices.Contains(e.cfg.Adapters, model) {
		b = app(b, `,"parent":`, e.models[e.cfg.Models[0]])
	}
	return append(b, '}')
}

func (e *Engine) modelList() []byte {
	b := []byte(`{"object":"list","data":[`)
	for i, m := range slices.Concat(e.cfg.Models, e.cfg.Adapters) {
		if i > 0 {
			b = append(b, ',')
		}
		b = e.modelObject(b, m)
	}
	return append(b, "]}"...)
}

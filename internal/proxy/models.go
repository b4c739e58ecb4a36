package proxy

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"evenkeel/internal/llm"
)

// modelView is a model as GET /v1/models shows it: the fields of both dialects.
type modelView struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	Type        string `json:"type"`
	DisplayName string `json:"display_name"`
}

func (m *Model) view() modelView {
	return modelView{ID: m.ID, Object: "model", Created: m.Created, OwnedBy: m.OwnedBy, Type: "model", DisplayName: m.ID}
}

// serveModels answers GET /v1/models and GET /v1/models/ID, also without /v1, from what is served here; nobody else is asked.
func (g *Generation) serveModels(w http.ResponseWriter, r *http.Request, api llm.API) {
	_, below, _ := strings.Cut(r.URL.EscapedPath(), "/models")
	if id := strings.TrimPrefix(below, "/"); id != "" {
		g.serveModel(w, api, id)
		return
	}
	views := make([]modelView, len(g.Models))
	for i := range g.Models {
		views[i] = g.Models[i].view()
	}
	page := struct {
		Object  string      `json:"object"`
		Data    []modelView `json:"data"`
		HasMore bool        `json:"has_more"`
	}{"list", views, false}
	writeJSON(w, page)
}

func (g *Generation) serveModel(w http.ResponseWriter, api llm.API, escaped string) {
	id, err := url.PathUnescape(escaped)
	if err != nil {
		id = escaped
	}
	i, ok := slices.BinarySearchFunc(g.Models, id, func(m Model, id string) int { return strings.Compare(m.ID, id) })
	if !ok {
		_, failure := g.chain(id)
		if failure == nil {
			_, failure = (&Generation{}).chain(id)
		}
		writeError(w, api, failure)
		return
	}
	writeJSON(w, g.Models[i].view())
}

func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("BUG: proxy: a model list cannot be encoded: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // a client that left needs no answer
}

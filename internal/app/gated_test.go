package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// gated is an engine whose answers stop after their first token until its gate opens, so that tests need not guess
// how long something runs.
type gated struct {
	URL    string
	gate   chan struct{}
	models []string

	started, running, left atomic.Int64 // requests; left: whose client was gone before the gate opened
	probes                 atomic.Int64 // GETs
	loading                atomic.Bool  // it says that it is not ready

	mu  sync.Mutex
	ids []string // X-Request-Id of the requests, in the order of arrival
}

func newGated(t *testing.T, models ...string) *gated {
	t.Helper()
	g := &gated{gate: make(chan struct{}), models: models}
	server := httptest.NewServer(g)
	g.URL = server.URL
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return g
}

// open lets all answers go on, those of the future too.
func (g *gated) open() { close(g.gate) }

func (g *gated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		g.probes.Add(1)
		g.page(w, r)
		return
	}
	request, _ := io.ReadAll(r.Body)
	g.mu.Lock()
	g.ids = append(g.ids, r.Header.Get("X-Request-Id"))
	g.mu.Unlock()
	g.started.Add(1)
	g.running.Add(1)
	defer g.running.Add(-1)
	var asked struct {
		Model  string
		Stream bool
	}
	if err := json.Unmarshal(request, &asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if asked.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, delta := range []string{`{"role":"assistant"}`, `{"content":"first"}`} {
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":null}]}\n\n", delta)
		}
		http.NewResponseController(w).Flush()
	}
	select {
	case <-g.gate:
	case <-r.Context().Done():
		g.left.Add(1)
		return
	}
	const usage = `"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}`
	if asked.Stream {
		io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":" second"},"finish_reason":null}]}`+"\n\n"+
			`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n"+
			`data: {"choices":[],`+usage+"}\n\n"+"data: [DONE]\n\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"first second"},"finish_reason":"stop"}],`+usage+"}")
}

func (g *gated) page(w http.ResponseWriter, r *http.Request) {
	if g.loading.Load() {
		http.Error(w, "loading", http.StatusServiceUnavailable)
		return
	}
	if r.URL.Path != "/v1/models" {
		http.NotFound(w, r)
		return
	}
	type model struct {
		ID string `json:"id"`
	}
	list := []model{}
	for _, m := range g.models {
		list = append(list, model{m})
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": list})
}

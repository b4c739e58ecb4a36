package discovery

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestProbeSmoke(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			w.Write([]byte(`{"object":"list","data":[{"id":"m","owned_by":"vllm","max_model_len":4096}]}`))
			return
		}
		http.NotFound(w, r)
	}))
	defer s.Close()
	r := Probe(context.Background(), nil, Target{Name: "a", URL: s.URL})
	if !r.Reachable || r.Kind != "vllm" || len(r.Models) != 1 || r.Models[0].ContextWindow != 4096 {
		t.Errorf("%+v", r)
	}
}

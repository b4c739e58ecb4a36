//go:build !race

package router

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/mock"
)

// mockShape makes prompts of 2,000 to 30,000 tokens, of which a mock sees one in four bytes.
var mockShape = shape{systems: 12, system: span{700, 5000}, question: span{150, 3000}, turns: span{3, 9}, answer: span{20, 80}, think: 6 * time.Second}

const (
	mockEngines = 4
	mockPreset  = "vllm-8192"
	mockModel   = "mock-model"
)

// sessionHow says by what balancers that hash are told to.
const sessionHow = "by the header `x-session-id`, which each conversation has of its own"

// peers are what is compared before mock engines.
var peers = []target{
	evenkeel("predicted_wait"),
	evenkeel("least_tokens"),
	evenkeel("least_tokens", noAffinity),
	nginx("hash", "`hash $http_x_session_id consistent`: "+sessionHow, "hash $http_x_session_id consistent;"),
	nginx("least_conn", "`least_conn`, in one process", "least_conn;"),
	haproxy("hash", "`balance hdr(x-session-id)` with `hash-type consistent`: "+sessionHow, "balance hdr(x-session-id)\n  hash-type consistent"),
	haproxy("leastconn", "`balance leastconn`", "balance leastconn"),
	pythonRouter("sglang-router", "cache_aware"),
	pythonRouter("vllm-router", "cache_aware"),
}

// startMocks runs engines that have cached nothing until the test ends.
func startMocks(t *testing.T) fleet {
	t.Helper()
	f := fleet{kind: "vllm", model: mockModel}
	c, err := engine.Preset(mockPreset)
	if err != nil {
		t.Fatal(err)
	}
	for i := range mockEngines {
		e, err := mock.New(mock.Config{Name: fmt.Sprint("e", i), OwnedBy: "vllm", Models: []string{mockModel}, Engine: &c, OutputTokens: mockShape.answer.max})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Kill)
		f.urls = append(f.urls, e.URL())
	}
	return f
}

// A short run: each balancer that needs no installation of its own serves all turns of some talks.
func TestBalancersServe(t *testing.T) {
	for _, g := range peers {
		if g.extra {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			if g.ready != nil {
				if err := g.ready(t); err != nil {
					t.Fatalf("%v: run `make setup`", err)
				}
			}
			f := startMocks(t)
			lb := g.start(t, f)
			defer lb.stop()
			s := mockShape
			s.think = 100 * time.Millisecond
			turns := play(t.Context(), lb.url, f.model, s.talks(1, 5, time.Second), nil, time.Hour)
			if got := summarize(turns, 0); got.failed > 0 || got.turns < 10 {
				t.Errorf("%v", got)
			} else {
				t.Log(got)
			}
		})
	}
}

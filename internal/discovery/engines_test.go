package discovery

import (
	"context"
	"testing"

	"evenkeel/internal/mock"
	"evenkeel/internal/secret"
	"evenkeel/tests/realengine"
)

// The engines of this repository, over sockets: a mock that plays vLLM, and a real llama.cpp.

func TestProbeOfTheMockEngine(t *testing.T) {
	e, err := mock.New(mock.Config{Models: []string{"a", "b"}, OwnedBy: "vllm", KVTokens: 65536, APIKey: "sk-1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	f := func(key, want string) {
		t.Helper()
		r := Probe(context.Background(), transport(t), Target{Name: "mock", URL: e.URL(), APIKey: secret.New(key)})
		r.Version = ""
		if got := describe(r); got != want || (r.Err == nil) != (key == "sk-1") {
			t.Errorf("got %s, error %v; want %s", got, r.Err, want)
		}
	}
	f("sk-1", "up=true kind=vllm version= models=a/0,b/0 kv=65536")
	f("", "up=true kind=vllm version= models=? kv=65536")
}

func TestProbeOfRealLlamaCPP(t *testing.T) {
	s := realengine.Start(t, 1, realengine.Options{Slots: 2, Context: 2048, APIKey: "sk-1"})[0]
	f := func(key, want string) {
		t.Helper()
		r := Probe(context.Background(), transport(t), Target{Name: "real", URL: s.URL, APIKey: secret.New(key)})
		if key == "sk-1" && r.Version == "" {
			t.Error("no version")
		}
		r.Version = ""
		if got := describe(r); got != want || (r.Err == nil) != (key == "sk-1") {
			t.Errorf("got %s, error %v; want %s", got, r.Err, want)
		}
	}
	f("sk-1", "up=true kind=llamacpp version= models="+realengine.ModelName+"/2048 kv=4096")
	f("sk-2", "up=true kind=openai-compatible version= models=? kv=0")
	s.Kill()
	f("", "up=false kind= version= models=? kv=0")
}

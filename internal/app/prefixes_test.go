package app

import (
	"testing"

	"evenkeel/internal/llm"
)

// TestPrefixKey: balancers with the same endpoints and credentials hash prompts alike, in whatever order these are written; with others they do not.
func TestPrefixKey(t *testing.T) {
	hash := func(text string) uint64 { return llm.Session(prefixKey(parse(t, text)), "", "prompt") }
	one := hash("endpoints:\n  a: {url: \"http://a:8000\", api_key: x}\n  b: {url: \"http://b:8000\"}\n")
	f := func(text string, alike bool) {
		t.Helper()
		if (hash(text) == one) != alike {
			t.Errorf("alike is %v, want %v: %s", !alike, alike, text)
		}
	}
	f("endpoints:\n  b: {url: \"http://b:8000\"}\n  a: {url: \"http://a:8000\", api_key: x}\n", true)
	f("strategy: round_robin\nlisten: 127.0.0.1:7777\nendpoints:\n  a: {url: \"http://a:8000\", api_key: x, weight: 2}\n  b: {url: \"http://b:8000\"}\n", true)
	f("endpoints:\n  a: {url: \"http://a:8000\", api_key: y}\n  b: {url: \"http://b:8000\"}\n", false)
	f("endpoints:\n  a: {url: \"http://a:8000\"}\n  b: {url: \"http://b:8000\", api_key: x}\n", false)
	f("endpoints:\n  a: {url: \"http://a:8000\", api_key: x}\n", false)
}

package llm

import "testing"

func TestAPIOf(t *testing.T) {
	f := func(method, path string, want API) {
		t.Helper()
		if got := APIOf(method, path); got != want {
			t.Errorf("APIOf(%s %s)\n got %+v\nwant %+v", method, path, got, want)
		}
	}
	chat := API{Name: "chat", NeedsModel: true, Repeatable: true, Streams: true}
	f("POST", "/v1/chat/completions", chat)
	f("POST", "/v1/chat/completions/", chat)
	f("POST", "/chat/completions", chat)
	f("POST", "/v1/completions", API{Name: "completions", NeedsModel: true, Repeatable: true, Streams: true})
	f("POST", "/v1/responses", API{Name: "responses", NeedsModel: true, Repeatable: true, Streams: true})
	f("GET", "/v1/responses/resp_1", API{Name: "responses", Repeatable: true, Streams: true})
	f("POST", "/v1/responses/resp_1/cancel", API{Name: "responses", Streams: true})
	f("POST", "/v1/messages", API{Name: "messages", Dialect: Anthropic, NeedsModel: true, Repeatable: true, Streams: true})
	f("POST", "/v1/messages/count_tokens", API{Name: "count_tokens", Dialect: Anthropic, NeedsModel: true, Repeatable: true})
	f("POST", "/v1/messages/batches", API{Name: "batches", Dialect: Anthropic})
	f("GET", "/v1/messages/batches/b1/results", API{Name: "batches", Dialect: Anthropic, Repeatable: true})
	f("POST", "/v1/embeddings", API{Name: "embeddings", NeedsModel: true, Repeatable: true})
	f("POST", "/v1/audio/transcriptions", API{Name: "audio", NeedsModel: true})
	f("POST", "/v1/images/generations", API{Name: "images"})
	f("POST", "/v1/files", API{Name: "files"})
	f("GET", "/v1/models", API{Name: "models", Repeatable: true})
	f("GET", "/v1/models/org-a/Model-7B", API{Name: "models", Repeatable: true})
	f("OPTIONS", "/v1/chat/completions", API{Name: "chat", Streams: true})
	f("POST", "/v1/assistants", API{Name: "other"})
	f("POST", "/", API{Name: "other"})
	f("POST", "", API{Name: "other"})
}

// Routes that path allow-lists of other gateways blocked although engines serve them.
func TestCase69OtherJSONPaths(t *testing.T) {
	for _, path := range []string{"/v1/rerank", "/rerank", "/v2/rerank", "/v1/score", "/score", "/v1/embeddings", "/v1/completions", "/v1/responses"} {
		if api := APIOf("POST", path); !api.NeedsModel || !api.Repeatable {
			t.Errorf("APIOf(POST %s) = %+v", path, api)
		}
	}
	if api := APIOf("POST", "/tokenize"); api.Name != "tokenize" || !api.Repeatable || api.NeedsModel {
		t.Errorf("APIOf(POST /tokenize) = %+v", api)
	}
}

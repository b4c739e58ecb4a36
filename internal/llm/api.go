package llm

import "strings"

// Dialect is the wire format of a client.
type Dialect uint8

// The dialects.
const (
	OpenAI Dialect = iota
	Anthropic
)

// String returns the name used in config, metrics and logs.
func (d Dialect) String() string {
	if d == Anthropic {
		return "anthropic"
	}
	return "openai"
}

// API is what the path of a request means.
type API struct {
	// Name is a short stable word, fit for a metrics label: chat, completions, responses, embeddings, messages,
	// count_tokens, models, rerank, score, tokenize, audio, images, files, batches, moderations or other.
	Name string
	// Dialect is the shape of errors and events: Anthropic for /v1/messages and below, else OpenAI.
	Dialect Dialect
	// NeedsModel is true for a POST that cannot be routed without a `model`.
	NeedsModel bool
	// Repeatable is true if the request may be sent again after an attempt sent bytes. It is true for GET and HEAD (safe
	// methods, RFC 9110 §9.2.1). For responses and messages, Request.Unrepeatable can still forbid it.
	Repeatable bool
	// Streams is true if a streamed answer of this API always carries a terminal marker, so that its absence means a cut.
	Streams bool
}

// APIOf returns the meaning of a request's method and path. The path comes without query; a trailing slash and a missing
// /v1 do not matter.
func APIOf(method, path string) API {
	path = strings.TrimRight(path, "/")
	rest, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		if rest, ok = strings.CutPrefix(path, "/v2/"); !ok {
			rest = strings.TrimPrefix(path, "/")
		}
	}
	api := lookupAPI(rest)
	if method != "POST" {
		api.NeedsModel = false
		api.Repeatable = method == "GET" || method == "HEAD"
	}
	return api
}

// lookupAPI takes a path without its version. Exact paths are inference calls; what is left goes by its first segment.
func lookupAPI(rest string) API {
	switch rest {
	case "chat/completions":
		return API{Name: "chat", NeedsModel: true, Repeatable: true, Streams: true}
	case "completions":
		return API{Name: "completions", NeedsModel: true, Repeatable: true, Streams: true}
	case "responses":
		return API{Name: "responses", NeedsModel: true, Repeatable: true, Streams: true}
	case "embeddings", "rerank", "score":
		return API{Name: rest, NeedsModel: true, Repeatable: true}
	case "tokenize", "detokenize":
		return API{Name: "tokenize", Repeatable: true} // engines take their only model if none is named
	case "messages":
		return API{Name: "messages", Dialect: Anthropic, NeedsModel: true, Repeatable: true, Streams: true}
	case "messages/count_tokens":
		return API{Name: "count_tokens", Dialect: Anthropic, NeedsModel: true, Repeatable: true}
	case "audio/transcriptions", "audio/translations", "audio/speech":
		return API{Name: "audio", NeedsModel: true}
	}
	head, below, _ := strings.Cut(rest, "/")
	switch head {
	case "models", "audio", "images", "files", "batches", "moderations":
		return API{Name: head}
	case "responses":
		return API{Name: head, Streams: true} // a stored response can be streamed again
	case "chat":
		return API{Name: head}
	case "messages":
		if below == "batches" || strings.HasPrefix(below, "batches/") {
			return API{Name: "batches", Dialect: Anthropic}
		}
		return API{Name: "other", Dialect: Anthropic}
	}
	return API{Name: "other"}
}

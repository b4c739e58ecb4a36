package mock

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

const done = "data: [DONE]\n\n"

// openAI is what the OpenAI dialects share: errors, and events without names.
type openAI struct{}

// errorTypes are OpenAI's error types by status.
var errorTypes = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
	405: "invalid_request_error", 413: "invalid_request_error", 429: "rate_limit_error", 503: "service_unavailable",
}

func (openAI) problem(b []byte, p problem) []byte {
	kind := errorTypes[p.status]
	if kind == "" {
		kind = "server_error"
	}
	return app(b, `{"error":{"message":`, quote(p.message), `,"type":"`, kind, `","param":`, orNull(p.param), `,"code":`, orNull(p.code), `}}`)
}

func orNull(s string) []byte {
	if s == "" {
		return []byte("null")
	}
	return quote(s)
}

// failure is vLLM's way: an error object as an event, then the end marker.
func (o openAI) failure(b []byte, p problem, _ int) []byte {
	if p.code == "" {
		p.code = strconv.Itoa(p.status)
	}
	b = o.problem(append(b, "data: "...), p)
	return app(b, "\n\n", done)
}

func (openAI) usage(b []byte, a *answer) []byte {
	in := a.promptTokens()
	return app(b, `{"prompt_tokens":`, in, `,"completion_tokens":`, a.tokens, `,"total_tokens":`, in+a.tokens,
		`,"prompt_tokens_details":{"cached_tokens":`, a.cached, `}}`)
}

// required is the flaw of a call that lacks a field.
func required(field string, has bool) (string, string) {
	if has {
		return "", ""
	}
	return field, field + " is required"
}

// oneChoice is the flaw of a call that lacks its prompt, or wants several answers to it.
func oneChoice(c *call, prompt string) (string, string) {
	if c.choices > 1 {
		return "n", fmt.Sprintf("n is %d: the mock gives one choice; leave n out, or send the request %[1]d times", c.choices)
	}
	return required(prompt, c.hasPrompt)
}

func (a *answer) finish() string {
	switch {
	case a.tool != nil:
		return "tool_calls"
	case a.limited:
		return "length"
	}
	return "stop"
}

// chat is POST /v1/chat/completions.
type chat struct{ openAI }

func (chat) flaw(c *call) (string, string) { return oneChoice(c, "messages") }

// chunk appends one event with the given choices.
func (chat) chunk(b []byte, a *answer, choices ...any) []byte {
	b = app(b, `data: {"id":"chatcmpl-`, a.id, `","object":"chat.completion.chunk","created":`, created, `,"model":`, a.model,
		`,"system_fingerprint":"`, a.name, `","choices":[`)
	return app(b, choices...)
}

// tail ends an event: with usage asked for, all but the last say that it is not known yet.
func (chat) tail(a *answer) string {
	if a.includeUsage && a.usage {
		return `,"usage":null}` + "\n\n"
	}
	return "}\n\n"
}

func (d chat) open(b []byte, a *answer) []byte {
	end := `},"logprobs":null,"finish_reason":null}]` + d.tail(a)
	if a.tool != nil {
		a.before = d.chunk(a.before[:0], a, `{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"`)
		a.after = app(a.after[:0], `"}}]`, end)
		return d.chunk(b, a, `{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_`, a.id,
			`","type":"function","function":{"name":"`, a.tool, `","arguments":""}}]`, end)
	}
	a.before = d.chunk(a.before[:0], a, `{"index":0,"delta":{"content":"`)
	a.after = app(a.after[:0], `"`, end)
	return d.chunk(b, a, `{"index":0,"delta":{"role":"assistant","content":""`, end)
}

func (chat) token(b []byte, a *answer, i int) []byte { return a.token(b, i) }

func (d chat) shut(b []byte, a *answer) []byte {
	b = d.chunk(b, a, `{"index":0,"delta":{},"logprobs":null,"finish_reason":"`, a.finish(), `"}]`, d.tail(a))
	if a.includeUsage && a.usage {
		b = d.chunk(b, a, `],"usage":`)
		b = app(d.usage(b, a), "}\n\n")
	}
	return append(b, done...)
}

func (d chat) whole(b []byte, a *answer) []byte {
	b = app(b, `{"id":"chatcmpl-`, a.id, `","object":"chat.completion","created":`, created, `,"model":`, a.model,
		`,"choices":[{"index":0,"message":{"role":"assistant","content":`)
	if a.tool != nil {
		b = app(b, `null,"tool_calls":[{"id":"call_`, a.id, `","type":"function","function":{"name":"`, a.tool, `","arguments":"`)
		b = app(a.text(b), `"}}]`)
	} else {
		b = append(a.text(append(b, '"')), '"')
	}
	b = app(b, `,"refusal":null},"logprobs":null,"finish_reason":"`, a.finish(), `"}]`)
	if a.usage {
		b = d.usage(app(b, `,"usage":`), a)
	}
	return app(b, `,"system_fingerprint":"`, a.name, `"}`)
}

// completion is POST /v1/completions.
type completion struct{ openAI }

func (completion) flaw(c *call) (string, string) {
	if c.inputs > 1 {
		return "prompt", fmt.Sprintf("prompt holds %d texts: the mock answers one; send each as a request of its own", c.inputs)
	}
	return oneChoice(c, "prompt")
}

func (completion) chunk(b []byte, a *answer, choices ...any) []byte {
	b = app(b, `data: {"id":"cmpl-`, a.id, `","object":"text_completion","created":`, created, `,"model":`, a.model,
		`,"system_fingerprint":"`, a.name, `","choices":[`)
	return app(b, choices...)
}

func (d completion) open(b []byte, a *answer) []byte {
	a.before = d.chunk(a.before[:0], a, `{"index":0,"text":"`)
	a.after = app(a.after[:0], `","logprobs":null,"finish_reason":null}]}`, "\n\n")
	return b
}

func (completion) token(b []byte, a *answer, i int) []byte { return a.token(b, i) }

func (d completion) shut(b []byte, a *answer) []byte {
	b = d.chunk(b, a, `{"index":0,"text":"","logprobs":null,"finish_reason":"`, a.finish(), `"}]}`, "\n\n")
	if a.includeUsage && a.usage {
		b = d.usage(d.chunk(b, a, `],"usage":`), a)
		b = append(b, "}\n\n"...)
	}
	return append(b, done...)
}

func (d completion) whole(b []byte, a *answer) []byte {
	b = app(b, `{"id":"cmpl-`, a.id, `","object":"text_completion","created":`, created, `,"model":`, a.model,
		`,"choices":[{"index":0,"text":"`)
	b = app(a.text(b), `","logprobs":null,"finish_reason":"`, a.finish(), `"}]`)
	if a.usage {
		b = d.usage(app(b, `,"usage":`), a)
	}
	return app(b, `,"system_fingerprint":"`, a.name, `"}`)
}

// embeddings is POST /v1/embeddings. It has no streamed form and no output tokens.
type embeddings struct{ openAI }

const (
	defaultDimensions = 8
	maxDimensions     = 4096
)

func (embeddings) flaw(c *call) (string, string)           { return required("input", c.hasPrompt) }
func (embeddings) open(b []byte, _ *answer) []byte         { return b }
func (embeddings) token(b []byte, _ *answer, _ int) []byte { return b }
func (embeddings) shut(b []byte, _ *answer) []byte         { return b }

func (embeddings) whole(b []byte, a *answer) []byte {
	dims := defaultDimensions
	if a.dimensions > 0 {
		dims = min(a.dimensions, maxDimensions)
	}
	b = app(b, `{"object":"list","data":[`)
	var raw []byte
	for i := range a.inputs {
		if i > 0 {
			b = append(b, ',')
		}
		b = app(b, `{"object":"embedding","index":`, i, `,"embedding":`)
		raw = raw[:0]
		for d := range dims {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(a.component(i, d)))
		}
		if a.base64 {
			b = append(base64.StdEncoding.AppendEncode(append(b, '"'), raw), `"}`...)
			continue
		}
		b = append(b, '[')
		for d := range dims {
			if d > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendFloat(b, float64(a.component(i, d)), 'g', -1, 32)
		}
		b = append(b, "]}"...)
	}
	b = app(b, `],"model":`, a.model)
	if a.usage {
		b = app(b, `,"usage":{"prompt_tokens":`, a.promptTokens(), `,"total_tokens":`, a.promptTokens(), `}`)
	}
	return append(b, '}')
}

// component is one number of the vector of input i, between -1 and 1.
func (a *answer) component(i, dimension int) float32 {
	h := mix(a.seed + uint64(i)<<32 + uint64(dimension))
	return float32(int32(h>>32)) / (1 << 31)
}

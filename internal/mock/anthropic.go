package mock

// messages is POST /v1/messages of the Anthropic API.
type messages struct{}

// anthropicTypes are Anthropic's error types by status.
var anthropicTypes = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
	405: "invalid_request_error", 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 529: "overloaded_error",
}

func (messages) flaw(c *call) (string, string) {
	if !c.hasPrompt {
		return required("messages", false)
	}
	return required("max_tokens", c.limit > 0)
}

func (messages) problem(b []byte, p problem) []byte {
	kind := anthropicTypes[p.status]
	if kind == "" {
		kind = "api_error"
	}
	return app(b, `{"type":"error","error":{"type":"`, kind, `","message":`, quote(p.message), `}}`)
}

func (d messages) failure(b []byte, p problem, _ int) []byte {
	return append(d.problem(append(b, "event: error\ndata: "...), p), "\n\n"...)
}

// usage of the output is 1 at the start, as the API has it. What was cached is not among the input tokens.
func (messages) usage(b []byte, a *answer, output int) []byte {
	if !a.usage {
		return b
	}
	return app(b, `,"usage":{"input_tokens":`, a.promptTokens()-a.cached, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`, a.cached, `,"output_tokens":`, output, `}`)
}

func (messages) stopReason(a *answer) string {
	switch {
	case a.tool != nil:
		return "tool_use"
	case a.limited:
		return "max_tokens"
	}
	return "end_turn"
}

func (d messages) open(b []byte, a *answer) []byte {
	b = app(b, "event: message_start\n", `data: {"type":"message_start","message":{"id":"msg_`, a.id,
		`","type":"message","role":"assistant","model":`, a.model, `,"content":[],"stop_reason":null,"stop_sequence":null`)
	b = app(d.usage(b, a, 1), "}}\n\nevent: content_block_start\n", `data: {"type":"content_block_start","index":0,"content_block":`)
	kind, field := "text_delta", "text"
	if a.tool != nil {
		kind, field = "input_json_delta", "partial_json"
		b = app(b, `{"type":"tool_use","id":"toolu_`, a.id, `","name":"`, a.tool, `","input":{}}`)
	} else {
		b = app(b, `{"type":"text","text":""}`)
	}
	a.before = app(a.before[:0], "event: content_block_delta\n", `data: {"type":"content_block_delta","index":0,"delta":{"type":"`, kind, `","`, field, `":"`)
	a.after = app(a.after[:0], `"}}`, "\n\n")
	return app(b, "}\n\nevent: ping\n", `data: {"type":"ping"}`, "\n\n")
}

func (messages) token(b []byte, a *answer, i int) []byte { return a.token(b, i) }

func (d messages) shut(b []byte, a *answer) []byte {
	b = app(b, "event: content_block_stop\n", `data: {"type":"content_block_stop","index":0}`, "\n\n",
		"event: message_delta\n", `data: {"type":"message_delta","delta":{"stop_reason":"`, d.stopReason(a), `","stop_sequence":null}`)
	if a.usage {
		b = app(b, `,"usage":{"output_tokens":`, a.tokens, `}`)
	}
	return app(b, "}\n\nevent: message_stop\n", `data: {"type":"message_stop"}`, "\n\n")
}

func (d messages) whole(b []byte, a *answer) []byte {
	b = app(b, `{"id":"msg_`, a.id, `","type":"message","role":"assistant","model":`, a.model, `,"content":[`)
	if a.tool != nil {
		b = app(b, `{"type":"tool_use","id":"toolu_`, a.id, `","name":"`, a.tool, `","input":`)
		b = append(append(b, unescape(a.text(nil))...), '}')
	} else {
		b = app(a.text(app(b, `{"type":"text","text":"`)), `"}`)
	}
	b = app(b, `],"stop_reason":"`, d.stopReason(a), `","stop_sequence":null`)
	return append(d.usage(b, a, a.tokens), '}')
}

// countTokens is POST /v1/messages/count_tokens.
type countTokens struct{ messages }

func (countTokens) flaw(c *call) (string, string) { return required("messages", c.hasPrompt) }

func (countTokens) whole(b []byte, a *answer) []byte {
	return app(b, `{"input_tokens":`, a.promptTokens(), `}`)
}

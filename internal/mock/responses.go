package mock

// responses is POST /v1/responses. Its events are named and numbered.
type responses struct{ openAI }

func (responses) flaw(c *call) (string, string) { return required("input", c.hasPrompt) }

// openEvents is how many events open sends: the numbers of the tokens follow them.
const openEvents = 4

// event appends an event up to the point where its own fields go on. Each ends with a sequence number and a brace.
func (responses) event(b []byte, name string, parts ...any) []byte {
	b = app(b, "event: ", name, "\ndata: ", `{"type":"`, name, `"`)
	return app(b, parts...)
}

func numbered(b []byte, n int) []byte {
	return app(b, `,"sequence_number":`, n, "}\n\n")
}

// object appends the response itself: status is in_progress, completed or incomplete; output only when it is over.
func (d responses) object(b []byte, a *answer, status string) []byte {
	reason := `null`
	if status == "incomplete" {
		reason = `{"reason":"max_output_tokens"}`
	}
	b = app(b, `{"id":"resp_`, a.id, `","object":"response","created_at":`, created, `,"status":"`, status,
		`","error":null,"incomplete_details":`, reason, `,"instructions":null,"max_output_tokens":null,"metadata":{},"model":`, a.model,
		`,"output":[`)
	over := status != "in_progress"
	if over {
		b = d.item(b, a, status)
	}
	b = app(b, `],"parallel_tool_calls":true,"previous_response_id":null,"temperature":1,"tool_choice":"auto","tools":[],"top_p":1,"truncation":"disabled","usage":`)
	if !over || !a.usage {
		return app(b, `null}`)
	}
	in := a.promptTokens()
	return app(b, `{"input_tokens":`, in, `,"input_tokens_details":{"cached_tokens":`, a.cached, `},"output_tokens":`, a.tokens,
		`,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":`, in+a.tokens, `}}`)
}

// item appends the one output item; with status in_progress it is still empty.
func (d responses) item(b []byte, a *answer, status string) []byte {
	over := status != "in_progress"
	if a.tool != nil {
		b = app(b, `{"id":"fc_`, a.id, `","type":"function_call","status":"`, status, `","call_id":"call_`, a.id, `","name":"`, a.tool, `","arguments":"`)
		if over {
			b = a.text(b)
		}
		return app(b, `"}`)
	}
	b = app(b, `{"id":"msg_`, a.id, `","type":"message","status":"`, status, `","role":"assistant","content":[`)
	if over {
		b = d.part(b, a, true)
	}
	return app(b, `]}`)
}

func (responses) part(b []byte, a *answer, full bool) []byte {
	b = app(b, `{"type":"output_text","annotations":[],"text":"`)
	if full {
		b = a.text(b)
	}
	return app(b, `"}`)
}

func (responses) outcome(a *answer) string {
	if a.limited {
		return "incomplete"
	}
	return "completed"
}

func (d responses) open(b []byte, a *answer) []byte {
	n := 0
	for _, name := range []string{"response.created", "response.in_progress"} {
		b = d.event(b, name, `,"response":`)
		b = numbered(d.object(b, a, "in_progress"), n)
		n++
	}
	b = d.event(b, "response.output_item.added", `,"output_index":0,"item":`)
	b = numbered(d.item(b, a, "in_progress"), n)
	if a.tool != nil {
		a.before = d.event(a.before[:0], "response.function_call_arguments.delta", `,"item_id":"fc_`, a.id, `","output_index":0,"delta":"`)
		return b
	}
	a.before = d.event(a.before[:0], "response.output_text.delta", `,"item_id":"msg_`, a.id, `","output_index":0,"content_index":0,"delta":"`)
	b = d.event(b, "response.content_part.added", `,"item_id":"msg_`, a.id, `","output_index":0,"content_index":0,"part":`)
	return numbered(d.part(b, a, false), n+1)
}

func (d responses) firstNumber(a *answer) int {
	if a.tool != nil {
		return openEvents - 1 // a function call has no content part
	}
	return openEvents
}

func (d responses) token(b []byte, a *answer, i int) []byte {
	b = append(b, a.before...)
	b = a.piece(b, i)
	b = append(b, '"')
	return numbered(b, d.firstNumber(a)+i)
}

func (d responses) shut(b []byte, a *answer) []byte {
	n := d.firstNumber(a) + a.tokens
	if a.tool != nil {
		b = d.event(b, "response.function_call_arguments.done", `,"item_id":"fc_`, a.id, `","output_index":0,"arguments":"`)
		b = numbered(append(a.text(b), '"'), n)
		n++
	} else {
		b = d.event(b, "response.output_text.done", `,"item_id":"msg_`, a.id, `","output_index":0,"content_index":0,"text":"`)
		b = numbered(append(a.text(b), '"'), n)
		b = d.event(b, "response.content_part.done", `,"item_id":"msg_`, a.id, `","output_index":0,"content_index":0,"part":`)
		b = numbered(d.part(b, a, true), n+1)
		n += 2
	}
	b = d.event(b, "response.output_item.done", `,"output_index":0,"item":`)
	b = numbered(d.item(b, a, d.outcome(a)), n)
	b = d.event(b, "response."+d.outcome(a), `,"response":`)
	return numbered(d.object(b, a, d.outcome(a)), n+1)
}

func (d responses) whole(b []byte, a *answer) []byte {
	return d.object(b, a, d.outcome(a))
}

// failure is the error event of this API, which has no end marker.
func (d responses) failure(b []byte, p problem, sent int) []byte {
	b = d.event(b, "error", `,"code":`, orNull(p.code), `,"message":`, quote(p.message), `,"param":null`)
	return numbered(b, sent)
}

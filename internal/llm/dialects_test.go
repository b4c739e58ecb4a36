package llm

import (
	"fmt"
	"testing"
)

func TestStartListChat(t *testing.T) {
	f := func(event string, content, release, terminal bool, tokens int) {
		t.Helper()
		_, got := run(t, chatAPI, SSE, sse("\n", event))
		if got.Content != content || got.Release != release || got.Terminal != terminal || got.ContentEvents != tokens {
			t.Errorf("%s\n%+v", event, got)
		}
	}
	choice := func(inner string) string { return `{"choices":[{"index":0,` + inner + `}]}` }
	f(role, false, false, false, 0)
	f(choice(`"delta":{"role":"assistant","content":null,"tool_calls":[],"reasoning_content":null}`), false, false, false, 0)
	f(choice(`"delta":{},"finish_reason":""`), false, false, false, 0)
	f(`{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}`, false, false, false, 0)
	f(choice(`"text":"","finish_reason":null`), false, false, false, 0)
	f(choice(`"text":" x","finish_reason":null`), true, true, false, 1)
	f(choice(`"delta":{"content":"x"}`), true, true, false, 1)
	f(choice(`"delta":{"content":[{"type":"text"}]}`), true, true, false, 1)
	f(choice(`"delta":{"reasoning_content":"hm"}`), true, true, false, 1)
	f(choice(`"delta":{"reasoning":"hm"}`), true, true, false, 1)
	f(choice(`"delta":{"refusal":"no"}`), true, true, false, 1)
	f(choice(`"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]}`), true, true, false, 1)
	f(choice(`"delta":{},"finish_reason":"stop"`), false, true, true, 0)
	f(choice(`"delta":{"content":"x"},"finish_reason":"length"`), true, true, true, 1)
	f("[DONE]", false, false, false, 0)
	f(usage, false, false, false, 0)
	f(`{"something":"else"}`, true, true, false, 1)
	f(`{"type":"status","message":"text"}`, true, true, false, 1)
	f(`{"message":"text"}`, false, false, false, 0) // an error
	f(`not json`, true, true, false, 1)
	f(`{"choices":[{"delta":`, true, true, false, 1)
	f(`[1]`, true, true, false, 1)
	f(``, false, false, false, 0)

	// Two answers: one finish reason is not the end.
	two := func(index int, inner string) string {
		return fmt.Sprintf(`{"choices":[{"index":%d,%s}]}`, index, inner)
	}
	start := sse("\n", two(0, `"delta":{"role":"assistant"}`), two(1, `"delta":{"role":"assistant"}`), two(0, `"delta":{"content":"x"},"finish_reason":"stop"`))
	if _, got := run(t, chatAPI, SSE, start); got.Terminal {
		t.Error("terminal after one of two choices")
	}
	if _, got := run(t, chatAPI, SSE, start+sse("\n", two(1, `"delta":{},"finish_reason":"stop"`))); !got.Terminal {
		t.Error("not terminal after both choices")
	}
}

func TestStartListResponses(t *testing.T) {
	f := func(kind string, content, terminal bool, tokens int) {
		t.Helper()
		for _, text := range []string{
			"event: " + kind + "\ndata: {\"type\":\"" + kind + "\",\"delta\":\"abc\"}\n\n",
			"event: " + kind + "\ndata: {\"delta\":\"abc\"}\n\n", // the name alone
			"data: {\"delta\":\"abc\",\"type\":\"" + kind + "\"}\n\n",
		} {
			_, got := run(t, responsesAPI, SSE, text)
			if got.Content != content || got.Terminal != terminal || got.Done != terminal || got.ContentEvents != tokens || got.Release != (content || terminal) {
				t.Errorf("%s\n%+v", text, got)
			}
		}
	}
	f("response.created", false, false, 0)
	f("response.in_progress", false, false, 0)
	f("response.queued", false, false, 0)
	f("response.output_item.added", false, false, 0)
	f("response.content_part.added", false, false, 0)
	f("response.output_text.delta", true, false, 1)
	f("response.reasoning_summary_text.delta", true, false, 1)
	f("response.function_call_arguments.delta", true, false, 1)
	f("response.output_text.done", true, false, 0)
	f("response.web_search_call.in_progress", true, false, 0)
	f("response.completed", false, true, 0)
	f("response.incomplete", false, true, 0)
	f("something.new", true, false, 1)
}

func TestStartListMessages(t *testing.T) {
	f := func(data string, content, terminal bool, tokens int) {
		t.Helper()
		_, got := run(t, messagesAPI, SSE, sse("\n", data))
		if got.Content != content || got.Terminal != terminal || got.ContentEvents != tokens || got.Release != (content || terminal) {
			t.Errorf("%s\n%+v", data, got)
		}
	}
	f(`{"type":"content_block_start","content_block":{"type":"text","text":""}}`, false, false, 0)
	f(`{"type":"content_block_start","content_block":{"thinking":"","type":"thinking"}}`, false, false, 0)
	f(`{"type":"content_block_start","content_block":{"type":"text","text":"x"}}`, true, false, 1)
	f(`{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","input":{}}}`, true, false, 1)
	f(`{"type":"content_block_start","content_block":{"type":"redacted_thinking","data":"x"}}`, true, false, 1)
	f(`{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"x"}}`, true, false, 1)
	f(`{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\"a\""}}`, true, false, 1)
	f(`{"type":"content_block_stop","index":0}`, false, false, 0)
	f(`{"type":"message_delta","delta":{"stop_reason":null}}`, false, false, 0)
	f(`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, false, true, 0)
	f(`{"type":"message_stop"}`, false, true, 0)
	f(`{"type":"new_thing"}`, true, false, 1)
}

func TestOllamaLines(t *testing.T) {
	api := APIOf("POST", "/api/chat")
	text := `{"model":"llama3","created_at":"x","message":{"role":"assistant","content":"Hi"},"done":false}` + "\n\n" +
		`{"model":"llama3","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}` + "\r\n"
	_, got := run(t, api, NDJSON, text)
	if got.ContentEvents != 2 || got.Terminal || got.Open || got.Tail != 0 || got.Model != "llama3" {
		t.Errorf("%+v", got)
	}
	last := `{"model":"llama3","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":26,"eval_count":298}`
	for _, text := range []string{text + last + "\n", text + last} {
		_, got = run(t, api, NDJSON, text)
		if want := (Usage{Input: 26, Output: 298, Reported: true}); got.Usage != want || !got.Done || !got.Terminal || got.ContentEvents != 2 {
			t.Errorf("%+v", got)
		}
	}
	_, got = run(t, api, NDJSON, `{"model":"m","response":"Hi","done":false}`+"\n"+`{"model":"m","response":"","done":true}`+"\n")
	if got.ContentEvents != 1 || !got.Done {
		t.Errorf("generate: %+v", got)
	}
}

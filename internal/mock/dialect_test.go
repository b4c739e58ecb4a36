package mock

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// types lists the types of a stream's events, those of an equal kind in a row once, and checks that the event line agrees.
func types(t *testing.T, stream string) []string {
	t.Helper()
	var all []string
	for block := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(block, "\n")
		typ := decode[struct{ Type string }](t, strings.TrimPrefix(data, "data: ")).Type
		if !ok || name != "event: "+typ {
			t.Errorf("event line %q above type %q", name, typ)
		}
		all = append(all, typ)
	}
	return slices.Compact(all)
}

func TestAnthropicMessages(t *testing.T) {
	e := start(t, Config{Name: "beta", OutputTokens: 5})
	c := client(t)
	body := `{"model":"mock-model","max_tokens":4,"system":[{"type":"text","text":"12345678"}],"messages":[{"role":"user","content":[{"type":"text","text":"1234"}]}]`
	type message struct {
		ID, Type, Role string
		Content        []struct {
			Type, Text, Name string
			Input            map[string]string
		}
		StopReason string `json:"stop_reason"`
		Usage      struct {
			InputTokens  int `json:"input_tokens"`
			OutputTokens int `json:"output_tokens"`
		}
	}
	whole := decode[message](t, mustPost(t, c, e.URL()+"/v1/messages", body+"}", 200))
	if whole.Type != "message" || whole.StopReason != "max_tokens" || whole.Usage.InputTokens != 3 || whole.Usage.OutputTokens != 4 ||
		!strings.HasPrefix(whole.Content[0].Text, "[beta] ") {
		t.Errorf("%+v", whole)
	}
	stream := mustPost(t, c, e.URL()+"/v1/messages", body+streaming+"}", 200)
	want := []string{"message_start", "content_block_start", "ping", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}
	if got := types(t, stream); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	text, data := "", events(stream)
	for _, d := range data {
		text += decode[struct{ Delta struct{ Text string } }](t, d).Delta.Text
	}
	if len(strings.Fields(text)) != 4 || strings.Contains(stream, "[DONE]") {
		t.Errorf("text %q of %s", text, stream)
	}
	first := decode[struct{ Message message }](t, data[0]).Message
	last := decode[message](t, data[len(data)-2])
	if first.Usage.InputTokens != 3 || last.Usage.OutputTokens != 4 {
		t.Errorf("usage %+v and %+v", first.Usage, last.Usage)
	}
	if got := mustPost(t, c, e.URL()+"/v1/messages/count_tokens", strings.Replace(body, `"max_tokens":4,`, "", 1)+"}", 200); got != `{"input_tokens":3}` {
		t.Errorf("count_tokens: %s", got)
	}

	tool := body + `,"tools":[{"name":"look_up","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}`
	called := decode[message](t, mustPost(t, c, e.URL()+"/v1/messages", tool+"}", 200))
	if b := called.Content[0]; called.StopReason != "tool_use" || b.Type != "tool_use" || b.Name != "look_up" || b.Input["text"] == "" {
		t.Errorf("%+v", called)
	}
	stream = mustPost(t, c, e.URL()+"/v1/messages", tool+streaming+"}", 200)
	args := ""
	for _, d := range events(stream) {
		args += decode[struct {
			Delta struct {
				PartialJSON string `json:"partial_json"`
			}
		}](t, d).Delta.PartialJSON
	}
	if decode[map[string]string](t, args)["text"] == "" {
		t.Errorf("arguments %q", args)
	}
}

func TestResponses(t *testing.T) {
	e := start(t, Config{OutputTokens: 5})
	c := client(t)
	type response struct {
		Status string
		Output []struct {
			Type, Name, Arguments string
			Content               []struct{ Type, Text string }
		}
		Usage struct {
			InputTokens  int `json:"input_tokens"`
			OutputTokens int `json:"output_tokens"`
		}
		IncompleteDetails struct{ Reason string } `json:"incomplete_details"`
	}
	body := `{"model":"mock-model","instructions":"1234","input":[{"role":"user","content":[{"type":"input_text","text":"12345"}]}]`
	whole := decode[response](t, mustPost(t, c, e.URL()+"/v1/responses", body+"}", 200))
	if whole.Status != "completed" || len(strings.Fields(whole.Output[0].Content[0].Text)) != 5 || whole.Usage.InputTokens != 3 || whole.Usage.OutputTokens != 5 {
		t.Errorf("%+v", whole)
	}
	short := decode[response](t, mustPost(t, c, e.URL()+"/v1/responses", body+`,"max_output_tokens":2}`, 200))
	if short.Status != "incomplete" || short.IncompleteDetails.Reason != "max_output_tokens" {
		t.Errorf("%+v", short)
	}
	check := func(body string, want []string) response {
		t.Helper()
		stream := mustPost(t, c, e.URL()+"/v1/responses", body, 200)
		if got := types(t, stream); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		data := events(stream)
		for i, d := range data {
			if n := decode[struct {
				N int `json:"sequence_number"`
			}](t, d).N; n != i {
				t.Errorf("event %d has number %d", i, n)
			}
		}
		last := decode[struct{ Response json.RawMessage }](t, data[len(data)-1]).Response
		if direct := mustPost(t, c, e.URL()+"/v1/responses", strings.Replace(body, streaming, "", 1), 200); direct != string(last) {
			t.Errorf("the last event holds\n%s\nnot streamed:\n%s", last, direct)
		}
		return decode[response](t, string(last))
	}
	check(body+streaming+"}", []string{"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
		"response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"})
	called := check(body+streaming+`,"tools":[{"type":"function","name":"look_up"}],"tool_choice":{"type":"function","name":"look_up"}}`,
		[]string{"response.created", "response.in_progress", "response.output_item.added", "response.function_call_arguments.delta",
			"response.function_call_arguments.done", "response.output_item.done", "response.completed"})
	if o := called.Output[0]; o.Type != "function_call" || o.Name != "look_up" || decode[map[string]string](t, o.Arguments)["text"] == "" {
		t.Errorf("%+v", called)
	}
}

func TestCompletions(t *testing.T) {
	e := start(t, Config{OutputTokens: 3})
	c := client(t)
	type completion struct {
		Object  string
		Choices []struct {
			Text         string
			FinishReason string `json:"finish_reason"`
		}
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	for prompt, want := range map[string]int{`"12345"`: 2, `["12345678"]`: 2, `[11,12,13,14,15]`: 5} {
		body := `{"model":"mock-model","prompt":` + prompt
		whole := decode[completion](t, mustPost(t, c, e.URL()+"/v1/completions", body+"}", 200))
		if whole.Object != "text_completion" || whole.Usage.PromptTokens != want {
			t.Errorf("%s: %+v", prompt, whole)
		}
		stream := mustPost(t, c, e.URL()+"/v1/completions", body+`,"stream":true,"stream_options":{"include_usage":true}}`, 200)
		data, text := events(stream), ""
		for _, d := range data[:4] {
			text += decode[completion](t, d).Choices[0].Text
		}
		if len(data) != 3+1+1+1 || len(strings.Fields(text)) != 3 || decode[completion](t, data[4]).Usage.PromptTokens != want {
			t.Errorf("%s: %q", prompt, data)
		}
	}
}

func TestEmbeddings(t *testing.T) {
	e := start(t, Config{})
	c := client(t)
	type list[T any] struct {
		Data []struct {
			Index     int
			Embedding T
		}
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	body := `{"model":"mock-model","input":["1234","12345678"],"dimensions":5`
	floats := decode[list[[]float32]](t, mustPost(t, c, e.URL()+"/v1/embeddings", body+"}", 200))
	if len(floats.Data) != 2 || len(floats.Data[1].Embedding) != 5 || floats.Data[1].Index != 1 || floats.Usage.PromptTokens != 3 {
		t.Errorf("%+v", floats)
	}
	if slices.Equal(floats.Data[0].Embedding, floats.Data[1].Embedding) {
		t.Error("equal vectors for different inputs")
	}
	encoded := decode[list[string]](t, mustPost(t, c, e.URL()+"/v1/embeddings", body+`,"encoding_format":"base64"}`, 200))
	raw, err := base64.StdEncoding.DecodeString(encoded.Data[0].Embedding)
	if err != nil || len(raw) != 20 {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	for i := range 5 {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); !(v >= -1 && v <= 1) {
			t.Errorf("component %d is %v", i, v)
		}
	}
	if s := settled(t, e); s.OutputTokens != 0 || s.PromptTokens != 6 {
		t.Errorf("stats: %+v", s)
	}
}

func TestToolCalls(t *testing.T) {
	e := start(t, Config{})
	c := client(t)
	const tools = `,"tools":[{"type":"function","function":{"name":"first","parameters":{"type":"object","properties":{"name":{"type":"string"}}}}},{"type":"function","function":{"name":"second"}}]`
	f := func(messages, more, want string) {
		t.Helper()
		body := `{"model":"mock-model","messages":` + messages + more
		whole := decode[chatChunk](t, mustPost(t, c, e.URL()+"/v1/chat/completions", body+"}", 200)).Choices[0]
		name, args := "", ""
		for _, d := range events(mustPost(t, c, e.URL()+"/v1/chat/completions", body+streaming+"}", 200)) {
			if d == "[DONE]" {
				break
			}
			for _, tc := range decode[chatChunk](t, d).Choices[0].Delta.ToolCalls {
				name += tc.Function.Name
				args += tc.Function.Arguments
			}
		}
		if want == "" {
			if whole.Message.ToolCalls != nil || *whole.FinishReason != "stop" || name != "" {
				t.Errorf("%s: a call of %q: %+v", more, name, whole)
			}
			return
		}
		tc := whole.Message.ToolCalls
		if len(tc) != 1 || tc[0].Function.Name != want || *whole.FinishReason != "tool_calls" || whole.Message.Content != nil || tc[0].ID == "" {
			t.Errorf("%s: %+v", more, whole)
		}
		if name != want || decode[map[string]string](t, args)["text"] == "" {
			t.Errorf("%s: streamed %s(%s)", more, name, args)
		}
	}
	const plain, asks = `[{"role":"user","content":"hi"}]`, `[{"role":"system","content":"x"},{"role":"user","content":"please use the tool now"}]`
	f(plain, tools, "")
	f(plain, tools+`,"tool_choice":"auto"`, "")
	f(plain, tools+`,"tool_choice":"required"`, "first")
	f(plain, tools+`,"tool_choice":{"type":"function","function":{"name":"second"}}`, "second")
	f(asks, tools, "first")
	f(asks, tools+`,"tool_choice":"none"`, "")
	f(asks, "", "")
	f(asks[:len(asks)-1]+`,{"role":"tool","tool_call_id":"x","content":"42"}]`, tools, "") // the tool has answered
}

func TestRefusals(t *testing.T) {
	e := start(t, Config{APIKey: "sesame", Models: []string{"a/b", "c"}})
	c := client(t)
	f := func(method, path, key, body string, status int, want string) {
		t.Helper()
		req, _ := http.NewRequest(method, e.URL()+path, strings.NewReader(body))
		if name, value, ok := strings.Cut(key, ": "); ok {
			req.Header.Set(name, value)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != status || !strings.Contains(string(b), want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, resp.StatusCode, b, status, want)
		}
	}
	const bearer, xKey = "Authorization: Bearer sesame", "x-api-key: sesame"
	const chatPath = "/v1/chat/completions"
	good := `{"model":"c","messages":[]}`
	f("POST", chatPath, "", good, 401, `"code":"invalid_api_key"`)
	f("POST", chatPath, "Authorization: Bearer wrong", good, 401, "authentication_error")
	f("POST", "/v1/messages", "", good, 401, `{"type":"error","error":{"type":"authentication_error"`)
	f("POST", chatPath, bearer, good, 200, `"model":"c"`)
	f("POST", chatPath, xKey, good, 200, "")
	f("GET", "/health", "", "", 200, "")
	f("GET", "/v1/models", "", "", 401, "")
	f("GET", "/v1/models", bearer, "", 200, `"data":[{"id":"a/b","object":"model","created":1767225600,"owned_by":"evenkeel-mock"},{"id":"c",`)
	f("GET", "/v1/models/a/b", bearer, "", 200, `{"id":"a/b","object":"model"`)
	f("GET", "/v1/models/a%2Fb", bearer, "", 200, `{"id":"a/b","object":"model"`)
	f("GET", "/v1/models/b", bearer, "", 404, `"code":"model_not_found"`)
	f("POST", chatPath, bearer, `{"model":"b","messages":[]}`, 404, `"param":"model","code":"model_not_found"`)
	f("POST", "/v1/messages", bearer, `{"model":"b","messages":[],"max_tokens":3}`, 404, `{"type":"error","error":{"type":"not_found_error"`)
	f("POST", chatPath, bearer, `{"model":"c","messages":[}`, 400, "not valid JSON: error at byte 25 of 26")
	f("POST", chatPath, bearer, ``, 400, "not a JSON object")
	f("POST", chatPath, bearer, `{"messages":[]}`, 400, "model is required")
	f("POST", chatPath, bearer, `{"model":7,"messages":[]}`, 400, "model must be a string")
	f("POST", chatPath, bearer, `{"model":"c"}`, 400, "messages is required")
	f("POST", chatPath, bearer, `{"model":"c","messages":[],"max_tokens":-1}`, 400, "max_tokens is -1: it must be a whole number above zero")
	f("POST", chatPath, bearer, `{"model":"c","messages":[],"max_tokens":"many"}`, 400, "max_tokens must be a whole number")
	f("POST", "/v1/messages", bearer, `{"model":"c","messages":[]}`, 400, "max_tokens is required")
	f("GET", chatPath, bearer, "", 405, "GET is not allowed")
	f("PUT", "/v1/models", bearer, "", 405, "PUT is not allowed")
	f("POST", "/v1/audio", bearer, "{}", 404, "there is nothing at /v1/audio")
	f("GET", "/version", "", "", 404, "")
}

// Who asks for several answers is told that there is one, and not left to miss the others.
func TestSeveralChoicesAreRefused(t *testing.T) {
	e := start(t, Config{})
	c := client(t)
	f := func(path, more string, status int, want string) {
		t.Helper()
		if got := mustPost(t, c, e.URL()+path, `{"model":"mock-model",`+more+`}`, status); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", more, got, want)
		}
	}
	const chat, completions, messages = "/v1/chat/completions", "/v1/completions", `"messages":[{"role":"user","content":"hi"}]`
	f(chat, messages+`,"n":3`, 400, `"n is 3: the mock gives one choice; leave n out, or send the request 3 times","type":"invalid_request_error","param":"n"`)
	f(chat, messages+`,"n":3,"stream":true`, 400, `"param":"n"`)
	f(chat, messages+`,"n":0`, 400, "n is 0: it must be a whole number above zero")
	f(chat, messages+`,"n":"x"`, 400, "n must be a whole number above zero")
	f(chat, messages+`,"n":1`, 200, `"finish_reason":"stop"`)
	f(chat, messages+`,"n":null`, 200, `"finish_reason":"stop"`)
	f(completions, `"prompt":"hi","n":2`, 400, `"param":"n"`)
	f(completions, `"prompt":["hi","there"]`, 400, "prompt holds 2 texts: the mock answers one")
	f(completions, `"prompt":[[1,2],[3]]`, 400, "prompt holds 2 texts")
	f(completions, `"prompt":["hi"]`, 200, `"finish_reason":"stop"`)
	f(completions, `"prompt":[[1,2]]`, 200, `"prompt_tokens":2`)
	f(completions, `"prompt":[1,2]`, 200, `"prompt_tokens":2`)
	f("/v1/responses", `"input":"hi","n":2`, 200, `"completed"`) // no field of this API
}

func TestEchoAndRecord(t *testing.T) {
	e := start(t, Config{Record: 2})
	c := client(t)
	for _, body := range []string{"one", "two", "\x00\xff three"} {
		req, _ := http.NewRequest("POST", e.URL()+"/v1/anything?q=1", io.MultiReader(strings.NewReader(body))) // chunked: the length is unknown
		req.Header.Set("X-Mock-Echo", "1")
		req.Header.Set("Content-Type", "x/echo")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != body || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "x/echo" {
			t.Errorf("echo of %q: %d %q", body, resp.StatusCode, b)
		}
	}
	got := e.Requests()
	if len(got) != 2 || string(got[0].Body) != "two" || string(got[1].Body) != "\x00\xff three" || got[0].Method != "POST" ||
		got[0].Path != "/v1/anything?q=1" || got[0].Header.Get("X-Mock-Echo") != "1" || got[0].Host != e.Addr() {
		t.Errorf("%+v", got)
	}
}

package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"strings"
	"testing"
)

// FuzzScanRequest compares the scanner with encoding/json on whatever that takes for a JSON object: the same model and
// stream flag, an error exactly if a model key is there twice or odd; and a splice that changes the model alone.
func FuzzScanRequest(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","stream":true}`, `{"model":"a","Model":"b"}`, `{"mod\u0065l":"x\ud83d\ude00","stream":false}`, ` {"x":[{"model":1}],"model":"\/"} `,
		`{"model":"m","messages":[{"role":"user","content":"a\\"}],"tools":[{"type":"function"}]}`, `{"a":"\\\"","model":"m"}`, `{"model":null}`, `{}`, `[]`, `{"model"`,
		"{\"model\":\"\xff\"}", `{"n":1e400,"max_tokens":-0.5}`, `{"":{"":[]}}`,
		`{"user":"a","model":"m","metadata":{"user_id":"b"},"previous_response_id":"c","prompt_cache_key":"d"}`, `{"metadata":{"user_id":"\u0061","user_id":{}},"model":"m"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ScanRequest(chatAPI, "application/json", body)
		var re *RequestError
		if err != nil && (!errors.As(err, &re) || re.Message == "") {
			t.Fatalf("error %v is no *RequestError with a message", err)
		}
		want, isObject := members(body)
		if !isObject {
			if json.Valid(body) && err == nil {
				t.Fatalf("%q is no object: no error", body)
			}
			return
		}
		var models []jsonMember
		stream := false
		for _, m := range want {
			if len(m.key) == 5 && strings.EqualFold(m.key, "model") {
				models = append(models, m)
			}
			if m.key == "stream" {
				stream = string(m.value) == "true"
			}
		}
		switch {
		case len(models) == 0:
			if err != nil || r.ModelEnd != 0 {
				t.Fatalf("%q: %+v, %v; there is no model", body, r, err)
			}
			return
		case len(models) > 1 || models[0].key != "model":
			if err == nil {
				t.Fatalf("%q: no error with keys %v", body, models)
			}
			return
		}
		var model string
		if json.Unmarshal(models[0].value, &model) != nil || models[0].value[0] != '"' || len(models[0].value) > maxModelLen ||
			strings.ContainsFunc(model, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			if err == nil {
				t.Fatalf("%q: no error for model %s", body, models[0].value)
			}
			return
		}
		if err != nil || r.Model != model || r.Stream != stream || !bytes.Equal(body[r.ModelStart:r.ModelEnd], models[0].value) {
			t.Fatalf("%q: %+v, %v; want model %q, stream %v", body, r, err, model, stream)
		}
		const other = `new"\é/`
		prefix, value, suffix := r.Splice(body, other)
		spliced := bytes.Join([][]byte{prefix, value, suffix}, nil)
		again, err := ScanRequest(chatAPI, "", spliced)
		if a, b := spliced[again.SessionStart:again.SessionEnd], body[r.SessionStart:r.SessionEnd]; !bytes.Equal(a, b) {
			t.Fatalf("spliced %q: the session is %q, was %q", spliced, a, b)
		}
		if a, b := spliced[again.PreviousStart:again.PreviousEnd], body[r.PreviousStart:r.PreviousEnd]; !bytes.Equal(a, b) {
			t.Fatalf("spliced %q: it goes on from %q, was %q", spliced, a, b)
		}
		again.Model, again.ModelEnd, again.SessionStart, again.SessionEnd = r.Model, r.ModelEnd, r.SessionStart, r.SessionEnd
		again.PreviousStart, again.PreviousEnd = r.PreviousStart, r.PreviousEnd
		if err != nil || again != r || !bytes.Equal(bytes.Replace(spliced, value, models[0].value, 1), body) && !bytes.Contains(prefix, value) {
			t.Fatalf("spliced %q: %+v, %v", spliced, again, err)
		}
	})
}

type jsonMember struct {
	key   string
	value json.RawMessage
}

// members lists the top-level members of a JSON object in order, duplicates included.
func members(body []byte) (list []jsonMember, ok bool) {
	if !json.Valid(body) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, false
		}
		m := jsonMember{key: tok.(string)}
		if dec.Decode(&m.value) != nil {
			return nil, false
		}
		list = append(list, m)
	}
	return list, true
}

// FuzzStream checks that pieces do not matter, that tail and passable fit a plain reading of the lines, that nothing that
// was said is taken back, and that the events mean the same when a plain reader has put each on a line of its own.
func FuzzStream(f *testing.F) {
	seeds := []string{
		sse("\r\n", chatStream()[:3]...), sse("\r", role, usage, "[DONE]"), anthropic + anthropicRest, ": c\n\n:\n\nid: 1\nretry: 2\n\n",
		"data: {\"choices\":[],\ndata:\"usage\":{\"prompt_tokens\":1}}\n\n", "event: error\ndata: {\"error\":{\"message\":\"m\",\"code\":500}}\n\n", "\xef\xbb\xbfdata: x\n\n",
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":1}}}\r\r\n\n", "data\ndata\n\n", "{\"done\":true,\"eval_count\":3}\n{\"message\":{\"content\":\"x\"}}",
		"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":1}}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"bc\\n\"}}],\"usage\":{\"prompt_tokens\":1}}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"{\\\"\"}}]}}]}\n\n",
		"error: {\"code\":500,\"message\":\"m\"}\n\ndata: [DONE]\n\n", "data: [{\"error\":{\"code\":503}}]\n\n", "data: {\"choices\":[{\"finish_reason\":\"error\",\"error\":{\"code\":502}}]}\n\n",
		"data: {\"error\":\"e\",\"error_type\":\"overloaded\"}\n\n", "0\ndata:{\"error\":\"0\"\n\n",
		"data: {\"message\":\"m\",\"code\":\"c\"}\n\n", ": c\n\ndata: {\"detail\":\"d\",\"statusCode\":\"429\"}\n\n", "data: {\"type\":\"status\",\"message\":\"m\"}\n\n",
	}
	for i, seed := range seeds {
		f.Add([]byte(seed), byte(i), uint16(7*i))
	}
	apis := []API{chatAPI, responsesAPI, messagesAPI, otherAPI}
	f.Fuzz(func(t *testing.T, data []byte, choice byte, repeat uint16) {
		api, framing := apis[choice%4], Framing(choice/4%2)
		text := string(data)
		if choice&8 != 0 && len(data) > 0 { // a long run of one byte, to get over the limits
			text = text[:len(text)/2] + strings.Repeat(text[len(text)/2:len(text)/2+1], 4*int(repeat)) + text[len(text)/2:]
		}
		before, after := run(t, api, framing, text)
		if framing == SSE {
			if want := len(text) - 1 - strings.LastIndexAny(text, "\r\n"); before.Tail != want {
				t.Fatalf("%q: tail %d, want %d", text, before.Tail, want)
			}
			events, passable := plainEvents(text)
			if before.Passable != passable {
				t.Fatalf("%q: passable %d, want %d", text, before.Passable, passable)
			}
			checkPlain(t, api, len(text), events, before)
		}
		if framing == SSE && api.Name == chatAPI.Name {
			alike, alone := NewStream(api, framing), NewStream(api, framing)
			for _, line := range strings.SplitAfter(text, "\n") {
				alike.Feed([]byte(line))
				alone.last.end = 0
				alone.Feed([]byte(line))
				if got, want := factsOf(alike), factsOf(alone); got != want {
					t.Fatalf("%q: up to %q after a like event: %+v, want %+v", text, line, got, want)
				}
			}
		}
		if before.Content && !before.Release && before.Err == "" || before.Content && !after.Content || before.Release && !after.Release || before.Err != "" && after.Err != before.Err {
			t.Fatalf("%q: before End %+v, after %+v", text, before, after)
		}
	})
}

// plainEvents reads server-sent events line by line. It returns each event that ended, written out anew with LF alone, and
// how many bytes from the start are lines that may pass.
func plainEvents(text string) (events []string, passable int) {
	rest, holding, name := text, false, ""
	var data []string
	for first := true; ; first = false {
		at := strings.IndexAny(rest, "\r\n")
		if at < 0 {
			return events, passable
		}
		line, size := rest[:at], at+1
		if strings.HasPrefix(rest[at:], "\r\n") {
			size++
		}
		if rest = rest[size:]; first {
			line = strings.TrimPrefix(line, "\xef\xbb\xbf")
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if joined := strings.Join(data, "\n"); joined != "" {
				events = append(events, "event: "+name+"\ndata: "+strings.Join(data, "\ndata: ")+"\n\n")
			}
			name, data = "", nil
		case field == "data":
			data = append(data, value)
		case field == "event":
			name = value
		case field == "error": // llama.cpp's
			name, data = "error", append(data, value)
		}
		if holding = holding || line != "" && field != "" && field != "id" && field != "retry"; !holding {
			passable += size
		}
	}
}

// checkPlain demands that the plain events mean what the original of that size said.
func checkPlain(t *testing.T, api API, size int, events []string, want facts) {
	t.Helper()
	s := NewStream(api, SSE)
	for _, e := range events {
		s.Feed([]byte(e))
	}
	got := factsOf(s)
	if want.Open && size > maxEvent {
		return // a large event that has not ended counts as content already
	}
	for _, f := range []*facts{&got, &want} { // what depends on bytes and on the line after the last event
		f.Tail, f.Passable, f.ErrAt, f.Open, f.Release = 0, 0, 0, false, false
	}
	if got != want {
		t.Fatalf("plain events\n got %+v\nwant %+v\nfor %q", got, want, events)
	}
}

// FuzzBody compares the meter with encoding/json on whatever that takes for a JSON object, in one piece and in several.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","usage":{"prompt_tokens":5,"completion_tokens":7}}`, `{"usage":{"prompt_tokens":1},"usage":null}`, `{"a":[{"usage":{"prompt_tokens":9}}],"error":{"message":"m","code":400}}`,
		`{"us\u0061ge":{"prompt_tokens":5},"model":"\/","model":"b"}`, `{"x":"\\","error":"e"}`, `{"prompt_eval_count":3 ,"eval_count":4}`, `{"object":"error","message":"m"}`, `[{"usage":{}}]`, `{"model":1}`,
		`{"error_type":"validation","error":"e"}`, `{"choices":[{"error":{"message":"m"},"finish_reason":"error"}]}`, `{"choices":null,"error":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := readBody(t, string(body))
		list, isObject := members(body)
		if !isObject {
			return
		}
		var usage usageCounts
		var model string
		var kind []byte
		var hasModel, hasChoices, isError bool
		var err *UpstreamError
		for _, m := range list {
			if len(m.value) > maxCapture {
				return
			}
			sc := scanner{b: m.value}
			switch m.key {
			case "usage":
				usage.read(&sc)
			case "prompt_eval_count":
				usage.set(&usage.input, m.value)
			case "eval_count":
				usage.set(&usage.output, m.value)
			case "error":
				if e := readError(&sc); e != nil {
					err = e
				}
			case "error_type":
				if m.value[0] == '"' {
					kind = sc.text()
				}
			case "choices": // may hold errors too
				hasChoices = true
			case "object":
				var s string
				if json.Unmarshal(m.value, &s) == nil && m.value[0] == '"' {
					isError = s == "error"
				}
			case "model":
				var s string
				if m.value[0] == '"' && json.Unmarshal(m.value, &s) == nil && !hasModel && s != "" {
					model, hasModel = s, true
				}
			}
		}
		if b.Usage() != usage.usage() || len(model) < maxModelLen && b.Model() != model {
			t.Fatalf("%q: %+v %q, want %+v %q", body, b.Usage(), b.Model(), usage.usage(), model)
		}
		if err != nil {
			err.typed(kind)
		}
		if hasChoices {
			return
		}
		if got := b.Err(); !isError && fmt.Sprint(got) != fmt.Sprint(err) || isError && got == nil {
			t.Fatalf("%q: error %+v, want %+v", body, got, err)
		}
	})
}

// FuzzMultipart compares the form reader with mime/multipart: a form that we take is a form there too, with the same one
// model at the same bytes.
func FuzzMultipart(f *testing.F) {
	f.Add("boundary=b", form("b", "*file=x", "model=m"))
	f.Add(`boundary="b"; x=y`, form("b", "model=m", "stream=true"))
	f.Add("boundary=b", []byte("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--"))
	f.Add("boundary=b", []byte("--b \t\r\ncontent-disposition:form-data;name=model\r\n\r\n\r\n--b--\r\n"))
	f.Add("boundary=b", []byte("--b\r\nContent-Disposition: form-data; name=\"a\\\"b\"; filename=\"c\\d\"\r\n\r\n--b\r\n--b--"))
	f.Fuzz(func(t *testing.T, params string, body []byte) {
		r, err := ScanRequest(audioAPI, "multipart/form-data; "+params, body)
		if err != nil {
			var re *RequestError
			if !errors.As(err, &re) {
				t.Fatalf("error %v is no *RequestError", err)
			}
			return
		}
		boundary, err := formBoundary(params)
		if err != nil {
			t.Fatal(err)
		}
		if r.Model != string(bytes.ToValidUTF8(body[r.ModelStart:r.ModelEnd], nil)) && r.Model != string(body[r.ModelStart:r.ModelEnd]) {
			t.Fatalf("model %q, span %q", r.Model, body[r.ModelStart:r.ModelEnd])
		}
		models := 0
		reader := multipart.NewReader(bytes.NewReader(body), boundary)
		for {
			part, err := reader.NextPart()
			if err != nil {
				break
			}
			value, err := io.ReadAll(part)
			if err != nil {
				break
			}
			if strings.EqualFold(part.FormName(), "model") {
				models++
				if string(value) != r.Model && part.Header.Get("Content-Transfer-Encoding") == "" {
					t.Fatalf("model %q, mime/multipart says %q", r.Model, value)
				}
			}
		}
		if models > 1 || models == 1 && r.ModelEnd == 0 {
			t.Fatalf("%d models, we saw %+v", models, r)
		}
	})
}

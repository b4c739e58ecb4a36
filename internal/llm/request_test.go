package llm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

var (
	chatAPI      = APIOf("POST", "/v1/chat/completions")
	responsesAPI = APIOf("POST", "/v1/responses")
	messagesAPI  = APIOf("POST", "/v1/messages")
	otherAPI     = APIOf("POST", "/v1/other")
)

func TestScanRequestModel(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		r, err := ScanRequest(chatAPI, "application/json", []byte(body))
		if err != nil || r.Model != want {
			t.Errorf("%s: model %q, error %v; want %q", body, r.Model, err, want)
		}
		if want != "" {
			span := body[r.ModelStart:r.ModelEnd]
			if span[0] != '"' || span[len(span)-1] != '"' {
				t.Errorf("%s: span %s", body, span)
			}
		}
	}
	f(`{}`, "")
	f(` { "model" : "m" , "x":1} `, "m")
	f(`{"x":{"model":"inner"},"model":"m","y":[{"model":"z"}]}`, "m")
	f("\xef\xbb\xbf{\"model\":\"m\"}", "m")
	f(`{"model":""}`, "")
	f(`{"mod\u0065l":"m"}`, "m")
	f(`{"model":"org\/m\u00e9\ud83d\ude00"}`, "org/mé😀")
	f(`{"model":"a\ud800b"}`, "a�b")
	f(`{"model":"a\ud800\u0041"}`, "a�A")
	f("{\"model\":\"a\xffb\"}", "a�b")
	f(`{"text":"\"model\":\"x\"","model":"m\\"}`, `m\`)
	f(`{"models":"x","mode":"y","model_":"z"}`, "")
}

func TestCase55ModelIDsWithSlashesAndColons(t *testing.T) {
	for _, id := range []string{"org-a/Model-7B", "hub.example/x/y:Q4_K_M", "plain"} {
		body := []byte(`{"model":"` + id + `"}`)
		r, err := ScanRequest(chatAPI, "application/json", body)
		if err != nil || r.Model != id {
			t.Errorf("%s: %q, %v", id, r.Model, err)
		}
		if api := APIOf("GET", "/v1/models/"+id); api.Name != "models" {
			t.Errorf("GET /v1/models/%s is %q", id, api.Name)
		}
	}
}

func TestScanRequestFields(t *testing.T) {
	f := func(api API, body string, want Request) {
		t.Helper()
		got, err := ScanRequest(api, "application/json; charset=utf-8", []byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
			return
		}
		got.PromptBytes = 0
		if want.N == 0 {
			want.N = 1
		}
		if got != want {
			t.Errorf("%s\n got %+v\nwant %+v", body, got, want)
		}
	}
	f(chatAPI, `{"stream":true}`, Request{Stream: true})
	f(chatAPI, `{"stream":false}`, Request{})
	f(chatAPI, `{"stream":"true"}`, Request{})
	f(chatAPI, `{"stream":true,"stream":null}`, Request{})
	f(chatAPI, `{"stream":true,"stream_options":{"x":[1],"include_usage":true}}`, Request{Stream: true, StreamUsage: true})
	f(chatAPI, `{"stream_options":null}`, Request{})
	f(chatAPI, `{"stream_options":{"include_usage":false}}`, Request{})
	f(chatAPI, `{"max_tokens":10,"max_completion_tokens":20}`, Request{MaxOutput: 20})
	f(chatAPI, `{"max_tokens":null}`, Request{})
	f(chatAPI, `{"max_tokens":-1}`, Request{})
	f(chatAPI, `{"max_tokens":1e3}`, Request{MaxOutput: 1000})
	f(chatAPI, `{"max_tokens":`+strings.Repeat("9", 400)+`}`, Request{MaxOutput: maxCount})
	f(chatAPI, `{"n":3}`, Request{N: 3})
	f(chatAPI, `{"n":0}`, Request{})
	f(chatAPI, `{"n":2,"best_of":5}`, Request{N: 2})
	f(chatAPI, `{"tools":[{"type":"function"}]}`, Request{Tools: true})
	f(chatAPI, `{"tools":[ ]}`, Request{})
	f(chatAPI, `{"tools":null}`, Request{})
	f(chatAPI, `{"functions":[{"name":"f"}]}`, Request{Tools: true})
	f(chatAPI, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]}`, Request{Vision: true})
	f(messagesAPI, `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}`, Request{Vision: true})
	f(responsesAPI, `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:"}]}]}`, Request{Vision: true})
	f(chatAPI, `{"messages":[{"role":"user","content":"type: image_url"}]}`, Request{})
	f(chatAPI, `{"tools":[{"type":"function","function":{"parameters":{"properties":{"type":"image"}}}}]}`, Request{Tools: true})
}

func TestScanRequestUnrepeatable(t *testing.T) {
	f := func(api API, body string, want bool) {
		t.Helper()
		r, err := ScanRequest(api, "application/json", []byte(body))
		if err != nil || r.Unrepeatable != want {
			t.Errorf("%s %s: %v, %v; want %v", api.Name, body, r.Unrepeatable, err, want)
		}
	}
	f(responsesAPI, `{"input":"x"}`, false)
	f(responsesAPI, `{"background":true,"input":"x"}`, true)
	f(responsesAPI, `{"background":false}`, false)
	f(responsesAPI, `{"tools":[{"type":"function","name":"f","parameters":{"type":"object"}},{"type":"custom"}]}`, false)
	f(responsesAPI, `{"tools":[{"type":"function"},{"type":"web_search"}]}`, true)
	f(responsesAPI, `{"tools":[{"server_url":"https://x","type":"mcp"}],"tools":[]}`, true)
	f(responsesAPI, `{"conversation":"conv_1"}`, true)
	f(responsesAPI, `{"conversation":null,"store":true,"previous_response_id":"r"}`, false)
	f(chatAPI, `{"background":true,"tools":[{"type":"web_search"}],"conversation":"c"}`, false)
	f(messagesAPI, `{"mcp_servers":[{"url":"https://x"}]}`, true)
	f(messagesAPI, `{"mcp_servers":[]}`, false)
	f(messagesAPI, `{"container":"c1"}`, true)
	f(messagesAPI, `{"tools":[{"type":"web_search_20250305"}]}`, false)
}

func TestScanRequestPromptBytes(t *testing.T) {
	f := func(body string, want int) {
		t.Helper()
		r, err := ScanRequest(chatAPI, "application/json", []byte(body))
		if err != nil || r.PromptBytes != want {
			t.Errorf("%.80s: %d, %v; want %d", body, r.PromptBytes, err, want)
		}
	}
	b64 := strings.Repeat("QUJDREVGR0g", 1000)
	f(`{"prompt":"hello"}`, len(`"hello"`))
	f(`{"prompt":"hello","suffix":"x","user":"me"}`, len(`"hello""x"`))
	f(`{"messages":[{"role":"user","content":"hi there"}]}`, len(`[{"role":"user","content":"hi there"}]`))
	f("{\"messages\": [\n   {\"role\": \"user\",\n \"content\": \"hi there\"}\n]}", len(`[{"role":"user","content":"hi there"}]`))
	f(`{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,`+b64+`"}}]}]}`, len(`[{"content":[{"image_url":{"url":""}}]}]`))
	f(`{"messages":[{"content":[{"source":{"data":"`+b64+`"}}]}]}`, len(`[{"content":[{"source":{"data":""}}]}]`))
	text := strings.Repeat("plain words. ", 100)
	f(`{"messages":[{"content":[{"source":{"data":"`+text+`"}}]}]}`, len(`[{"content":[{"source":{"data":""}}]}]`)+len(text))
	f(`{"messages":[{"content":"`+b64+`"}]}`, len(`[{"content":""}]`)+len(b64))
	f(`{"prompt":[1, 22,333]}`, len(`[1,22,333]`))
}

func TestScanRequestErrors(t *testing.T) {
	f := func(api API, body, code, message string) {
		t.Helper()
		_, err := ScanRequest(api, "application/json", []byte(body))
		var re *RequestError
		if !errors.As(err, &re) {
			t.Errorf("%.60q: error %v, want %s", body, err, code)
			return
		}
		if re.Code != code || !strings.Contains(re.Message, message) {
			t.Errorf("%.60q: %s %q, want %s with %q", body, re.Code, re.Message, code, message)
		}
	}
	const invalid, double, model = "evenkeel_invalid_json", "evenkeel_duplicate_model", "evenkeel_invalid_model"
	f(chatAPI, ``, invalid, "empty")
	f(chatAPI, "\xef\xbb\xbf \n", invalid, "empty")
	f(chatAPI, `[1]`, invalid, `starts with "[1]"`)
	f(chatAPI, `"x"`, invalid, "no JSON object")
	f(chatAPI, "\x1f\x8b\x08", invalid, "gzip")
	f(chatAPI, `{`, invalid, "ends too early, after 1 bytes")
	f(chatAPI, `{"model":"m"`, invalid, "ends too early")
	f(chatAPI, `{"model":"m","messages":[{"content":"abc`, invalid, "ends too early")
	f(chatAPI, `{"model":"m`, invalid, "ends too early")
	f(chatAPI, `{"model":`, invalid, "ends too early")
	f(chatAPI, `{"model":"m"}{"model":"n"}`, invalid, "unexpected '{' at byte 13")
	f(chatAPI, `{"model":"m"} x`, invalid, "unexpected 'x' at byte 14")
	f(chatAPI, `{"a":[}`, invalid, "unexpected '}'")
	f(chatAPI, `{"a":{"b":1]}`, invalid, "unexpected ']'")
	f(chatAPI, `{'model':'m'}`, invalid, `unexpected '\''`)
	f(chatAPI, `{"a":[1 /* " */,"],"model":"m"}`, invalid, "unexpected '/'")
	f(chatAPI, "{\x00\"\x00m\x00", invalid, `unexpected '\x00'`) // UTF-16
	f(chatAPI, `{"a":`+strings.Repeat("[", 100_000), invalid, "deeper than 1000 levels")
	f(chatAPI, `{"messages":`+strings.Repeat(`{"a":`, 100_000), invalid, "deeper than 1000 levels")
	f(chatAPI, `{"model":"a","model":"b"}`, double, `second key "model"`)
	f(chatAPI, `{"model":"a","Model":"b"}`, double, `second key "Model"`)
	f(chatAPI, `{"model":"a","m\u006fdel":"b"}`, double, "second key")
	f(chatAPI, `{"model":"a","messages":[],"\u004dODEL":"a"}`, double, `second key "MODEL"`)
	f(otherAPI, `{"model":"a","model":"a"}`, double, "second key")
	f(chatAPI, `{"MODEL":"b"}`, model, `write "model"`)
	f(chatAPI, `{"model":null}`, model, "model is null: it must be a string")
	f(chatAPI, `{"model":["a"]}`, model, `model is ["a"]`)
	f(chatAPI, `{"model":12}`, model, "model is 12")
	f(chatAPI, `{"model":"a\r\nx: y"}`, model, "control character")
	f(chatAPI, "{\"model\":\"a\x7f\"}", model, "control character")
	f(chatAPI, `{"model":"`+strings.Repeat("m", 2000)+`"}`, model, "2000 bytes")
	f(otherAPI, `{"x":1`, invalid, "ends too early")

	if e := MissingModel(chatAPI); e.Code != "evenkeel_missing_model" || e.Param != "model" || !strings.Contains(e.Error(), "chat") {
		t.Errorf("MissingModel: %+v", e)
	}
}

// An API that needs no model may carry anything.
func TestScanRequestOtherBodies(t *testing.T) {
	f := func(contentType, body string) {
		t.Helper()
		r, err := ScanRequest(otherAPI, contentType, []byte(body))
		if err != nil || r != (Request{N: 1}) {
			t.Errorf("%s %q: %+v, %v", contentType, body, r, err)
		}
	}
	f("application/json", `[1,2]`)
	f("application/octet-stream", "\x00\x01")
	f("application/jsonl", "{\"a\":1}\n{\"a\":2}\n")
	f("audio/wav", "{RIFF")
	f("", "")
}

// 100,000 open brackets answer at once: the depth is counted, not built.
func TestScanRequestDepthLimit(t *testing.T) {
	nest := func(n int) []byte {
		return []byte(`{"model":"m","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)
	}
	if _, err := ScanRequest(chatAPI, "", nest(maxDepth-1)); err != nil {
		t.Errorf("%d levels: %v", maxDepth, err)
	}
	if _, err := ScanRequest(chatAPI, "", nest(maxDepth)); err == nil {
		t.Errorf("%d levels: no error", maxDepth+1)
	}
}

func splice(t *testing.T, contentType string, body []byte, model string) string {
	t.Helper()
	r, err := ScanRequest(chatAPI, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	prefix, value, suffix := r.Splice(body, model)
	return string(prefix) + string(value) + string(suffix)
}

func TestSplice(t *testing.T) {
	f := func(body, model, want string) {
		t.Helper()
		if got := splice(t, "", []byte(body), model); got != want {
			t.Errorf("%s with %s\n got %s\nwant %s", body, model, got, want)
		}
	}
	f(`{"model":"a","x":1}`, "much/longer:name", `{"model":"much/longer:name","x":1}`)
	f(`{ "x":"a" , "model" : "a" }`, "", `{ "x":"a" , "model" : "" }`)
	f(`{"model":"\u0061"}`, "q\"\\\n\t\x01é", `{"model":"q\"\\\n\t\u0001é"}`)
	f(`{"x":1}`, "m", `{"x":1}`)
}

// Every number literal arrives with the same characters; only the model string differs.
func TestCase62NumbersKeepTheirSpelling(t *testing.T) {
	rest := `,"seed":9007199254740993,"b":18446744073709551615,"c":1e15,"d":1000000000000000,"temperature":1.0,"e":0.10,"f":1E-7,"g":` +
		strings.Repeat("7", 400) + `,"tools":[{"function":{"arguments":"{\"n\": 1.50}"}}]}`
	if got := splice(t, "", []byte(`{"model":"fast"`+rest), "org/real"); got != `{"model":"org/real"`+rest {
		t.Error(got)
	}
}

// Unknown fields stay, nothing is added.
func TestCase63UnknownFieldsStay(t *testing.T) {
	rest := `,"enable_x":false,"extra_body":{"a":{"b":[null]}},"metadata":{"model":"inner"},"fallbacks":["x"]}`
	if got := splice(t, "", []byte(`{"model":"fast"`+rest), "real"); got != `{"model":"real"`+rest {
		t.Error(got)
	}
}

// Odd histories are the engine's to judge.
func TestCase65OddContent(t *testing.T) {
	for _, messages := range []string{
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]`, `[{"role":"assistant","tool_calls":[]}]`, `[{"content":""}]`,
		`[{"content":["a",{"type":"text"},1,null]}]`, `[{"content":[{"type":"image_url"}]}]`, `[{"role":"tool","content":[{}]}]`,
		`[{"role":"wizard"}]`, `[]`, `[1,"x",null,[[]]]`, `null`, `"text"`, `17`, `{}`, `{"a":{"type":7}}`,
	} {
		body := []byte(`{"messages":` + messages + `,"model":"m"}`)
		if got, want := splice(t, "", body, "n"), `{"messages":`+messages+`,"model":"n"}`; got != want {
			t.Errorf("got %s want %s", got, want)
		}
	}
}

// Odd spacing and escapes come out as they went in; the model string that is compared is the decoded one.
func TestCase66ByteIdentity(t *testing.T) {
	rest := `, "a" : "\/ \u2028 \ud83d\ude00 \ud800 <>&" ,` + strings.Repeat(" \t\r\n", 1<<18) + `"messages":[ ]` + "\n}\n\n"
	if got := splice(t, "", []byte(`{"model":"fast"`+rest), "m"); got != `{"model":"m"`+rest {
		t.Error("bytes changed")
	}
}

func TestScanRequestAllocs(t *testing.T) {
	for _, size := range []int{500, 64 << 10} {
		body := chatBody(size)
		if n := testing.AllocsPerRun(100, func() {
			if r, err := ScanRequest(chatAPI, "application/json", body); err != nil || r.Model == "" {
				t.Fatal(err)
			}
		}); n > 1 {
			t.Errorf("%d bytes: %.0f allocations, want at most 1 (the model's name)", size, n)
		}
	}
}

// chatBody is a chat request of about n bytes, with an escape every 25 bytes.
func chatBody(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"org/model-7b","stream":true,"stream_options":{"include_usage":true},"max_tokens":256,"temperature":0.7,"messages":[{"role":"system","content":"You are terse."}`)
	for b.Len() < n-64 {
		fmt.Fprintf(&b, `,{"role":"user","content":"%s"}`, strings.Repeat(`Some words of a prompt.\n`, max(1, min(40, (n-b.Len()-64)/25))))
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

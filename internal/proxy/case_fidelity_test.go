package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Cases of the kind body-fidelity: of a request's body only the bytes of the model's name may change, of an answer's
// none.

// echoes answers with the body it got.
func echoes(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// longAlias holds characters that a re-encoding would change.
const longAlias = "hub.example/org/модель<&>:Q4_K_M"

// passes demands that a body reaches upstream as it is, and with an alias changed in nothing but the model.
func passes(t *testing.T, path, model, body string, header ...string) {
	t.Helper()
	for _, alias := range []string{"", longAlias} {
		rec := &recorder{next: echoes}
		rec.next = jsonAnswer(200, body) // answers pass back as they are, whatever they hold
		w := newWorld(t, options{alias: alias}, rec.serve)
		a := w.post(path, body, header...)
		if a.status != 200 || a.body != body {
			t.Errorf("status %d, the answer changed: %q\nwant %q", a.status, clip(a.body), clip(body))
			continue
		}
		want := body
		if alias != "" {
			want = strings.Replace(body, model, `"`+longAlias+`"`, 1)
		}
		if _, got := rec.last(t); string(got) != want {
			t.Errorf("alias %q: upstream got %q\nwant %q", alias, clip(string(got)), clip(want))
		}
		w.idle()
	}
}

func TestCase62Numbers(t *testing.T) {
	for _, number := range []string{"9007199254740993", "18446744073709551615", "1e15", "1000000000000000", "1.0", "0.10", "1E-7", "-0", "-0.0e+00", "1e400", strings.Repeat("7", 400)} {
		for _, format := range []string{`{"model":"m","seed":%s,"messages":[]}`, `{"temperature": %s ,"model":"m"}`, `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"n\":%s}"}}]}]}`} {
			passes(t, "/v1/chat/completions", `"m"`, fmt.Sprintf(format, number))
		}
	}
}

func TestCase63UnknownFields(t *testing.T) {
	for _, body := range []string{
		`{"enable_x":false,"model":"m","extra_body":{"a":{"b":[1,null]}},"metadata":{"model":"not this one"},"fallbacks":["x"]}`,
		`{"messages":[{"role":"user","content":"model","model":"inner"}],"model":"m","tools":null,"cache":{"no-cache":true}}`,
		`{"":1,"model":"m","a\"b":2,"Messages":[],"stream_options":{}}`,
	} {
		passes(t, "/v1/chat/completions", `"m"`, body)
	}
	rec := &recorder{next: echoes}
	w := newWorld(t, options{}, rec.serve)
	w.post("/v1/chat/completions", chatBody, "X-Evenkeel-Timeout", "10s", "X-Evenkeel-Session", "s", "X-Evenkeel-Fallback", "off", "X-Evenkeel-Exclude", "z")
	req, _ := rec.last(t)
	for name := range req.Header {
		if strings.HasPrefix(name, headerPrefix) && name != headerHops {
			t.Errorf("upstream saw %s", name)
		}
	}
}

func TestCase65OddMessages(t *testing.T) {
	for _, messages := range []string{
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]`,
		`[{"role":"assistant","tool_calls":[]}]`, `[{"role":"user","content":""}]`, `[{"role":"user","content":[{"type":"text","text":"a"}]}]`,
		`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]`,
		`[{"role":"tool","content":[{"type":"text","text":"x"}],"tool_call_id":"1"}]`, `[{"role":"wizard","content":"x"}]`, `[]`, `["not an object"]`, `[null,1,[]]`,
		`"not a list"`, `null`, `{}`, `12`, `[[[[[[[[]]]]]]]]`, `[{"role":1,"content":{"a":1}}]`,
	} {
		passes(t, "/v1/chat/completions", `"m"`, `{"model":"m","messages":`+messages+`}`)
		passes(t, "/v1/messages", `"m"`, `{"messages":`+messages+`,"model":"m"}`)
		passes(t, "/v1/responses", `"m"`, `{"input":`+messages+`,"model":"m"}`)
	}
	w := newWorld(t, options{}, func(http.ResponseWriter, *http.Request) { t.Error("upstream was asked") })
	for _, body := range []string{`{"model":"m","messages":[`, `{"model":"m"}}`, `not JSON`, `[{"model":"m"}]`, `{"model":"m"} {"model":"n"}`} {
		if a := w.post("/v1/chat/completions", body); a.status != 400 || !strings.HasPrefix(a.body, `{"error":{"type":"invalid_request_error"`) {
			t.Errorf("%s: got %d %s", body, a.status, a.body)
		}
	}
}

func TestCase66ByteIdentity(t *testing.T) {
	for name, body := range map[string]string{
		"pretty":           "{\n\t\"model\" : \"m\",\r\n  \"messages\": [ ]\n}\n\n",
		"escapes":          `{"x":"\/\u2028\u00e9\ud83d\ude00\ud800<>&'","model":"m"}`,
		"raw separators":   "{\"x\":\"\u2028\u2029\",\"model\":\"m\"}",
		"blanks":           strings.Repeat(" \n\t", 350<<10) + `{"model":"m"}` + strings.Repeat(" ", 1<<10),
		"large":            `{"model":"m","x":"` + strings.Repeat("é<", 1<<20) + `"}`,
		"invalid UTF-8":    "{\"x\":\"\xff\xfe\",\"model\":\"m\"}",
		"DEL and controls": "{\"x\":\"\x7f\",\"model\":\"m\"}",
	} {
		t.Run(name, func(t *testing.T) { passes(t, "/v1/chat/completions", `"m"`, body) })
	}
	t.Run("escaped model", func(t *testing.T) { passes(t, "/v1/chat/completions", `"\u006d"`, `{"model":"\u006d","messages":[]}`) })
	t.Run("BOM", func(t *testing.T) {
		w := newWorld(t, options{}, echoes)
		body := "\ufeff" + chatBody
		if a := w.post("/v1/chat/completions", body); a.status == 200 && a.body != body || a.status != 200 && a.status != 400 {
			t.Errorf("got %d %q", a.status, a.body)
		}
	})
	t.Run("gzip request", func(t *testing.T) {
		w := newWorld(t, options{}, func(http.ResponseWriter, *http.Request) { t.Error("upstream was asked") })
		if a := w.post("/v1/chat/completions", "\x1f\x8b...", "Content-Encoding", "gzip"); a.status != 415 || !strings.Contains(a.body, "evenkeel_encoded_body") {
			t.Errorf("got %d %q", a.status, a.body)
		}
	})
	t.Run("any answer", func(t *testing.T) {
		for _, kind := range []string{"application/json", "text/plain", "application/octet-stream", "audio/mpeg", ""} {
			blob := bytes.Repeat([]byte{0, 1, 0xff, '\r', '\n', '{'}, 100<<10)
			w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				rw.Header()["Content-Type"] = []string{kind}
				if kind == "" {
					rw.Header()["Content-Type"] = nil
				}
				_, _ = rw.Write(blob)
			})
			if a := w.post("/v1/chat/completions", chatBody); a.body != string(blob) || a.header.Get("Content-Type") != kind {
				t.Errorf("%q: %d bytes, type %q", kind, len(a.body), a.header.Get("Content-Type"))
			}
		}
	})
}

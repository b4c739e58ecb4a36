package mock

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

var jsonSeeds = []string{
	`{}`, ` [1, -0.5e+10, "a\u00e9\ud83d\ude42\n", true, false, null] `, `{"a":{"b":[[]]}}`, `"\`, `"\u12`, "\"\x01\"", `01`, `-`, `1.`, `1e`, `[1,]`, `{"a":1,}`,
	`{"a" 1}`, `nul`, `"0123456789\"0123456789"`, `"01234567` + "\n" + `"`, strings.Repeat("[", 50), "\xff", `"` + "\xff" + `"`, ``,
}

// The scanner accepts exactly what encoding/json accepts, and its sizes are those of the decoded text.
func FuzzScanner(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &scanner{b: b}
		if ok := s.skip() && s.end(); ok != json.Valid(b) {
			t.Errorf("%q: scanner says %v, encoding/json %v", b, ok, !ok)
		}
		s = &scanner{b: b}
		if s.peek() != '"' {
			return
		}
		_, size, ok := s.text()
		var want string
		if ok && s.end() && json.Unmarshal(b, &want) == nil && !strings.ContainsRune(want, '�') && size != len(want) {
			t.Errorf("%q: size %d, want %d", b, size, len(want))
		}
	})
}

func TestParseCall(t *testing.T) {
	f := func(body string, want call) {
		t.Helper()
		got, err := parseCall([]byte(body), false)
		if err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if string(got.model) != string(want.model) || got.stream != want.stream || got.includeUsage != want.includeUsage ||
			got.limit != want.limit || got.textBytes != want.textBytes || got.tokenCount != want.tokenCount || got.inputs != want.inputs ||
			got.base64 != want.base64 || got.dimensions != want.dimensions || string(got.tool) != string(want.tool) {
			t.Errorf("%s:\n%+v, want\n%+v", body, got, want)
		}
	}
	f(`{"model":"m"}`, call{model: []byte("m")})
	f(`{"\u006dodel":"a\u002fb"}`, call{model: []byte("a/b")})
	f(`{"model":"a","model":"b"}`, call{model: []byte("b")})
	f(`{"stream":true,"stream_options":{"x":[1],"include_usage":true}}`, call{stream: true, includeUsage: true})
	f(`{"stream":null,"stream_options":null,"max_tokens":null,"encoding_format":null}`, call{})
	f(`{"max_completion_tokens":12}`, call{limit: 12})
	f(`{"max_completion_tokens":12,"max_tokens":99}`, call{limit: 12})
	f(`{"max_tokens":9,"max_completion_tokens":12}`, call{limit: 12})
	f(`{"max_tokens":9,"max_completion_tokens":null}`, call{limit: 9})
	f(`{"max_output_tokens":13}`, call{limit: 13})
	f(`{"prompt":"a\nb\u00e9\ud83d\ude42"}`, call{textBytes: 9, inputs: 1})
	f(`{"prompt":["ab","cde"]}`, call{textBytes: 5, inputs: 2})
	f(`{"input":[1,2,3],"dimensions":9,"encoding_format":"base64"}`, call{tokenCount: 3, inputs: 1, dimensions: 9, base64: true})
	f(`{"input":[[1,2],[3]]}`, call{tokenCount: 3, inputs: 2})
	f(`{"messages":[{"role":"user","name":"not counted","content":"abc"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}},{"type":"text","text":"de"}]}],"system":"f"}`,
		call{textBytes: 6, inputs: 2})
	f(`{"tool_choice":"required","tools":[{"type":"function","function":{"name":"f"}}]}`, call{tool: []byte("f")})
	f(`{"tool_choice":{"type":"tool","name":"g"},"tools":[{"name":"f"},{"name":"g"}]}`, call{tool: []byte("g")})
	f(`{"tool_choice":{"type":"any"},"tools":[{"input_schema":{"name":"x"},"name":"f"}]}`, call{tool: []byte("f")})
	f(`{"tool_choice":"required"}`, call{})
}

// A client that asks for a stream in the wrong way is told so, and does not wait for events that never come.
func TestStreamMustBeABool(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		if _, err := parseCall([]byte(body), false); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
	f(`{"stream":"true"}`, "stream must be true or false")
	f(`{"stream":1,"model":"m"}`, "stream must be true or false")
	f(`{"stream_options":{"include_usage":"yes"}}`, "stream_options.include_usage must be true or false")
	f(`{"stream":tru}`, "the body is not valid JSON: error at byte 10 of 14")
}

func FuzzParseCall(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"text":"x"}]}],"tools":[{"function":{"name":"f"}}],"tool_choice":{"name":"g"},"max_tokens":3}`))
	f.Add([]byte(`{"input":[[1,2],["x"]],"stream":true,"stream_options":{"include_usage":true}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseCall(b, len(b)%2 == 0)
		if err == nil && !json.Valid(b) {
			t.Errorf("accepted: %q", b)
		}
		if c.textBytes > len(b) || c.tokenCount > len(b) || c.limit < 0 {
			t.Errorf("%q: %+v", b, c)
		}
	})
}

// pipeConn is one end of an in-memory connection with bytes to read; what is written goes nowhere.
type pipeConn struct {
	net.Conn
	in io.Reader
}

func (p *pipeConn) Read(b []byte) (int, error)      { return p.in.Read(b) }
func (p *pipeConn) Write(b []byte) (int, error)     { return len(b), nil }
func (p *pipeConn) SetReadDeadline(time.Time) error { return nil }
func (p *pipeConn) Close() error                    { return nil }

// Whatever arrives on a connection, serving it ends and every request is counted.
func FuzzConnection(f *testing.F) {
	post := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
	f.Add([]byte(post + "Content-Length: 2\r\n\r\n{}"))
	f.Add([]byte(post + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"))
	f.Add([]byte(post + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nzz\r\n{}"))
	f.Add([]byte(post + "Expect: 100-continue\r\nContent-Length: 70\r\n\r\n" + `{"model":"mock-model","messages":[{"content":"x"}],"stream":true}` + "     "))
	f.Add([]byte("GET /v1/models HTTP/1.0\r\n\r\n"))
	f.Add([]byte("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /mock/state HTTP/1.1\r\n\r\n"))
	f.Add([]byte("POST /mock/fault HTTP/1.1\r\nContent-Length: 15\r\n\r\n" + `{"kind":"hang"}` + post + "Content-Length: 0\r\n\r\n"))
	f.Add([]byte("\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := New(Config{OutputTokens: 2})
		if err != nil {
			t.Fatal(err)
		}
		s := &session{}
		s.keep.Store(true)
		newConn(e, s, &pipeConn{in: bytes.NewReader(b)}).serve()
		if n := e.Stats(); n.Running != 0 || n.Started != n.Completed+n.Aborted+n.Cut {
			t.Errorf("%q left %+v", b, n)
		}
	})
}

func TestConfigErrors(t *testing.T) {
	f := func(c Config, want string) {
		t.Helper()
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	f(Config{Name: "a b"}, `name "a b"`)
	f(Config{Slots: -1}, "slots is -1")
	f(Config{InterToken: -time.Second}, "inter-token time is -1e+09")
	f(Config{PrefillTokensPerSecond: -3}, "prefill tokens per second is -3")
	f(Config{Models: []string{"a", ""}}, "a model needs a name")
	e, err := New(Config{Listen: "256.0.0.1:x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err == nil || !strings.Contains(err.Error(), "cannot listen on 256.0.0.1:x") {
		t.Errorf("start: %v", err)
	}
	e.Kill()
	e.Close()
}

package llm

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// readBody gives the text to a meter whole, byte by byte and in random pieces, and demands that all say the same.
func readBody(t testing.TB, text string) *Body {
	t.Helper()
	say := func(b *Body) string {
		return fmt.Sprintf("%+v %+v %q %q", b.Usage(), b.Err(), b.Model(), b.Fingerprint())
	}
	whole := NewBody(chatAPI)
	whole.Feed([]byte(text))
	random := rand.New(rand.NewPCG(2, uint64(len(text))))
	b := NewBody(chatAPI)
	for name, next := range map[string]func() int{
		"bytes":  func() int { return 1 },
		"random": func() int { return 1 + random.IntN(50) },
		"large":  func() int { return 1 + random.IntN(100_000) },
	} {
		if name != "large" && len(text) > 1<<20 {
			continue
		}
		b.Reset(chatAPI)
		for rest := text; len(rest) > 0; {
			n := min(next(), len(rest))
			piece := []byte(rest[:n])
			b.Feed(piece)
			clear(piece)
			rest = rest[n:]
		}
		if got, want := say(b), say(whole); got != want {
			t.Fatalf("in pieces (%s)\n got %s\nwant %s\nfor %.2000q", name, got, want, text)
		}
	}
	return whole
}

func TestBodyUsage(t *testing.T) {
	f := func(text string, want Usage) {
		t.Helper()
		want.Reported = want != (Usage{})
		if got := readBody(t, text).Usage(); got != want {
			t.Errorf("%.200s\n got %+v\nwant %+v", text, got, want)
		}
	}
	f(`{"model":"m","choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":9}"}}],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}`, Usage{Input: 5, Output: 7})
	f(`{"usage" : { "prompt_tokens" : 5 } }`, Usage{Input: 5})
	f(`{"us\u0061ge":{"prompt_tokens":5}}`, Usage{Input: 5})
	f(`{"a":{"usage":{"prompt_tokens":5}},"response":{"usage":{"prompt_tokens":5}}}`, Usage{})
	f(`[{"usage":{"prompt_tokens":5}}]`, Usage{})
	f(`{"usage":null}`, Usage{})
	f(`{"usage":[5]}`, Usage{})
	f(`{"usage":{"prompt_tokens":null,"completion_tokens":"7"}}`, Usage{})
	f(`{"usage":{"prompt_tokens":-5,"completion_tokens":7.9}}`, Usage{Output: 7})
	f(`{"usage":{"prompt_tokens":1e300,"completion_tokens":99999999999999999999}}`, Usage{Input: maxCount, Output: maxCount})
	f(`{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":9},"completion_tokens":3,"completion_tokens_details":{"reasoning_tokens":2}}}`,
		Usage{Input: 5, CachedInput: 5, Output: 3, Reasoning: 2})
	f(`{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":-9}}}`, Usage{Input: 5})
	f(`{"usage":{"prompt_tokens":50,"prompt_cache_hit_tokens":30,"prompt_cache_miss_tokens":20}}`, Usage{Input: 50, CachedInput: 30})
	f(`{"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":6},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":8}}}`,
		Usage{Input: 36, CachedInput: 6, Output: 87, Reasoning: 8})
	f(`{"type":"message","usage":{"input_tokens":10,"cache_read_input_tokens":200,"cache_creation_input_tokens":30,"output_tokens":4}}`,
		Usage{Input: 240, CachedInput: 200, Output: 4})
	f(`{"model":"llama3","prompt_eval_count":26,"eval_count":298}`, Usage{Input: 26, Output: 298})
	f(`{"usage":{"prompt_tokens":5,"pad":"`+strings.Repeat("x", maxCapture)+`"}}`, Usage{})
	f("not json", Usage{})
	f(`}}]]{"usage":{"prompt_tokens":5}}`, Usage{Input: 5})
	f("", Usage{})
}

// An embeddings answer of 20 MB, with the usage at either end.
func TestBodyLarge(t *testing.T) {
	numbers := strings.Repeat("-0.012345678,", 20<<20/13)
	const tokens = `"usage":{"prompt_tokens":8,"total_tokens":8}`
	for _, text := range []string{
		`{"data":[{"embedding":[` + numbers + `0]}],"model":"e",` + tokens + `}`,
		`{` + tokens + `,"model":"e","data":[{"embedding":[` + numbers + `0]}]}`,
		`{"model":"e","data":[{"embedding":"` + strings.Repeat("QUJD", 5<<20) + `"}],` + tokens + `}`,
	} {
		b := readBody(t, text)
		if want := (Usage{Input: 8, Reported: true}); b.Usage() != want || b.Model() != "e" {
			t.Errorf("%.60s: %+v, model %q", text, b.Usage(), b.Model())
		}
		if kept := cap(b.probe.capture); kept > 2*maxCapture {
			t.Errorf("%.60s: keeps %d bytes", text, kept)
		}
	}
}

func TestBodyEmpty(t *testing.T) {
	f := func(text string, want bool) {
		t.Helper()
		if got := readBody(t, text).Empty(); got != want {
			t.Errorf("%s: empty is %v", text, got)
		}
	}
	f(`{"choices":[],"usage":{"prompt_tokens":5}}`, true)
	f(`{"id":"1","choices" : [ ] }`, true)
	f(`{"choices":[{"index":0,"message":{"content":""}}]}`, false)
	f(`{"choices":[{"x":[]}],"other":[]}`, false)
	f(`{"other":[],"x":{"choices":[]}}`, false)
	f(`{"choices":null,"other":[]}`, true)
	f(`{"x":{"choices":null}}`, false)
	f(" \n", true)
	f("Internal Server Error", true)
	f(`"choices"`, true)
	f("\ufeff{}", false)
	f("\r\n [1]", false)
	f(`{"choices":{},"other":[]}`, false)
	f(`[{"choices":[]}]`, false)
	f(`{}`, false)
}

func TestBodyNames(t *testing.T) {
	b := readBody(t, `{"x":{"model":"inner"},"model":"org\/m","system_fingerprint":"fp_\u0031","choices":[]}`)
	if b.Model() != "org/m" || b.Fingerprint() != "fp_1" {
		t.Errorf("%q %q", b.Model(), b.Fingerprint())
	}
}

func TestBodyErrors(t *testing.T) {
	f := func(text string, want UpstreamError) {
		t.Helper()
		if got := readBody(t, text).Err(); got == nil || *got != want {
			t.Errorf("%.200s\n got %+v\nwant %+v", text, got, want)
		}
	}
	none := func(text string) {
		t.Helper()
		if got := readBody(t, text).Err(); got != nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
	f(`{"error":{"message":"m","type":"t","param":null,"code":"c"}}`, UpstreamError{Type: "t", Code: "c", Message: "m"})
	f(`{"error":{"code":400,"message":"the request exceeds","type":"exceed_context_size_error","n_ctx":4096}}`,
		UpstreamError{Status: 400, Type: "exceed_context_size_error", Code: "400", Message: "the request exceeds"}) // llama.cpp
	f(`{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}`, UpstreamError{Status: 400, Type: "BadRequestError", Code: "400", Message: "m"})
	f(`{"type":"error","error":{"type":"not_found_error","message":"m"},"request_id":"r"}`, UpstreamError{Type: "not_found_error", Message: "m"})
	f(`{"error":"Model is overloaded","error_type":"overloaded"}`, UpstreamError{Type: "overloaded", Message: "Model is overloaded"})
	f(`{"error":{"message":"a\n\"b\" é","type":null,"code":null}}`, UpstreamError{Message: "a\n\"b\" é"})
	f(`{"error":{"message":"`+strings.Repeat("é", maxMessage)+`"}}`, UpstreamError{Message: strings.Repeat("é", maxMessage/2)})
	big := `{"message":"` + strings.Repeat("x", 2*maxCapture) + `"}`
	f(`{"error":`+big+`}`, UpstreamError{Message: big[:maxMessage]})
	f(`[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"x.Help","links":[]},{"@type":"x.RetryInfo","retryDelay":"34.5s"},7]}}]`,
		UpstreamError{Status: 429, Code: "429", Message: "m", RetryAfter: 34500 * time.Millisecond}) // Gemini
	f(`{"error":{"message":"m","retry_after":"7"}}`, UpstreamError{Message: "m", RetryAfter: 7 * time.Second})
	f(`{"error":{"message":"m","retry_after_ms":250,"retry_after":-1,"details":{"retryDelay":"9s"}}}`, UpstreamError{Message: "m", RetryAfter: 250 * time.Millisecond})
	none(`[{"index":0,"score":0.5},{"model":"m","error":null}]`)
	none(`[[{"error":{"message":"deep"}}]]`)
	f(`{"error":null,"choices":[{"index":0,"finish_reason":"error","message":{"content":"half"},"error":{"code":502,"message":"gone"}}],"error":null}`,
		UpstreamError{Status: 502, Code: "502", Message: "gone"}) // OpenRouter
	f(`{"choices":[{"finish_reason":"stop"},{"finish_reason":"error"}]}`, UpstreamError{Message: `finish_reason "error"`})
	none(`{"choices":[{"finish_reason":"abort"}]}`)
	none(`{"choices":[{"index":0,"finish_reason":"stop","error":null,"message":{"error":{"message":"said by the model"},"finish_reason":"error"}}]}`)
	none(`{"other":[{"finish_reason":"error","error":{"message":"m"}}]}`)
	none(`{"error":null,"object":"response"}`)
	none(`{"error":{}}`)
	none(`{"error":""}`)
	none(`{"error":false}`)
	none(`{"message":"m","code":5}`)
	f(`{"error":"Model x is currently loading","estimated_time":20.5}`, UpstreamError{Message: "Model x is currently loading", RetryAfter: 20500 * time.Millisecond}) // Hugging Face
	f(`{"retry_after":3,"error":{"message":"m","retry_after_ms":100}}`, UpstreamError{Message: "m", RetryAfter: 3 * time.Second})
}

// TestBodyFlat: errors without a member error, by the answer's status or by what was asked for.
func TestBodyFlat(t *testing.T) {
	f := func(text string, want UpstreamError) {
		t.Helper()
		if got := readBody(t, text).Flat(); got == nil || *got != want {
			t.Errorf("%.200s\n got %+v\nwant %+v", text, got, want)
		}
	}
	none := func(text string) {
		t.Helper()
		if got := readBody(t, text).Flat(); got != nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
	f(`{ "statusCode": 429, "message": "Rate limit is exceeded. Try again in 12 seconds." }`,
		UpstreamError{Status: 429, Message: "Rate limit is exceeded. Try again in 12 seconds."}) // Azure API Management
	f(`{"detail":"no worker","status_code":"503"}`, UpstreamError{Status: 503, Message: "no worker"})
	f(`{"detail":"more","message":"m","type":"about:blank","retry_after_ms":1500}`, UpstreamError{Type: "about:blank", Message: "m", RetryAfter: 1500 * time.Millisecond})
	f(`{"code":1302,"message":"busy","data":null,"choices":null,"content":null,"response":null}`, UpstreamError{Code: "1302", Message: "busy"})
	f(`{"status":"failed","message":"m"}`, UpstreamError{Message: "m"})
	none(`{"message":"m","choices":[{"index":0}]}`)
	none(`{"message":"m","content":[]}`)
	none(`{"message":"m","output":"o"}`)
	none(`{"message":"m","response":{}}`)
	none(`{"message":{"content":"of Ollama"},"done":true}`)
	none(`{"detail":[{"loc":["body"]}]}`)
	none(`{"message":""}`)
	none(`{"code":500}`)
	none(`{"x":{"message":"m"}}`)
	none(`[{"message":"m"}]`)
	none(`"message"`)
}

func BenchmarkBody(b *testing.B) {
	for name, item := range map[string]string{"floats": "-0.012345678,", "text": `"words of an answer, as they come",`} {
		body := []byte(`{"data":[` + strings.Repeat(item, 1<<20/len(item)) + `0],"usage":{"prompt_tokens":8}}`)
		b.Run(name, func(b *testing.B) {
			m := NewBody(chatAPI)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				m.Reset(chatAPI)
				for p := body; len(p) > 0; {
					n := min(16<<10, len(p))
					m.Feed(p[:n])
					p = p[n:]
				}
			}
		})
	}
}

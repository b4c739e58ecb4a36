package llm

import (
	"math"
	"strings"
	"time"
)

// UpstreamError is an error that an engine put in words: in the body of a failed request, or as an event of a stream.
type UpstreamError struct {
	Status     int    // HTTP status that the error names (some engines write it as code), or 0
	Type, Code string // as sent; a number as its digits
	Message    string // at most maxMessage bytes; can hold parts of the prompt, so it is for the client, not for logs
	RetryAfter time.Duration
}

// maxMessage bounds the text kept from an engine's error, in bytes.
const maxMessage = 1024

// Error returns type, code and message.
func (e *UpstreamError) Error() string {
	text := "upstream error"
	for _, part := range []string{e.Type, e.Code, e.Message} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// Class is what an attempt's failure says about who is at fault and what to do.
type Class uint8

// The classes. From Connect on they are found by whoever talks to the socket; Classify gives the others.
const (
	None        Class = iota // success
	ClientFault              // the request is at fault: it passes through and counts against nobody
	RateLimited              // 429
	Overloaded               // 503, 529
	ServerError              // other 5xx, 408, 409
	Auth                     // the upstream refused our credential, or its account cannot pay
	Connect                  // no connection
	Reset                    // the connection broke before the answer was whole
	Truncated                // the answer ended cleanly but without its terminal marker
	Timeout                  // one of our deadlines passed
	Malformed                // the answer is not what its protocol allows
	Stale                    // a reused connection was closed before it answered: nobody's fault
)

var classNames = [...]string{"none", "client_fault", "rate_limited", "overloaded", "server_error", "auth", "connect",
	"reset", "truncated", "timeout", "malformed", "stale"}

// String returns the label used in metrics and logs.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

// Retryable reports whether the same request can succeed at another deployment, or here a little later.
func (c Class) Retryable() bool { return c > ClientFault }

// Classify judges a response's status, with the error that its body holds if that was read; and an error event inside a
// stream, with status 0 or 200. A redirect is ClientFault: it passes through and tells nothing about the endpoint.
func Classify(status int, err *UpstreamError) Class {
	if status >= 100 && status < 300 || status == 304 || status == 0 {
		if err == nil {
			return None
		}
		if err.Status >= 300 {
			return Classify(err.Status, &UpstreamError{Type: err.Type, Code: err.Code})
		}
		return classifyWords(err)
	}
	switch {
	case status == 401 || status == 402 || status == 403:
		return Auth
	case status == 408 || status == 409:
		return ServerError
	case status == 429:
		return RateLimited
	case status == 503 || status == 529:
		return Overloaded
	case status < 500:
		return ClientFault
	}
	if err != nil && classifyWords(err) == Overloaded {
		return Overloaded
	}
	return ServerError
}

// classifyWords judges an error by its type and code. The words are those of OpenAI, Anthropic, vLLM, SGLang, TGI and
// llama.cpp; engines spell them in snake and in camel case.
func classifyWords(err *UpstreamError) Class {
	words := strings.ToLower(err.Type + " " + err.Code)
	for _, w := range errorWords {
		if strings.Contains(words, w.word) {
			return w.class
		}
	}
	return ServerError
}

var errorWords = []struct {
	word  string
	class Class
}{
	{"rate_limit", RateLimited}, {"ratelimit", RateLimited}, {"too_many_requests", RateLimited}, {"toomanyrequests", RateLimited},
	{"insufficient_quota", RateLimited}, {"resource_exhausted", RateLimited},
	{"overload", Overloaded}, {"unavailable", Overloaded}, {"capacity", Overloaded},
	{"authentication", Auth}, {"permission", Auth}, {"invalid_api_key", Auth}, {"unauthorized", Auth}, {"forbidden", Auth}, {"billing", Auth},
	{"invalid_request", ClientFault}, {"badrequest", ClientFault}, {"bad_request", ClientFault}, {"not_found", ClientFault}, {"notfound", ClientFault},
	{"context_length", ClientFault}, {"context_size", ClientFault}, {"content_filter", ClientFault}, {"content_policy", ClientFault},
	{"too_large", ClientFault}, {"unprocessable", ClientFault}, {"validation", ClientFault}, {"invalid_prompt", ClientFault},
}

// RetryAfter returns how long a response asks its client to wait: retry-after-ms first (OpenAI, Azure), then
// retry-after in seconds, also with a fraction, or as an HTTP date seen from now. A date in the past is 0. It returns
// false if neither header is there and readable. The caller caps the result.
func RetryAfter(header map[string][]string, now time.Time) (time.Duration, bool) {
	if d, ok := parseSeconds(headerValue(header, "Retry-After-Ms"), time.Millisecond); ok {
		return d, true
	}
	value := headerValue(header, "Retry-After")
	if d, ok := parseSeconds(value, time.Second); ok {
		return d, true
	}
	for _, layout := range httpDates {
		if t, err := time.Parse(layout, value); err == nil {
			return max(0, t.Sub(now)), true
		}
	}
	return 0, false
}

// httpDates are the three formats of RFC 9110 §5.6.7.
var httpDates = [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC}

// parseSeconds reads a decimal number of units, without sign or exponent.
func parseSeconds(s string, unit time.Duration) (time.Duration, bool) {
	var n float64
	scale, digits := 0.0, 0
	for _, c := range []byte(s) {
		switch {
		case c == '.' && scale == 0:
			scale = 1
		case c >= '0' && c <= '9':
			digits++
			if scale == 0 {
				n = n*10 + float64(c-'0')
			} else {
				scale /= 10
				n += scale * float64(c-'0')
			}
		default:
			return 0, false
		}
	}
	if digits == 0 {
		return 0, false
	}
	if n *= float64(unit); n >= math.MaxInt64 {
		return math.MaxInt64, true
	}
	return time.Duration(math.Round(n)), true
}

// headerValue returns the first value of a header whose name is given in canonical form.
func headerValue(header map[string][]string, name string) string {
	values := header[name]
	if values == nil {
		for k, v := range header {
			if strings.EqualFold(k, name) {
				values = v
				break
			}
		}
	}
	if len(values) == 0 {
		return ""
	}
	return strings.TrimSpace(values[0])
}

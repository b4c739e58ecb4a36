package llm

import (
	"math"
	"testing"
	"time"
)

func TestClassify(t *testing.T) {
	f := func(status int, err *UpstreamError, want Class) {
		t.Helper()
		if got := Classify(status, err); got != want {
			t.Errorf("Classify(%d, %+v) = %v, want %v", status, err, got, want)
		}
	}
	for status, want := range map[int]Class{
		0: None, 200: None, 204: None, 304: None, 302: ClientFault, 307: ClientFault,
		400: ClientFault, 404: ClientFault, 413: ClientFault, 422: ClientFault, 499: ClientFault,
		401: Auth, 402: Auth, 403: Auth, 408: ServerError, 409: ServerError, 429: RateLimited,
		500: ServerError, 502: ServerError, 504: ServerError, 520: ServerError, 503: Overloaded, 529: Overloaded,
	} {
		f(status, nil, want)
	}
	f(500, &UpstreamError{Type: "overloaded_error"}, Overloaded)
	f(500, &UpstreamError{Type: "invalid_request_error"}, ServerError)
	f(400, &UpstreamError{Type: "server_error"}, ClientFault)
	f(200, &UpstreamError{}, ServerError)
	f(200, &UpstreamError{Status: 429}, RateLimited)
	f(200, &UpstreamError{Status: 500, Type: "overloaded_error"}, Overloaded)
	f(0, &UpstreamError{Type: "rate_limit_error"}, RateLimited)
	f(0, &UpstreamError{Code: "rate_limit_exceeded"}, RateLimited)
	f(0, &UpstreamError{Code: "insufficient_quota"}, RateLimited)
	f(0, &UpstreamError{Type: "overloaded_error"}, Overloaded)
	f(0, &UpstreamError{Type: "ServiceUnavailableError"}, Overloaded)
	f(0, &UpstreamError{Type: "invalid_request_error"}, ClientFault)
	f(0, &UpstreamError{Type: "BadRequestError"}, ClientFault)
	f(0, &UpstreamError{Type: "exceed_context_size_error"}, ClientFault)
	f(0, &UpstreamError{Code: "context_length_exceeded"}, ClientFault)
	f(0, &UpstreamError{Type: "authentication_error"}, Auth)
	f(0, &UpstreamError{Type: "permission_error"}, Auth)
	f(0, &UpstreamError{Type: "api_error"}, ServerError)
	f(0, &UpstreamError{Type: "InternalServerError"}, ServerError)
}

func TestClassNames(t *testing.T) {
	seen := map[string]bool{}
	for c := None; c <= Stale; c++ {
		if name := c.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("class %d is called %q", c, name)
		} else {
			seen[name] = true
		}
		if want := c != None && c != ClientFault; c.Retryable() != want {
			t.Errorf("%v: Retryable is %v", c, c.Retryable())
		}
	}
	if Class(200).String() != "unknown" {
		t.Error("a class that is none has a name")
	}
}

func TestCase26ClientErrorIsNoFault(t *testing.T) {
	c := Classify(400, &UpstreamError{Code: "context_length_exceeded"})
	if c != ClientFault || c.Retryable() {
		t.Errorf("%v", c)
	}
}

func TestCase29RetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	f := func(header map[string][]string, want time.Duration, wantOK bool) {
		t.Helper()
		got, ok := RetryAfter(header, now)
		if got != want || ok != wantOK {
			t.Errorf("%v: %v %v, want %v %v", header, got, ok, want, wantOK)
		}
	}
	after := func(values ...string) map[string][]string { return map[string][]string{"Retry-After": values} }
	f(after("2"), 2*time.Second, true)
	f(after(" 0 "), 0, true)
	f(after("1.5"), 1500*time.Millisecond, true)
	f(after("Wed, 04 Mar 2026 05:06:10 GMT"), 3*time.Second, true)
	f(after("Wednesday, 04-Mar-26 05:06:10 GMT"), 3*time.Second, true)
	f(after("Wed Mar  4 05:06:10 2026"), 3*time.Second, true)
	f(after("Wed, 04 Mar 2020 05:06:10 GMT"), 0, true)
	f(after("-5"), 0, false)
	f(after("abc"), 0, false)
	f(after(""), 0, false)
	f(after("."), 0, false)
	f(after("1.2.3"), 0, false)
	f(after("1e3"), 0, false)
	f(after("NaN"), 0, false)
	f(after("999999999"), 999999999*time.Second, true)
	f(after("99999999999999999999999999"), math.MaxInt64, true)
	f(after("3", "7"), 3*time.Second, true)
	f(map[string][]string{"Retry-After": {"1"}, "Retry-After-Ms": {"250"}}, 250*time.Millisecond, true)
	f(map[string][]string{"Retry-After": {"1"}, "Retry-After-Ms": {"x"}}, time.Second, true)
	f(map[string][]string{"retry-after": {"4"}}, 4*time.Second, true)
	f(map[string][]string{"Retry-After": {}}, 0, false)
	f(nil, 0, false)
}

func TestUpstreamErrorText(t *testing.T) {
	e := &UpstreamError{Type: "t", Message: "m"}
	if got := e.Error(); got != "upstream error: t: m" {
		t.Error(got)
	}
}

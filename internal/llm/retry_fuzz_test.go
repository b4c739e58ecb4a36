package llm

import (
	"net/http"
	"testing"
	"time"
)

// FuzzRetryAfter: whatever an endpoint asks for, the wait is never negative, and its own digits decide where they are plain.
func FuzzRetryAfter(f *testing.F) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, s := range [][3]string{
		{"2", ""}, {"1", "250"}, {"", "1.5"}, {"-5", "abc"}, {"999999999999999999999", ""}, {"1.5.2", "."}, {now.Add(time.Minute).Format(http.TimeFormat), ""},
		{"Monday, 02-Jan-06 15:04:05 MST", ""}, {"0x10", "1e3"}, {" 7 ", "\x00"}, {"Fri, 31 Dec 9999 23:59:59 GMT", ""},
		{"", "", "Please try again in 1m3.5s."}, {"", "", "retry after 6 seconds"}, {"", "", "RETRY IN 99999999999d9h1µs"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, seconds, ms, message string) {
		h := http.Header{}
		if seconds != "" {
			h.Set("Retry-After", seconds)
		}
		if ms != "" {
			h.Set("Retry-After-Ms", ms)
		}
		e := &UpstreamError{Message: message}
		d, ok := RetryAfter(h, e, now)
		if d < 0 || !ok && d != 0 {
			t.Errorf("%q and %q ms: %v %v", seconds, ms, d, ok)
		}
		if ok && seconds == "" && ms == "" && message == "" {
			t.Error("a wait out of nothing")
		}
		lower, okLower := RetryAfter(map[string][]string{"retry-after": h["Retry-After"], "retry-after-ms": h["Retry-After-Ms"]}, e, now)
		if lower != d || okLower != ok {
			t.Errorf("in lower case: %v %v, else %v %v", lower, okLower, d, ok)
		}
	})
}

// FuzzQuota: a limit that is not reached asks for nothing, one that is never for less than nothing, and what Go reads as a
// plain duration is read as the same.
func FuzzQuota(f *testing.F) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, s := range [][2]string{
		{"0", "6m0s"}, {"0", "12ms"}, {"0", "1m30.5s"}, {"0", "20"}, {"0", "1767323099"}, {"0", "1767323099000"}, {"0", "99999999999999999999999999"},
		{"0", "2026-01-02T03:04:06Z"}, {"-1", "20"}, {"", "x"}, {"0.0", "-5s"}, {"00", "0.5"}, {"0", "9223372036s9223372036s"}, {"0", "1 s"}, {"0", "1.s"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, remaining, reset string) {
		d := Quota(http.Header{"X-Ratelimit-Remaining-Tokens": {remaining}, "X-Ratelimit-Reset-Tokens": {reset}}, now)
		if d < 0 {
			t.Errorf("%q until %q: %v", remaining, reset, d)
		}
		if n, err := time.ParseDuration(reset); remaining == "0" && err == nil && n >= 0 && n < time.Hour && reset[0] != '+' && (d-n).Abs() > time.Millisecond {
			t.Errorf("%q: %v, want %v", reset, d, n)
		}
		if remaining == "1" && d != 0 {
			t.Errorf("1 remains: %v", d)
		}
	})
}

// FuzzClassify: no body makes a success of an error, or the client's fault of a 5xx; and reading it keeps within bounds.
func FuzzClassify(f *testing.F) {
	for _, s := range []string{
		`{"error":{"message":"m","type":"insufficient_quota","code":"x"}}`, `[{"error":{"code":429,"details":[{"retryDelay":"34s"},[],{"a":{}}]}}]`,
		"{\"error\":\"model \\\"x\\\" not found\"}", `{"error":{"message":"model: x","type":"not_found_error","retry_after":"1","retry_after_ms":1e9}}`,
		`{"object":"error","message":"the model ' does not exist","code":"404"}`, `[{"error":`, `{"error":{"details":[`,
		`{"statusCode":"503","detail":"no worker","estimated_time":1e9}`, `{"message":"Try again in 12 seconds.","choices":[{`, `{"retry_after":null,"message":"\u00e9","output":null}`, "{\"error\":\"\\u0130 is not a valid model id\"}",
	} {
		f.Add(s, 429)
	}
	f.Fuzz(func(t *testing.T, body string, status int) {
		b := readBody(t, body)
		err := b.Err()
		if err == nil {
			err = b.Flat()
		}
		if err != nil && (len(err.Message) > maxMessage || len(err.Type) > maxErrorWord || len(err.Code) > maxErrorWord || err.RetryAfter < 0) {
			t.Errorf("%q: %+v", body, err)
		}
		class, reason := Classify(status, err)
		switch {
		case class == None && (err != nil || status >= 305):
			t.Errorf("%d %q is a success", status, body)
		case class == ClientFault && status >= 500 && status != 501 && status != 505:
			t.Errorf("%d %q is the client's fault", status, body)
		case reason != "" && class != ClientFault:
			t.Errorf("%d %q: %v because of %q", status, body, class, reason)
		}
	})
}

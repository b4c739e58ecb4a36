package llm

import (
	"net/http"
	"testing"
	"time"
)

// FuzzRetryAfter: whatever an endpoint asks for, the wait is never negative, and its own digits decide where they are plain.
func FuzzRetryAfter(f *testing.F) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, s := range [][2]string{
		{"2", ""}, {"1", "250"}, {"", "1.5"}, {"-5", "abc"}, {"999999999999999999999", ""}, {"1.5.2", "."}, {now.Add(time.Minute).Format(http.TimeFormat), ""},
		{"Monday, 02-Jan-06 15:04:05 MST", ""}, {"0x10", "1e3"}, {" 7 ", "\x00"}, {"Fri, 31 Dec 9999 23:59:59 GMT", ""},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, seconds, ms string) {
		h := http.Header{}
		if seconds != "" {
			h.Set("Retry-After", seconds)
		}
		if ms != "" {
			h.Set("Retry-After-Ms", ms)
		}
		d, ok := RetryAfter(h, now)
		if d < 0 || !ok && d != 0 {
			t.Errorf("%q and %q ms: %v %v", seconds, ms, d, ok)
		}
		if ok && seconds == "" && ms == "" {
			t.Error("a wait out of nothing")
		}
		lower, okLower := RetryAfter(map[string][]string{"retry-after": h["Retry-After"], "retry-after-ms": h["Retry-After-Ms"]}, now)
		if lower != d || okLower != ok {
			t.Errorf("in lower case: %v %v, else %v %v", lower, okLower, d, ok)
		}
	})
}

package llm

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"
)

var waitNow = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func TestCase29RetryAfter(t *testing.T) {
	f := func(header map[string][]string, want time.Duration, wantOK bool) {
		t.Helper()
		got, ok := RetryAfter(header, nil, waitNow)
		if got != want || ok != wantOK {
			t.Errorf("%v: %v %v, want %v %v", header, got, ok, want, wantOK)
		}
	}
	after := func(values ...string) map[string][]string { return map[string][]string{"Retry-After": values} }
	f(after("2"), 2*time.Second, true)
	f(after(" 0 "), 0, true)
	f(after("1.5"), 1500*time.Millisecond, true)
	f(after(".5"), 500*time.Millisecond, true)
	f(after("Wed, 04 Mar 2026 05:06:10 GMT"), 3*time.Second, true)
	f(after("Wednesday, 04-Mar-26 05:06:10 GMT"), 3*time.Second, true)
	f(after("Wed Mar  4 05:06:10 2026"), 3*time.Second, true)
	f(after("Wed, 04 Mar 2020 05:06:10 GMT"), 0, true)
	f(after("-5"), 0, false)
	f(after("abc"), 0, false)
	f(after(""), 0, false)
	f(after("."), 0, false)
	f(after("1."), time.Second, true)
	f(after("1.2.3"), 0, false)
	f(after("1e3"), 0, false)
	f(after("NaN"), 0, false)
	f(after("999999999"), 999999999*time.Second, true)
	f(after("99999999999999999999999999"), math.MaxInt64, true)
	f(after("3", "7"), 3*time.Second, true)
	f(map[string][]string{"Retry-After": {"1"}, "Retry-After-Ms": {"250"}}, 250*time.Millisecond, true)
	f(map[string][]string{"Retry-After": {"1"}, "X-Ms-Retry-After-Ms": {"250"}}, 250*time.Millisecond, true)
	f(map[string][]string{"Retry-After": {"1"}, "Retry-After-Ms": {"x"}}, time.Second, true)
	f(map[string][]string{"retry-after": {"4"}}, 4*time.Second, true)
	f(map[string][]string{"Retry-After": {}}, 0, false)
	f(nil, 0, false)
}

func TestRetryAfterInTheError(t *testing.T) {
	f := func(err UpstreamError, want time.Duration, wantOK bool) {
		t.Helper()
		got, ok := RetryAfter(map[string][]string{"Retry-After": {"soon"}}, &err, waitNow)
		if got != want || ok != wantOK {
			t.Errorf("%+v: %v %v, want %v %v", err, got, ok, want, wantOK)
		}
		if got, ok := RetryAfter(map[string][]string{"Retry-After": {"9"}}, &err, waitNow); got != 9*time.Second || !ok {
			t.Errorf("%+v beside the header: %v %v", err, got, ok)
		}
	}
	says := func(text string, want time.Duration) {
		t.Helper()
		f(UpstreamError{Message: text}, want, want != 0)
	}
	f(UpstreamError{RetryAfter: 3 * time.Second, Message: "Please try again in 5s."}, 3*time.Second, true)
	says("Rate limit reached for gpt-4 on tokens per min (TPM): Limit 10000, Used 9000. Please try again in 20ms. Visit https://x/1.", 20*time.Millisecond)
	says("Rate limit reached. Please try again in 6m0s.", 6*time.Minute)
	says("Please try again in 1m3.5s. Need more tokens?", 63500*time.Millisecond)
	says("Please try again in 8.64s.", 8640*time.Millisecond)
	says("Please try again in 2h3m. Visit", 123*time.Minute)
	says("Please try again in 1d2h", 26*time.Hour)
	says("Please try again in 20s", 20*time.Second)
	says("Please retry after 6 seconds.", 6*time.Second)
	says("Please retry after 1 second. ", time.Second)
	says("Please retry in 34.074824224s.", 34074824224)
	says("Please try again in 3 minutes.", 3*time.Minute)
	says("Please try again in 99999999999999999999999999h", math.MaxInt64)
	says("Please try again in a while.", 0)
	says("Please try again in 5 parsecs.", 0)
	says("Please try again in 5", 0)
	says("try again in ", 0)
	says("5s", 0)
}

func TestCase30Quota(t *testing.T) {
	f := func(want time.Duration, pairs ...string) {
		t.Helper()
		h := http.Header{"Content-Type": {"application/json"}, "X-Ratelimit-Limit-Tokens": {"0"}, "X-Ratelimit-Remaining-Nothing": nil}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		if got := Quota(h, waitNow); got != want {
			t.Errorf("%v: %v, want %v", pairs, got, want)
		}
	}
	reset := func(value string, want time.Duration) {
		t.Helper()
		f(want, "x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", value)
		f(want, "x-ratelimit-remaining-requests", " 0 ", "x-ratelimit-reset-requests", value)
		f(want, "x-ratelimit-remaining-tokens_usage_based", "0", "x-ratelimit-reset-tokens_usage_based", value)
		f(want, "anthropic-ratelimit-input-tokens-remaining", "0", "anthropic-ratelimit-input-tokens-reset", value)
		f(want, "anthropic-ratelimit-unified-status", "rejected", "anthropic-ratelimit-unified-reset", value)
		f(want, "ratelimit-remaining", "0", "ratelimit-reset", value)
		f(0, "x-ratelimit-remaining-tokens", "1", "x-ratelimit-reset-tokens", value)
		f(0, "x-ratelimit-remaining-tokens", "-1", "x-ratelimit-reset-tokens", value)
		f(0, "x-ratelimit-remaining-tokens", "none", "x-ratelimit-reset-tokens", value)
		f(0, "x-ratelimit-remaining-tokens", "", "x-ratelimit-reset-tokens", value)
		f(0, "x-ratelimit-reset-tokens", value)
		f(0, "x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-requests", value)
		f(0, "anthropic-ratelimit-unified-status", "allowed_warning", "anthropic-ratelimit-unified-reset", value)
	}
	reset("6m0s", 6*time.Minute)
	reset("12ms", 12*time.Millisecond)
	reset("1m30.5s", 90500*time.Millisecond)
	reset("20", 20*time.Second)
	reset("0.5", 500*time.Millisecond)
	reset("0", 0)
	reset("-1", 0)
	reset("-3s", 0)
	reset("2026-03-04T05:07:07Z", time.Minute)
	reset("2026-03-04T06:06:08.5+01:00", 1500*time.Millisecond)
	reset("Wed, 04 Mar 2026 05:06:10 GMT", 3*time.Second)
	reset(fmt.Sprint(waitNow.Unix()+42), 42*time.Second)
	reset(fmt.Sprint(waitNow.Add(42*time.Second).UnixMilli()), 42*time.Second)
	reset(fmt.Sprint(waitNow.Unix()-42), 0)
	reset("2020-01-01T00:00:00Z", 0)
	reset("tomorrow", 0)
	reset("6m0", 0)
	reset("6 parsecs", 0)
	reset("", 0)
	f(time.Minute, "x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "1s",
		"x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "1m", "x-ratelimit-remaining-more", "3", "x-ratelimit-reset-more", "1h")
}

// Where a limit is not reached, looking costs no memory.
func TestQuotaAllocs(t *testing.T) {
	h := http.Header{
		"Content-Type": {"application/json"}, "Date": {"x"}, "X-Request-Id": {"x"}, "Openai-Processing-Ms": {"5"},
		"X-Ratelimit-Limit-Requests": {"100"}, "X-Ratelimit-Remaining-Requests": {"99"}, "X-Ratelimit-Reset-Requests": {"600ms"},
		"X-Ratelimit-Limit-Tokens": {"1000"}, "X-Ratelimit-Remaining-Tokens": {"17"}, "X-Ratelimit-Reset-Tokens": {"59s"},
	}
	if n := testing.AllocsPerRun(100, func() {
		if Quota(h, waitNow) != 0 {
			t.Fatal("a limit is reached")
		}
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkQuota(b *testing.B) {
	h := http.Header{
		"Content-Type": {"application/json"}, "Date": {"x"}, "Server": {"x"}, "X-Request-Id": {"x"}, "Cache-Control": {"x"},
		"X-Ratelimit-Remaining-Requests": {"99"}, "X-Ratelimit-Reset-Requests": {"600ms"},
	}
	b.ReportAllocs()
	for b.Loop() {
		Quota(h, waitNow)
	}
}

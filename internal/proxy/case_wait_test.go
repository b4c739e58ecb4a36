package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// Cases of the kind retry-classification that are about how long upstream wants to be left alone.

// TestCase29RetryAfterSpellings: the only endpoint is asked again when it said, if that can be read; who comes before is told when.
// Times are those of the report; the cap is 3.5 s, and what names no time is left alone for 0.3 s.
func TestCase29RetryAfterSpellings(t *testing.T) {
	const longest, usual = 3500 * time.Millisecond, 300 * time.Millisecond
	const slack = 1500 * time.Millisecond // of a busy machine
	f := func(name string, least, most time.Duration, headers ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var limited, back time.Time
			var mu sync.Mutex
			o := options{health: route.Health{RateLimitPause: usual, LongestRetryAfter: longest}, change: func(g *Generation) { g.MaxAttempts = 1 }}
			w := newWorld(t, o, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if !limited.IsZero() {
					back = time.Now()
					jsonAnswer(200, goodJSON)(w, r)
					return
				}
				for i := 0; i < len(headers); i += 2 {
					value := headers[i+1]
					if offset, ok := strings.CutPrefix(value, "date "); ok {
						d, _ := time.ParseDuration(offset)
						value = time.Now().Add(d).UTC().Format(http.TimeFormat)
					}
					w.Header().Add(headers[i], value)
				}
				limited = time.Now()
				jsonAnswer(429, `{"error":{"message":"slow down"}}`)(w, r)
			})
			if a := w.post("/v1/chat/completions", chatBody); a.status != 429 || a.header.Get("Retry-After") == "" {
				t.Errorf("%d with Retry-After %q", a.status, a.header.Get("Retry-After"))
			}
			until(t, "it is asked again", func() bool {
				a := w.post("/v1/chat/completions", chatBody)
				if a.status != 200 && a.header.Get("Retry-After") == "" {
					t.Fatalf("%d without Retry-After: %s", a.status, a.body)
				}
				return a.status == 200
			})
			if out := back.Sub(limited); out < least || out > most+slack {
				t.Errorf("asked again after %v, want %v to %v", out, least, most)
			}
			w.idle()
		})
	}
	f("seconds", 2*time.Second, 2*time.Second, "Retry-After", "2")
	f("date", 2*time.Second, 3*time.Second, "Retry-After", "date 3s")
	f("milliseconds", 250*time.Millisecond, 250*time.Millisecond, "Retry-After-Ms", "250", "Retry-After", "1")
	f("Azure's milliseconds", 250*time.Millisecond, 250*time.Millisecond, "X-Ms-Retry-After-Ms", "250", "Retry-After", "1")
	f("date in the past", 0, 0, "Retry-After", "date -1h")
	f("zero", 0, 0, "Retry-After", "0")
	f("negative", usual, usual, "Retry-After", "-5")
	f("garbage", usual, usual, "Retry-After", "abc")
	f("absurd", longest, longest, "Retry-After", "999999999")
	f("fraction", 1500*time.Millisecond, 1500*time.Millisecond, "Retry-After", "1.5")
	f("twice", time.Second, 2*time.Second, "Retry-After", "1", "Retry-After", "2")
	f("reset header", 1200*time.Millisecond, 1200*time.Millisecond, "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "1.2s", "X-Ratelimit-Remaining-Requests", "5", "X-Ratelimit-Reset-Requests", "3s")
}

// TestRetryAfterInTheBody: what only the body says, a client is told by headers too, since no SDK reads it there.
func TestRetryAfterInTheBody(t *testing.T) {
	for name, body := range map[string]string{
		"text":   openAIError("tokens", "rate_limit_exceeded", "Rate limit reached. Please try again in 30.25s. Visit https://x."),
		"Gemini": `[{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"30.25s"}]}}]`,
		"member": `{"error":{"message":"slow down","retry_after":30.25}}`,
		"flat":   `{"statusCode":429,"message":"Rate limit is exceeded. Try again in 30.25 seconds."}`, // Azure API Management
		"beside": `{"error":"Model is overloaded","estimated_time":30.25}`,                             // Hugging Face
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{change: func(g *Generation) { g.MaxAttempts = 1 }}, jsonAnswer(429, body))
			a := w.post("/v1/chat/completions", chatBody)
			if a.status != 429 || a.body != body || a.header.Get("Retry-After") != "31" || a.header.Get("Retry-After-Ms") != "30250" {
				t.Errorf("%d %s, %v", a.status, a.body, a.header)
			}
			if b := w.deployment(0).Breaker; b.State != route.Cooling || time.Until(b.Until) > 30250*time.Millisecond {
				t.Errorf("%+v", b)
			}
		})
	}
}

// TestAbsurdWaits: nobody is told to come back in a year, wherever upstream says so.
func TestAbsurdWaits(t *testing.T) {
	f := func(body string, headers ...string) {
		t.Helper()
		w := newWorld(t, options{change: func(g *Generation) { g.MaxAttempts = 1 }}, jsonAnswer(429, body, headers...))
		for range 2 { // upstream's own answer, and ours while it is left alone
			a := w.post("/v1/chat/completions", chatBody)
			seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
			if a.status != 429 || err != nil || seconds > 3600 || seconds < 59 || a.header.Get("X-Ms-Retry-After-Ms") != "" {
				t.Errorf("%q %v: %d %v", body, headers, a.status, a.header)
			}
		}
		w.idle()
	}
	const short = `{"error":{"message":"slow down"}}`
	f(short, "Retry-After", "31536000")
	f(short, "Retry-After", "999999999999999999999999")
	f(short, "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT")
	f(short, "X-Ms-Retry-After-Ms", "31536000000", "Retry-After", "31536000")
	f(`{"error":{"message":"slow down","retry_after":1e9}}`, "Retry-After-Ms", "99999999999999")
	f(`{"error":{"message":"slow down","retry_after":99999999}}`)
	f(`{"message":"Try again in 4000 days."}`)
	f(short, "Retry-After", "3600") // which is the most
}

// TestCase30QuotaLeft: an answer that says that nothing is left of its limits is the last until these are full again.
func TestCase30QuotaLeft(t *testing.T) {
	f := func(name string, hold time.Duration, headers ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a atomic.Int32
			w := newWorld(t, options{}, counted(&a, jsonAnswer(200, goodJSON, headers...)), jsonAnswer(200, goodJSON))
			ask := func() {
				t.Helper()
				if got := w.post("/v1/chat/completions", chatBody); got.status != 200 {
					t.Fatalf("%d %s", got.status, got.body)
				}
			}
			for a.Load() == 0 {
				ask()
			}
			b := w.deployment(0).Breaker
			if hold == 0 {
				if b.State != route.Closed {
					t.Errorf("it is %s", b.State)
				}
				for range 10 {
					ask()
				}
				if a.Load() < 4 {
					t.Errorf("it got %d of the requests", a.Load())
				}
				return
			}
			if hold >= time.Second { // else it may be over before it can be seen
				if left := time.Until(b.Until); b.State != route.Cooling || left > hold || left < hold-5*time.Second {
					t.Errorf("%s for %v, want %v", b.State, left, hold)
				}
				for range 10 {
					ask()
				}
				if a.Load() != 1 {
					t.Errorf("it got %d requests", a.Load())
				}
				return
			}
			until(t, "it is asked again", func() bool { ask(); return a.Load() > 1 })
			w.idle()
		})
	}
	openAI := func(remaining, reset string) []string {
		return []string{"X-Ratelimit-Remaining-Tokens", remaining, "X-Ratelimit-Reset-Tokens", reset, "X-Ratelimit-Remaining-Requests", "99", "X-Ratelimit-Reset-Requests", "1h"}
	}
	f("6m0s", time.Minute, openAI("0", "6m0s")...) // a minute is the cap
	f("12ms", 12*time.Millisecond, openAI("0", "12ms")...)
	f("300ms", 300*time.Millisecond, openAI("0", "300ms")...)
	f("1m30.5s", time.Minute, openAI("0", "1m30.5s")...)
	f("RFC 3339", 40*time.Second, openAI("0", time.Now().Add(40*time.Second).UTC().Format(time.RFC3339))...)
	f("seconds", 20*time.Second, openAI("0", "20")...)
	f("Unix time", 40*time.Second, openAI("0", fmt.Sprint(time.Now().Add(40*time.Second).Unix()))...)
	f("Anthropic", 40*time.Second, "Anthropic-Ratelimit-Input-Tokens-Remaining", "0", "Anthropic-Ratelimit-Input-Tokens-Reset", time.Now().Add(40*time.Second).UTC().Format(time.RFC3339))
	f("none", 0, openAI("1", "20")...)
	f("missing", 0, "X-Ratelimit-Reset-Tokens", "20")
	f("negative", 0, openAI("-1", "20")...)
	f("garbage", 0, openAI("0", "soon")...)
	f("garbage that remains", 0, openAI("none", "20")...)
}

// A stream that took longer than the reset it began with ends with room again.
func TestCase30ResetDuringAStream(t *testing.T) {
	w := newWorld(t, options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ratelimit-Remaining-Tokens", "0")
		w.Header().Set("X-Ratelimit-Reset-Tokens", "20ms")
		sse(roleEvent, delta("a"))(w, r)
		for over := time.NewTimer(30 * time.Millisecond); ; {
			select {
			case <-over.C:
				_, _ = io.WriteString(w, finishEvent+usageEvent+doneEvent)
				return
			case <-r.Context().Done():
				return
			}
		}
	})
	if a := w.post("/v1/chat/completions", streamBody); !strings.HasSuffix(a.body, doneEvent) {
		t.Fatalf("%q", a.body)
	}
	if o := w.record(1).Last().Outcome; o.Verdict != route.Success || o.RetryAfter != 0 {
		t.Errorf("%+v", o)
	}
}

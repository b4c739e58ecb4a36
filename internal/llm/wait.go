package llm

import (
	"math"
	"strings"
	"time"
)

// RetryAfter returns how long upstream asks to be left alone: by the headers retry-after-ms (OpenAI, Azure),
// x-ms-retry-after-ms (Azure) and retry-after, in seconds, also with a fraction, or as an HTTP date seen from now; else
// by members of the error (err may be nil), else by its message. 0 means that it may be asked again at once. It returns
// false if none of them is there and readable. The caller caps the result: what is asked for may be absurd.
func RetryAfter(header map[string][]string, err *UpstreamError, now time.Time) (time.Duration, bool) {
	for _, name := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if d, ok := parseSeconds(headerValue(header, name), time.Millisecond); ok {
			return d, true
		}
	}
	value := headerValue(header, "Retry-After")
	if d, ok := parseSeconds(value, time.Second); ok {
		return d, true
	}
	if t, ok := parseDate(value); ok {
		return max(0, t.Sub(now)), true
	}
	if err == nil {
		return 0, false
	}
	if err.RetryAfter > 0 {
		return err.RetryAfter, true
	}
	return waitIn(err.Message)
}

// waitWords come before the time in messages: "Please try again in 1m3.5s" (OpenAI, Groq), "Please retry after 6 seconds"
// (Azure), "Please retry in 34.07s" (Gemini).
var waitWords = [...]string{"try again in ", "retry after ", "retry in "}

// waitIn finds the time that a message asks to wait.
func waitIn(message string) (time.Duration, bool) {
	message = strings.ToLower(message)
	for _, words := range waitWords {
		if _, rest, ok := strings.Cut(message, words); ok {
			if d, _, ok := parseDuration(rest); ok {
				return d, true
			}
		}
	}
	return 0, false
}

// Quota returns how long an answer says that there is no room left: the longest reset of those limits of which 0 remains,
// seen from now, when the answer came. 0 if there is room, or if it does not say. The caller caps the result.
//
// Each limit has a header that says what remains of it and one of the same name that says when it is full again:
// x-ratelimit-remaining-tokens and x-ratelimit-reset-tokens (OpenAI, Azure, Groq and others, who also have other limits
// than requests and tokens), anthropic-ratelimit-input-tokens-remaining and -reset, ratelimit-remaining and -reset.
// Anthropic's unified limits have a status in place of what remains. Names of headers are in canonical form. Nothing is
// allocated unless a limit is reached.
func Quota(header map[string][]string, now time.Time) (longest time.Duration) {
	for name, values := range header {
		if !strings.Contains(name, "atelimit") || len(values) == 0 {
			continue
		}
		reset := ""
		switch {
		case name == "Anthropic-Ratelimit-Unified-Status":
			if strings.EqualFold(strings.TrimSpace(values[0]), "rejected") {
				reset = "Anthropic-Ratelimit-Unified-Reset"
			}
		case strings.Contains(name, "Remaining"):
			if n, ok := parseSeconds(strings.TrimSpace(values[0]), time.Second); ok && n == 0 {
				reset = strings.Replace(name, "Remaining", "Reset", 1)
			}
		}
		if reset != "" {
			longest = max(longest, untilReset(headerValue(header, reset), now))
		}
	}
	return longest
}

// From these numbers on a reset is no length in seconds but Unix time, in seconds or in milliseconds: as a length it would
// be 31 years, or more.
const (
	leastUnix      = 1e9
	leastUnixMilli = 1e12
)

// untilReset reads the time of a reset: as a duration ("6m0s", OpenAI), in seconds (Azure), as Unix time, or as a date of
// RFC 3339 (Anthropic) or of HTTP. 0 if it cannot be read or is over.
func untilReset(value string, now time.Time) time.Duration {
	if n, rest, ok := parseNumber(value); ok && rest == "" {
		switch {
		case n < leastUnix:
			return times(n, time.Second)
		case n < leastUnixMilli:
			return max(0, time.Unix(int64(n), 0).Sub(now))
		}
		return max(0, time.UnixMilli(int64(min(n, 1e15))).Sub(now))
	}
	if d, rest, ok := parseDuration(value); ok && rest == "" {
		return d
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		t, _ = parseDate(value)
	}
	return max(0, t.Sub(now))
}

// parseDate reads the three formats of RFC 9110 §5.6.7.
func parseDate(s string) (time.Time, bool) {
	if len(s) < len(time.ANSIC) {
		return time.Time{}, false
	}
	for _, layout := range [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// parseSeconds reads a decimal number of units, without sign or exponent.
func parseSeconds(s string, unit time.Duration) (time.Duration, bool) {
	n, rest, ok := parseNumber(s)
	if !ok || rest != "" {
		return 0, false
	}
	return times(n, unit), true
}

// parseNumber reads a decimal number without sign or exponent at the start of s and returns what follows.
func parseNumber(s string) (n float64, rest string, ok bool) {
	scale, digits, i := 0.0, 0, 0
	for ; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '.' && scale == 0:
			scale = 1
			continue
		case c < '0' || c > '9':
			return n, s[i:], digits > 0
		}
		digits++
		if scale == 0 {
			n = n*10 + float64(c-'0')
		} else {
			scale /= 10
			n += scale * float64(c-'0')
		}
	}
	return n, "", digits > 0
}

func times(n float64, unit time.Duration) time.Duration {
	if n *= float64(unit); n >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(math.Round(n))
}

// units of durations, in words too.
var units = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
	"millisecond": time.Millisecond, "milliseconds": time.Millisecond, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute, "hour": time.Hour, "hours": time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
}

// parseDuration reads numbers with units at the start of s, such as "1m3.5s" or "6 seconds", and returns what follows.
func parseDuration(s string) (d time.Duration, rest string, ok bool) {
	for rest = s; ; ok = true {
		n, after, isNumber := parseNumber(rest)
		if !isNumber {
			return d, rest, ok
		}
		after = strings.TrimPrefix(after, " ")
		end := strings.IndexFunc(after, func(r rune) bool { return (r < 'a' || r > 'z') && r != 'µ' })
		if end < 0 {
			end = len(after)
		}
		unit, known := units[after[:end]]
		if !known {
			return d, rest, ok
		}
		if d += times(n, unit); d < 0 {
			d = math.MaxInt64
		}
		rest = after[end:]
	}
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

package llm

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"
)

// readError takes the next value as an error: an object with message, type and code, or a text. What says that there is
// no error (null, false, an empty object or text) is nil.
func readError(sc *scanner) *UpstreamError {
	switch sc.peek() {
	case '"':
		text := sc.text()
		if len(text) == 0 {
			return nil
		}
		return &UpstreamError{Message: plain(text, maxMessage)}
	case '{':
	default:
		if isTrue(sc.raw()) {
			return &UpstreamError{}
		}
		return nil
	}
	sc.enter('{')
	var e UpstreamError
	members := 0
	for {
		key, ok := sc.key()
		if !ok {
			break
		}
		members++
		e.readMember(sc, key)
	}
	if members == 0 {
		return nil
	}
	return &e
}

func (e *UpstreamError) readMember(sc *scanner, key []byte) {
	switch string(key) {
	case "message":
		e.Message = plain(sc.text(), maxMessage)
	case "detail": // FastAPI, and RFC 9457
		if text := sc.text(); e.Message == "" {
			e.Message = plain(text, maxMessage)
		}
	case "type":
		e.Type = plain(sc.text(), maxErrorWord)
	case "code":
		raw := sc.raw()
		if n, ok := count(raw); ok {
			e.setStatus(n)
			e.Code = clip(raw, maxErrorWord)
		} else if len(raw) > 0 && raw[0] == '"' {
			e.Code = plain(raw[1:len(raw)-1], maxErrorWord)
			n, _ := count(raw[1 : len(raw)-1])
			e.setStatus(n)
		}
	case "status", "status_code", "statusCode":
		n, _ := count(bytes.Trim(sc.raw(), `"`))
		e.setStatus(n)
	case "retry_after":
		e.wait(sc, time.Second)
	case "retry_after_ms":
		e.wait(sc, time.Millisecond)
	case "retryDelay":
		if d, rest, ok := parseDuration(string(sc.text())); ok && rest == "" {
			e.RetryAfter = max(e.RetryAfter, d)
		}
	case "details": // Gemini: a list of objects, of which the one of type RetryInfo has a retryDelay
		e.readDetails(sc)
	default:
		sc.skip()
	}
}

// wait takes the next value, a number or a text of one, as how long to wait.
func (e *UpstreamError) wait(sc *scanner, unit time.Duration) {
	d, _ := parseSeconds(strings.Trim(string(sc.raw()), `"`), unit)
	e.RetryAfter = max(e.RetryAfter, d)
}

func (e *UpstreamError) readDetails(sc *scanner) {
	if !sc.enter('[') {
		sc.skip()
		return
	}
	for sc.elem() {
		if !sc.enter('{') {
			sc.skip()
			continue
		}
		for {
			key, ok := sc.key()
			if !ok {
				break
			}
			if string(key) == "retryDelay" {
				e.readMember(sc, key)
			} else {
				sc.skip()
			}
		}
	}
}

// flatError returns the error that an event is which has no member error: a text as message or detail at its top, and
// nothing that an event of another kind has. Else nil.
func flatError(data []byte) *UpstreamError {
	sc := scanner{b: data}
	if !sc.enter('{') {
		return nil
	}
	var e UpstreamError
	for {
		key, ok := sc.key()
		if !ok {
			break
		}
		switch string(key) {
		case "choices", "content", "output", "response", "text", "delta", "id", "object", "event":
			return nil
		}
		e.readMember(&sc, key)
	}
	if e.Message == "" || e.Type != "" && !strings.Contains(strings.ToLower(e.Type), "error") || sc.fault != faultNone {
		return nil
	}
	return &e
}

// typed takes the inside of a JSON string that stands beside an error as its type, if the error names none itself.
func (e *UpstreamError) typed(kind []byte) {
	if e.Type == "" {
		e.Type = plain(kind, maxErrorWord)
	}
}

func (e *UpstreamError) setStatus(n int) {
	if n >= 400 && n < 600 {
		e.Status = n
	}
}

// failedFinish reports whether a finish_reason, as JSON, says that the engine failed amid the answer: OpenRouter's and vLLM's
// "error". An "abort" may be about the request: SGLang has ended prompts that were too long so.
func failedFinish(raw []byte) bool { return string(raw) == `"error"` }

func finishError(raw []byte) *UpstreamError {
	return &UpstreamError{Message: "finish_reason " + string(raw)}
}

// errorText is an error that came as bare text.
func errorText(data []byte) *UpstreamError {
	return &UpstreamError{Message: clip(bytes.TrimSpace(data), maxMessage)}
}

// maxErrorWord bounds an error's type and code, in bytes.
const maxErrorWord = 128

// plain returns the text of a JSON string's inside, cut to limit bytes.
func plain(raw []byte, limit int) string {
	if len(raw) > 6*limit { // the longest escape of one byte has six
		raw = raw[:6*limit]
	}
	return clip(unescape(nil, raw), limit)
}

// clip cuts text to limit bytes, at the start of a character.
func clip(text []byte, limit int) string {
	if len(text) > limit {
		for limit > 0 && !utf8.RuneStart(text[limit]) {
			limit--
		}
		text = text[:limit]
	}
	return string(text)
}

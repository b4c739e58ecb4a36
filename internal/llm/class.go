package llm

import "time"

// UpstreamError is an error that an engine put in words: in the body of a failed request, or as an event of a stream.
type UpstreamError struct {
	Status     int           // HTTP status that the error names (some engines write it as code), or 0
	Type, Code string        // as sent; a number as its digits
	Message    string        // at most maxMessage bytes; can hold parts of the prompt, so it is for the client, not for logs
	RetryAfter time.Duration // how long members of the error ask to wait, 0 = they do not
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
	Overloaded               // 503, 529, 498
	ServerError              // other 5xx, 408, 409, 425
	Auth                     // the upstream refused our credential
	Exhausted                // the account behind the credential cannot pay: 402, insufficient_quota
	NotServed                // the upstream does not know the model
	Loading                  // the upstream is loading the model
	Connect                  // no connection
	Reset                    // the connection broke before the answer was whole
	Truncated                // the answer ended cleanly but without its terminal marker
	Timeout                  // one of our deadlines passed
	Malformed                // the answer is not what its protocol allows
	Stale                    // a reused connection was closed before it answered: nobody's fault
)

var classNames = [...]string{"none", "client_fault", "rate_limited", "overloaded", "server_error", "auth", "exhausted",
	"not_served", "loading", "connect", "reset", "truncated", "timeout", "malformed", "stale"}

// String returns the label used in metrics and logs.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

// Retryable reports whether the same request can succeed at another deployment, or here a little later.
func (c Class) Retryable() bool { return c > ClientFault }

// Reason is why a ClientFault is one, where another model might take the request; "" = another reason.
type Reason string

// The reasons.
const (
	ContextLength Reason = "context_length" // the prompt is too long for the model
	ContentFilter Reason = "content_filter" // a filter refused the prompt or the answer
)

// Classify judges a response's status, with the error that its body holds if that was read; and an error event inside a
// stream, with status 0 or 200. A redirect is ClientFault: it passes through and tells nothing about the endpoint.
func Classify(status int, err *UpstreamError) (Class, Reason) {
	if status >= 100 && status < 300 || status == 304 || status == 0 {
		if err == nil {
			return None, ""
		}
		if err.Status < 300 {
			if w := find(0, err); w != nil {
				return w.class, w.reason
			}
			return ServerError, ""
		}
		status = err.Status
	}
	class := classOf(status)
	if err != nil {
		if w := find(status, err); w != nil && class.yields(w) {
			return w.class, w.reason
		}
	}
	return class, ""
}

// classOf is what a status says without words.
func classOf(status int) Class {
	switch status {
	case 401, 403:
		return Auth
	case 402:
		return Exhausted
	case 408, 409, 425: // what SDKs repeat: a timeout, a lock that is taken, sent too early
		return ServerError
	case 429:
		return RateLimited
	case 501, 505: // the engine cannot do that, however often it is asked
		return ClientFault
	case 498, 503, 529: // 498 is Groq's: no capacity for the tier
		return Overloaded
	}
	if status < 500 {
		return ClientFault
	}
	return ServerError // also 520 to 530, of a proxy that cannot reach the engine
}

// yields reports whether the words of an error say more than its status. Statuses are coarse: a 429 may mean an empty
// account, a 404 a model or a file. But words of a 5xx do not make it the client's fault.
func (c Class) yields(w *wording) bool {
	switch w.class {
	case Exhausted:
		return true
	case NotServed:
		return c == ClientFault || c == Auth
	case Loading:
		return c == Overloaded || c == ServerError
	case Overloaded, RateLimited:
		return c == ServerError
	case ServerError: // only a 424 that says so
		return c == ClientFault && w.status != 0
	case Auth: // a code may be about what a tool met elsewhere
		return c == ClientFault && w.starts != ""
	case ClientFault:
		return c == ClientFault || c == Auth && w.reason == ContentFilter
	}
	return false
}

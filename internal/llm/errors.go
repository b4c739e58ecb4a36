package llm

import "strconv"

// Error is one of our own errors, to be written in the client's dialect.
type Error struct {
	Status  int    // HTTP status
	Type    string // as SDKs know it: invalid_request_error, rate_limit_error, ...; "" takes the usual one for Status
	Code    string // evenkeel_*
	Param   string // the request field at fault, or ""
	Message string
	// RetryAfter is in how many seconds repeating makes sense, for the event of a stream, which has no headers; 0 = not said.
	RetryAfter int
	// Sequence is the sequence_number of Event for the responses API: Stream.NextSequence.
	Sequence int
}

// errorType returns Type in the dialect's words. The dialects share all but the name of a server's own fault.
func (e Error) errorType(d Dialect) string {
	serverFault := "server_error"
	if d == Anthropic {
		serverFault = "api_error"
	}
	switch {
	case e.Type == "server_error" || e.Type == "api_error":
		return serverFault
	case e.Type != "":
		return e.Type
	case e.Status == 401:
		return "authentication_error"
	case e.Status == 403:
		return "permission_error"
	case e.Status == 404 && d == Anthropic:
		return "not_found_error"
	case e.Status == 413 && d == Anthropic:
		return "request_too_large"
	case e.Status == 429:
		return "rate_limit_error"
	case e.Status == 503 || e.Status == 529:
		return "overloaded_error"
	case e.Status == 504:
		return "timeout_error"
	case e.Status >= 400 && e.Status < 500:
		return "invalid_request_error"
	}
	return serverFault
}

// Body returns the JSON of the response.
func (e Error) Body(d Dialect) []byte {
	b := make([]byte, 0, 128+len(e.Message))
	if d == Anthropic {
		b = append(b, `{"type":"error","error":`...)
	} else {
		b = append(b, `{"error":`...)
	}
	return append(e.appendObject(b, d), '}')
}

// appendObject appends the inner error object. `param` is a field of OpenAI's; null stands for none there.
func (e Error) appendObject(b []byte, d Dialect) []byte {
	b = append(b, `{"type":`...)
	b = appendString(b, e.errorType(d))
	b = append(b, `,"message":`...)
	b = appendString(b, e.Message)
	if d == OpenAI {
		b = append(b, `,"param":`...)
		b = appendStringOrNull(b, e.Param)
	}
	b = append(b, `,"code":`...)
	b = appendStringOrNull(b, e.Code)
	return append(e.appendRetryAfter(b), '}')
}

func (e Error) appendRetryAfter(b []byte) []byte {
	if e.RetryAfter <= 0 {
		return b
	}
	return strconv.AppendInt(append(b, `,"retry_after":`...), int64(e.RetryAfter), 10)
}

func appendStringOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendString(b, s)
}

// Event returns the server-sent event that ends a stream that broke. lineOpen says that a line or an event was begun
// (Stream.Open): it is closed first. There is never a [DONE] after it: SDKs would take the answer for complete.
//
// SDKs raise on `error` in the data, except Anthropic's, which goes by the event's name. For the responses API the event
// carries both forms in use: the documented flat one, and the nested object, without which some SDKs pass over it.
func (e Error) Event(api API, lineOpen bool) []byte {
	b := make([]byte, 0, 256+2*len(e.Message))
	if lineOpen {
		b = append(b, "\n\n"...)
	}
	switch {
	case api.Dialect == Anthropic:
		b = append(b, "event: error\ndata: "...)
		b = append(b, e.Body(Anthropic)...)
	case api.Name == "responses":
		b = append(b, "event: error\ndata: {\"type\":\"error\",\"code\":"...)
		b = appendStringOrNull(b, e.Code)
		b = append(b, `,"message":`...)
		b = appendString(b, e.Message)
		b = append(b, `,"param":`...)
		b = appendStringOrNull(b, e.Param)
		b = e.appendRetryAfter(b)
		b = append(b, `,"sequence_number":`...)
		b = strconv.AppendInt(b, int64(e.Sequence), 10)
		b = append(b, `,"error":`...)
		b = e.appendObject(b, OpenAI)
		b = append(b, '}')
	default:
		b = append(b, "data: "...)
		b = append(b, e.Body(OpenAI)...)
	}
	return append(b, "\n\n"...)
}

package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"evenkeel/internal/llm"
)

const (
	// bodyPause is how long a request's body may make no progress.
	bodyPause = 30 * time.Second
	// bodyFirst is the most memory that is set aside for a body before it comes.
	bodyFirst = 1 << 20
	// bodyPiece is the most that is read between two looks at the clock.
	bodyPiece = 256 << 10
)

// readBody reads the whole body, so that it can be sent again and so that upstream's early answer cannot race
// with the reading of it.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *llm.Error) {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, &llm.Error{Status: http.StatusUnsupportedMediaType, Type: "invalid_request_error", Code: "evenkeel_encoded_body",
			Message: "Send the body without Content-Encoding: it must be read to be routed."}
	}
	control := http.NewResponseController(w)
	size := min(r.ContentLength, bodyFirst) // what is only announced costs no memory
	if size < 0 {
		size = 4 << 10
	}
	body := make([]byte, 0, size+1) // one more, so that the end is seen without growing
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		_ = control.SetReadDeadline(time.Now().Add(bodyPause)) // not every ResponseWriter can; then nothing bounds it
		n, err := r.Body.Read(body[len(body):min(cap(body), len(body)+bodyPiece)])
		body = body[:len(body)+n]
		if int64(len(body)) > limit {
			return nil, tooLarge(limit)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, bodyError(err)
		}
	}
	_ = control.SetReadDeadline(time.Time{})
	return body, nil
}

func tooLarge(limit int64) *llm.Error {
	return &llm.Error{Status: http.StatusRequestEntityTooLarge, Code: "evenkeel_body_too_large",
		Message: fmt.Sprintf("The request's body is larger than %d bytes (the operator's max_body).", limit)}
}

func bodyError(err error) *llm.Error {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return &llm.Error{Status: http.StatusRequestTimeout, Type: "invalid_request_error", Code: "evenkeel_body_timeout",
			Message: fmt.Sprintf("The request's body made no progress for %v.", bodyPause)}
	}
	return &llm.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "evenkeel_body_broken",
		Message: "The request's body ended early or is not framed as HTTP demands."}
}

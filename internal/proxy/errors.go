package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// writeError sends an error of ours in the client's dialect.
func writeError(w http.ResponseWriter, api llm.API, e *llm.Error) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if h.Get(headerDepth) == "" {
		h.Set(headerDepth, "0")
	}
	requestID(h, api)
	if final(e.Status) {
		h.Set("X-Should-Retry", "false")
	}
	body := e.Body(api.Dialect)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // the client may be gone; there is nothing more to tell it
}

// final reports whether repeating a request that got an error of ours with that status is useless.
func final(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		return false
	case http.StatusHTTPVersionNotSupported, http.StatusLoopDetected:
		return true
	}
	return status >= 400 && status < 500
}

// linger is called before a request is refused whose body was not read. A server that closes a connection with
// bytes unread resets it, and the client may lose the answer; net/http waits a moment before it closes if a
// reader of its own found the body too large. A body that has not been asked for is left alone.
func linger(w http.ResponseWriter, r *http.Request, closes bool) {
	if r.ContentLength == 0 || r.Header.Get("Expect") != "" || !closes && !r.Close && len(r.TransferEncoding) == 0 {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(grace)) // the body may never come
	_, _ = http.MaxBytesReader(w, r.Body, 0).Read(make([]byte, 1))
}

// unwantedTime is how long a body that nobody reads is waited for.
const unwantedTime = 10 * time.Second

// unwanted is called where a request is answered whose body nobody will read. Where the connection goes on, net/http
// reads up to 256 KiB of the body before it sends the answer, for as long as it takes if there is no deadline.
func unwanted(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unwantedTime)) // a ResponseWriter that cannot has no such wait
	}
}

// requestID gives SDKs the id they show to people, where upstream gave none: ours.
func requestID(h http.Header, api llm.API) {
	name := "X-Request-Id"
	if api.Dialect == llm.Anthropic {
		name = "Request-Id"
	}
	if h[name] == nil {
		h[name] = h[headerID]
	}
}

// longestWait is the longest that a client is told to wait: upstream may ask for years, and is asked again long before.
const longestWait = time.Hour

// bounded is what a client is told to wait, in milliseconds.
func bounded(ms int64) int64 { return min(ms, longestWait.Milliseconds()) }

// retryIn tells a client when to come back. SDKs read the milliseconds first.
func retryIn(h http.Header, ms int64) {
	ms = bounded(ms)
	h.Set("Retry-After", strconv.FormatInt((ms+999)/1000, 10))
	h.Set("Retry-After-Ms", strconv.FormatInt(ms, 10))
}

// retryHeaders tells a client whether and when to come back.
func retryHeaders(h http.Header, f *exchange.Failure) {
	if f.RetryIn > 0 {
		retryIn(h, f.RetryIn)
	}
	if f.Final {
		h.Set("X-Should-Retry", "false")
	}
}

// requestError words what the scanner found wrong with a body.
func requestError(err error) *llm.Error {
	e := &llm.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "evenkeel_invalid_body", Message: err.Error()}
	var r *llm.RequestError
	if errors.As(err, &r) {
		e.Code, e.Param, e.Message = r.Code, r.Param, r.Message
	}
	return e
}

// decisionLine puts a decision into one header line.
func decisionLine(d *route.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "strategy=%s; candidates=%d; eligible=%d", d.Strategy, len(d.Candidates), d.Eligible)
	for _, c := range d.CutCounts() {
		fmt.Fprintf(&b, "; %s=%d", c.Cut, c.Count)
	}
	return b.String()
}

package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"evenkeel/internal/llm"
)

const (
	// bodyPause is how long a body may take to begin, how long it may pause, and for how long it may come more
	// slowly than bodyRate.
	bodyPause = 30 * time.Second
	// bodyRate is what a body must bring on average, in bytes per second: less than any uplink in use.
	bodyRate = 1 << 10
	// bodyRateTight is that for bodies above smallBody while much of the memory for bodies is taken.
	bodyRateTight = 64 << 10
	// bodyStep is how far the connection's deadline may be behind, so that it is not set for each piece.
	bodyStep = time.Second
)

// codeBodyMemory is the code of a request that is turned away for want of memory for its body.
const codeBodyMemory = "evenkeel_body_memory"

// requestBody is a request's body, read whole, so that it can be sent again and so that upstream's early answer
// cannot race with the reading of it. The zero value is an empty one. Not safe for concurrent use.
type requestBody struct {
	buf    *buffer // nil: nothing is held
	n      int     // bytes of buf that are body
	memory *bodyMemory
	bound  int64
	beyond [1]byte // where what follows the last byte would be read to
}

// bytes returns the body: nil if there is none, or none any more. The bytes must not be used after release.
func (b *requestBody) bytes() []byte {
	if b.buf == nil || b.n == 0 {
		return nil
	}
	return b.buf.room[:b.n:b.n]
}

// release gives the memory back; doing it again does nothing. Nobody may read the bytes from here on, upstream's
// writers neither: they are overwritten with another request's.
func (b *requestBody) release() {
	if b.buf != nil {
		b.memory.give(b.buf)
		b.buf = nil
	}
}

// read reads the body of r. What it takes meanwhile is b's also if it fails, until release.
func (b *requestBody) read(w http.ResponseWriter, r *http.Request, m *bodyMemory, g *Generation) *llm.Error {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if r.ContentLength > g.MaxBody {
		return tooLarge(g.MaxBody)
	}
	for _, encoding := range r.Header["Content-Encoding"] {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			unwanted(w, r)
			return &llm.Error{Status: http.StatusUnsupportedMediaType, Type: "invalid_request_error", Code: "evenkeel_encoded_body",
				Message: "Send the body without Content-Encoding: it must be read to be routed."}
		}
	}
	b.memory, b.bound = m, g.bodyMemory()
	most, announced := g.MaxBody, r.ContentLength > 0
	if announced {
		most = r.ContentLength
	}
	came := 0 // with the head
	if body, ok := r.Body.(interface{ Buffered() int }); ok {
		came = body.Buffered()
	}
	var pace pace
	for {
		room := b.beyond[:]
		if have := int64(b.n); have < most {
			if !b.grow(nextSize(b.held(), max(have, int64(came)), most, announced)) {
				return noMemory(b.bound)
			}
			room = b.buf.room[have:min(b.held(), most)]
		}
		if int64(came) < most { // it may have to wait
			pace.keep(w, b.rate())
		}
		n, err := r.Body.Read(room)
		if n > 0 && int64(b.n) == most {
			return tooLarge(g.MaxBody)
		}
		b.n += n
		pace.came(n)
		if err == io.EOF {
			pace.over(w)
			_ = r.Body.Close() // saves net/http from looking for more of it
			return nil
		}
		if err != nil {
			return bodyError(err)
		}
	}
}

// held returns the capacity that is reserved, in bytes.
func (b *requestBody) held() int64 {
	if b.buf == nil {
		return 0
	}
	return int64(len(b.buf.room))
}

// grow sees to a buffer of at least size bytes and reports whether there is memory for it.
func (b *requestBody) grow(size int64) bool {
	if size <= b.held() {
		return true
	}
	next := b.memory.take(size, b.held(), b.bound)
	if next == nil {
		return false
	}
	copy(next.room, b.bytes())
	b.release()
	b.buf = next
	return true
}

// rate returns what the body must bring from here on, in bytes per second.
func (b *requestBody) rate() int64 {
	if b.held() > smallBody && b.memory.tight(b.bound) {
		return bodyRateTight
	}
	return bodyRate
}

// pace keeps the connection's read deadline at the moment from which the body is too slow. That is bodyPause after
// the start; each byte that comes puts it off by the time that a byte may take, up to bodyPause from now. The
// average may thus be below the rate for bodyPause at most, and a drip is no progress.
type pace struct {
	deadline time.Time
	set      time.Time // what the connection knows of it, up to bodyStep behind
	pieces   int       // bytes that the deadline does not know of
}

// came notes n bytes.
func (p *pace) came(n int) { p.pieces += n }

// keep sets the deadline before a read.
func (p *pace) keep(w http.ResponseWriter, rate int64) {
	now := time.Now()
	latest := now.Add(bodyPause)
	if p.deadline.IsZero() {
		p.deadline = latest
	}
	p.deadline = p.deadline.Add(time.Duration(p.pieces) * time.Second / time.Duration(rate))
	if p.deadline.After(latest) {
		p.deadline = latest
	}
	p.pieces = 0
	if p.deadline.Sub(p.set) > bodyStep {
		p.set = p.deadline
		_ = http.NewResponseController(w).SetReadDeadline(p.deadline) // not every ResponseWriter can; then nothing bounds it
	}
}

// over lifts the deadline: net/http watches for a client that leaves by reading on.
func (p *pace) over(w http.ResponseWriter) {
	if p.set.IsZero() {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as above
}

func tooLarge(limit int64) *llm.Error {
	return &llm.Error{Status: http.StatusRequestEntityTooLarge, Code: "evenkeel_body_too_large",
		Message: fmt.Sprintf("The request's body is larger than %d bytes (the operator's max_body).", limit)}
}

func noMemory(bound int64) *llm.Error {
	return &llm.Error{Status: http.StatusServiceUnavailable, Code: codeBodyMemory,
		Message: fmt.Sprintf("The bodies of the requests that run leave no room for this one: together they may take %d bytes (the operator's body_memory). Send it again in a moment.", bound)}
}

func bodyError(err error) *llm.Error {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return &llm.Error{Status: http.StatusRequestTimeout, Type: "invalid_request_error", Code: "evenkeel_body_timeout",
			Message: fmt.Sprintf("The request's body came too slowly: it made no progress for %v, or came at less than %d bytes per second for longer.", bodyPause, bodyRate)}
	}
	return &llm.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "evenkeel_body_broken",
		Message: "The request's body ended early or is not framed as HTTP demands."}
}

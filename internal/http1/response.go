package http1

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// outSize is how much of an answer is gathered before it is written.
	outSize = 8 << 10
	// copied is up to which size an answer is gathered whose length is not known, so that it can be told.
	copied = 4 << 10
	// gathered is up to which size a piece is gathered; copying a larger one costs more than writing it for itself.
	gathered = 32 << 10
)

// outs are buffers for answers. An answer has one only while there is something in it.
var outs = sync.Pool{New: func() any { b := make([]byte, 0, outSize+copied); return &b }}

// framing is how an answer's end is told.
type framing uint8

const (
	undecided framing = iota // by its length, if it ends before anything must be sent
	counted                  // by Content-Length
	chunked
	none // it has no body
)

// response is what a handler answers to. For one goroutine at a time, as all http.ResponseWriters.
type response struct {
	conn   *conn
	header http.Header

	method   string
	closes   bool // the connection ends with the answer
	status   int  // 0 = the head was not decided on
	framing  framing
	left     int64 // counted: bytes to come; undecided: those that a HEAD does not send
	out      *[]byte
	headEnd  int  // of out: undecided: where the framing belongs
	drained  bool // what was left of the request's body was read
	deadline bool // one for writing was set
	err      error
}

func (w *response) reset(method string, closes bool) {
	clear(w.header)
	*w = response{conn: w.conn, header: w.header, method: method, closes: closes}
}

// Header implements http.ResponseWriter. It is heeded when the head is decided on, and not after.
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Interim answers are not sent.
func (w *response) WriteHeader(status int) {
	if w.status != 0 || status < 200 {
		return
	}
	w.status = status
	w.drained = w.conn.body.discard()
	w.closes = w.closes || !w.drained || w.conn.server.ending() || hasClose(w.header["Connection"])
	b := w.room()
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	if text := http.StatusText(status); text != "" {
		b = append(b, text...)
	} else { // net/http's words
		b = append(b, "status code "...)
		b = strconv.AppendInt(b, int64(status), 10)
	}
	b = append(b, "\r\n"...)
	for name, values := range w.header {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection", "Trailer":
			continue // the framing is ours
		}
		for _, v := range values {
			if fieldValue(v) && all(name, &tokenByte) {
				b = append(b, name...)
				b = append(b, ": "...)
				b = append(b, v...)
				b = append(b, "\r\n"...)
			}
		}
	}
	if w.header["Date"] == nil {
		b = append(b, "Date: "...)
		b = append(b, date()...)
		b = append(b, "\r\n"...)
	}
	if w.closes {
		b = append(b, "Connection: close\r\n"...)
	}
	*w.out = b
	w.frame()
}

// frame writes what the header says of the body's end, if it does.
func (w *response) frame() {
	length, err := int64(-1), error(nil)
	if v := w.header["Content-Length"]; len(v) == 1 {
		if length, err = strconv.ParseInt(v[0], 10, 64); err != nil || length < 0 {
			length = -1
		}
	}
	b := *w.out
	switch {
	case w.status == http.StatusNoContent:
		w.framing = none
		b = append(b, "\r\n"...)
	case w.status == http.StatusNotModified || w.method == http.MethodHead && length >= 0:
		w.framing = none
		b = appendLength(b, length)
	case length >= 0:
		w.framing, w.left = counted, length
		b = appendLength(b, length)
	default:
		w.headEnd = len(b)
	}
	*w.out = b
}

func appendLength(b []byte, length int64) []byte {
	if length >= 0 {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, length, 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...)
}

func fieldValue(v string) bool {
	for i := range len(v) {
		if b := v[i]; b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

func hasClose(values []string) bool {
	return len(values) > 0 && values[0] == "close"
}

// room returns the buffer, which is taken if there is none.
func (w *response) room() []byte {
	if w.out == nil {
		w.out = outs.Get().(*[]byte)
		*w.out = (*w.out)[:0]
	}
	return *w.out
}

// drop gives the buffer back with what is in it.
func (w *response) drop() {
	if w.out != nil {
		if cap(*w.out) <= 2*gathered {
			outs.Put(w.out)
		}
		w.out = nil
	}
}

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch w.framing {
	case none:
		if w.method == http.MethodHead {
			return len(p), nil
		}
		return 0, http.ErrBodyNotAllowed
	case counted:
		if int64(len(p)) > w.left {
			return 0, http.ErrContentLength
		}
		w.left -= int64(len(p))
	case undecided:
		if w.method == http.MethodHead {
			w.left += int64(len(p)) // only counted
			return len(p), nil
		}
		if w.err == nil && len(w.room())-w.headEnd+len(p) <= copied {
			*w.out = append(*w.out, p...)
			return len(p), nil
		}
		w.chunk()
	}
	if w.err != nil || len(p) == 0 {
		return 0, w.err
	}
	w.put(p)
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// put gathers or writes a piece of the body, as a chunk of its own where the answer is chunked.
func (w *response) put(p []byte) {
	b := w.room()
	if w.framing == chunked {
		b = strconv.AppendUint(b, uint64(len(p)), 16)
		b = append(b, "\r\n"...)
	}
	end := ""
	if w.framing == chunked {
		end = "\r\n"
	}
	if len(p) > gathered {
		*w.out = b
		if w.send(); w.err == nil {
			_, w.err = w.conn.net.Write(p)
		}
		*w.out = append(*w.out, end...)
		return
	}
	*w.out = append(append(b, p...), end...)
	if len(*w.out) >= outSize {
		w.send()
	}
}

// chunk decides for chunks: what was gathered is the first.
func (w *response) chunk() {
	b := w.room()
	if w.method == http.MethodHead {
		w.framing = none
		*w.out = append(b, "\r\n"...)
		return
	}
	w.framing = chunked
	first := append([]byte(nil), b[w.headEnd:]...)
	*w.out = append(b[:w.headEnd], "Transfer-Encoding: chunked\r\n\r\n"...)
	if len(first) > 0 {
		w.put(first)
	}
}

// send writes what was gathered.
func (w *response) send() {
	if w.out == nil || len(*w.out) == 0 {
		return
	}
	if w.err == nil {
		_, w.err = w.conn.net.Write(*w.out)
	}
	*w.out = (*w.out)[:0]
}

// FlushError is for http.ResponseController.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.framing == undecided {
		w.chunk()
	}
	w.send()
	w.drop()
	return w.err
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() } // who wants to know asks FlushError

// SetReadDeadline is for http.ResponseController.
func (w *response) SetReadDeadline(t time.Time) error { return w.conn.net.SetReadDeadline(t) }

// SetWriteDeadline is for http.ResponseController.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.deadline = true
	return w.conn.net.SetWriteDeadline(t)
}

// finish ends the answer and reports whether another may follow on the connection.
func (w *response) finish() (keep bool) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch w.framing {
	case undecided:
		b := w.room()
		length := int64(len(b)-w.headEnd) + w.left
		if w.method == http.MethodHead && (length == 0 || length > copied) {
			length = -1 // it may be that the handler spared itself the rest
		}
		var line [48]byte
		head := appendLength(line[:0], length)
		b = append(b, head...)
		copy(b[w.headEnd+len(head):], b[w.headEnd:])
		copy(b[w.headEnd:], head)
		*w.out = b
	case chunked:
		*w.out = append(w.room(), "0\r\n\r\n"...)
	case counted:
		if w.left > 0 {
			w.closes = true // the client sees that it is cut
		}
	}
	w.send()
	w.drop()
	return w.err == nil && !w.closes
}

// stamp is the value of the Date header for one second.
type stamp struct {
	second int64
	text   string
}

var lastStamp atomic.Pointer[stamp]

// date returns the Date header's value.
func date() string {
	now := time.Now()
	if s := lastStamp.Load(); s != nil && s.second == now.Unix() {
		return s.text
	}
	s := &stamp{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastStamp.Store(s)
	return s.text
}

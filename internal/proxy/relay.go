package proxy

import (
	"net/http"
	"strconv"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
)

// This file is the half of reply that passes an answer on to the client.

// front is what the client has got. Guarded by call.mu.
type front struct {
	headSent   bool   // the client has a head
	headType   string // its content type
	minimal    bool   // it was forced out by a comment, without upstream's headers
	status     int
	sent       int64
	patient    time.Time // when the client's write deadline was set last
	abort      bool      // the connection must be broken: the client could not tell that the answer is cut
	clientGone bool
}

// close gives the client's connection back.
func (f *front) close(c *call) {
	if !f.patient.IsZero() {
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Time{}) // the connection's next answer has its own
	}
}

// release sends what may go: whole lines of a committed stream, everything of other committed answers, and
// before that only comments, of the main attempt. Callers hold mu.
func (r *reply) release() {
	if !r.committed {
		if other := r.c.rival(r); r.lane == exchange.Hedge || other != nil && other.committed {
			return
		}
		if n := r.events.Passable() - r.passed; r.shape == events && !r.src.raw() && n > 0 {
			r.writeMinimalHead()
			r.write(r.buf[r.start : r.start+n])
			r.start += n
			r.passed += n
			r.flush()
		}
		return
	}
	upTo := len(r.buf)
	if (r.shape == events || r.shape == lines) && !r.src.raw() && !r.eof {
		if tail := r.events.Tail(); tail <= longestTail {
			upTo = max(upTo-tail, r.start)
		}
	}
	if upTo == r.start {
		return
	}
	r.writeHead(-1)
	if r.shape == whole {
		r.write(r.buf[r.start:upTo])
		r.start = upTo
		return
	}
	before := time.Now()
	r.write(r.buf[r.start:upTo])
	r.start = upTo
	r.flush()
	if took := time.Since(before); took > slowWrite {
		r.c.x.Blocked(took)
	}
}

// finish passes the rest of a committed answer on; the exchange is over, the lease returned.
func (r *reply) finish() {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.res == nil || !r.committed {
		return
	}
	if r.shape == whole {
		r.writeHead(len(r.buf) - r.start)
		r.write(r.buf[r.start:])
		return
	}
	r.writeHead(-1)
	if r.eof {
		r.write(r.buf[r.start:])
		if r.shape == events && !r.src.raw() && r.events.Err() != nil && r.events.Open() {
			r.write([]byte("\n\n")) // most who read events pass over one that the stream's end cuts off
		}
		return
	}
	// The last event came; upstream may still end it with a blank line, and its connection can be used again
	// once it has closed the stream.
	r.write(r.buf[r.start:])
	r.start = len(r.buf)
	r.flush()
	r.trail()
}

// trail passes on what follows the last event, for a short time. After an error nothing of worth follows, in no dialect:
// there it only waits for the end.
func (r *reply) trail() {
	over := make(chan struct{})
	limit := time.AfterFunc(grace, func() {
		defer close(over)
		r.stop.Cancel()
	})
	defer func() {
		if !limit.Stop() {
			<-over // what it cancels must not be another attempt
		}
	}()
	for !r.c.front.clientGone {
		room := r.room()
		forward, _, err := r.src.read(room)
		if r.events.Err() == nil {
			r.write(forward)
		}
		if err != nil {
			return
		}
		r.flush()
	}
}

// fail tells the client that there is no answer, or that the one it has is cut.
func (r *reply) fail(f *exchange.Failure) {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	e := llm.Error{Status: f.Status, Code: f.Code, Message: f.Message}
	if f.Code == codeUnknownModel {
		e.Param = "model"
	}
	if !r.c.front.headSent && !r.committed {
		retryHeaders(c.w.Header(), f)
		r.ourHeaders()
		r.c.front.status = f.Status
		writeError(c.w, c.api, &e)
		return
	}
	stream := r.shape == events && !r.src.raw() || r.c.front.minimal
	if !stream {
		if r.c.front.headSent {
			r.flush() // breaking the connection would drop what came before
		}
		r.c.front.abort = true
		return
	}
	r.writeHead(-1)
	if r.committed { // else nothing of the last attempt was sent
		e.Sequence = r.events.NextSequence()
	}
	if !f.Final {
		e.RetryAfter = int((max(bounded(f.RetryIn), 1000) + 999) / 1000)
	}
	r.write(e.Event(c.api, r.committed && r.events.Open()))
	r.flush()
}

// clientLeft reports that writing to the client failed.
func (r *reply) clientLeft() { r.c.report(exchange.Event{Kind: exchange.Gone}) }

func (r *reply) write(b []byte) {
	if len(b) == 0 || r.c.front.clientGone {
		return
	}
	r.patience(len(b))
	n, err := r.c.w.Write(b)
	r.c.front.sent += int64(n)
	r.c.front.clientGone = err != nil && r.c.r.Method != http.MethodHead
}

// clientPatience is Proxy.patience: a client that takes nothing for between five sixths of it and all of it is given up.
const clientPatience = 60 * time.Second

// patience bounds how long a client may keep a write waiting, and with it the deployment that it reads from.
// The deadline is moved seldom, so that a chunk does not pay for it, and not at all for what any socket takes, and
// clientConn bounds.
func (r *reply) patience(size int) {
	if r.shape == whole && size <= longestTail && r.c.r.ProtoMajor == 1 {
		return
	}
	if now := time.Now(); now.Sub(r.c.front.patient) > r.c.p.patience/6 {
		r.c.front.patient = now
		_ = http.NewResponseController(r.c.w).SetWriteDeadline(now.Add(r.c.p.patience)) // not every ResponseWriter can
	}
}

// boundLastWrite bounds what is written when the handler has returned, over HTTP/2: there a client keeps a write waiting by
// its stream's window, while its socket takes all.
func (p *Proxy) boundLastWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(p.patience)) // not every ResponseWriter can
}

func (r *reply) flush() {
	if !r.c.front.clientGone {
		r.c.front.clientGone = http.NewResponseController(r.c.w).Flush() != nil
	}
}

// writeMinimalHead sends a head that any attempt of the same content type can go on with.
func (r *reply) writeMinimalHead() {
	if r.c.front.headSent {
		return
	}
	h := r.c.w.Header()
	h["Content-Type"] = r.res.Header["Content-Type"]
	r.streamHeaders(h)
	r.c.front.minimal = true
	r.sendHead(http.StatusOK)
}

// writeHead sends the head of the committed answer; length −1 = not known beforehand.
func (r *reply) writeHead(length int) {
	if r.c.front.headSent {
		return
	}
	h := r.c.w.Header()
	responseHeader(h, r.res.Header)
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // keeps net/http from guessing one
	}
	if r.src.decoded() {
		h.Del("Content-Encoding")
	}
	switch {
	case r.c.r.Method == http.MethodHead || r.res.StatusCode == http.StatusNotModified:
		if v := r.res.Header["Content-Length"]; v != nil && !r.src.decoded() {
			h["Content-Length"] = v
		}
	case length >= 0 && int64(length) == r.res.ContentLength && len(r.res.Header["Content-Length"]) == 1 && !r.src.decoded():
		h["Content-Length"] = r.res.Header["Content-Length"]
	case length >= 0:
		r.c.set(h, "Content-Length", strconv.Itoa(length))
	case r.res.ContentLength >= 0 && !r.src.decoded() && r.shape != events: // a stream may have to end with an error event
		r.c.set(h, "Content-Length", strconv.FormatInt(r.res.ContentLength, 10))
	}
	if r.shape == events {
		r.streamHeaders(h)
	}
	if r.wait > 0 && h["Retry-After"] == nil || r.wait > longestWait {
		h.Del("X-Ms-Retry-After-Ms")
		retryIn(h, r.wait.Milliseconds())
	}
	requestID(h, r.c.api)
	r.ourHeaders()
	r.sendHead(r.res.StatusCode)
}

func (r *reply) sendHead(status int) {
	r.c.front.headSent, r.c.front.status = true, status
	r.c.front.headType = mediaType(r.res)
	r.c.w.WriteHeader(status)
}

// Values of headers, shared and never changed.
var noCache, noBuffering = []string{"no-cache"}, []string{"no"}

// streamHeaders keeps caches and buffering proxies from holding a stream back.
func (r *reply) streamHeaders(h http.Header) {
	if first(h, "Cache-Control") == "" {
		h["Cache-Control"] = noCache
	}
	if first(h, "X-Accel-Buffering") == "" {
		h["X-Accel-Buffering"] = noBuffering
	}
}

// set sets a header of the answer. net/http copies the header when it takes the head.
func (c *call) set(h http.Header, name, value string) {
	if c.nvalue == len(c.values) {
		h[name] = []string{value}
		return
	}
	c.values[c.nvalue] = value
	c.nvalue++
	h[name] = c.values[c.nvalue-1 : c.nvalue : c.nvalue]
}

// ourHeaders says who answered.
func (r *reply) ourHeaders() {
	h, rec := r.c.w.Header(), r.c.x.Record()
	r.c.set(h, headerDepth, strconv.Itoa(rec.Depth))
	last := rec.Last()
	if last == nil {
		return
	}
	if last.Model != "" { // a request may name none
		r.c.set(h, headerModel, last.Model)
	}
	expose := r.c.g.Expose
	if expose.Deployment {
		r.c.set(h, headerDeployment, last.Deployment)
	}
	if expose.Attempts {
		r.c.set(h, headerAttempts, strconv.Itoa(len(rec.Attempts)))
	}
	if expose.Decision {
		r.c.set(h, headerDecision, decisionLine(last.Decision))
	}
}

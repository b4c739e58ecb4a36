package proxy

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/upstream"
)

const (
	// holdWhole is the largest answer that is read whole before any of it goes to the client.
	holdWhole = 256 << 10
	// longestTail is how much of an unfinished line waits for its end.
	longestTail = 16 << 10
	// readSize is how much room a read from upstream gets at least.
	readSize = 16 << 10
	// slowWrite is from when on a write is held to wait for the client.
	slowWrite = time.Millisecond
	// grace is how long upstream may keep a stream open after its last event.
	grace = time.Second
)

// meters are what counts an answer, used again for others.
type meters struct {
	events llm.Stream
	body   llm.Body
}

// piece is what an answer is read into first. A reply has one only while there is something in it.
type piece [readSize]byte

var (
	allMeters = sync.Pool{New: func() any { return new(meters) }}
	pieces    = sync.Pool{New: func() any { return new(piece) }}
)

// reply is what upstream answers to an attempt and how far it has been passed on. The goroutine that makes the attempt
// reads from upstream without call.mu; everything else happens under it, since others pass on what is held too.
type reply struct {
	c     *call
	lane  exchange.Lane
	stop  upstream.Stop
	out   upstream.Request
	ended exchange.End
	done  chan struct{} // of a hedge: closed when its goroutine ends
	intake
}

// intake is the part of a reply that begins new with each request.
type intake struct {
	running bool // an attempt is
	stopped bool // the running attempt, or the one about to begin, was cancelled

	// Of the current attempt.
	res       *http.Response
	at        time.Time     // when its head came
	wait      time.Duration // what an error of it tells the client to wait, unless it says so itself; 0 = nothing
	lease     *route.Lease
	endpoint  *upstream.Endpoint
	shape     shape
	src       source
	buf       []byte // what was received; buf[start:] has not been sent
	start     int
	total     int // bytes received
	passed    int // bytes sent before commit: comments
	committed bool
	eof       bool   // upstream's last byte was read
	piece     *piece // nil while buf has no room at all
	meters    *meters
	events    *llm.Stream // in meters
	body      *llm.Body   // in meters
	counted   int         // content events reported to the exchange
	reported  bool        // the first content was
	withheld  bool        // an error event is not the client's, and was dropped
}

// began takes the head of a response.
func (r *reply) began(res *http.Response) {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	r.res, r.at, r.wait = res, time.Now(), 0
	r.shape = shapeOf(res, c.api, c.req.Stream)
	r.src = newSource(res, c.r.Header)
	if r.meters == nil {
		r.meters = allMeters.Get().(*meters)
		r.events, r.body = &r.meters.events, &r.meters.body
	}
	r.buf, r.start, r.total, r.passed = r.buf[:0], 0, 0, 0
	r.committed, r.eof, r.counted, r.reported, r.withheld = false, false, 0, false, false
	if r.shape == events {
		c.x.Streamed() // also where the request did not say so
	}
	switch r.shape {
	case events:
		r.events.Reset(c.api, llm.SSE)
	case lines:
		r.events.Reset(c.api, llm.NDJSON)
	default:
		r.body.Reset(c.api)
	}
}

// cancel stops the attempt that runs, or is about to begin. Callers hold mu.
func (r *reply) cancel() {
	r.stopped = true
	if r.running {
		r.stop.Cancel()
	}
}

// discard drops what an earlier attempt left. Callers hold mu.
func (r *reply) discard() {
	if r.res != nil {
		r.stop.Cancel()
		_ = r.res.Body.Close() // its answer is not wanted any more
		upstream.Recycle(r.res)
	}
	r.res = nil
}

// close ends the last attempt's response. Callers hold mu.
func (r *reply) close() {
	r.discard()
	r.dropBuffer()
	if r.meters != nil {
		allMeters.Put(r.meters)
		r.meters, r.events, r.body = nil, nil, nil
	}
}

// receive reads the answer until it has ended or failed and returns how. Content reaches the client on the
// way, once the exchange commits to it.
func (r *reply) receive() *exchange.End {
	c := r.c
	c.mu.Lock()
	fits := r.fits()
	c.mu.Unlock()
	if !fits {
		return r.unfit()
	}
	for {
		r.await()
		c.mu.Lock()
		room := r.room()
		c.mu.Unlock()
		forward, plain, err := r.src.read(room)
		end, gone := r.received(forward, plain, err)
		if end != nil {
			return end
		}
		if gone {
			r.clientLeft()
		}
	}
}

// received takes what was read and passes on what may go. It returns the attempt's end, if this is it, and
// whether the client turned out to be gone.
func (r *reply) received(forward, plain []byte, err error) (end *exchange.End, gone bool) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.src.raw() {
		r.buf = append(r.buf, forward...)
	} else {
		r.buf = r.buf[:len(r.buf)+len(forward)]
	}
	if r.total < longestStart && r.shape != events && !r.committed && r.c.req.Stream && r.c.api.Streams && r.res.StatusCode == http.StatusOK {
		start := plain
		if !r.src.raw() { // a first piece may be a byte or two
			start = r.buf
		}
		if looksLikeEvents(start) {
			r.shape, plain = events, start
			r.events.Reset(r.c.api, llm.SSE)
		}
	}
	r.total += len(forward)
	if !r.fits() {
		return r.unfit(), r.c.front.clientGone
	}
	end = r.took(plain, err)
	if end == nil || r.committed && end.Broken {
		r.release()
	}
	if c := r.c; r.committed && c.body != nil && upstream.Sent(r.src.body) && c.unrivalled(r) { // nobody needs it again
		c.held.release()
		c.body = nil
	}
	return end, r.c.front.clientGone
}

// fits reports whether the answer can go to the client, which may have a head already. Callers hold mu.
func (r *reply) fits() bool {
	f := &r.c.front
	return !f.headSent || r.committed || r.res.StatusCode == http.StatusOK && mediaType(r.res) == f.headType && !r.src.raw()
}

// unfit is the end of an attempt whose answer cannot follow the head that the client already has.
func (r *reply) unfit() *exchange.End {
	class, o := r.judge(nil)
	if class == llm.None {
		class = llm.Malformed // here, not in itself: nobody is to blame
		o.Verdict, o.Class, o.Detail = route.NotDeploymentFault, class.String(), "another content type or encoding than the attempt before"
	}
	r.ended = exchange.End{Class: class, Outcome: o, Sent: true}
	return &r.ended
}

// await waits for upstream, without a buffer if there is nothing in it: a stream that is open for minutes brings
// something every now and then.
func (r *reply) await() {
	if r.src.zipped || upstream.Ready(r.src.body) {
		return
	}
	r.c.mu.Lock()
	empty := r.start == len(r.buf)
	if empty {
		r.dropBuffer()
	}
	r.c.mu.Unlock()
	if empty {
		upstream.Await(r.src.body)
	}
}

// dropBuffer gives the buffer back, with what is in it. Callers hold mu.
func (r *reply) dropBuffer() {
	if r.piece != nil {
		pieces.Put(r.piece)
	}
	r.piece, r.buf, r.start = nil, nil, 0
}

// room returns where to read to. What was sent is dropped first.
func (r *reply) room() []byte {
	if r.start > 0 {
		r.buf = r.buf[:copy(r.buf, r.buf[r.start:])]
		r.start = 0
	}
	if r.buf == nil {
		r.piece = pieces.Get().(*piece)
		r.buf = r.piece[:0]
	}
	if cap(r.buf)-len(r.buf) < readSize/4 {
		grown := make([]byte, len(r.buf), 2*cap(r.buf))
		copy(grown, r.buf)
		r.buf = grown
	}
	return r.buf[len(r.buf):cap(r.buf)]
}

// took looks at what was read and reports it to the exchange. It returns the attempt's end if this is it.
func (r *reply) took(plain []byte, err error) *exchange.End {
	r.eof = err == io.EOF
	switch r.shape {
	case events, lines:
		return r.tookEvents(plain, err)
	}
	return r.tookBody(plain, err)
}

func (r *reply) tookEvents(plain []byte, err error) *exchange.End {
	c, s := r.c, r.events
	s.Feed(plain)
	if (r.eof || s.Done() && !s.Terminal()) && r.cutShort() {
		end := r.end(false, true)
		end.Class = llm.Truncated
		return r.broke(end, errTruncated)
	}
	r.withhold(plain)
	now := time.Now()
	switch {
	case s.Err() != nil && !r.committed && !s.Content():
		return r.end(true, false) // may still move; what came is held
	case s.Content() && !r.reported:
		r.reported = true
		r.tell(exchange.Content)
	case s.Release() || r.shape == lines && len(plain) > 0 || r.src.raw() && r.total > 0:
		r.tell(exchange.Release)
	case !r.committed && r.total > s.Passable()+s.Tail():
		r.tell(exchange.Held)
	}
	if n := s.ContentEvents(); n > r.counted && r.committed {
		r.counted = n
		c.x.Progress(now, s.OutputEstimate())
	}
	switch {
	case s.Done() || r.committed && s.Err() != nil:
		return r.end(true, r.withheld || s.Unheard())
	case err == nil:
		return nil
	case !r.eof && r.stop.Cancelled() && r.complete(): // some servers neither say that it ends nor end it
		if !r.src.raw() {
			r.buf = r.buf[:max(len(r.buf)-s.Tail(), r.start)]
		}
	case !r.eof:
		end := r.end(false, true)
		end.Class = brokenBody(err)
		return r.broke(end, err)
	}
	return r.end(true, false)
}

// withhold drops an error event that is not the client's, with what follows it, before anything else is done with what was
// read.
func (r *reply) withhold(plain []byte) {
	failed := r.events.Err()
	if failed == nil || r.withheld {
		return
	}
	text := r.buf
	if r.src.raw() {
		text = plain
	}
	if class, _ := r.judge(failed); !r.private(class, text) {
		if r.events.Unheard() && r.events.Done() && class.Retryable() { // the client would hear of the end alone
			r.dropFrom(r.events.DoneAt())
		}
		return
	}
	r.withheld, r.eof = true, true // nothing that is left waits for the end of its line
	r.dropFrom(r.events.ErrAt())
}

// dropFrom drops what was received from a byte on that begins an event, as far as it was not sent.
func (r *reply) dropFrom(at int) {
	from := len(r.buf) - (r.total - at)
	switch {
	case r.src.raw():
		r.buf = r.buf[:r.start]
	case from >= r.start:
		r.buf = r.buf[:from]
	case r.shape == events: // it has begun at the client
		r.buf = append(r.buf[:r.start], "\n\n"...)
	default:
		r.buf = r.buf[:r.start]
	}
}

// private reports whether an error speaks of our credential or its account, or holds it: it is not the client's.
func (r *reply) private(class llm.Class, text []byte) bool {
	return class == llm.Auth || class == llm.Exhausted || r.endpoint.Leaks(r.res.Header, text)
}

// cutShort ends the stream's meter and reports whether the stream ended without its last event, or with nothing before
// that, though HTTP calls it whole. What came of an unfinished line is dropped then: it is half an event.
func (r *reply) cutShort() bool {
	s := r.events
	tail, content, released := s.Tail(), s.Content(), s.Release()
	s.End()
	if !r.c.api.Streams || r.complete() || s.Err() != nil || r.src.blind {
		return false
	}
	switch {
	case s.Done(): // nothing came before it: a client would take it for the end of an answer
		r.dropFrom(s.DoneAt())
	case !r.src.raw():
		r.buf = r.buf[:max(len(r.buf)-tail, r.start)]
	}
	switch { // what came in the same piece as the end
	case content && !r.reported:
		r.reported = true
		r.tell(exchange.Content)
	case released:
		r.tell(exchange.Release)
	}
	return true
}

// complete reports whether every answer of a stream has come to its end.
func (r *reply) complete() bool {
	s := r.events
	return s.Terminal() && (s.Done() || s.Finished() == 0 || s.Finished() >= min(r.c.req.N, 64))
}

func (r *reply) tookBody(plain []byte, err error) *exchange.End {
	r.body.Feed(plain)
	bit := r.shape == bytesRaw && len(plain) > 0
	if !r.committed && (bit || len(r.buf) > holdWhole) {
		if class, _ := r.judge(nil); class.Retryable() {
			return r.end(false, false) // an error too large to hold is not worth passing on
		}
		r.tell(exchange.Release)
	}
	switch {
	case err == nil:
		return nil
	case !r.eof:
		end := r.end(false, true)
		end.Class = brokenBody(err)
		return r.broke(end, err)
	case r.body.Open() && r.res.StatusCode < 300 && isJSON(r.res) && !r.src.blind:
		end := r.end(false, true)
		end.Class = llm.Truncated
		return r.broke(end, errHalfJSON)
	}
	end := r.end(true, false)
	if end.Class == llm.None && r.empty() {
		end.Class = llm.Truncated // it is whole, and passed on if nobody has a better one
		end.Held = !r.endpoint.Leaks(r.res.Header, r.src.readable(r.buf))
		return r.broke(end, errNoAnswer)
	}
	return end
}

// empty reports whether a good status came with nothing that a model has said: no body, a page for people (of a proxy that
// wants a login, say), or a list of choices without any. An object of another kind may be what some server answers here.
func (r *reply) empty() bool {
	if !r.c.generates() || !r.c.api.Streams || r.shape != whole {
		return false
	}
	return r.total == 0 || mediaType(r.res) == "text/html" || r.body.Empty() && !r.src.blind
}

// end sums an attempt up.
func (r *reply) end(held, broken bool) *exchange.End {
	var failed *llm.UpstreamError
	var usage llm.Usage
	e := &r.ended
	*e = exchange.End{Sent: true, Held: held, Broken: broken}
	streamed := r.shape == events || r.shape == lines
	if streamed {
		failed, usage = r.events.Err(), r.events.Usage()
	} else {
		usage = r.body.Usage()
		if r.c.generates() || r.res.StatusCode >= 300 {
			failed = r.body.Err()
		}
		if failed == nil && (r.c.generates() && r.c.api.Streams || r.res.StatusCode >= 300) {
			failed = r.body.Flat()
		}
	}
	e.Class, e.Outcome = r.judge(failed)
	// SDKs do not repeat what came with this header, whatever its status. They know one server: it is about this one, whose
	// account may be empty or whose engine may fail on this very prompt. Another one may take the request.
	e.Once = e.Class.Retryable() && strings.EqualFold(first(r.res.Header, "X-Should-Retry"), "false")
	if held && (r.res.StatusCode >= 300 || failed != nil) {
		unheard := streamed && r.events.Unheard() && e.Class.Retryable()
		e.Held = !r.withheld && !unheard && !r.private(e.Class, r.src.readable(r.buf))
	}
	o := &e.Outcome
	o.Reported = usage.Reported
	o.InputTokens, o.CachedTokens, o.OutputTokens, o.ReasoningTokens = usage.Input, usage.CachedInput, usage.Output, usage.Reasoning
	id := r.body.ID()
	if streamed {
		o.ServedModel, o.Fingerprint = r.events.Model(), r.events.Fingerprint()
		id = r.events.ID()
	} else {
		o.ServedModel, o.Fingerprint = r.body.Model(), r.body.Fingerprint()
	}
	if r.c.api.Name == "responses" && len(id) > 0 {
		o.Answer = llm.Session(r.c.p.Prefixes, r.c.facts.Tenant, id)
	}
	if !o.Reported && (broken || o.Verdict == route.Success || streamed && r.events.Content()) {
		o.InputTokens, o.OutputTokens = r.lease.Prompt(), r.body.OutputEstimate()
		if streamed {
			o.OutputTokens = r.events.OutputEstimate()
		}
	}
	if estimate := r.events.OutputEstimate(); streamed && o.Reported && !r.events.Terminal() && estimate > o.OutputTokens {
		o.OutputTokens, o.Reported = estimate, false // what was reported so far is of the beginning
	}
	return e
}

// broke makes an end that of an answer that stopped before its end.
func (r *reply) broke(e *exchange.End, err error) *exchange.End {
	o := &e.Outcome
	o.Verdict, o.Class, o.Detail = route.DeploymentFault, e.Class.String(), detailOf(err)
	if e.Class == llm.Reset {
		o.Fault = route.BrokeOff
	}
	return e
}

// tell reports what the answer has come to and does what the exchange says. Callers hold mu.
func (r *reply) tell(kind exchange.EventKind) {
	for _, a := range r.c.tellLocked(exchange.Event{Kind: kind, Lane: r.lane}) {
		r.c.performLocked(a)
	}
}

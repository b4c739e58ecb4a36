package llm

import "math/bits"

// Framing is how a streamed body is cut into events.
type Framing uint8

// The framings.
const (
	SSE    Framing = iota // server-sent events, by the rules of the WHATWG HTML standard §9.2
	NDJSON                // one JSON document per line, ended by LF
)

// Bounds of what a Stream keeps and of how long the start of an answer is held back.
const (
	maxEvent      = 64 << 10  // data of one event, bytes; a larger one is read piece by piece and counts as content
	maxHeldEvents = 64        // held events that end the hold
	maxHeldBytes  = 256 << 10 // held bytes that end the hold
	maxEventName  = 64        // bytes kept of an event's name; the longest in use has 50
)

// Stream is a meter that rides on one streamed answer. It never changes a byte; it says what may be passed on and what it
// saw. Its state after the same bytes is the same however they were cut into pieces. It copies what it must keep: the
// unfinished event, so some hundred bytes as a rule and about 200 KiB at most. Use by one goroutine at a time.
type Stream struct {
	api     API
	framing Framing

	// Where we are, in bytes since the start.
	total, passable, tail int
	holding               bool // a line was seen that may not pass before the commit: passable is final
	started               bool // the first line has ended, so that a byte order mark can no longer come
	afterCR               bool // a line was just ended by CR: an LF that follows belongs to it
	passedCR              bool // and that line was passable

	lines lines
	event event

	// What the events said.
	released, content        bool
	heldEvents               int
	contentEvents, textBytes int
	done, terminal           bool
	seenChoices, endChoices  uint64 // bit set by a choice's index: has begun, has a finish_reason
	err                      *UpstreamError
	errAt                    int  // where its event begins
	unheard                  bool // it came in a field of its own
	doneAt                   int  // where the event of done begins
	usage                    usageCounts
	model, fingerprint       string
	sequence                 int // sequence_number to come, responses API
	id                       []byte

	models, fingerprints recall
	last                 pattern // the last event, if it can be one
}

// verdict is what one event means.
type verdict struct {
	content  bool   // lies outside the dialect's start list
	tokens   bool   // carries output
	text     int    // bytes of output text
	terminal bool   // says that the answer is whole
	done     bool   // is the very last event
	begun    uint64 // choices seen, a bit by index
	ended    uint64 // choices with a finish_reason
	err      *UpstreamError

	outputs               int // pieces of output
	outputEnd, outputSize int // where the last one ends, and its bytes
}

// NewStream returns a meter for an answer of that API.
func NewStream(api API, f Framing) *Stream {
	s := &Stream{}
	s.Reset(api, f)
	return s
}

// Reset makes the meter new, keeping its buffers unless a large event has swollen them.
func (s *Stream) Reset(api API, f Framing) {
	line, data, capture := reuse(s.lines.buf), reuse(s.event.buf), reuse(s.event.probe.capture)
	*s = Stream{api: api, framing: f, models: s.models, fingerprints: s.fingerprints, id: s.id[:0], last: pattern{data: s.last.data[:0]}}
	s.lines.buf, s.event.buf, s.event.probe.capture = line, data, capture
}

// maxPooled is the largest buffer worth keeping from one stream for the next, in bytes.
const maxPooled = 16 << 10

func reuse(buf []byte) []byte {
	if cap(buf) > maxPooled {
		return nil
	}
	return buf[:0]
}

// Tail returns the number of bytes at the end of what was fed that belong to an unfinished line.
func (s *Stream) Tail() int { return s.tail }

// Passable returns the number of bytes from the start of the stream that may pass before the commit: comments, blank
// lines, id: and retry: lines, a byte order mark. It stops growing at the first line of an event, which is held because
// the event may be an error.
func (s *Stream) Passable() int { return s.passable }

// Open reports whether the last event or line fed is unfinished, so that an event of our own must close it first.
func (s *Stream) Open() bool { return s.event.open || s.tail > 0 }

// Content reports whether an event outside the dialect's start list was seen. A finish reason alone, a usage report,
// [DONE] and errors are not content.
func (s *Stream) Content() bool { return s.content }

// Release reports whether the hold has ended: by content, by a terminal marker (an empty answer is an answer), or because
// 64 events or 256 KiB are held. An error event before that keeps the hold for good: the attempt has failed.
func (s *Stream) Release() bool { return s.released }

// Err returns the first error event, or nil.
func (s *Stream) Err() *UpstreamError { return s.err }

// ErrAt returns the number of bytes that came before the event of Err.
func (s *Stream) ErrAt() int { return s.errAt }

// Unheard reports whether Err came in a field named error, as llama.cpp of before October 2025 sends it: who reads events
// passes over it.
func (s *Stream) Unheard() bool { return s.unheard }

// Terminal reports whether the answer is whole: every choice begun has its finish reason, or a final event was seen. A
// failed answer can be terminal too, so ask Err first.
func (s *Stream) Terminal() bool {
	return s.terminal || s.endChoices != 0 && s.seenChoices&^s.endChoices == 0
}

// Finished returns how many choices have their finish reason (of the first 64).
func (s *Stream) Finished() int { return bits.OnesCount64(s.endChoices) }

// Done reports whether the very last marker was seen, so that nothing more is expected. Without Terminal nothing came before it.
func (s *Stream) Done() bool { return s.done }

// DoneAt returns the number of bytes that came before the event of Done.
func (s *Stream) DoneAt() int { return s.doneAt }

// Usage returns the last numbers reported.
func (s *Stream) Usage() Usage { return s.usage.usage() }

// OutputEstimate returns the output so far in tokens, for a stream that reports no usage: one for each event with output,
// or by the text's bytes where events hold more text than one token has (speculative decoding, providers that batch).
func (s *Stream) OutputEstimate() int {
	if s.textBytes > longestToken*s.contentEvents {
		return estimateTokens(s.textBytes)
	}
	return s.contentEvents
}

// longestToken is the mean of bytes per event above which events hold several tokens each. Means over whole answers of
// one token per event lie between 3 and 7 bytes, whatever the script.
const longestToken = 10

// ContentEvents returns the number of events that carried output.
func (s *Stream) ContentEvents() int { return s.contentEvents }

// Model returns the first model name seen, as the engine spells it.
func (s *Stream) Model() string { return s.model }

// Fingerprint returns the first system_fingerprint seen.
func (s *Stream) Fingerprint() string { return s.fingerprint }

// ID returns the name of the answer as it is escaped: of the responses API, whose answers can be continued by it. Empty if it has none.
// It is valid until the next Reset.
func (s *Stream) ID() []byte { return s.id }

// NextSequence returns the sequence_number that the next event of a responses stream has.
func (s *Stream) NextSequence() int { return s.sequence }

// estimateTokens turns bytes of output into tokens, rounded up. Models write about 4.5 bytes a token in English prose; the
// estimate may be low for code and Chinese, where it is the events that count.
func estimateTokens(bytes int) int { return (bytes*2 + 8) / 9 }

// read finds out what an event means. data is not empty.
func (s *Stream) read(name, data []byte) verdict {
	if len(data) >= 6 && string(data[:6]) == "[DONE]" {
		s.last.end = 0
		if s.api.Name == "messages" || s.api.Name == "responses" { // they have an end of their own, after which some servers add it
			return verdict{done: s.terminal}
		}
		return verdict{terminal: s.content || s.endChoices != 0, done: true}
	}
	switch s.api.Name {
	case "messages":
		return s.readMessages(name, data)
	case "responses":
		return s.readResponses(name, data)
	}
	if len(name) > 0 {
		s.last.end = 0
		return s.readChat(name, data)
	}
	v, like := s.last.match(data)
	if !like {
		v = s.readChat(name, data)
		s.last.keep(data, v)
	}
	return v
}

// readBig does the same for an event that was too large to keep, from what was found in its pieces. That it is content
// was decided when it grew too large.
func (s *Stream) readBig(name []byte, f *found) verdict {
	s.usage = f.usage
	s.setModel(f.model.raw)
	s.setFingerprint(f.fingerprint.raw)
	s.setID(f.id.raw)
	if len(f.kind) > 0 {
		name = f.kind
	}
	v := s.kindVerdict(name)
	return verdict{terminal: v.terminal || f.finish || f.done, done: v.done || f.done, err: f.error(string(name) == "error")}
}

// kindVerdict judges an event by its type alone. Only the APIs that name their events have types.
func (s *Stream) kindVerdict(kind []byte) verdict {
	switch s.api.Name {
	case "messages":
		return messagesKind(kind)
	case "responses":
		return responsesKind(kind)
	}
	return verdict{content: true, tokens: true}
}

// apply takes an event's verdict into account.
func (s *Stream) apply(v verdict) {
	s.terminal = s.terminal || v.terminal
	if v.done && !s.done {
		s.done, s.doneAt = true, s.event.at
	}
	if v.err != nil {
		if s.err == nil {
			s.err, s.errAt, s.unheard = v.err, s.event.at, s.event.errorField
		}
	} else {
		s.content = s.content || v.content
		s.seenChoices |= v.begun
		s.endChoices |= v.ended
		if v.tokens {
			s.contentEvents++
			s.textBytes += v.text
		}
	}
	if !s.released {
		s.heldEvents++
	}
	s.settle()
}

// settle ends the hold if it is time.
func (s *Stream) settle() {
	if s.released || s.err != nil {
		return
	}
	s.released = s.content || s.Terminal() || s.heldEvents >= maxHeldEvents || s.total-s.passable >= maxHeldBytes
}

// setModel takes the inside of a JSON string, the first time only.
func (s *Stream) setModel(raw []byte) {
	if s.model == "" && len(raw) > 0 {
		s.model = s.models.of(raw)
	}
}

// setID takes the inside of a JSON string, the first time only.
func (s *Stream) setID(raw []byte) {
	if len(s.id) == 0 {
		s.id = append(s.id, raw...)
	}
}

func (s *Stream) setFingerprint(raw []byte) {
	if s.fingerprint == "" && len(raw) > 0 {
		s.fingerprint = s.fingerprints.of(raw)
	}
}

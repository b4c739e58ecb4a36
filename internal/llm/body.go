package llm

import "bytes"

// Body is the meter for an answer that is no event stream, of any size, fed in pieces cut anywhere. It reads the members
// usage, error, model and system_fingerprint at the top of a JSON object, wherever they stand, and keeps at most about
// 16 KiB. Its findings are whole once the body is; of a body cut off they may lack the last member. Use by one goroutine
// at a time.
type Body struct {
	api   API
	bytes int
	first byte // that is no blank; 0 = none came
	probe probe

	model, fingerprint recall
}

// NewBody returns a meter for an answer of that API.
func NewBody(api API) *Body {
	b := &Body{}
	b.Reset(api)
	return b
}

// recall makes strings of model names. It knows the last one: mostly the next is the same, and needs no copy.
type recall struct {
	raw  []byte
	text string
}

func (r *recall) of(raw []byte) string {
	if !bytes.Equal(raw, r.raw) {
		r.raw, r.text = append(r.raw[:0], raw...), plain(raw, maxModelLen)
	}
	return r.text
}

// Reset makes the meter new, keeping its buffer.
func (b *Body) Reset(api API) {
	b.api, b.bytes, b.first = api, 0, 0
	b.probe.reset(false)
}

// Feed takes the next bytes exactly as they were read.
func (b *Body) Feed(p []byte) {
	b.bytes += len(p)
	for i := 0; i < len(p) && b.first == 0; i++ {
		if class[p[i]] != classSpace {
			b.first = p[i]
		}
	}
	b.probe.feed(p)
}

// Open reports whether what was fed is the beginning of a JSON object or array without its end.
func (b *Body) Open() bool { return b.probe.depth > 0 }

// Empty reports whether the answer should hold text and has a list of choices without any, or is no JSON at all: nothing was
// generated, whatever the status says.
func (b *Body) Empty() bool {
	isJSON := b.first == '{' || b.first == '[' || b.first == 0xef // the last: a byte order mark
	return b.api.Streams && (b.probe.found.choices == choicesEmpty || !isJSON)
}

// Usage returns the usage reported.
func (b *Body) Usage() Usage { return b.probe.found.usage.usage() }

// Err returns the error that the body holds, perhaps in a list, or nil. It says nothing about the status.
func (b *Body) Err() *UpstreamError { return b.probe.found.error(false) }

// Flat returns the error that the body is, if it has no member error: a text as message or detail at its top, and nothing that
// an answer has. Else nil. It is an error if the status says so, or if something was to be generated.
func (b *Body) Flat() *UpstreamError {
	f := &b.probe.found
	if f.answer || f.choices == choicesSome || f.flat.Message == "" {
		return nil
	}
	flat := f.flat
	return &flat
}

// Model returns the model name, as the engine spells it.
func (b *Body) Model() string { return b.model.of(b.probe.found.model.raw) }

// Fingerprint returns the system_fingerprint.
func (b *Body) Fingerprint() string { return b.fingerprint.of(b.probe.found.fingerprint.raw) }

// ID returns the name of the answer as it is escaped, empty if it has none. It is valid until the next Reset.
func (b *Body) ID() []byte { return b.probe.found.id.raw }

// envelope is about what surrounds the text in an answer: ids, role, finish reason. In bytes.
const envelope = 250

// OutputEstimate returns the output in tokens of an answer that reports no usage, by the body's size. 0 for APIs that
// generate no text.
func (b *Body) OutputEstimate() int {
	if !b.api.Streams {
		return 0
	}
	return estimateTokens(max(b.bytes-envelope, 0))
}

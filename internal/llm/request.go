package llm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"evenkeel/internal/simd"
)

// maxModelLen is the longest model name that is read, in bytes. The longest names in use (paths in model hubs with a
// revision) have some 200.
const maxModelLen = 1024

// Request is what one pass over a request body says.
type Request struct {
	// Model is the decoded name, "" if absent or empty.
	Model string
	// ModelStart and ModelEnd are the span of the value in the body: with its quotes in JSON, the raw value in a form.
	// Both are 0 if there is none.
	ModelStart, ModelEnd int
	// Stream is `stream: true`.
	Stream bool
	// StreamUsage is `stream_options.include_usage: true`.
	StreamUsage bool
	// MaxOutput is the largest of max_tokens, max_completion_tokens and max_output_tokens, in tokens; 0 if none is given.
	MaxOutput int
	// N is the number of answers asked for, at least 1.
	N int
	// Tools is true if tools (or functions) are offered, Vision if the prompt holds an image.
	Tools, Vision bool
	// Unrepeatable is true if a second run could do harm that the first one may already have done:
	//   - responses in background (the first goes on unseen and is billed), with tools other than "function" and "custom"
	//     (the server runs them: searches, code, calls to other systems), or that append to a stored conversation;
	//   - messages with mcp_servers or a container (the server acts on other systems, or on a sandbox that stays).
	Unrepeatable bool
	// PromptBytes is the size of what becomes prompt tokens (messages, input, prompt, system, instructions, tools,
	// documents) as raw JSON without indentation and without inline media, for an estimate of tokens.
	PromptBytes int
	// SessionStart and SessionEnd are the span in the body of what names the client's session, as it is escaped and without
	// its quotes: the first there is of prompt_cache_key, previous_response_id, metadata.user_id (Anthropic's) and user. Both are 0 if there is none.
	SessionStart, SessionEnd int
	// PreviousStart and PreviousEnd are that of previous_response_id: only the server that gave this answer knows it. Both are 0 if there is none.
	PreviousStart, PreviousEnd int

	form    bool  // the span of the model is in a multipart form, where a value has no quotes
	session field // what the span of the session is the value of
}

// RequestError is a fault in a request body that keeps it from being routed safely. The client gets it as a 400.
type RequestError struct {
	Code    string // evenkeel_invalid_json, evenkeel_invalid_form, evenkeel_duplicate_model, evenkeel_invalid_model, evenkeel_missing_model
	Param   string // the field at fault, or ""
	Message string
}

// Error returns the message.
func (e *RequestError) Error() string { return e.Message }

// MissingModel returns the error for a request of an API that cannot be routed without a model. ScanRequest does not
// judge that: the caller does, by API.NeedsModel.
func MissingModel(api API) *RequestError {
	return &RequestError{Code: "evenkeel_missing_model", Param: "model",
		Message: "the " + api.Name + ` request names no model: set the field "model" (GET /v1/models lists the names)`}
}

// ScanRequest reads the facts of a body in one pass over its bytes: no JSON tree, no maps. It judges only what could make
// us and the engine read different models: a second `model` (in any case, with any escapes), a model that is no string,
// and broken structure. Values elsewhere are the engine's to judge. The error is a *RequestError.
//
// A multipart/form-data body is read as a form. Any other type is read as JSON, since some engines do that whatever the
// header says. An API that needs no model may have a body that is no JSON object; that gives no facts and no error.
func ScanRequest(api API, contentType string, body []byte) (Request, error) {
	return ScanPrompt(api, contentType, body, nil)
}

// ScanPrompt is ScanRequest, and hashes the prompt into p on the way. p may be nil. The prompt of a form is not hashed.
func ScanPrompt(api API, contentType string, body []byte, p *Prompt) (Request, error) {
	if p != nil {
		p.reset()
	}
	if contentType != "application/json" { // what nearly all send
		if mediaType, params, _ := strings.Cut(contentType, ";"); strings.EqualFold(strings.TrimSpace(mediaType), "multipart/form-data") {
			return scanForm(params, body)
		}
	}
	s := scanner{b: body, i: len(bom(body))}
	r := Request{N: 1}
	if s.peek() != '{' {
		if !api.NeedsModel {
			return r, nil
		}
		return r, notAnObject(body)
	}
	if err := r.scanObject(api, &s, p); err != nil {
		if p != nil {
			p.reset()
		}
		if s.fault != faultNone && !api.NeedsModel && !isJSON(contentType) {
			err = nil // a file of another type that starts with a brace
		}
		return Request{N: 1}, err
	}
	return r, nil
}

// isJSON reports whether a content type is JSON, or none, which engines take for JSON.
func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	mediaType = strings.TrimSpace(mediaType)
	return mediaType == "" || strings.HasSuffix(mediaType, "/json") || strings.HasSuffix(mediaType, "+json")
}

// field is a top-level member that is looked at.
type field uint8

const (
	fieldOther field = iota
	fieldModel
	fieldStream
	fieldStreamOptions
	fieldMaxOutput
	fieldN
	fieldBackground
	fieldMCPServers
	fieldContainer
	fieldQuery // prompts of rerank and score APIs, which share no prefixes
	fieldUser  // with the next two, and previous_response_id, what names a session
	fieldMetadata
	fieldCacheKey

	// From here on parts of the prefix, in the order in which models see them or engines key their caches: what sets a cache
	// apart, then tools, system, messages.
	fieldCacheSalt
	fieldChatTemplate
	fieldTemplateArgs
	fieldReasoningEffort
	fieldReasoning
	fieldPreviousResponse
	fieldConversation
	fieldTools // from here on text that the model sees
	fieldFunctions
	fieldSystem // from here on prose: the JSON around it does not count
	fieldInstructions
	fieldDocuments
	fieldMessages
	fieldInput
	fieldPrompt
	fieldSuffix
	fieldCount

	firstPart = fieldCacheSalt
)

func fieldOf(name []byte) field {
	switch string(name) {
	case "model":
		return fieldModel
	case "stream":
		return fieldStream
	case "stream_options":
		return fieldStreamOptions
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		return fieldMaxOutput
	case "n":
		return fieldN
	case "background":
		return fieldBackground
	case "mcp_servers":
		return fieldMCPServers
	case "container":
		return fieldContainer
	case "query", "queries", "text_1", "text_2":
		return fieldQuery
	case "user":
		return fieldUser
	case "metadata":
		return fieldMetadata
	case "prompt_cache_key":
		return fieldCacheKey
	case "cache_salt":
		return fieldCacheSalt
	case "chat_template":
		return fieldChatTemplate
	case "chat_template_kwargs":
		return fieldTemplateArgs
	case "reasoning_effort":
		return fieldReasoningEffort
	case "reasoning":
		return fieldReasoning
	case "previous_response_id":
		return fieldPreviousResponse
	case "conversation":
		return fieldConversation
	case "tools":
		return fieldTools
	case "functions":
		return fieldFunctions
	case "system":
		return fieldSystem
	case "instructions":
		return fieldInstructions
	case "documents":
		return fieldDocuments
	case "messages":
		return fieldMessages
	case "input":
		return fieldInput
	case "prompt":
		return fieldPrompt
	case "suffix":
		return fieldSuffix
	}
	return fieldOther
}

// scanObject reads the top-level members, then insists that nothing follows.
func (r *Request) scanObject(api API, s *scanner, p *Prompt) error {
	s.enter('{')
	for {
		name, ok := s.rawKey()
		if !ok {
			break
		}
		f := fieldOf(name)
		if f == fieldOther && bytes.IndexByte(name, '\\') >= 0 {
			name = unescape(nil, name)
			f = fieldOf(name)
		}
		if f == fieldModel || f == fieldOther && len(name) == len("model") && bytes.EqualFold(name, []byte("model")) {
			if err := r.scanModel(s, name, p); err != nil {
				return err
			}
			continue
		}
		if p == nil || f < firstPart || !p.begin(f) {
			r.scanField(api, s, f, nil)
			continue
		}
		s.peek()
		start, spaces := s.i, s.spaces
		if f >= fieldSystem {
			r.scanField(api, s, f, p)
		} else if r.scanField(api, s, f, nil); s.spaces == spaces {
			p.write(s.b[start:s.i])
		} else {
			p.json(s.b[start:s.i])
		}
		p.end(f)
	}
	if s.fault == faultNone {
		if s.peek(); s.i < len(s.b) {
			s.fail(faultSyntax, s.i)
		} else {
			s.fault = faultNone // peek found the end, which is right here
		}
	}
	return scanError(s)
}

func (r *Request) scanModel(s *scanner, name []byte, p *Prompt) error {
	if r.ModelEnd != 0 {
		return &RequestError{Code: "evenkeel_duplicate_model", Param: "model",
			Message: fmt.Sprintf("the body has a second key %q: engines differ in which one they read, so send one", name)}
	}
	if string(name) != "model" {
		return &RequestError{Code: "evenkeel_invalid_model", Param: "model",
			Message: fmt.Sprintf(`the body has a key %q: engines differ in whether they read it, so write "model"`, name)}
	}
	if c := s.peek(); c != '"' && s.fault == faultNone {
		return &RequestError{Code: "evenkeel_invalid_model", Param: "model",
			Message: fmt.Sprintf("model is %.40s: it must be a string", s.raw())}
	}
	start := s.i
	raw := s.text()
	if s.fault != faultNone {
		return scanError(s)
	}
	r.ModelStart, r.ModelEnd = start, s.i
	if p != nil && string(raw) == p.model { // mostly: no copy is made
		r.Model = p.model
		return nil
	}
	model, err := modelName(raw, true)
	if r.Model = model; p != nil && model == string(raw) {
		p.model = model
	}
	return err
}

// modelName decodes and checks a model's name.
func modelName(raw []byte, escaped bool) (string, error) {
	if len(raw) > maxModelLen {
		return "", &RequestError{Code: "evenkeel_invalid_model", Param: "model",
			Message: fmt.Sprintf("model has %d bytes: a name may have %d", len(raw), maxModelLen)}
	}
	name := raw
	if escaped && !isPlainASCII(raw) {
		name = unescape(nil, raw)
	}
	for _, c := range name {
		if c < 0x20 || c == 0x7f {
			return "", &RequestError{Code: "evenkeel_invalid_model", Param: "model",
				Message: fmt.Sprintf("model %.80q holds a control character", string(name))}
		}
	}
	return string(name), nil
}

// isPlainASCII reports whether unescape leaves raw as it is.
func isPlainASCII(raw []byte) bool {
	for _, c := range raw {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

// scanField reads the value of one top-level member other than the model. The prose in it goes to text, if that is not nil.
func (r *Request) scanField(api API, s *scanner, f field, text *Prompt) {
	switch f {
	case fieldStream:
		r.Stream = isTrue(s.raw())
	case fieldStreamOptions:
		r.scanStreamOptions(s)
	case fieldMaxOutput:
		if n, ok := count(s.raw()); ok {
			r.MaxOutput = max(r.MaxOutput, n)
		}
	case fieldN:
		if n, ok := count(s.raw()); ok {
			r.N = max(r.N, n)
		}
	case fieldMessages, fieldInput, fieldPrompt, fieldSystem, fieldInstructions, fieldSuffix, fieldDocuments, fieldQuery:
		v := promptReader{text: text}
		if v.turns = text != nil && (f == fieldMessages || f == fieldInput); v.turns {
			text.messages()
		}
		r.PromptBytes += v.read(s)
		r.Vision = r.Vision || v.image
	case fieldTools, fieldFunctions:
		v := promptReader{}
		isArray := s.peek() == '['
		n := v.read(s)
		r.PromptBytes += n
		r.Tools = r.Tools || isArray && n > len("[]")
		r.Unrepeatable = r.Unrepeatable || api.Name == "responses" && v.serverTool
	case fieldBackground:
		r.Unrepeatable = isTrue(s.raw()) && api.Name == "responses" || r.Unrepeatable
	case fieldConversation:
		r.Unrepeatable = !isNull(s.raw()) && api.Name == "responses" || r.Unrepeatable
	case fieldMCPServers:
		r.Unrepeatable = !isEmpty(s.raw()) && api.Name == "messages" || r.Unrepeatable
	case fieldContainer:
		r.Unrepeatable = !isNull(s.raw()) && api.Name == "messages" || r.Unrepeatable
	case fieldUser, fieldCacheKey, fieldPreviousResponse:
		r.nameSession(s, f)
	case fieldMetadata:
		r.scanMetadata(s)
	default:
		s.skip()
	}
}

// sessionFields may name a session, the least telling first.
var sessionFields = [...]field{fieldOther, fieldUser, fieldMetadata, fieldPreviousResponse, fieldCacheKey}

// nameSession takes the value of f as the session's name, if it is text and nothing that tells as much was seen.
func (r *Request) nameSession(s *scanner, f field) {
	if s.peek() != '"' {
		s.skip()
		return
	}
	start := s.i + 1
	s.text()
	end := s.i - 1
	if s.fault != faultNone || end <= start {
		return
	}
	if f == fieldPreviousResponse {
		r.PreviousStart, r.PreviousEnd = start, end
	}
	if slices.Index(sessionFields[:], f) > slices.Index(sessionFields[:], r.session) {
		r.SessionStart, r.SessionEnd, r.session = start, end, f
	}
}

func (r *Request) scanMetadata(s *scanner) {
	if !s.enter('{') {
		s.skip()
		return
	}
	for {
		name, ok := s.key()
		if !ok {
			return
		}
		if string(name) == "user_id" {
			r.nameSession(s, fieldMetadata)
		} else {
			s.skip()
		}
	}
}

func isNull(raw []byte) bool { return string(raw) == "null" }

func (r *Request) scanStreamOptions(s *scanner) {
	if !s.enter('{') {
		s.skip()
		return
	}
	for {
		name, ok := s.key()
		if !ok {
			return
		}
		if string(name) == "include_usage" {
			r.StreamUsage = isTrue(s.raw())
		} else {
			s.skip()
		}
	}
}

// Splice returns the pieces of body with only the model's value replaced: send prefix, value and suffix one after the
// other. prefix and suffix share body's memory. Without a model in the body it returns body alone.
func (r *Request) Splice(body []byte, model string) (prefix, value, suffix []byte) {
	if r.ModelEnd == 0 {
		return body, nil, nil
	}
	if r.form {
		value = []byte(model)
	} else {
		value = appendString(make([]byte, 0, len(model)+2), model)
	}
	return body[:r.ModelStart:r.ModelStart], value, body[r.ModelEnd:]
}

// promptReader looks at what is inside a part of the prompt.
type promptReader struct {
	text       *Prompt // where the prose goes, or nil
	turns      bool    // whose each message is goes there too
	media      int     // inline images, audio and files, bytes
	image      bool
	serverTool bool // an element of this array has a type other than "function" and "custom"

	name    []byte // the last member's, still escaped
	known   knownName
	silent  int // the level of a member whose value is left out of the text, or 0
	written int // up to where long strings went to text before their end was known
}

// knownName says that the value of the member just named matters by its name.
type knownName uint8

const (
	nameOther knownName = iota
	nameType
	nameImages
	nameRole
)

// read takes the next value and returns its size in bytes, less indentation and media.
func (v *promptReader) read(s *scanner) int {
	s.peek()
	start, spaces := s.i, s.spaces
	s.walk(v)
	if s.fault != faultNone {
		return 0
	}
	return s.i - start - (s.spaces - spaces) - v.media
}

// member is shown each name of a member, b[start:end], depth levels below the top.
func (v *promptReader) member(b []byte, start, end, depth int) {
	if depth <= v.silent {
		v.silent = 0
	}
	v.name, v.known = b[start:end], nameOther
	switch string(v.name) {
	case "type":
		v.known = nameType
	case "role":
		v.known = nameRole
	case "images":
		v.known = nameImages
	case "cache_control":
		v.silent = depth
	}
}

// piece is how many bytes of a long string are looked through before they are hashed: few enough to be in the processor's
// nearest cache still.
const piece = 8 << 10

// stringEnd is simd.StringEnd, with which it shares b and i, and hashes long values on the way. A name that long
// is hashed too. v may be nil.
func (v *promptReader) stringEnd(b []byte, i int) int {
	if v == nil || !v.isText() {
		return simd.StringEnd(b, i)
	}
	for len(b)-i > piece {
		cut := i + piece
		if simd.IsEscaped(b[i:cut]) {
			cut--
		}
		if end := simd.StringEnd(b[:cut], i); end >= 0 {
			return end
		}
		v.text.write(b[i:cut])
		i, v.written = cut, cut
	}
	return simd.StringEnd(b, i)
}

// isText reports whether a value that comes now is part of the text.
func (v *promptReader) isText() bool { return v.text != nil && v.known != nameType && v.silent == 0 }

// value is shown each string that is a value, b[start:end], depth levels below the top.
func (v *promptReader) value(b []byte, start, end, depth int) {
	if v.turns && v.known != nameOther && depth == 2 {
		v.whose(b[start:end])
	}
	if v.isText() {
		v.text.write(b[max(start, v.written) : end+1]) // with the quote, which keeps strings apart
	}
	text := b[start:end]
	switch v.known {
	case nameType:
		switch string(text) {
		case "image_url", "input_image", "image":
			v.image = true
		}
		if depth == 2 && string(text) != "function" && string(text) != "custom" {
			v.serverTool = true
		}
	case nameImages:
		v.image = true
	}
	v.known = nameOther
	if len(text) > minMedia && isMedia(v.name, text) {
		v.media += len(text)
	}
}

// whose is shown each text of a message itself.
func (v *promptReader) whose(text []byte) {
	switch v.known {
	case nameRole:
		v.text.whose(string(text) == "assistant")
	case nameType: // items of the responses API
		if bytes.HasSuffix(text, []byte("_call")) || string(text) == "reasoning" {
			v.text.whose(true)
		}
	}
}

// scalars is shown numbers and literals, with what separates them.
func (v *promptReader) scalars(text []byte) {
	if v.text != nil && v.silent == 0 {
		v.text.scalars(text)
	}
}

// minMedia is the length in bytes from which a string may be inline media: shorter ones do not matter for an estimate.
const minMedia = 256

// isMedia recognises a data URL, and base64 in the members that carry it (Anthropic's source.data, OpenAI's
// input_audio.data and file_data, Ollama's images). The same members can carry plain text, so their content decides.
func isMedia(key, text []byte) bool {
	if bytes.HasPrefix(text, []byte("data:")) {
		return bytes.Contains(text[:minMedia], []byte(";base64,"))
	}
	switch string(key) {
	case "data", "file_data", "images", "image", "image_data":
	default:
		return false
	}
	for _, c := range text[:minMedia] {
		if class[c] != classPlain && c != '/' && c != '_' && c != '=' || c == '.' {
			return false
		}
	}
	return true
}

// bom returns the UTF-8 byte order mark at the start of b, if there is one: Python's json module skips it.
func bom(b []byte) []byte {
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		return b[:3]
	}
	return nil
}

func notAnObject(body []byte) *RequestError {
	text := bytes.TrimSpace(body[len(bom(body)):])
	msg := "the body is empty: send a JSON object"
	switch {
	case bytes.HasPrefix(text, []byte{0x1f, 0x8b}):
		msg = "the body is compressed with gzip: send it as plain JSON"
	case len(text) > 0:
		msg = fmt.Sprintf("the body is no JSON object: it starts with %.20q", text)
	}
	return &RequestError{Code: "evenkeel_invalid_json", Message: msg}
}

// scanError turns the scanner's fault into the client's error.
func scanError(s *scanner) error {
	var msg string
	switch s.fault {
	case faultNone:
		return nil
	case faultTruncated:
		msg = fmt.Sprintf("the body is JSON that ends too early, after %d bytes", len(s.b))
	case faultDeep:
		msg = fmt.Sprintf("the body is JSON nested deeper than %d levels at byte %d", maxDepth, s.at)
	default:
		msg = fmt.Sprintf("the body is not valid JSON: unexpected %q at byte %d", s.b[s.at], s.at)
	}
	return &RequestError{Code: "evenkeel_invalid_json", Message: msg}
}

package llm

import (
	"bytes"
	"fmt"
	"strings"
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

	form bool // the span is in a multipart form, where a value has no quotes
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

// ScanPrompt is ScanRequest, and notes in p where the prompt is, for PrefixKey.Append. p may be nil; what it held before is
// gone. The prompt of a form is not noted.
func ScanPrompt(api API, contentType string, body []byte, p *Prompt) (Request, error) {
	if p != nil {
		*p = Prompt{}
	}
	mediaType, params, _ := strings.Cut(contentType, ";")
	if strings.EqualFold(strings.TrimSpace(mediaType), "multipart/form-data") {
		return scanForm(params, body)
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
			*p = Prompt{}
		}
		if s.fault != faultNone && !api.NeedsModel && !isJSON(strings.TrimSpace(mediaType)) {
			err = nil // a file of another type that starts with a brace
		}
		return Request{N: 1}, err
	}
	return r, nil
}

// isJSON reports whether a media type is JSON, or none, which engines take for JSON.
func isJSON(mediaType string) bool {
	mediaType = strings.ToLower(mediaType)
	return mediaType == "" || strings.HasSuffix(mediaType, "/json") || strings.HasSuffix(mediaType, "+json")
}

// scanObject reads the top-level members, then insists that nothing follows.
func (r *Request) scanObject(api API, s *scanner, p *Prompt) error {
	s.enter('{')
	for {
		name, ok := s.key()
		if !ok {
			break
		}
		if len(name) == len("model") && bytes.EqualFold(name, []byte("model")) {
			if err := r.scanModel(s, name); err != nil {
				return err
			}
			continue
		}
		if s.peek(); p == nil {
			r.scanMember(api, s, name)
			continue
		}
		part, start, spaces := partOf(name), s.i, s.spaces
		r.scanMember(api, s, name)
		p.parts[part] = span{start: start, end: s.i, solid: s.spaces == spaces}
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

func (r *Request) scanModel(s *scanner, name []byte) error {
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
	model, err := modelName(raw, true)
	if err != nil {
		return err
	}
	r.Model, r.ModelStart, r.ModelEnd = model, start, s.i
	return nil
}

// modelName decodes and checks a model's name.
func modelName(raw []byte, escaped bool) (string, error) {
	if len(raw) > maxModelLen {
		return "", &RequestError{Code: "evenkeel_invalid_model", Param: "model",
			Message: fmt.Sprintf("model has %d bytes: a name may have %d", len(raw), maxModelLen)}
	}
	var buf [maxModelLen]byte
	name := raw
	if escaped {
		name = unescape(buf[:0], raw)
	}
	for _, c := range name {
		if c < 0x20 || c == 0x7f {
			return "", &RequestError{Code: "evenkeel_invalid_model", Param: "model",
				Message: fmt.Sprintf("model %.80q holds a control character", string(name))}
		}
	}
	return string(name), nil
}

// scanMember reads one top-level member other than the model.
func (r *Request) scanMember(api API, s *scanner, name []byte) {
	switch string(name) {
	case "stream":
		r.Stream = isTrue(s.raw())
	case "stream_options":
		r.scanStreamOptions(s)
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		if n, ok := count(s.raw()); ok {
			r.MaxOutput = max(r.MaxOutput, n)
		}
	case "n":
		if n, ok := count(s.raw()); ok {
			r.N = max(r.N, n)
		}
	case "messages", "input", "prompt", "system", "instructions", "suffix", "query", "queries", "documents", "text_1", "text_2":
		v := promptReader{}
		r.PromptBytes += v.read(s)
		r.Vision = r.Vision || v.image
	case "tools", "functions":
		v := promptReader{}
		isArray := s.peek() == '['
		n := v.read(s)
		r.PromptBytes += n
		r.Tools = r.Tools || isArray && n > len("[]")
		r.Unrepeatable = r.Unrepeatable || api.Name == "responses" && v.serverTool
	case "background":
		r.Unrepeatable = isTrue(s.raw()) && api.Name == "responses" || r.Unrepeatable
	case "conversation":
		r.Unrepeatable = !isNull(s.raw()) && api.Name == "responses" || r.Unrepeatable
	case "mcp_servers":
		r.Unrepeatable = !isEmpty(s.raw()) && api.Name == "messages" || r.Unrepeatable
	case "container":
		r.Unrepeatable = !isNull(s.raw()) && api.Name == "messages" || r.Unrepeatable
	default:
		s.skip()
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

// promptReader looks at the strings inside a part of the prompt.
type promptReader struct {
	key        []byte // the last member name seen
	media      int    // inline images, audio and files, bytes
	image      bool
	serverTool bool // an element of this array has a type other than "function" and "custom"
}

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

// string is shown each string inside a container: b[start:end], depth levels below the top of this value.
func (v *promptReader) string(b []byte, start, end, depth int) {
	for i := end + 1; i < len(b); i++ {
		switch class[b[i]] {
		case classSpace:
			continue
		case classSeparator:
			if b[i] == ':' {
				v.key = b[start:end]
				return
			}
		}
		break
	}
	v.value(b[start:end], depth)
}

func (v *promptReader) value(text []byte, depth int) {
	switch string(v.key) {
	case "type":
		switch string(text) {
		case "image_url", "input_image", "image":
			v.image = true
		}
		if depth == 2 && string(text) != "function" && string(text) != "custom" {
			v.serverTool = true
		}
	case "images":
		v.image = true
	}
	if len(text) > minMedia && isMedia(v.key, text) {
		v.media += len(text)
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

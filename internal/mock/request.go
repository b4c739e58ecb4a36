package mock

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
)

// call is what an engine needs to know of one request body. Slices point into the body.
type call struct {
	model        []byte // decoded; nil if absent
	stream       bool
	includeUsage bool // stream_options.include_usage
	limit        int  // the request's own limit of output tokens; 0 = none
	newLimit     int  // max_completion_tokens, while the body is read; 0 = none
	choices      int  // n; 0 = not given
	textBytes    int  // decoded bytes of all text in the prompt
	tokenCount   int  // prompt tokens given as numbers
	inputs       int  // embeddings: how many texts
	dimensions   int  // embeddings: wanted length of a vector
	base64       bool // embeddings: wanted form
	hasPrompt    bool
	tool         []byte // the tool to call, as it stands in the JSON; nil = answer with text
	hash         uint32 // of messages, prompt and input
	exact        *exact // nil for all but tests

	keep  bool      // texts is wanted
	part  textPart  // of what is read now
	texts [2][]byte // the text, decoded; a token given as a number is tokenBytes of it

	firstTool, namedTool []byte
	toolNone, toolForced bool
	lastFromUser         bool
	last                 []byte // raw JSON of the last message
}

// textPart says where text stands: the system's comes first, wherever it is in the body.
type textPart int

const (
	promptText textPart = iota
	systemText
)

// promptTokens is documented in doc.go.
func (c *call) promptTokens() int {
	if c.exact != nil && c.exact.PromptTokens != nil {
		return *c.exact.PromptTokens
	}
	return max(1, c.tokenCount+(c.textBytes+tokenBytes-1)/tokenBytes)
}

// outputTokens is the length of the answer and whether the request's own limit made it so short.
func (c *call) outputTokens(most int) (n int, limited bool) {
	if c.exact != nil && c.exact.OutputTokens != nil {
		return *c.exact.OutputTokens, false
	}
	if c.limit > 0 && c.limit < most {
		return c.limit, true
	}
	return most, false
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// parseCall reads a request body of any dialect, and keeps its text if that is wanted. The error is for the client.
func parseCall(body []byte, keep bool) (call, error) {
	c := call{keep: keep}
	s := &scanner{b: body}
	var wrong error
	if s.peek() != '{' {
		return c, fmt.Errorf("the body is not a JSON object")
	}
	ok := s.object(func(key []byte) bool {
		ok, err := c.field(s, key)
		if err != nil && wrong == nil {
			wrong = err
		}
		return ok
	})
	if wrong != nil {
		return c, wrong
	}
	if !ok || !s.end() {
		return c, fmt.Errorf("the body is not valid JSON: error at byte %d of %d", s.i, len(body))
	}
	if c.newLimit > 0 { // whatever the order: max_tokens is the deprecated name of it
		c.limit = c.newLimit
	}
	c.chooseTool()
	return c, nil
}

// field reads the value of one key of the body.
func (c *call) field(s *scanner, key []byte) (ok bool, err error) {
	switch string(key) {
	case "model":
		raw, ok, err := c.stringField(s, "model")
		c.model = unescape(raw)
		return ok, err
	case "stream":
		return c.boolField(s, "stream", &c.stream)
	case "stream_options":
		if s.peek() == '{' {
			ok = s.object(func(k []byte) (ok bool) {
				if string(k) == "include_usage" {
					ok, err = c.boolField(s, "stream_options.include_usage", &c.includeUsage)
					return ok
				}
				return s.skip()
			})
			return ok, err
		}
	case "max_tokens", "max_output_tokens":
		return c.intField(s, string(key), &c.limit)
	case "max_completion_tokens":
		return c.intField(s, string(key), &c.newLimit)
	case "n":
		return c.intField(s, "n", &c.choices)
	case "dimensions":
		return c.intField(s, "dimensions", &c.dimensions)
	case "encoding_format":
		raw, ok, err := c.stringField(s, "encoding_format")
		c.base64 = string(raw) == "base64"
		return ok, err
	case "messages", "prompt", "input":
		c.hasPrompt = s.peek() != 'n'
		start := s.i
		ok := c.prompt(s)
		c.hash = crc32.Update(c.hash, castagnoli, s.b[start:s.i])
		return ok, nil
	case "system", "instructions":
		c.part = systemText
		ok := c.text(s)
		c.part = promptText
		return ok, nil
	case "mock":
		return c.exactField(s)
	case "tools":
		return c.tools(s), nil
	case "tool_choice":
		return c.toolChoice(s), nil
	}
	return s.skip(), nil
}

func (c *call) stringField(s *scanner, name string) ([]byte, bool, error) {
	switch s.peek() {
	case '"':
		raw, _, ok := s.text()
		return raw, ok, nil
	case 'n':
		return nil, s.skip(), nil
	}
	return nil, false, fmt.Errorf("%s must be a string", name)
}

func (c *call) boolField(s *scanner, name string, to *bool) (bool, error) {
	switch s.peek() {
	case 't', 'f', 'n':
		*to = s.peek() == 't'
		return s.skip(), nil
	}
	return false, fmt.Errorf("%s must be true or false", name)
}

func (c *call) intField(s *scanner, name string, to *int) (bool, error) {
	if s.peek() == 'n' {
		return s.skip(), nil
	}
	raw, ok := s.number()
	if !ok {
		return false, fmt.Errorf("%s must be a whole number above zero", name)
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 1 {
		return false, fmt.Errorf("%s is %.20s: it must be a whole number above zero", name, raw)
	}
	*to = n
	return true, nil
}

// prompt reads messages, prompt or input and remembers the last message.
func (c *call) prompt(s *scanner) bool {
	if s.peek() != '[' {
		c.inputs, c.lastFromUser = 1, true
		start := s.i
		ok := c.text(s)
		c.last = s.b[start:s.i]
		return ok
	}
	c.inputs = 0
	numbers := false
	ok := s.array(func() bool {
		c.inputs++
		s.peek()
		start := s.i
		c.lastFromUser = false
		switch s.peek() {
		case '{':
			if !c.message(s) {
				return false
			}
		default:
			numbers = numbers || s.peek()-'0' < 10
			if !c.text(s) {
				return false
			}
		}
		c.last = s.b[start:s.i]
		return true
	})
	if numbers { // one text given as token numbers
		c.inputs = 1
	}
	return ok
}

func (c *call) message(s *scanner) bool {
	return s.object(func(key []byte) bool {
		switch string(key) {
		case "role":
			if s.peek() == '"' {
				raw, _, ok := s.text()
				c.lastFromUser = string(raw) == "user"
				return ok
			}
		case "content", "text", "output":
			return c.text(s)
		}
		return s.skip()
	})
}

// text counts the text in a string, a list of strings, parts or token numbers, or a part.
func (c *call) text(s *scanner) bool {
	switch b := s.peek(); {
	case b == '"':
		raw, size, ok := s.text()
		c.textBytes += size
		if c.keep {
			c.texts[c.part] = append(c.texts[c.part], unescape(raw)...)
		}
		return ok
	case b == '[':
		return s.array(func() bool { return c.text(s) })
	case b == '{':
		return s.object(func(key []byte) bool {
			if k := string(key); k == "text" || k == "content" {
				return c.text(s)
			}
			return s.skip()
		})
	case b-'0' < 10:
		c.tokenCount++
		start := s.i
		ok := s.skip()
		if c.keep {
			c.texts[c.part] = binary.LittleEndian.AppendUint32(c.texts[c.part], crc32.Checksum(s.b[start:s.i], castagnoli))
		}
		return ok
	}
	return s.skip()
}

// tools remembers the name of the first tool: name at the top (Anthropic, responses) or inside function (chat).
func (c *call) tools(s *scanner) bool {
	if s.peek() != '[' {
		return s.skip()
	}
	return s.array(func() bool {
		name, _, ok := toolName(s)
		if c.firstTool == nil {
			c.firstTool = name
		}
		return ok
	})
}

// toolName reads {"name":…}, {"function":{"name":…}}, and the type beside it.
func toolName(s *scanner) (name, kind []byte, ok bool) {
	if s.peek() != '{' {
		return nil, nil, s.skip()
	}
	ok = s.object(func(key []byte) bool {
		k := string(key)
		switch {
		case (k == "name" || k == "type") && s.peek() == '"':
			raw, _, ok := s.text()
			if k == "name" {
				name = raw
			} else {
				kind = raw
			}
			return ok
		case k == "function" && s.peek() == '{':
			inner, _, ok := toolName(s)
			if inner != nil {
				name = inner
			}
			return ok
		}
		return s.skip()
	})
	return name, kind, ok
}

func (c *call) toolChoice(s *scanner) bool {
	if s.peek() == '"' {
		raw, _, ok := s.text()
		c.toolForced, c.toolNone = string(raw) == "required", string(raw) == "none"
		return ok
	}
	name, kind, ok := toolName(s)
	c.namedTool = name
	c.toolForced, c.toolNone = string(kind) == "any", string(kind) == "none"
	return ok
}

// chooseTool decides whether the answer is a tool call: the request demands it, or the user's last text says "use the tool".
func (c *call) chooseTool() {
	switch {
	case c.firstTool == nil || c.toolNone:
	case c.namedTool != nil:
		c.tool = c.namedTool
	case c.toolForced, c.lastFromUser && bytes.Contains(c.last, []byte("use the tool")):
		c.tool = c.firstTool
	}
}

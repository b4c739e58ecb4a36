package mock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// tokenBytes is how much text one token stands for.
const tokenBytes = 4

// exact is the member "mock" of a request's body, which no other engine knows: lengths and prefixes for tests that must be sure of
// them. A length that it leaves out follows from the text, as always, and so do the hashes if it has neither PromptTokens nor Prompt.
type exact struct {
	PromptTokens *int `json:"prompt_tokens"`
	OutputTokens *int `json:"output_tokens"`
	// Prompt and Output are the hashes of the blocks, as engine.Sequence has them.
	Prompt []uint64 `json:"prompt_blocks"`
	Output []uint64 `json:"output_blocks"`
}

// The most tokens that a request can ask for by way of exact.
const (
	maxExactPrompt = 1 << 24
	maxExactOutput = 1 << 16
)

// exactField reads the member.
func (c *call) exactField(s *scanner) (ok bool, err error) {
	s.peek()
	start := s.i
	if !s.skip() {
		return false, nil
	}
	c.exact = new(exact)
	d := json.NewDecoder(bytes.NewReader(s.b[start:s.i]))
	d.DisallowUnknownFields()
	if err := d.Decode(c.exact); err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("mock: %w", err)
	}
	for _, length := range []struct {
		name   string
		tokens *int
		most   int
	}{{"prompt_tokens", c.exact.PromptTokens, maxExactPrompt}, {"output_tokens", c.exact.OutputTokens, maxExactOutput}} {
		if n := length.tokens; n != nil && (*n < 1 || *n > length.most) {
			return false, fmt.Errorf("mock.%s is %d: it must be from 1 to %d, or left out", length.name, *n, length.most)
		}
	}
	return true, nil
}

// blocks returns the hashes of the full blocks of the prompt, and of those that the answer completes. Prompt and answer are one
// text, so that a next turn which repeats both finds both.
func (a *answer) blocks(blockTokens int) (prompt, output []uint64) {
	if x := a.exact; x != nil && (x.PromptTokens != nil || x.Prompt != nil) {
		return x.Prompt, x.Output
	}
	text := append(a.texts[systemText], a.texts[promptText]...)
	if a.tool == nil { // a tool's arguments do not come back as text
		text = a.text(text)
	}
	full := a.promptTokens() / blockTokens
	all := (a.promptTokens() + a.tokens) / blockTokens
	size := blockTokens * tokenBytes
	hash := xxhash.Sum64(a.model)
	for i := 0; i < all && (i+1)*size <= len(text); i++ {
		hash = mix(hash ^ xxhash.Sum64(text[i*size:(i+1)*size]))
		prompt = append(prompt, hash)
	}
	if len(prompt) < full {
		return prompt, nil
	}
	return prompt[:full:full], prompt[full:]
}

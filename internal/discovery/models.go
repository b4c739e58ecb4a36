package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const (
	// maxModels is how many models one endpoint may list: each becomes a deployment.
	maxModels = 4096
	// maxText bounds a model's ID and what else is kept of an engine's words, in bytes. Paths of local models are long.
	maxText = 512
)

// count is a JSON number of tokens or the like. Whatever is not a whole number of 1 to 2³¹−1 reads as 0, which means
// unknown: one odd value must not make the whole list unreadable.
type count int

// UnmarshalJSON never fails.
func (c *count) UnmarshalJSON(text []byte) error {
	*c = 0
	f, err := strconv.ParseFloat(string(text), 64)
	if err == nil && f >= 1 && f <= math.MaxInt32 && f == math.Trunc(f) {
		*c = count(f)
	}
	return nil
}

// word is a JSON string. Whatever is none reads as nothing.
type word string

// UnmarshalJSON never fails.
func (w *word) UnmarshalJSON(text []byte) error {
	var s string
	if json.Unmarshal(text, &s) != nil {
		s = ""
	}
	*w = word(s)
	return nil
}

// listedModel is a model as the lists of the various engines show it.
type listedModel struct {
	ID      string `json:"id"`
	Name    string `json:"name"` // Ollama's own list
	OwnedBy string `json:"owned_by"`
	Parent  word   `json:"parent"` // vLLM and SGLang, of an adapter
	State   string `json:"state"`  // LM Studio's own list

	// The context window, in tokens, under the names that it goes by.
	MaxModelLen         count `json:"max_model_len"`         // vLLM, SGLang
	LoadedContextLength count `json:"loaded_context_length"` // LM Studio, of a loaded model
	MaxContextLength    count `json:"max_context_length"`    // LM Studio, Mistral
	ContextLength       count `json:"context_length"`        // OpenRouter, Together
	ContextWindow       count `json:"context_window"`        // Groq
	MaxInputTokens      count `json:"max_input_tokens"`      // Anthropic
	Meta                struct {
		ContextLength count `json:"n_ctx"` // llama.cpp
	} `json:"meta"`
}

func (m *listedModel) contextWindow() int {
	for _, n := range []count{m.MaxModelLen, m.LoadedContextLength, m.MaxContextLength, m.ContextLength, m.ContextWindow,
		m.MaxInputTokens, m.Meta.ContextLength} {
		if n > 0 {
			return int(n)
		}
	}
	return 0
}

// parseModels reads the answer of GET /v1/models: an object with a list under data, or a bare list as Together sends it.
// It returns the usable models, and an error that says what was not. An error alone (nil models) means that the answer is
// no list. No two models have the same ID.
func parseModels(body []byte) ([]ModelInfo, error) {
	body = bytes.TrimSpace(body)
	if bytes.HasPrefix(body, []byte("[")) {
		body = slices.Concat([]byte(`{"data":`), body, []byte(`}`))
	}
	items, err := listUnder(body, "data")
	if err != nil {
		return nil, err
	}
	return readModels(items, func(m *listedModel) string { return m.ID })
}

// listUnder returns the items of the list that a JSON object holds under a key; null is an empty list.
func listUnder(body []byte, key string) ([]json.RawMessage, error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil || object == nil {
		return nil, errors.New("the answer is no JSON object")
	}
	list, ok := object[key]
	if !ok {
		return nil, fmt.Errorf("the answer has no %q", key)
	}
	var items []json.RawMessage
	if json.Unmarshal(list, &items) != nil {
		return nil, fmt.Errorf("%q in the answer is no list", key)
	}
	if len(items) > maxModels {
		return nil, fmt.Errorf("it lists %d models, more than %d: name those to serve in the endpoint's models", len(items), maxModels)
	}
	return items, nil
}

func readModels(items []json.RawMessage, id func(*listedModel) string) ([]ModelInfo, error) {
	models := make([]ModelInfo, 0, len(items))
	seen := make(map[string]bool, len(items))
	unusable := 0
	for _, item := range items {
		var m listedModel
		if !decode(item, &m) || !usable(id(&m)) {
			unusable++
			continue
		}
		if !seen[id(&m)] {
			seen[id(&m)] = true
			models = append(models, ModelInfo{ID: id(&m), ContextWindow: m.contextWindow(), OwnedBy: clean(m.OwnedBy), Parent: clean(string(m.Parent))})
		}
	}
	if unusable > 0 {
		return models, fmt.Errorf("%d of %d listed models have no usable ID (1 to %d printable bytes)", unusable, len(items), maxText)
	}
	return models, nil
}

// usable reports whether a model can be asked for by this ID. It will stand in logs, headers and metrics.
func usable(id string) bool { return id != "" && id == clean(id) }

// clean returns text of an engine, or nothing if it is not fit to be shown.
func clean(text string) string {
	if len(text) > maxText || strings.TrimSpace(text) != text || strings.ContainsFunc(text, unfit) {
		return ""
	}
	return text
}

func unfit(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }

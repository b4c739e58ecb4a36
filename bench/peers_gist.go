package main

import (
	"bytes"
	"encoding/json"
	"strings"
)

// gist is what an answer says, whatever its bytes: for those who decode answers and encode them again.
type gist struct {
	text, finish  string
	input, output int // tokens
	events        int // of a stream; 0 = none
	done          bool
}

// message is what is used of an answer, and of an event of a stream.
type message struct {
	Choices []struct {
		Message, Delta struct {
			Content string
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	}
}

// gistOf reads an answer of one choice. It is false for what is none, such as a stream that does not end with [DONE].
func gistOf(body []byte) (gist, bool) {
	var g gist
	var text strings.Builder
	if !bytes.HasPrefix(body, []byte("data:")) {
		if !g.add(&text, body) {
			return g, false
		}
		g.text = text.String()
		return g, g.finish != ""
	}
	for event := range bytes.SplitSeq(bytes.TrimSuffix(body, []byte("\n\n")), []byte("\n\n")) {
		data, ok := bytes.CutPrefix(event, []byte("data:"))
		data = bytes.TrimSpace(data)
		g.events++
		switch {
		case !ok || g.done:
			return g, false
		case string(data) == "[DONE]":
			g.done = true
		case !g.add(&text, data):
			return g, false
		}
	}
	g.text = text.String()
	return g, g.done && g.finish != ""
}

// add adds a message. It is false for what is none, an error for instance.
func (g *gist) add(text *strings.Builder, data []byte) bool {
	var m message
	if err := json.Unmarshal(data, &m); err != nil || m.Choices == nil {
		return false
	}
	for _, c := range m.Choices {
		text.WriteString(c.Message.Content)
		text.WriteString(c.Delta.Content)
		if c.FinishReason != "" {
			g.finish = c.FinishReason
		}
	}
	g.input += m.Usage.PromptTokens
	g.output += m.Usage.CompletionTokens
	return true
}

// gists returns what each answer says.
func (a answers) gists() []gist {
	all := make([]gist, len(a))
	for i, body := range a {
		all[i], _ = gistOf(body) // what an engine says is whole: see ask
	}
	return all
}

// findGist returns which of the answers says what the body says, −1 if none does.
func findGist(all []gist, body []byte) int {
	g, ok := gistOf(body)
	if !ok {
		return -1
	}
	for i, want := range all {
		if g == want {
			return i
		}
	}
	return -1
}

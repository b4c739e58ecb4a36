package health

import (
	"encoding/json"
	"strings"

	"evenkeel/internal/secret"
)

// event is what matters of an answer, or of one event of it, in the words of OpenAI and of Anthropic.
type event struct {
	Choices []struct {
		Delta, Message struct {
			Content          text `json:"content"`
			ReasoningContent text `json:"reasoning_content"`
			Reasoning        text `json:"reasoning"`
		}
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Content    text   `json:"content"` // Anthropic's, of a whole answer
	StopReason string `json:"stop_reason"`
	Delta      struct {
		Text       string `json:"text"`
		Thinking   text   `json:"thinking"`
		StopReason string `json:"stop_reason"`
	} `json:"delta"`
}

// text is a JSON string, or a list of parts whose texts are joined.
type text string

// UnmarshalJSON takes what is neither for nothing.
func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = text(s)
		return nil
	}
	var parts []struct {
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
	}
	if json.Unmarshal(b, &parts) == nil {
		for _, p := range parts {
			*t += text(p.Text)
			if p.Thinking != "" {
				*t += aThought
			}
		}
	}
	return nil
}

// words is what an answer says.
type words struct {
	text    string // without what the model thought before
	thought bool   // it thought
	cut     bool   // a limit of tokens ended it
}

// said reads an answer.
func said(body []byte, events bool) words {
	var b strings.Builder
	var w words
	thinks := func(thought text) {
		if thought != "" {
			b.WriteString(aThought)
		}
	}
	read := func(data []byte) {
		var e event
		_ = json.Unmarshal(data, &e) // what it cannot read stays empty
		for _, c := range e.Choices {
			b.WriteString(string(c.Delta.Content))
			b.WriteString(string(c.Message.Content))
			thinks(c.Delta.ReasoningContent + c.Delta.Reasoning + c.Message.ReasoningContent + c.Message.Reasoning)
			w.cut = w.cut || c.FinishReason == "length"
		}
		b.WriteString(string(e.Content))
		b.WriteString(e.Delta.Text)
		thinks(e.Delta.Thinking)
		w.cut = w.cut || e.StopReason == "max_tokens" || e.Delta.StopReason == "max_tokens"
	}
	if !events {
		read(body)
		return w.saying(b.String())
	}
	var data []byte
	for line := range strings.SplitSeq(lineEnds.Replace(strings.TrimPrefix(string(body), "\uFEFF")), "\n") {
		if value, ok := strings.CutPrefix(line, "data:"); ok {
			data = append(append(data, value...), '\n')
		} else if line == "" && len(data) > 0 {
			read(data)
			data = data[:0]
		}
	}
	if len(data) > 0 {
		read(data)
	}
	return w.saying(b.String())
}

// mostSaid is how much of an answer is repeated, in characters.
const mostSaid = 80

// shown is how what e said begins. One that says its credential is not repeated.
func (e *Endpoint) shown(w words) string {
	key := strings.TrimPrefix(e.Header.Get(e.Kind.CredentialHeader), e.Kind.CredentialPrefix)
	if f := secret.NewFinder(secret.New(key)); f.In([]byte(w.text)) {
		return secret.Redacted
	}
	return w.beginning()
}

// beginning is how the text begins, for people.
func (w words) beginning() string {
	n := 0
	for i := range w.text {
		if n++; n > mostSaid {
			return w.text[:i] + "..."
		}
	}
	return w.text
}

// Models whose server does not tell thoughts from the answer write them between these. The first one may stand in the prompt.
const (
	thinkStart, thinkEnd = "<think>", "</think>"
	aThought             = thinkStart + thinkEnd // stands for one that the server did tell
)

// saying returns w with content, without the thoughts in it.
func (w words) saying(content string) words {
	var b strings.Builder
	for {
		thoughts, rest, ended := strings.Cut(content, thinkEnd)
		before, _, begun := strings.Cut(thoughts, thinkStart)
		w.thought = w.thought || ended || begun
		if begun || !ended {
			b.WriteString(before)
		}
		if content = rest; !ended {
			w.text = b.String()
			return w
		}
	}
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

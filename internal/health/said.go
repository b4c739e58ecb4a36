package health

import (
	"encoding/json"
	"strings"
)

// event is what matters of an answer, or of one event of it, in the words of OpenAI and of Anthropic.
type event struct {
	Choices []struct {
		Delta, Message struct {
			Content text `json:"content"`
		}
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Content    text   `json:"content"` // Anthropic's, of a whole answer
	StopReason string `json:"stop_reason"`
	Delta      struct {
		Text       string `json:"text"`
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
		Text string `json:"text"`
	}
	if json.Unmarshal(b, &parts) == nil {
		for _, p := range parts {
			*t += text(p.Text)
		}
	}
	return nil
}

// said returns the text of an answer, without what the model thought before, and whether a limit of tokens ended it.
func said(body []byte, events bool) (string, bool) {
	var b strings.Builder
	cut := false
	read := func(data []byte) {
		var e event
		_ = json.Unmarshal(data, &e) // what it cannot read stays empty
		for _, c := range e.Choices {
			b.WriteString(string(c.Delta.Content))
			b.WriteString(string(c.Message.Content))
			cut = cut || c.FinishReason == "length"
		}
		b.WriteString(string(e.Content))
		b.WriteString(e.Delta.Text)
		cut = cut || e.StopReason == "max_tokens" || e.Delta.StopReason == "max_tokens"
	}
	if !events {
		read(body)
		return b.String(), cut
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
	return b.String(), cut
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

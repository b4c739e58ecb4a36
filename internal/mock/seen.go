package mock

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// Seen is what a client that takes nothing for granted has seen of a streamed chat answer so far. The zero value is the
// beginning.
type Seen struct {
	Tokens   int    // events with content
	Who      string // the name of the engine that answers, as its first token says
	Finished bool   // a finish reason came
	Done     bool   // [DONE] came
	Failure  string // the code of an error event, or NotJSON
	Late     bool   // something came after the end
}

// NotJSON is the failure of an event that cannot be read.
const NotJSON = "not JSON"

// Line takes a line of the stream; lines that hold no data change nothing.
func (s *Seen) Line(line []byte) {
	if data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:")); ok {
		s.event(bytes.TrimSpace(data))
	}
}

func (s *Seen) event(data []byte) {
	s.Late = s.Late || s.Done || s.Failure != ""
	if string(data) == "[DONE]" {
		s.Done = true
		return
	}
	var e struct {
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			Delta struct {
				Content string `json:"content"`
			} `json:"delta"`
			FinishReason *string `json:"finish_reason"`
		} `json:"choices"`
	}
	if json.Unmarshal(data, &e) != nil {
		s.Failure = NotJSON
		return
	}
	if len(e.Error) > 0 {
		s.Failure = cmp.Or(ErrorCode(data), "without a code")
	}
	for _, c := range e.Choices {
		if c.Delta.Content != "" {
			if s.Tokens++; s.Tokens == 1 {
				s.Who = whoSays(c.Delta.Content)
			}
		}
		s.Finished = s.Finished || c.FinishReason != nil && *c.FinishReason != ""
	}
}

func whoSays(text string) string {
	who, _, _ := strings.Cut(strings.TrimPrefix(text, "["), "]")
	return who
}

// Who is the name of the engine that gave a chat answer that was not streamed, "" if it is none.
func Who(body []byte) string {
	var v struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if json.Unmarshal(body, &v) != nil || len(v.Choices) == 0 {
		return ""
	}
	return whoSays(v.Choices[0].Message.Content)
}

// ErrorCode is the code, else the type, of an error in JSON; "" if it is none, or has neither.
func ErrorCode(body []byte) string {
	var e struct {
		Error struct {
			Code any    `json:"code"` // text, in some dialects a number
			Type string `json:"type"`
		} `json:"error"`
	}
	switch {
	case json.Unmarshal(body, &e) != nil:
		return ""
	case e.Error.Code != nil:
		return fmt.Sprint(e.Error.Code)
	}
	return e.Error.Type
}

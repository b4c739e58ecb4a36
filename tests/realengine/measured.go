package realengine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Message is one of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Question is one that a chat asks for a streamed answer.
type Question struct {
	URL, Model string
	Messages   []Message
	Tokens     int         // of the answer
	Seed       int         // by which it is drawn
	Header     http.Header // to be sent besides; nil = none
}

// Answer is a streamed chat completion with its times, as the client saw it.
type Answer struct {
	Sent                   time.Time
	TTFT, Total            time.Duration // from Sent to the first and to the last content
	Prompt, Cached, Output int           // tokens
	Text                   string
	Header                 http.Header
}

// patience is how long a client waits for the end of an answer.
const patience = 5 * time.Minute

// Ask asks on a connection of its own, and reads the answer to its end.
func Ask(ctx context.Context, q Question) (a Answer, err error) {
	body, err := json.Marshal(map[string]any{
		"model": q.Model, "messages": q.Messages, "max_tokens": q.Tokens, "seed": q.Seed, "ignore_eos": true,
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, q.URL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	for name, values := range q.Header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	a.Sent = time.Now()
	resp, err := (&http.Client{Timeout: patience}).Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a.Header = resp.Header
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return a, fmt.Errorf("%s: %s", resp.Status, text)
	}
	var text strings.Builder
	done := false
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if done = data == "[DONE]"; done {
			break
		}
		if err := a.take(data, &text); err != nil {
			return a, fmt.Errorf("%w in %s", err, data)
		}
	}
	a.Text = text.String()
	switch {
	case lines.Err() != nil:
		return a, lines.Err()
	case !done || a.Output == 0 || a.TTFT == 0:
		return a, fmt.Errorf("an answer without end, usage or content: %+v", a)
	}
	return a, nil
}

// take reads one event of the stream.
func (a *Answer) take(data string, text *strings.Builder) error {
	var event struct {
		Error   json.RawMessage
		Choices []struct{ Delta struct{ Content string } }
		Usage   *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(data), &event); err != nil {
		return err
	}
	if event.Error != nil {
		return errors.New("an error")
	}
	if u := event.Usage; u != nil {
		a.Prompt, a.Cached, a.Output = u.Prompt, u.Details.Cached, u.Completion
	}
	for _, c := range event.Choices {
		if c.Delta.Content == "" {
			continue
		}
		a.Total = time.Since(a.Sent)
		if a.TTFT == 0 {
			a.TTFT = a.Total
		}
		text.WriteString(c.Delta.Content)
	}
	return nil
}

// Tokens returns the tokens of a chat as the server's engine gets it, followed by what it answered.
func (s *Server) Tokens(messages []Message, answer string) ([]int, error) {
	var rendered struct{ Prompt string }
	if err := s.ask("/apply-template", map[string]any{"messages": messages}, &rendered); err != nil {
		return nil, err
	}
	var out struct{ Tokens []int }
	err := s.ask("/tokenize", map[string]any{"content": rendered.Prompt + answer, "add_special": true, "parse_special": true}, &out)
	return out.Tokens, err
}

func (s *Server) ask(path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("POST %s: %s", req.URL, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// CPU returns how long the server's threads have run so far, and how long they waited for a processor.
func (s *Server) CPU() (ran, waited time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.process.PID()))
	if err != nil || len(files) == 0 {
		return 0, 0, errors.New("this system does not say how long threads wait for a processor")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // that thread has just ended
		}
		if err != nil {
			return 0, 0, err
		}
		var r, w int64
		if _, err := fmt.Sscan(string(text), &r, &w); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", file, err)
		}
		ran, waited = ran+time.Duration(r), waited+time.Duration(w)
	}
	return ran, waited, nil
}

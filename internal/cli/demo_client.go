package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// verdict is what a client says about its answer.
type verdict int

const (
	answerComplete verdict = iota // every token, a finish reason, [DONE]
	answerToldCut                 // content, then an error event: the client knows that it is not the whole answer
	answerFailed                  // anything else
	answerDropped                 // the demo was interrupted
)

// answer is one request as its client saw it.
type answer struct {
	verdict  verdict
	reason   string // of answerFailed: one of few, they are counted
	engine   string // that sent the content, as the balancer says
	attempts int
	cuts     map[string]int // engines that could not be chosen, by reason
	tokens   int            // received
	began    time.Time
	ended    time.Time
	ttft     time.Duration // 0 if no content came
}

// demoClient sends the demo's requests.
type demoClient struct {
	http *http.Client
	url  string
}

// ask sends a request and reads its answer to the end. first is called when the first content is there.
func (c *demoClient) ask(ctx context.Context, body []byte, tokens int, first func(engine string, ttft time.Duration)) (a answer) {
	a.began = time.Now()
	defer func() {
		a.ended = time.Now()
		if a.verdict == answerFailed && ctx.Err() != nil {
			a.verdict, a.reason = answerDropped, ""
		}
	}()
	fail := func(reason string) answer {
		a.verdict, a.reason = answerFailed, reason
		return a
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return fail(err.Error())
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return fail("no answer: " + innermost(err))
	}
	defer res.Body.Close()
	a.engine, _, _ = strings.Cut(res.Header.Get("x-evenkeel-deployment"), "/")
	a.attempts, _ = strconv.Atoi(res.Header.Get("x-evenkeel-attempts")) // 0 if there was none
	a.cuts = cutReasons(res.Header.Get("x-evenkeel-decision"))
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // what came of it may hold the code
		return fail(fmt.Sprintf("status %d %s", res.StatusCode, errorCode(text)))
	}
	s := readStream(res.Body, func() {
		a.ttft = time.Since(a.began)
		first(a.engine, a.ttft)
	})
	a.tokens = s.tokens
	a.verdict, a.reason = s.judge(a.engine, tokens)
	return a
}

// innermost is the last of a chain of errors: the address and the URL in the outer ones differ from request to request.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// cutReasons reads the header x-evenkeel-decision: what follows the counts of candidates are reasons.
func cutReasons(header string) map[string]int {
	cuts := map[string]int{}
	for part := range strings.SplitSeq(header, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "", "strategy", "candidates", "eligible":
			continue
		}
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			cuts[name] = n
		}
	}
	return cuts
}

// stream is what came of a streamed answer.
type stream struct {
	tokens   int    // events with content
	who      string // the engine's name, which the mock engines say in their first token
	finished bool   // a finish reason came
	failure  string // the code of an error event
	done     bool   // [DONE] came
	late     bool   // something came after the end
	err      error  // how reading ended, nil for a regular end of the body
}

// readStream reads server-sent events to the end of the body. first is called at the first content.
func readStream(body io.Reader, first func()) (s stream) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		s.event(bytes.TrimSpace(data), first)
	}
	s.err = lines.Err()
	return s
}

func (s *stream) event(data []byte, first func()) {
	s.late = s.late || s.done || s.failure != ""
	if string(data) == "[DONE]" {
		s.done = true
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
	if err := json.Unmarshal(data, &e); err != nil {
		s.failure = "not JSON"
		return
	}
	if len(e.Error) > 0 {
		s.failure = errorCode(data)
	}
	for _, c := range e.Choices {
		if c.Delta.Content != "" {
			if s.tokens++; s.tokens == 1 {
				s.who, _, _ = strings.Cut(strings.TrimPrefix(c.Delta.Content, "["), "]")
				first()
			}
		}
		s.finished = s.finished || c.FinishReason != nil && *c.FinishReason != ""
	}
}

// errorCode is the code, else the type, of an error in JSON.
func errorCode(body []byte) string {
	var e struct {
		Error struct {
			Code any    `json:"code"` // text, in some dialects a number
			Type string `json:"type"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) != nil {
		return "without a code"
	}
	if e.Error.Code != nil {
		return fmt.Sprint(e.Error.Code)
	}
	if e.Error.Type != "" {
		return e.Error.Type
	}
	return "without a code"
}

// judge holds an answer against what was asked for: tokens from one engine.
func (s *stream) judge(engine string, tokens int) (verdict, string) {
	switch {
	case s.late:
		return answerFailed, "something came after the end"
	case s.failure != "" && s.tokens == 0:
		return answerFailed, "an error event before any content: " + s.failure
	case s.err != nil:
		return answerFailed, "broke off without an error event: " + innermost(s.err)
	case s.tokens > 0 && s.who != engine:
		return answerFailed, "another engine than the balancer says"
	case s.failure == "not JSON":
		return answerFailed, "an event that is not JSON"
	case s.failure != "":
		return answerToldCut, ""
	case !s.done:
		return answerFailed, "ended without [DONE] and without an error event"
	case !s.finished:
		return answerFailed, "no finish reason"
	case s.tokens != tokens:
		return answerFailed, "tokens lost or doubled"
	}
	return answerComplete, ""
}

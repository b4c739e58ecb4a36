package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"evenkeel/internal/mock"
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
		return fail(fmt.Sprintf("status %d %s", res.StatusCode, cmp.Or(mock.ErrorCode(text), "without a code")))
	}
	s := readStream(res.Body, func() {
		a.ttft = time.Since(a.began)
		first(a.engine, a.ttft)
	})
	a.tokens = s.Tokens
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
	mock.Seen
	err error // how reading ended, nil for a regular end of the body
}

// readStream reads server-sent events to the end of the body. first is called at the first content.
func readStream(body io.Reader, first func()) (s stream) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before := s.Tokens
		if s.Line(lines.Bytes()); before == 0 && s.Tokens > 0 {
			first()
		}
	}
	s.err = lines.Err()
	return s
}

// judge holds an answer against what was asked for: tokens from one engine.
func (s *stream) judge(engine string, tokens int) (verdict, string) {
	switch {
	case s.Late:
		return answerFailed, "something came after the end"
	case s.Failure != "" && s.Tokens == 0:
		return answerFailed, "an error event before any content: " + s.Failure
	case s.err != nil:
		return answerFailed, "broke off without an error event: " + innermost(s.err)
	case s.Tokens > 0 && s.Who != engine:
		return answerFailed, "another engine than the balancer says"
	case s.Failure == mock.NotJSON:
		return answerFailed, "an event that is not JSON"
	case s.Failure != "":
		return answerToldCut, ""
	case !s.Done:
		return answerFailed, "ended without [DONE] and without an error event"
	case !s.Finished:
		return answerFailed, "no finish reason"
	case s.Tokens != tokens:
		return answerFailed, "tokens lost or doubled"
	}
	return answerComplete, ""
}

package health

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/upstream"
)

// maxAnswer bounds what is read of the answer to a probe, in bytes.
const maxAnswer = 256 << 10

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// completion is the body of a probe, in the words of OpenAI or Anthropic.
type completion struct {
	Model               string         `json:"model"`
	Messages            []message      `json:"messages"`
	MaxTokens           int            `json:"max_tokens,omitempty"`
	MaxCompletionTokens int            `json:"max_completion_tokens,omitempty"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options,omitempty"`
}

// request is what a deployment is asked.
func (p *Plan) request(e *Endpoint, model string) (*upstream.Request, error) {
	c := completion{Model: model, Messages: []message{{"user", p.Prompt}}, MaxTokens: p.MaxTokens, Stream: true}
	path := "/v1/chat/completions"
	switch e.Kind.Name {
	case "anthropic":
		path = "/v1/messages"
	case "openai": // its reasoning models refuse max_tokens
		c.MaxTokens, c.MaxCompletionTokens = 0, p.MaxTokens
		c.StreamOptions = &streamOptions{true}
	case "openai-compatible", "triton": // some refuse what they do not know
	default:
		c.StreamOptions = &streamOptions{true}
	}
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	h := e.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "text/event-stream")
	return &upstream.Request{Method: http.MethodPost, Path: path, Header: h, Body: [3][]byte{body}}, nil
}

// ask sends a deployment the prompt, reads the answer and judges it.
func (p *Plan) ask(ctx context.Context, e *Endpoint, d *Deployment) Result {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	r, err := p.request(e, d.Model)
	if err != nil { // no prompt and no model makes JSON fail
		return Result{Verdict: Unknown, Reason: llm.ClientFault.String()}
	}
	begun := time.Now()
	res, stop, err := send(ctx, e.Caller, r)
	if err != nil {
		return lost(ctx, err)
	}
	defer stop()
	defer res.Body.Close()
	a := newAnswer(res, llm.APIOf(r.Method, r.Path))
	a.read(res.Body, begun)
	result := p.judge(ctx, e, res, a)
	if result.Verdict == OK || result.Verdict == Missed {
		result.Input, result.Output = a.tokens(p.Prompt)
	}
	return result
}

// send makes a call that ends with ctx. stop must be called once the answer was read. A connection that was too old
// says nothing about the endpoint: another one is tried.
func send(ctx context.Context, c Caller, r *upstream.Request) (res *http.Response, stop func() bool, err error) {
	for first := true; ; first = false {
		s := &upstream.Stop{}
		stop = context.AfterFunc(ctx, s.Cancel)
		if res, err = c.Do(s, r); err == nil {
			return res, stop, nil
		}
		stop()
		var failed *upstream.Error
		if !first || !errors.As(err, &failed) || failed.Class != llm.Stale {
			return nil, nil, err
		}
	}
}

// lost is the result of a call without an answer.
func lost(ctx context.Context, err error) Result {
	var failed *upstream.Error
	switch {
	case ctx.Err() != nil:
		return Result{Verdict: Failed, Reason: llm.Timeout.String()}
	case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE): // ours
		return Result{Verdict: Unknown, Reason: noFiles}
	case !errors.As(err, &failed):
		return Result{Verdict: Failed, Reason: llm.Connect.String()}
	case failed.Unreachable:
		return Result{Verdict: Failed, Reason: unreachable, unreachable: true}
	case failed.Class == llm.Stale:
		return Result{Verdict: Unknown, Reason: failed.Class.String()}
	}
	return Result{Verdict: Failed, Reason: failed.Class.String()}
}

// judge says what an answer is worth.
func (p *Plan) judge(ctx context.Context, e *Endpoint, res *http.Response, a *answer) Result {
	r := Result{TTFT: a.ttft}
	if class := a.class(ctx, res.StatusCode); class != llm.None {
		r.Verdict, r.Reason = Failed, class.String()
		later, _ := llm.RetryAfter(res.Header, a.err(), time.Now())
		switch {
		case class == llm.ClientFault, class == llm.RateLimited, class == llm.Loading, later > 0: // who says when to come back is busy, not ill
			r.Verdict = Unknown
		case class == llm.Auth && e.Header.Get(e.Kind.CredentialHeader) == "": // the clients bring theirs
			r.Verdict = Unknown
		}
		return r
	}
	r.Verdict = OK
	if p.Expect != nil {
		if w := said(a.bytes, a.stream != nil); !p.matches(a, w) {
			r.Verdict, r.Reason, r.Said, r.Expected = Missed, mismatch, e.shown(w), p.Expect.String()
		}
	}
	return r
}

// matches reports whether an answer, which says w, is as expected, also where it says nothing, and was cut off before by the timeout or the
// limit of tokens, or is of a model that only thought.
func (p *Plan) matches(a *answer, w words) bool {
	return p.Expect.MatchString(w.text) || a.broke != nil || (w.cut || w.thought) && strings.TrimSpace(w.text) == ""
}

// answer is what came back for a probe.
type answer struct {
	stream *llm.Stream // one of them is nil
	body   *llm.Body
	bytes  []byte
	ttft   time.Duration
	broke  error // why it did not come to its end
}

func newAnswer(res *http.Response, api llm.API) *answer {
	kind, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	if res.StatusCode < 300 && strings.TrimSpace(kind) == "text/event-stream" {
		return &answer{stream: llm.NewStream(api, llm.SSE)}
	}
	return &answer{body: llm.NewBody(api)}
}

var errTooLong = errors.New("the answer to a probe is too long")

// read reads to the end of the answer, which some servers do not mark with that of the connection.
func (a *answer) read(from io.Reader, begun time.Time) {
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		a.bytes = append(a.bytes, buf[:n]...)
		if a.stream != nil {
			a.stream.Feed(buf[:n])
			if a.ttft == 0 && a.stream.Content() {
				a.ttft = time.Since(begun)
			}
		} else {
			a.body.Feed(buf[:n])
		}
		switch {
		case err == io.EOF:
			if a.stream != nil {
				a.stream.End()
			}
			return
		case a.stream != nil && a.stream.Done():
			return
		case err != nil:
			a.broke = err
			return
		case len(a.bytes) > maxAnswer:
			a.broke = errTooLong
			return
		}
	}
}

func (a *answer) err() *llm.UpstreamError {
	if a.stream != nil {
		return a.stream.Err()
	}
	if err := a.body.Err(); err != nil {
		return err
	}
	return a.body.Flat()
}

// begun reports whether something of the answer itself has come.
func (a *answer) begun() bool { return a.stream != nil && (a.stream.Content() || a.stream.Terminal()) }

// class says what is wrong with the answer. One that has begun when the time is up is as good as one that has ended.
func (a *answer) class(ctx context.Context, status int) llm.Class {
	class, _ := llm.Classify(status, a.err())
	switch {
	case class != llm.None:
		return class
	case a.broke == nil && a.whole() || a.begun() && ctx.Err() != nil:
		return llm.None
	case a.broke == nil:
		return llm.Truncated
	case ctx.Err() != nil:
		return llm.Timeout
	}
	return upstream.BrokenBody(a.broke)
}

// whole reports whether the answer says that it is. A model that only thought until the limit of tokens has answered.
func (a *answer) whole() bool {
	if a.stream != nil {
		return a.stream.Terminal()
	}
	return len(a.bytes) > 0 && !a.body.Open()
}

// tokens is what the answer cost.
func (a *answer) tokens(prompt string) (input, output int) {
	u, estimate := llm.Usage{}, 0
	if a.stream != nil {
		u, estimate = a.stream.Usage(), a.stream.OutputEstimate()
	} else {
		u, estimate = a.body.Usage(), a.body.OutputEstimate()
	}
	if u.Reported {
		return u.Input, u.Output
	}
	return PromptTokens(prompt), estimate
}

// PromptTokens estimates what a prompt costs, in tokens: about one for each four bytes, and what surrounds it.
func PromptTokens(prompt string) int { return (len(prompt)+3)/4 + promptOverhead }

// promptOverhead is what chat templates put around one message, in tokens.
const promptOverhead = 8

package mock

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"evenkeel/internal/engine"
)

const jsonType = "application/json"

// dialects are the API calls by path.
var dialects = map[string]dialect{
	"/v1/chat/completions":      chat{},
	"/v1/completions":           completion{},
	"/v1/responses":             responses{},
	"/v1/embeddings":            embeddings{},
	"/v1/messages":              messages{},
	"/v1/messages/count_tokens": countTokens{},
}

// handle answers c.req. An error ends the connection.
func (c *conn) handle() error {
	if err := c.readBody(); err != nil {
		if errors.Is(err, errBodyTooBig) {
			c.last = true
			c.fail(c.dialect(), problem{status: http.StatusRequestEntityTooLarge, message: "the request body is above 64 MiB"})
		}
		return err
	}
	path := c.req.URL.Path
	if strings.HasPrefix(path, "/mock/") {
		return c.control(path)
	}
	c.engine.record.add(c.req, c.body)
	if c.req.Header.Get("X-Mock-Echo") == "1" {
		kind := c.req.Header.Get("Content-Type")
		return c.respond(http.StatusOK, kind, c.body)
	}
	if c.req.Method == http.MethodPost && dialects[path] != nil {
		return c.counted(dialects[path])
	}
	f := c.faultFor(false)
	if done, err := c.door(f); done {
		return err
	}
	if f != nil && f.Kind == "hang" {
		return c.hang()
	}
	if !c.authorized() {
		return c.refuseKey()
	}
	return c.static(path)
}

// dialect is the one whose errors a client of this path understands.
func (c *conn) dialect() dialect {
	if d := dialects[c.req.URL.Path]; d != nil {
		return d
	}
	return chat{}
}

func (c *conn) fail(d dialect, p problem, extra ...string) error {
	return c.respond(p.status, jsonType, d.problem(nil, p), extra...)
}

func (c *conn) authorized() bool {
	key := c.engine.cfg.APIKey
	return key == "" || !strings.HasPrefix(c.req.URL.Path, "/v1/") ||
		c.req.Header.Get("Authorization") == "Bearer "+key || c.req.Header.Get("X-Api-Key") == key
}

func (c *conn) refuseKey() error {
	return c.fail(c.dialect(), problem{status: http.StatusUnauthorized, code: "invalid_api_key", message: "the API key is missing or wrong"})
}

// counted answers an API call and counts how it ended.
func (c *conn) counted(d dialect) error {
	n := &c.engine.count
	n.started.Add(1)
	c.counting = true
	c.began = time.Now()
	err := c.call(d)
	switch {
	case err == nil:
		n.completed.Add(1)
	case errors.Is(err, errClientGone):
		n.aborted.Add(1)
	case errors.Is(err, errEndedEarly):
		n.cut.Add(1)
		return nil
	default:
		n.cut.Add(1)
	}
	return err
}

// call answers an API call.
func (c *conn) call(d dialect) error {
	f := c.faultFor(true)
	if done, err := c.door(f); done {
		return err
	}
	if !c.authorized() {
		return c.refuseKey()
	}
	in, err := parseCall(c.body, len(c.session.drivers) > 0)
	if err != nil {
		return c.fail(d, problem{status: http.StatusBadRequest, message: err.Error()})
	}
	if in.model == nil {
		return c.fail(d, problem{status: http.StatusBadRequest, message: "model is required", param: "model"})
	}
	if field, why := d.flaw(&in); field != "" {
		return c.fail(d, problem{status: http.StatusBadRequest, message: why, param: field})
	}
	model := c.engine.models[string(in.model)]
	if model == nil {
		return c.unknownModel(d, string(in.model))
	}
	a := &c.answer
	a.prepare(c.engine, in, model)
	if _, ok := d.(embeddings); ok {
		a.tokens, a.stream = 0, false
	}
	if _, ok := d.(countTokens); ok {
		return c.respond(http.StatusOK, jsonType, d.whole(nil, a))
	}
	p, err := c.admit(a, f)
	switch {
	case errors.Is(err, errClientGone), errors.Is(err, errCut):
		return err
	case errors.Is(err, errQueueFull):
		return c.fail(d, problem{status: http.StatusServiceUnavailable, message: err.Error(), code: "queue_full"})
	case err != nil:
		return c.fail(d, impossible(err))
	}
	defer p.leave()
	if err := c.run(d, a, f, p); err != nil {
		return err
	}
	c.engine.succeeded(a, c.began)
	return nil
}

// succeeded counts an answer that was given to the end.
func (e *Engine) succeeded(a *answer, began time.Time) {
	e.e2e.observe(int64(time.Since(began)), 1)
	e.promptLengths.observe(int64(a.promptTokens()), 1)
	e.outputLengths.observe(int64(a.tokens), 1)
	if a.limited {
		e.count.limited.Add(1)
	} else {
		e.count.stopped.Add(1)
	}
}

func (c *conn) unknownModel(d dialect, model string) error {
	return c.fail(d, problem{status: http.StatusNotFound, param: "model", code: "model_not_found",
		message: "The model `" + model + "` does not exist."})
}

// impossible is what a client is told of a request that the timing model cannot take.
func impossible(err error) problem {
	if long, ok := errors.AsType[*engine.TooLongError](err); ok {
		return problem{status: http.StatusBadRequest, code: "context_length_exceeded", message: fmt.Sprintf(
			"This model's maximum context length is %d tokens, and the request needs %d: %d for the prompt and %d for the answer.",
			long.Room, long.PromptTokens+long.OutputTokens, long.PromptTokens, long.OutputTokens)}
	}
	if rank, ok := errors.AsType[*rankError](err); ok {
		return problem{status: http.StatusBadRequest, message: rank.Error()}
	}
	return problem{status: http.StatusBadRequest, param: "mock",
		message: "mock.prompt_blocks and mock.output_blocks must fit the lengths: " + err.Error()}
}

// admit gives the answer a place in the engine. Besides those of a connection, the error is errQueueFull or for the client.
func (c *conn) admit(a *answer, f *Fault) (pace, error) {
	if len(c.session.drivers) > 0 {
		d, err := c.session.rank(c.req.Header.Get("X-Data-Parallel-Rank"))
		if err != nil {
			return nil, err
		}
		return c.modelled(d, a)
	}
	factor := 1.0
	if f != nil && f.Kind == "slow" {
		factor = f.Factor
	}
	return c.fixed(a, factor)
}

// run answers an admitted call in the engine's time.
func (c *conn) run(d dialect, a *answer, f *Fault, p pace) error {
	if f != nil {
		switch f.Kind {
		case "hang":
			return c.hang()
		case "no_usage":
			a.usage = false
		case "big_event":
			a.pad, a.padAt = f.Size, min(f.After, a.tokens-1)
		}
	}
	if a.stream {
		s := stream{c: c, d: d, a: a, f: f, p: p}
		return s.play()
	}
	if err := c.firstToken(a, p); err != nil {
		return err
	}
	if err := p.wait(max(0, a.tokens-1)); err != nil {
		return err
	}
	if gaps := int64(a.tokens - 1); gaps > 0 {
		c.engine.gaps.observe(int64(time.Since(c.latest))/gaps, gaps)
	}
	if err := c.whole(d, a, f); err != nil {
		return err
	}
	c.engine.count.outputTokens.Add(int64(a.tokens))
	return nil
}

// firstToken waits for it and counts the prompt.
func (c *conn) firstToken(a *answer, p pace) error {
	if err := p.wait(0); err != nil {
		return err
	}
	a.cached = p.cached()
	c.engine.count.promptTokens.Add(int64(a.promptTokens()))
	c.latest = time.Now()
	c.engine.ttft.observe(int64(c.latest.Sub(c.began)), 1)
	return nil
}

// hang lasts until the client leaves or the engine is closed.
func (c *conn) hang() error {
	if err := c.park(c.session.closing.Load); err != nil {
		return err
	}
	return errCut
}

// door applies the faults that come before the request is understood. done: it is answered, or never will be.
func (c *conn) door(f *Fault) (done bool, err error) {
	if f == nil {
		return false, nil
	}
	if f.Delay > 0 && f.delaysRequest() {
		if err := c.sleep(time.Now().Add(time.Duration(f.Delay))); err != nil {
			return true, err
		}
	}
	switch {
	case f.Kind == "status":
		var extra []string
		if f.RetryAfter != "" {
			extra = []string{"retry-after: " + f.RetryAfter}
		}
		if f.Body != "" {
			return true, c.respond(f.Status, jsonType, []byte(f.Body), extra...)
		}
		return true, c.fail(c.dialect(), problem{status: f.Status, message: "a fault of the mock engine"}, extra...)
	case f.Kind == "close":
		return true, errCut
	case f.Kind == "reset" && f.After == 0:
		c.reset()
		return true, errCut
	case f.Kind == "malformed" && f.Variant == "status_line":
		c.out = append(c.out, "HTTP/one-point-one two hundred\r\nno colon here\r\n\r\n"...)
		if err := c.flush(); err != nil {
			return true, err
		}
		return true, errCut
	}
	return false, nil
}

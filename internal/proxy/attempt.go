package proxy

import (
	"errors"
	"net/http"
	"net/textproto"
	"strings"
	"syscall"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/upstream"
)

// attempt makes one upstream call and returns how it ended. What was answered is left in c.reply: passed on
// as far as the exchange committed to it, the rest held.
func (c *call) attempt(l *route.Lease) *exchange.End {
	c.mu.Lock()
	if c.dispatched.IsZero() {
		c.dispatched = time.Now()
	}
	c.reply.discard()
	c.stop.Reset()
	if c.stopped { // the client left while this attempt was being decided
		c.stop.Cancel()
	}
	c.running = true
	c.mu.Unlock()

	d := l.Deployment()
	endpoint := c.endpoint(d)
	if endpoint == nil {
		c.end = exchange.End{Class: llm.Connect, Outcome: route.Outcome{Class: llm.Connect.String(), Detail: "the endpoint left the configuration"}}
		return &c.end
	}
	res, err := endpoint.Do(&c.stop, c.outgoing(d))
	if err != nil {
		return c.failed(err)
	}
	c.reply.began(res, l, endpoint)
	return c.reply.receive()
}

// endpoint finds where a deployment is served: in the newest generation, which may have it new, else in the
// one this request began with.
func (c *call) endpoint(d *route.Deployment) *upstream.Endpoint {
	if e := c.p.Current().Endpoints[d.Endpoint]; e != nil {
		return e
	}
	return c.g.Endpoints[d.Endpoint]
}

func (c *call) outgoing(d *route.Deployment) *upstream.Request {
	r := &c.out
	*r = upstream.Request{Method: c.r.Method, Path: c.r.URL.EscapedPath(), Query: c.r.URL.RawQuery, Header: c.header}
	if c.req.Model != "" && d.Model != c.req.Model {
		r.Body[0], r.Body[1], r.Body[2] = c.req.Splice(c.body, d.Model)
	} else {
		r.Body[0] = c.body
	}
	return r
}

// failed is the end of an attempt that got no response.
func (c *call) failed(err error) *exchange.End {
	end := &c.end
	*end = exchange.End{Class: llm.Reset, Sent: true, Broken: true}
	var failed *upstream.Error
	if errors.As(err, &failed) {
		end.Class, end.Sent = failed.Class, failed.Sent
		end.Outcome.Fault = faultOf(failed)
		err = failed.Err // its class is told beside it
	}
	end.Outcome.Detail = detailOf(err)
	end.Outcome.Class = end.Class.String()
	end.Outcome.Verdict = route.DeploymentFault
	switch {
	case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE): // ours: there is no file descriptor
		end.Outcome.Verdict = route.NotDeploymentFault
	case end.Class == llm.Stale || end.Class == llm.None: // nobody's fault; and None is our own doing, which the exchange knows
		end.Outcome.Verdict = route.NotDeploymentFault
	}
	return end
}

// faultOf says what a call that got no response was about.
func faultOf(e *upstream.Error) route.Fault {
	switch {
	case e.Unreachable:
		return route.Unreachable
	case e.Class == llm.Reset:
		return route.Reset
	}
	return route.Failure
}

// detailOf words an error for people. What the standard library says of an answer that it could not read holds
// bytes of that answer, which may be anything, a key or a prompt too: they stay out of it.
func detailOf(err error) string {
	var header textproto.ProtocolError // quotes nothing
	if errors.As(err, &header) {
		return "malformed header"
	}
	text, _, _ := strings.Cut(err.Error(), `"`)
	text = strings.ReplaceAll(text, ": connect: ", ": ") // the name of the system call says nothing more
	return strings.TrimRight(text[:min(len(text), 200)], ": ")
}

func isJSON(res *http.Response) bool { return mediaType(res) == "application/json" }

// mediaType is the content type without its parameters, in lower case.
func mediaType(res *http.Response) string {
	kind, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	return strings.TrimSpace(kind)
}

// generates reports whether the request asks for inference: only there an `error` member in a 200 is a failure.
// Elsewhere it may be what was asked for, as in the state of a job.
func (c *call) generates() bool { return c.r.Method == http.MethodPost && c.api.NeedsModel }

// judge classifies a response by its head and what its meter saw. ownKey says that the credential was ours.
func judge(res *http.Response, failed *llm.UpstreamError, ownKey bool) (llm.Class, route.Outcome) {
	class := llm.Classify(res.StatusCode, failed)
	if class == llm.Auth && !ownKey {
		class = llm.ClientFault // upstream's judgement of the client passes through
	}
	o := route.Outcome{Answered: true, Status: res.StatusCode}
	switch class {
	case llm.None:
		o.Verdict = route.Success
	case llm.ClientFault:
		o.Verdict = route.NotDeploymentFault
	default:
		o.Verdict = route.DeploymentFault
		o.RetryAfter, _ = llm.RetryAfter(res.Header, time.Now()) // none: 0
		if failed != nil && o.RetryAfter == 0 {
			o.RetryAfter = failed.RetryAfter
		}
	}
	if class != llm.None {
		o.Class = class.String()
		switch {
		case class == llm.Auth:
			o.Detail = "the endpoint's own api_key was refused"
		case failed != nil && res.StatusCode < 300:
			o.Detail = "an error in the answer"
		}
	}
	return class, o
}

// shape says how an answer is to be passed on.
type shape uint8

const (
	whole    shape = iota // held until complete or too large
	events                // server-sent events
	lines                 // newline-delimited JSON
	bytesRaw              // anything else that arrives bit by bit
)

func shapeOf(res *http.Response, streamed bool) shape {
	if res.StatusCode < 200 || res.StatusCode > 299 || res.StatusCode == http.StatusNoContent || res.Request.Method == http.MethodHead {
		return whole
	}
	kind := mediaType(res)
	switch {
	case kind == "text/event-stream":
		return events
	case kind == "application/x-ndjson" || kind == "application/jsonl":
		return lines
	case streamed && res.ContentLength < 0:
		return bytesRaw
	case strings.HasPrefix(kind, "audio/") || kind == "application/octet-stream":
		return bytesRaw
	}
	return whole
}

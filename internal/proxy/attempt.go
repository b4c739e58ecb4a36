package proxy

import (
	"bytes"
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

// attempt makes one upstream call and returns how it ended. What was answered is left in r: passed on as far as the
// exchange committed to it, the rest held.
func (r *reply) attempt(l *route.Lease) *exchange.End {
	r.prepare(l)
	return r.ask()
}

func (r *reply) prepare(l *route.Lease) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.prepareLocked(l)
}

// prepareLocked makes ready for an attempt. Callers hold mu.
func (r *reply) prepareLocked(l *route.Lease) {
	c, d := r.c, l.Deployment()
	if c.dispatched.IsZero() {
		c.dispatched = time.Now()
	}
	r.discard()
	r.stop.Reset()
	if r.stopped { // the client left while this attempt was being decided
		r.stop.Cancel()
	}
	r.running, r.lease, r.endpoint = true, l, c.endpoint(d)
	r.outgoing(d)
}

// ask makes the upstream call.
func (r *reply) ask() *exchange.End {
	if r.endpoint == nil {
		r.ended = exchange.End{Class: llm.Connect, Outcome: route.Outcome{Class: llm.Connect.String(), Detail: "the endpoint left the configuration"}}
		return &r.ended
	}
	res, err := r.endpoint.Do(&r.stop, &r.out)
	if err != nil {
		return r.failed(err)
	}
	r.began(res)
	r.overhear()
	return r.receive()
}

// endpoint finds where a deployment is served: in the newest generation, which may have it new, else in the
// one this request began with.
func (c *call) endpoint(d *route.Deployment) *upstream.Endpoint {
	if e := c.p.Current().Endpoints[d.Endpoint]; e != nil {
		return e
	}
	return c.g.Endpoints[d.Endpoint]
}

// outgoing makes the request for a deployment.
func (r *reply) outgoing(d *route.Deployment) {
	c, out := r.c, &r.out
	*out = upstream.Request{Method: c.r.Method, Path: c.r.URL.EscapedPath(), Query: c.r.URL.RawQuery, Header: c.header, Rank: d.Rank, Fresh: c.stale}
	if c.req.Model != "" && d.Model != c.req.Model {
		out.Body[0], out.Body[1], out.Body[2] = c.req.Splice(c.body, d.Model)
	} else {
		out.Body[0] = c.body
	}
}

// failed is the end of an attempt that got no response.
func (r *reply) failed(err error) *exchange.End {
	end := &r.ended
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
	if end.Class == llm.Stale {
		r.c.mu.Lock()
		r.c.stale = true
		r.c.mu.Unlock()
	}
	return end
}

// faultOf says what a call that got no response was about.
func faultOf(e *upstream.Error) route.Fault {
	switch {
	case e.Unreachable:
		return route.Unreachable
	case e.Class == llm.Reset && e.Sent: // the request may be what it cannot bear: a few such must not take everybody out
		return route.BrokeOff
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

// judge classifies the answer by its head and the error that its meter saw, if it saw one.
func (r *reply) judge(failed *llm.UpstreamError) (llm.Class, route.Outcome) {
	status := r.res.StatusCode
	class, reason := llm.Classify(status, failed)
	ownKey := r.endpoint.HasKey()
	if class == llm.Auth && !ownKey || class == llm.Exhausted && !ownKey && r.c.g.PassCredential {
		class = llm.ClientFault // upstream's judgement of the client passes through
	}
	noRank := class == llm.ClientFault && r.lease.Deployment().Rank != "" && llm.LacksRank(failed)
	if noRank {
		class = llm.NotServed
	}
	o := route.Outcome{Answered: true, Status: status}
	if class != llm.None {
		o.Class, o.Detail = class.String(), details[class]
		if o.Detail == "" && failed != nil && status < 300 {
			o.Detail = "an error in the answer"
		}
	}
	if noRank {
		o.Detail = "the engine has fewer data-parallel ranks than the endpoint's data_parallel says"
	}
	switch class {
	case llm.None:
		o.Verdict = route.Success
		o.RetryAfter = r.unlessOver(llm.Quota(r.res.Header, r.at))
	case llm.ClientFault:
		o.Verdict, o.Detail = route.NotDeploymentFault, reasons[reason]
	default:
		o.Verdict, o.Fault = route.DeploymentFault, faults[class]
		if class == llm.Auth && status == http.StatusForbidden && (failed == nil || failed.Type == "" && failed.Code == "") {
			// Perhaps a firewall that dislikes the prompt: it counts, but proves nothing about the key.
			o.Fault, o.Detail = route.Failure, "403 without a reason: a firewall, or the endpoint's own api_key was refused"
		}
		if class == llm.RateLimited && llm.AsksTooMuch(failed) {
			o.Verdict = route.NotDeploymentFault // another one may have a larger quota, and smaller requests fit this one's
			break
		}
		o.RetryAfter = r.retryAfter(class, failed)
		if r.wait = o.RetryAfter; r.wait == 0 && (class == llm.RateLimited || class == llm.Loading) {
			r.wait = time.Second
		}
	}
	return class, o
}

// faults says what an answer of a class tells of the deployment; the others are a route.Failure.
var faults = map[llm.Class]route.Fault{
	llm.RateLimited: route.RateLimited, llm.Auth: route.BadCredential, llm.Exhausted: route.Exhausted,
	llm.NotServed: route.NotServed, llm.Loading: route.Loading,
}

// details word the classes that not everybody knows.
var details = map[llm.Class]string{
	llm.Auth: "the endpoint's own api_key was refused", llm.Exhausted: "the account behind the endpoint's credential is empty",
	llm.NotServed: "the endpoint does not know the model", llm.Loading: "the model is being loaded",
}

var reasons = map[llm.Reason]string{
	llm.ContextLength: "the prompt is too long for the model", llm.ContentFilter: "a content filter refused it",
}

// retryAfter is how long upstream asks to be left alone, 0 if it does not say. What means "at once" is not nothing.
func (r *reply) retryAfter(class llm.Class, failed *llm.UpstreamError) time.Duration {
	if d, ok := llm.RetryAfter(r.res.Header, failed, r.at); ok {
		return max(d, time.Nanosecond)
	}
	if class == llm.RateLimited {
		return llm.Quota(r.res.Header, r.at)
	}
	return 0
}

// unlessOver is what is left of a time that began with the answer's head: a stream may have taken longer than that.
func (r *reply) unlessOver(d time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	return max(0, d-time.Since(r.at))
}

// shape says how an answer is to be passed on.
type shape uint8

const (
	whole    shape = iota // held until complete or too large
	events                // server-sent events
	lines                 // newline-delimited JSON
	bytesRaw              // anything else that arrives bit by bit
)

func shapeOf(res *http.Response, api llm.API, streamed bool) shape {
	if res.StatusCode < 200 || res.StatusCode > 299 || res.StatusCode == http.StatusNoContent || res.Request.Method == http.MethodHead {
		return whole
	}
	kind := mediaType(res)
	switch {
	case kind == "text/event-stream":
		return events
	case strings.HasPrefix(kind, "text/") && (kind == "text/html" || api.Streams): // no model's answer, unless it turns out to be events
		return whole
	case kind == "application/x-ndjson" || kind == "application/jsonl":
		return lines
	case streamed && res.ContentLength < 0 && (kind != "application/json" || !api.Streams): // where events are due, it is no stream
		return bytesRaw
	case strings.HasPrefix(kind, "audio/") || kind == "application/octet-stream":
		return bytesRaw
	}
	return whole
}

// eventStarts are how a line of an event stream begins.
var eventStarts = [...]string{"data:", "event:", ":", "id:", "retry:"}

// longestStart is from when on it is known whether an answer begins like an event stream: a byte order mark, a few empty lines,
// and the longest of eventStarts.
const longestStart = 16

// looksLikeEvents reports whether an answer begins like an event stream. Some servers send one without saying so.
func looksLikeEvents(text []byte) bool {
	text = bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\ufeff")), "\r\n")
	for _, start := range eventStarts {
		if bytes.HasPrefix(text, []byte(start)) {
			return true
		}
	}
	return false
}

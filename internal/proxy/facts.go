package proxy

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
)

// codeUnknownModel is the one code of ours without our prefix: applications that use OpenAI's API look for it.
const codeUnknownModel = "model_not_found"

// understand finds the facts that the request's head and body hold, and makes the plan.
func (c *call) understand() *llm.Error {
	f, h := &c.facts, c.r.Header
	if len(c.body) > 0 {
		var err error
		if c.req, err = llm.ScanPrompt(c.api, first(h, "Content-Type"), c.body, c.prompt); err != nil {
			return requestError(err)
		}
		c.prefix, f.Turns = c.prompt.AppendPrefix(c.prefix[:0], f.Tenant, c.req.Model)
		f.Prefix, f.PrefixBytes, f.Text = c.prefix, llm.PrefixBlock, c.prompt.Text()
	}
	f.Model = c.req.Model
	if f.Model == "" && c.api.NeedsModel {
		return requestError(llm.MissingModel(c.api))
	}
	chain, failure := c.g.chain(f.Model)
	if failure != nil {
		return failure
	}
	switch v := first(h, headerFallback); {
	case v == "" || strings.EqualFold(v, "on"):
	case strings.EqualFold(v, "off"):
		chain = chain[:1]
	default:
		return refusal(http.StatusBadRequest, "evenkeel_bad_fallback", fmt.Sprintf("x-evenkeel-fallback: %q is neither off nor on.", clip(v)))
	}
	deadline, failure := clientDeadline(h)
	if failure != nil {
		return failure
	}
	if v := first(h, "X-Stainless-Retry-Count"); v != "" {
		f.ClientRetry, _ = strconv.Atoi(v) // odd: not a retry
	}
	f.Seed, f.Stream, f.PromptBytes, f.MaxOutput = seedOf(f.ID), c.req.Stream, c.req.PromptBytes, c.req.MaxOutput
	f.Session = c.session()
	if c.req.PreviousEnd > 0 {
		f.Previous = llm.Session(c.p.Prefixes, f.Tenant, c.body[c.req.PreviousStart:c.req.PreviousEnd])
	}
	f.Pin, f.ExcludeNames = first(h, headerPin), list(first(h, headerExclude))
	c.plan = exchange.Plan{
		Models: chain, Repeatable: c.repeatable(), MaxAttempts: c.g.MaxAttempts,
		Deadlines: c.g.Deadlines, ClientDeadline: deadline, Notify: c.notify,
	}
	c.plan.Hedge = c.g.Hedged != nil && c.hedgeable() && c.g.Hedged(f.Model)
	return nil
}

// chain returns the models to try for the one that was asked for.
func (g *Generation) chain(model string) ([]string, *llm.Error) {
	if chain := g.Chains[model]; chain != nil {
		return chain, nil
	}
	if model == "" {
		return nil, &llm.Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "evenkeel_no_model",
			Message: fmt.Sprintf("The request names no model, and there are %d endpoints it could go to. Put \"model\" into the body of a POST; GET /v1/models lists those there are.", len(g.Endpoints))}
	}
	if silent := g.Unanswered + g.Refusing; silent > 0 {
		why := ""
		if g.Refusing > 0 {
			why = fmt.Sprintf("; %d of them refused the credential that the configuration gives them, or need one", g.Refusing)
		}
		return nil, &llm.Error{Status: http.StatusServiceUnavailable, Code: "evenkeel_model_not_ready", Param: "model",
			Message: fmt.Sprintf("The model %q is not known here yet: %d of %d endpoints have not said so far what they serve%s.", clip(model), silent, max(silent, len(g.Endpoints)), why)}
	}
	return nil, &llm.Error{Status: http.StatusNotFound, Code: codeUnknownModel, Param: "model",
		Message: fmt.Sprintf("The model %q does not exist here. GET /v1/models lists those that do.", clip(model))}
}

func clip(s string) string {
	const longest = 200
	if len(s) > longest {
		return strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}

// repeatable reports whether the request may be sent again after bytes were sent.
func (c *call) repeatable() bool {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return c.api.Repeatable && !c.req.Unrepeatable
}

// hedgeable reports whether a request may be served twice without harm or great cost: one streamed answer, no tools that
// its client could be led to call twice.
func (c *call) hedgeable() bool {
	return c.req.Stream && c.plan.Repeatable && !c.req.Tools && c.req.N <= 1
}

// clientDeadline reads how long the client will wait.
func clientDeadline(h http.Header) (time.Duration, *llm.Error) {
	if v := first(h, headerTimeout); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return 0, &llm.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "evenkeel_bad_timeout",
				Message: fmt.Sprintf("x-evenkeel-timeout: %q is not a duration such as 30s.", clip(v))}
		}
		return d, nil
	}
	for _, name := range [...]string{"X-Stainless-Timeout", "X-Stainless-Read-Timeout"} { // the latter is how long Python's wait for bytes
		v := first(h, name)
		if v == "" {
			continue
		}
		if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e6 {
			return time.Duration(s * float64(time.Second)), nil
		}
	}
	return 0, nil
}

// first returns the first value of a header, by its canonical name.
func first(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func list(v string) []string {
	if v == "" {
		return nil
	}
	names := strings.Split(v, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

// session returns the client's own name for its session, "" if it gives none.
func session(h http.Header) string {
	if v := first(h, headerSession); v != "" {
		return v
	}
	return first(h, "X-Session-Id")
}

// session hashes what names the client's session: a header, else what the body holds, else the client's address where the
// configuration says so; 0 if there is nothing.
func (c *call) session() uint64 {
	key, tenant := c.p.Prefixes, c.facts.Tenant
	if name := session(c.r.Header); name != "" {
		return llm.Session(key, tenant, name)
	}
	if c.req.SessionEnd > 0 {
		return llm.Session(key, tenant, c.body[c.req.SessionStart:c.req.SessionEnd])
	}
	if c.g.AddressSession != nil && c.g.AddressSession(c.req.Model) {
		if host, _, err := net.SplitHostPort(c.r.RemoteAddr); err == nil {
			return llm.Session(key, tenant, host)
		}
	}
	return 0
}

// seedOf derives a request's seed from its id, so that the id alone reproduces its random choices.
func seedOf(id string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := 0; i < len(id); i++ {
		h = (h ^ uint64(id[i])) * prime
	}
	return binary.LittleEndian.Uint64(binary.BigEndian.AppendUint64(nil, h))
}

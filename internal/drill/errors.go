package drill

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"evenkeel/internal/mock"
)

// Errors that engines answer with.
var errorRows = []Row{
	{
		ID: "R6", Needs: 2,
		Fault:   "an engine answers 1 of 20 requests with 500",
		Promise: "one retry elsewhere: at least 99.99 % succeed",
		run:     sometimes500,
		off:     off{defence: "retries", settings: settings{"retry": settings{"max_attempts": 1}}},
	},
	{
		ID: "R8", Needs: 1,
		Fault:   "all engines answer 500, always",
		Promise: "no storm of retries: at most 1.1 attempts per request, and each client gets a well-formed error",
		run:     all500,
		off:     off{defence: "the retry budget and the breakers", settings: settings{"retry": settings{"budget_ratio": 1, "budget_min": 100000}, "health_checks": neverTrips}},
	},
	{
		ID:      "R9",
		Fault:   "429 with Retry-After: 2",
		Promise: "that endpoint is left alone for 2 s, others answer",
		run:     retryAfter,
		off:     off{defence: "heeding Retry-After", settings: settings{"health_checks": settings{"longest_retry_after": "1ms", "rate_limit_pause": "1ms"}}},
	},
	{
		ID:      "R10",
		Fault:   "429 on all endpoints, Retry-After 7 and 3",
		Promise: "429 with the smaller one within 1 s, and nobody is asked before it is over",
		run:     all429,
		off:     off{defence: "heeding Retry-After", settings: settings{"health_checks": settings{"longest_retry_after": "1ms", "rate_limit_pause": "1ms"}}},
	},
	{
		ID:      "R11",
		Fault:   "an engine refuses the balancer's own credential (401)",
		Promise: "one attempt with that key, the other endpoint answers",
		run:     badCredential,
		off:     off{defence: "the time out after a refused credential", settings: settings{"health_checks": settings{"credential_retry": "1ms"}}},
	},
	{
		ID: "R12", Needs: 1,
		Fault:   "400, the prompt is too long",
		Promise: "passed on unchanged: no retry, no charge",
		run:     clientFault,
		off:     off{defence: "telling the client's faults from the engine's", change: "client_fault"},
	},
	{
		ID: "R13", Needs: 2,
		Fault:   "529 from one engine, then 503 from all",
		Promise: "retried elsewhere, within the budget: at most 1.1 attempts per request",
		run:     overloaded,
		off:     off{defence: "the retry budget and the breakers", settings: settings{"retry": settings{"budget_ratio": 1, "budget_min": 100000}, "health_checks": neverTrips}},
	},
	{
		ID:      "R30",
		Fault:   "status 200 with an error object in the body",
		Promise: "counts as a failure and moves on; with nobody else it is passed on as it is",
		run:     errorIn200,
		off:     off{defence: "reading answers for errors", change: "error_in_200"},
	},
	{
		ID:      "R31",
		Fault:   "status 200 with empty choices",
		Promise: "no success: charged, and asked of another engine",
		run:     emptyChoices,
		off:     off{defence: "looking for choices", change: "empty_choices"},
	},
	{
		ID: "R70", Needs: 1,
		Fault:   "a client asks for a model that nobody serves",
		Promise: "404 in the client's dialect, no call upstream",
		run:     unknownModel,
		off:     off{defence: "knowing the models", change: "unknown_model"},
	},
}

// neverTrips are breakers that do not open.
var neverTrips = settings{"circuit_breaker": settings{"trip_after": 1000000}, "error_rate_threshold": 1, "min_requests": 1000000}

// calls counts what an engine was asked.
func calls(es ...*mock.Engine) (n int64) {
	for _, e := range es {
		n += e.Stats().Started
	}
	return n
}

func sometimes500(_ context.Context, b *Bench) (Measured, error) {
	b.set(settings{"strategy": "round_robin"}) // others shun who fails
	es := b.fleet(3, mock.Config{})
	x := b.serve()
	b.fault(es[0], mock.Fault{Kind: "status", Status: 500, Rate: 0.05})
	t := b.crowd(x, b.times(3000, 20000), 16, request{})
	down := t.total() - t.of(complete)
	hits := es[0].Stats().Faults
	found := measured("%d errors of %d, %d faults met", down, t.total(), hits)
	if hits == 0 {
		b.stopf("no request met the fault: nothing was tried")
	}
	return found, check(float64(down) <= 0.0001*float64(t.total()), "%d of %d requests failed, at most 0.01 %%; the first: %s", down, t.total(), t.example())
}

func all500(_ context.Context, b *Bench) (Measured, error) {
	es := b.fleet(3, mock.Config{})
	x := b.serve()
	for _, e := range es {
		b.fault(e, mock.Fault{Kind: "status", Status: 500})
	}
	t := b.crowd(x, 400, 4, request{})
	return b.noStorm(t, calls(es...))
}

// noStorm judges how many attempts were made for requests that could not succeed.
func (b *Bench) noStorm(t *tally, attempts int64) (Measured, error) {
	most := 1.1*float64(t.total()) + retryFloor
	found := measured("%d attempts for %d requests", attempts, t.total())
	if n := t.of(failed, complete); n > 0 {
		return found, brokenf("%d of %d clients got no well-formed error; the first: %s", n, t.total(), t.example())
	}
	return found, check(float64(attempts) <= most, "%d attempts for %d requests, at most %.0f", attempts, t.total(), most)
}

func retryAfter(_ context.Context, b *Bench) (Measured, error) {
	const pause = 2 * time.Second
	es := b.fleet(2, mock.Config{})
	x := b.serve()
	b.fault(es[0], mock.Fault{Kind: "status", Status: 429, RetryAfter: "2"})
	f := b.flow(x, 100, request{})
	if !b.until(5*time.Second, func() bool { return es[0].Stats().Statuses[429] > 0 }) {
		b.stopf("the limited engine was never asked")
	}
	met := time.Now()
	b.pass(100 * time.Millisecond) // what was under way already
	before := calls(es[0])
	b.pass(time.Until(met.Add(pause - 100*time.Millisecond)))
	early := calls(es[0]) - before
	b.mend(es[0])
	again := b.until(3*time.Second, func() bool { return calls(es[0]) > before+early })
	t := f.end()
	down := t.total() - t.of(complete)
	found := measured("%d requests there within %v, %d errors of %d", early, pause, down, t.total())
	switch {
	case early > 0:
		return found, brokenf("%d requests went to the limited endpoint before its %v were over", early, pause)
	case down > 0:
		return found, brokenf("%d of %d requests were not answered: %s", down, t.total(), t.example())
	}
	return found, check(again, "the endpoint was not asked again within 3 s after its pause")
}

func all429(_ context.Context, b *Bench) (Measured, error) {
	es := b.fleet(2, mock.Config{})
	x := b.serve()
	b.fault(es[0], mock.Fault{Kind: "status", Status: 429, RetryAfter: "7"})
	b.fault(es[1], mock.Fault{Kind: "status", Status: 429, RetryAfter: "3"})
	t := b.crowd(x, 20, 1, request{})
	asked := calls(es...)
	worst := t.quantile(1, took)
	var waits []string
	for i, a := range t.answers {
		wait, err := strconv.ParseFloat(a.header.Get("Retry-After"), 64)
		waits = append(waits, a.header.Get("Retry-After"))
		if a.status != http.StatusTooManyRequests || err != nil || wait > 3 || wait < 1 {
			return measured("status %d, Retry-After %q", a.status, a.header.Get("Retry-After")),
				brokenf("request %d of %d got status %d with Retry-After %q (%s), want 429 with at most 3", i+1, t.total(), a.status, a.header.Get("Retry-After"), a.code)
		}
	}
	found := measured("429 with Retry-After %s in %v; %d calls for %d requests", strings.Join(waits[:1], ""), worst.Round(time.Millisecond), asked, t.total())
	return found, check(worst < time.Second && asked <= 2, "%d calls for %d requests, the slowest answer after %v; want 2, and 1 s", asked, t.total(), worst)
}

func badCredential(_ context.Context, b *Bench) (Measured, error) {
	bad, good := b.engine(mock.Config{APIKey: "another-key"}), b.engine(mock.Config{APIKey: "right-key"})
	b.serveBy("a", bad.URL(), settings{"api_key": "wrong-key"})
	b.serveBy("b", good.URL(), settings{"api_key": "right-key"})
	x := b.serve()
	t := b.crowd(x, 100, 1, request{})
	asked := calls(bad)
	down := t.total() - t.of(complete)
	found := measured("%d attempts with the bad key, %d errors of %d", asked, down, t.total())
	if down > 0 {
		return found, brokenf("%d of %d requests were not answered: %s", down, t.total(), t.example())
	}
	return found, check(asked <= 1, "%d attempts with a key that was refused, want 1", asked)
}

const tooLong = `{"error":{"message":"This model's maximum context length is 4096 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`

func clientFault(_ context.Context, b *Bench) (Measured, error) {
	es := b.fleet(2, mock.Config{})
	x := b.serve()
	for _, e := range es {
		b.fault(e, mock.Fault{Kind: "status", Status: 400, Body: tooLong})
	}
	const n = 50
	changed, charged := 0, 0
	for range n {
		got := &strings.Builder{}
		a := b.raw(x, request{}, got)
		if a.status != http.StatusBadRequest || got.String() != tooLong {
			changed++
		}
	}
	for _, s := range x.stands() {
		charged += s.faults
	}
	asked := calls(es...)
	found := measured("%d attempts for %d requests, %d charged", asked, n, charged)
	if changed > 0 {
		return found, brokenf("%d of %d answers were not passed on as they were", changed, n)
	}
	return found, check(asked == n && charged == 0, "%d attempts for %d requests and %d charged, want %d and none", asked, n, charged, n)
}

func overloaded(_ context.Context, b *Bench) (Measured, error) {
	es := b.fleet(3, mock.Config{})
	x := b.serve()
	b.fault(es[0], mock.Fault{Kind: "status", Status: 529})
	t := b.crowd(x, 400, 4, request{})
	if t.of(complete) < t.total() {
		return "", brokenf("one engine was overloaded, and %d of %d requests were not answered: %s", t.total()-t.of(complete), t.total(), t.example())
	}
	for _, e := range es {
		b.fault(e, mock.Fault{Kind: "status", Status: 503})
	}
	before := calls(es...)
	t = b.crowd(x, 400, 4, request{})
	return b.noStorm(t, calls(es...)-before)
}

// errorBody is what some gateways send with status 200.
const errorBody = `{"error":{"message":"The model is overloaded, try again later.","type":"server_error","code":"overloaded"}}`

func errorIn200(_ context.Context, b *Bench) (Measured, error) {
	f := b.fake("a", func(c *fakeConn, _ int) { c.json(http.StatusOK, errorBody) })
	b.serveBy("a", f.url(), settings{"weight": 1000})
	b.set(settings{"strategy": "weighted"})
	x := b.serve()
	got := &strings.Builder{}
	a := b.raw(x, request{}, got)
	charged := x.stands()["a"].faults
	if a.status == 0 || got.String() != errorBody || charged == 0 {
		return measured("charged %d times, %q", charged, got), brokenf("alone, its error was charged %d times and passed on as %q; want a charge, and as it was", charged, got)
	}
	b.serveBy("b", b.engine(mock.Config{Name: "b"}).URL())
	x.reload()
	t := b.crowd(x, 20, 1, request{})
	more := x.stands()["a"].faults
	found := measured("alone: passed on, charged; with another: %d errors of %d, %d charges", t.total()-t.of(complete), t.total(), more-charged)
	if wrong := t.where(func(a *answer) bool { return a.who != "b" }); wrong > 0 {
		return found, brokenf("%d of %d requests did not get the answer of the other engine: %s", wrong, t.total(), t.example())
	}
	return found, check(more > charged, "the failures were not charged")
}

func emptyChoices(_ context.Context, b *Bench) (Measured, error) {
	f := b.fake("a", func(c *fakeConn, _ int) {
		c.json(http.StatusOK, `{"id":"1","object":"chat.completion","created":1,"model":"`+model+`","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":0,"total_tokens":3}}`)
	})
	b.set(settings{"strategy": "round_robin"})
	b.serveBy("a", f.url())
	b.serveBy("b", b.engine(mock.Config{Name: "b"}).URL())
	x := b.serve()
	t := b.crowd(x, 20, 1, request{})
	empty := t.where(func(a *answer) bool { return a.who != "b" })
	charged := x.stands()["a"].faults
	found := measured("%d empty answers of %d, %d charged", empty, t.total(), charged)
	return found, check(empty == 0 && charged > 0, "%d of %d clients got the empty answer, which was charged %d times: want none, and at least once", empty, t.total(), charged)
}

func unknownModel(_ context.Context, b *Bench) (Measured, error) {
	es := b.fleet(2, mock.Config{})
	x := b.serve()
	for _, q := range []struct{ path, want string }{
		{"/v1/chat/completions", `"code":"model_not_found"`},
		{"/v1/messages", `"type":"error"`},
	} {
		got := &strings.Builder{}
		a := b.raw(x, request{path: q.path, model: "no-such-model"}, got)
		if a.status != http.StatusNotFound || !strings.Contains(strings.ReplaceAll(got.String(), ": ", ":"), q.want) {
			return measured("status %d", a.status), brokenf("%s: status %d and %.200q, want 404 and %s", q.path, a.status, got, q.want)
		}
	}
	asked := calls(es...)
	return measured("404 in both dialects, %d calls", asked), check(asked == 0, "%d calls upstream, want none", asked)
}

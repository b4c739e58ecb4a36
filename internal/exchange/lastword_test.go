package exchange

import (
	"testing"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// ofClass is the end of an attempt with an answer of that class that is held.
func ofClass(class llm.Class, fault route.Fault) Event {
	return ended(class, func(e *End) { e.Outcome.Fault, e.Outcome.Answered = fault, true })
}

// A deployment that does not know the model has the last word only if nobody else knows it.
func TestUnknownModelIsNotTheLastWord(t *testing.T) {
	f := func(name string, first, second Event, status int) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Plan{Repeatable: true, MaxAttempts: 2}, route.Facts{}, pool(t, "m", 2, route.Limits{}))
			b.do(Event{Kind: Started}, Dispatch)
			b.do(first, Dispatch)
			if status == 404 {
				b.do(second, Commit, Finish)
				b.result(UpstreamError)
				return
			}
			if failure := b.do(second, Fail)[0].Failure; failure.Status != status || failure.Code != "evenkeel_no_deployment" || failure.RetryIn <= 0 {
				t.Errorf("failure %+v", failure)
			}
			b.result(Failed)
		})
	}
	unknown := ofClass(llm.NotServed, route.NotServed)
	f("both do not know it", unknown, unknown, 404)
	f("the first is ill", ofClass(llm.ServerError, route.Failure), unknown, 503)
	f("the first is not there", ofClass(llm.Connect, route.Unreachable), unknown, 503)
}

// The one that knows it is out, so that nobody asks it.
func TestUnknownModelWhileTheOtherIsOut(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 2, route.Limits{}))
	b.router.Observe(b.now, route.Scope{Kind: route.EndpointScope, Name: "a-m", URL: "http://a-m"}, false)
	b.do(Event{Kind: Started}, Dispatch)
	if f := b.do(ofClass(llm.NotServed, route.NotServed), Fail)[0].Failure; f.Status != 503 {
		t.Errorf("failure %+v", f)
	}
	b.result(Failed)
}

// Who meets an engine that loads its model and one that is not there learns of the first.
func TestLoadingIsWhatThereIsToWaitFor(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 2, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(ofClass(llm.Loading, route.Loading), Dispatch)
	if f := b.do(ended(llm.Connect), Fail)[0].Failure; f.Status != 503 || f.Code != "evenkeel_no_deployment" || f.RetryIn <= 0 || f.RetryIn > 1200 {
		t.Errorf("failure %+v", f)
	}
	b.result(Refused)
}

// Upstream said that the request must not come again: the only deployment is not asked again, another one is.
func TestOnce(t *testing.T) {
	once := ended(llm.ServerError, func(e *End) { e.Once = true })
	b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 1, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(once, Commit, Finish)
	b.result(UpstreamError)

	b = newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 2, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(once, Dispatch)
	b.x.Close(b.now)
	b.idle()
}

// What is wrong with the balancer's account is told as its own, not as the client's.
func TestEmptyAccountIsOurs(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 1, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	f := b.do(ended(llm.Exhausted, func(e *End) { e.Held, e.Outcome.Fault = false, route.Exhausted }), Fail)[0].Failure
	if f.Status != 502 || f.Code != "evenkeel_upstream_exhausted" || !f.Final {
		t.Errorf("failure %+v", f)
	}
	b.result(Failed)
}

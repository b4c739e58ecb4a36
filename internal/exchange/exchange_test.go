package exchange

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/strategy"
)

// bench drives one exchange by hand in virtual time.
type bench struct {
	t      *testing.T
	now    time.Time
	router *route.Router
	budget *Budget
	x      *Exchange
	poked  int
	lease  *route.Lease
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var usual = Deadlines{Deadline: 60 * time.Second, FirstToken: 30 * time.Second, BetweenTokens: 10 * time.Second, Response: 40 * time.Second, Hold: 2 * time.Second}

// pool describes a model with deployments a, b, c, ... each at an endpoint of its own.
func pool(t *testing.T, model string, n int, limits route.Limits) route.PoolSpec {
	t.Helper()
	s, err := strategy.New("round_robin", nil)
	if err != nil {
		t.Fatal(err)
	}
	spec := route.PoolSpec{Model: model, Strategy: s}
	for i := range n {
		name := string(rune('a'+i)) + "-" + model
		spec.Deployments = append(spec.Deployments, route.Deployment{
			ID: name + "/" + model, Endpoint: name, URL: "http://" + name, Model: model, Weight: 1, Limits: limits,
			Scopes: []route.Scope{{Kind: route.EndpointScope, Name: name, URL: "http://" + name}},
		})
	}
	return spec
}

func newBench(t *testing.T, plan Plan, facts route.Facts, pools ...route.PoolSpec) *bench {
	t.Helper()
	b := &bench{t: t, now: epoch, router: route.New(route.Options{MaxWaiting: 10}), budget: NewBudget(0.1, 10)}
	if _, err := b.router.Adopt(b.now, pools); err != nil {
		t.Fatal(err)
	}
	b.x = b.exchange(plan, facts)
	return b
}

func (b *bench) exchange(plan Plan, facts route.Facts) *Exchange {
	if plan.Models == nil {
		plan.Models = []string{"m"}
	}
	if plan.MaxAttempts == 0 {
		plan.MaxAttempts = 3
	}
	if plan.Deadlines == (Deadlines{}) {
		plan.Deadlines = usual
	}
	plan.Notify = func() { b.poked++ }
	facts.Arrived, facts.Model = b.now, plan.Models[0]
	return New(b.router, b.budget, plan, facts)
}

// do reports an event and demands these actions.
func (b *bench) do(e Event, want ...ActionKind) []Action {
	b.t.Helper()
	got := append([]Action(nil), b.x.Next(b.now, e)...)
	kinds := make([]ActionKind, len(got))
	for i, a := range got {
		kinds[i] = a.Kind
		if a.Kind == Dispatch {
			b.lease = a.Lease
		}
	}
	if fmt.Sprint(kinds) != fmt.Sprint(want) {
		b.t.Fatalf("event %d: got actions %v, want %v", e.Kind, kinds, want)
	}
	return got
}

func (b *bench) after(d time.Duration) *bench {
	b.now = b.now.Add(d)
	return b
}

// wakesAfter demands the time of the next Timer, from the start.
func (b *bench) wakesAfter(want time.Duration) {
	b.t.Helper()
	at := b.x.Wake()
	switch {
	case at.IsZero() && want != 0:
		b.t.Fatalf("never wakes, want after %v", want)
	case !at.IsZero() && at.Sub(epoch) != want:
		b.t.Fatalf("wakes after %v, want %v", at.Sub(epoch), want)
	}
}

func (b *bench) result(want Result) *Record {
	b.t.Helper()
	r := b.x.Record()
	if r.Result != want || !b.x.Over() {
		b.t.Fatalf("result %q (over %v), want %q", r.Result, b.x.Over(), want)
	}
	b.idle()
	return r
}

func (b *bench) idle() {
	b.t.Helper()
	for _, d := range b.router.View(b.now).Deployments {
		if d.InFlight != 0 || d.Tokens != 0 || d.Work != 0 {
			b.t.Errorf("%s still counts %d in flight, %d tokens, %d work", d.ID, d.InFlight, d.Tokens, d.Work)
		}
	}
}

func ended(class llm.Class, change ...func(*End)) Event {
	e := &End{Class: class, Sent: true}
	e.Outcome.Class = class.String()
	switch class {
	case llm.None:
		e.Outcome = route.Outcome{Verdict: route.Success, Answered: true, Status: 200}
		e.Held = true
	case llm.ClientFault:
		e.Outcome.Status, e.Outcome.Answered, e.Held = 400, true, true
	case llm.Connect:
		e.Outcome.Verdict, e.Outcome.Fault, e.Sent, e.Broken = route.DeploymentFault, route.Unreachable, false, true
	case llm.Stale:
		e.Broken = true
	case llm.Reset, llm.Truncated:
		e.Outcome.Verdict, e.Broken = route.DeploymentFault, true
	default:
		e.Outcome.Verdict, e.Outcome.Status, e.Outcome.Answered, e.Held = route.DeploymentFault, 500, true, true
	}
	for _, f := range change {
		f(e)
	}
	return Event{Kind: Ended, End: e}
}

func TestStraightAnswer(t *testing.T) {
	b := newBench(t, Plan{}, route.Facts{}, pool(t, "m", 2, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.after(time.Second).do(ended(llm.None), Commit, Finish)
	r := b.result(Complete)
	if r.Ended.Sub(r.Started) != time.Second || r.Depth != 0 || len(r.Attempts) != 1 {
		t.Errorf("record: %+v", r)
	}
}

func TestStreamedAnswerTimes(t *testing.T) {
	b := newBench(t, Plan{}, route.Facts{Stream: true}, pool(t, "m", 1, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.wakesAfter(30 * time.Second) // first_token
	b.after(time.Second).do(Event{Kind: Held})
	b.wakesAfter(3 * time.Second) // the hold
	b.after(time.Second).do(Event{Kind: Content}, Commit)
	b.wakesAfter(12 * time.Second) // between_tokens
	b.after(4*time.Second).x.Progress(b.now, 5)
	b.wakesAfter(16 * time.Second)
	b.do(ended(llm.None, func(e *End) { e.Outcome.OutputTokens = 5 }), Finish)
	o := b.result(Complete).Last().Outcome
	if o.TTFT != 2*time.Second || o.ITL != time.Second {
		t.Errorf("TTFT %v, ITL %v", o.TTFT, o.ITL)
	}
}

func TestHoldEndsByTime(t *testing.T) {
	b := newBench(t, Plan{}, route.Facts{Stream: true}, pool(t, "m", 2, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(Event{Kind: Held})
	b.after(usual.Hold - 1).do(Event{Kind: Timer})
	b.after(1).do(Event{Kind: Timer}, Commit)
	b.wakesAfter(30 * time.Second) // still no content
	b.now = epoch.Add(30 * time.Second)
	b.do(Event{Kind: Timer}, Cancel)
	got := b.do(ended(llm.Reset), Fail)
	if f := got[0].Failure; !f.Cut || f.Code != "evenkeel_upstream_timeout" {
		t.Errorf("failure %+v", f)
	}
	b.result(Cut)
}

// TestDeadlines says for each phase which deadline ends it, when, and who is to blame.
func TestDeadlines(t *testing.T) {
	for _, c := range []struct {
		name    string
		stream  bool
		client  time.Duration
		content bool
		at      time.Duration
		verdict route.Verdict
		status  int
		code    string
	}{
		{"first token", true, 0, false, 30 * time.Second, route.DeploymentFault, 504, "evenkeel_upstream_timeout"},
		{"between tokens", true, 0, true, 10 * time.Second, route.DeploymentFault, 504, "evenkeel_upstream_timeout"},
		{"response", false, 0, false, 40 * time.Second, route.DeploymentFault, 504, "evenkeel_upstream_timeout"},
		{"the client's own, streamed", true, 5 * time.Second, false, 5 * time.Second, route.NotDeploymentFault, 504, "evenkeel_deadline_exceeded"},
		{"the client's own, not streamed", false, 5 * time.Second, false, 5 * time.Second, route.NotDeploymentFault, 504, "evenkeel_deadline_exceeded"},
		{"the client's is longer than ours", true, time.Hour, false, 30 * time.Second, route.DeploymentFault, 504, "evenkeel_upstream_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, Plan{MaxAttempts: 1, ClientDeadline: c.client}, route.Facts{Stream: c.stream}, pool(t, "m", 2, route.Limits{}))
			b.do(Event{Kind: Started}, Dispatch)
			if c.content {
				b.do(Event{Kind: Content}, Commit)
			}
			b.wakesAfter(c.at)
			b.after(c.at - 1).do(Event{Kind: Timer})
			b.after(1).do(Event{Kind: Timer}, Cancel)
			b.do(Event{Kind: Timer}) // nothing twice
			f := b.do(ended(llm.Reset), Fail)[0].Failure
			if f.Status != c.status || f.Code != c.code || f.Cut != c.content {
				t.Errorf("failure %+v", f)
			}
			o := b.x.Record().Last().Outcome
			if o.Verdict != c.verdict || o.Class != "timeout" {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

func TestDeadlineCoversAllAttempts(t *testing.T) {
	b := newBench(t, Plan{MaxAttempts: 10, Repeatable: true}, route.Facts{Stream: true}, pool(t, "m", 5, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.after(30*time.Second).do(Event{Kind: Timer}, Cancel)
	b.do(ended(llm.None), Dispatch) // another deployment gets the rest of the time
	b.wakesAfter(60 * time.Second)
	b.after(30*time.Second).do(Event{Kind: Timer}, Cancel)
	if f := b.do(ended(llm.None), Fail)[0].Failure; f.Status != 504 {
		t.Errorf("failure %+v", f)
	}
	b.result(Failed)
}

func TestWhatMayBeRepeated(t *testing.T) {
	for _, c := range []struct {
		name       string
		end        Event
		repeatable bool
		want       []ActionKind
	}{
		{"500", ended(llm.ServerError), true, []ActionKind{Dispatch}},
		{"429", ended(llm.RateLimited), true, []ActionKind{Dispatch}},
		{"503", ended(llm.Overloaded), true, []ActionKind{Dispatch}},
		{"reset before the head", ended(llm.Reset), true, []ActionKind{Dispatch}},
		{"refused connection, unrepeatable request", ended(llm.Connect), false, []ActionKind{Dispatch}},
		{"500 to an unrepeatable request: upstream's answer passes", ended(llm.ServerError), false, []ActionKind{Commit, Finish}},
		{"reset of an unrepeatable request", ended(llm.Reset), false, []ActionKind{Fail}},
		{"400 passes", ended(llm.ClientFault), true, []ActionKind{Commit, Finish}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, Plan{Repeatable: c.repeatable}, route.Facts{}, pool(t, "m", 3, route.Limits{}))
			b.do(Event{Kind: Started}, Dispatch)
			first := b.lease.Deployment().ID
			b.do(c.end, c.want...)
			if c.want[0] == Dispatch && b.lease.Deployment().ID == first {
				t.Error("the same deployment again though others are well")
			}
			b.x.Close(b.now)
			b.idle()
		})
	}
}

func TestNothingMovesAfterCommit(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true}, route.Facts{Stream: true}, pool(t, "m", 3, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(Event{Kind: Content}, Commit)
	if f := b.do(ended(llm.Reset), Fail)[0].Failure; !f.Cut || f.Code != "evenkeel_upstream_closed" {
		t.Errorf("failure %+v", f)
	}
	b.result(Cut)
}

func TestUpstreamErrorPassesWhenNobodyIsLeft(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 2, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(ended(llm.Overloaded), Dispatch)
	b.do(ended(llm.ServerError), Wait) // a pause before the last try
	b.after(firstPause).do(Event{Kind: Timer}, Dispatch)
	b.do(ended(llm.ServerError), Commit, Finish)
	if r := b.result(UpstreamError); len(r.Attempts) != 3 {
		t.Errorf("%d attempts", len(r.Attempts))
	}
}

func TestStaleConnectionsAreNobodysFault(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true, MaxAttempts: 1}, route.Facts{}, pool(t, "m", 1, route.Limits{}))
	for b.budget.take() {
	}
	b.do(Event{Kind: Started}, Dispatch)
	b.do(ended(llm.Stale), Dispatch) // at the same deployment, at no cost
	b.do(ended(llm.None), Commit, Finish)
	if v := b.router.View(b.now).Deployments[0]; v.Totals.Faults != 0 {
		t.Errorf("%+v", v.Totals)
	}
	b.result(Complete)
}

// TestUnsentAttemptsCostNoRetry: with the budget empty, a refused connection still leads to the next
// deployment, since no engine has seen the request; a failed answer does not.
func TestUnsentAttemptsCostNoRetry(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 3, route.Limits{}))
	for b.budget.take() {
	}
	b.do(Event{Kind: Started}, Dispatch)
	b.do(ended(llm.Connect), Dispatch)
	b.do(ended(llm.ServerError), Commit, Finish)
	b.result(UpstreamError)
}

func TestFallbackChain(t *testing.T) {
	plan := Plan{Models: []string{"m", "unknown", "n"}, Repeatable: true}
	b := newBench(t, plan, route.Facts{}, pool(t, "m", 1, route.Limits{}), pool(t, "n", 1, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(ended(llm.ServerError), Dispatch)
	if got := b.lease.Deployment().Model; got != "n" {
		t.Errorf("fell back to %s", got)
	}
	b.do(ended(llm.None), Commit, Finish)
	if r := b.result(Complete); r.Depth != 2 || r.Model != "n" {
		t.Errorf("depth %d, model %s", r.Depth, r.Model)
	}
}

func TestQueueGrantsAndGivesUp(t *testing.T) {
	b := newBench(t, Plan{}, route.Facts{}, pool(t, "m", 1, route.Limits{InFlight: 1}))
	first := b.x
	b.do(Event{Kind: Started}, Dispatch)
	second, third := b.exchange(Plan{}, route.Facts{}), b.exchange(Plan{}, route.Facts{})
	b.x = second
	b.do(Event{Kind: Started}, Wait)
	b.do(Event{Kind: Granted}) // spurious
	b.x = third
	b.do(Event{Kind: Started}, Wait)
	b.x = first
	b.after(5*time.Second).do(ended(llm.None), Commit, Finish)
	if b.poked != 1 {
		t.Fatalf("%d waiters were woken, want 1", b.poked)
	}
	b.x = second
	b.do(Event{Kind: Granted}, Dispatch)
	b.x = third
	b.now = epoch.Add(60 * time.Second)
	f := b.do(Event{Kind: Timer}, Fail)[0].Failure
	if f.Status != 503 || f.Code != "evenkeel_queue_timeout" || f.RetryIn == 0 {
		t.Errorf("failure %+v", f)
	}
	b.x = second
	b.do(ended(llm.None), Commit, Finish)
	if r := b.result(Complete); r.Queued != 5*time.Second {
		t.Errorf("queued %v", r.Queued)
	}
}

func TestClientGoneAtEveryStage(t *testing.T) {
	for stage, run := range map[string]func(b *bench){
		"queued": func(b *bench) {
			b.do(Event{Kind: Started}, Dispatch)
			holder := b.x
			b.x = b.exchange(Plan{}, route.Facts{})
			b.do(Event{Kind: Started}, Wait)
			b.do(Event{Kind: Gone}, Finish)
			if b.x.Record().Result != ClientGone {
				b.t.Errorf("result %s", b.x.Record().Result)
			}
			b.x = holder
			b.do(Event{Kind: Gone}, Cancel)
		},
		"waiting for the head": func(b *bench) {
			b.do(Event{Kind: Started}, Dispatch)
			b.do(Event{Kind: Gone}, Cancel)
		},
		"streaming": func(b *bench) {
			b.do(Event{Kind: Started}, Dispatch)
			b.do(Event{Kind: Content}, Commit)
			b.do(Event{Kind: Gone}, Cancel)
		},
	} {
		t.Run(stage, func(t *testing.T) {
			b := newBench(t, Plan{Repeatable: true}, route.Facts{Stream: true}, pool(t, "m", 1, route.Limits{InFlight: 1}))
			run(b)
			b.do(ended(llm.Reset), Finish) // cancelling looks like a reset
			o := b.result(ClientGone).Last().Outcome
			if o.Verdict != route.NotDeploymentFault || o.Class != "client_gone" {
				t.Errorf("outcome %+v", o)
			}
			if v := b.router.View(b.now).Deployments[0]; v.Breaker.State != route.Closed || v.Totals.Faults != 0 {
				t.Errorf("a client that left counts: %+v", v)
			}
		})
	}
}

func TestClientGoneBeforeItBegan(t *testing.T) {
	b := newBench(t, Plan{}, route.Facts{}, pool(t, "m", 1, route.Limits{}))
	b.do(Event{Kind: Gone}, Finish)
	b.do(Event{Kind: Started})
	b.result(ClientGone)
	if b.budget.inFlight != 0 {
		t.Errorf("the budget counts %d requests in flight", b.budget.inFlight)
	}
}

func TestClientGoneDuringPause(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true}, route.Facts{}, pool(t, "m", 1, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(ended(llm.ServerError), Wait)
	b.do(Event{Kind: Gone}, Finish)
	if r := b.result(ClientGone); len(r.Attempts) != 1 {
		t.Errorf("%d attempts", len(r.Attempts))
	}
}

func TestCloseReleasesWhateverIsOpen(t *testing.T) {
	for stage, run := range map[string]func(b *bench){
		"fresh":   func(*bench) {},
		"running": func(b *bench) { b.do(Event{Kind: Started}, Dispatch) },
		"queued and granted unseen": func(b *bench) {
			b.do(Event{Kind: Started}, Dispatch)
			holder := b.x
			b.x = b.exchange(Plan{}, route.Facts{})
			b.do(Event{Kind: Started}, Wait)
			holder.Close(b.now) // grants the ticket, which nobody takes
		},
	} {
		t.Run(stage, func(t *testing.T) {
			b := newBench(t, Plan{}, route.Facts{}, pool(t, "m", 1, route.Limits{InFlight: 1}))
			run(b)
			b.x.Close(b.now)
			b.x.Close(b.now)
			b.idle()
			if next := b.exchange(Plan{}, route.Facts{}); next.Next(b.now, Event{Kind: Started})[0].Kind != Dispatch {
				t.Error("the place was not given back")
			}
		})
	}
}

func TestRefusalsAreWorded(t *testing.T) {
	b := newBench(t, Plan{Models: []string{"nope"}}, route.Facts{}, pool(t, "m", 1, route.Limits{}))
	if f := b.do(Event{Kind: Started}, Fail)[0].Failure; f.Status != 404 || f.Code != "model_not_found" || !f.Final {
		t.Errorf("failure %+v", f)
	}
	b = newBench(t, Plan{MaxAttempts: 1}, route.Facts{}, pool(t, "m", 1, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(ended(llm.Connect), Fail)
	b.x = b.exchange(Plan{}, route.Facts{})
	f := b.do(Event{Kind: Started}, Fail)[0].Failure
	if f.Status != 503 || f.Code != "evenkeel_no_deployment" || f.RetryIn < 1000 || f.RetryIn > 1100 || !strings.Contains(f.Message, "1 out after failures") || strings.Contains(f.Message, "a-m") {
		t.Errorf("failure %+v", f)
	}
}

func TestShutdown(t *testing.T) {
	b := newBench(t, Plan{Repeatable: true}, route.Facts{Stream: true}, pool(t, "m", 2, route.Limits{}))
	b.do(Event{Kind: Started}, Dispatch)
	b.do(Event{Kind: Content}, Commit)
	b.do(Event{Kind: Shutdown}, Cancel)
	if f := b.do(ended(llm.Reset), Fail)[0].Failure; f.Code != "evenkeel_shutting_down" || !f.Cut {
		t.Errorf("failure %+v", f)
	}
	if o := b.result(Cut).Last().Outcome; o.Verdict != route.NotDeploymentFault {
		t.Errorf("outcome %+v", o)
	}
}

func TestBudget(t *testing.T) {
	b := NewBudget(0.1, 10)
	for range 10 {
		if !b.take() {
			t.Fatal("a full budget holds 10")
		}
	}
	if b.take() {
		t.Fatal("an eleventh retry")
	}
	for range 9 {
		b.begin()
		b.earn()
	}
	if b.take() {
		t.Fatal("nine first attempts earn less than one retry")
	}
	b.begin()
	if b.take() {
		t.Fatal("a request that was not sent earned something")
	}
	b.earn()
	if !b.take() || b.take() {
		t.Fatal("ten first attempts earn one retry")
	}
	for range 10 {
		b.end()
	}
	for range 1000 {
		b.begin()
		b.earn()
		b.end()
	}
	if b.parts != 10*part {
		t.Errorf("holds %v parts, want those of 10 retries with nothing in flight", b.parts)
	}
}

// TestAmplificationIsBounded: while everything fails, attempts stay near requests however many may be made.
func TestAmplificationIsBounded(t *testing.T) {
	b := newBench(t, Plan{}, route.Facts{}, pool(t, "m", 1000, route.Limits{}))
	const requests = 1000
	attempts := 0
	for i := range requests {
		b.x = b.exchange(Plan{Repeatable: true, MaxAttempts: 5}, route.Facts{Seed: uint64(i)})
		actions := b.x.Next(b.now, Event{Kind: Started})
		for !b.x.Over() {
			if actions[0].Kind == Dispatch {
				attempts++
				actions = b.x.Next(b.now, ended(llm.ServerError))
				continue
			}
			b.now = b.x.Wake()
			actions = b.x.Next(b.now, Event{Kind: Timer})
		}
	}
	if limit := requests + requests/10 + 10; attempts > limit {
		t.Errorf("%d attempts for %d requests, want at most %d", attempts, requests, limit)
	}
	b.idle()
}

// TestRandomEventsLeaveNothingBehind feeds events in any order, also ones that make no sense.
func TestRandomEventsLeaveNothingBehind(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	classes := []llm.Class{llm.None, llm.ClientFault, llm.ServerError, llm.RateLimited, llm.Reset, llm.Connect, llm.Stale, llm.Truncated}
	for round := range 500 {
		b := newBench(t, Plan{}, route.Facts{}, pool(t, "m", 2, route.Limits{InFlight: 1}), pool(t, "n", 1, route.Limits{InFlight: 1}))
		var all []*Exchange
		for range 4 {
			all = append(all, b.exchange(Plan{Models: []string{"m", "n"}, Repeatable: random.IntN(2) == 0}, route.Facts{Stream: random.IntN(2) == 0, Seed: random.Uint64()}))
		}
		started := map[*Exchange]bool{}
		for range 60 {
			x := all[random.IntN(len(all))]
			b.now = b.now.Add(time.Duration(random.IntN(3000)) * time.Millisecond)
			e := Event{Kind: EventKind(random.IntN(int(Shutdown) + 1))}
			switch {
			case !started[x]:
				e = Event{Kind: Started}
				started[x] = true
			case e.Kind == Started:
				continue
			case e.Kind == Ended:
				e = ended(classes[random.IntN(len(classes))])
			}
			x.Next(b.now, e)
		}
		for _, x := range all {
			x.Close(b.now)
			if !x.Over() {
				t.Fatalf("round %d: an exchange is not over after Close", round)
			}
		}
		b.idle()
		if b.budget.inFlight != 0 {
			t.Fatalf("round %d: the budget counts %d requests in flight", round, b.budget.inFlight)
		}
	}
}

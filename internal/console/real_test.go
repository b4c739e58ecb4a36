package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/strategy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fleet is a real Router and its exchanges, driven by hand.
type testFleet struct {
	t      *testing.T
	router *route.Router
	budget *exchange.Budget
	now    time.Time
}

func newTestFleet(t *testing.T, name string, limits route.Limits, models map[string][]string) *testFleet {
	t.Helper()
	s, err := strategy.New(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return newFleetOf(t, s, limits, models)
}

func newFleetOf(t *testing.T, s route.Strategy, limits route.Limits, models map[string][]string) *testFleet {
	t.Helper()
	var specs []route.PoolSpec
	for model, endpoints := range models {
		spec := route.PoolSpec{Model: model, Strategy: s}
		for i, e := range endpoints {
			url := "http://" + e + ":8000"
			spec.Deployments = append(spec.Deployments, route.Deployment{
				ID: e + "/" + model, Endpoint: e, URL: url, Model: model, Weight: 1, Limits: limits, Price: route.Price{Input: float64(1 + i)},
				Scopes: []route.Scope{{Kind: route.EndpointScope, Name: e, URL: url}},
			})
		}
		specs = append(specs, spec)
	}
	f := &testFleet{t: t, router: route.New(route.Options{}), budget: exchange.NewBudget(0.1, 10), now: start}
	if _, err := f.router.Adopt(start, specs); err != nil {
		t.Fatal(err)
	}
	return f
}

// begin starts a request for the first of the models; the others are its fallbacks.
func (f *testFleet) begin(id string, notify func(), models ...string) *exchange.Exchange {
	facts := route.Facts{ID: id, Seed: 7, Model: models[0], API: "chat", Stream: true, Arrived: f.now, PromptBytes: 4000, MaxOutput: 300}
	x := exchange.New(f.router, f.budget, exchange.Plan{
		Models: models, Repeatable: true, MaxAttempts: 4, Notify: notify, Deadlines: exchange.Deadlines{Deadline: 30 * time.Second},
	}, facts)
	f.t.Cleanup(func() { x.Close(f.now) })
	x.Next(f.now, exchange.Event{Kind: exchange.Started})
	return x
}

func (f *testFleet) after(d time.Duration) { f.now = f.now.Add(d) }

func (f *testFleet) fail(x *exchange.Exchange, c llm.Class, fault route.Fault) {
	f.after(2 * time.Millisecond)
	x.Next(f.now, exchange.Event{Kind: exchange.Ended, End: &exchange.End{Class: c, Outcome: route.Outcome{
		Verdict: route.DeploymentFault, Class: c.String(), Fault: fault, Detail: "connection refused",
	}}})
}

func (f *testFleet) complete(x *exchange.Exchange) {
	f.after(400 * time.Millisecond)
	x.Next(f.now, exchange.Event{Kind: exchange.Content})
	f.after(2 * time.Second)
	x.Progress(f.now, 101)
	x.Next(f.now, exchange.Event{Kind: exchange.Ended, End: &exchange.End{Outcome: route.Outcome{
		Verdict: route.Success, Answered: true, Status: 200, InputTokens: 1100, CachedTokens: 512, OutputTokens: 101, Reported: true,
	}}})
	x.Record().Status = 200
}

// inOrder checks that the parts occur in the text one after the other.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, p := range parts {
		_, after, ok := strings.Cut(rest, p)
		if !ok {
			t.Fatalf("%q is missing, or not in its place, in:\n%s", p, text)
		}
		rest = after
	}
}

// What the exchange really records must come out as a story in the order in which it happened.
func TestStoryOfARealFailover(t *testing.T) {
	for _, name := range strategy.Names() {
		t.Run(name, func(t *testing.T) {
			f := newTestFleet(t, name, route.Limits{}, map[string][]string{"large": {"gpu-1", "gpu-2", "gpu-3"}})
			x := f.begin("a", nil, "large")
			f.fail(x, llm.Connect, route.Unreachable)
			f.complete(x)
			rec := x.Record()
			if rec.Result != exchange.Complete || len(rec.Attempts) != 2 {
				t.Fatalf("the exchange went otherwise: %+v", rec)
			}
			text := Explain(rec).Text()
			t.Log("\n" + text)
			inOrder(t, text, "a at 2026-03-01 12:00:00.000 UTC: large, chat, streamed", "complete, status 200, 2.40 s",
				"1. "+rec.Attempts[0].Deployment+", chosen by "+rec.Attempts[0].Decision.Strategy, "= connect after 2.00 ms: connection refused [counts against the whole endpoint]",
				"2. failover to "+rec.Attempts[1].Deployment, rec.Attempts[0].Deployment, "out after failures (endpoint ", "= success after 2.40 s; first token after 400 ms, then one every 20.0 ms, 1,100 tokens (512 cached) in, 101 out")
		})
	}
}

func TestStoryOfARealFallback(t *testing.T) {
	f := newTestFleet(t, "least_tokens", route.Limits{}, map[string][]string{"large": {"gpu-1"}, "small": {"gpu-2"}})
	for range route.DefaultHealth.TripAfter {
		f.fail(f.begin("x", nil, "large"), llm.ServerError, route.Failure)
	}
	x := f.begin("a", nil, "large", "small")
	f.complete(x)
	text := Explain(x.Record()).Text()
	t.Log("\n" + text)
	inOrder(t, text, "fallback to small", "1. no deployment of large: nobody could serve it; the soonest may be tried in 3", "out after failures, for another 3", "2. fallback to model small: gpu-2/small, chosen by least_tokens: the only one eligible")
}

func TestStoryOfARealQueue(t *testing.T) {
	f := newTestFleet(t, "least_tokens", route.Limits{InFlight: 1}, map[string][]string{"large": {"gpu-1"}})
	running := f.begin("x", nil, "large")
	granted := 0
	x := f.begin("a", func() { granted++ }, "large")
	shed := f.begin("b", func() {}, "large")
	f.complete(running)
	if granted != 1 {
		t.Fatalf("%d grants", granted)
	}
	x.Next(f.now, exchange.Event{Kind: exchange.Granted})
	f.complete(x)
	text := Explain(x.Record()).Text()
	t.Log("\n" + text)
	inOrder(t, text, "2.40 s in the queue", "After 2.40 s in the queue: gpu-1/large", "= success")
	f.after(30 * time.Second)
	shed.Next(f.now, exchange.Event{Kind: exchange.Timer})
	text = Explain(shed.Record()).Text()
	t.Log("\n" + text)
	inOrder(t, text, "refused, 34.8 s (34.8 s in the queue)", "34.8 s in the queue, and no deployment had room", "The client was told: 503 evenkeel_queue_timeout")
}

func TestStoryOfARealStaleConnection(t *testing.T) {
	f := newTestFleet(t, "least_tokens", route.Limits{}, map[string][]string{"large": {"gpu-1"}})
	x := f.begin("a", nil, "large")
	f.fail(x, llm.Stale, route.Failure)
	f.complete(x)
	inOrder(t, Explain(x.Record()).Text(), "1. gpu-1/large, ", "= stale", "2. once more gpu-1/large, ", "= success")
}

// Above 32 candidates the router keeps the best; the story must still say how large the field was.
func TestStoryOfARealLargeFleet(t *testing.T) {
	var endpoints []string
	for i := range 40 {
		endpoints = append(endpoints, fmt.Sprintf("gpu-%d", i))
	}
	f := newTestFleet(t, "least_connections", route.Limits{}, map[string][]string{"large": endpoints})
	for range 3 {
		f.begin("x", nil, "large")
	}
	for range 2 {
		f.fail(f.begin("y", nil, "large"), llm.Connect, route.Unreachable)
	}
	x := f.begin("a", nil, "large")
	f.complete(x)
	text := Explain(x.Record()).Text()
	t.Log("\n" + text)
	inOrder(t, text, "chosen by least_connections: lowest of 38 scores", "   >  gpu-", "more, eligible", "and 2 more: out after failures")
}

// steady reports whether a strategy keeps to one deployment while it is in use.
func steady(s route.Strategy) bool {
	keeps, ok := s.(route.Steady)
	return ok && keeps.Steady()
}

// The documentation says that the JSON holds all that a choice was made from.
func TestDecisionsRecomputeFromJSON(t *testing.T) {
	for _, name := range strategy.Names() {
		s, err := strategy.New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		recomputes(t, name, s)
	}
	s, err := strategy.New("expression", func(into any) error { // of all that a formula may name
		reflect.ValueOf(into).Elem().FieldByName("Score").SetString("(streamed ? wait + prefill + first_token + externality + pressure : last_token + itl) + " +
			"log(1 + cached + uncached + answers + cache_fill + prompt + output + tokens + work + samples + rate + mean_prefill + error) + " +
			"price + in_flight / weight + ttft + ttft_p95 + failures + 1 / (1 + healthy)")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	recomputes(t, "expression of all terms", s)
}

func recomputes(t *testing.T, name string, s route.Strategy) {
	t.Helper()
	f := newFleetOf(t, s, route.Limits{InFlight: 6}, map[string][]string{"large": {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}})
	chosen := map[string]bool{}
	for i := range 24 {
		facts := route.Facts{ID: "a", Seed: uint64(i) << 57, Model: "large", Stream: i%3 > 0, Arrived: f.now, PromptBytes: 1000 * i}
		x := exchange.New(f.router, f.budget, exchange.Plan{Models: []string{"large"}, MaxAttempts: 1}, facts)
		x.Next(f.now, exchange.Event{Kind: exchange.Started})
		t.Cleanup(func() { x.Close(f.now) })
		data, err := json.Marshal(Explain(x.Record()))
		if err != nil {
			t.Fatal(err)
		}
		var e Explanation
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatal(err)
		}
		d := e.Attempts[0].Decision
		var field []route.Candidate
		for _, c := range d.Candidates[:d.Eligible] {
			healthy := route.Always
			if c.WellSeconds != nil {
				healthy = time.Duration(*c.WellSeconds * float64(time.Second))
			}
			var forecast route.Forecast
			if v := c.Forecast; v != nil {
				forecast = route.Forecast{Cached: v.CachedTokens, Wait: v.WaitSeconds, Prefill: v.PrefillSeconds, Answers: v.Answers, Fill: v.CacheShare, Own: v.OwnCacheShare, Used: v.LimitShare, Token: v.TokenSeconds, Slower: v.SlowerSeconds, Dollars: v.Dollars}
			}
			field = append(field, route.Candidate{
				Forecast: forecast,
				P95:      c.P95Seconds, Penalty: c.Penalty, Share: cmp.Or(c.Share, 1), Healthy: healthy,
				ID: c.Deployment, Weight: c.Weight, InFlight: c.InFlight, Tokens: c.Tokens, Work: c.WorkTokens, TTFT: c.TTFTSeconds, Samples: c.Samples,
				LastPick: c.LastPick, RunPicks: c.RunPicks,
			})
		}
		round := route.NewRound(f.now, &route.Facts{Seed: d.Seed, Stream: e.Facts.Stream}, d.Draw, field, d.RunTotal)
		round.Prompt, round.Output, round.Answer = d.PromptTokens, d.OutputTokens, d.AnswerTokens
		if o := d.Outlook; o != nil {
			round.Outlook = route.Outlook{Rate: o.Rate, Prefill: o.PrefillSeconds, Error: o.Error, WholeError: o.WholeError, Churn: o.Churn}
		}
		got := field[s.Pick(round)].ID
		if got != d.Chosen {
			t.Errorf("%s, request %d: recomputed %s, chosen was %s", name, i, got, d.Chosen)
		}
		chosen[got] = true
		if i%5 == 4 { // some finish, so that loads and learned speeds differ
			f.complete(x)
		}
	}
	if len(chosen) < 4 && !steady(s) {
		t.Errorf("%s: only %v were ever chosen", name, chosen)
	}
}

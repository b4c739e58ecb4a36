package strategy

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// TestPredictedWaitScores holds the terms to exact values.
func TestPredictedWaitScores(t *testing.T) {
	s := build(t, "predicted_wait")
	round := func(o route.Outlook, a, b route.Candidate) (chosen int, first []route.Term) {
		a.ID, b.ID = "a", "b"
		r := route.NewRound(start, &route.Facts{Stream: true}, 0, []route.Candidate{a, b}, 0)
		r.Outlook, r.Answer = o, 200
		chosen = s.Pick(r)
		return chosen, r.Candidates[0].Noted()
	}
	a := route.Candidate{Weight: 2, Penalty: 1.5, Forecast: route.Forecast{Wait: 3, Prefill: 1, Answers: 20, Own: 0.25, Fill: 0.75, Token: 0.01}}
	_, terms := round(route.Outlook{Rate: 0.5, Prefill: 1.6, Churn: 0.6}, a, a) // ρ = 0.8, λ/(1−ρ) = 2.5, χ/(1−χ) = 1.5
	for i, want := range []route.Term{
		{Name: "first_token_seconds", Value: (3 + 1) / 2.},
		{Name: "externality_seconds", Value: othersCount * (2.5*1*(3+0.5) + 1.5*1) / 2.},
		{Name: "pressure_seconds", Value: (0.05*20*1 + 0.2*0.25*200*0.01*3) / 2.},
		{Name: "failures_seconds", Value: 1.5 * (1.6 + 1) / 2.},
	} {
		if len(terms) != 4 || terms[i].Name != want.Name || math.Abs(terms[i].Value-want.Value) > 1e-9 {
			t.Fatalf("terms %v, want %v as number %d", terms, want, i)
		}
	}

	// Cached there with 2 s to wait, or 1.5 s to prefill here: who is alone goes where it is sooner, in a crowd the cache is spared.
	cached := route.Candidate{Weight: 1, Forecast: route.Forecast{Wait: 2, Prefill: 0.1}}
	idle := route.Candidate{Weight: 1, Forecast: route.Forecast{Prefill: 1.5}}
	if i, _ := round(route.Outlook{Rate: 0.01, Prefill: 1}, cached, idle); i != 1 {
		t.Error("with hardly any traffic it waits for the cache")
	}
	if i, _ := round(route.Outlook{Rate: 0.9, Prefill: 1}, cached, idle); i != 0 {
		t.Error("in a crowd it computes what is cached")
	}
	// Overload cannot turn the sign.
	if i, terms := round(route.Outlook{Rate: 50, Prefill: 1}, cached, idle); i != 0 || !(terms[1].Value > 0) {
		t.Errorf("in overload it takes %d, terms %v", i, terms)
	}
}

// TestPredictedWaitDrawsAmongEquals: what learned speeds cannot tell apart gets its share by weight; a wait or a cache that counts decides.
func TestPredictedWaitDrawsAmongEquals(t *testing.T) {
	s := build(t, "predicted_wait")
	f := func(what string, a, b route.Forecast, want float64) {
		t.Helper()
		got := 0
		for seed := range uint64(2000) {
			cs := []route.Candidate{{ID: "a", Weight: 1, Forecast: a}, {ID: "b", Weight: 3, Forecast: b}}
			r := route.NewRound(start, &route.Facts{Stream: true, Seed: seed}, 0, cs, 0)
			got += s.Pick(r)
		}
		if part := float64(got) / 2000; math.Abs(part-want) > 0.04 {
			t.Errorf("%s: b gets %.2f, want %.2f", what, part, want)
		}
	}
	// Weights divide scores, so what b takes is three times as long.
	f("as fast", route.Forecast{Prefill: 1}, route.Forecast{Prefill: 3}, 0.75)
	f("a little slower", route.Forecast{Prefill: 1}, route.Forecast{Prefill: 3.1}, 0.75)
	f("slower", route.Forecast{Prefill: 1}, route.Forecast{Prefill: 3.6}, 0)
	f("somebody is before it", route.Forecast{Prefill: 1}, route.Forecast{Prefill: 3, Wait: 0.6}, 0)
	f("what no network does as evenly", route.Forecast{Prefill: 1e-4}, route.Forecast{Prefill: 2e-3}, 0.75)
}

// TestPredictedWaitFallsBack to p2c_ewma while forecasts are wrong, and shows it.
func TestPredictedWaitFallsBack(t *testing.T) {
	s, p2c := build(t, "predicted_wait"), build(t, "p2c_ewma")
	for seed := range uint64(200) {
		candidates := func() []route.Candidate {
			return []route.Candidate{
				{ID: "a", Weight: 1, InFlight: 3, TTFT: 0.2, Forecast: route.Forecast{Wait: 9, Prefill: 1}},
				{ID: "b", Weight: 1, InFlight: 1, TTFT: 0.3, Forecast: route.Forecast{Prefill: 0.01}},
				{ID: "c", Weight: 1, InFlight: 0, TTFT: 0.9},
			}
		}
		r := route.NewRound(start, &route.Facts{Seed: seed}, 0, candidates(), 0)
		r.Outlook = route.Outlook{Rate: 1, Prefill: 0.5, Error: mostError + 0.01}
		got := s.Pick(r)
		if want := p2c.Pick(route.NewRound(start, &route.Facts{Seed: seed}, 0, candidates(), 0)); got != want {
			t.Fatalf("seed %d: %d, p2c_ewma takes %d", seed, got, want)
		}
		if terms := r.Candidates[got].Noted(); len(terms) == 0 || terms[0].Name != "(in_flight+1)*ttft_seconds/weight" {
			t.Fatalf("terms %v", terms)
		}
	}
}

// with builds a strategy with options.
func with(tb testing.TB, name string, options any) (route.Strategy, error) {
	tb.Helper()
	return New(name, func(into any) error {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(options))
		return nil
	})
}

// TestObjectives: the sooner first token, or the sooner last one.
func TestObjectives(t *testing.T) {
	f := func(objective string, stream bool, want int, answer float64) {
		t.Helper()
		s, err := with(t, "predicted_wait", predictedOptions{Objective: objective})
		if err != nil {
			t.Fatal(err)
		}
		r := route.NewRound(start, &route.Facts{Stream: stream}, 0, []route.Candidate{
			{ID: "soon", Weight: 1, Forecast: route.Forecast{Wait: 0.1, Prefill: 0.2, Token: 0.05}},
			{ID: "quick", Weight: 2, Forecast: route.Forecast{Wait: 0.9, Prefill: 0.2, Token: 0.01}},
		}, 0)
		r.Output, r.Answer = 900, 100
		if got := s.Pick(r); got != want {
			t.Errorf("%s, streamed %v: chose %d, want %d", objective, stream, got, want)
		}
		var sum float64
		for _, term := range r.Candidates[1].Noted() {
			if term.Name == "answer_seconds" {
				sum += term.Value
			}
		}
		if math.Abs(sum-answer) > 1e-9 {
			t.Errorf("%s, streamed %v: the answer's seconds are %v, want %v", objective, stream, sum, answer)
		}
	}
	f("first_token", true, 0, 0)
	f("first_token", false, 0, 0)
	f("last_token", true, 1, 0.5)
	f("last_token", false, 1, 0.5)
	f("auto", true, 0, 0)
	f("auto", false, 1, 0.5)
}

// TestMoneyCounts at its rate, whatever the weight, and not where there is none.
func TestMoneyCounts(t *testing.T) {
	f := func(rate float64, want int, price float64) {
		t.Helper()
		s, err := with(t, "predicted_wait", predictedOptions{Objective: "auto", DollarsPerSecond: rate})
		if err != nil {
			t.Fatal(err)
		}
		r := route.NewRound(start, &route.Facts{Stream: true}, 0, []route.Candidate{
			{ID: "dear", Weight: 2, Forecast: route.Forecast{Prefill: 0.2, Dollars: 0.01}},
			{ID: "cheap", Weight: 1, Forecast: route.Forecast{Prefill: 1.2, Dollars: 0.001}},
		}, 0)
		if got := s.Pick(r); got != want {
			t.Errorf("at %v dollars a second it chose %d, want %d", rate, got, want)
		}
		terms := r.Candidates[0].Noted()
		last := terms[len(terms)-1]
		if got := last.Name == "price_seconds"; got != (rate > 0) || got && math.Abs(last.Value-price) > 1e-9 {
			t.Errorf("at %v dollars a second the last term is %+v", rate, last)
		}
	}
	f(0, 0, 0)
	f(0.02, 0, 0.5)   // half a second and 0.05 s: 0.45 s for about 1.1 s
	f(0.005, 1, 2)    // 2 s against 0.2 s
	f(1e-12, 1, 1e10) // money alone
}

// TestPredictedWaitOptions: what cannot be meant is an error that names the option and what it may be.
func TestPredictedWaitOptions(t *testing.T) {
	f := func(o predictedOptions, want string) {
		t.Helper()
		if s, err := with(t, "predicted_wait", o); s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v, want an error with %q", o, s, err, want)
		}
	}
	f(predictedOptions{Objective: "last"}, `objective "last" is none of auto, first_token and last_token`)
	f(predictedOptions{}, `objective ""`)
	f(predictedOptions{Objective: "auto", DollarsPerSecond: -1}, "dollars_per_second -1")
	f(predictedOptions{Objective: "auto", DollarsPerSecond: math.NaN()}, "dollars_per_second NaN")
}

// TestWorkTellsWhereAnswersDoNot: of answers that are not streamed and take anything but what was forecast, work in tokens is what counts, without what is
// cached.
func TestWorkTellsWhereAnswersDoNot(t *testing.T) {
	s := build(t, "predicted_wait")
	f := func(stream bool, off float64, want int, term string) {
		t.Helper()
		r := route.NewRound(start, &route.Facts{Stream: stream}, 0, []route.Candidate{
			{ID: "a", Weight: 1, Work: 2000, Forecast: route.Forecast{Prefill: 0.1}},
			{ID: "b", Weight: 1, Work: 2500, Penalty: 0.1, Forecast: route.Forecast{Prefill: 0.2, Cached: 800}},
			{ID: "c", Weight: 2, Work: 6000, Forecast: route.Forecast{Prefill: 0.3}},
		}, 0)
		r.Prompt, r.Output, r.Outlook = 1000, 100, route.Outlook{WholeError: off}
		if i := s.Pick(r); i != want || r.Candidates[i].Noted()[0].Name != term {
			t.Errorf("streamed %v, off by %v: %d by %v, want %d by %s", stream, off, i, r.Candidates[i].Noted(), want, term)
		}
	}
	f(true, 1, 0, "first_token_seconds")
	f(false, 0.29, 0, "first_token_seconds")
	f(false, 0.31, 1, "work_tokens/weight") // 2500 + 1000 - 800, and 0.1 times 300 for failures, of 3000 and 3500
}

// TestLimitsPressure: requests go elsewhere before a limit per minute is used up, and not only once it is.
func TestLimitsPressure(t *testing.T) {
	fast, large := deployment("fast/m", 1), deployment("large/m", 1)
	fast.Limits.RPM, large.Limits.RPM = 60, 600
	takes := map[string]time.Duration{"fast/m": 200 * time.Millisecond, "large/m": 300 * time.Millisecond}
	c := newClient(t, build1(t, "predicted_wait", fast, large))
	picks, full := map[string]int{}, 0
	const minutes = 20
	for range minutes * 150 {
		c.now = c.now.Add(time.Minute / 150)
		l := c.ask(route.Facts{PromptBytes: 380, MaxOutput: 100, Stream: true})
		id := l.Deployment().ID
		picks[id]++
		for _, cut := range l.Decision().CutCounts() {
			if cut.Cut == route.CutQuota {
				full++
			}
		}
		l.FirstToken(c.now.Add(takes[id]))
		l.Done(c.now.Add(takes[id]), route.Outcome{Verdict: route.Success, Answered: true, TTFT: takes[id]})
	}
	if full > 0 {
		t.Errorf("the faster one was full %d times", full)
	}
	if rate := picks["fast/m"] / minutes; rate < 57 || rate > 63 {
		t.Errorf("%v: the faster one had %d requests a minute, and may have 60", picks, rate)
	}
}

package cli

import (
	"maps"
	"slices"
	"testing"
	"time"
)

func TestTallyJudgesCutsByTheKill(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	o := &outage{engine: "medium", killed: at(10), dead: at(11)}
	f := func(o *outage, engine string, began, ended int, explained bool) {
		t.Helper()
		tl := newTally("p", []string{"fast", "medium"})
		tl.asked = 1
		tl.add(&answer{verdict: answerToldCut, engine: engine, began: at(began), ended: at(ended)}, o)
		want := map[string]int{}
		if !explained {
			want["cut although its engine was not killed"] = 1
		}
		if (tl.toldCut == 1) != explained || !maps.Equal(tl.failed, want) || tl.running() != 0 {
			t.Errorf("%s from %d to %d: %+v", engine, began, ended, tl)
		}
	}
	f(o, "medium", 8, 11, true)
	f(o, "medium", 10, 12, true)
	f(o, "fast", 8, 11, false)
	f(o, "medium", 1, 9, false)
	f(o, "medium", 12, 13, false)
	f(&outage{}, "medium", 8, 11, false)
}

func TestTallyAccountsForEveryRequest(t *testing.T) {
	tl := newTally("p", []string{"fast"})
	tl.asked = 6
	for _, a := range []answer{
		{verdict: answerComplete, tokens: 10, attempts: 1},
		{verdict: answerComplete, tokens: 20, attempts: 2, cuts: map[string]int{"open": 1}},
		{verdict: answerDropped, tokens: 1},
		{verdict: answerFailed, reason: "status 503", cuts: map[string]int{"open": 1, "already_tried": 1}},
		{verdict: answerFailed, reason: "status 503"},
	} {
		tl.add(&a, &outage{})
	}
	tl.span = 2 * time.Second
	if tl.complete != 2 || tl.dropped != 1 || tl.failures() != 2 || tl.running() != 1 || tl.moved != 1 || tl.tokensPerSecond() != 15.5 {
		t.Errorf("%+v", tl)
	}
	if got, want := counts(tl.cuts), []count{{"open", 2}, {"already_tried", 1}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestShare(t *testing.T) {
	tl := newTally("p", []string{"a", "b"})
	if s := tl.share("a"); s != 0 {
		t.Errorf("%v of no picks", s)
	}
	tl.engines["a"].picks, tl.engines["b"].picks = 1, 3
	if tl.share("a") != 0.25 || tl.share("b") != 0.75 {
		t.Errorf("%v and %v", tl.share("a"), tl.share("b"))
	}
}

func TestQuantile(t *testing.T) {
	var hundred samples
	for i := 100; i > 0; i-- {
		hundred = append(hundred, time.Duration(i))
	}
	f := func(s samples, q float64, want time.Duration) {
		t.Helper()
		if got := s.quantile(q); got != want {
			t.Errorf("quantile %v of %d samples is %d, want %d", q, len(s), got, want)
		}
	}
	f(nil, 0.5, 0)
	f(samples{7}, 0.01, 7)
	f(samples{7}, 0.99, 7)
	f(samples{3, 1, 2}, 0.5, 2)
	f(hundred, 0, 1)
	f(hundred, 0.5, 50)
	f(hundred, 0.99, 99)
	f(hundred, 1, 100)
	if hundred[0] != 100 {
		t.Error("the samples were sorted in place")
	}
	if hundred.mean() != 50 || (samples{}).mean() != 0 {
		t.Errorf("mean %v", hundred.mean())
	}
}

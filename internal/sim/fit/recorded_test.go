package fit

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/sim"
	"evenkeel/internal/trace"
)

func TestRecorded(t *testing.T) {
	const ms = time.Millisecond
	row := func(at time.Duration, attempts ...trace.Attempt) sim.Row {
		return sim.Row{At: at, PromptTokens: 500, OutputTokens: 60, Recorded: &trace.Entry{Attempts: attempts}}
	}
	tr := sim.NewTrace(0,
		row(0, trace.Attempt{Deployment: "a/m", Sent: 2 * ms, TTFT: 90 * ms, Took: 400 * ms, Input: 512, Cached: 128, Output: 64}),
		row(10*ms, trace.Attempt{Deployment: "a/m", Class: "reset", Took: 50 * ms, Input: 512}, // and elsewhere it came to its end
			trace.Attempt{Deployment: "b/m", Sent: 60 * ms, Took: 300 * ms, Input: 512, Output: 8}),
		row(20*ms, trace.Attempt{Deployment: "b/m", TTFT: 80 * ms, Took: 200 * ms, Input: 480, Output: 50, Estimated: true}),
		row(30*ms, trace.Attempt{Deployment: "b/m", TTFT: 80 * ms, Took: 200 * ms, Input: 480, Output: 3, Waste: true, Hedge: true}),
		row(40*ms), // none was sent
	)
	f := func(keep func(string) bool, want ...Observation) {
		t.Helper()
		if got, err := Recorded(tr, keep); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v\n%+v\nwant\n%+v", err, got, want)
		}
	}
	first := Observation{Deployment: "a/m", At: 2 * ms, PromptTokens: 512, CachedTokens: 128, OutputTokens: 64, TTFT: 90 * ms, Total: 400 * ms}
	broken := Observation{Deployment: "a/m", At: 10 * ms, PromptTokens: 500}
	f(nil, first, broken,
		Observation{Deployment: "b/m", At: 70 * ms, PromptTokens: 512, OutputTokens: 8, Total: 300 * ms},
		Observation{Deployment: "b/m", At: 20 * ms, PromptTokens: 500, OutputTokens: 60},
		Observation{Deployment: "b/m", At: 30 * ms, PromptTokens: 500, OutputTokens: 3})
	f(func(d string) bool { return d == "a/m" }, first, broken)

	wrong := func(tr *sim.Trace, keep func(string) bool, want string) {
		t.Helper()
		if got, err := Recorded(tr, keep); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want an error with %q", got, err, want)
		}
	}
	wrong(tr, func(string) bool { return false }, "no attempt")
	wrong(sim.NewTrace(0, row(0, trace.Attempt{Deployment: "b/m", TTFT: 80 * ms, Took: 200 * ms, Input: 480, Output: 50, Estimated: true})), nil, "include_usage")
	wrong(sim.NewTrace(0, sim.Row{PromptTokens: 5, OutputTokens: 5}), nil, "record one")
}

// TestRecordedStopsWhereCalibrateDoes: of a long trace, what is taken makes the same fit as all of it would.
func TestRecordedStopsWhereCalibrateDoes(t *testing.T) {
	const n = 3 * defaultMost
	rows := make([]sim.Row, n)
	var all []Observation
	for i := range rows {
		at, sent := time.Duration(i)*time.Millisecond, time.Duration(i*7919%1000)*time.Millisecond
		rows[i] = sim.Row{At: at, PromptTokens: 500, OutputTokens: 60, Recorded: &trace.Entry{Attempts: []trace.Attempt{
			{Deployment: "a/m", Sent: sent, TTFT: 90 * time.Millisecond, Took: time.Second, Input: 500 + i%300, Output: 64},
		}}}
		all = append(all, Observation{Deployment: "a/m", At: at + sent, PromptTokens: 500 + i%300, OutputTokens: 64, TTFT: 90 * time.Millisecond, Total: time.Second})
	}
	some, err := Recorded(sim.NewTrace(0, rows...), nil)
	if err != nil || len(some) < defaultMost || len(some) > defaultMost+2000 {
		t.Fatalf("%d observations, %v", len(some), err)
	}
	if got, want := newReplay(some, defaultMost), newReplay(all, defaultMost); !reflect.DeepEqual(got, want) {
		t.Error("other observations are among the first")
	}
}

//go:build unix

package sim

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/exchange"
)

// conversations is a run of sessions over n engines with the production router before them: prompts of 2,300 tokens, a third of
// them in a cache, and answers of 200. Of so many requests an engine gets a second, one of the preset vllm-8192 runs 26 at 7 and 8 at 4.
func conversations(tb testing.TB, n int, strategy, preset string, perSecond float64) Options {
	tb.Helper()
	return Options{
		Seed: 1, Servers: engines(tb, n, preset), Strategy: mustStrategy(tb, strategy), Stream: true,
		Source: mustSessions(tb, 1, SessionOptions{
			Rate: float64(n) * perSecond / 6, Turns: Law{6, 0.5}, Systems: 50, Zipf: 1, System: Law{1000, 0.5}, Question: Law{250, 1}, Answer: Law{200, 1},
			Gap: Law{20, 1}, Block: 64,
		}),
		Plan: exchange.Plan{MaxAttempts: 3, Repeatable: true, Deadlines: exchange.Deadlines{Deadline: 10 * time.Minute, FirstToken: 5 * time.Minute}},
		Goal: Goal{TTFT: time.Second},
	}
}

// processorTime is the time that this process has spent on processors: on a busy machine the clock on the wall says how much
// of one it got.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFleet says how many simulated requests a minute of one core is good for, the collector's work counted in. One operation
// is one request.
func BenchmarkFleet(b *testing.B) {
	f := func(n int, strategy, preset string, perSecond float64) {
		b.Run(fmt.Sprintf("%s/%s/%d/%v", preset, strategy, n, perSecond), func(b *testing.B) {
			fleet := mustFleet(b, conversations(b, n, strategy, preset, perSecond))
			fleet.Run(3 * time.Minute) // until as many sessions end as begin
			before, began, at := fleet.m.counts.Done, processorTime(b), fleet.Now()
			b.ReportAllocs()
			b.ResetTimer()
			for fleet.m.counts.Done-before < b.N {
				at += 100 * time.Millisecond
				fleet.Run(at)
			}
			b.StopTimer()
			spent := processorTime(b) - began
			b.ReportMetric(float64(fleet.m.counts.Done-before)/spent.Minutes(), "requests/min/core")
			b.ReportMetric(float64(fleet.running)/float64(n), "running")
			r := fleet.Result()
			b.ReportMetric(r.HitShare, "hits")
			b.ReportMetric(float64(r.Counts.PromptTokens)/float64(r.Counts.Done), "prompt")
		})
	}
	f(64, "least_tokens", "vllm-8192", 4)
	f(64, "least_tokens", "vllm-8192", 7)
	f(64, "p2c_ewma", "vllm-8192", 4)
}

package study

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/sim"
	"evenkeel/internal/trace"
)

// recordedTalks is a workload that serve has recorded: talks of some turns, in turn, where each turn goes on from the answer to the
// one before.
func recordedTalks(tb testing.TB, talks, turns int) Workload {
	tb.Helper()
	const blocks, blockBytes = 8, 256 // of a turn with its answer
	text := bytes.NewBufferString(`{"evenkeel_trace":1,"program":"1.0","key":"9f86d081","block_bytes":256}` + "\n")
	thinner := trace.NewThinner(1 << 16)
	at := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	for turn := range turns {
		for talk := range talks {
			var chain []uint64
			for i := range (turn + 1) * blocks {
				chain = append(chain, uint64(talk+1)<<20+uint64(i))
			}
			size := len(chain) * blockBytes
			e := trace.Entry{
				At: at, ID: fmt.Sprintf("r%d-%d", turn, talk), API: "chat", Model: "m", Session: uint64(talk + 1), Bytes: size, ExpectedOutput: 128,
				Result: exchange.Complete, Status: 200, First: 100 * time.Millisecond, Total: time.Second,
				Attempts: []trace.Attempt{{Deployment: "a/m", Strategy: "least_tokens", Eligible: 1, Input: size / 4, Output: 128, TTFT: 100 * time.Millisecond, Took: time.Second}},
			}
			thinner.Thin(chain, &e.Prefix)
			text.Write(trace.Append(nil, &e))
			at = at.Add(2 * time.Second)
		}
	}
	t, err := sim.ReadRecorded(text, "talks.jsonl", nil)
	if err != nil {
		tb.Fatal(err)
	}
	return Workload{Name: "talks", Trace: t}
}

// TestLapsOfATraceWithAnswers: each lap of a recorded trace finds as many prefixes as the first, and has neither an answer nor a
// session that another lap has.
func TestLapsOfATraceWithAnswers(t *testing.T) {
	w := recordedTalks(t, 20, 5)
	rows := w.Trace.Len()
	source, err := w.traffic(1, 10, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	c := simple(0)
	first := 0.0
	lapOf := map[uint64]int{} // blocks of answers
	sessions := map[uint64]int{}
	for lap := range 4 {
		var played listed
		for range rows {
			var r sim.Request
			if !source.Next(&r) {
				t.Fatal("the source has an end")
			}
			played = append(played, r)
			for _, h := range r.Output {
				if of, ok := lapOf[h]; ok && of != lap {
					t.Fatalf("lap %d has an answer of lap %d", lap, of)
				}
				lapOf[h] = lap
			}
			if of, ok := sessions[r.Session]; r.Session == 0 || ok && of != lap {
				t.Fatalf("lap %d has the session %d of lap %d", lap, r.Session, of)
			}
			sessions[r.Session] = lap
		}
		hits := measure(&c, &played, rows).HitShare
		if lap == 0 {
			first = hits
		}
		if first < .5 || math.Abs(hits-first) > 1e-9 {
			t.Errorf("lap %d: hit share %.3f, want that of the first lap, %.3f", lap, hits, first)
		}
	}
	if len(lapOf) == 0 {
		t.Error("no request tells the blocks of its answer")
	}
}

// TestPlacesAreSpread: five seeds that follow each other begin nowhere further apart than a quarter of the trace, wherever they begin.
func TestPlacesAreSpread(t *testing.T) {
	const n, seeds = 10_000, 5
	for _, first := range []uint64{0, 1, 1000, 1 << 40, math.MaxUint64 - 2} {
		var places []int
		for k := range uint64(seeds) {
			at := place(first+k, n)
			if at < 0 || at >= n {
				t.Fatalf("seed %d begins at %d of %d", first+k, at, n)
			}
			places = append(places, at)
		}
		slices.Sort(places)
		for i, at := range places {
			if gap := (places[(i+1)%seeds] - at + n) % n; gap > n/4 || gap < n/10 {
				t.Errorf("from seed %d on: %v", first, places)
				break
			}
		}
	}
}

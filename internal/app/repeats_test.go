package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/exchange"
)

func TestManyRepeatsAreToldOfOnceInTenMinutes(t *testing.T) {
	var log bytes.Buffer
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := start
	r := &repeats{logger: slog.New(slog.NewTextHandler(&log, nil))}
	once, twice := make([]exchange.Attempt, 1), make([]exchange.Attempt, 2)
	hedged := []exchange.Attempt{{Waste: true}, {Hedge: true}}
	// minutes runs 100 requests a minute, of which so many need a second attempt, and returns when it was told of, in minutes.
	minutes := func(n, repeated int, attempts []exchange.Attempt) (told []int) {
		for range n {
			for i := range 100 {
				now = now.Add(600 * time.Millisecond)
				a := once
				if i < repeated {
					a = attempts
				}
				r.add(&exchange.Record{Attempts: a, Ended: now})
				if log.Len() > 0 {
					told = append(told, int(now.Sub(start).Minutes()))
					t.Log(strings.TrimSpace(log.String()))
					log.Reset()
				}
			}
		}
		return told
	}
	f := func(got []int, want ...int) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("told at minutes %v, want %v", got, want)
		}
		for i := range got {
			if d := got[i] - want[i]; d < -1 || d > 1 {
				t.Errorf("told at minutes %v, want %v", got, want)
			}
		}
	}
	f(minutes(30, 5, twice))         // 5 % are not more than 5 %
	f(minutes(30, 30, hedged))       // hedges are no failures
	f(minutes(8, 60, twice))         // not for long enough
	f(minutes(2, 0, twice))          // and well again
	f(minutes(25, 6, twice), 80, 90) // from minute 70 on
	f(minutes(5, 0, twice), 96)      // that it is over
	f(minutes(9, 100, twice))        // the ten minutes begin anew
	now = now.Add(3 * time.Hour)     // nobody came
	f(minutes(9, 100, twice))
}

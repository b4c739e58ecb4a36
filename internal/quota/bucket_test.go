package quota

import (
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestBucketGivesAMinutesWorthAndThenItsRate(t *testing.T) {
	b := PerMinute(60)
	for range 60 {
		if w := b.Wait(start, 1); w != 0 {
			t.Fatalf("wait of %v in a full bucket", w)
		}
		b.Take(start, 1)
	}
	f := func(after time.Duration, n float64, want time.Duration) {
		t.Helper()
		if got := b.Wait(start.Add(after), n); got != want {
			t.Errorf("after %v: wait for %v is %v, want %v", after, n, got, want)
		}
	}
	f(0, 1, time.Second)
	f(400*time.Millisecond, 1, 600*time.Millisecond)
	f(time.Second, 1, 0)
	f(30*time.Second, 60, 30*time.Second)
	f(time.Minute, 60, 0)
	f(time.Hour, 1000, 0) // more than it holds passes when it is full
	f(-time.Hour, 1, time.Second)
}

func TestBucketInDebt(t *testing.T) {
	b := PerMinute(600)
	b.Take(start, 1200)
	if w := b.Wait(start, 1); w != 60100*time.Millisecond {
		t.Errorf("wait %v", w)
	}
	b.Take(start, -1200)
	if b.Left(start) != 600 {
		t.Errorf("left %v after all was given back", b.Left(start))
	}
	b.Take(start, -5)
	if b.Left(start) != 600 {
		t.Errorf("left %v, more than it holds", b.Left(start))
	}
}

func TestBucketWithoutALimit(t *testing.T) {
	b := PerMinute(0)
	b.Take(start, 1e9)
	if b.Wait(start, 1e9) != 0 || b.Limited() {
		t.Error("a limit without a limit")
	}
}

func TestBucketKeepsWhatWasUsed(t *testing.T) {
	b := PerMinute(60)
	b.Take(start, 50)
	b.SetPerMinute(start, 100)
	if b.Left(start) != 50 {
		t.Errorf("left %v of 100 after 50 were used, want 50", b.Left(start))
	}
	b.SetPerMinute(start, 20)
	if b.Left(start) != -20 {
		t.Errorf("left %v of 20 after 50 were used, want -20", b.Left(start))
	}
}

// TestBucketWhoseLimitIsLoweredFar: what was used at a hundred times the rate is not waited for at the new one.
func TestBucketWhoseLimitIsLoweredFar(t *testing.T) {
	f := func(limit int, used float64, lowered int, want time.Duration) {
		t.Helper()
		b := PerMinute(limit)
		b.Take(start, used)
		b.SetPerMinute(start, lowered)
		if got := b.Wait(start, 0).Round(time.Millisecond); got != want {
			t.Errorf("after %v of %d were used, %d a minute are waited for %v, want %v", used, limit, lowered, got, want)
		}
	}
	f(800_000, 400_000, 8_000, time.Minute)
	f(800_000, 4_000, 8_000, 0)
	f(600, 1800, 60, 2*time.Minute) // a debt takes as long as it would have taken
	f(60, 120, 600, 0)              // and no longer at a higher limit
}

// TestBucketRefillsAtTheOldRateUntilTheLimitChanges: a lower limit does not slow down what has come back already.
func TestBucketRefillsAtTheOldRateUntilTheLimitChanges(t *testing.T) {
	b := PerMinute(60)
	b.Take(start, 60)
	minute := start.Add(time.Minute)
	b.SetPerMinute(minute, 6)
	if b.Left(minute) != 6 {
		t.Errorf("left %v of 6, a minute after 60 of 60 were used, want 6", b.Left(minute))
	}
}

// TestBucketWhoseLimitIsLiftedForAWhile keeps its use.
func TestBucketWhoseLimitIsLiftedForAWhile(t *testing.T) {
	b := PerMinute(60)
	b.Take(start, 60)
	b.SetPerMinute(start, 0)
	if b.Wait(start, 100) != 0 {
		t.Error("a lifted limit still holds")
	}
	b.Take(start, 100)
	b.SetPerMinute(start, 60)
	if w := b.Wait(start, 1); w != time.Second {
		t.Errorf("after it came back the wait is %v, want 1s", w)
	}
}

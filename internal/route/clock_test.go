package route

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// set returns t as the clock would show it had somebody set it by d: its monotonic reading stays. The standard library has
// no way to make one; the test checks that this one does what it says.
func set(t time.Time, d time.Duration) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t)) // seconds from bit 30 on
	*wall += uint64(int64(d/time.Second) << 30)
	return t
}

// TestClockThatIsSet: with monotonic readings, nothing that the Router decides depends on somebody setting the clock by an
// hour in the middle of it; and it decides the same for times without such readings.
func TestClockThatIsSet(t *testing.T) {
	base := time.Now()
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		if s := set(base, d); s.Sub(base) != 0 || s.Round(0).Sub(base.Round(0)) != d {
			t.Fatalf("time.Time is not made as this test believes: %v set by %v is %v", base, d, s)
		}
	}
	plain := story(t, func(d time.Duration) time.Time { return start.Add(d) })
	for _, jump := range []time.Duration{0, time.Hour, -time.Hour} {
		moved := story(t, func(d time.Duration) time.Time {
			if d < 100*second || d > 400*second {
				return base.Add(d)
			}
			return set(base.Add(d), jump)
		})
		for i := range plain {
			if plain[i] != moved[i] {
				t.Fatalf("set by %v:\n%s, want\n%s", jump, moved[i], plain[i])
			}
		}
	}
	for _, what := range []string{"open", "cooling", "half_open", "slow_start", "degraded", "quota"} {
		if !slices.ContainsFunc(plain, func(line string) bool { return strings.Contains(line, what) }) {
			t.Errorf("the story knows nothing of %s", what)
		}
	}
}

// story runs ten minutes of failures, rate limits, slowness, probes and limits, and tells what was decided.
func story(t *testing.T, clock func(time.Duration) time.Time) (lines []string) {
	t.Helper()
	r := New(Options{})
	adopt(t, r, clock(0), pool1("m", dep("a/m", Limits{RPM: 30}), dep("b/m", Limits{}), dep("c/m", Limits{}), dep("d/m", Limits{})))
	for i := range 2400 {
		since := time.Duration(i) * 250 * time.Millisecond
		q := query("m")
		q.Facts.Seed = uint64(i)
		if i%4 > 0 {
			q.Facts.Pin = []string{"", "b", "c", "d"}[i%4]
		}
		l, refusal := r.Pick(clock(since), q)
		line := fmt.Sprintf("%v: ", since)
		if l == nil {
			line += fmt.Sprintf("%v for %v %v", refusal.Kind, refusal.RetryIn, refusal.Decision.CutCounts())
		} else {
			line += fmt.Sprintf("%s, trial %v, not %v", l.Deployment().ID, l.Decision().Trial, l.Decision().CutCounts())
			o := took(200 * time.Millisecond)
			switch minute := since.Minutes(); {
			case l.Deployment().ID == "b/m" && minute > 1 && minute < 4:
				o = broken()
			case l.Deployment().ID == "c/m" && minute > 1.5 && minute < 3:
				o = took(4 * second)
			case l.Deployment().ID == "d/m" && i%50 == 3:
				o = asked(RateLimited, 3*second)
			}
			l.Done(clock(since+100*time.Millisecond), o)
		}
		for _, d := range r.View(clock(since + 100*time.Millisecond)).Deployments {
			b := d.Breaker
			line += fmt.Sprintf("; %s %v %.6f %v %v", d.ID, b.State, b.Share, b.Out, d.Recent)
		}
		lines = append(lines, line)
	}
	return lines
}

// TestClockThatGoesBack, as times without monotonic readings may, breaks nothing: what is out stays out no longer than it
// would have, and comes back.
func TestClockThatGoesBack(t *testing.T) {
	r := newRouter(t, pool1("m", dep("a/m", Limits{RPM: 600}), dep("b/m", Limits{})))
	end(t, r, start, "a/m", 4, broken())
	end(t, r, start, "a/m", 1, took(second))
	earlier := at(-time.Hour)
	end(t, r, earlier, "a/m", 5, broken())
	until := node1(t, r, earlier, "a/m").Breaker.Until
	if until.After(at(-time.Hour + 33*second)) {
		t.Errorf("opened at %v until %v", earlier, until)
	}
	end(t, r, until, "a/m", 1, took(second))
	for i := range 300 {
		end(t, r, until.Add(time.Duration(i)*second), "a/m", 1, took(second))
	}
	if s := state(t, r, until.Add(5*time.Minute), "a/m"); s != Closed {
		t.Errorf("five minutes later: %v, want closed", s)
	}
	mustBeIdle(t, r, until)
}

package route

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// judged feeds a deployment with streamed answers to prompts of so many tokens, one every gap, each begun when the one
// before had ended, and returns the time after them.
func judged(t testing.TB, r *Router, now time.Time, id string, gap time.Duration, promptTokens int, ttfts ...time.Duration) time.Time {
	t.Helper()
	for _, ttft := range ttfts {
		q := pinned("m", id)
		q.Facts.PromptBytes = 38 * promptTokens / 10
		mustPick(t, r, now, q).Done(now, took(ttft))
		now = now.Add(gap)
	}
	return now
}

func times(n int, d time.Duration) (ds []time.Duration) {
	for range n {
		ds = append(ds, d)
	}
	return ds
}

func pair(t testing.TB, h Health) *Router {
	t.Helper()
	return newRouterWith(t, h, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{})))
}

// TestGauge: one half of what was is forgotten in 10 s; three ratios above 1 in a row and a mean above it make slow, and
// only a mean below the calm mark ends that.
func TestGauge(t *testing.T) {
	f := func(mean float64, row int, slow bool, ratios ...float64) {
		t.Helper()
		var g gauge
		for i, ratio := range ratios {
			g.add(at(time.Duration(i)*slowHalfLife), ratio, 0.5, 3)
		}
		if math.Abs(g.ratio-mean) > 1e-9 || g.row != row || g.slow != slow {
			t.Errorf("after %v: %+v, want a mean of %v, %d in a row, slow %v", ratios, g, mean, row, slow)
		}
	}
	f(1, 1, false, 2)
	f(1.5, 2, false, 2, 2)
	f(1.75, 3, true, 2, 2, 2)
	f(1.5, 1, false, 4, 0, 2)
	f(0.98, 3, false, 0, 1.12, 1.12, 1.12)
	// Between the marks it stays what it was.
	f(0.6, 0, false, 0.6, 0.6, 0.75, 0.6)
	f(0.5625, 0, true, 2, 2, 2, 0.5, 0.5, 0.3125)
	f(0.375, 0, false, 2, 2, 2, 0.25, 0.25, 0.25, 0.3125)

	// Answers that come at once do not count more than one: what counts is for how long it has been so.
	var g gauge
	for range 100 {
		g.add(start, 2, 0.5, 3)
	}
	if g.ratio != 1 || g.slow {
		t.Errorf("after 100 at once: %+v", g)
	}
}

// TestFarTooSlowIsForgottenAsFast as what is just slow enough for the smallest share.
func TestFarTooSlowIsForgottenAsFast(t *testing.T) {
	after := func(ttft time.Duration) slowness {
		var s slowness
		h := Health{}.withDefaults()
		h.TTFTThreshold = second
		for i := range 30 {
			s.judge(at(time.Duration(i)*second), &h, ttft.Seconds(), 0, 1, 100)
			s.judge(at(time.Duration(i)*second), &h, ttft.Seconds(), 0.5, 1, 5000)
		}
		s.down, s.strain = 0, gauge{}
		return s
	}
	if ten, hundred := after(10*second), after(100*second); ten != hundred || ten.share() > 0.02 {
		t.Errorf("ten times: %+v, hundred times: %+v", ten, hundred)
	}
}

func TestClasses(t *testing.T) {
	f := func(class func(int) int, want int, from, to int) {
		t.Helper()
		if class(from) != want || class(to) != want {
			t.Errorf("%d to %d are classes %d to %d, want %d", from, to, class(from), class(to), want)
		}
	}
	f(loadClass, 0, 0, 0)
	f(loadClass, 1, 1, 1024)
	f(loadClass, 2, 1025, 4096)
	f(loadClass, 5, 65537, 262144)
	f(loadClass, 6, 262145, math.MaxInt)
	f(sizeClass, 0, 0, 64)
	f(sizeClass, 1, 65, 256)
	f(sizeClass, 2, 257, 1024)
	f(sizeClass, 5, 16385, mostTokens)
}

// TestShareOfTheSlow is the square of how fast it still is.
func TestShareOfTheSlow(t *testing.T) {
	f := func(own, threshold float64, want float64) {
		t.Helper()
		s := slowness{own: gauge{ratio: own, slow: own > 0}, threshold: gauge{ratio: threshold, slow: threshold > 0}}
		if got := s.share(); math.Abs(got-want) > 1e-9 {
			t.Errorf("ratios %v and %v: share %v, want %v", own, threshold, got, want)
		}
	}
	f(0, 0, 1)
	f(1, 0, 1.0/9) // three times slower than usual
	f(2, 0, 1.0/36)
	f(10.0/3, 0, 0.01)
	f(100, 0, smallestShare)
	f(0, 1, 1)
	f(0, 2, 0.25)
	f(0, 10, 0.01)
	f(1, 4, 1.0/16)
	f(2, 2, 1.0/36)
}

// TestThresholdDegradesAndLetsGo: small requests above ttft_threshold degrade, and the more the slower they are; below it all is well again.
func TestThresholdDegradesAndLetsGo(t *testing.T) {
	r := pair(t, Health{TTFTThreshold: 800 * time.Millisecond})
	now := judged(t, r, start, "a/m", second, 100, times(20, 400*time.Millisecond)...)
	f := func(want BreakerState, n int, ttft time.Duration) {
		t.Helper()
		now = judged(t, r, now, "a/m", second, 100, times(n, ttft)...)
		if b := node1(t, r, now, "a/m").Breaker; b.State != want || want == Degraded && b.Reason != "slow" {
			t.Fatalf("after %d × %v: %+v, want %v", n, ttft, b, want)
		}
	}
	f(Closed, 2, 8*second)
	f(Degraded, 1, 8*second)
	f(Degraded, 2, 700*time.Millisecond)
	f(Closed, 60, 700*time.Millisecond)
	f(Closed, 2, 900*time.Millisecond)
	f(Degraded, 60, 900*time.Millisecond)
	if share := node1(t, r, now, "a/m").Breaker.Share; share < 0.75 || share > 0.85 { // (800/900)²
		t.Errorf("a little too slow: share %v, want about 0.79", share)
	}
}

// TestThresholdIsForSmallPrompts and for probes: a large prompt takes long because it is large.
func TestThresholdIsForSmallPrompts(t *testing.T) {
	h := Health{TTFTThreshold: 800 * time.Millisecond}
	f := func(want BreakerState, promptTokens int) {
		t.Helper()
		r := pair(t, h)
		now := judged(t, r, start, "a/m", second, promptTokens, times(20, 5*second)...)
		if s := state(t, r, now, "a/m"); s != want {
			t.Errorf("5 s for prompts of %d tokens: %v, want %v", promptTokens, s, want)
		}
	}
	f(Degraded, 100)
	f(Degraded, 1000)
	f(Closed, 1001)
	f(Closed, 30_000)

	// What a cache holds need not be read: the engine's numbers decide.
	r := pair(t, h)
	o := took(5 * second)
	o.Reported, o.InputTokens, o.CachedTokens, o.OutputTokens = true, 30_000, 29_500, 10
	now := judged(t, r, start, "a/m", second, 30_000, 5*second)
	for range 10 {
		q := pinned("m", "a")
		q.Facts.PromptBytes = 114_000
		mustPick(t, r, now, q).Done(now, o)
		now = now.Add(second)
	}
	if s := state(t, r, now, "a/m"); s != Degraded {
		t.Errorf("5 s for 500 tokens that were not cached: %v, want degraded", s)
	}

	r = pair(t, h)
	for i := range 5 {
		r.Probed(at(time.Duration(i)*second), "a/m", Probe{OK: true, TTFT: 5 * second})
	}
	if s := state(t, r, at(5*second), "a/m"); s != Degraded {
		t.Errorf("5 s for probes: %v, want degraded", s)
	}
}

// TestOwnPace: without a threshold, and for large prompts, more than three times its own usual time is slow.
func TestOwnPace(t *testing.T) {
	f := func(want BreakerState, h Health, promptTokens int, usual, now time.Duration) {
		t.Helper()
		r := pair(t, h)
		then := judged(t, r, start, "a/m", second, promptTokens, times(30, usual)...)
		then = judged(t, r, then, "a/m", second, promptTokens, times(30, now)...)
		if s := state(t, r, then, "a/m"); s != want {
			t.Errorf("%d tokens, usually %v, now %v: %v, want %v", promptTokens, usual, now, s, want)
		}
	}
	withThreshold := Health{TTFTThreshold: 800 * time.Millisecond}
	f(Closed, Health{}, 100, 200*time.Millisecond, 580*time.Millisecond)
	f(Degraded, Health{}, 100, 200*time.Millisecond, 2*second)
	f(Degraded, Health{}, 30_000, 5*second, 25*second)
	f(Closed, withThreshold, 100, 20*time.Millisecond, 200*time.Millisecond) // ten times slower, and still fast enough
	f(Degraded, withThreshold, 30_000, 5*second, 25*second)
	f(Closed, withThreshold, 30_000, 5*second, 14*second)
}

// TestLoadIsNotSlowness: when the median of the pool takes longer than usual, only who takes three times as long as that is slow; and
// one of ten answers that is quick shows that the others only waited.
func TestLoadIsNotSlowness(t *testing.T) {
	f := func(name string, want BreakerState, a, others []time.Duration) {
		t.Helper()
		ids := []string{"a/m", "b/m", "c/m", "d/m"}
		r := newRouter(t, pool1("m", dep("a/m", Limits{}), dep("b/m", Limits{}), dep("c/m", Limits{}), dep("d/m", Limits{})))
		now := start
		for _, id := range ids {
			judged(t, r, now, id, second, 5000, times(40, second)...)
		}
		now = now.Add(time.Minute)
		for i := range a {
			for _, id := range ids {
				ttft := others
				if id == "a/m" {
					ttft = a
				}
				judged(t, r, now, id, second, 5000, ttft[i])
			}
			now = now.Add(second)
		}
		if s := state(t, r, now, "a/m"); s != want {
			t.Errorf("%s: %v, want %v", name, s, want)
		}
	}
	f("slow alone", Degraded, times(40, 8*second), times(40, second))
	f("all are slow", Closed, times(40, 8*second), times(40, 6*second))
	f("slower than the slow", Degraded, times(60, 25*second), times(60, 3*second))
	var mixed []time.Duration
	for i := range 60 {
		mixed = append(mixed, 8*second)
		if i%9 == 0 {
			mixed[i] = second
		}
	}
	f("slow, with quick ones between", Closed, mixed, times(60, second))
}

// TestSlowUnderLoadIsNoNewUsual: a slow deployment has more in flight than it ever had; what it takes then must not
// become what is usual for so many.
func TestSlowUnderLoadIsNoNewUsual(t *testing.T) {
	var p pace
	for i := range 50 {
		p.add(at(time.Duration(i)*second), 0.2, 100, i%2)
	}
	now := at(50 * second)
	for i, load := range []int{4, 5, 6, 9, 15, 16, 20, 40, 65, 100} {
		now = now.Add(second)
		if usual := p.of(100, load); usual > 0.4 {
			t.Errorf("after %d slow answers, with %d in flight %v s are usual, want 0.2", i, load, usual)
		}
		p.add(now, 2, 100, load)
	}
}

// TestUsualFollowsSlowly: what is faster, or a little slower, is usual at once; what is much slower in tens of minutes.
func TestUsualFollowsSlowly(t *testing.T) {
	f := func(seconds float64, after time.Duration, least, most float64) {
		t.Helper()
		var p pace
		for range 100 {
			p.add(start, 1, 100, 1)
		}
		for now := start; !now.After(at(after)); now = now.Add(second) {
			p.add(now, seconds, 100, 1)
		}
		if got := p.of(100, 1); got < least || got > most {
			t.Errorf("%v s instead of 1 for %v: %v s are usual, want %v to %v", seconds, after, got, least, most)
		}
	}
	f(0.5, 5*time.Minute, 0.5, 0.53)
	f(1.9, 5*time.Minute, 1.8, 1.9)
	f(10, time.Minute, 1.5, 1.9)
	f(10, time.Hour, 9.5, 10)
}

// TestTTFTOpen: three answers in a row that took longer than 30 s are down for who waits, if another is there.
func TestTTFTOpen(t *testing.T) {
	f := func(want BreakerState, r *Router, promptTokens int, ttfts ...time.Duration) {
		t.Helper()
		now := judged(t, r, start, "a/m", second, promptTokens, times(10, second)...)
		now = judged(t, r, now, "a/m", second, promptTokens, ttfts...)
		b := node1(t, r, now, "a/m").Breaker
		if b.State != want || want == Open && (b.Rule != RuleSlow || b.Reason != "slow" || b.Out != 30*second) {
			t.Errorf("prompts of %d tokens took %v: %+v, want %v", promptTokens, ttfts, b, want)
		}
	}
	late := 31 * second
	alone := func() *Router { return newRouter(t, pool1("m", dep("a/m", Limits{}))) }
	f(Closed, pair(t, Health{}), 100, late, late)
	f(Open, pair(t, Health{}), 100, late, late, late)
	f(Open, pair(t, Health{TTFTThreshold: second}), 100, late, late, late)
	f(Closed, pair(t, Health{}), 100, late, late, 30*second, late, late)
	f(Degraded, alone(), 100, times(slowRow, late)...)
	f(Open, pair(t, Health{}), 30_000, late, late, late) // 31 times its usual time
	f(Open, pair(t, Health{TTFTOpen: 5 * second}), 100, 6*second, 6*second, 6*second)
	f(Closed, pair(t, Health{TTFTOpen: time.Minute}), 100, late, 50*time.Millisecond, late)

	// A large prompt that always takes so long is not down.
	r := pair(t, Health{})
	now := judged(t, r, start, "a/m", second, 100_000, times(50, 40*second)...)
	if s := state(t, r, now, "a/m"); s != Closed {
		t.Errorf("large prompts that always take 40 s: %v, want closed", s)
	}
	// Probes say so too.
	r = pair(t, Health{})
	for range 3 {
		r.Probed(start, "a/m", Probe{OK: true, TTFT: late})
	}
	if b := node1(t, r, start, "a/m").Breaker; b.State != Open || b.Rule != RuleSlow {
		t.Errorf("probes that took 31 s: %+v, want open by the rule slow", b)
	}
}

// TestFirstAnswerAfterIdleIsNotJudged: it pays for a connection, or for a model that is loaded anew.
func TestFirstAnswerAfterIdleIsNotJudged(t *testing.T) {
	r := pair(t, Health{TTFTThreshold: 800 * time.Millisecond, TTFTOpen: 20 * second})
	now := start
	for range 20 {
		now = judged(t, r, now, "a/m", 0, 100, 25*second)
		now = judged(t, r, now, "a/m", 2*time.Minute, 100, 400*time.Millisecond)
	}
	if b := node1(t, r, now, "a/m").Breaker; b.State != Closed {
		t.Errorf("%+v, want closed", b)
	}
	now = judged(t, r, now, "a/m", 59*second, 100, times(4, 25*second)...)
	if s := state(t, r, now.Add(-59*second), "a/m"); s != Open {
		t.Errorf("answers 59 s apart: %v, want open", s)
	}
}

// TestFailuresAreNoLatency: what ends in a failure teaches nothing about speed.
func TestFailuresAreNoLatency(t *testing.T) {
	r := pair(t, Health{TTFTThreshold: 800 * time.Millisecond})
	o := broken()
	o.TTFT = 8 * second
	for i := range 40 {
		end(t, r, at(time.Duration(i)*second), "a/m", 2, success())
		end(t, r, at(time.Duration(i)*second), "a/m", 1, o)
	}
	if d := node1(t, r, at(40*second), "a/m"); d.Breaker.Reason == "slow" || d.TTFT != 0 || d.P95 != 0 {
		t.Errorf("after slow failures: %+v, TTFT %v, p95 %v", d.Breaker, d.TTFT, d.P95)
	}
}

// TestWaitingItsTurnIsNotSlow: an engine that serves one after the other takes far longer with another before it, which the
// balancer may not even see; what comes and goes so is usual.
func TestWaitingItsTurnIsNotSlow(t *testing.T) {
	var p pace
	for range 50 {
		p.add(start, 0.01, 100, 0)
	}
	for range 100 { // every third waits for somebody else's request
		p.add(start, 0.01, 100, 0)
		p.add(start, 0.01, 100, 0)
		p.add(start, 1, 100, 0)
	}
	if usual := p.of(100, 0); usual < 0.25 || usual > 0.4 {
		t.Errorf("when every third takes 1 s %v s are usual, want the mean, 0.34", usual)
	}
}

// TestPercentile95: it is what sorting all of them would give.
func TestPercentile95(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for n := 1; n <= recentKept; n++ {
		for range 20 {
			values := make([]float32, n)
			for i := range values {
				values[i] = float32(r.IntN(2 * n)) // with equal ones
			}
			got := percentile95(values)
			slices.Sort(values)
			if want := values[(n*95-1)/100]; got != want {
				t.Fatalf("of %v: %v, want %v", values, got, want)
			}
		}
	}
}

package route

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// takes is how long prompts take at an engine of a test.
func takes(n, l, b int) float64 {
	return 0.02 + 1e-4*float64(n) + 8e-10*float64(n)*(float64(l)-float64(n)/2) + 4e-4*float64(b)*max(1, float64(n)/speedChunk)
}

// TestSpeedIsLearned from prompts of all sizes, each a tenth off.
func TestSpeedIsLearned(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var s, fleet speed
	now := start
	prompt := func() (n, l, b int) {
		l = int(math.Exp(5 + 6*r.Float64()))
		return max(1, int(float64(l)*r.Float64())), l, r.IntN(60)
	}
	teach := func(times int, slower float64) {
		for range times {
			now = now.Add(time.Second)
			n, l, b := prompt()
			x := featuresOf(n, l, b)
			s.learn(now, prefill, &fleet, &x, slower*takes(n, l, b)*(0.9+0.2*r.Float64()), true)
		}
	}
	off := func(s *speed, slower float64) (worst float64) {
		for range 200 {
			n, l, b := prompt()
			x := featuresOf(n, l, b)
			worst = max(worst, math.Abs(math.Log(s.of(now, &x)/(slower*takes(n, l, b)))))
		}
		return worst
	}
	teach(400, 1)
	if e := off(&s, 1); e > 0.2 {
		t.Errorf("after 400 prompts a forecast is %.0f %% off", 100*e)
	}
	other := speed{}
	other.begin(now, prefill, &fleet)
	if e := off(&other, 1); e > 0.2 {
		t.Errorf("who has shown nothing is taken to be as fast as the fleet: %.0f %% off", 100*e)
	}
	teach(40, 10)
	if e := off(&s, 10); e > 0.7 {
		t.Errorf("40 prompts after all became ten times slower a forecast is %.0f %% off", 100*e)
	}
	now = now.Add(5 * time.Minute)
	if e := off(&s, 1); e > 1.3 {
		t.Errorf("five minutes without news a forecast is e^%.1f times off: nobody would ask again", e)
	}
}

// TestSpeedBeforeAnything is known: something finite and above zero, more for larger prompts.
func TestSpeedBeforeAnything(t *testing.T) {
	var s, fleet speed
	s.begin(start, prefill, &fleet)
	last := 0.0
	for _, n := range []int{1, 100, 10_000, 200_000} {
		x := featuresOf(n, n, 0)
		if got := s.of(start, &x); !(got > last) || got > 100 {
			t.Errorf("%d tokens: %v s, after %v", n, got, last)
		} else {
			last = got
		}
	}
}

// TestFewAnswersProveLittle: of engines of which prompts of one size alone are known, others are forecast in the proportions that are
// assumed.
func TestFewAnswersProveLittle(t *testing.T) {
	for _, seconds := range []float64{0.05, 0.3, 3} {
		for _, answers := range []int{1, 3, 10, 50} {
			var s, fleet speed
			for range answers {
				x := featuresOf(3000, 3000, 0)
				s.learn(start, prefill, &fleet, &x, seconds, true)
			}
			for _, want := range []struct {
				tokens      int
				least, most float64 // over the seconds of 3,000 tokens
			}{{8, 0.05, 0.25}, {3000, 0.5, 2}, {30_000, 5, 60}} {
				x := featuresOf(want.tokens, want.tokens, 0)
				if got := s.of(start, &x) / seconds; got < want.least || got > want.most {
					t.Errorf("after %d answers to 3,000 tokens in %v s, %d tokens are to take %.3f times as long", answers, seconds, want.tokens, got)
				}
			}
		}
	}
}

// TestWhoIsHardlyAskedFollowsTheFleet: one early answer must not keep a deployment from what the others show since, or nobody would ever ask
// it again.
func TestWhoIsHardlyAskedFollowsTheFleet(t *testing.T) {
	for _, l := range []*law{prefill, decode} {
		var rare, busy, fleet speed
		x := features{1, 0.5}
		rare.learn(start, l, &fleet, &x, 0.0007, false)
		for i := range 500 {
			busy.learn(start.Add(time.Duration(i)*time.Second), l, &fleet, &x, 0.0007, false)
		}
		later := start.Add(time.Hour)
		rare.begin(later, l, &fleet)
		if a, b := rare.of(later, &x), busy.of(later, &x); a > 1.5*b || b > 1.5*a {
			t.Errorf("who answered once is to take %v s, the others %v", a, b)
		}
	}
}

// TestPaceIsLearned of answers: what a token takes, the more the more requests run.
func TestPaceIsLearned(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var s, fleet speed
	pace := func(others int) float64 { return 0.008 + 0.0002*float64(others) }
	for i := range 300 {
		others := r.IntN(60)
		x := beside(others)
		s.learn(start.Add(time.Duration(i)*time.Second), decode, &fleet, &x, pace(others)*(0.8+0.4*r.Float64()), true)
	}
	for _, others := range []int{0, 20, 60} {
		x := beside(others)
		if got := s.of(start.Add(300*time.Second), &x); math.Abs(math.Log(got/pace(others))) > 0.15 {
			t.Errorf("beside %d a token is to take %v s, it takes %v", others, got, pace(others))
		}
	}
}

// TestSpeedOfNonsense stays a number above zero, whatever engines report.
func TestSpeedOfNonsense(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var s, fleet speed
	odd := []int{0, 1, 7, mostTokens}
	for i := range 5000 {
		n, l, b := odd[r.IntN(4)], odd[r.IntN(4)], r.IntN(3)*r.IntN(1000)
		x := featuresOf(n, max(n, l), b)
		s.learn(start.Add(time.Duration(i)), prefill, &fleet, &x, []float64{leastSeconds, 1, 1e6}[r.IntN(3)], r.IntN(2) == 0)
		if got := s.of(start, &x); !(got > 0) || math.IsInf(got, 0) {
			t.Fatalf("sample %d: %v s", i, got)
		}
	}
}

// TestLine holds the line of a deployment to exact values.
func TestLine(t *testing.T) {
	var n line
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	is := func(now time.Time, want float64) {
		t.Helper()
		if got := n.ahead(now); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v s are ahead, want %v", got, want)
		}
	}
	if !n.idle(at(0)) {
		t.Error("an empty line is not idle")
	}
	n.join(at(0), 4, true)
	is(at(0), 4)
	is(at(1), 3)
	n.join(at(1), 2, true)
	is(at(1), 5)
	is(at(5.5), 0.3*6) // late: it is not done, whatever the clock says
	n.leave(at(6), 4, true)
	is(at(6), 2) // anew: what is charged behind it
	n.join(at(6), 1, false)
	is(at(6), 3)
	n.leave(at(6.5), 2, false) // it failed: its seconds go
	is(at(6.5), 0.5)
	is(at(7), 0)
	if !n.idle(at(7)) || n.charged != 0 || n.waiting != 0 {
		t.Errorf("the line is not idle: %+v", n)
	}
}

// TestLineOfWholeAnswers: who is seen only when the answer is whole shows that the prompts before it are done, not those behind.
func TestLineOfWholeAnswers(t *testing.T) {
	var n line
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	is := func(now, want float64) {
		t.Helper()
		if got := n.ahead(at(now)); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v s are ahead, want %v", got, want)
		}
	}
	n.join(at(0), 3, false)
	n.join(at(0), 2, false)
	second := n.joined
	n.join(at(0), 4, false)
	third := n.joined
	is(0, 9)
	n.passed(at(0.5), second) // sooner than the clock said
	is(0.5, 4)
	n.passed(at(0.5), 3) // the first one, after the second: nothing new
	is(0.5, 4)
	n.passed(at(1), second)
	is(1, 3.5)
	n.passed(at(2), third)
	is(2, 0)
	if !n.idle(at(2)) {
		t.Error("the line is not idle")
	}
	n.join(at(3), 1, false)
	is(3, 1)
	n.passed(at(3.5), third) // late news of what is long done
	is(3.5, 0.5)
}

// TestPartOfLine: an engine that does four prompts at once makes nobody wait as long as the clock says.
func TestPartOfLine(t *testing.T) {
	var n line
	if n.part() != 1 {
		t.Errorf("unknown: %v", n.part())
	}
	for range 200 {
		n.learn(0.5, 2)
	}
	if p := n.part(); math.Abs(p-(0.25+0.1)/1.1) > 0.01 {
		t.Errorf("a quarter of the wait: %v", p)
	}
	for range 200 {
		n.learn(50, 2)
	}
	if p := n.part(); p != 1 {
		t.Errorf("far more than the clock said: %v", p)
	}
	n.learn(-1, 0)
}

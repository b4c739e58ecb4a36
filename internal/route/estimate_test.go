package route

import (
	"math"
	"testing"
	"time"
)

var tuning = Tuning{HalfLife: 10 * time.Second, ColdAfter: time.Minute}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Max(math.Abs(a), math.Abs(b)) }

// TestOldValueWeighsOneHalfAfterAHalfLife, exactly: in the next mean, and in what is expected meanwhile.
func TestOldValueWeighsOneHalfAfterAHalfLife(t *testing.T) {
	f := func(halfLife, silence time.Duration, old float64) {
		t.Helper()
		tuning := Tuning{HalfLife: halfLife, ColdAfter: time.Hour}
		e := estimate{}
		e.add(start, 1, 0, tuning) // with no fleet to compare with, the first sample is all there is
		if got := e.expect(start, 99, tuning); got != 1 {
			t.Errorf("at once: expect %v, want 1", got)
		}
		if got := e.expect(start.Add(silence), 3, tuning); got != 3-2*old {
			t.Errorf("half-life %v, silence %v: expect %v, want %v", halfLife, silence, got, 3-2*old)
		}
		e.add(start.Add(silence), 5, 1, tuning)
		if e.seconds != 5-4*old {
			t.Errorf("half-life %v, silence %v: mean %v, want %v", halfLife, silence, e.seconds, 5-4*old)
		}
	}
	f(10*time.Second, 0, 1)
	f(10*time.Second, 10*time.Second, 0.5)
	f(10*time.Second, 20*time.Second, 0.25)
	f(time.Second, time.Second, 0.5)
	f(30*time.Second, 30*time.Second, 0.5)
	f(30*time.Second, 60*time.Second, 0.25)
}

// TestForgettingIsByTimeNotBySample: a deployment with a hundred times the samples forgets no faster.
func TestForgettingIsByTimeNotBySample(t *testing.T) {
	after := func(samples int) float64 {
		e := estimate{}
		e.add(start, 1, 0, tuning)
		for i := range samples {
			e.add(start.Add(10*time.Second*time.Duration(i+1)/time.Duration(samples)), 2, 1, tuning)
		}
		return e.seconds
	}
	if few, many := after(1), after(1000); !near(few, 1.5) || !near(many, 1.5) {
		t.Errorf("after one half-life of new samples: %v with 1, %v with 1000, want 1.5", few, many)
	}
}

func TestSampleOutOfOrderMovesNoTimeBack(t *testing.T) {
	e := estimate{}
	e.add(at(10*time.Second), 1, 0, tuning)
	e.add(start, 100, 1, tuning)
	if e.seconds != 1 || e.at != at(10*time.Second) {
		t.Errorf("a sample from the past: %+v", e)
	}
}

func TestColdSampleIsDiscounted(t *testing.T) {
	f := func(silence time.Duration, want float64) {
		t.Helper()
		e := estimate{}
		e.add(start, 1, 0, tuning)
		e.add(start.Add(silence), 9, 1, tuning)
		if !near(e.seconds, want) {
			t.Errorf("after %v of silence: %v, want %v", silence, e.seconds, want)
		}
	}
	w := math.Exp2(-5.9)
	f(59*time.Second, w*1+(1-w)*9)
	w = math.Exp2(-6) // then three quarters of the sample are replaced by the fleet's 1 s
	f(60*time.Second, w*1+(1-w)*3)
	f(24*time.Hour, 3)
}

// TestColdSamplesDoNotDrift: with traffic so rare that each sample is cold, a steady TTFT stays what it is.
func TestColdSamplesDoNotDrift(t *testing.T) {
	p := &pool{tuning: tuning, members: []member{{node: &node{}}}}
	e := &p.members[0].node.ttft
	for i := range 100 {
		now := at(time.Duration(i) * 2 * time.Minute)
		e.add(now, 0.5, p.medianTTFT(now), tuning)
	}
	if !near(e.seconds, 0.5) {
		t.Errorf("after 100 cold samples of 0.5 s: %v", e.seconds)
	}
}

// ttfts is a pool whose members have these learned TTFTs in seconds, 0 = none.
func ttfts(t *testing.T, seconds ...float64) (*Router, []string) {
	t.Helper()
	var deps []Deployment
	var ids []string
	for i := range seconds {
		ids = append(ids, string(rune('a'+i))+"/m")
		deps = append(deps, dep(ids[i], Limits{}))
	}
	r := newRouter(t, pool1("m", deps...))
	for i, s := range seconds {
		if s > 0 {
			r.pools["m"].members[i].node.ttft = estimate{seconds: s, at: start, samples: 1}
		}
	}
	return r, ids
}

// TestNewcomerStartsAt1Point2TimesTheMedian, never at zero.
func TestNewcomerStartsAt1Point2TimesTheMedian(t *testing.T) {
	f := func(want float64, seconds ...float64) {
		t.Helper()
		r, ids := ttfts(t, seconds...)
		l := mustPick(t, r, start, query("m"))
		c := l.Decision().Candidates[len(ids)-1]
		if !near(c.TTFT, want) || c.Samples != 0 {
			t.Errorf("beside %v a newcomer is expected at %v (%d samples), want %v", seconds, c.TTFT, c.Samples, want)
		}
	}
	f(unknownTTFT, 0)
	f(unknownTTFT, 0, 0, 0)
	f(0.6, 0.5, 0)
	f(1.2*2, 1, 2, 100, 0)
	f(1.2*1.5, 2, 1, 0)
	f(1.2*1.5, 1, 0, 2, 0, 0)
}

// TestNewcomersFirstSampleIsDiscounted: it pays for connecting and loading.
func TestNewcomersFirstSampleIsDiscounted(t *testing.T) {
	r, _ := ttfts(t, 1, 1, 0)
	o := success()
	o.TTFT = 10 * time.Second
	mustPick(t, r, start, pinned("m", "c")).Done(start, o)
	if got, want := node1(t, r, start, "c/m").TTFT.Seconds(), 0.25*10+0.75*1.2; !near(got, want) {
		t.Errorf("after a first 10 s beside 1 s: %v, want %v", got, want)
	}
}

// TestMedianLeavesOutTheSilent: one that was not heard of for cold_after does not speak for the fleet, so it
// cannot keep its own old value up; when all are silent, all speak.
func TestMedianLeavesOutTheSilent(t *testing.T) {
	r, _ := ttfts(t, 0.1, 30)
	p := r.pools["m"]
	f := func(after time.Duration, want float64) {
		t.Helper()
		if got := p.medianTTFT(at(after)); !near(got, want) {
			t.Errorf("after %v: median %v, want %v", after, got, want)
		}
	}
	f(0, 15.05)
	p.members[0].node.ttft.at = at(50 * time.Second)
	f(59*time.Second, 15.05)
	f(61*time.Second, 0.1)
	f(time.Hour, 15.05)
}

// TestOneBadSampleIsForgotten in silence: after a minute and a half a deployment that once took 30 s is
// expected close to where a newcomer would be.
func TestOneBadSampleIsForgotten(t *testing.T) {
	r, _ := ttfts(t, 0.1, 30)
	now := start
	for range 90 {
		now = now.Add(time.Second)
		o := success()
		o.TTFT = 100 * time.Millisecond
		mustPick(t, r, now, pinned("m", "a")).Done(now, o)
	}
	got := mustPick(t, r, now, query("m")).Decision().Candidates[1].TTFT
	if got < 0.12 || got > 0.2 {
		t.Errorf("expected %v s after 90 s of silence, want about 0.12 s", got)
	}
}

// TestOnlyStreamedSuccessesAreSamples.
func TestOnlyStreamedSuccessesAreSamples(t *testing.T) {
	f := func(o Outcome, want time.Duration) {
		t.Helper()
		r := newRouter(t, pool1("m", dep("a/m", Limits{})))
		mustPick(t, r, start, query("m")).Done(start, o)
		if got := node1(t, r, start, "a/m").TTFT; got != want {
			t.Errorf("%+v: learned %v, want %v", o, got, want)
		}
	}
	ttft := 300 * time.Millisecond
	f(Outcome{Verdict: Success, TTFT: ttft}, ttft)
	f(Outcome{Verdict: Success}, 0) // not streamed
	f(Outcome{Verdict: DeploymentFault, TTFT: ttft}, 0)
	f(Outcome{Verdict: NotDeploymentFault, TTFT: ttft}, 0)
}

// tuned is a strategy with time constants of its own.
type tuned struct {
	first
	t Tuning
}

func (s tuned) Tuning() Tuning { return s.t }

func TestTuningComesFromTheStrategy(t *testing.T) {
	s := pool1("m", dep("a/m", Limits{}))
	s.Strategy = tuned{t: Tuning{HalfLife: time.Second, ColdAfter: time.Hour}}
	r := newRouter(t, s)
	for i, seconds := range []int{1, 3} {
		now := at(time.Duration(i) * time.Second)
		mustPick(t, r, now, query("m")).Done(now, Outcome{Verdict: Success, TTFT: time.Duration(seconds) * time.Second})
	}
	if got := node1(t, r, start, "a/m").TTFT; got != 2*time.Second {
		t.Errorf("after one half-life of 1 s: %v, want 2s", got)
	}
}

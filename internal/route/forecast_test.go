package route

import (
	"math"
	"sync"
	"testing"
	"time"
)

// foresee is a strategy that takes what answers first by forecast.
type foresee struct{}

func (foresee) Pick(r *Round) int {
	return r.Lowest(func(i int) float64 { f := &r.Candidates[i].Forecast; return f.Wait + f.Prefill })
}

func (foresee) Foresees() bool { return true }

// chain is a prompt's hash chain of so many blocks of 400 bytes, which begins like those of the same family.
func chain(family, shared, blocks int) (c []uint64) {
	for i := range blocks {
		h := uint64(family)<<32 + uint64(i)
		if i >= shared {
			h += uint64(shared+1) << 48
		}
		c = append(c, h*0x9e3779b97f4a7c15)
	}
	return c
}

// talk asks a Router for prompts of blocks, and answers.
type talk struct {
	t    *testing.T
	r    *Router
	now  time.Time
	seed uint64
}

func newTalk(t *testing.T, deployments ...Deployment) *talk {
	return &talk{t: t, r: newRouter(t, PoolSpec{Model: "m", Strategy: foresee{}, Deployments: deployments}), now: start}
}

func (k *talk) ask(chain []uint64) *Lease {
	k.t.Helper()
	k.seed++
	k.now = k.now.Add(time.Minute)
	return mustPick(k.t, k.r, k.now, Query{Model: "m", Facts: &Facts{
		Model: "m", Seed: k.seed, Stream: true, PromptBytes: 400*len(chain) + 40, Prefix: chain, PrefixBytes: 400, MaxOutput: 50,
	}})
}

// answer ends a lease after so many seconds; the engine says how many tokens it had.
func (k *talk) answer(l *Lease, seconds float64, prompt, cached int) {
	first := time.Duration(seconds * float64(time.Second))
	l.FirstToken(k.now.Add(first))
	l.Done(k.now.Add(first+time.Second), Outcome{
		Verdict: Success, Answered: true, Status: 200, TTFT: first, Reported: true, InputTokens: prompt, CachedTokens: cached, OutputTokens: 50,
	})
}

func chosen(l *Lease) *Candidate {
	for i := range l.Decision().Candidates {
		if c := &l.Decision().Candidates[i]; c.ID == l.Decision().Chosen {
			return c
		}
	}
	return nil
}

// TestPromptsGoWhereTheyAreCached, and the second prompt of a burst is seen to be where the first one went.
func TestPromptsGoWhereTheyAreCached(t *testing.T) {
	k := newTalk(t, dep("a/m", Limits{}), dep("b/m", Limits{}), dep("c/m", Limits{}))
	homes := map[int]string{}
	for round := range 20 {
		for family := range 5 {
			l := k.ask(chain(family, 30, 31+round))
			id := l.Deployment().ID
			if home := homes[family]; home == "" {
				homes[family] = id
			} else if home != id {
				t.Errorf("round %d: family %d went to %s, its home is %s", round, family, id, home)
			} else if c := chosen(l).Forecast.Cached; c < 2500 { // 30 blocks of 400 bytes of about 4
				t.Errorf("round %d: %d tokens are thought to be cached", round, c)
			}
			prompt := (400*(31+round) + 40) / 4
			k.answer(l, 0.05, prompt, prompt-100)
		}
	}
	mustBeIdle(t, k.r, k.now)

	first := k.ask(chain(7, 40, 40)) // nothing has come back yet
	second := k.ask(chain(7, 40, 41))
	if c := chosen(second).Forecast.Cached; first.Deployment().ID != second.Deployment().ID || c < 3000 {
		t.Errorf("%s, then %s, where %d tokens are thought to be cached", first.Deployment().ID, second.Deployment().ID, c)
	}
	first.Done(k.now, Outcome{Verdict: DeploymentFault, Class: "upstream_5xx", Answered: true, Status: 500})
	second.Done(k.now, Outcome{})
	mustBeIdle(t, k.r, k.now)
}

// TestRestartedEngine: of a cache that finds nothing five times in a row nothing is believed any more.
func TestRestartedEngine(t *testing.T) {
	k := newTalk(t, dep("a/m", Limits{}))
	for range 10 {
		k.answer(k.ask(chain(1, 30, 30)), 0.05, 3000, 2990)
	}
	for i := range missesInARow {
		l := k.ask(chain(1, 30, 30))
		if chosen(l).Forecast.Cached == 0 {
			t.Errorf("miss %d: nothing is thought to be cached", i)
		}
		k.answer(l, 0.3, 3000, 0)
	}
	l := k.ask(chain(1, 30, 30))
	if c := chosen(l).Forecast.Cached; c != 0 {
		t.Errorf("after %d misses %d tokens are thought to be cached", missesInARow, c)
	}
	k.answer(l, 0.3, 3000, 0)
}

// TestEngineWithoutCache: what is never found counts for nothing after a while.
func TestEngineWithoutCache(t *testing.T) {
	k := newTalk(t, dep("a/m", Limits{}))
	var l *Lease
	for range 100 {
		l = k.ask(chain(1, 30, 30))
		k.answer(l, 0.3, 3000, 0)
	}
	if c := chosen(l).Forecast.Cached; c > 60 {
		t.Errorf("%d of 3000 tokens are thought to be cached", c)
	}
}

// TestEngineThatSaysNothing of its cache is believed to have what it was sent.
func TestEngineThatSaysNothing(t *testing.T) {
	k := newTalk(t, dep("a/m", Limits{}))
	var l *Lease
	for range 20 {
		l = k.ask(chain(1, 30, 30))
		l.FirstToken(k.now)
		l.Done(k.now, Outcome{Verdict: Success, Answered: true, TTFT: time.Second})
	}
	if c := chosen(l).Forecast.Cached; c < 2500 {
		t.Errorf("%d tokens are thought to be cached", c)
	}
}

// TestForecastIsOfUse: of a deployment that takes 2 s for 3,000 tokens and its twin that takes 0.2 s, the quick one gets the
// prompts, and forecasts come true.
func TestForecastIsOfUse(t *testing.T) {
	k := newTalk(t, dep("quick/m", Limits{}), dep("slow/m", Limits{}))
	quick := 0
	for i := range 400 {
		l := k.ask(chain(1000+i, 0, 30))
		seconds := 0.2
		if l.Deployment().ID == "slow/m" {
			seconds = 2
		} else if i >= 200 {
			quick++
		}
		if f := chosen(l).Forecast; i >= 200 && seconds < 1 && math.Abs(f.Wait+f.Prefill-seconds) > 0.05 {
			t.Errorf("%d: forecast %+v, it takes %v s", i, f, seconds)
		}
		k.answer(l, seconds, 3000, 0)
	}
	if quick < 180 {
		t.Errorf("the quick one got %d of 200", quick)
	}
}

// TestForecastOfAnswers: what a token takes, and what a request costs, at each deployment; who has shown nothing is as the fleet.
func TestForecastOfAnswers(t *testing.T) {
	price := Price{Input: 2, CachedInput: 0.5, Output: 10, Request: 0.001}
	priced := dep("quick/m", Limits{})
	priced.Price = price
	k := newTalk(t, priced, dep("slow/m", Limits{}), dep("new/m", Limits{}))
	for i := range 300 {
		id, pace, verdict := "quick/m", 10*time.Millisecond, Success
		switch i % 3 {
		case 1:
			id, pace = "slow/m", 30*time.Millisecond
		case 2:
			id, verdict = "new/m", NotDeploymentFault
		}
		k.now = k.now.Add(time.Minute)
		l := mustPick(t, k.r, k.now, Query{Model: "m", Facts: &Facts{Model: "m", Seed: uint64(i), Stream: true, Pin: id, PromptBytes: 12_000}})
		l.FirstToken(k.now.Add(time.Second))
		l.Done(k.now.Add(2*time.Second), Outcome{
			Verdict: verdict, Answered: true, Status: 200, TTFT: time.Second, ITL: pace, Reported: true, InputTokens: 3000, OutputTokens: 50,
		})
	}
	l := k.ask(chain(1, 0, 30))
	for i := range l.Decision().Candidates {
		c := &l.Decision().Candidates[i]
		want := map[string]float64{"quick/m": 0.010, "slow/m": 0.030, "new/m": 0.020}[c.ID]
		if got := c.Forecast.Token; math.Abs(math.Log(got/want)) > 0.25 {
			t.Errorf("%s: %v s a token, want about %v", c.ID, got, want)
		}
		dollars := 0.0
		if c.ID == "quick/m" {
			dollars = price.Of(l.Decision().Prompt, c.Forecast.Cached, 50)
		}
		if c.Forecast.Dollars != dollars {
			t.Errorf("%s: %v dollars, want %v", c.ID, c.Forecast.Dollars, dollars)
		}
	}
	k.answer(l, 1, 3000, 0)
}

// TestForesight: how far off forecasts were, and by how much the answer came later than was forecast elsewhere, in exact values.
func TestForesight(t *testing.T) {
	k := newTalk(t, dep("a/m", Limits{}), dep("b/m", Limits{}))
	off, regret := map[string][]float64{}, map[string][]float64{}
	for i, seconds := range []float64{0.3, 2, 0.05, 0.7, 5, 0.2} {
		l := k.ask(chain(100+i, 0, 30))
		var mine, other float64
		for j := range l.Decision().Candidates {
			c := &l.Decision().Candidates[j]
			if first := c.Forecast.Wait + c.Forecast.Prefill; c.ID == l.Deployment().ID {
				mine = first
			} else {
				other = first
			}
		}
		id := l.Deployment().ID
		off[id] = append(off[id], math.Abs(math.Log(seconds/mine)))
		regret[id] = append(regret[id], max(0, seconds-other))
		k.answer(l, seconds, 3000, 0)
	}
	mean := func(xs []float64) (sum float64) {
		for _, x := range xs {
			sum += x / float64(len(xs))
		}
		return sum
	}
	regretted := false
	for _, d := range k.r.View(k.now).Deployments {
		f := d.Foresight
		if n := len(off[d.ID]); f.Answers != n || f.Choices != n || math.Abs(f.Error-mean(off[d.ID])) > 1e-9 || math.Abs(f.Regret.Seconds()-mean(regret[d.ID])) > 1e-8 {
			t.Errorf("%s: %+v, want an error of %v and a regret of %v s", d.ID, f, off[d.ID], regret[d.ID])
		}
		regretted = regretted || f.Regret > 0
	}
	if !regretted {
		t.Error("nothing was regretted: not the traffic that was meant")
	}
}

// TestForesightWithoutChoice: one deployment alone, or a strategy that looks at no forecasts, can be wrong and regrets nothing.
func TestForesightWithoutChoice(t *testing.T) {
	f := func(s Strategy, deployments ...Deployment) {
		t.Helper()
		r := newRouter(t, PoolSpec{Model: "m", Strategy: s, Deployments: deployments})
		l := mustPick(t, r, start, Query{Model: "m", Facts: &Facts{Model: "m", Stream: true, PromptBytes: 4000}})
		l.FirstToken(start.Add(time.Second))
		l.Done(start.Add(2*time.Second), Outcome{Verdict: Success, Answered: true, TTFT: time.Second})
		got := r.View(start).Deployments[0].Foresight
		if got.Answers != 1 || got.Choices != 0 || got.Regret != 0 || !(got.Error > 0) {
			t.Errorf("%T of %d: %+v", s, len(deployments), got)
		}
	}
	f(foresee{}, dep("a/m", Limits{}))
	f(first{}, dep("a/m", Limits{}), dep("b/m", Limits{}))
}

// TestPaceOfWholeAnswers: where nothing is streamed, deployments show how fast they write by when their answers are whole.
func TestPaceOfWholeAnswers(t *testing.T) {
	r := newRouter(t, PoolSpec{Model: "m", Strategy: foresee{}, Deployments: []Deployment{dep("quick/m", Limits{}), dep("slow/m", Limits{})}})
	now := start
	ask := func(seed int, pin string) *Lease {
		return mustPick(t, r, now, Query{Model: "m", Facts: &Facts{Model: "m", Seed: uint64(seed), Pin: pin, PromptBytes: 4000, MaxOutput: 4000}})
	}
	for i := range 200 {
		now = now.Add(time.Minute)
		l, took := ask(i, []string{"quick/m", "slow/m"}[i%2]), 300*time.Millisecond+time.Duration(1+i%2)*5*time.Second
		l.Done(now.Add(took), Outcome{Verdict: Success, Answered: true, Status: 200, Reported: true, InputTokens: 1000, OutputTokens: 500})
	}
	d := ask(0, "").Decision()
	for i, want := range []float64{0.010, 0.020} {
		if got := d.Candidates[i].Forecast.Token; math.Abs(math.Log(got/want)) > 0.2 {
			t.Errorf("%s: %v s a token, want about %v", d.Candidates[i].ID, got, want)
		}
	}
	if d.Output != 4000 || d.Answer != 500 {
		t.Errorf("room is kept for %d tokens, %d are likely; want 4000 and 500", d.Output, d.Answer)
	}
}

func TestPrice(t *testing.T) {
	f := func(p Price, prompt, cached, output int, want float64) {
		t.Helper()
		if got := p.Of(prompt, cached, output); math.Abs(got-want) > 1e-12 {
			t.Errorf("%+v of %d, %d cached, %d: %v $, want %v", p, prompt, cached, output, got, want)
		}
	}
	f(Price{}, 1000, 500, 100, 0)
	f(Price{Input: 2, CachedInput: 0.5, Output: 10, Request: 0.001}, 1_000_000, 400_000, 100_000, 0.6*2+0.4*0.5+1+0.001)
	f(Price{Input: 2}, 1_000_000, 400_000, 100_000, 2) // cached input has no price of its own
	d := dep("a/m", Limits{})
	d.Price.Output = math.NaN()
	if _, err := New(Options{}).Adopt(start, []PoolSpec{{Model: "m", Strategy: foresee{}, Deployments: []Deployment{d}}}); err == nil {
		t.Error("a price that is no number is taken")
	}
}

// TestForecastsFromMany goroutines: the index and the line are whole afterwards.
func TestForecastsFromMany(t *testing.T) {
	r := newRouter(t, PoolSpec{Model: "m", Strategy: foresee{}, Deployments: []Deployment{dep("a/m", Limits{}), dep("b/m", Limits{})}})
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 300 {
				l, _ := r.Pick(start, Query{Model: "m", Facts: &Facts{
					Model: "m", Seed: uint64(i), Stream: i%2 == 0, PromptBytes: 4000, Prefix: chain(i%7, 5, 5+g), PrefixBytes: 400,
				}})
				if i%3 == 0 {
					l.FirstToken(start)
				}
				l.Done(start, Outcome{Verdict: Verdict(i % 3), Answered: true, TTFT: time.Second, Reported: true, InputTokens: 1000, CachedTokens: 7 * i})
			}
		})
	}
	all.Wait()
	mustBeIdle(t, r, start)
}

// TestOutlook tells how often a deployment is asked, for how long, and how wrong forecasts are.
func TestOutlook(t *testing.T) {
	var o outlook
	if x := o.of(4); x != (Outlook{}) {
		t.Errorf("before anything: %+v", x)
	}
	for i := range 1000 {
		o.requested(start.Add(time.Duration(i)*100*time.Millisecond), 0.5, 4)
	}
	if x := o.of(4); math.Abs(x.Rate-2.5) > 1e-6 || math.Abs(x.Prefill-0.5) > 1e-9 || x.Error != 0 {
		t.Errorf("10 a second over 4, half a second each: %+v", x)
	}
	for range outlookLeast {
		o.errors.addOf(2, errorMemory)
	}
	if x := o.of(4); x.Error != 2 {
		t.Errorf("error %v", x.Error)
	}
}

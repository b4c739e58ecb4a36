package route

import (
	"math"
	"testing"
	"time"
)

// TestPromptsOfOneStepAreLearnedTogether: an engine that does several prompts at one go is not thought to be faster for each of them, the more so
// the longer its line is, and what a step costs in itself is told from the work of its prompts.
func TestPromptsOfOneStepAreLearnedTogether(t *testing.T) {
	const once, perToken = 0.05, 1e-4 // seconds
	for _, most := range []int{1, 4, 12} {
		k := newTalk(t, dep("a/m", Limits{}))
		for round := range 200 {
			k.now = k.now.Add(time.Second)
			var leases []*Lease
			seconds := once
			for i := range 1 + round%most {
				k.seed++
				tokens := 400 + 300*((round+i)%5)
				leases = append(leases, mustPick(t, k.r, k.now, Query{Model: "m", Facts: &Facts{Model: "m", Seed: k.seed, Stream: true, PromptBytes: 4 * tokens, MaxOutput: 50}}))
				seconds += perToken * float64(leases[i].Decision().Prompt)
			}
			first := time.Duration(seconds * float64(time.Second))
			for i, l := range leases { // a little apart, as they come through a network
				l.FirstToken(k.now.Add(first + time.Duration(i)*50*time.Microsecond))
			}
			for _, l := range leases {
				l.Done(k.now.Add(first+time.Second), Outcome{Verdict: Success, Answered: true, Status: 200, TTFT: first})
			}
		}
		e := k.r.pools["m"].members[0].node.engine
		for _, tokens := range []int{400, 1600} {
			x := featuresOf(tokens, tokens, 0)
			if got, want := e.speed.of(k.now, &x), once+perToken*float64(tokens); math.Abs(got-want) > 0.15*want {
				t.Errorf("up to %d at one go: %d tokens are thought to take %.3f s, they take %.3f", most, tokens, got, want)
			}
		}
		if n := len(e.steps.free); n > 2 {
			t.Errorf("up to %d at one go: the memory of %d steps is kept, two are enough for steps that are over", most, n)
		}
		mustBeIdle(t, k.r, k.now)
	}
}

// TestChurn: what conversations have to compute again because it was pushed out is told from what they have to because they went elsewhere.
func TestChurn(t *testing.T) {
	turns := func(found func(text int) int) float64 {
		k := newTalk(t, dep("a/m", Limits{}), dep("b/m", Limits{}))
		for talk := range uint64(40) {
			text, before := 0, Turn{}
			for turn := range uint64(4) {
				text += 4000
				end := 1000*talk + turn + 1
				l := k.say(chain(int(talk), 0, text/400), said(talk+1, end, text, before))
				k.answer(l, 0.1, text/4, found(text-4000)/4)
				before = Turn{Hash: end, Blocks: int32(text / 400)}
			}
		}
		return k.r.pools["m"].stats.outlook.of(2).Churn
	}
	if c := turns(func(text int) int { return text }); c != 0 {
		t.Errorf("all is found again, churn is %.2f", c)
	}
	// Of four turns of 1, 2, 3 and 4 parts 10 are computed, 6 of them again.
	if c := turns(func(int) int { return 0 }); math.Abs(c-0.6) > 0.1 {
		t.Errorf("nothing is found again, churn is %.2f, want 0.6", c)
	}

	k := newTalk(t, dep("a/m", Limits{}), dep("b/m", Limits{}))
	first := k.say(chain(1, 0, 10), said(7, 70, 4000))
	k.answer(first, 0.1, 1000, 0)
	second := k.say(chain(1, 0, 20), said(7, 71, 8000, Turn{Hash: 70, Blocks: 10}))
	other := "a/m"
	if first.Deployment().ID == other {
		other = "b/m"
	}
	l := second
	l.charge.once, l.charge.lost = 0, k.r.lost(0) // as if the other had been chosen
	for i := range k.r.charges {
		if k.r.eligible[i].dep.ID == other {
			l.charge.lost = k.r.lost(i)
		}
	}
	if l.charge.lost != 0 {
		t.Errorf("%.0f tokens are thought to be lost of a prompt that went elsewhere, all of it is where it was", l.charge.lost)
	}
	k.answer(second, 0.1, 2000, 0)
}

package strategy

import (
	"testing"
	"time"

	"evenkeel/internal/route"
)

// TestPredictedWaitMeetsOthers: of those that are about as good a conversation goes to the same at all balancers, from where it can be
// recomputed; the more of its kind come through others, the more may it cost.
func TestPredictedWaitMeetsOthers(t *testing.T) {
	s := build(t, "predicted_wait")
	counts := map[int]int{}
	for opening := range uint64(400) {
		var picks []int
		for _, strangers := range []float64{0, 1} {
			for seed := range uint64(3) {
				candidates := []route.Candidate{
					{ID: "a", Weight: 1, Forecast: route.Forecast{Prefill: 1}},
					{ID: "b", Weight: 1, Forecast: route.Forecast{Prefill: 1.05}},
					{ID: "c", Weight: 1, Forecast: route.Forecast{Prefill: 1, Wait: 0.6}},
					{ID: "d", Weight: 1, Forecast: route.Forecast{Prefill: 1, Wait: 1.2}},
				}
				r := route.NewRound(start, &route.Facts{Stream: true, Seed: seed}, 0, candidates, 0)
				r.Opening = opening*0x9e3779b97f4a7c15 + 1
				r.Outlook.Strangers = strangers
				picks = append(picks, s.Pick(r))
			}
		}
		if picks[0] != picks[1] || picks[0] != picks[2] || picks[3] != picks[4] || picks[0] > 1 || picks[3] > 2 || picks[3] < 2 && picks[3] != picks[0] {
			t.Fatalf("conversation %d goes to %v", opening, picks)
		}
		counts[picks[3]]++
	}
	if len(counts) != 3 || counts[2] < 80 {
		t.Errorf("of 400 conversations among three equals: %v", counts)
	}
}

// TestPredictedWaitSharesWhatIsCommon: who does not have what all begin with is as good as who has it.
func TestPredictedWaitSharesWhatIsCommon(t *testing.T) {
	s := build(t, "predicted_wait")
	candidates := []route.Candidate{
		{ID: "a", Weight: 1, Forecast: route.Forecast{Prefill: 0.1, Wait: 0.2}},
		{ID: "b", Weight: 1, Forecast: route.Forecast{Prefill: 3, Common: 2.9}},
		{ID: "c", Weight: 1, Forecast: route.Forecast{Prefill: 3}},
	}
	r := route.NewRound(start, &route.Facts{Stream: true}, 0, candidates, 0)
	if i := s.Pick(r); i != 1 {
		t.Errorf("it goes to %s", candidates[i].ID)
	}
	if terms := r.Candidates[1].Noted(); terms[1] != (route.Term{Name: "common_seconds", Value: -2.9}) {
		t.Errorf("terms %v", terms)
	}
}

// TestConversationsRecompute: what was chosen for a conversation follows from its decision and from how it began.
func TestConversationsRecompute(t *testing.T) {
	s, c := build(t, "predicted_wait"), newClient(t, build1(t, "predicted_wait", equal(5)...))
	chosen := map[string]bool{}
	for talk := range uint64(60) {
		id := talk*0x9e3779b97f4a7c15 + 1
		turns := route.Turns{Opening: id, End: id}
		for turn := range uint64(3) {
			f := route.Facts{PromptBytes: 4000, MaxOutput: 100, Stream: true, PrefixBytes: 256, Turns: turns}
			l := c.ask(f)
			d := l.Decision()
			if got := d.Recompute(s, &route.Facts{Stream: true}); got != d.Chosen {
				t.Fatalf("turn %d of %d went to %s, recomputed %s", turn, talk, d.Chosen, got)
			}
			chosen[d.Chosen] = true
			l.FirstToken(c.now)
			l.Done(c.now, route.Outcome{Verdict: route.Success, Answered: true, TTFT: 100 * time.Millisecond, Reported: true, InputTokens: 1000, OutputTokens: 100})
			turns.Past[0] = route.Turn{Hash: id + 10*turn, Rest: 900, Answer: 100} // of the second, nobody here knows the one before
			turns.End = id + 20*turn
			c.now = c.now.Add(time.Second)
		}
	}
	if len(chosen) < 3 {
		t.Errorf("only %v were chosen: not the traffic that was meant", chosen)
	}
}

// TestTheSamePromptIsNoConversation: whoever asks the same again and again, with little to do, is not always sent to the same one.
func TestTheSamePromptIsNoConversation(t *testing.T) {
	c := newClient(t, build1(t, "predicted_wait", equal(4)...))
	counts := map[string]int{}
	for range 200 {
		l := c.ask(route.Facts{PromptBytes: 400, MaxOutput: 100, Stream: true, Turns: route.Turns{Opening: 5, End: 5}})
		counts[l.Deployment().ID]++
		l.FirstToken(c.now)
		l.Done(c.now, route.Outcome{Verdict: route.Success, Answered: true, TTFT: 100 * time.Millisecond, Reported: true, InputTokens: 100, OutputTokens: 100})
		c.now = c.now.Add(time.Second)
	}
	for id, n := range counts {
		if len(counts) != 4 || n > 100 {
			t.Errorf("%s got %d of 200: %v", id, n, counts)
		}
	}
}

package strategy

import (
	"testing"

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
				r := route.NewRound(start, &route.Facts{Stream: true, Seed: seed, Turns: route.Turns{Opening: opening*0x9e3779b97f4a7c15 + 1}}, 0, candidates, 0)
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

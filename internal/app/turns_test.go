package app

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	timing "evenkeel/internal/engine"
	"evenkeel/internal/mock"
)

// TestWhatIsCachedIsKnown: of chats with short turns under one system prompt of 300 bytes, as people have them, what is thought to
// be cached is about what an engine with a cache says that it found, the answers it gave included.
func TestWhatIsCachedIsKnown(t *testing.T) {
	preset, err := timing.Preset("vllm-8192")
	if err != nil {
		t.Fatal(err)
	}
	e := engine(t, mock.Config{Name: "e", Models: []string{"m"}, Engine: &preset, OutputTokens: 40})
	w := start(t, parse(t, fmt.Sprintf("strategy: predicted_wait\nendpoints:\n  e: {url: %q}\n", e.URL())))
	w.serves("m")
	const talks, turns = 4, 6
	system := strings.Repeat("You answer in short and friendly sentences. ", 7)[:300]
	said := make([]string, talks)
	var thought, found, off float64
	for turn := range turns {
		for k := range said {
			said[k] += fmt.Sprintf(`,{"role":"user","content":"%s"}`, strings.Repeat(fmt.Sprintf("Question %d of talk %d? ", turn, k), 1+(3*turn+k)%5))
			got := w.do(http.MethodPost, w.url+"/v1/chat/completions", fmt.Sprintf(`{"model":"m","messages":[{"role":"system","content":%q}%s]}`, system, said[k]))
			var answer struct {
				Choices []struct{ Message struct{ Content string } }
			}
			if err := json.Unmarshal([]byte(got.body), &answer); err != nil || len(answer.Choices) != 1 {
				t.Fatalf("%d %v %s", got.status, err, got.body)
			}
			said[k] += fmt.Sprintf(`,{"role":"assistant","content":%q}`, answer.Choices[0].Message.Content)
			w.quiet()
			a := w.explained(w.app.ring.Last(1)[0]).Attempts[0]
			if turn > 0 {
				believed, cached := float64(a.Decision.Candidates[0].Forecast.CachedTokens), float64(a.Outcome.CachedTokens)
				thought, found, off = thought+believed, found+cached, off+math.Abs(believed-cached)
			}
		}
	}
	n := float64(talks * (turns - 1))
	t.Logf("tokens of a prompt, in the mean: %.0f were thought to be cached, %.0f were, off by %.0f", thought/n, found/n, off/n)
	if off > 0.08*found {
		t.Errorf("%.0f tokens were thought to be cached, %.0f were, off by %.0f", thought, found, off)
	}
}

package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	timing "evenkeel/internal/engine"
	"evenkeel/internal/mock"
)

// talked is a world in front of four engines with caches, through which 7 conversations of 6 turns went, one turn after the other, and
// the share of prompt tokens that the engines found in their caches.
func talked(t *testing.T, settings string) (w *world, cached float64) {
	text := settings + "\nendpoints:\n"
	preset, err := timing.Preset("vllm-8192")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		e := engine(t, mock.Config{Name: fmt.Sprint("e", i), Models: []string{"m"}, Engine: &preset, OutputTokens: 4})
		text += fmt.Sprintf("  e%d: {url: %q}\n", i, e.URL())
	}
	w = start(t, parse(t, text))
	w.serves("m")
	w.await("all serve", func() bool { return len(w.app.router.View(time.Now()).Deployments) == 4 })
	return w, w.converse()
}

// converse has 7 conversations of 6 turns with the model m, one turn after the other, and returns the share of prompt tokens that the engines
// found in their caches.
func (w *world) converse() (cached float64) {
	const talks, turns = 7, 6
	said := make([]string, talks)
	for turn := range turns {
		for k := range said {
			said[k] += fmt.Sprintf(",{%q:%q,%q:%q}", "role", "user", "content", fmt.Sprintf("talk %d, turn %d: %s", k, turn, strings.Repeat(fmt.Sprint("word", k, " "), 300)))
			got := w.do(http.MethodPost, w.url+"/v1/chat/completions", fmt.Sprintf(`{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[%s]}`, said[k][1:]))
			if got.status != http.StatusOK || got.err != nil {
				w.t.Fatalf("%d %v %s", got.status, got.err, got.body)
			}
			said[k] += `,{"role":"assistant","content":"well"}`
		}
	}
	w.quiet()
	found, rest := w.metric("evenkeel_tokens_total", `kind="cached_input"`), w.metric("evenkeel_tokens_total", `kind="input"`)
	return found / (found + rest)
}

// TestPredictedWaitKeepsConversations where their beginnings are cached, over sockets: what engines with caches tell of them, what is
// counted, and what /explain says was expected agree; round_robin finds a quarter of that.
func TestPredictedWaitKeepsConversations(t *testing.T) {
	w, own := talked(t, "strategy: predicted_wait")
	last := w.app.ring.Last(1)[0]
	c := w.explained(last).Attempts[0].Decision.Candidates
	most := 0
	for i := range c {
		if c[i].Forecast != nil {
			most = max(most, c[i].Forecast.CachedTokens)
		}
	}
	if o := last.Attempts[0].Outcome; most < o.CachedTokens*8/10 || most > o.CachedTokens*12/10 || o.CachedTokens == 0 {
		t.Errorf("%d tokens were thought to be cached, the engine found %d of %d", most, o.CachedTokens, o.InputTokens)
	}
	_, turnwise := talked(t, "strategy: round_robin")
	t.Logf("cached: %.3f of all prompt tokens, under round_robin %.3f", own, turnwise)
	if own < 0.6 || turnwise > own/2 {
		t.Errorf("cached: %.3f of all prompt tokens, under round_robin %.3f", own, turnwise)
	}
}

package app

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"evenkeel/internal/mock"
)

// TestObjectivesOverSockets: of an engine that begins at once and one that writes faster, who streams gets the one and who does not the
// other; where the one is dear, who streams waits.
func TestObjectivesOverSockets(t *testing.T) {
	share := func(options string, dollars float64, stream bool) (soon int) {
		begins := engine(t, mock.Config{Name: "begins", Models: []string{"m"}, BaseLatency: 2 * time.Millisecond, InterToken: 16 * time.Millisecond, OutputTokens: 20})
		writes := engine(t, mock.Config{Name: "writes", Models: []string{"m"}, BaseLatency: 50 * time.Millisecond, InterToken: time.Millisecond, OutputTokens: 20})
		w := start(t, parse(t, fmt.Sprintf("strategy: {name: predicted_wait%s}\nendpoints: {begins: {url: %q}, writes: {url: %q}}\n"+
			"models: {m: {providers: [{name: begins, price: {request: %v}}, {name: writes}]}}\n", options, begins.URL(), writes.URL(), dollars)))
		w.serves("m")
		ask := func(stream bool, headers ...string) {
			got := w.do(http.MethodPost, w.url+"/v1/chat/completions", body("m", fmt.Sprintf(`,"stream":%v,"max_tokens":1000`, stream)), headers...)
			if got.status != http.StatusOK || got.err != nil {
				t.Fatalf("%d %v %s", got.status, got.err, got.body)
			}
		}
		for i := range 10 {
			ask(true, "x-evenkeel-pin", []string{"begins", "writes"}[i%2])
		}
		w.quiet()
		before := w.metric("evenkeel_attempts_total", `deployment="begins/m"`)
		for range 10 {
			ask(stream)
		}
		w.quiet()
		return int(w.metric("evenkeel_attempts_total", `deployment="begins/m"`) - before)
	}
	f := func(options string, dollars float64, stream bool, least, most int) {
		t.Helper()
		if got := share(options, dollars, stream); got < least || got > most {
			t.Errorf("predicted_wait%s, streamed %v: the one that begins at once got %d of 10 requests, want %d to %d", options, stream, got, least, most)
		}
	}
	f("", 0, true, 8, 10)
	f("", 0, false, 0, 2)
	f(", objective: last_token", 0, true, 0, 2)
	f(", dollars_per_second: 0.001", 0.001, true, 0, 2) // as dear as a second
}

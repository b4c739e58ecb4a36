package engine

import (
	"testing"
	"time"
)

// What Cached says is what admission then finds, in every model.
func TestCachedTellsWhatIsFound(t *testing.T) {
	for _, s := range []Scheduler{Mixed, PrefillFirst, Slots, FIFO, Legacy} {
		t.Run(s.String(), func(t *testing.T) {
			e := newEngine(t, plain(func(c *Config) { c.Scheduler = s }))
			f := func(prompt []uint64, tokens, want int) {
				t.Helper()
				if got := e.Cached(&Sequence{Prompt: prompt, PromptTokens: tokens, OutputTokens: 1}); got != want {
					t.Errorf("%d tokens of %v: %d cached, want %d", tokens, prompt, got, want)
				}
			}
			f(chain(1, 9), 95, 0)
			submit(t, e, 0, Sequence{ID: 1, Prompt: chain(1, 9), PromptTokens: 95, OutputTokens: 1})
			f(chain(1, 9), 95, 0) // it is not computed yet
			run(e)
			f(chain(1, 9), 95, 90)
			f(chain(1, 4), 49, 40)
			f(chain(2, 9), 95, 0)
			submit(t, e, time.Second, Sequence{ID: 2, Prompt: chain(1, 9), PromptTokens: 95, OutputTokens: 1})
			run(e)
			if l := e.Load(2 * time.Second); l.CachedTokens != 90 {
				t.Errorf("admission found %d tokens, want the 90 that Cached told", l.CachedTokens)
			}
		})
	}
}

package engine

import (
	"testing"
	"time"
)

// What a request of the past found in the cache is taken as given: the rest is computed, with attention to all of it.
func TestFoundCountsAsCached(t *testing.T) {
	for _, s := range []Scheduler{Mixed, PrefillFirst, Slots, FIFO} {
		t.Run(s.String(), func(t *testing.T) {
			e := newEngine(t, plain(func(c *Config) { c.Scheduler, c.Timing.Pair = s, 1e-6 }))
			submit(t, e, 0, Sequence{ID: 1, PromptTokens: 95, OutputTokens: 1, Found: 90})
			got := run(e)
			submit(t, e, time.Second, Sequence{ID: 2, PromptTokens: 10, OutputTokens: 1, Found: 400}) // the last token is computed
			want := "first 1@15.925, done 1@15.925, first 2@1011.019, done 2@1011.019"                // as in TestCachedPrefixStillCostsAttention
			if s == FIFO {                                                                            // what is cached costs nothing there
				want = "first 1@15.025, done 1@15.025, first 2@1011.001, done 2@1011.001"
			}
			equal(t, append(got, run(e)...), want)
			if l := e.Load(2 * time.Second); l.PromptTokens != 105 || l.CachedTokens != 99 {
				t.Errorf("%d prompt tokens and %d cached, want 105 and 99", l.PromptTokens, l.CachedTokens)
			}
		})
	}
	t.Run("less than is there", func(t *testing.T) {
		e := newEngine(t, plain(nil))
		submit(t, e, 0, Sequence{ID: 1, Prompt: chain(1, 9), PromptTokens: 95, OutputTokens: 1})
		run(e)
		submit(t, e, time.Second, Sequence{ID: 2, Prompt: chain(1, 9), PromptTokens: 95, OutputTokens: 1, Found: 20})
		equal(t, run(e), "first 2@1015, done 2@1015")
	})
}

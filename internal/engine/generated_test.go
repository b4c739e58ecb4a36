package engine

import (
	"testing"
	"time"
)

// TestGenerated: what is out at any time is what an engine that tells of each token has told by then.
func TestGenerated(t *testing.T) {
	for _, preset := range []string{"vllm-2048", "sglang", "llama.cpp", "fifo"} {
		c, err := Preset(preset)
		if err != nil {
			t.Fatal(err)
		}
		quiet, loud := newEngine(t, c), newEngine(t, c)
		told := map[uint64]int{}
		advance := func(now time.Duration) {
			for _, e := range []*Engine{quiet, loud} {
				for at, ok := e.Next(); ok && at <= now; at, ok = e.Next() {
					for _, x := range e.Step(at) {
						if e == loud && x.Kind != Preempted {
							told[x.ID] = x.Tokens
						}
					}
				}
			}
		}
		seen := 0
		for i := range 4000 {
			now := time.Duration(i) * 7 * time.Millisecond
			advance(now)
			if i%100 == 0 && i < 1000 {
				s := seq(uint64(i/100), 300+i, 50+i/10)
				submit(t, quiet, now, s)
				s.EachToken = true
				submit(t, loud, now, s)
			}
			for id := range uint64(10) {
				answer := quiet.Answer(id)
				if answer == nil {
					continue
				}
				got := answer.Generated(now)
				if got != told[id] {
					t.Fatalf("%s: request %d has %d tokens at %v, and %d were told of", preset, id, got, now, told[id])
				}
				seen += min(got, 1)
			}
		}
		if seen < 100 {
			t.Errorf("%s: only %d looks at answers that had begun", preset, seen)
		}
		if got := quiet.Answer(99); got != nil {
			t.Errorf("%s: a request that is not there has the answer %v", preset, got)
		}
	}
}

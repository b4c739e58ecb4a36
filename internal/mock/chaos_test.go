package mock

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Crashes, restarts and changing faults under load: every request is counted once, nothing is left running, and the
// engine serves again afterwards. What the clients get does not matter here, only that they get an end.
func TestChaosLeavesNothingBehind(t *testing.T) {
	e := start(t, Config{Slots: 4, QueueLimit: 8, InterToken: 200 * time.Microsecond, BaseLatency: time.Millisecond, Seed: 1})
	c := client(t)
	var stop atomic.Bool
	var whole, broken atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				_, got, err := post(t, c, e.URL()+"/v1/chat/completions", chatBody(fmt.Sprintf(`,"stream":%v`, (n+i)%2 == 0)))
				if err == nil && got != "" {
					whole.Add(1)
				} else {
					broken.Add(1)
				}
			}
		})
	}
	faults := []Fault{
		{Kind: "refuse"}, {Kind: "status", Rate: 0.5}, {Kind: "reset", After: 3, Rate: 0.5}, {Kind: "die", Count: 5},
		{Kind: "close", Rate: 0.3}, {Kind: "hang", Count: 2}, {Kind: "stall", After: 2, Count: 2}, {Kind: "truncate", Rate: 0.5},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		before := whole.Load()
		if err := e.ClearFault(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "served well", func() bool { return whole.Load() >= before+10 })
		setFault(t, e, faults[rng.IntN(len(faults))])
		ended := whole.Load() + broken.Load()
		eventually(t, "the fault was felt", func() bool { return whole.Load()+broken.Load() >= ended+10 })
		e.Kill()
		if s := e.Stats(); s.OpenConnections != 0 || s.Running != 0 || s.Waiting != 0 || s.Started != s.Completed+s.Aborted+s.Cut {
			t.Fatalf("after Kill: %+v", s)
		}
		if err := e.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	if err := e.ClearFault(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if got := mustPost(t, client(t), e.URL()+"/v1/chat/completions", chatBody(streaming), 200); !strings.HasSuffix(got, "[DONE]\n\n") {
		t.Errorf("after it all: %q", got)
	}
	if s := settled(t, e); s.Cut == 0 || s.Completed == 0 || broken.Load() == 0 {
		t.Errorf("nothing happened: %+v, %d broken", s, broken.Load())
	}
}

package study

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"evenkeel/internal/sim"
)

// conversation is the workload of the excerpt that the repository has.
func conversation(tb testing.TB) Workload {
	tb.Helper()
	w, err := Find("mooncake-conversation")
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join("..", "testdata", "mooncake_conversation_300.jsonl")
	f, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if w.Trace, err = sim.ReadMooncake(f, file); err != nil {
		tb.Fatal(err)
	}
	return w
}

func mustPrepare(tb testing.TB, r Row, seed uint64) *Prepared {
	tb.Helper()
	p, err := Prepare(r, seed)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func mustPolicy(tb testing.TB, name string) Policy {
	tb.Helper()
	p, err := Strategy(name)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func mustRun(tb testing.TB, p *Prepared, policy Policy, seed uint64) *Outcome {
	tb.Helper()
	o, err := p.Run(policy, seed, Hooks{})
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// TestRun: every workload plays under every engine that can hold it, as busy as was asked for.
func TestRun(t *testing.T) {
	chats, err := Find("multi-turn")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []Workload{conversation(t), chats} {
		for _, preset := range []string{"fifo", "vllm-2048", "sglang"} {
			p := mustPrepare(t, Row{Workload: w, Engine: preset, N: 4, Rho: .5, Requests: 600}, 1)
			o := mustRun(t, p, mustPolicy(t, "least_tokens"), 1)
			t.Logf("%s %s: %+v rate %.2f last %v\n%+v", w.Name, preset, p.Work, p.Rate, p.Last, *o)
			if again := mustRun(t, p, mustPolicy(t, "least_tokens"), 1); !reflect.DeepEqual(o, again) {
				t.Errorf("%s %s: two runs differ", w.Name, preset)
			}
		}
	}
}

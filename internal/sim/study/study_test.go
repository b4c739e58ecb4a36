package study

import (
	"os"
	"path/filepath"
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
	if w.Trace, err = sim.ReadMooncake(f, file, nil); err != nil {
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

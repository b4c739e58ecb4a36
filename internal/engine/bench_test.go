package engine

import (
	"testing"
	"time"
)

// BenchmarkRequests serves prompts of 2,000 tokens, a quarter of them shared, and outputs of 200. One operation is one
// request; running says how many an engine had at once.
func BenchmarkRequests(b *testing.B) {
	f := func(name, preset string, engines int, every time.Duration) {
		b.Run(name, func(b *testing.B) {
			c, err := Preset(preset)
			if err != nil {
				b.Fatal(err)
			}
			fleet := make([]*Engine, engines)
			for i := range fleet {
				fleet[i] = newEngine(b, c)
			}
			shared := chain(1, 512/c.BlockTokens)
			own := 2000/c.BlockTokens - len(shared)
			steps, running := 0, 0
			b.ReportAllocs()
			b.ResetTimer()
			for n := range b.N {
				e, now := fleet[n%engines], time.Duration(n/engines)*every
				for at, ok := e.Next(); ok && at < now; at, ok = e.Next() {
					e.Step(at)
					steps++
				}
				prompt := append(make([]uint64, 0, len(shared)+own), shared...)
				for i := range own { // that nobody has sent before
					prompt = append(prompt, uint64(n)<<32|uint64(i))
				}
				s := Sequence{ID: uint64(n), Prompt: prompt, PromptTokens: 2000, OutputTokens: 200}
				if err := e.Submit(now, s); err != nil {
					b.Fatal(err)
				}
				running += e.Load(now).Running
			}
			b.ReportMetric(float64(steps)/float64(b.N), "steps/op")
			b.ReportMetric(float64(running)/float64(b.N), "running")
		})
	}
	f("mixed", "vllm-8192", 1, 120*time.Millisecond)
	f("mixed, 64 engines", "vllm-8192", 64, 120*time.Millisecond)
	f("mixed, alone", "vllm-8192", 1, 3*time.Second)
	f("prefill first", "sglang", 1, 120*time.Millisecond)
	f("fifo", "fifo", 1, 60*time.Millisecond)
}

package engine

import (
	"testing"
	"time"
)

// BenchmarkRequests serves prompts of 2,000 tokens, a quarter of them shared, and outputs of 200, at about 30 sequences at
// once (or as many as the row says). One operation is one request.
func BenchmarkRequests(b *testing.B) {
	f := func(name, preset string, every time.Duration) {
		b.Run(name, func(b *testing.B) {
			c, err := Preset(preset)
			if err != nil {
				b.Fatal(err)
			}
			e := newEngine(b, c)
			shared := chain(1, 512/c.BlockTokens)
			prompts := make([][]uint64, 64)
			for i := range prompts {
				prompts[i] = append(shared[:len(shared):len(shared)], chain(uint64(i+2), 2000/c.BlockTokens-len(shared))...)
			}
			steps, running := 0, 0
			b.ReportAllocs()
			b.ResetTimer()
			for n := range b.N {
				now := time.Duration(n) * every
				for at, ok := e.Next(); ok && at < now; at, ok = e.Next() {
					e.Step(at)
					steps++
				}
				p := prompts[n%len(prompts)]
				for i := len(shared); i < len(p); i++ { // a prompt that nobody has sent
					p[i] += 1 << 20
				}
				s := Sequence{ID: uint64(n), Prompt: append([]uint64(nil), p...), PromptTokens: 2000, OutputTokens: 200}
				if err := e.Submit(now, s); err != nil {
					b.Fatal(err)
				}
				if n%64 == 0 {
					running += e.Load(now).Running
				}
			}
			b.ReportMetric(float64(steps)/float64(b.N), "steps/op")
			b.ReportMetric(float64(running)/float64((b.N+63)/64), "running")
		})
	}
	f("mixed", "vllm-8192", 120*time.Millisecond)
	f("mixed alone", "vllm-8192", 3*time.Second)
	f("prefill first", "sglang", 120*time.Millisecond)
	f("fifo", "fifo", 60*time.Millisecond)
}

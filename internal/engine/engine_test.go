package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// plain is an engine whose times are easy to add up: 10 ms a step, 1 ms a prompt token, 2 ms a decoding sequence.
func plain(change func(*Config)) Config {
	c := Config{
		Timing:     Timing{Base: 10e-3, Token: 1e-3, Sequence: 2e-3},
		StepTokens: 100, MicroBatch: 512, MaxSequences: 8, Slots: 2, BlockTokens: 10, Blocks: 100,
	}
	if change != nil {
		change(&c)
	}
	return c
}

func newEngine(t testing.TB, c Config) *Engine {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func submit(t testing.TB, e *Engine, now time.Duration, s Sequence) {
	t.Helper()
	if err := e.Submit(now, s); err != nil {
		t.Fatal(err)
	}
}

// seq is a request whose blocks nobody shares.
func seq(id uint64, prompt, output int) Sequence {
	return Sequence{ID: id, PromptTokens: prompt, OutputTokens: output}
}

// chain returns n hashes of a prefix of its own.
func chain(name uint64, n int) []uint64 {
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = name<<32 | uint64(i)
	}
	return hashes
}

// run steps e until it is idle, and says what happened as "kind id@milliseconds".
func run(e *Engine) []string {
	var got []string
	for at, ok := e.Next(); ok; at, ok = e.Next() {
		for _, ev := range e.Step(at) {
			got = append(got, say(ev))
		}
	}
	return got
}

func say(ev Event) string {
	kind := [...]string{"first", "token", "done", "preempted"}[ev.Kind]
	return fmt.Sprintf("%s %d@%v", kind, ev.ID, float64(ev.At)/1e6)
}

func equal(t *testing.T, got []string, want string) {
	t.Helper()
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("\ngot  %s\nwant %s", s, want)
	}
}

func TestMixedStepTimes(t *testing.T) {
	f := func(name string, change func(*Config), want string, seqs ...Sequence) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Helper()
			e := newEngine(t, plain(change))
			for _, s := range seqs {
				submit(t, e, 0, s)
			}
			equal(t, run(e), want)
		})
	}
	f("alone", nil, "first 1@60, done 1@84", seq(1, 50, 3))
	f("one token", nil, "first 1@60, done 1@60", seq(1, 50, 1))
	f("each token", nil, "first 1@60, token 1@72, done 1@84", Sequence{ID: 1, PromptTokens: 50, OutputTokens: 3, EachToken: true})
	f("two chunks", nil, "first 1@170, done 1@170", seq(1, 150, 1))
	// The second is admitted at 60; its prompt and the first's token share the step: 10 + 20 + 2.
	f("mixed", nil, "first 1@60, first 2@92, done 1@106, done 2@106", seq(1, 50, 3), seq(2, 20, 2))
	// The decoding sequence takes its token from the budget of 100: the second needs two steps, of 99 and 1 tokens.
	f("decodes first", nil, "first 1@60, first 2@184, done 1@198, done 2@198", seq(1, 50, 4), seq(2, 100, 2))
	f("max sequences", func(c *Config) { c.MaxSequences = 1 }, "first 1@60, done 1@72, first 2@102, done 2@102", seq(1, 50, 2), seq(2, 20, 1))
	f("attention", func(c *Config) { c.Timing.Pair = 1e-6 }, // 2·1e-6·100·50 = 10 ms, then 2·1e-6·50·(100 + 25) = 12.5 ms
		"first 1@192.5, done 1@192.5", seq(1, 150, 1))
	f("prefill base", func(c *Config) { c.Timing.Prefill = 5e-3 }, "first 1@180, done 1@192", seq(1, 150, 2))
	f("context", func(c *Config) { c.Timing.Context = 1e-3 }, // 51 tokens, then 52
		"first 1@60, done 1@187", seq(1, 50, 3))
	f("decode curve", func(c *Config) { c.Timing.Decode = func(use float64) float64 { return use } }, // 51 of 1,000 tokens, then 52
		"first 1@60, done 1@183", seq(1, 50, 3))
	f("cold load", func(c *Config) { c.Load = time.Second }, // both wait for it, then share a step
		"first 1@1050, done 1@1050, first 2@1050, done 2@1050", seq(1, 20, 1), seq(2, 20, 1))
	f("warm-up", func(c *Config) { c.WarmUpSteps, c.WarmUpFactor = 2, 3 }, "first 1@180, done 1@228", seq(1, 50, 3))
}

func TestPrefillFirstStallsDecoding(t *testing.T) {
	e := newEngine(t, plain(func(c *Config) { c.Scheduler = PrefillFirst }))
	submit(t, e, 0, seq(1, 50, 3))
	submit(t, e, 0, seq(2, 150, 2))
	// 60: the second's prompt takes 110 and 60; the first waits for its second token until 240 + 14.
	equal(t, run(e), "first 1@60, first 2@230, done 2@244, done 1@256")
}

func TestCachedPrefixStillCostsAttention(t *testing.T) {
	c := plain(func(c *Config) { c.Timing.Pair = 1e-6 })
	e := newEngine(t, c)
	p := chain(1, 10)
	submit(t, e, 0, Sequence{ID: 1, Prompt: p, PromptTokens: 100, OutputTokens: 1})
	run(e)
	submit(t, e, time.Second, Sequence{ID: 2, Prompt: p[:9], PromptTokens: 95, OutputTokens: 1})
	// 5 tokens after 90: 10 + 5 + 2·1e-6·5·(90 + 2.5)·1000 = 15.925 ms.
	equal(t, run(e), "first 2@1015.925, done 2@1015.925")
	if got, want := c.PrefillTime(95, 90), 15925*time.Microsecond; got != want {
		t.Errorf("PrefillTime(95, 90) = %v, want %v", got, want)
	}
}

func TestCachedTokens(t *testing.T) {
	f := func(name string, schedulers []Scheduler, want int, first, second Sequence) {
		t.Helper()
		for _, s := range schedulers {
			t.Run(fmt.Sprint(name, "/", s), func(t *testing.T) {
				t.Helper()
				e := newEngine(t, plain(func(c *Config) { c.Scheduler = s }))
				first.ID, second.ID = 1, 2
				submit(t, e, 0, first)
				run(e)
				submit(t, e, time.Hour, second)
				at, _ := e.Next()
				got := e.Step(at)
				if len(got) == 0 || got[0].CachedTokens != want {
					t.Errorf("got %+v, want %d cached tokens", got, want)
				}
			})
		}
	}
	p, o := chain(1, 10), chain(2, 3)
	f("all but the last block", []Scheduler{Mixed, PrefillFirst, FIFO, Legacy}, 90,
		Sequence{Prompt: p, PromptTokens: 100, OutputTokens: 1}, Sequence{Prompt: p, PromptTokens: 100, OutputTokens: 1})
	f("all but the last token", []Scheduler{Slots}, 99,
		Sequence{Prompt: p, PromptTokens: 100, OutputTokens: 1}, Sequence{Prompt: p, PromptTokens: 100, OutputTokens: 1})
	f("full blocks", all, 50,
		Sequence{Prompt: p[:5], PromptTokens: 55, OutputTokens: 1}, Sequence{Prompt: p[:6], PromptTokens: 62, OutputTokens: 1})
	f("until they part", all, 30,
		Sequence{Prompt: p[:6], PromptTokens: 60, OutputTokens: 1},
		Sequence{Prompt: append(slices.Clone(p[:3]), chain(9, 3)...), PromptTokens: 61, OutputTokens: 1})
	// 55 + 25 tokens: the last was never computed on, so 79 tokens hold 7 full blocks, 2 of them completed by the output.
	f("the next turn", all, 70,
		Sequence{Prompt: p[:5], PromptTokens: 55, OutputTokens: 25, Output: o},
		Sequence{Prompt: append(slices.Clone(p[:5]), o...), PromptTokens: 90, OutputTokens: 1})
	f("no hashes", all, 0, seq(1, 60, 1), seq(2, 60, 1))
}

func TestSubmitRefusesWhatCannotBe(t *testing.T) {
	e := newEngine(t, plain(nil))
	submit(t, e, 0, seq(7, 10, 1))
	f := func(s Sequence, want string) {
		t.Helper()
		err := e.Submit(0, s)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Submit(%+v) = %v, want an error with %q", s, err, want)
		}
	}
	f(seq(1, 0, 1), "0 prompt and 1 output tokens")
	f(seq(1, 1, 0), "1 prompt and 0 output tokens")
	f(seq(1, 900, 102), "raise Blocks")
	f(seq(1, 1, 1<<62), "raise Blocks")
	f(seq(1, 1<<62, 1<<62), "raise Blocks")
	f(seq(7, 10, 1), "request 7 is here already")
	f(Sequence{ID: 1, Prompt: chain(1, 3), PromptTokens: 29, OutputTokens: 1}, "hashes of 3 blocks for 29 prompt tokens")
	f(Sequence{ID: 1, Prompt: chain(1, 1), Output: chain(2, 1), PromptTokens: 29, OutputTokens: 20}, "only 1 of 2 of its prompt's")
	f(Sequence{ID: 1, Prompt: chain(1, 2), Output: chain(2, 2), PromptTokens: 29, OutputTokens: 10}, "complete at most 1")
	submit(t, e, 0, seq(1, 900, 101))
}

func TestConfigErrors(t *testing.T) {
	f := func(want string, change func(*Config)) {
		t.Helper()
		_, err := New(plain(change))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	f("Scheduler is 9", func(c *Config) { c.Scheduler = 9 })
	f("Blocks is 0", func(c *Config) { c.Blocks = 0 })
	f("at most 1073741824 tokens", func(c *Config) { c.Blocks = 1 << 40 })
	f("BlockTokens is -1", func(c *Config) { c.BlockTokens = -1 })
	f("StepTokens is 0", func(c *Config) { c.StepTokens = 0 })
	f("MaxSequences 101 is above StepTokens 100", func(c *Config) { c.MaxSequences = 101 })
	f("Slots is 0", func(c *Config) { c.Scheduler, c.Slots = Slots, 0 })
	f("Slots 101 is above Blocks 100", func(c *Config) { c.Scheduler, c.Slots = Slots, 101 })
	f("MicroBatch is 0", func(c *Config) { c.Scheduler, c.MicroBatch = Slots, 0 })
	f("Watermark is 1", func(c *Config) { c.Watermark = 1 })
	f("Load is -1ns", func(c *Config) { c.Load = -1 })
	f("WarmUpSteps 1, WarmUpFactor 0", func(c *Config) { c.WarmUpSteps = 1 })
	f("Timing.Token is -1", func(c *Config) { c.Timing.Token = -1 })
	f("a prompt must take time", func(c *Config) { c.Timing = Timing{Sequence: 1} })
	f("a token must take time", func(c *Config) { c.Timing = Timing{Token: 1} })
}

func TestPresetsRun(t *testing.T) {
	for _, name := range Presets() {
		c, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		e := newEngine(t, c)
		submit(t, e, 0, seq(1, 3000, 20))
		at, _ := e.Next()
		for len(e.Step(at)) == 0 {
			at, _ = e.Next()
		}
		if want := c.PrefillTime(3000, 0); at != want {
			t.Errorf("%s: the first token of 3,000 comes at %v alone, want PrefillTime %v", name, at, want)
		}
		if got := run(e); len(got) != 1 || !strings.HasPrefix(got[0], "done 1@") {
			t.Errorf("%s: got %v after the first token, want the end", name, got)
		}
	}
	if _, err := Preset("vlm"); err == nil || !strings.Contains(err.Error(), `no preset "vlm": there are dynamo-mock, fifo, legacy`) {
		t.Errorf("got %v, want the names", err)
	}
}

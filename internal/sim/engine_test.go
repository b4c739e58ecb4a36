package sim

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
)

// engines returns n engines of a preset.
func engines(tb testing.TB, n int, preset string) []Server {
	tb.Helper()
	c, err := engine.Preset(preset)
	if err != nil {
		tb.Fatal(err)
	}
	var servers []Server
	for range n {
		e, err := NewEngine(c)
		if err != nil {
			tb.Fatal(err)
		}
		servers = append(servers, e)
	}
	return servers
}

func TestRehash(t *testing.T) {
	chain := []uint64{1, 2, 3, 4, 5}
	f := func(from, to, want int) []uint64 {
		t.Helper()
		got, err := rehash(chain, from, to)
		if err != nil || len(got) != want {
			t.Fatalf("%d to %d: %d hashes, %v, want %d", from, to, len(got), err, want)
		}
		return got
	}
	f(16, 16, 5)
	if got := f(16, 32, 2); !slices.Equal(got, []uint64{2, 4}) {
		t.Errorf("got %v, want the hashes of every second block", got)
	}
	fine := f(64, 16, 20)
	slices.Sort(fine)
	if len(slices.Compact(fine)) != 20 {
		t.Error("parts of blocks are alike")
	}
	if _, err := rehash(chain, 24, 16); err == nil || !strings.Contains(err.Error(), "blocks of 24 tokens and the engine blocks of 16") {
		t.Errorf("got %v", err)
	}
}

// TestEngineAlone: a request that is alone takes what the engine says, and the same prompt once more comes from the cache.
func TestEngineAlone(t *testing.T) {
	c, err := engine.Preset("vllm-8192")
	if err != nil {
		t.Fatal(err)
	}
	prompt := make([]uint64, 4) // of 512 tokens
	for i := range prompt {
		prompt[i] = mix(uint64(i))
	}
	source := listed{
		{At: time.Second, PromptTokens: 2100, OutputTokens: 10, BlockTokens: 512, Prompt: prompt},
		{At: 60 * time.Second, PromptTokens: 2100, OutputTokens: 10, BlockTokens: 512, Prompt: prompt},
	}
	var records []exchange.Record
	r := run(t, Options{
		Servers: engines(t, 1, "vllm-8192"), Strategy: mustStrategy(t, "least_tokens"), Stream: true, Plan: onlyOnce, Source: &source,
		Record: func(_ *Request, r *exchange.Record) { records = append(records, *r) },
	}, 2*time.Minute)
	for i, cached := range []int{0, 2048} {
		o := records[i].Attempts[0].Outcome
		if want := c.PrefillTime(2100, cached); o.TTFT != want || o.CachedTokens != cached || o.InputTokens != 2100 || o.OutputTokens != 10 {
			t.Errorf("request %d: TTFT %v with %+v, want %v with %d cached", i, o.TTFT, o, want, cached)
		}
	}
	if want := 2048.0 / 4200; math.Abs(r.HitShare-want) > 1e-9 {
		t.Errorf("a hit share of %v, want %v", r.HitShare, want)
	}
}

// listed is a source of given requests.
type listed []Request

func (l *listed) Next(r *Request) bool {
	if len(*l) == 0 {
		return false
	}
	*r = (*l)[0]
	*l = (*l)[1:]
	return true
}

// TestTooLong: what an engine can never hold is the request's fault: it is not tried elsewhere.
func TestTooLong(t *testing.T) {
	source := listed{{PromptTokens: 1 << 23, OutputTokens: 1}, {PromptTokens: 10, OutputTokens: 1}}
	fleet := mustFleet(t, Options{
		Servers: engines(t, 2, "vllm-8192"), Strategy: mustStrategy(t, "least_tokens"), Source: &source, Plan: exchange.Plan{MaxAttempts: 3, Repeatable: true},
		Budget: Budget{Ratio: 1, Smallest: 10},
	})
	if err := fleet.Finish(time.Minute); err != nil {
		t.Fatal(err)
	}
	r := fleet.Result()
	if r.Results[exchange.ClientFault] != 1 || r.Results[exchange.Complete] != 1 || r.Counts.Attempts != 2 {
		t.Errorf("%v, %+v", r.Results, r.Counts)
	}
}

// batches is a run of sessions over batching engines, one of which dies, comes back cold, and slows.
func batches(t *testing.T, strategy, preset string) Options {
	t.Helper()
	o := Options{
		Seed: 1, Servers: engines(t, 4, preset), Strategy: mustStrategy(t, strategy), Balancers: 2, Stream: true, BurnIn: 20 * time.Second,
		Source: mustSessions(t, 1, SessionOptions{
			Rate: 2, Turns: Law{6, 1}, Systems: 5, Zipf: 1, System: Law{1000, .5}, Question: Law{100, 1}, Answer: Law{200, 1}, Gap: Law{20, 1}, Block: 64,
		}),
		Plan:   exchange.Plan{MaxAttempts: 3, Repeatable: true, Hedge: true, Deadlines: exchange.Deadlines{Deadline: time.Minute}},
		Budget: Budget{Ratio: .2, Smallest: 10, Hedges: .05},
		Goal:   Goal{TTFT: time.Second},
	}
	o.Faults = []Fault{
		{At: 60 * time.Second, Deployment: 1, Kind: Down},
		{At: 80 * time.Second, Deployment: 1, Kind: Mended, Server: engines(t, 1, preset)[0]},
		{At: 90 * time.Second, Deployment: 2, Kind: Slowed, Factor: 10},
		{At: 110 * time.Second, Deployment: 2, Kind: Slowed, Factor: 1},
	}
	return o
}

func TestEngineFleet(t *testing.T) {
	for _, preset := range []string{"vllm-8192", "sglang", "dynamo-mock"} {
		first := alike(t, preset, func() Options { return batches(t, "least_tokens", preset) })
		c := first.Counts
		if c.Arrived != c.Done+c.Failed || c.Done < 500 || c.PromptTokens != c.AskedPrompt || c.OutputTokens != c.AskedOutput {
			t.Errorf("%s: %+v", preset, c)
		}
		if first.HitShare < .3 || first.HitShare > .95 || first.Goodput < .5 || first.Imbalance < 1 || first.ITL.Count() < 300 {
			t.Errorf("%s: hit share %.3f, goodput %.3f, imbalance %.3f, %d ITLs", preset, first.HitShare, first.Goodput, first.Imbalance, first.ITL.Count())
		}
	}
}

// TestProgress: while an answer comes, the balancer's outstanding work gets less, as it does in the proxy.
func TestProgress(t *testing.T) {
	source := listed{{At: time.Second, PromptTokens: 100, OutputTokens: 150}}
	fleet := mustFleet(t, Options{
		Servers: engines(t, 1, "vllm-router"), Strategy: mustStrategy(t, "least_tokens"), Stream: true, Source: &source, Plan: onlyOnce,
	})
	var work []int
	for at := time.Second; ; at += 300 * time.Millisecond {
		fleet.Run(at)
		if fleet.Running() == 0 {
			break
		}
		work = append(work, fleet.View(0).Deployments[0].Work)
	}
	falls := len(work) >= 4
	for i := 1; i < len(work); i++ {
		falls = falls && work[i] < work[i-1]
	}
	if !falls {
		t.Errorf("outstanding work every 300 ms: %v, want it to fall", work)
	}
}

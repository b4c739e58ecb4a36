//go:build !race

package realengine

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/app"
	"evenkeel/internal/config"
	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/fit"
	"evenkeel/tests/harness"
	"evenkeel/tests/realengine/gguf"
)

// The shape of what is compared: two servers with four slots each, one thread each, and a model of five million weights, with which a
// prompt takes 50 to 300 ms.
const (
	simSlots   = 4
	simContext = 2048
	// calm is the share of the time in which its threads had work that a server must have had a processor: below, what was
	// measured is the machine's other load.
	calm = 0.9
	// hopeless is the share below which it is not even tried.
	hopeless = 0.6
	// tracedBlock is the tokens of a block of a recorded trace.
	tracedBlock = 64
)

var simModel = gguf.Model{Dim: 256, Layers: 6, Heads: 8, KVHeads: 4, FeedForward: 704, Context: 1 << 15, Seed: 1}

// The simulator says what two real engines behind the balancer do: an engine model that was fitted to them predicts the
// time to the first token, which of two policies is better, and what the caches find.
func TestSimulatorAgrees(t *testing.T) {
	for attempt := range 2 {
		c := compare(t)
		t.Logf("attempt %d\n%v", attempt, c)
		problems := c.problems()
		if len(problems) == 0 {
			return
		}
		text := strings.Join(problems, "\n")
		switch {
		case c.share >= calm || math.IsNaN(c.share):
			t.Fatal(text)
		case attempt > 0:
			t.Skipf("the machine is too busy to tell: a server had a processor for %.0f %% of the time in which it had work\n%s", 100*c.share, text)
		}
		t.Logf("again: a server had a processor for %.0f %% of the time in which it had work\n%s", 100*c.share, text)
	}
}

// comparison is what was measured and simulated.
type comparison struct {
	fitted   *fit.Result
	policies []policyResult
	share    float64 // least share of a processor that a server had in any part; NaN = not known
	load     float64 // without caches, of both servers
}

type policyResult struct {
	name            string
	requests        int
	prompt          float64       // mean tokens
	late            time.Duration // the longest time that a question waited for the answer before it
	real, simulated outcome
	replayed        outcome // simulated from what the balancer recorded
}

type outcome struct {
	ttft, itl float64 // means, seconds
	cached    float64 // share of prompt tokens
}

func (c *comparison) String() string {
	if len(c.policies) == 0 {
		return fmt.Sprintf("share of a processor %.2f", c.share)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%vload without caches %.2f, least share of a processor %.2f\n", c.fitted, c.load, c.share)
	for _, p := range c.policies {
		fmt.Fprintf(&b, "%-12s %d requests, at most %v late: TTFT %.1f ms real, %.1f ms simulated (%+.1f %%); ITL %.2f and %.2f ms; cached %.3f and %.3f; from the trace %.1f ms, %.2f ms, %.3f\n",
			p.name, p.requests, p.late.Round(time.Millisecond), 1e3*p.real.ttft, 1e3*p.simulated.ttft, 100*(p.simulated.ttft/p.real.ttft-1),
			1e3*p.real.itl, 1e3*p.simulated.itl, p.real.cached, p.simulated.cached,
			1e3*p.replayed.ttft, 1e3*p.replayed.itl, p.replayed.cached)
	}
	return b.String()
}

// problems lists what does not agree.
func (c *comparison) problems() (out []string) {
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if len(c.policies) == 0 {
		return []string{"it was not tried"}
	}
	for _, p := range c.policies {
		if r := p.simulated.ttft / p.real.ttft; !(math.Abs(r-1) <= 0.25) {
			bad("%s: mean TTFT is %.3f of the real one, want it within 25 %%", p.name, r)
		}
		if r := p.simulated.cached / p.real.cached; !(math.Abs(r-1) <= 0.10) {
			bad("%s: the share of cached tokens is %.3f of the real one, want it within 10 %%", p.name, r)
		}
	}
	for _, p := range c.policies {
		if r := p.replayed.ttft / p.real.ttft; !(math.Abs(r-1) <= 0.25) {
			bad("%s, from the trace: mean TTFT is %.3f of the real one, want it within 25 %%", p.name, r)
		}
		// A trace tells prefixes in blocks: of each prompt, a part of one may be missed.
		if off := (p.replayed.cached - p.real.cached) * p.prompt; !(off <= 0.1*p.real.cached*p.prompt && off >= -tracedBlock) {
			bad("%s, from the trace: %.0f tokens of a prompt more are cached than really, want at most %d less, or a tenth more", p.name, off, tracedBlock)
		}
	}
	a, b := c.policies[0], c.policies[1]
	if real := a.real.ttft < b.real.ttft; real != (a.simulated.ttft < b.simulated.ttft) || real != (a.replayed.ttft < b.replayed.ttft) {
		bad("%s and %s are in another order", a.name, b.name)
	}
	if c.load > 0.5 {
		bad("the load without caches is %.2f, and is to be at most 0.5", c.load)
	}
	return out
}

// compare lets conversations run through the balancer under two policies, calibrates in between, since the speed of a machine drifts, and
// lets the same conversations run through the simulator with what was fitted. Each time servers begin with empty caches. Both are
// calibrated at once, because both work in the rest too, and share more than a clock.
func compare(t *testing.T) *comparison {
	t.Helper()
	harness.Program(t) // not while servers are measured
	servers := Start(t, 2, Options{Model: simModel, Slots: simSlots, Context: simContext, HostCache: -1, Pinned: true})
	c := &comparison{share: math.NaN()}
	watch := func(f func()) {
		warm(t, servers)
		before := times(servers)
		f()
		for i, after := range times(servers) {
			if s := (after.ran - before[i].ran) / (after.ran - before[i].ran + after.waited - before[i].waited); !(c.share <= s) {
				c.share = s
			}
		}
	}
	watch(func() {
		if _, err := interviews(t.Context(), servers, 5, 0); err != nil {
			t.Fatal(err)
		}
	})
	if c.share < hopeless {
		return c
	}
	restart(t, servers)
	talks := conversations(7)
	var played []play
	run := func(strategy string) {
		p := play{strategy: strategy, file: configuration(t, servers, strategy)}
		lb := harness.Evenkeel(t, "--config", p.file)
		watch(func() { p.turns = converse(t, lb.URL, talks) })
		lb.Stop(t, 10*time.Second)
		p.requests = replayable(t, servers[0], p.turns)
		p.trace = recorded(t, filepath.Join(filepath.Dir(p.file), "trace.jsonl"), p.turns)
		played = append(played, p)
	}
	run("round_robin")
	restart(t, servers)
	var seen []fit.Observation
	watch(func() { seen = calibration(t, servers) })
	restart(t, servers)
	run("failover")

	c.predict(t, seen, played)
	return c
}

// predict fits an engine to what was seen of the servers, and lets what was played run through the simulator.
func (c *comparison) predict(t *testing.T, seen []fit.Observation, played []play) {
	t.Helper()
	given := engine.Config{
		Scheduler: engine.Slots, StepTokens: 2048, MicroBatch: 512, Slots: simSlots, BlockTokens: 1, Blocks: simSlots * simContext,
	}
	var err error
	if c.fitted, err = fit.Calibrate(seen, fit.Options{Engines: []engine.Config{given}, HoldOut: 0.3, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	for _, p := range played {
		c.load = max(c.load, load(c.fitted.Engine, p.requests)/2)
		r := policyResult{name: p.strategy, requests: len(p.turns), real: measured(p.turns), simulated: simulated(t, p.file, c.fitted.Engine, &list{p.requests})}
		replay, err := sim.NewReplay(1, p.trace, sim.ReplayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r.replayed = simulated(t, p.file, c.fitted.Engine, &once{replay, len(p.turns)})
		for _, u := range p.turns {
			r.late = max(r.late, u.late)
			r.prompt += float64(u.Prompt) / float64(len(p.turns))
		}
		c.policies = append(c.policies, r)
	}
}

// play is what became of the conversations under a policy.
type play struct {
	strategy string
	file     string // the configuration
	turns    []turn
	requests []sim.Request
	trace    *sim.Trace // that the balancer has recorded
}

// restart empties the servers' caches.
func restart(t *testing.T, servers []*Server) {
	t.Helper()
	for _, s := range servers {
		s.Kill()
		s.Restart(t)
	}
}

// usage is what a server had of processors, in seconds.
type usage struct{ ran, waited float64 }

func times(servers []*Server) (out []usage) {
	for _, s := range servers {
		ran, waited, err := s.CPU()
		if err != nil {
			return make([]usage, len(servers)) // which gives shares that are no number
		}
		out = append(out, usage{ran.Seconds(), waited.Seconds()})
	}
	return out
}

// warm lets each server touch its weights.
func warm(t *testing.T, servers []*Server) {
	t.Helper()
	for _, s := range servers {
		if _, err := Ask(t.Context(), Question{URL: s.URL, Model: ModelName, Messages: []Message{{"user", "wind"}}, Tokens: 2, Seed: 1}); err != nil {
			t.Fatal(err)
		}
	}
}

// configuration writes one in which two models are served by both servers, and each is at home at one of them where the strategy
// has an order.
func configuration(t *testing.T, servers []*Server, strategy string) string {
	t.Helper()
	text := fmt.Sprintf(`endpoints:
  a: {url: %[1]s, kind: llamacpp}
  b: {url: %[2]s, kind: llamacpp}
models:
  even: {providers: [{name: a, model: %[3]s}, {name: b, model: %[3]s}]}
  odd: {providers: [{name: b, model: %[3]s}, {name: a, model: %[3]s}]}
strategy: %[4]s
trace: {path: trace.jsonl}
`, servers[0].URL, servers[1].URL, ModelName, strategy)
	file := filepath.Join(t.TempDir(), "evenkeel.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func measured(turns []turn) (o outcome) {
	prompt, cached, tokens := 0, 0, 0
	for _, u := range turns {
		o.ttft += u.TTFT.Seconds() / float64(len(turns))
		o.itl += (u.Total - u.TTFT).Seconds()
		prompt, cached, tokens = prompt+u.Prompt, cached+u.Cached, tokens+u.Output-1
	}
	o.itl /= float64(tokens)
	o.cached = float64(cached) / float64(prompt)
	return o
}

// replayable turns what was asked into requests of the simulator, whose blocks are single tokens. How much of them is cached is not said.
func replayable(t *testing.T, tokenizer *Server, turns []turn) []sim.Request {
	t.Helper()
	var out []sim.Request
	for i, u := range turns {
		prompt, err := tokenizer.Tokens(u.messages, "")
		if err != nil {
			t.Fatal(err)
		}
		whole, err := tokenizer.Tokens(u.messages, u.Text)
		if err != nil {
			t.Fatal(err)
		}
		if len(prompt) != u.Prompt {
			t.Fatalf("turn %d: %d tokens in the prompt, and the server says %d", i, len(prompt), u.Prompt)
		}
		chain := hashes(whole[:min(len(whole), u.Prompt+u.Output)])
		if !slices.Equal(whole[:min(len(whole), len(prompt))], prompt) {
			chain = hashes(prompt)
		}
		out = append(out, sim.Request{
			At: u.at, Model: u.model, PromptTokens: u.Prompt, OutputTokens: u.Output, BlockTokens: 1, Prompt: chain[:u.Prompt], Output: chain[u.Prompt:],
		})
	}
	return out
}

// hashes returns a number for each token that stands for all before it too (FNV-1a).
func hashes(tokens []int) []uint64 {
	h := uint64(14695981039346656037)
	out := make([]uint64, len(tokens))
	for i, token := range tokens {
		h = (h ^ uint64(token+1)) * 1099511628211
		out[i] = h
	}
	return out
}

// load is how busy requests keep one engine that caches nothing, over the time in which they come.
func load(c engine.Config, requests []sim.Request) float64 {
	busy := 0.0
	for _, r := range requests {
		busy += c.PrefillTime(r.PromptTokens, 0).Seconds()
		context := float64(r.PromptTokens) + float64(r.OutputTokens)/2
		busy += float64(r.OutputTokens-1) * (c.Timing.Base + c.Timing.Sequence + c.Timing.Context*context)
	}
	return busy / (requests[len(requests)-1].At - requests[0].At).Seconds()
}

// list is a source of requests that are there already.
type list struct{ left []sim.Request }

func (l *list) Next(r *sim.Request) bool {
	if len(l.left) == 0 {
		return false
	}
	*r, l.left = l.left[0], l.left[1:]
	return true
}

// once is a source that ends after so many requests.
type once struct {
	sim.Source
	left int
}

func (o *once) Next(r *sim.Request) bool {
	o.left--
	return o.left >= 0 && o.Source.Next(r)
}

// recorded reads the balancer's trace, which must hold what the client saw.
func recorded(t *testing.T, file string, turns []turn) *sim.Trace {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := sim.ReadRecorded(f, file, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := fit.Recorded(tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	type sums struct{ requests, prompt, cached, output int }
	var got, want sums
	var ttft time.Duration
	for _, o := range seen {
		got = sums{got.requests + 1, got.prompt + o.PromptTokens, got.cached + o.CachedTokens, got.output + o.OutputTokens}
		ttft += o.TTFT
	}
	for _, u := range turns {
		want = sums{want.requests + 1, want.prompt + u.Prompt, want.cached + u.Cached, want.output + u.Output}
	}
	if got != want {
		t.Errorf("the trace has %+v, and clients saw %+v", got, want)
	}
	if mean, client := ttft.Seconds()/float64(len(seen)), measured(turns).ttft; mean > client || mean < client-0.05 {
		t.Errorf("the mean TTFT in the trace is %.4f s, and clients saw %.4f s", mean, client)
	}
	return tr
}

// simulated plays the requests to engines like c under the configuration in a file.
func simulated(t *testing.T, file string, c engine.Config, requests sim.Source) outcome {
	t.Helper()
	cfg, _, err := config.LoadFiles(file)
	if err != nil {
		t.Fatal(err)
	}
	core, err := app.NewCore(cfg, app.Found{})
	if err != nil {
		t.Fatal(err)
	}
	o := sim.Options{
		Seed: 1, Site: &sim.Site{Pools: core.Pools, Chains: core.Chains}, Router: core.Router, Stream: true, Source: requests,
		Plan:   exchange.Plan{Repeatable: true, MaxAttempts: core.MaxAttempts, Deadlines: core.Deadlines},
		Budget: sim.Budget{Ratio: core.Retry.BudgetRatio, Smallest: float64(core.Retry.BudgetMin)},
	}
	for range 2 {
		e, err := sim.NewEngine(c)
		if err != nil {
			t.Fatal(err)
		}
		o.Servers = append(o.Servers, e)
	}
	f, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(time.Hour); err != nil {
		t.Fatal(err)
	}
	r := f.Result()
	if r.Counts.Failed > 0 || r.Counts.Done != r.Counts.Arrived {
		t.Fatalf("the simulation lost requests: %+v", r.Counts)
	}
	return outcome{r.TTFT.Mean(), r.ITL.Mean(), r.HitShare}
}

package sim

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// take returns the first n requests of a source.
func take(s Source, n int) []Request {
	all := make([]Request, n)
	for i := range all {
		s.Next(&all[i])
	}
	return all
}

func TestPoisson(t *testing.T) {
	f := func(cv, tolerance float64) {
		t.Helper()
		p, err := NewPoisson(1, PoissonOptions{Rate: 4, CV: cv, Prompt: Law{800, 1.5}, Output: Law{200, 0}})
		if err != nil {
			t.Fatal(err)
		}
		const n = 400_000
		var gaps, squares, prompt, promptSquares float64
		last := time.Duration(0)
		for _, r := range take(p, n) {
			gap := (r.At - last).Seconds()
			last = r.At
			gaps += gap / n
			squares += gap * gap / n
			prompt += float64(r.PromptTokens) / n
			promptSquares += float64(r.PromptTokens) * float64(r.PromptTokens) / n
			if r.OutputTokens != 200 {
				t.Fatalf("an answer of %d tokens, want 200", r.OutputTokens)
			}
		}
		near := func(what string, got, want, tolerance float64) {
			t.Helper()
			if math.Abs(got/want-1) > tolerance {
				t.Errorf("CV %v: %s %.4f, want %.4f", cv, what, got, want)
			}
		}
		near("mean gap", gaps, .25, tolerance)
		near("CV of gaps", math.Sqrt(squares/(gaps*gaps)-1), max(cv, 1), tolerance)
		near("mean prompt", prompt, 800, .02)
		near("CV of prompts", math.Sqrt(promptSquares/(prompt*prompt)-1), 1.5, .05)
	}
	f(0, .01)
	f(1, .01)
	f(4, .04)
	f(13, .1)
}

func TestReplayPlain(t *testing.T) {
	trace := mustTrace(t, "mooncake", "mooncake_conversation_300.jsonl")
	p, err := NewReplay(1, trace, ReplayOptions{Scale: .5})
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(trace)
	for i, r := range drain(t, p) {
		row := rows[i]
		if r.At != row.At/2 || r.PromptTokens != row.PromptTokens || r.OutputTokens != row.OutputTokens || r.BlockTokens != 512 {
			t.Fatalf("request %d is %+v, want row %+v", i, r, row)
		}
		if full := row.PromptTokens / 512; !slices.Equal(r.Prompt, row.Blocks[:full]) {
			t.Fatalf("request %d has blocks %v, want the full ones of %v", i, r.Prompt, row.Blocks)
		}
	}
}

// TestReplaySpread: requests of one tick stay between it and the next.
func TestReplaySpread(t *testing.T) {
	trace := mustTrace(t, "mooncake", "mooncake_conversation_300.jsonl")
	p, err := NewReplay(1, trace, ReplayOptions{Spread: true})
	if err != nil {
		t.Fatal(err)
	}
	all, rows := drain(t, p), rowsOf(trace)
	alike := 0
	for i, r := range all {
		tick := rows[i].At
		next := p.Length()
		for _, row := range rows[i:] {
			if row.At > tick {
				next = row.At
				break
			}
		}
		if r.At < tick || r.At > next {
			t.Errorf("request %d comes at %v, want %v to %v", i, r.At, tick, next)
		}
		if i > 0 && r.At == all[i-1].At {
			alike++
		}
	}
	if alike > 0 {
		t.Errorf("%d requests come together", alike)
	}
}

// TestReplayCopies: each copy brings each row once, within the trace's length, and shares no block with another copy.
func TestReplayCopies(t *testing.T) {
	trace := mustTrace(t, "mooncake", "mooncake_conversation_300.jsonl")
	const copies = 4
	p, err := NewReplay(1, trace, ReplayOptions{Copies: copies, Spread: true})
	if err != nil {
		t.Fatal(err)
	}
	all := drain(t, p)
	if len(all) != copies*trace.Len() || all[len(all)-1].At > p.Length() {
		t.Errorf("%d requests until %v, want %d until %v", len(all), all[len(all)-1].At, copies*trace.Len(), p.Length())
	}
	tokens, want := 0, 0
	common := map[uint64]int{} // first blocks, which are one and the same all through the trace
	for _, r := range all {
		tokens += r.PromptTokens
		if len(r.Prompt) > 0 {
			common[r.Prompt[0]]++
		}
	}
	for _, row := range trace.Rows() {
		want += copies * row.PromptTokens
	}
	if tokens != want || len(common) != copies {
		t.Errorf("%d tokens in %d families, want %d in %d", tokens, len(common), want, copies)
	}
	half := slices.IndexFunc(all, func(r Request) bool { return r.At > p.Length()/2 })
	if part := float64(half) / float64(len(all)); part < .4 || part > .6 {
		t.Errorf("%.2f of the requests come in the first half", part)
	}
}

func TestReplayOptions(t *testing.T) {
	trace := mustTrace(t, "azure", "azure_conv_300.csv")
	f := func(trace *Trace, o ReplayOptions, want string) {
		t.Helper()
		if _, err := NewReplay(1, trace, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
	f(NewTrace(0), ReplayOptions{}, "no request")
	f(trace, ReplayOptions{Scale: -1}, "scale of -1")
	f(trace, ReplayOptions{Copies: -1}, "-1 copies")
}

var chats = SessionOptions{
	Rate: 2, Turns: Law{6, 1}, Systems: 5, Zipf: 1, System: Law{1000, .5}, Question: Law{100, 1}, Answer: Law{200, 1}, Gap: Law{20, 1}, Block: 16,
}

func mustSessions(tb testing.TB, seed uint64, o SessionOptions) *Sessions {
	tb.Helper()
	s, err := NewSessions(seed, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestSessions: each turn's prompt begins with all that was said before, in hashes and in length.
func TestSessions(t *testing.T) {
	last := map[uint64]Request{}
	systems := map[uint64]int{}
	turns, at := 0, time.Duration(0)
	for _, r := range take(mustSessions(t, 1, chats), 30_000) {
		if r.At < at {
			t.Fatalf("a turn at %v comes after one at %v", r.At, at)
		}
		at = r.At
		if len(r.Prompt) != r.PromptTokens/16 || len(r.Prompt)+len(r.Output) != (r.PromptTokens+r.OutputTokens)/16 {
			t.Fatalf("%d and %d blocks for %d and %d tokens", len(r.Prompt), len(r.Output), r.PromptTokens, r.OutputTokens)
		}
		if b, ok := last[r.Session]; ok {
			said := slices.Concat(b.Prompt, b.Output)
			if r.PromptTokens <= b.PromptTokens+b.OutputTokens || !slices.Equal(r.Prompt[:len(said)], said) {
				t.Fatalf("a turn of %d tokens does not go on from one of %d", r.PromptTokens, b.PromptTokens+b.OutputTokens)
			}
		} else {
			systems[r.Prompt[0]]++
		}
		last[r.Session] = r
		turns++
	}
	if len(systems) != 5 {
		t.Errorf("%d system prompts, want 5", len(systems))
	}
	counts := slices.Sorted(maps.Values(systems))
	if most, least := counts[4], counts[0]; float64(most)/float64(least) < 4 || float64(most)/float64(least) > 6.2 {
		t.Errorf("the most popular system prompt has %d sessions, the least popular of 5 %d, want 5 times as many", most, least)
	}
	if mean := float64(turns) / float64(len(last)); mean < 5 || mean > 6.5 { // sessions that are open at the end have turns to come
		t.Errorf("%.2f turns per session, want about 6", mean)
	}
}

// TestSystemPromptsAreOfTheWorkload: how long they are follows the law, be they few or many, and no seed changes it; what they say
// is a seed's own.
func TestSystemPromptsAreOfTheWorkload(t *testing.T) {
	for _, n := range []int{3, 20, 200} {
		o := chats
		o.Systems, o.System = n, Law{3000, .8}
		a, b := mustSessions(t, 1, o), mustSessions(t, 2, o)
		if !slices.Equal(a.systems, b.systems) || a.salt == b.salt {
			t.Errorf("%d system prompts differ with the seed: %v, %v; salts %d, %d", n, a.systems, b.systems, a.salt, b.salt)
		}
		sum := 0.0
		for _, tokens := range a.systems {
			sum += float64(tokens) / float64(n)
		}
		if math.Abs(sum/o.System.Mean-1) > .1 {
			t.Errorf("%d system prompts have %.0f tokens in the mean, want about %.0f", n, sum, o.System.Mean)
		}
		if low, high := slices.Min(a.systems), slices.Max(a.systems); float64(high)/float64(low) < 3 {
			t.Errorf("%d system prompts have %d to %d tokens, want that they vary", n, low, high)
		}
	}
}

func TestSessionsAreDeterministic(t *testing.T) {
	a, b, other := take(mustSessions(t, 1, chats), 500), take(mustSessions(t, 1, chats), 500), take(mustSessions(t, 2, chats), 500)
	if !reflect.DeepEqual(a, b) {
		t.Error("equal seeds give different sessions")
	}
	if a[0].At == other[0].At || a[0].Prompt[0] == other[0].Prompt[0] {
		t.Error("different seeds give the same sessions")
	}
}

func TestWorkloadOptions(t *testing.T) {
	f := func(want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	poisson := func(o PoissonOptions) error { _, err := NewPoisson(1, o); return err }
	f("arrivals per second: mean 0", poisson(PoissonOptions{}))
	f("CV 0.5", poisson(PoissonOptions{Rate: 1, CV: .5}))
	f("prompt tokens: mean -3", poisson(PoissonOptions{Rate: 1, Prompt: Law{-3, 0}}))
	sessions := func(change func(*SessionOptions)) error {
		o := chats
		change(&o)
		_, err := NewSessions(1, o)
		return err
	}
	f("sessions per second", sessions(func(o *SessionOptions) { o.Rate = 0 }))
	f("turns: mean 0", sessions(func(o *SessionOptions) { o.Turns = Law{} }))
	f("blocks of 0 tokens", sessions(func(o *SessionOptions) { o.Block = 0 }))
	f("-1 system prompts", sessions(func(o *SessionOptions) { o.Systems = -1 }))
	f("tokens of a system prompt", sessions(func(o *SessionOptions) { o.System = Law{} }))
}

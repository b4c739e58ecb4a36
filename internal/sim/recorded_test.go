package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/trace"
)

const recordedHeader = `{"evenkeel_trace":1,"program":"1.0","key":"9f86d081","block_bytes":256}` + "\n"

// notebook writes a recorded trace.
type notebook struct {
	text    bytes.Buffer
	thinner *trace.Thinner
	line    []byte
}

func newNotebook() *notebook {
	n := &notebook{thinner: trace.NewThinner(1 << 16)}
	n.text.WriteString(recordedHeader)
	return n
}

// write adds an exchange with a prompt of that chain of text blocks.
func (n *notebook) write(e trace.Entry, chain []uint64) {
	n.thinner.Thin(chain, &e.Prefix)
	n.line = trace.Append(n.line[:0], &e)
	n.text.Write(n.line)
}

var recordedFrom = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// exchanged is one that took a second, of a model with 4 bytes per token.
func exchanged(at time.Duration, input, output int) trace.Entry {
	return trace.Entry{
		At: recordedFrom.Add(at), Model: "m", Bytes: 4 * input, Result: exchange.Complete, Total: time.Second,
		Attempts: []trace.Attempt{{Deployment: "a/m", Took: time.Second, Input: input, Output: output}},
	}
}

// text returns a chain of some blocks, each of 256 bytes: at 4 bytes per token, of 64 tokens.
func text(rng *rand.Rand, after []uint64, blocks int) []uint64 {
	chain := after[:len(after):len(after)]
	for range blocks {
		chain = append(chain, rng.Uint64()>>(64-trace.HashBits))
	}
	return chain
}

func (n *notebook) read(t *testing.T) *Trace {
	t.Helper()
	read, err := ReadRecorded(&n.text, "F", nil)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func play(t *testing.T, read *Trace, o ReplayOptions) []Request {
	t.Helper()
	p, err := NewReplay(1, read, o)
	if err != nil {
		t.Fatal(err)
	}
	return drain(t, p)
}

func sharedBlocks(a, b []uint64) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// A conversation of three turns, written in the order in which the exchanges ended, beside another one with the same system
// prompt.
func TestRecordedConversation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	system := text(rng, nil, 5)
	first := text(rng, system, 4)   // 9 blocks and a bit: 600 tokens
	second := text(rng, first, 6)   // 15 blocks: 960 tokens with 200 of the answer
	third := text(rng, second, 20)  // 35 blocks
	beside := text(rng, system, 10) // 15 blocks
	n := newNotebook()
	late := exchanged(0, 960, 10)
	late.Total, late.Tenant, late.Session = time.Minute, "slow", 77
	n.write(exchanged(time.Second, 600, 200), first)
	n.write(exchanged(10*time.Second, 960, 100), second)
	n.write(exchanged(20*time.Second, 2240, 50), third)
	n.write(late, beside)
	trace := n.read(t)
	if trace.BlockTokens != 64 || trace.Len() != 4 {
		t.Fatalf("%d rows in blocks of %d tokens", trace.Len(), trace.BlockTokens)
	}
	all := play(t, trace, ReplayOptions{})
	f := func(i int, at time.Duration, prompt, output int) {
		t.Helper()
		if r := &all[i]; r.At != at || len(r.Prompt) != prompt || len(r.Output) != output || r.Model != "m" || r.Recorded == nil || r.Recorded.Attempts[0].Deployment != "a/m" {
			t.Errorf("request %d comes at %v with chains of %d and %d blocks, want %v, %d, %d: %+v", i, r.At, len(r.Prompt), len(r.Output), at, prompt, output, r)
		}
	}
	f(0, 0, 15, 0)
	f(1, time.Second, 9, 3)     // 600 and 200 tokens are 12 whole blocks
	f(2, 10*time.Second, 15, 1) // 1,060 are 16
	f(3, 20*time.Second, 35, 0)
	if all[0].Tenant != "slow" || all[0].Session != 77 || all[1].Tenant != "" {
		t.Errorf("tenants %q and %q, session %d", all[0].Tenant, all[1].Tenant, all[0].Session)
	}
	shared := func(a, b, want int) {
		t.Helper()
		whole := append(all[a].Prompt[:len(all[a].Prompt):len(all[a].Prompt)], all[a].Output...)
		if got := sharedBlocks(whole, all[b].Prompt); got != want {
			t.Errorf("request %d finds %d blocks of request %d, want %d", b, got, a, want)
		}
	}
	shared(0, 1, 5)
	shared(1, 2, 12)
	shared(2, 3, 16)
	shared(1, 3, 12)
}

// Copies have nothing in common but what each has in itself.
func TestRecordedCopies(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	n := newNotebook()
	one := text(rng, nil, 10)
	e := exchanged(0, 650, 70)
	e.Session = 5
	n.write(e, one)
	n.write(exchanged(5*time.Second, 1300, 10), text(rng, one, 10))
	all := play(t, n.read(t), ReplayOptions{Copies: 2, Scale: 0.5})
	if len(all) != 4 {
		t.Fatalf("%d requests", len(all))
	}
	pairs := map[int]int{}
	for i := range all {
		for j := range i {
			pairs[sharedBlocks(append(all[i].Prompt, all[i].Output...), append(all[j].Prompt, all[j].Output...))]++
		}
	}
	if pairs[11] != 2 || pairs[0] != 4 {
		t.Errorf("pairs by what they share: %v, want two with 11 blocks (720 tokens) and four with none", pairs)
	}
	sessions := map[uint64]int{}
	for _, r := range all {
		sessions[r.Session]++
	}
	if len(sessions) != 3 || sessions[0] != 2 {
		t.Errorf("sessions %v", sessions)
	}
}

// Behind a system prompt many prompts go on where a short one ended: none of them is its next turn.
func TestRecordedSystemPromptIsNoConversation(t *testing.T) {
	f := func(what string, want bool, write func(n *notebook, rng *rand.Rand, system []uint64)) {
		t.Helper()
		rng := rand.New(rand.NewPCG(1, 1))
		n := newNotebook()
		write(n, rng, text(rng, nil, 6))
		if all := play(t, n.read(t), ReplayOptions{}); (len(all[0].Output) > 0) != want {
			t.Errorf("%s: the answer of the first request is taken to be in a later prompt: %v, want %v", what, !want, want)
		}
	}
	f("one goes on", true, func(n *notebook, rng *rand.Rand, system []uint64) {
		n.write(exchanged(0, 400, 100), system)
		n.write(exchanged(5*time.Second, 900, 100), text(rng, system, 8))
	})
	f("two go on", false, func(n *notebook, rng *rand.Rand, system []uint64) {
		n.write(exchanged(0, 400, 100), system)
		n.write(exchanged(5*time.Second, 900, 100), text(rng, system, 8))
		n.write(exchanged(6*time.Second, 900, 100), text(rng, system, 8))
	})
	f("it is asked again, and goes on from there", false, func(n *notebook, rng *rand.Rand, system []uint64) {
		n.write(exchanged(0, 400, 100), system)
		n.write(exchanged(2*time.Second, 400, 100), system)
		n.write(exchanged(5*time.Second, 900, 100), text(rng, system, 8))
	})
	f("it is asked again later", true, func(n *notebook, rng *rand.Rand, system []uint64) {
		n.write(exchanged(0, 400, 100), system)
		n.write(exchanged(5*time.Second, 900, 100), text(rng, system, 8))
		n.write(exchanged(20*time.Second, 400, 100), system)
	})
	f("it came before the answer", false, func(n *notebook, rng *rand.Rand, system []uint64) {
		n.write(exchanged(0, 400, 100), system)
		n.write(exchanged(time.Second/2, 900, 100), text(rng, system, 8))
	})
}

func TestRecordedTokens(t *testing.T) {
	f := func(e trace.Entry, prompt, output int) {
		t.Helper()
		n := newNotebook()
		n.write(exchanged(0, 1000, 10), nil) // 4 bytes per token
		other := exchanged(0, 1000, 10)
		other.Model, other.Bytes = "dense", 2000
		n.write(other, nil)
		e.At = recordedFrom.Add(time.Hour)
		n.write(e, nil)
		row := rowsOf(n.read(t))[2]
		if row.PromptTokens != prompt || row.OutputTokens != output {
			t.Errorf("%+v: %d and %d tokens, want %d and %d", e, row.PromptTokens, row.OutputTokens, prompt, output)
		}
	}
	told := trace.Attempt{Deployment: "a/m", Input: 70, Output: 7}
	guessed := trace.Attempt{Deployment: "a/m", Input: 70, Output: 7, Estimated: true}
	lost := trace.Attempt{Deployment: "b/m", Input: 70, Output: 3, Waste: true}
	f(trace.Entry{Model: "m", Bytes: 800, Result: exchange.Complete, Attempts: []trace.Attempt{told, lost}}, 70, 7)
	f(trace.Entry{Model: "m", Bytes: 800, Result: exchange.Complete, Attempts: []trace.Attempt{guessed}}, 200, 7)
	f(trace.Entry{Model: "dense", Bytes: 800, Result: exchange.Complete, Attempts: []trace.Attempt{guessed}}, 400, 7)
	f(trace.Entry{Model: "new", Bytes: 800, Result: exchange.Complete, Attempts: []trace.Attempt{guessed}}, 200, 7)
	f(trace.Entry{Model: "m", Bytes: 800, Result: exchange.ClientGone, ExpectedInput: 300, ExpectedOutput: 90, Attempts: []trace.Attempt{guessed}}, 200, 90)
	f(trace.Entry{Model: "m", Bytes: 800, Result: exchange.Refused, ExpectedInput: 300, ExpectedOutput: 90}, 200, 90)
	f(trace.Entry{Model: "m", Bytes: 800, Result: exchange.Refused}, 200, 1)
	f(trace.Entry{Model: "m", Result: exchange.Complete, Attempts: []trace.Attempt{{Deployment: "a/m", Input: 5}}}, 5, 1)
}

// A balancer of the simulation knows what the one that recorded knew.
func TestRecordedFacts(t *testing.T) {
	n := newNotebook()
	e := exchanged(0, 500, 20)
	e.API, e.Stream, e.MaxOutput, e.Bytes, e.Tenant = "messages", true, 64, 1800, "team"
	n.write(e, nil)
	n.write(exchanged(time.Second, 300, 5), nil)
	source, err := NewReplay(1, n.read(t), ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var facts []route.Facts
	f := mustFleet(t, Options{
		Servers: queues(t, 1), Strategy: mustStrategy(t, "round_robin"), Plan: onlyOnce, Source: source, Stream: true,
		Record: func(r *Request, rec *exchange.Record) {
			facts = append(facts, rec.Facts)
			if r.Recorded == nil || r.Recorded.Bytes != rec.Facts.PromptBytes {
				t.Errorf("%+v came of %+v", rec.Facts, r.Recorded)
			}
		},
	})
	if err := f.Finish(time.Hour); err != nil {
		t.Fatal(err)
	}
	if len(facts) != 2 || facts[0].API != "messages" || !facts[0].Stream || facts[0].MaxOutput != 64 || facts[0].Tenant != "team" || facts[1].Stream || facts[1].PromptBytes != 1200 {
		t.Errorf("%+v", facts)
	}
}

func TestRecordedErrors(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if _, err := ReadRecorded(strings.NewReader(text), "F", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: got %v, want %q", text, err, want)
		}
	}
	f("", "F: it holds no request")
	f(recordedHeader, "F: it holds no request")
	f(recordedHeader+`{"at":1,"api":"files","result":"complete"}`+"\n", "F: it holds no request")
	f(recordedHeader+`{"at":-1,"result":"complete"}`+"\n", "F:2: at is -1, expected")
	f(recordedHeader+`{"at":1,"bytes":1,"result":"complete"}`+"\n"+`{"at":1000000000,"id":"ek-9","bytes":1,"result":"complete"}`+"\n", "F:3: at is 277777h46m39s from that of another line, expected at most 87600h0m0s")
}

func FuzzReadRecorded(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	n := newNotebook()
	chain := text(rng, nil, 30)
	for i := range 5 {
		n.write(exchanged(time.Duration(i)*5*time.Second, 600*(i+1), 100), chain)
		chain = text(rng, chain, 20)
	}
	f.Add(n.text.Bytes())
	f.Add([]byte(recordedHeader + `{"at":1,"bytes":1,"blocks":1,"hashes":"AAAAAAAA","result":"x","attempts":[{"to":"a","input":16777216,"output":16777216}]}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		trace, err := ReadRecorded(bytes.NewReader(data), "FILE", nil)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "FILE:") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		for i, r := range trace.Rows() {
			if err := r.plausible(); err != nil || r.At < 0 || r.At > mostTime {
				t.Fatalf("row %d at %v: %v", i, r.At, err)
			}
		}
		for i, r := range play(t, trace, ReplayOptions{Copies: 2}) {
			if len(r.Prompt) > r.PromptTokens/64 || len(r.Output) > 0 && len(r.Prompt)+len(r.Output) > (r.PromptTokens+r.OutputTokens)/64 {
				t.Fatalf("request %d has chains of %d and %d blocks for %d and %d tokens", i, len(r.Prompt), len(r.Output), r.PromptTokens, r.OutputTokens)
			}
		}
	})
}

// Equal traces give equal rows.
func TestRecordedIsDeterministic(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	n := newNotebook()
	chains := [][]uint64{nil}
	for i := range 200 {
		chain := text(rng, chains[rng.IntN(len(chains))], rng.IntN(20))
		chains = append(chains, chain)
		n.write(exchanged(time.Duration(i)*time.Second, 1+rng.IntN(3000), rng.IntN(300)), chain)
	}
	data := n.text.Bytes()
	var before string
	for range 2 {
		read, err := ReadRecorded(bytes.NewReader(data), "F", nil)
		if err != nil {
			t.Fatal(err)
		}
		var now strings.Builder
		for _, r := range play(t, read, ReplayOptions{Copies: 2, Spread: true}) {
			fmt.Fprintln(&now, r.At, r.PromptTokens, r.OutputTokens, r.Prompt, r.Output)
		}
		if before != "" && now.String() != before {
			t.Error("another reading gives other requests")
		}
		before = now.String()
	}
}

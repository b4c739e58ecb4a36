package trace

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

var header = Header{Version: Version, Program: "1.2", Key: "9f86d081", BlockBytes: 256}

const headerLine = `{"evenkeel_trace":1,"program":"1.2","key":"9f86d081","block_bytes":256}` + "\n"

// full has a value for every member.
var full = Entry{
	At: time.UnixMicro(1790000000_123450).UTC(), ID: "ek-1", API: "chat", Model: "chat-model", Served: "small", Tenant: `support "A"`, Session: 0xfedcba987654, Stream: true,
	Bytes: 8000, MaxOutput: 512, Retry: 1, ExpectedInput: 2000, ExpectedOutput: 200,
	Prefix: Prefix{Blocks: 19, Known: 17, Hashes: []uint64{1, 0xffffffffffff, 0x123456789abc}},
	Result: exchange.Complete, Status: 200, Code: "evenkeel_x", Queued: 20 * time.Millisecond, First: 1500 * time.Millisecond, Total: 3 * time.Second,
	Attempts: []Attempt{
		{Deployment: "gpu-1/m", Strategy: "least_tokens", Eligible: 3, InFlight: 2, Trial: true, Sent: 300 * time.Microsecond, Took: time.Second, Class: "overloaded", Waste: true},
		{Deployment: "gpu-2/m", Hedge: true, Sent: time.Second, TTFT: 499 * time.Millisecond, Took: 2 * time.Second, Input: 2013, Cached: 512, Output: 300, Estimated: true},
	},
}

const fullLine = `{"at":1790000000.12345,"id":"ek-1","api":"chat","model":"chat-model","served":"small","tenant":"support \"A\"","session":"_ty6mHZU","stream":true,` +
	`"bytes":8000,"max_output":512,"retry":1,"expected_input":2000,"expected_output":200,"blocks":19,"known":17,"hashes":"AAAAAAAB________EjRWeJq8","result":"complete",` +
	`"status":200,"code":"evenkeel_x","queued":0.02,"first":1.5,"total":3,"attempts":[` +
	`{"to":"gpu-1/m","by":"least_tokens","eligible":3,"in_flight":2,"trial":true,"waste":true,"sent":0.0003,"took":1,"class":"overloaded"},` +
	`{"to":"gpu-2/m","hedge":true,"sent":1,"ttft":0.499,"took":2,"input":2013,"cached":512,"output":300,"estimated":true}]}` + "\n"

func TestLines(t *testing.T) {
	if got := string(AppendHeader(nil, &header)); got != headerLine {
		t.Errorf("the header is\n%swant\n%s", got, headerLine)
	}
	f := func(e Entry, want string) {
		t.Helper()
		line := Append(nil, &e)
		if string(line) != want {
			t.Errorf("got\n%swant\n%s", line, want)
		}
		r := NewReader(strings.NewReader(headerLine+string(line)), "F")
		var back Entry
		if err := r.Next(&back); err != nil || !reflect.DeepEqual(back, e) || r.Header() != header {
			t.Errorf("read back as\n%+v, %v\nwant\n%+v", back, err, e)
		}
		if err := r.Next(&back); !errors.Is(err, io.EOF) {
			t.Errorf("after the last: %v", err)
		}
	}
	f(full, fullLine)
	f(Entry{At: time.UnixMicro(0).UTC(), Result: exchange.ClientGone}, `{"at":0,"result":"client_gone"}`+"\n")
	if got := full.Last(); got != &full.Attempts[1] {
		t.Errorf("Last is %+v", got)
	}
}

// A reader that knows less than the writer, or more.
func TestReadVariants(t *testing.T) {
	f := func(text string, entries int) {
		t.Helper()
		r := NewReader(strings.NewReader(text), "F")
		var e Entry
		for n := 0; ; n++ {
			if err := r.Next(&e); err != nil {
				if !errors.Is(err, io.EOF) || n != entries {
					t.Errorf("%q: %d entries, then %v, want %d", text, n, err, entries)
				}
				return
			}
		}
	}
	f("", 0)
	f(headerLine, 0)
	f(headerLine+example, 1)                                          // its line break is missing
	f(headerLine+fullLine+fullLine[:100], 1)                          // it is being written
	f(headerLine+fullLine+headerLine[:30], 1)                         // likewise
	f(headerLine+"\r\n"+example+"\r\n\n"+headerLine+fullLine, 2)      // another process
	f(headerLine+fullLine+fullLine[:100]+"\n"+headerLine+fullLine, 2) // what the writer before could not end
	f(headerLine+fullLine+"\x00\x00\n"+headerLine, 1)
	f(headerLine+`{"at":1,"result":"x","later":[{"a":{}}]}`+"\n", 1) // a member of a later version
	f(strings.Replace(headerLine, `"key"`, `"more":1,"key"`, 1)+fullLine, 1)
}

func TestReadErrors(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		r := NewReader(strings.NewReader(text), "F")
		for {
			var e Entry
			err := r.Next(&e)
			if err == nil {
				continue
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%.80q: got %v, want %q", text, err, want)
			}
			return
		}
	}
	line := func(line, want string) { t.Helper(); f(headerLine+fullLine+line+"\n", "F:3: "+want) }
	f(fullLine, "F:1: the first line is no header, expected one such as {\"evenkeel_trace\":1,")
	f("a,b,c\n", "F:1: the first line is no header")
	f(`{"evenkeel_trace":2,"program":"9.1"}`+"\n", `F:1: a trace of version 2, expected 1: it was written by another version of Evenkeel ("9.1")`)
	f(`{"evenkeel_trace":1,"key":7}`+"\n", "F:1: the header cannot be read")
	f(`{"evenkeel_trace":1}`+"\n", "F:1: block_bytes is 0, expected 1 to")
	f(strings.Repeat("x", mostLine+1), "F:1: a line of more than 16 MiB")
	line("{", `expected a JSON object such as {"at":`)
	line("[]", "expected a JSON object such as")
	line(`{"result":"complete"}`, "expected the member at, in seconds since 1970")
	line(`{"at":1}`, "expected the member result")
	line(`{"at":-1,"result":"x"}`, "at is -1, expected seconds since 1970, from 0 to")
	line(`{"at":1e300,"result":"x"}`, "at is 1e+300, expected")
	line(`{"at":1,"result":"x","total":-0.5}`, "total is -0.5, expected seconds from 0 to")
	line(`{"at":1,"result":"x","bytes":-5}`, "bytes is -5, expected 0 to")
	line(`{"at":1,"result":"x","expected_input":-5}`, "expected_input is -5, expected 0 to")
	line(`{"at":1,"result":"x","blocks":5000}`, "blocks is 5000, expected 0 to 4096")
	line(`{"at":1,"result":"x","blocks":2,"known":3}`, "known is 3, expected at most blocks, which is 2")
	line(`{"at":1,"result":"x","blocks":2,"hashes":"AAAAAAAB"}`, "hashes has 8 characters, expected 16: 2 hashes of 8")
	line(`{"at":1,"result":"x","blocks":1,"hashes":"AAAA+AAB"}`, `hashes is "AAAA+AAB", expected 1 hashes of 8 characters of base64 (URL)`)
	line(`{"at":1,"result":"x","session":"A"}`, "session is \"A\"")
	line(`{"at":1,"result":"x","attempts":[{"took":1}]}`, "attempts[0]: expected the member to")
	line(`{"at":1,"result":"x","attempts":[{"to":"a","ttft":-1}]}`, "ttft is -1, expected seconds")
	line(`{"at":1,"result":"x","attempts":[{"to":"a","output":16777217}]}`, "output is 16777217, expected 0 to 16777216")
	line(`{"at":1,"result":"x","attempts":[`+strings.Repeat(`{"to":"a"},`, mostAttempts)+`{"to":"a"}]}`, "1001 attempts, expected at most 1000")
	if !Begins([]byte(headerLine)) || Begins([]byte(`{"timestamp": 0}`)) {
		t.Error("Begins")
	}
}

// An exchange that moved, and one that never came to a deployment.
func TestFrom(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	decision := &route.Decision{Strategy: "least_tokens", Chosen: "b/m", Eligible: 2, Trial: true, Prompt: 100, Output: 20,
		Candidates: []route.Candidate{{ID: "a/m", InFlight: 9}, {ID: "b/m", InFlight: 4}}}
	rec := &exchange.Record{
		Facts:   route.Facts{ID: "ek-2", API: "chat", Model: "m", Tenant: "t", Stream: true, PromptBytes: 400, MaxOutput: 7, ClientRetry: 2},
		Started: at, Ended: at.Add(2 * time.Second), Content: at.Add(time.Second), Queued: time.Millisecond, Depth: 1, Model: "n", Result: exchange.Cut, Status: 200,
		Failure: &exchange.Failure{Code: "evenkeel_cut", Message: "text"},
		Attempts: []exchange.Attempt{{Model: "n", Deployment: "b/m", Decision: decision, Started: at.Add(time.Millisecond), Ended: at.Add(2 * time.Second), Hedge: true, Waste: true,
			Outcome: route.Outcome{Class: "truncated", Detail: "text", Status: 200, TTFT: 3 * time.Millisecond, InputTokens: 90, CachedTokens: 64, OutputTokens: 5}}},
	}
	e := Entry{Prefix: Prefix{Blocks: 1}, Attempts: make([]Attempt, 3)}
	e.From(rec)
	want := Entry{
		At: at, ID: "ek-2", API: "chat", Model: "m", Served: "n", Tenant: "t", Stream: true, Bytes: 400, MaxOutput: 7, Retry: 2, ExpectedInput: 100, ExpectedOutput: 20, Prefix: Prefix{Blocks: 1},
		Result: exchange.Cut, Status: 200, Code: "evenkeel_cut", Queued: time.Millisecond, First: time.Second, Total: 2 * time.Second,
		Attempts: []Attempt{{Deployment: "b/m", Strategy: "least_tokens", Eligible: 2, InFlight: 4, Trial: true, Hedge: true, Waste: true,
			Sent: time.Millisecond, TTFT: 3 * time.Millisecond, Took: 1999 * time.Millisecond, Input: 90, Cached: 64, Output: 5, Estimated: true, Class: "truncated"}},
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("got\n%+v\nwant\n%+v", e, want)
	}
	rec.Attempts[0].Outcome.Reported = true
	if e.From(rec); e.ExpectedInput != 0 || e.ExpectedOutput != 0 {
		t.Errorf("expected %d and %d tokens where the engine has told", e.ExpectedInput, e.ExpectedOutput)
	}
	e.From(&exchange.Record{Facts: route.Facts{Model: "m"}, Started: at, Ended: at, Result: exchange.Refused, Refusals: []*route.Refusal{{Decision: decision}}})
	if e.ExpectedInput != 100 || len(e.Attempts) != 0 || e.Served != "" || e.Last() != nil {
		t.Errorf("a refusal is %+v", e)
	}
	if n := testing.AllocsPerRun(100, func() { e.From(rec) }); n > 0 {
		t.Errorf("From allocates %v times", n)
	}
}

func TestAppendAllocs(t *testing.T) {
	line := Append(nil, &full)
	plain := full
	plain.Tenant = "support"
	if n := testing.AllocsPerRun(100, func() { line = Append(line[:0], &plain) }); n > 0 {
		t.Errorf("Append allocates %v times", n)
	}
}

// What a line costs, as docs/trace.md says.
func TestSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	chain := make([]uint64, 1600)
	for i := range chain {
		chain[i] = rng.Uint64() >> (64 - HashBits)
	}
	thinner := NewThinner(10000)
	e := Entry{
		At: time.UnixMicro(1790000000_123456), ID: "ek-0123456789abcdef0123", API: "chat", Model: "llama-3.1-8b", Tenant: "support", Stream: true, Bytes: 8000, MaxOutput: 512,
		Result: exchange.Complete, Status: 200, First: 152345678, Total: 3 * time.Second,
		Attempts: []Attempt{{Deployment: "gpu-1/llama-3.1-8b", Strategy: "least_tokens", Eligible: 8, InFlight: 12, Sent: 212345, TTFT: 151876543, Took: 2998 * time.Millisecond,
			Input: 2013, Cached: 512, Output: 300}},
	}
	without := len(Append(nil, &e))
	f := func(what string, n, want int) {
		t.Helper()
		thinner.Thin(chain[:n], &e.Prefix)
		if got := len(Append(nil, &e)) - without; got > want {
			t.Errorf("%s: the prefix of %d blocks takes %d bytes, want at most %d", what, n, got, want)
		} else {
			t.Logf("%s: the prefix of %d blocks takes %d bytes", what, n, got)
		}
	}
	t.Logf("without a prefix a line has %d bytes", without)
	if without > 390 {
		t.Errorf("without a prefix a line has %d bytes", without)
	}
	f("a new prompt", 32, 250)
	f("the next turn", 40, 60)
	f("the same again", 40, 45)
	f("a new long prompt", 1600, 500)
	thinner.Reset()
	f("a new long prompt in a new file", 1600, 650)
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(headerLine + fullLine))
	f.Add([]byte(headerLine + example + "\n" + headerLine + fullLine[:200]))
	f.Add([]byte(headerLine + `{"at":17179869184,"result":"x","blocks":4096,"known":4096,"hashes":"AAAAAAAA"}`))
	f.Add([]byte(headerLine + `{"at":1e-300,"result":"x","session":"________","attempts":[{"to":"a","ttft":3e8}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := NewReader(bytes.NewReader(text), "FILE")
		chains := NewChains()
		for {
			var e, back Entry
			err := r.Next(&e)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				if !strings.HasPrefix(err.Error(), "FILE:") {
					t.Errorf("the error does not name the file: %v", err)
				}
				return
			}
			if chain := chains.Of(r.Header().Key, &e.Prefix).Append(nil); len(chain) != e.Prefix.Blocks {
				t.Fatalf("a chain of %d blocks, want %d", len(chain), e.Prefix.Blocks)
			}
			h := r.Header()
			again := NewReader(bytes.NewReader(Append(AppendHeader(nil, &h), &e)), "AGAIN")
			if err := again.Next(&back); err != nil {
				t.Fatalf("written again: %v", err)
			}
			if !reflect.DeepEqual(e, back) {
				t.Fatalf("written again it is\n%+v, it was\n%+v", back, e)
			}
		}
	})
}

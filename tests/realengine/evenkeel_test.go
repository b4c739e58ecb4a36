package realengine

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/tests/harness"
	"evenkeel/tests/realengine/gguf"
	"evenkeel/tests/sdk"
)

// Two real engines behind the balancer, used by the official clients.
func TestClients(t *testing.T) {
	servers := Start(t, 2, Options{Context: 16384})
	lb := harness.Evenkeel(t, servers[0].URL, servers[1].URL)
	run := func(clients []sdk.Client, scenarios ...string) {
		for _, client := range clients {
			t.Run(client.Name, func(t *testing.T) {
				runner := sdk.Start(t, client, lb.URL, "", ModelName)
				for _, name := range scenarios {
					t.Run(name, func(t *testing.T) { runner.Run(t, name) })
				}
			})
		}
	}
	run(sdk.OpenAI, "models", "models_unknown", "chat", "chat_stream", "chat_stream_usage", "chat_unicode", "chat_long_prompt",
		"chat_concurrent", "completions", "completions_stream", "responses", "responses_stream",
		"error_unknown_model", "error_missing_model", "error_bad_request", "cancel")
	run(sdk.Anthropic, "messages", "messages_stream", "messages_stream_helper", "messages_unicode", "messages_long_prompt",
		"messages_concurrent", "count_tokens",
		"error_unknown_model", "error_missing_model", "error_bad_request", "cancel")

	for i, s := range servers {
		tokens, err := s.GeneratedTokens()
		if err != nil {
			t.Fatal(err)
		}
		if tokens == 0 {
			t.Errorf("server %d got no traffic", i)
		}
		t.Logf("server %d generated %d tokens", i, tokens)
	}
	harness.Eventually(t, 2*time.Second, "nothing in flight", func() bool { return lb.InFlight(t) == 0 })
}

// What the client receives is what the engine wrote, apart from ids and times,
// which differ from answer to answer.
func TestAnswersAreTheEnginesBytes(t *testing.T) {
	server := Start(t, 1, Options{})[0]
	lb := harness.Evenkeel(t, server.URL)
	f := func(path, body string) {
		t.Helper()
		direct, through := answer(t, server.URL+path, body), answer(t, lb.URL+path, body)
		if direct != through {
			t.Errorf("%s %s\ndirect:\n%s\nthrough evenkeel:\n%s", path, body, direct, through)
		}
		if again := answer(t, server.URL+path, body); direct != again {
			t.Errorf("%s is no test: the engine itself answers differently\nfirst:\n%s\nthen:\n%s", path, direct, again)
		}
	}
	const fixed = `"model":"` + ModelName + `","temperature":0,"seed":7,"cache_prompt":false,`
	const chat = `"messages":[{"role":"user","content":"Grüße über 東京"}]`
	f("/v1/chat/completions", `{`+fixed+`"max_tokens":64,`+chat+`}`)
	f("/v1/chat/completions", `{`+fixed+`"max_tokens":64,"stream":true,`+chat+`}`)
	f("/v1/chat/completions", `{`+fixed+`"max_tokens":64,"stream":true,"stream_options":{"include_usage":true},`+chat+`}`)
	f("/v1/completions", `{`+fixed+`"max_tokens":64,"stream":true,"prompt":"the sea"}`)
	f("/v1/responses", `{`+fixed+`"max_output_tokens":64,"stream":true,"input":"the sea"}`)
	f("/v1/messages", `{`+fixed+`"max_tokens":64,"stream":true,`+chat+`}`)
	f("/v1/chat/completions", `{`+fixed+`"messages":"no list"}`)
	f("/v1/chat/completions", `{`+fixed+`"max_tokens":2,"messages":[{"role":"user","content":"`+strings.Repeat("sea ", 5000)+`"}]}`)
	f("/tokenize", `{"model":"`+ModelName+`","content":"the sea"}`)
}

// A client that leaves frees the engine's slot. This build of llama.cpp notices
// at its next write that nobody listens, so only a stream that has begun can
// show it.
func TestLeavingFreesTheSlot(t *testing.T) {
	servers := Start(t, 2, Options{Model: gguf.Small(1), Slots: 1})
	lb := harness.Evenkeel(t, servers[0].URL, servers[1].URL)
	busy := func() int {
		n := 0
		for _, s := range servers {
			slots, err := s.BusySlots()
			if err != nil {
				t.Fatal(err)
			}
			n += slots
		}
		return n
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := post(ctx, lb.URL+"/v1/chat/completions", chatRequest("hello", 3000, true))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 2000)); err != nil {
			t.Fatal(err)
		}
		if n := busy(); n != 1 {
			t.Errorf("%d slots are busy during the stream, want 1", n)
		}
		cancel()
		resp.Body.Close()
		harness.Eventually(t, 2*time.Second, "all slots are free", func() bool { return busy() == 0 })
		harness.Eventually(t, 2*time.Second, "nothing in flight", func() bool { return lb.InFlight(t) == 0 })
	}
}

// One of two engines dies in mid-answer: its streams end with an error event,
// the others are whole, everything goes to the other one, and when it is back
// it gets its share again.
func TestOneEngineDies(t *testing.T) {
	servers := Start(t, 2, Options{Model: gguf.Small(1), Slots: 4})
	lb := harness.Evenkeel(t, servers[0].URL, servers[1].URL)

	const n = 8
	var started, done sync.WaitGroup
	results := make([]stream, n)
	for i := range n {
		started.Add(1)
		done.Go(func() {
			results[i] = readStream(t, lb.URL, chatRequest(fmt.Sprint("story ", i), 150, true), started.Done)
		})
	}
	started.Wait() // every stream has content
	servers[0].Kill()
	done.Wait()

	whole, cut := 0, 0
	for i, r := range results {
		switch {
		case r.err != nil:
			t.Errorf("stream %d ended without a word: %v", i, r.err)
		case r.done && !r.failed:
			whole++
		case r.failed && !r.done:
			cut++
		default:
			t.Errorf("stream %d: error event %v, [DONE] %v", i, r.failed, r.done)
		}
	}
	t.Logf("%d whole, %d cut", whole, cut)
	if whole == 0 || cut == 0 {
		t.Errorf("%d streams whole and %d cut: both engines should have had some", whole, cut)
	}
	for i := range 10 {
		if r := readStream(t, lb.URL, chatRequest("after", 5, true), func() {}); !r.done || r.failed || r.err != nil {
			t.Errorf("request %d after the crash: %+v", i, r)
		}
	}

	servers[0].Restart(t)
	harness.Eventually(t, 40*time.Second, "the engine that is back gets requests", func() bool {
		if r := readStream(t, lb.URL, chatRequest("back", 5, true), func() {}); !r.done || r.failed || r.err != nil {
			t.Fatalf("a request while the engine comes back: %+v", r)
		}
		tokens, err := servers[0].GeneratedTokens()
		if err != nil {
			t.Fatal(err)
		}
		return tokens > 0
	})
	harness.Eventually(t, 2*time.Second, "nothing in flight", func() bool { return lb.InFlight(t) == 0 })
}

package mock

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/internal/engine"
)

// small is an engine whose times are round: 10 ms for a step, 1 ms for each prompt token, and 1 ms for each sequence that decodes.
func small() engine.Config {
	return engine.Config{
		Timing: engine.Timing{Base: 10e-3, Token: 1e-3, Sequence: 1e-3}, StepTokens: 64, MaxSequences: 4, BlockTokens: 4, Blocks: 64,
	}
}

// bench is a modelled engine in a bubble of synctest: its connections are pipes.
type bench struct {
	t *testing.T
	e *Engine
	s *session
}

func newBench(t *testing.T, c Config) *bench {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.begin()
	if err != nil {
		t.Fatal(err)
	}
	s.keep.Store(true)
	t.Cleanup(s.end)
	return &bench{t, e, s}
}

// ask begins a request on a connection of its own.
func (b *bench) ask(path, body string) *asked {
	ours, theirs := net.Pipe()
	a := &asked{t: b.t, conn: ours, in: bufio.NewReader(ours), began: time.Now()}
	b.s.running.Go(func() { newConn(b.e, b.s, theirs).serve() })
	b.t.Cleanup(func() { ours.Close() })
	if _, err := fmt.Fprintf(ours, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", path, len(body), body); err != nil {
		b.t.Fatal(err)
	}
	return a
}

type asked struct {
	t     *testing.T
	conn  net.Conn
	in    *bufio.Reader
	began time.Time
}

// answer reads the whole answer: how long after the request its body began, each line with data came, and it ended.
func (a *asked) answer() (status int, body string, at []time.Duration) {
	a.t.Helper()
	resp, err := http.ReadResponse(a.in, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		body += line
		if strings.Contains(line, `"content":"`) && !strings.Contains(line, `"content":""`) || err == io.EOF {
			at = append(at, time.Since(a.began))
		}
		if err == io.EOF {
			return resp.StatusCode, body, at
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
}

// number returns what stands behind a name in JSON.
func number(t *testing.T, body, name string) (n int) {
	t.Helper()
	_, rest, _ := strings.Cut(body, `"`+name+`":`)
	if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
		t.Fatalf("%s: %v in %s", name, err, body)
	}
	return n
}

const msec = time.Millisecond

func TestModelTimesEachToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := small()
		b := newBench(t, Config{Engine: &m, OutputTokens: 3})
		prompt := strings.Repeat("abcd", 20)
		body := `{"model":"mock-model","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"` + prompt + `"}]}`
		// A step of 20 prompt tokens, and two of one sequence.
		_, text, at := b.ask("/v1/chat/completions", body).answer()
		if want := []time.Duration{30 * msec, 41 * msec, 52 * msec, 52 * msec}; !slices.Equal(at, want) {
			t.Errorf("tokens came after %v, want %v", at, want)
		}
		if n := number(t, text, "cached_tokens"); n != 0 {
			t.Errorf("a cold cache held %d tokens", n)
		}
		// The same again: four of five blocks are cached, the last token is always computed.
		whole := strings.Replace(body, `"stream":true,"stream_options":{"include_usage":true},`, "", 1)
		_, text, at = b.ask("/v1/chat/completions", whole).answer()
		if want := []time.Duration{36 * msec}; !slices.Equal(at, want) { // 10 + 4 for the prompt, 11, 11
			t.Errorf("the answer came after %v, want %v", at, want)
		}
		if n := number(t, text, "cached_tokens"); n != 16 {
			t.Errorf("the cache held %d tokens, want 16", n)
		}
		synctest.Wait()
		if s := b.e.Stats(); s.Running != 0 || s.Completed != 2 || s.CachedTokens != 16 || s.PromptTokens != 40 || s.OutputTokens != 6 {
			t.Errorf("stats: %+v", s)
		}
	})
}

// The next turn of a conversation repeats the prompt and the answer, and finds both in the cache.
func TestModelFindsTheLastTurn(t *testing.T) {
	f := func(path, first, next, field string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			m := small()
			b := newBench(t, Config{Engine: &m, Name: "ab", OutputTokens: 8}) // the first token is "[ab]"
			_, text, _ := b.ask(path, first).answer()
			var v struct {
				Choices []struct{ Message struct{ Content string } }
				Content []struct{ Text string }
			}
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Fatal(err)
			}
			said := ""
			for _, c := range v.Choices {
				said = c.Message.Content
			}
			for _, c := range v.Content {
				said = c.Text
			}
			if len(said) != 8*tokenBytes {
				t.Fatalf("8 tokens are %d bytes: %q", len(said), said)
			}
			_, text, _ = b.ask(path, fmt.Sprintf(next, said)).answer()
			if n := number(t, text, field); n != 20 { // of 14 + 8 tokens, 21 are computed: five blocks
				t.Errorf("%s: the next turn found %d tokens, want 20: %s", path, n, text)
			}
		})
	}
	prompt := strings.Repeat("wxyz", 12)
	f("/v1/chat/completions",
		`{"model":"mock-model","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"`+prompt+`"}]}`,
		`{"model":"mock-model","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"`+prompt+`"},{"role":"assistant","content":"%s"},{"role":"user","content":"and then?"}]}`,
		"cached_tokens")
	f("/v1/messages",
		`{"max_tokens":99,"messages":[{"role":"user","content":"`+prompt+`"}],"model":"mock-model","system":"be brief"}`,
		`{"max_tokens":99,"messages":[{"role":"user","content":"`+prompt+`"},{"role":"assistant","content":[{"type":"text","text":"%s"}]},{"role":"user","content":"and then?"}],"model":"mock-model","system":"be brief"}`,
		"cache_read_input_tokens")
}

func TestModelledClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := small()
		m.MaxSequences = 1
		b := newBench(t, Config{Engine: &m, OutputTokens: 100, QueueLimit: 1})
		body := chatBody(streaming)
		running := b.ask("/v1/chat/completions", body)
		time.Sleep(15 * msec)
		waiting := b.ask("/v1/chat/completions", body)
		synctest.Wait()
		if s := b.e.Stats(); s.Running != 1 || s.Waiting != 1 {
			t.Errorf("stats: %+v", s)
		}
		if status, text, _ := b.ask("/v1/chat/completions", body).answer(); status != 503 || !strings.Contains(text, "queue_full") {
			t.Errorf("a full queue: status %d, %s", status, text)
		}
		running.conn.Close()
		time.Sleep(30 * msec) // the running step ends, and with the next one the prompt of the other
		if s := b.e.Stats(); s.Running != 1 || s.Waiting != 0 || s.Aborted != 1 {
			t.Errorf("stats: %+v", s)
		}
		waiting.conn.Close()
		time.Sleep(30 * msec)
		if s := b.e.Stats(); s.Running != 0 || s.Aborted != 2 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestModelRefusesWhatNeverFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := small() // holds 256 tokens
		b := newBench(t, Config{Engine: &m})
		body := chatBody(`,"user":"x"`)
		status, text, _ := b.ask("/v1/chat/completions", strings.Replace(body, "hello there", strings.Repeat("x", 4*260), 1)).answer()
		if status != 400 || !strings.Contains(text, `"code":"context_length_exceeded"`) ||
			!strings.Contains(text, "maximum context length is 256 tokens, and the request needs 276: 260 for the prompt and 16 for the answer") {
			t.Errorf("a prompt that is too long: status %d, %s", status, text)
		}
	})
}

// Hashes that do not match the lengths are the test's mistake, and no prompt that is too long.
func TestModelRefusesWrongBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := small() // blocks of 4 tokens
		b := newBench(t, Config{Engine: &m})
		f := func(member, want string) {
			t.Helper()
			status, text, _ := b.ask("/v1/chat/completions", chatBody(`,"mock":`+member)).answer()
			if status != 400 || !strings.Contains(text, `"param":"mock","code":null`) || !strings.Contains(text, want) {
				t.Errorf("%s: status %d, %s, want 400 with %q", member, status, text, want)
			}
		}
		f(`{"prompt_tokens":10,"prompt_blocks":[1,2,3]}`, "hashes of 3 blocks for 10 prompt tokens: they fill 2 blocks of 4")
		f(`{"prompt_tokens":10,"prompt_blocks":[1],"output_blocks":[2]}`, "give all, or none of the output's")
		f(`{"prompt_tokens":8,"output_tokens":4,"prompt_blocks":[1,2],"output_blocks":[3,4]}`, "2 blocks for 4 output tokens: they complete at most 1")
	})
}

func TestSlowModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := small()
		b := newBench(t, Config{Engine: &m, OutputTokens: 2})
		f := func(want ...time.Duration) {
			t.Helper()
			body := chatBody(streaming + `,"mock":{"prompt_tokens":10}`)
			if _, _, at := b.ask("/v1/chat/completions", body).answer(); !slices.Equal(at[:len(want)], want) {
				t.Errorf("tokens after %v, want %v", at, want)
			}
		}
		f(20*msec, 31*msec)
		b.s.drivers[0].slow((&scriptedFault{Fault: Fault{Kind: "slow", Factor: 3}}).factor())
		f(60*msec, 93*msec)
		b.s.drivers[0].slow((*scriptedFault)(nil).factor())
		f(20*msec, 31*msec)
		if err := b.e.SetFault(Fault{Kind: "slow", Rate: 0.5}); err == nil || !strings.Contains(err.Error(), "the whole engine") {
			t.Errorf("a share of the requests cannot be slow: %v", err)
		}
	})
}

// A modelled engine that was killed comes back cold, and as slow as a fault says that is still in force.
func TestModelledEngineRestarts(t *testing.T) {
	m := small()
	e := start(t, Config{Engine: &m, OutputTokens: 1, Slots: 2, KVTokens: 130})
	c := client(t)
	body := chatBody(`,"mock":{"prompt_tokens":12,"prompt_blocks":[1,18446744073709551615]}`)
	ask := func(wantCached int) {
		t.Helper()
		if n := number(t, mustPost(t, c, e.URL()+"/v1/chat/completions", body, 200), "cached_tokens"); n != wantCached {
			t.Errorf("cached tokens: %d, want %d", n, wantCached)
		}
	}
	ask(0)
	ask(8)
	setFault(t, e, Fault{Kind: "slow", Factor: 2})
	e.Kill()
	if s := e.Stats(); s.Running != 0 || s.CachedTokens != 0 {
		t.Errorf("stats of a killed engine: %+v", s)
	}
	if err := e.Restart(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ask(0)
	if took := time.Since(began); took < 44*msec {
		t.Errorf("answered after %v, want at least 44 ms", took)
	}
	resp, err := c.Get(e.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	for _, want := range []string{
		`vllm:prefix_cache_queries_total{engine="0",model_name="mock-model"} 12`, `vllm:prefix_cache_hits_total{engine="0",model_name="mock-model"} 0`,
		`vllm:cache_config_info{block_size="4",engine="0",num_gpu_blocks="32"} 1`, `vllm:num_requests_running{engine="0",model_name="mock-model"} 0`,
		`vllm:time_to_first_token_seconds_bucket{engine="0",model_name="mock-model",le="0.01"} 0`,
	} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if state := string(asJSON(e.state())); !strings.Contains(state, `"max_sequences": 2`) || !strings.Contains(state, `"blocks": 32`) {
		t.Errorf("state: %s", state)
	}
}

// A client that has sent more behind its request than the connection can hold still gets its answers.
func TestModelServesPipelinedRequests(t *testing.T) {
	m := small()
	e := start(t, Config{Engine: &m, OutputTokens: 3})
	nc, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	const requests = 4
	body := chatBody(`,"user":"` + strings.Repeat("x", 5000) + `"`)
	for range requests {
		fmt.Fprintf(nc, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	in := bufio.NewReader(nc)
	for i := range requests {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			t.Errorf("answer %d: status %d, %v", i, resp.StatusCode, err)
		}
	}
}

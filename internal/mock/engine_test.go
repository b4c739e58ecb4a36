package mock

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs an engine until the test ends.
func start(t testing.TB, cfg Config) *Engine {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return e
}

// client returns a client whose connections end with the test.
func client(t testing.TB) *http.Client {
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

func chatBody(more string) string {
	return `{"model":"mock-model","messages":[{"role":"user","content":"hello there"}]` + more + `}`
}

const streaming = `,"stream":true`

// post sends a body and reads the answer whole. err is the first error of either.
func post(t testing.TB, c *http.Client, url, body string) (*http.Response, string, error) {
	t.Helper()
	resp, err := c.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

// mustPost is post for answers that must arrive whole with the given status.
func mustPost(t testing.TB, c *http.Client, url, body string, status int) string {
	t.Helper()
	resp, got, err := post(t, c, url, body)
	if err != nil {
		t.Fatalf("POST %s: %v after %q", url, err, got)
	}
	if resp.StatusCode != status {
		t.Fatalf("POST %s: status %d, want %d: %s", url, resp.StatusCode, status, got)
	}
	return got
}

// eventually polls a condition that another goroutine will make true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// settled waits until nothing runs and checks that every request was counted once.
func settled(t testing.TB, e *Engine) Stats {
	t.Helper()
	eventually(t, "all requests ended", func() bool {
		s := e.Stats()
		return s.Running == 0 && s.Waiting == 0 && s.Started == s.Completed+s.Aborted+s.Cut
	})
	return e.Stats()
}

// events splits a stream into its data fields.
func events(stream string) []string {
	var data []string
	for line := range strings.Lines(stream) {
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			data = append(data, strings.TrimRight(d, "\r\n"))
		}
	}
	return data
}

type chatChunk struct {
	ID                string `json:"id"`
	Object            string `json:"object"`
	Model             string `json:"model"`
	SystemFingerprint string `json:"system_fingerprint"`
	Choices           []struct {
		Delta, Message struct {
			Role      string  `json:"role"`
			Content   *string `json:"content"`
			ToolCalls []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
	}
}

func decode[T any](t testing.TB, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestChat(t *testing.T) {
	e := start(t, Config{Name: "alpha", OutputTokens: 5})
	c := client(t)
	whole := decode[chatChunk](t, mustPost(t, c, e.URL()+"/v1/chat/completions", chatBody(""), 200))
	text := *whole.Choices[0].Message.Content
	if !strings.HasPrefix(text, "[alpha] ") || len(strings.Fields(text)) != 5 || *whole.Choices[0].FinishReason != "stop" ||
		whole.SystemFingerprint != "alpha" || whole.Object != "chat.completion" {
		t.Errorf("whole answer: %+v, text %q", whole, text)
	}
	if u := whole.Usage; u.PromptTokens != 3 || u.CompletionTokens != 5 || u.TotalTokens != 8 {
		t.Errorf("usage: %+v", u)
	}

	resp, stream, err := post(t, c, e.URL()+"/v1/chat/completions", chatBody(streaming+`,"max_tokens":3,"stream_options":{"include_usage":true}`))
	if err != nil || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" || resp.Header.Get("X-Mock-Engine") != "alpha" {
		t.Fatalf("%v, headers %v", err, resp.Header)
	}
	if !strings.HasSuffix(stream, "}\n\ndata: [DONE]\n\n") {
		t.Errorf("end of stream: %q", stream)
	}
	data := events(stream)
	if len(data) != 1+3+1+1+1 { // role, tokens, finish, usage, end
		t.Fatalf("%d events: %q", len(data), data)
	}
	if first := decode[chatChunk](t, data[0]); first.Choices[0].Delta.Role != "assistant" || *first.Choices[0].Delta.Content != "" {
		t.Errorf("first event: %s", data[0])
	}
	streamed := ""
	for _, d := range data[1:4] {
		streamed += *decode[chatChunk](t, d).Choices[0].Delta.Content
	}
	if len(strings.Fields(streamed)) != 3 || !strings.HasPrefix(streamed, "[alpha] ") {
		t.Errorf("streamed text %q", streamed)
	}
	if finish := decode[chatChunk](t, data[4]); *finish.Choices[0].FinishReason != "length" || finish.Usage != nil {
		t.Errorf("finish event: %s", data[4])
	}
	if usage := decode[chatChunk](t, data[5]); len(usage.Choices) != 0 || usage.Usage.CompletionTokens != 3 {
		t.Errorf("usage event: %s", data[5])
	}
	if s := settled(t, e); s.Completed != 2 || s.OutputTokens != 8 || s.PromptTokens != 6 || s.Statuses[200] != 2 || s.Connections != 1 {
		t.Errorf("stats: %+v", s)
	}
}

func TestSameRequestSameBytes(t *testing.T) {
	c := client(t)
	ask := func(cfg Config, body string) string {
		e := start(t, cfg)
		for range 2 { // what came before plays no part
			mustPost(t, c, e.URL()+"/v1/chat/completions", chatBody(`,"user":"someone else"`), 200)
		}
		return mustPost(t, c, e.URL()+"/v1/chat/completions", body, 200)
	}
	for _, body := range []string{chatBody(""), chatBody(streaming)} {
		another := strings.Replace(body, "hello", "Hello", 1)
		one := ask(Config{Seed: 1}, body)
		if again := ask(Config{Seed: 1}, body); again != one {
			t.Errorf("same seed:\n%s\n%s", one, again)
		}
		if other := ask(Config{Seed: 2}, body); other == one {
			t.Errorf("another seed, the same answer: %s", other)
		}
		if other := ask(Config{Seed: 1}, another); other == one {
			t.Errorf("another prompt, the same answer: %s", other)
		}
	}
}

func TestKillResetsAndRestartServesOnTheSamePort(t *testing.T) {
	e := start(t, Config{InterToken: time.Hour, Slots: 1})
	addr := e.Addr()
	c := client(t)
	resp, err := c.Post(e.URL()+"/v1/chat/completions", "application/json", strings.NewReader(chatBody(streaming)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	queued := make(chan error, 1)
	go func() {
		_, _, err := post(t, c, e.URL()+"/v1/chat/completions", chatBody(""))
		queued <- err
	}()
	eventually(t, "one queued", func() bool { return e.Stats().Waiting == 1 })

	e.Kill()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("stream ended with %v, want a reset", err)
	}
	if err := <-queued; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("queued request ended with %v, want a reset", err)
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial while killed: %v, want refused", err)
	}
	if s := settled(t, e); s.Cut != 2 || s.OpenConnections != 0 {
		t.Errorf("stats: %+v", s)
	}
	if err := e.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err == nil || e.Addr() != addr {
		t.Errorf("second start: %v at %s, want an error at %s", err, e.Addr(), addr)
	}
	mustPost(t, c, e.URL()+"/v1/chat/completions", chatBody(`,"max_tokens":1`), 200)
}

func TestCloseLetsRunningAnswersEnd(t *testing.T) {
	e := start(t, Config{BaseLatency: 50 * time.Millisecond})
	c := client(t)
	mustPost(t, c, e.URL()+"/v1/chat/completions", chatBody(""), 200) // leaves an idle connection
	settled(t, e)
	done := make(chan error, 1)
	go func() {
		_, stream, err := post(t, c, e.URL()+"/v1/chat/completions", chatBody(streaming))
		if err == nil && !strings.HasSuffix(stream, "[DONE]\n\n") {
			err = fmt.Errorf("cut: %q", stream)
		}
		done <- err
	}()
	eventually(t, "running", func() bool { return e.Stats().Running == 1 })
	e.Close()
	if err := <-done; err != nil {
		t.Errorf("running answer: %v", err)
	}
	if s := e.Stats(); s.OpenConnections != 0 || s.Completed != 2 {
		t.Errorf("stats: %+v", s)
	}
}

func TestCloseDoesNotWaitForWhatHangs(t *testing.T) {
	e := start(t, Config{})
	if err := e.SetFault(Fault{Kind: "hang"}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := post(t, client(t), e.URL()+"/v1/chat/completions", chatBody(""))
		done <- err
	}()
	eventually(t, "running", func() bool { return e.Stats().Running == 1 })
	before := time.Now()
	e.Close()
	if took := time.Since(before); took > closePatience/2 {
		t.Errorf("Close took %v", took)
	}
	if err := <-done; err == nil {
		t.Error("the hanging request got an answer")
	}
}

func TestSlotsAreFIFOAndFreedAtOnce(t *testing.T) {
	e := start(t, Config{Slots: 1, QueueLimit: 3, InterToken: time.Hour})
	c := client(t)
	type call struct {
		cancel context.CancelFunc
		first  chan error // the first byte came, or an error
	}
	begin := func() call {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		first := make(chan error, 1)
		go func() {
			req, _ := http.NewRequestWithContext(ctx, "POST", e.URL()+"/v1/chat/completions", strings.NewReader(chatBody(streaming)))
			resp, err := c.Do(req)
			if err != nil {
				first <- err
				return
			}
			defer resp.Body.Close()
			_, err = resp.Body.Read(make([]byte, 1))
			first <- err
			<-ctx.Done()
		}()
		return call{cancel, first}
	}
	running := begin()
	if err := <-running.first; err != nil {
		t.Fatal(err)
	}
	var queued []call
	for i := range 3 {
		queued = append(queued, begin())
		eventually(t, "queued", func() bool { return e.Stats().Waiting == i+1 })
	}
	if got := mustPost(t, c, e.URL()+"/v1/chat/completions", chatBody(""), 503); !strings.Contains(got, "queue_full") {
		t.Errorf("full queue: %s", got)
	}
	queued[1].cancel() // leaves from the middle of the queue
	if err := <-queued[1].first; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	eventually(t, "two queued", func() bool { return e.Stats().Waiting == 2 })
	for _, next := range []call{queued[0], queued[2]} {
		running.cancel()
		if err := <-next.first; err != nil {
			t.Fatal(err)
		}
		running = next
	}
	if s := e.Stats(); s.Running != 1 || s.Waiting != 0 {
		t.Errorf("stats: %+v", s)
	}
	running.cancel()
	if s := settled(t, e); s.Aborted != 4 || s.Completed != 1 {
		t.Errorf("stats: %+v", s)
	}
}

func TestClientLeavesInPrefill(t *testing.T) {
	for _, more := range []string{"", streaming} {
		e := start(t, Config{BaseLatency: time.Hour, Slots: 1})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		c := client(t)
		go func() {
			req, _ := http.NewRequestWithContext(ctx, "POST", e.URL()+"/v1/chat/completions", strings.NewReader(chatBody(more)))
			resp, err := c.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			done <- err
		}()
		eventually(t, "running", func() bool { return e.Stats().Running == 1 })
		cancel()
		<-done
		if s := settled(t, e); s.Aborted != 1 || s.PromptTokens != 0 {
			t.Errorf("stats: %+v", s)
		}
	}
}

func TestPacing(t *testing.T) {
	e := start(t, Config{PrefillTokensPerSecond: 100, BaseLatency: 20 * time.Millisecond, InterToken: 5 * time.Millisecond, OutputTokens: 10})
	body := `{"model":"mock-model","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("abcd", 5) + `"}]}`
	const ttft, rest = 70 * time.Millisecond, 45 * time.Millisecond // 20 ms + 5 tokens at 100/s; 9 gaps
	begin := time.Now()
	resp, err := client(t).Post(e.URL()+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	head := time.Since(begin)
	io.Copy(io.Discard, resp.Body)
	all := time.Since(begin)
	// A loaded machine can be late, never early.
	if head < ttft || all < ttft+rest {
		t.Errorf("head after %v, end after %v; want at least %v and %v", head, all, ttft, ttft+rest)
	}
	if head > ttft+2*time.Second || all > ttft+rest+2*time.Second {
		t.Errorf("head after %v, end after %v; want about %v and %v", head, all, ttft, ttft+rest)
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	e := start(t, Config{InterToken: time.Millisecond, OutputTokens: 4})
	nc, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var out bytes.Buffer
	for i := range 3 {
		body := chatBody(fmt.Sprintf(`%s,"max_tokens":%d`, streaming, i+1))
		fmt.Fprintf(&out, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	nc.Write(out.Bytes())
	br := bufio.NewReader(nc)
	for i := range 3 {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if n := len(events(string(b))); err != nil || n != 1+i+1+2 {
			t.Errorf("answer %d: %d events, %v", i, n, err)
		}
	}
}

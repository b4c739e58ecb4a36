//go:build unix

package cli

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/mock"
)

func mockEngine(t *testing.T, c mock.Config) *mock.Engine {
	t.Helper()
	e, err := mock.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// slow is an engine whose streams never end by themselves.
func slow(t *testing.T) *mock.Engine {
	t.Helper()
	return mockEngine(t, mock.Config{Name: "slow", Models: []string{"m"}, InterToken: 20 * time.Millisecond, OutputTokens: 1_000_000})
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// liveStream is a streamed answer whose first content has come.
type liveStream struct {
	body   io.ReadCloser
	reader *bufio.Reader
	id     string
}

func (p *program) stream(extra string) *liveStream {
	p.t.Helper()
	body := fmt.Sprintf(`{"model":"m","stream":true%s,"messages":[{"role":"user","content":%q}]}`, extra, prompt)
	req, err := http.NewRequest(http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { res.Body.Close() })
	s := &liveStream{body: res.Body, reader: bufio.NewReader(res.Body), id: res.Header.Get("X-Evenkeel-Id")}
	for {
		line, err := s.reader.ReadString('\n')
		if err != nil {
			p.t.Fatalf("status %d, no content: %v", res.StatusCode, err)
		}
		if strings.Contains(line, `"delta":{"content"`) {
			return s
		}
	}
}

// rest reads to the end.
func (s *liveStream) rest() string {
	defer s.body.Close()
	text, err := io.ReadAll(s.reader)
	if err != nil {
		return string(text) + "\n" + err.Error()
	}
	return string(text)
}

func (p *program) toldOfShutdown(s *liveStream) {
	p.t.Helper()
	if text := s.rest(); !strings.Contains(text, `"code":"evenkeel_shutting_down"`) || strings.Contains(text, "[DONE]") {
		p.t.Errorf("a stream ended with %q, want an error event and no [DONE]", text[max(0, len(text)-400):])
	}
}

func TestTerminationDrains(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}, InterToken: 20 * time.Millisecond, OutputTokens: 40})
	p := serve(t, e.URL())
	s := p.stream("")
	p.signal(syscall.SIGTERM)
	p.says("draining", 1)
	p.signal(syscall.SIGHUP) // neither ends it nor reloads
	if status, body := get(p.url + "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "draining") {
		t.Errorf("readyz: %d %q", status, body)
	}
	if text := s.rest(); !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("the stream did not finish: %q", text[max(0, len(text)-400):])
	}
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	p.says("evenkeel ends", 1)
	p.says("msg=exchange", 1)
}

func TestDrainTimeout(t *testing.T) {
	e := slow(t)
	file := write(t, filepath.Join(t.TempDir(), "c.yaml"), fmt.Sprintf("endpoints: {e: {url: %q}}\ndrain_timeout: 100ms", e.URL()))
	p := serve(t, "--config", file)
	s := p.stream("")
	p.signal(syscall.SIGTERM)
	p.toldOfShutdown(s)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// A second signal does not wait for the drain.
func TestSecondSignalCuts(t *testing.T) {
	for _, signals := range [][2]os.Signal{{syscall.SIGTERM, syscall.SIGTERM}, {os.Interrupt, os.Interrupt}, {syscall.SIGTERM, os.Interrupt}} {
		e := slow(t)
		p := serve(t, e.URL()) // drains for 30 s
		s := p.stream("")
		p.signal(signals[0])
		p.says("draining", 1)
		began := time.Now()
		p.signal(signals[1])
		p.toldOfShutdown(s)
		if code := p.exit(); code != 0 {
			t.Errorf("%v: exit code %d, want 0", signals, code)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("%v: the end took %v", signals, took)
		}
		p.says("asked to stop again", 1)
	}
}

// A third signal ends the process even if a client that does not read holds up the cut.
func TestThirdSignalEndsAtOnce(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "fast", Models: []string{"m"}, OutputTokens: 100_000_000})
	p := serve(t, e.URL())
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	body := `{"model":"m","stream":true,"messages":[]}`
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if _, err := io.ReadFull(c, make([]byte, 100)); err != nil { // and nothing more: the sockets fill up
		t.Fatal(err)
	}
	sent := func() int64 { return e.Stats().OutputTokens }
	last, since := sent(), time.Now()
	p.await("the stream is stuck", func() bool {
		if n := sent(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
	p.signal(syscall.SIGTERM)
	p.says("draining", 1)
	p.signal(syscall.SIGTERM)
	p.says("asked to stop again", 1)
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}

const reloaded, refused = "configuration reloaded", "the configuration was not reloaded; the last good one stays"

// TestCase82HangupReloads: the same by signals, with files, and an end whose grace time is over before the streams are.
func TestCase82HangupReloads(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}, InterToken: 10 * time.Millisecond, OutputTokens: 1_000_000})
	dir := t.TempDir()
	base := fmt.Sprintf("endpoints: {e: {url: %q, api_key: '${UPSTREAM_KEY}'}}\n", e.URL())
	endpoints := write(t, filepath.Join(dir, "endpoints.yaml"), base)
	policy := write(t, filepath.Join(dir, "policy.yaml"), "strategy: round_robin\ndrain_timeout: 100ms\n")
	p := serve(t, "--config", endpoints, "--config", policy)
	var streams []*liveStream
	for range 20 {
		streams = append(streams, p.stream(""))
	}

	p.signal(syscall.SIGHUP)
	p.says(reloaded, 1)

	write(t, policy, "strategy: round_robin\ndrain_timeout: 100ms\nmodels: {alias: {providers: [{name: e, model: m}]}}\n")
	p.signal(syscall.SIGHUP)
	p.says(reloaded, 2)
	if _, body := get(p.url + "/v1/models"); !strings.Contains(body, `"alias"`) {
		t.Errorf("the new model is not served: %s", body)
	}

	write(t, policy, "strategy: round_robbin\nmodels: {alias: {strategy: {name: p2c_ewma, halflife: 1s}}}\n")
	p.signal(syscall.SIGHUP)
	p.says(refused, 1)
	for _, why := range []string{"policy.yaml:1:1: strategy:", "round_robin", "policy.yaml:2:", "half_life"} {
		p.says(why, 1)
	}
	if _, body := get(p.admin + "/metrics"); !strings.Contains(body, "\nevenkeel_config_last_reload_successful 0\n") {
		t.Error("the metric does not say that the reload failed")
	}
	if _, body := get(p.url + "/v1/models"); !strings.Contains(body, `"alias"`) {
		t.Errorf("the last good configuration is gone: %s", body)
	}
	if err := os.Remove(policy); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.says(refused, 2)

	write(t, policy, "strategy: least_connections\ndrain_timeout: 100ms\nadmin: 127.0.0.1:1\n")
	for i := range 20 {
		p.signal(syscall.SIGHUP)
		p.says(reloaded, 3+i)
	}
	if _, body := get(p.admin + "/metrics"); !strings.Contains(body, "\nevenkeel_config_last_reload_successful 1\n") {
		t.Error("the metric does not say that the reload succeeded")
	}
	if n := e.Stats().Aborted + e.Stats().Cut; n != 0 {
		t.Errorf("%d streams were cut by reloads", n)
	}
	for _, s := range streams {
		if line, err := s.reader.ReadString('\n'); err != nil || strings.Contains(line, "evenkeel_") {
			t.Errorf("a stream does not go on: %q %v", line, err)
		}
	}
	p.signal(syscall.SIGTERM)
	for _, s := range streams {
		p.toldOfShutdown(s)
	}
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// Flags go on to hold over what the file says, and a changed setting that needs a restart is warned about.
func TestHangupKeepsFlags(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}})
	file := write(t, filepath.Join(t.TempDir(), "c.yaml"), fmt.Sprintf("endpoints: {e: {url: %q}}\n", e.URL()))
	p := serve(t, "--config", file, "--strategy", "p2c_ewma")
	write(t, file, fmt.Sprintf("listen: 127.0.0.1:9\nstrategy: weighted\nlog: {format: json}\nendpoints: {e: {url: %q}}\n", e.URL()))
	p.signal(syscall.SIGHUP)
	p.says(reloaded, 1)
	p.says(`msg="a changed setting takes effect only after a restart" setting=log`, 1)
	if text := p.out.text(); strings.Contains(text, "setting=listen") {
		t.Error("a setting that a flag overrides is warned about")
	}
	do(http.MethodPost, p.url+"/v1/chat/completions", `{"model":"m","messages":[]}`)
	p.await("it was placed by the flag's strategy", func() bool {
		_, body := get(p.admin + "/explain/last")
		return strings.Contains(body, `"strategy": "p2c_ewma"`)
	})
}

// A key in a file is read again, so that keys can be rotated.
func TestHangupRotatesAKey(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}, Record: 100})
	dir := t.TempDir()
	key := write(t, filepath.Join(dir, "key"), canary+"old\n")
	file := write(t, filepath.Join(dir, "c.yaml"), fmt.Sprintf("endpoints: {e: {url: %q, api_key: 'file:key', models: [m]}}\n", e.URL()))
	p := serve(t, "--config", file)
	sent := func() string {
		t.Helper()
		if status, body := do(http.MethodPost, p.url+"/v1/chat/completions", `{"model":"m","messages":[]}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		seen := ""
		for _, r := range e.Requests() {
			if r.Method == http.MethodPost {
				seen = r.Header.Get("Authorization")
			}
		}
		return seen
	}
	if got := sent(); got != "Bearer "+canary+"old" {
		t.Errorf("at first the engine saw %q", got)
	}
	write(t, key, canary+"new\n")
	p.signal(syscall.SIGHUP)
	p.says(reloaded, 1)
	if got := sent(); got != "Bearer "+canary+"new" {
		t.Errorf("after the reload the engine saw %q", got)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.says(refused, 1)
	if got := sent(); got != "Bearer "+canary+"new" {
		t.Errorf("after a reload without the file the engine saw %q", got)
	}
}

func TestHangupWithoutFile(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}})
	p := serve(t, e.URL())
	p.signal(syscall.SIGHUP)
	p.says("nothing to reload: there is no configuration file", 1)
}

// Keys and prompts appear nowhere: not in the log, not in what the admin listener shows, not on stdout.
func TestSecretsStayInside(t *testing.T) {
	sum := sha256.Sum256([]byte(clientKey))
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}, APIKey: upstreamKey})
	if err := e.SetFault(mock.Fault{Kind: "status", Status: 500, Rate: 0.5, Body: "no"}); err != nil {
		t.Fatal(err)
	}
	file := write(t, filepath.Join(t.TempDir(), "c.yaml"), fmt.Sprintf(
		"endpoints: {e: {url: %q, api_key: '${UPSTREAM_KEY}'}}\nvirtual_keys: [{name: agent, sha256: %s}]\n", e.URL(), hex.EncodeToString(sum[:])))
	p := serve(t, "--config", file, "--log-level", "debug")
	const requests = 30
	var crowd sync.WaitGroup
	for i := range requests {
		crowd.Go(func() {
			key := clientKey
			if i%5 == 0 {
				key = canary + "wrong"
			}
			do(http.MethodPost, p.url+"/v1/chat/completions", fmt.Sprintf(`{"model":"m","stream":%v,"messages":[{"role":"user","content":%q}]}`, i%2 == 0, prompt),
				"Authorization", "Bearer "+key)
		})
	}
	crowd.Wait()
	get(p.url+"/v1/models?key="+clientKey, "X-Api-Key", clientKey)
	p.signal(syscall.SIGHUP)
	p.says(reloaded, 1)
	for _, path := range []string{"/metrics", "/deployments", "/deployments?format=text", "/explain?n=100", "/explain/last", "/explain/last?format=text"} {
		if status, body := get(p.admin + path); status != http.StatusOK || strings.Contains(body, canary) {
			t.Errorf("%s: %d, with what must stay secret: %v", path, status, strings.Contains(body, canary))
		}
	}
	p.says("key=agent", requests-requests/5)
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	const rejected = requests/5 + 1 // wrong keys, and the one in a query
	if n := strings.Count(p.out.text(), "msg=exchange"); n != requests+1 {
		t.Errorf("%d exchanges were logged, want %d", n, requests+1)
	}
	if n := strings.Count(p.out.text(), "result=rejected"); n != rejected {
		t.Errorf("%d rejected requests were logged, want %d", n, rejected)
	}
}

package app

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"evenkeel/internal/config"
	"evenkeel/internal/mock"
	"evenkeel/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Texts that must never be seen outside of the request that carries them. Every world is searched for them when its
// test ends.
const (
	canary      = "canary-"
	prompt      = canary + "prompt-5d1f"
	clientKey   = canary + "client-key-91ab"
	upstreamKey = canary + "upstream-key-c07e"
)

// patience bounds waits for what happens in real time. It is reached only when a test fails.
const patience = 20 * time.Second

// world is a running App.
type world struct {
	t          *testing.T
	app        *App
	url, admin string
	log        *logBuffer
	client     *http.Client

	stop  context.CancelFunc // begins the drain
	ended chan struct{}      // Run has returned err
	err   error
}

// parse reads a configuration; listeners take free ports.
func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := parseErr(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func parseErr(text string) (*config.Config, error) {
	if !strings.Contains(text, "listen:") {
		text = "listen: 127.0.0.1:0\n" + text
	}
	text = "admin: 127.0.0.1:0\n" + text
	env := func(name string) (string, bool) { return upstreamKey, name == "UPSTREAM_KEY" }
	c, _, err := config.Load([]config.File{{Name: "test.yaml", Data: []byte(text)}}, env)
	if err != nil {
		return nil, err
	}
	return c, c.Validate(CheckStrategy)
}

// fromURLs is the configuration of a command line with addresses only.
func fromURLs(t *testing.T, key string, urls ...string) *config.Config {
	t.Helper()
	c, err := config.FromURLs(urls, secret.New(key))
	if err != nil {
		t.Fatal(err)
	}
	c.Listen, c.Admin = "127.0.0.1:0", "127.0.0.1:0"
	if err := c.Validate(CheckStrategy); err != nil {
		t.Fatal(err)
	}
	return c
}

// start runs an App until the test ends. It returns once the data listener answers.
func start(t *testing.T, c *config.Config) *world {
	t.Helper()
	return startTLS(t, c, nil)
}

// startTLS is start with what clients use for TLS.
func startTLS(t *testing.T, c *config.Config, client *tls.Config) *world {
	t.Helper()
	scheme := func(l config.ListenerTLS) string {
		if l.On() {
			return "https://"
		}
		return "http://"
	}
	w := &world{t: t, log: newLogBuffer(), ended: make(chan struct{})}
	a, err := New(c, Options{
		Logger: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Lines: Lines{w.log, true}, Version: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	listeners, err := a.Listen()
	if err != nil {
		t.Fatal(err)
	}
	w.app = a
	w.url, w.admin = scheme(c.TLS)+listeners.Data.Addr().String(), scheme(c.AdminTLS)+listeners.Admin.Addr().String()
	w.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100, TLSClientConfig: client, ForceAttemptHTTP2: client != nil}, Timeout: 2 * patience}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	go func() { // ends with ctx
		defer close(w.ended)
		w.err = a.Run(ctx, listeners)
	}()
	t.Cleanup(w.close)
	w.await("the data listener answers", func() bool { return w.get(w.url+"/livez").status == http.StatusOK })
	return w
}

// close checks what must be true at the end of every test, and stops the App.
func (w *world) close() {
	select {
	case <-w.ended:
	default:
		w.quiet()
		w.search()
		w.stop()
	}
	w.client.CloseIdleConnections()
	select {
	case <-w.ended:
	case <-time.After(patience):
		w.t.Fatal("Run did not return")
	}
	if w.err != nil {
		w.t.Error(w.err)
	}
	w.clean("the log", w.log.text())
	if strings.Contains(w.log.text(), "panicked") {
		w.t.Errorf("a handler panicked:\n%s", w.log.text())
	}
	if w.t.Failed() {
		w.t.Logf("the log:\n%s", w.log.text())
	}
}

// quiet waits until nothing runs, and checks that everything counted was given back.
func (w *world) quiet() {
	w.t.Helper()
	w.await("nothing runs any more", func() bool { return w.app.proxy.Running() == 0 })
	v := w.app.router.View(time.Now())
	for _, d := range v.Deployments {
		if d.InFlight != 0 || d.Tokens != 0 || d.Work != 0 {
			w.t.Errorf("deployment %s still counts %d in flight, %d tokens, %d work", d.ID, d.InFlight, d.Tokens, d.Work)
		}
	}
	for _, s := range v.Scopes {
		if s.InFlight != 0 || s.Tokens != 0 {
			w.t.Errorf("scope %s still counts %d in flight, %d tokens", s.Name, s.InFlight, s.Tokens)
		}
	}
	for model, n := range v.Waiting {
		if n != 0 {
			w.t.Errorf("%d requests still wait for %q", n, model)
		}
	}
}

// search looks for canaries in everything that the admin listener shows.
func (w *world) search() {
	w.t.Helper()
	for _, path := range []string{"/metrics", "/deployments", "/deployments?format=text", "/explain?n=1000", "/explain?n=1000&format=text"} {
		w.clean(path, w.get(w.admin+path).body)
	}
	for _, r := range w.app.ring.Last(200) {
		for _, format := range []string{"json", "text"} {
			w.clean("the explanation", w.get(w.admin+"/explain/"+r.Facts.ID+"?format="+format).body)
		}
	}
}

func (w *world) clean(where, text string) {
	w.t.Helper()
	if i := strings.Index(text, canary); i >= 0 {
		w.t.Errorf("%s holds what must stay secret: ...%s...", where, text[max(0, i-200):min(len(text), i+60)])
	}
}

// await polls a condition of the world outside.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	await(w.t, what, holds)
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// answer is a client's view of a response.
type answer struct {
	status int
	header http.Header
	body   string
	proto  string
	err    error // met while reading the body, or instead of a response
}

func (w *world) do(method, url, body string, headers ...string) answer {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := w.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(text), res.Proto, err}
}

func (w *world) get(url string, headers ...string) answer {
	return w.do(http.MethodGet, url, "", headers...)
}

// body is a chat request; extra is more JSON such as `,"stream":true`.
func body(model, extra string) string {
	named := ""
	if model != "" {
		named = fmt.Sprintf(`"model":%q,`, model)
	}
	return fmt.Sprintf(`{%s"messages":[{"role":"user","content":"%s, say hello"}]%s}`, named, prompt, extra)
}

// chat asks for an answer that is not streamed.
func (w *world) chat(model string, headers ...string) answer {
	return w.do(http.MethodPost, w.url+"/v1/chat/completions", body(model, ""), headers...)
}

const streamed = `,"stream":true,"stream_options":{"include_usage":true}`

// stream is a streamed answer that is read bit by bit.
type stream struct {
	res    *http.Response
	reader *bufio.Reader
	seen   strings.Builder
}

// stream asks for a streamed answer and returns when its first content has come.
func (w *world) stream(model string, headers ...string) *stream {
	w.t.Helper()
	s, err := w.tryStream(model, headers...)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) tryStream(model string, headers ...string) (*stream, error) {
	req, err := http.NewRequest(http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(body(model, streamed)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	s := &stream{res: res, reader: bufio.NewReader(res.Body)}
	w.t.Cleanup(func() { res.Body.Close() })
	for !strings.Contains(s.seen.String(), `"delta":{"content":"`) {
		line, err := s.reader.ReadString('\n')
		s.seen.WriteString(line)
		if err != nil {
			return nil, fmt.Errorf("status %d, no content: %w; got %q", res.StatusCode, err, s.seen.String())
		}
	}
	return s, nil
}

// rest reads to the end and returns the whole answer.
func (s *stream) rest() (string, error) {
	defer s.res.Body.Close()
	rest, err := io.ReadAll(s.reader)
	s.seen.Write(rest)
	return s.seen.String(), err
}

// whole reads to the end and demands that the stream is complete.
func (w *world) whole(s *stream) {
	w.t.Helper()
	text, err := s.rest()
	if err != nil || !strings.HasSuffix(text, "data: [DONE]\n\n") || strings.Contains(text, "evenkeel_") {
		w.t.Errorf("a stream did not end whole: %v\n%s", err, text)
	}
}

// models lists what GET /v1/models names.
func (w *world) models() []string {
	var page struct{ Data []struct{ ID string } }
	if err := json.Unmarshal([]byte(w.get(w.url+"/v1/models").body), &page); err != nil {
		return nil
	}
	names := []string{}
	for _, m := range page.Data {
		names = append(names, m.ID)
	}
	return names
}

// serves waits until exactly these models, in the order of their names, are listed.
func (w *world) serves(models ...string) {
	w.t.Helper()
	want := fmt.Sprint(models)
	w.await("models "+want+" are served", func() bool { return fmt.Sprint(w.models()) == want })
}

// metric sums the series of a metric whose labels include all of labels, each written name="value".
func (w *world) metric(name string, labels ...string) float64 {
	w.t.Helper()
	sum, _ := w.series(name, labels...)
	return sum
}

// series is metric with the number of series that were summed.
func (w *world) series(name string, labels ...string) (sum float64, n int) {
	w.t.Helper()
	for line := range strings.Lines(w.get(w.admin + "/metrics").body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.HasPrefix(line, name+"{") {
			if series, value, _ = strings.Cut(strings.TrimSpace(line), " "); series != name {
				continue
			}
		}
		matches := true
		for _, l := range labels {
			matches = matches && strings.Contains(series, l)
		}
		if !matches {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			w.t.Fatalf("metrics: %q: %v", line, err)
		}
		sum += v
		n++
	}
	return sum, n
}

// engine starts a mock engine that runs until the test ends.
func engine(t *testing.T, c mock.Config) *mock.Engine {
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

// answered is the name of the engine that gave an answer.
func answered(a answer) string { return a.header.Get("X-Mock-Engine") }

// logBuffer keeps what is logged, for goroutines to share.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func newLogBuffer() *logBuffer { return &logBuffer{} }

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// size is what the log takes of memory.
func (l *logBuffer) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Cap()
}

// logLine is one line of the log.
type logLine map[string]any

// lines returns those lines of the log with that message.
func (w *world) lines(message string) []logLine {
	w.t.Helper()
	var found []logLine
	for text := range strings.Lines(w.log.text()) {
		var l logLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			w.t.Fatalf("the log line %q: %v", text, err)
		}
		if l["msg"] == message {
			found = append(found, l)
		}
	}
	return found
}

// logged waits for a line with that message whose text includes all parts.
func (w *world) logged(message string, parts ...string) {
	w.t.Helper()
	w.await(fmt.Sprintf("the log says %q with %q", message, parts), func() bool {
	next:
		for _, l := range w.lines(message) {
			text := fmt.Sprint(map[string]any(l))
			for _, p := range parts {
				if !strings.Contains(text, p) {
					continue next
				}
			}
			return true
		}
		return false
	})
}

package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"evenkeel/internal/exchange"
	"evenkeel/internal/http1"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/secret"
	"evenkeel/internal/strategy"
	"evenkeel/internal/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a proxy over scripted upstreams, on real sockets.
type world struct {
	t      *testing.T
	url    string
	proxy  *Proxy
	router *route.Router
	gen    atomic.Pointer[Generation]
	addr   string
	log    lockedBuffer
	client http.RoundTripper // one connection per request; HTTP/2 in worlds that speak it

	mu      sync.Mutex
	records []*exchange.Record
	arrived chan struct{}
}

// upstreamHandler scripts one endpoint.
type upstreamHandler = http.HandlerFunc

// options of a world; zero values are the defaults.
type options struct {
	strategy  string
	deadlines exchange.Deadlines
	limits    route.Limits // of each deployment
	apiKeys   []string     // one per endpoint
	alias     string       // upstream's name for model "m"
	change    func(*Generation)
	wrap      func(http.Handler) http.Handler // around the proxy
	h2        bool                            // clients speak HTTP/2
	waiting   int                             // places in the queue, 0 = 100
	health    route.Health
}

// inTurn is round_robin that begins with the first.
type inTurn struct{}

func (inTurn) String() string { return "in_turn" }

func (inTurn) Pick(r *route.Round) int {
	best := 0
	for i := range r.Candidates {
		if r.Candidates[i].LastPick < r.Candidates[best].LastPick {
			best = i
		}
	}
	return best
}

// newWorld starts one server per handler, endpoints named a, b, c, ..., all serving the model "m".
func newWorld(t *testing.T, o options, handlers ...upstreamHandler) *world {
	t.Helper()
	urls := make([]string, len(handlers))
	for i, h := range handlers {
		urls[i] = serve(t, h)
	}
	return newWorldAt(t, o, urls...)
}

func newWorldAt(t *testing.T, o options, urls ...string) *world {
	t.Helper()
	if o.waiting == 0 {
		o.waiting = 100
	}
	w := &world{t: t, router: route.New(route.Options{MaxWaiting: o.waiting, Health: o.health}), arrived: make(chan struct{}, 100000)}
	var ranking route.Strategy = inTurn{}
	if o.strategy != "" {
		var err error
		if ranking, err = strategy.New(o.strategy, nil); err != nil {
			t.Fatal(err)
		}
	}
	if o.deadlines == (exchange.Deadlines{}) {
		o.deadlines = exchange.Deadlines{Deadline: 30 * time.Second, FirstToken: 30 * time.Second, BetweenTokens: 30 * time.Second, Response: 30 * time.Second, Hold: 2 * time.Second}
	}
	g := &Generation{
		Chains: map[string][]string{"m": {"m"}}, Models: []Model{{ID: "m", OwnedBy: "test"}}, Endpoints: map[string]*upstream.Endpoint{},
		MaxBody: 32 << 20, MaxAttempts: 3, Deadlines: o.deadlines,
	}
	model := "m"
	if o.alias != "" {
		model = o.alias
	}
	spec := route.PoolSpec{Model: "m", Strategy: ranking}
	for i, url := range urls {
		id := string(rune('a' + i))
		kind, _ := llm.LookupKind("openai-compatible")
		u := upstream.Options{Name: id, URL: url, Kind: kind}
		if i < len(o.apiKeys) {
			u.APIKey = secret.New(o.apiKeys[i])
		}
		e, err := upstream.New(u)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		g.Endpoints[id] = e
		spec.Deployments = append(spec.Deployments, route.Deployment{
			ID: id + "/" + model, Endpoint: id, URL: url, Model: model, Weight: 1, Limits: o.limits,
			Scopes: []route.Scope{{Kind: route.EndpointScope, Name: id, URL: url}},
		})
	}
	if o.change != nil {
		o.change(g)
	}
	w.gen.Store(g)
	if _, err := w.router.Adopt(time.Now(), []route.PoolSpec{spec}); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.proxy = New(Options{
		Router: w.router, Budget: exchange.NewBudget(0.1, 10), Current: w.gen.Load, Done: w.done, Logger: logger,
	})
	w.listen(o, logger)
	return w
}

// listen starts the server in front of the proxy.
func (w *world) listen(o options, logger *slog.Logger) {
	var handler http.Handler = w.proxy
	if o.wrap != nil {
		handler = o.wrap(handler)
	}
	errors := slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
	if o.h2 {
		front := httptest.NewUnstartedServer(handler)
		front.Config.ErrorLog, front.EnableHTTP2 = errors, true
		front.StartTLS()
		transport := front.Client().Transport.(*http.Transport)
		transport.DisableCompression = true
		w.client = transport
		w.t.Cleanup(front.Close)
		w.url, w.addr = front.URL, front.Listener.Addr().String()
		return
	}
	w.addr = w.serve(&http.Server{Handler: handler, ErrorLog: errors})
	w.url = "http://" + w.addr
	w.client = &http.Transport{DisableKeepAlives: true, DisableCompression: true}
}

// serve runs a server as the product does, and returns its address.
func (w *world) serve(s *http.Server) string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	s.ConnContext = ConnContext
	front := &http1.Server{Std: s}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = front.Serve(Listener(l)) // until it is closed
	}()
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = front.Shutdown(ctx) // lets handlers end
		_ = front.Close()
		<-ended
		w.proxy.Close()
	})
	return l.Addr().String()
}

// lockedBuffer is a log that goroutines share.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (w *world) done(f Finished) {
	w.mu.Lock()
	w.records = append(w.records, f.Record)
	w.mu.Unlock()
	w.arrived <- struct{}{}
}

// record waits for the n-th finished exchange (from 1) and returns it.
func (w *world) record(n int) *exchange.Record {
	w.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		w.mu.Lock()
		if len(w.records) >= n {
			r := w.records[n-1]
			w.mu.Unlock()
			return r
		}
		w.mu.Unlock()
		select {
		case <-w.arrived:
		case <-deadline:
			w.t.Fatalf("exchange %d did not finish within 20 s", n)
		}
	}
}

// idle waits until nothing is counted as running any more, which must be soon after the last client has its answer.
func (w *world) idle() {
	w.t.Helper()
	until(w.t, "nothing is counted any more", func() bool { return w.proxy.Running() == 0 && len(w.counted()) == 0 })
}

// counted lists what the router still counts.
func (w *world) counted() (what []string) {
	v := w.router.View(time.Now())
	for _, d := range v.Deployments {
		if d.InFlight != 0 || d.Tokens != 0 || d.Work != 0 {
			what = append(what, fmt.Sprintf("deployment %s: %d in flight, %d tokens, %d work", d.ID, d.InFlight, d.Tokens, d.Work))
		}
	}
	for _, s := range v.Scopes {
		if s.InFlight != 0 || s.Tokens != 0 {
			what = append(what, fmt.Sprintf("scope %s: %d in flight, %d tokens", s.Name, s.InFlight, s.Tokens))
		}
	}
	for model, n := range v.Waiting {
		if n != 0 {
			what = append(what, fmt.Sprintf("%d requests wait for model %s", n, model))
		}
	}
	return what
}

func (w *world) now() time.Time { return time.Now() }

// deployment returns what the router knows of the i-th deployment.
func (w *world) deployment(i int) route.DeploymentView {
	return w.router.View(time.Now()).Deployments[i]
}

// until waits for a condition on something that other goroutines or sockets bring about.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("after 20 s it is still not so that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// within waits for a channel to be closed or to send.
func within[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("20 s went by without %s", what)
	}
	return v
}

const (
	chatBody   = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`
	streamBody = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hello"}]}`
)

// answer is a client's view of a response.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // met while reading the body
}

func (w *world) post(path, body string, headers ...string) answer {
	w.t.Helper()
	req, err := http.NewRequest(http.MethodPost, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return w.do(req)
}

// do sends a request and reads the answer.
func (w *world) do(req *http.Request) answer {
	w.t.Helper()
	res, err := w.client.RoundTrip(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body), err}
}

// sse writes pieces of an event stream, each in a packet of its own.
func sse(pieces ...string) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}
}

// delta is one content chunk of a chat stream.
func delta(text string) string {
	return fmt.Sprintf(`data: {"id":"c","model":"up","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`+"\n\n", text)
}

const (
	roleEvent   = `data: {"id":"c","model":"up","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	finishEvent = `data: {"id":"c","model":"up","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	usageEvent  = `data: {"id":"c","model":"up","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}` + "\n\n"
	doneEvent   = "data: [DONE]\n\n"
)

// jsonAnswer answers with a status and a JSON body.
func jsonAnswer(status int, body string, headers ...string) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const goodJSON = `{"id":"c","model":"up","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`

// hijack gives a handler its connection, to break it.
func hijack(t *testing.T, w http.ResponseWriter) net.Conn {
	t.Helper()
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
	}
	return c
}

// reset closes a connection with RST.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// deadURL is an address where nothing listens.
func deadURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// serve starts a server for newWorldAt.
func serve(t *testing.T, h upstreamHandler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// cutWhole announces a JSON answer of size bytes and resets the connection after sent of them.
func cutWhole(t *testing.T, size, sent int) upstreamHandler {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = io.WriteString(w, `{"x":"`+strings.Repeat("a", sent-6))
		w.(http.Flusher).Flush()
		_ = hijack(t, w).Close()
	}
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

package health

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is an endpoint that answers as it is told to, and notes what it was asked.
type fake struct {
	reply func(*upstream.Stop, *upstream.Request) (*http.Response, error)

	mu    sync.Mutex
	asked []asked
}

type asked struct {
	at           time.Time
	method, path string
}

func (f *fake) Do(stop *upstream.Stop, r *upstream.Request) (*http.Response, error) {
	f.mu.Lock()
	f.asked = append(f.asked, asked{time.Now(), r.Method, r.Path})
	reply := f.reply
	f.mu.Unlock()
	return reply(stop, r)
}

// become changes what it answers.
func (f *fake) become(reply func(*upstream.Stop, *upstream.Request) (*http.Response, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reply = reply
}

// all is what it was asked so far.
func (f *fake) all() []asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fake) count() int { return len(f.all()) }

// answering is a reply whose body comes in pieces.
func answering(status int, contentType string, pieces ...string) func(*upstream.Stop, *upstream.Request) (*http.Response, error) {
	return func(stop *upstream.Stop, _ *upstream.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {contentType}}
		if contentType == "retry-after" {
			h = http.Header{"Retry-After": {"7"}}
		}
		return &http.Response{StatusCode: status, Header: h, Body: &pieceReader{stop: stop, pieces: slices.Clone(pieces)}}, nil
	}
}

// waits are pieces that are none: silences.
var waits = map[string]time.Duration{"": time.Second, "~": 10 * time.Millisecond, "...": time.Hour}

// pieceReader reads one piece at a time. "!" breaks the connection.
type pieceReader struct {
	stop   *upstream.Stop
	pieces []string
}

func (p *pieceReader) Read(b []byte) (int, error) {
	if len(p.pieces) == 0 {
		return 0, io.EOF
	}
	piece := p.pieces[0]
	if wait, ok := waits[piece]; ok {
		for begun := time.Now(); time.Since(begun) < wait; {
			time.Sleep(10 * time.Millisecond) // of the bubble
			if p.stop.Cancelled() {
				return 0, io.ErrUnexpectedEOF
			}
		}
		p.pieces = p.pieces[1:]
		return 0, nil
	}
	if piece == "!" {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(b, piece)
	if p.pieces[0] = piece[n:]; p.pieces[0] == "" {
		p.pieces = p.pieces[1:]
	}
	return n, nil
}

func (p *pieceReader) Close() error { return nil }

const events = "text/event-stream"

func chunk(delta, finish string) string {
	end := "null"
	if finish != "" {
		end = `"` + finish + `"`
	}
	return `data: {"choices":[{"index":0,"delta":{` + delta + `},"finish_reason":` + end + "}]}\n\n"
}

const done = "data: [DONE]\n\n"

// well is the answer of a deployment that is well.
var well = answering(200, events, chunk(`"content":"hi"`, ""), chunk("", "stop"), done)

func kind(name string) llm.Kind {
	k, ok := llm.LookupKind(name)
	if !ok {
		panic("no kind " + name)
	}
	return k
}

var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a bubble

// single takes the only candidate.
type single struct{}

func (single) Pick(*route.Round) int { return 0 }

// world is a Checker with endpoints named by the letters of names, each with a deployment of model m.
type world struct {
	t       *testing.T
	router  *route.Router
	checker *Checker
	fakes   map[string]*fake
	stop    func()

	mu       sync.Mutex
	results  []Result
	hearings []Hearing
}

func scope(name string) route.Scope {
	return route.Scope{Kind: route.EndpointScope, Name: name, URL: "http://" + name}
}

func (w *world) endpoint(name, kindName string) Endpoint {
	if w.fakes[name] == nil {
		w.fakes[name] = &fake{reply: well}
	}
	return Endpoint{
		Name: name, URL: "http://" + name, Kind: kind(kindName), Header: http.Header{}, Caller: w.fakes[name],
		Deployments: []Deployment{{ID: name + "/m", Model: "m", Ask: true, Scopes: []route.Scope{scope(name)}}},
	}
}

func (w *world) plan(names, kindName string) *Plan {
	p := &Plan{Interval: 15 * time.Second, Timeout: 3 * time.Second, Prompt: "ready?", MaxTokens: 16, PageFailures: 3}
	for _, name := range strings.Split(names, "") {
		p.Endpoints = append(p.Endpoints, w.endpoint(name, kindName))
	}
	return p
}

// newWorld must be called in a bubble.
func newWorld(t *testing.T, names string) *world {
	w := &world{t: t, router: route.New(route.Options{}), fakes: map[string]*fake{}}
	var pools []route.PoolSpec
	for _, name := range strings.Split(names, "") {
		d := route.Deployment{ID: name + "/m", Endpoint: name, URL: "http://" + name, Model: "m", Weight: 1, Scopes: []route.Scope{scope(name)}}
		pools = append(pools, route.PoolSpec{Model: name, Strategy: single{}, Deployments: []route.Deployment{d}})
	}
	if _, err := w.router.Adopt(time.Now(), pools); err != nil {
		t.Fatal(err)
	}
	w.checker = New(Options{Router: w.router, Seed: 1, Done: func(r Result) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.results = append(w.results, r)
	}, Heard: func(h Hearing) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hearings = append(w.hearings, h)
	}})
	return w
}

// run lets the Checker work until the test ends.
func (w *world) run() {
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with ctx
		defer close(ended)
		w.checker.Run(ctx)
	}()
	w.stop = func() {
		cancel()
		<-ended
	}
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

func (w *world) said() []Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.results)
}

func (w *world) view(name string) route.DeploymentView {
	for _, d := range w.router.View(time.Now()).Deployments {
		if d.ID == name+"/m" {
			return d
		}
	}
	w.t.Fatalf("no deployment %s/m", name)
	return route.DeploymentView{}
}

func (w *world) state(name string) route.BreakerState { return w.view(name).Breaker.State }

// succeed lets a real request succeed.
func (w *world) succeed(name string) {
	w.t.Helper()
	l, refusal := w.router.Pick(time.Now(), route.Query{Model: name, Facts: &route.Facts{Model: name, MaxOutput: 10}})
	if l == nil {
		w.t.Fatalf("pick of %s: %v", name, refusal.Kind)
	}
	l.Done(time.Now(), route.Outcome{Verdict: route.Success, Answered: true, Status: 200})
}

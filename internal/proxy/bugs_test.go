package proxy

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/upstream"
)

// Faults that were found and fixed, each so that it cannot come back.

// stubWriter is a client in memory. Write is asked what comes of each write, if set.
type stubWriter struct {
	head    http.Header
	status  int
	body    bytes.Buffer
	onWrite func([]byte) error
}

func newStub() *stubWriter { return &stubWriter{head: http.Header{}} }

func (s *stubWriter) Header() http.Header    { return s.head }
func (s *stubWriter) WriteHeader(status int) { s.status = status }
func (s *stubWriter) Flush()                 {}
func (s *stubWriter) Write(b []byte) (int, error) {
	if s.onWrite != nil {
		if err := s.onWrite(b); err != nil {
			return 0, err
		}
	}
	return s.body.Write(b)
}

func stubRequest(ctx context.Context, body string) *http.Request {
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://front/v1/chat/completions", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	return req
}

// A client that left while its body was read was reported before the exchange had started: the retry budget then
// counted more requests out than in, and panicked on a goroutine that nobody recovers.
func TestClientThatLeftBeforeTheStart(t *testing.T) {
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	const rounds = 200
	for range rounds {
		func() {
			defer func() { // the connection of one who left is broken: a silent one must not pass for an empty answer
				if fault := recover(); fault != nil && fault != http.ErrAbortHandler {
					panic(fault)
				}
			}()
			w.proxy.ServeHTTP(newStub(), stubRequest(gone, chatBody))
		}()
	}
	for i := 1; i <= rounds; i++ {
		if r := w.record(i); r.Result != exchange.ClientGone && r.Result != exchange.Complete {
			t.Fatalf("record %d: %s", i, r.Result)
		}
	}
	w.idle()
	if d := w.deployment(0); d.Totals.Faults != 0 {
		t.Errorf("the endpoint was blamed %d times", d.Totals.Faults)
	}
}

// An answer that was cut while it was too large to be held was never told to Options.Done.
func TestAbortedAnswerIsRecorded(t *testing.T) {
	w := newWorld(t, options{}, cutWhole(t, 400<<10, 300<<10))
	a := w.post("/v1/chat/completions", chatBody)
	if a.err == nil {
		t.Error("the answer ended as if it were whole")
	}
	if r := w.record(1); r.Result != exchange.Cut || r.Bytes != 300<<10 {
		t.Errorf("record: %s, %d bytes", r.Result, r.Bytes)
	}
	w.idle()
}

// A panic while an answer was passed on left the call's mutex locked, and the deferred end waited for it for ever.
func TestPanicWhileWriting(t *testing.T) {
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		sse(roleEvent, delta("one"))(rw, r)
		<-r.Context().Done() // so that it is written while the answer comes
	})
	stub := newStub()
	stub.onWrite = func([]byte) error { panic("a bug") }
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		w.proxy.ServeHTTP(stub, stubRequest(t.Context(), streamBody))
	}()
	if fault := within(t, "the end of the request", ended); fault != http.ErrAbortHandler {
		t.Errorf("the handler panicked with %v", fault)
	}
	if r := w.record(1); r.Result != exchange.Aborted {
		t.Errorf("record: %s", r.Result)
	}
	w.idle()
	if !strings.Contains(w.log.String(), "a request's handler panicked") {
		t.Errorf("log: %s", w.log.String())
	}
}

// A client that read slowly for longer than between_tokens was cut off, and the endpoint was blamed.
func TestSlowClientIsNotTheEndpointsFault(t *testing.T) {
	const between = 150 * time.Millisecond
	d := exchange.Deadlines{Deadline: 30 * time.Second, FirstToken: 30 * time.Second, BetweenTokens: between, Response: 30 * time.Second, Hold: time.Second}
	writing := make(chan struct{}, 10)
	w := newWorld(t, options{deadlines: d}, func(rw http.ResponseWriter, r *http.Request) {
		sse(roleEvent, delta("one"))(rw, r)
		<-writing
		sse(delta("two"), finishEvent, usageEvent, doneEvent)(rw, r)
	})
	stub := newStub()
	stub.onWrite = func([]byte) error {
		if stub.body.Len() == 0 {
			<-time.After(3 * between) // the timer fires meanwhile
			writing <- struct{}{}
		}
		return nil
	}
	w.proxy.ServeHTTP(stub, stubRequest(t.Context(), streamBody))
	if r := w.record(1); r.Result != exchange.Complete || r.Last().Outcome.Verdict != route.Success {
		t.Errorf("record: %s %+v", r.Result, r.Last().Outcome)
	}
	if !strings.HasSuffix(stub.body.String(), doneEvent) {
		t.Errorf("client got %q", stub.body.String())
	}
}

// That the balancer has no file descriptor left says nothing of the endpoint it could not reach.
func TestOwnLackOfDescriptorsIsNotTheEndpointsFault(t *testing.T) {
	r := &reply{c: &call{}}
	end := r.failed(&upstream.Error{Class: llm.Connect, Unreachable: true, Err: os.NewSyscallError("socket", syscall.EMFILE)})
	if o := end.Outcome; o.Verdict != route.NotDeploymentFault || !strings.Contains(o.Detail, "too many open files") {
		t.Errorf("%+v", o)
	}
}

// Short prompts of the same length were taken for the same request, so that one that came back too early took the place that
// was promised to another.
func TestShortPromptsAreToldApart(t *testing.T) {
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON))
	n := 0
	text := func(words string) uint64 {
		w.post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"`+words+`"}]}`)
		n++
		return w.record(n).Facts.Text
	}
	one, two, again := text("hi 1"), text("hi 2"), text("hi 1")
	if one == 0 || one == two || one != again {
		t.Errorf("texts are %x, %x and the first again %x", one, two, again)
	}
}

package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// step is one turn of a conversation: upstream sends, and goes on only once the client has got exactly what it
// is to see by then. So a test that ends proves that nothing was held back, without a clock.
type step struct{ send, see string }

// turns is a scripted upstream together with the client's side of it.
type turns struct {
	steps  []step
	header map[string]string // of the response; text/event-stream if nil
	took   chan struct{}
	ended  chan struct{} // closed when the handler returns
}

func newTurns(steps ...step) *turns {
	return &turns{steps: steps, took: make(chan struct{}), ended: make(chan struct{})}
}

// shown makes steps of pieces that are to be seen as they are sent.
func shown(pieces ...string) []step {
	steps := make([]step, len(pieces))
	for i, p := range pieces {
		steps[i] = step{p, p}
	}
	return steps
}

// opening is the start of a chat stream: the role is held until content follows.
func opening(text string) []step {
	return []step{{roleEvent, ""}, {delta(text), roleEvent + delta(text)}}
}

func (s *turns) serve(w http.ResponseWriter, r *http.Request) {
	defer close(s.ended)
	_, _ = io.Copy(io.Discard, r.Body)
	if s.header == nil {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	for name, value := range s.header {
		w.Header().Set(name, value)
	}
	for _, st := range s.steps {
		_, _ = io.WriteString(w, st.send)
		w.(http.Flusher).Flush()
		if st.see == "" {
			continue
		}
		select {
		case <-s.took:
		case <-r.Context().Done():
			return
		}
	}
}

// read takes the client's turns and returns what came after them.
func (s *turns) read(t *testing.T, r io.Reader) (rest string, err error) {
	t.Helper()
	for i, st := range s.steps {
		if st.see == "" {
			continue
		}
		got := make([]byte, len(st.see))
		n, err := io.ReadFull(r, got)
		if string(got[:n]) != st.see {
			t.Fatalf("turn %d: client got %q (%v), want %q", i, clip(string(got[:n])), err, clip(st.see))
		}
		s.took <- struct{}{}
	}
	b, err := io.ReadAll(r)
	return string(b), err
}

// converse runs a scripted stream to its clean end.
func converse(t *testing.T, o options, path, body string, steps ...step) *exchange.Record {
	t.Helper()
	s := newTurns(steps...)
	w := newWorld(t, o, s.serve)
	res := w.open(path, body)
	if rest, err := s.read(t, res.Body); rest != "" || err != nil {
		t.Errorf("after the last turn came %q (%v)", clip(rest), err)
	}
	r := w.record(1)
	w.idle()
	return r
}

// open sends a request and returns the response as soon as its head came.
func (w *world) open(path, body string, headers ...string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := w.client.RoundTrip(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// overBoth runs a test for clients of HTTP/1.1 and of HTTP/2.
func overBoth(t *testing.T, test func(t *testing.T, o options)) {
	t.Run("http1", func(t *testing.T) { test(t, options{}) })
	t.Run("http2", func(t *testing.T) { test(t, options{h2: true}) })
}

// succeeded demands a complete answer that counts for the endpoint, with these tokens.
func succeeded(t *testing.T, r *exchange.Record, input, output int) {
	t.Helper()
	o := r.Last().Outcome
	if r.Result != exchange.Complete || o.Verdict != route.Success || r.Failure != nil {
		t.Errorf("result %s, verdict %v, failure %+v", r.Result, o.Verdict, r.Failure)
	}
	if !o.Reported || o.InputTokens != input || o.OutputTokens != output {
		t.Errorf("tokens in %d out %d (reported %v), want %d and %d", o.InputTokens, o.OutputTokens, o.Reported, input, output)
	}
}

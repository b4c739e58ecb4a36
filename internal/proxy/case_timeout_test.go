package proxy

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/exchange"
)

// Cases of the kind timeouts. Times are those of the report divided by a hundred or less; upper bounds of real time are not
// checked here, since the machine may be busy: which limit ended a request is.

// TestCase77SlowPromptIsNotATimeout: an answer that begins late but within first_token (streamed) or response (not streamed)
// is passed on, whether it is the head or the first event that is late.
func TestCase77SlowPromptIsNotATimeout(t *testing.T) {
	const late = 500 * time.Millisecond
	w := newWorld(t, options{deadlines: exchange.Deadlines{
		Deadline: 20 * time.Second, FirstToken: 20 * time.Second, BetweenTokens: 20 * time.Second, Response: 20 * time.Second, Hold: 100 * time.Millisecond,
	}}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		streamed := strings.Contains(string(body), `"stream":true`)
		if streamed {
			w.Header().Set("Content-Type", "text/event-stream")
		} else {
			w.Header().Set("Content-Type", "application/json")
		}
		if r.Header.Get("X-Request-Id") == "late event" {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
		}
		select {
		case <-time.After(late):
		case <-r.Context().Done():
			return
		}
		if streamed {
			_, _ = io.WriteString(w, healthy)
		} else {
			_, _ = io.WriteString(w, goodJSON)
		}
	})
	var all sync.WaitGroup
	for _, kind := range []string{"late head", "late event"} {
		for body, want := range map[string]string{streamBody: healthy, chatBody: goodJSON} {
			all.Go(func() {
				begun := time.Now()
				a := w.post("/v1/chat/completions", body, "X-Request-Id", kind)
				if a.status != 200 || a.err != nil || a.body != want {
					t.Errorf("%s, %s: %d %s (%v)", kind, body, a.status, a.body, a.err)
				}
				if time.Since(begun) < late {
					t.Errorf("%s: the answer came before it was sent", kind)
				}
			})
		}
	}
	all.Wait()
	w.idle()
}

// TestCase78NoTotalTimeout: a stream that goes on producing is never cut, though it lasts many times as long as each limit;
// on all paths.
func TestCase78NoTotalTimeout(t *testing.T) {
	const limit, gap, events = time.Second, 50 * time.Millisecond, 62
	w := newWorld(t, options{deadlines: exchange.Deadlines{Deadline: limit, FirstToken: limit, BetweenTokens: limit, Response: limit, Hold: limit}},
		func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			s := longStream(r.URL.Path, events)
			tick := time.NewTicker(gap)
			defer tick.Stop()
			for _, e := range s {
				_, _ = io.WriteString(w, e)
				w.(http.Flusher).Flush()
				select {
				case <-tick.C:
				case <-r.Context().Done():
					return
				}
			}
		})
	var all sync.WaitGroup
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/responses"} {
		all.Go(func() {
			want := strings.Join(longStream(path, events), "")
			a := w.post(path, `{"model":"m","stream":true,"max_tokens":100,"input":"x","messages":[{"role":"user","content":"hello"}]}`)
			if a.status != 200 || a.err != nil || a.body != want {
				t.Errorf("%s: %d, %d of %d bytes (%v), end %q", path, a.status, len(a.body), len(want), a.err, clip(a.body[max(0, len(a.body)-200):]))
			}
		})
	}
	all.Wait()
	for i := range 3 {
		if r := w.record(i + 1); r.Result != exchange.Complete || r.Ended.Sub(r.Started) < 3*limit {
			t.Errorf("request %d: %s after %v", i, r.Result, r.Ended.Sub(r.Started))
		}
	}
	w.idle()
}

// longStream is a whole stream of n pieces of content in the form of a path's dialect.
func longStream(path string, n int) []string {
	var s []string
	switch path {
	case "/v1/messages":
		s = append(s, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"x\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"up\",\"content\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n",
			"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n")
		for range n {
			s = append(s, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n")
		}
		return append(s, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":60}}\n\n",
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	case "/v1/responses":
		s = append(s, "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"x\",\"model\":\"up\",\"status\":\"in_progress\"}}\n\n")
		for range n {
			s = append(s, "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n")
		}
		return append(s, "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"x\",\"model\":\"up\",\"status\":\"completed\",\"usage\":{\"input_tokens\":3,\"output_tokens\":60,\"total_tokens\":63}}}\n\n")
	}
	s = append(s, roleEvent)
	for range n {
		s = append(s, delta("a"))
	}
	return append(s, finishEvent, usageEvent, doneEvent)
}

// TestCase80OneDeadlineForAll: attempts, retries and models share one deadline; a chain that leads back to its beginning
// ends; no endpoint is asked twice; the record tells all attempts.
func TestCase80OneDeadlineForAll(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	const perAttempt, deadline = 200 * time.Millisecond, 500 * time.Millisecond
	f := func(want string, header ...string) {
		t.Helper()
		w := newWorld(t, options{
			deadlines: exchange.Deadlines{Deadline: deadline, FirstToken: perAttempt, BetweenTokens: time.Second, Response: perAttempt, Hold: time.Second},
			change: func(g *Generation) {
				g.Chains = map[string][]string{"m": {"m", "n"}, "n": {"n", "m"}}
				g.MaxAttempts = 10
			},
		}, hang, hang, hang, hang)
		begun := time.Now()
		a := w.post("/v1/chat/completions", streamBody, header...)
		if a.status != http.StatusGatewayTimeout || !strings.Contains(a.body, want) {
			t.Errorf("%d %s, want 504 with %s", a.status, a.body, want)
		}
		r := w.record(1)
		if took := r.Ended.Sub(r.Started); took > time.Since(begun) || len(header) == 0 && took < deadline {
			t.Errorf("it ended after %v", took)
		}
		asked := map[string]int{}
		for _, at := range r.Attempts {
			if asked[at.Deployment]++; asked[at.Deployment] > 1 {
				t.Errorf("%s was asked twice", at.Deployment)
			}
		}
		if len(header) == 0 && (len(asked) < 2 || r.Last().Outcome.Detail != "the limit deadline of 500ms passed") {
			t.Errorf("attempts at %v, the last ended with %q", asked, r.Last().Outcome.Detail)
		}
		w.idle()
	}
	f("evenkeel_deadline_exceeded")
	f("evenkeel_deadline_exceeded", "x-evenkeel-timeout", "100ms")
}

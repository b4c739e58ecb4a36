package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// An answer of status 200 without any choice is no success: it counts, another deployment is asked, and it is passed on as it
// is only where there is no other.
func TestAnswerWithoutChoices(t *testing.T) {
	const empty = `{"id":"1","object":"chat.completion","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":0,"total_tokens":3}}`
	w := newWorld(t, options{}, jsonAnswer(200, empty))
	if a := w.post("/v1/chat/completions", chatBody); a.status != http.StatusOK || a.body != empty {
		t.Errorf("the only deployment's answer: %d %s", a.status, a.body)
	}
	if d := w.deployment(0); d.Totals.Faults == 0 || d.Totals.Successes != 0 {
		t.Errorf("it counts as %+v", d.Totals)
	}
	if last := w.record(1).Last(); !strings.Contains(last.Outcome.Detail, "no answer") {
		t.Errorf("explained as %q", last.Outcome.Detail)
	}
}

// TestGoodStatusWithoutAnAnswer: whatever a server says instead of an answer, another deployment is asked, and it counts.
func TestGoodStatusWithoutAnAnswer(t *testing.T) {
	page := func(status int, kind, body string) upstreamHandler {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, bad := range map[string]upstreamHandler{
		"a login page":       page(200, "text/html; charset=utf-8", "<html>log in</html>"),
		"nothing":            page(200, "application/json", ""),
		"no content":         page(204, "application/json", ""),
		"a list of nothings": page(200, "application/json", `{"choices":[]}`),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{}, bad, jsonAnswer(200, goodJSON))
			for range 4 {
				if a := w.post("/v1/chat/completions", chatBody); a.status != 200 || a.body != goodJSON {
					t.Errorf("client got %d %q", a.status, a.body)
				}
			}
			if d := w.deployment(0); d.Totals.Faults == 0 || d.Totals.Successes != 0 {
				t.Errorf("it counts as %+v", d.Totals)
			}
			w.idle()
		})
	}
	t.Run("a login page in place of a stream", func(t *testing.T) {
		w := newWorld(t, options{}, page(200, "text/html", "<html>log in</html>"), sse(healthy))
		for range 4 {
			if a := w.post("/v1/chat/completions", streamBody); a.status != 200 || a.body != healthy {
				t.Errorf("client got %d %q", a.status, a.body)
			}
		}
		w.idle()
	})
	t.Run("embeddings need no choices", func(t *testing.T) {
		w := newWorld(t, options{}, page(200, "application/json", `{"data":[]}`))
		if a := w.post("/v1/embeddings", `{"model":"m","input":"x"}`); a.status != 200 || w.deployment(0).Totals.Faults != 0 {
			t.Errorf("%d %q", a.status, a.body)
		}
	})
}

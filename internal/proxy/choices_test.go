package proxy

import (
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
	if last := w.record(1).Last(); !strings.Contains(last.Outcome.Detail, "no choices") {
		t.Errorf("explained as %q", last.Outcome.Detail)
	}
}

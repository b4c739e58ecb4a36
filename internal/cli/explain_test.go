//go:build unix

package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"evenkeel/internal/console"
	"evenkeel/internal/mock"
)

func TestExplainARunningBalancer(t *testing.T) {
	one := engine(t, mock.Config{Name: "one", Models: []string{"m"}, OutputTokens: 3})
	two := engine(t, mock.Config{Name: "two", Models: []string{"m"}, OutputTokens: 3})
	p := serve(t, one.URL(), two.URL())
	explain := func(code int, args ...string) string {
		t.Helper()
		got, stdout, stderr := command(append([]string{"explain", "--admin-url", p.admin + "/"}, args...)...)
		if got != code || strings.Contains(stdout+stderr, canary) {
			t.Errorf("explain %q: exit code %d, want %d; stdout %q, stderr %q", args, got, code, stdout, stderr)
		}
		return stdout + stderr
	}
	if text := explain(exitFailure, "last"); !strings.Contains(text, "none has ended since the start") {
		t.Errorf("before the first request: %q", text)
	}
	first := p.stream("")
	first.rest()
	p.await("the first has ended", func() bool { status, _ := get(p.admin + "/explain/" + first.id); return status == http.StatusOK })
	second := p.stream("")
	second.rest()
	p.await("the second has ended", func() bool { status, _ := get(p.admin + "/explain/" + second.id); return status == http.StatusOK })

	story := explain(exitOK, first.id)
	for _, want := range []string{first.id, "least_tokens", hostPort(one.URL()) + "/m", hostPort(two.URL()) + "/m", "complete"} {
		if !strings.Contains(story, want) {
			t.Errorf("the story lacks %q:\n%s", want, story)
		}
	}
	if last := explain(exitOK, "last"); !strings.Contains(last, second.id) || strings.Contains(last, first.id) {
		t.Errorf("last is not the second request, %s:\n%s", second.id, last)
	}
	var e console.Explanation
	if err := json.Unmarshal([]byte(explain(exitOK, "--json", first.id)), &e); err != nil || e.ID != first.id || len(e.Attempts) != 1 || e.Attempts[0].Outcome.OutputTokens != 3 {
		t.Errorf("%v: %+v", err, e)
	}
	for _, id := range []string{"ek-000000000000000000000000", "../metrics", "a b%", "x\x1b[31m"} {
		if text := explain(exitFailure, "--json", id); !strings.HasPrefix(text, "evenkeel: no finished request") {
			t.Errorf("unknown id %q, as JSON: %q", id, text)
		}
		if text := explain(exitFailure, id); !strings.Contains(text, "no finished request") || strings.Contains(text, "\x1b") {
			t.Errorf("unknown id %q: %q", id, text)
		}
	}
	if code, _, stderr := command("explain", "--admin-url", p.url, "last"); code != exitFailure || !strings.Contains(stderr, p.url+" answers 404 Not Found, but not as") {
		t.Errorf("asked at the data listener: exit code %d, stderr %q", code, stderr)
	}
}

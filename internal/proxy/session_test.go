package proxy

import (
	"fmt"
	"strings"
	"testing"

	"evenkeel/internal/llm"
)

// TestSessionPrecedence: what names a request's session, the most telling first, and that the name itself goes nowhere.
func TestSessionPrecedence(t *testing.T) {
	w := newWorld(t, options{change: func(g *Generation) {
		g.AddressSession = func(model string) bool { return model == "m" }
	}}, jsonAnswer(200, goodJSON))
	sent := 0
	ask := func(body string, headers ...string) uint64 {
		t.Helper()
		if a := w.post("/v1/chat/completions", body, headers...); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		sent++
		return w.record(sent).Facts.Session
	}
	rungs := []struct{ header, body, name string }{ // from the least telling
		{"", "", "127.0.0.1"},
		{"", `"user":"canary-user"`, "canary-user"},
		{"", `"metadata":{"user_id":"canary-id"}`, "canary-id"},
		{"", `"previous_response_id":"canary-resp"`, "canary-resp"},
		{"", `"prompt_cache_key":"canary-key"`, "canary-key"},
		{"X-Session-Id", "", "canary-session"},
		{"X-Evenkeel-Session", "", "canary-own"},
	}
	for i := range rungs {
		for _, others := range [][]struct{ header, body, name string }{rungs[i : i+1], rungs[:i+1]} {
			members, headers := "", []string(nil)
			for _, r := range others {
				if r.body != "" {
					members += "," + r.body
				}
				if r.header != "" {
					headers = append(headers, r.header, r.name)
				}
			}
			body := fmt.Sprintf(`{"model":"m"%s,"messages":[{"role":"user","content":"hi"}]}`, members)
			if got, want := ask(body, headers...), llm.Session(w.proxy.Prefixes, "", rungs[i].name); got != want {
				t.Errorf("%s with headers %v: session %x, want that of %q", body, headers, got, rungs[i].name)
			}
		}
	}
	if log := w.log.String(); strings.Contains(log, "canary-") {
		t.Errorf("the log names a session: %s", log)
	}

	g := *w.gen.Load()
	g.AddressSession = nil
	w.gen.Store(&g)
	if got := ask(`{"model":"m","messages":[]}`); got != 0 {
		t.Errorf("without a name and without the setting the session is %x", got)
	}
	w.idle()
}

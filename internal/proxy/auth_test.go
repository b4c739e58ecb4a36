package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestKeyCarriers(t *testing.T) {
	rec := &recorder{next: jsonAnswer(200, goodJSON)}
	w := newWorld(t, options{change: func(g *Generation) { g.Keys = keys("TEN-222") }}, rec.serve)
	const unauthorized, refused, fine = 401, 400, 200
	bodies := map[string]bool{}
	for _, c := range []struct {
		status int
		query  string
		header []string
	}{
		{fine, "", []string{"Authorization", "Bearer TEN-222"}}, {fine, "", []string{"Authorization", "bearer  TEN-222 "}},
		{fine, "", []string{"X-Api-Key", "TEN-222"}}, {fine, "", []string{"Api-Key", "TEN-222"}}, {fine, "", []string{"X-Goog-Api-Key", "TEN-222"}},
		{fine, "", []string{"Authorization", "Bearer TEN-222", "X-Api-Key", "TEN-222"}}, {fine, "?limit=5", []string{"X-Api-Key", "TEN-222"}},
		{unauthorized, "", nil}, {unauthorized, "", []string{"Authorization", "Bearer BAD-444"}}, {unauthorized, "", []string{"X-Api-Key", "BAD-444"}},
		{unauthorized, "", []string{"Authorization", "TEN-222"}}, {unauthorized, "", []string{"Authorization", "Basic TEN-222"}}, {unauthorized, "", []string{"Authorization", "Bearer "}},
		{unauthorized, "", []string{"Authorization", "Bearer TEN-2222"}}, {unauthorized, "", []string{"Cookie", "key=TEN-222"}}, {unauthorized, "", []string{"Proxy-Authorization", "Bearer TEN-222"}},
		{refused, "", []string{"Authorization", "Bearer TEN-222", "X-Api-Key", "BAD-444"}}, {refused, "", []string{"Api-Key", "BAD-444", "X-Goog-Api-Key", "TEN-222"}},
		{refused, "", []string{"Authorization", "Bearer TEN-222", "Authorization", "Bearer BAD-444"}},
		{refused, "?key=TEN-222", nil}, {refused, "?a=b&api_key=TEN-222", nil}, {refused, "?api-key=BAD-444", []string{"X-Api-Key", "TEN-222"}}, {refused, "?access_token=", nil},
		{refused, "?API_KEY=TEN-222", nil}, {refused, "?a;key=TEN-222", nil}, {refused, "?%6bey=TEN-222", nil}, {refused, "?x=%zz&key=TEN-222", nil},
	} {
		before := len(rec.seen)
		a := w.post("/v1/chat/completions"+c.query, chatBody, c.header...)
		if a.status != c.status {
			t.Errorf("%s %v: got %d %s, want %d", c.query, c.header, a.status, a.body, c.status)
		}
		if asked := len(rec.seen) > before; asked != (c.status == fine) {
			t.Errorf("%s %v: upstream asked: %v", c.query, c.header, asked)
		}
		if c.status == unauthorized {
			bodies[a.body] = true
		}
	}
	if len(bodies) != 1 {
		t.Errorf("refusals differ, which tells keys apart: %v", bodies)
	}
	for _, path := range []string{"/v1/models", "/v1/models/m", "/v1/nothing", "/nothing"} {
		req, _ := http.NewRequest(http.MethodGet, w.url+path, http.NoBody)
		if a := w.do(req); a.status != unauthorized {
			t.Errorf("GET %s without a key: %d", path, a.status)
		}
	}
	if r := w.record(1); r.Facts.Tenant != "key-of-T" {
		t.Errorf("tenant %q", r.Facts.Tenant)
	}
	w.hidden("TEN-222", "BAD-444")
}

// hidden demands that none of these texts was logged.
func (w *world) hidden(secrets ...string) {
	w.t.Helper()
	until(w.t, "nothing runs", func() bool { return w.proxy.Running() == 0 })
	w.mu.Lock()
	records := fmt.Sprintf("%+v", w.records)
	w.mu.Unlock()
	for _, s := range secrets {
		for where, text := range map[string]string{"log": w.log.String(), "records": records} {
			if i := strings.Index(text, s); i >= 0 {
				w.t.Errorf("the %s holds %q: %s", where, s, clip(text[max(0, i-60):]))
			}
		}
	}
}

// Whatever carries a client's key, upstream gets its own key or none.
func TestClientKeysStopHere(t *testing.T) {
	for _, upKey := range []string{"", "UPKEY-111"} {
		rec := &recorder{next: jsonAnswer(200, goodJSON)}
		w := newWorld(t, options{apiKeys: []string{upKey}}, rec.serve)
		for _, carrier := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
			value := "TEN-222"
			if carrier == "Authorization" {
				value = "Bearer " + value
			}
			a := w.post("/v1/chat/completions", chatBody, carrier, value, "Cookie", "session=SECOND-555", "Proxy-Authorization", "Basic SECOND-555", "X-Other-Key", "SECOND-555")
			if a.status != 200 {
				t.Errorf("%s: %d %s", carrier, a.status, a.body)
			}
			req, _ := rec.last(t)
			all := fmt.Sprint(req.Header, req.URL)
			if strings.Contains(all, "TEN-222") || strings.Contains(all, "SECOND-555") {
				t.Errorf("%s: upstream saw %s", carrier, all)
			}
			want := ""
			if upKey != "" {
				want = "Bearer " + upKey
			}
			if got := req.Header.Get("Authorization"); got != want {
				t.Errorf("%s: upstream saw Authorization %q, want %q", carrier, got, want)
			}
		}
		w.hidden("TEN-222", "SECOND-555", "UPKEY-111")
	}
}

func TestClientKeyPassesIfToldSo(t *testing.T) {
	rec := &recorder{next: jsonAnswer(200, goodJSON)}
	w := newWorld(t, options{change: func(g *Generation) { g.PassCredential = true }}, rec.serve)
	for _, c := range [][2]string{{"Authorization", "Bearer CLIENT-1"}, {"X-Api-Key", "CLIENT-1"}, {"Authorization", "Basic Q0xJRU5ULTE="}} {
		w.post("/v1/chat/completions", chatBody, c[0], c[1], "Cookie", "a=SECOND-555", "Connection", c[0])
		req, _ := rec.last(t)
		if got := req.Header[c[0]]; len(got) != 1 || got[0] != c[1] || req.Header["Cookie"] != nil {
			t.Errorf("upstream saw %v", req.Header)
		}
	}
	w.hidden("CLIENT-1", "SECOND-555")
}

// Nothing of a key or a prompt is logged, whatever goes wrong.
func TestNothingSecretIsLogged(t *testing.T) {
	prompt := `{"model":"m","stream":true,"messages":[{"role":"user","content":"PROMPT-777"}]}`
	for name, h := range map[string]upstreamHandler{
		"echo in a 401": func(w http.ResponseWriter, r *http.Request) {
			jsonAnswer(401, `{"error":{"message":"bad key `+r.Header.Get("Authorization")+`"}}`)(w, r)
		},
		"echo in a 500": func(w http.ResponseWriter, r *http.Request) {
			jsonAnswer(500, `{"error":{"message":"PROMPT-777 `+r.Header.Get("Authorization")+`"}}`)(w, r)
		},
		"error event": sse(`data: {"error":{"message":"PROMPT-777","type":"server_error"}}` + "\n\n"),
		"cut":         thenReset(t, sse(roleEvent, delta("PROMPT-777"))),
		"malformed answer": func(w http.ResponseWriter, r *http.Request) {
			c := hijack(t, w)
			fmt.Fprintf(c, "HTTP/9.9 PROMPT-777 %s\r\n\r\n", r.Header.Get("Authorization"))
			_ = c.Close()
		},
		"malformed header": func(w http.ResponseWriter, r *http.Request) {
			c := hijack(t, w)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nUPKEY-111 no colon\r\n\r\n")
			_ = c.Close()
		},
		"malformed length": func(w http.ResponseWriter, r *http.Request) {
			c := hijack(t, w)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: UPKEY-111\r\n\r\n")
			_ = c.Close()
		},
		"malformed chunk": func(w http.ResponseWriter, r *http.Request) {
			c := hijack(t, w)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nUPKEY-111\r\n")
			_ = c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{apiKeys: []string{"UPKEY-111"}, change: func(g *Generation) { g.Keys, g.MaxAttempts = keys("TEN-222"), 2 }}, h)
			w.post("/v1/chat/completions", prompt, "Authorization", "Bearer TEN-222")
			w.post("/v1/chat/completions", prompt, "Authorization", "Bearer BAD-444")
			w.record(1)
			w.hidden("UPKEY-111", "TEN-222", "BAD-444", "PROMPT-777")
			for _, r := range w.records {
				for _, a := range r.Attempts {
					for _, s := range []string{"UPKEY-111", "PROMPT-777"} {
						if strings.Contains(a.Outcome.Detail, s) {
							t.Errorf("the detail of an attempt holds %q: %s", s, a.Outcome.Detail)
						}
					}
				}
			}
			w.idle()
		})
	}
}

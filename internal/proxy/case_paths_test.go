package proxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"evenkeel/internal/exchange"

	"evenkeel/internal/route"
)

// Cases of the kinds model-routing and endpoints: which paths there are, and where a request names its model.

func TestCase55ModelNames(t *testing.T) {
	ids := []string{"hub.example/x/y:Q4_K_M", "m", "org-a/Model-7B", "plain", "with space+plus%25"}
	w := newWorld(t, options{change: func(g *Generation) {
		g.Models = nil
		for _, id := range ids {
			g.Chains[id] = []string{"m"}
			g.Models = append(g.Models, Model{ID: id, OwnedBy: "test", Created: 5})
		}
	}}, jsonAnswer(200, goodJSON))
	get := func(path string) answer {
		req, _ := http.NewRequest(http.MethodGet, w.url, http.NoBody)
		u, err := url.Parse(w.url + path)
		if err != nil {
			t.Fatal(err)
		}
		req.URL = u
		return w.do(req)
	}
	var list struct {
		Object string
		Data   []struct {
			ID, Object, OwnedBy string
			Created             int64
		}
	}
	if err := json.Unmarshal([]byte(get("/v1/models").body), &list); err != nil || list.Object != "list" || len(list.Data) != len(ids) {
		t.Fatalf("list %+v (%v)", list, err)
	}
	for i, id := range ids {
		if m := list.Data[i]; m.ID != id || m.Object != "model" || m.Created != 5 {
			t.Errorf("line %d: %+v", i, m)
		}
		spellings := []string{url.PathEscape(id), strings.ReplaceAll(url.PathEscape(id), ":", "%3A"), strings.ReplaceAll(url.PathEscape(id), "%2F", "%2f")}
		if !strings.ContainsAny(id, " %") {
			spellings = append(spellings, id)
		}
		for _, s := range spellings {
			a := get("/v1/models/" + s)
			var m struct{ ID, Object string }
			if err := json.Unmarshal([]byte(a.body), &m); err != nil || a.status != 200 || m.ID != id || m.Object != "model" {
				t.Errorf("GET /v1/models/%s: %d %s", s, a.status, a.body)
			}
		}
		body, _ := json.Marshal(map[string]any{"model": id, "messages": []any{}})
		if a := w.post("/v1/chat/completions", string(body)); a.status != 200 {
			t.Errorf("chat with %s: %d %s", id, a.status, a.body)
		}
	}
	for _, path := range []string{"/v1/models/nope", "/v1/models/org-a", "/v1/models/org-a%2FModel", "/v1/models/%2e%2e%2fetc", "/v1/models/m/"} {
		if a := get(path); a.status != 404 && a.status != 400 || !strings.HasPrefix(a.body, `{"error":{"type":"`) || a.status == 404 && !strings.Contains(a.body, `"model_not_found"`) {
			t.Errorf("GET %s: %d %s", path, a.status, a.body)
		}
	}
	w.idle()
}

// form is a multipart body whose parts stand in the given order: "file", or "model=NAME".
func form(boundary string, file []byte, parts ...string) (contentType, body string) {
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	_ = m.SetBoundary(boundary)
	for _, p := range parts {
		name, value, _ := strings.Cut(p, "=")
		if name == "file" {
			f, _ := m.CreateFormFile("file", "a.wav")
			_, _ = f.Write(file)
			continue
		}
		_ = m.WriteField(name, value)
	}
	_ = m.Close()
	return mime.FormatMediaType("multipart/form-data", map[string]string{"boundary": boundary}), b.String()
}

func TestCase68Multipart(t *testing.T) {
	const alias = "org/whisper-large:v3"
	file := bytes.Repeat([]byte("\r\n--not the boundary\x00\xff"), 5<<20/22)
	var got struct {
		order []string
		sum   [32]byte
		model string
	}
	takes := func(w http.ResponseWriter, r *http.Request) {
		_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil {
			t.Error(err)
		}
		got.order, got.model = nil, ""
		for m := multipart.NewReader(r.Body, params["boundary"]); ; {
			p, err := m.NextPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Errorf("part: %v", err)
				break
			}
			b, _ := io.ReadAll(p)
			got.order = append(got.order, p.FormName())
			switch p.FormName() {
			case "file":
				got.sum = sha256.Sum256(b)
			case "model":
				got.model = string(b)
			}
		}
		jsonAnswer(200, `{"text":"hi"}`)(w, r)
	}
	// The first endpoint cannot be reached: each form is sent twice.
	w := newWorldAt(t, options{alias: alias}, deadURL(t), serve(t, takes))
	for _, c := range []struct{ boundary, order string }{
		{"xyz", "file,model=m,language=de"}, {"xyz", "model=m,file"}, {"a b:c'(d)+e,f/g?h=i", "language=de,model=m,file,temperature=0"},
	} {
		parts := strings.Split(c.order, ",")
		kind, body := form(c.boundary, file, parts...)
		req := w.request(t.Context(), "/v1/audio/transcriptions", body)
		req.Header.Set("Content-Type", kind)
		a := w.do(req)
		if a.status != 200 || a.body != `{"text":"hi"}` {
			t.Fatalf("%s: %d %s", c.order, a.status, a.body)
		}
		var want []string
		for _, p := range parts {
			name, _, _ := strings.Cut(p, "=")
			want = append(want, name)
		}
		if strings.Join(got.order, ",") != strings.Join(want, ",") || got.sum != sha256.Sum256(file) || got.model != alias {
			t.Errorf("%s: upstream got %v, model %q, file intact: %v", c.order, got.order, got.model, got.sum == sha256.Sum256(file))
		}
	}
	refused := func(what, path, kind, body, code string) {
		t.Helper()
		req := w.request(t.Context(), path, body)
		req.Header.Set("Content-Type", kind)
		if a := w.do(req); a.status != 400 || !strings.Contains(a.body, code) || !strings.HasPrefix(a.body, `{"error":{"type":"invalid_request_error"`) {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	kind, body := form("b", nil, "model=m", "model=m")
	refused("two models", "/v1/audio/transcriptions", kind, body, "evenkeel_duplicate_model")
	kind, body = form("b", nil, "language=de")
	refused("no model", "/v1/audio/transcriptions", kind, body, "evenkeel_missing_model")
	kind, body = form("b", nil, "model="+strings.Repeat("m", 1<<20))
	refused("a model of 1 MB", "/v1/audio/transcriptions", kind, body, "evenkeel_invalid_model")
	refused("garbage", "/v1/audio/transcriptions", "multipart/form-data; boundary=b", "\x00\xffgarbage", "evenkeel_invalid_form")
	refused("no boundary", "/v1/audio/transcriptions", "multipart/form-data", "--b--\r\n", "evenkeel_")
	kind, body = form("b", file[:100], "purpose=batch", "file")
	req := w.request(t.Context(), "/v1/files", body)
	req.Header.Set("Content-Type", kind)
	if a := w.do(req); a.status != 404 || !strings.Contains(a.body, "evenkeel_no_model") {
		t.Errorf("a file, with two endpoints: %d %s", a.status, a.body)
	}
	w.idle()
}

func TestCase69OtherPaths(t *testing.T) {
	usage := `{"object":"list","data":[],"usage":{"prompt_tokens":7,"total_tokens":7}}`
	rec := &recorder{next: jsonAnswer(200, usage)}
	// A always fails, so that each path shows that it is retried like any other.
	var failed atomic.Int32
	w := newWorld(t, options{}, counted(&failed, jsonAnswer(500, "{}")), rec.serve)
	for _, path := range []string{"/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/completions", "/v1/responses", "/rerank", "/tokenize", "/v1/embeddings/", "/v1/embeddings?a=b&c=%20d;e"} {
		for range 2 {
			if a := w.post(path, `{"model":"m","input":"x"}`); a.status != 200 || a.body != usage {
				t.Errorf("POST %s: %d %s", path, a.status, a.body)
			}
		}
		req, _ := rec.last(t)
		if got := req.URL.RequestURI(); got != path {
			t.Errorf("upstream got %s, want %s", got, path)
		}
	}
	if n := failed.Load(); n == 0 || int(n) > route.DefaultHealth.TripAfter {
		t.Errorf("the failing endpoint was asked %d times", n)
	}
	if o := w.record(2).Last().Outcome; o.InputTokens != 7 || o.OutputTokens != 0 || !o.Reported {
		t.Errorf("usage of embeddings: %+v", o)
	}
	for _, path := range []string{"/v1/images/generations", "/v1/anything/else", "/v1/moderations"} {
		if a := w.post(path, `{"model":"m"}`); a.status != 200 {
			t.Errorf("POST %s: %d %s", path, a.status, a.body)
		}
	}
	w.idle()
}

// A request without a model has a place to go only if there is one place.
func TestRequestsWithoutAModel(t *testing.T) {
	rec := &recorder{next: jsonAnswer(200, "{}")}
	single := newWorld(t, options{change: onePlace}, rec.serve)
	several := newWorld(t, options{}, rec.serve, rec.serve)
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "DELETE", "POST"} {
		for _, path := range []string{"/v1/files/f-1?limit=2", "/v1/batches", "/v1/responses/resp_1/cancel"} {
			req, _ := http.NewRequest(method, single.url+path, http.NoBody)
			if a := single.do(req); a.status != 200 || a.header.Get("X-Evenkeel-Model") != "m" {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
			got, _ := rec.last(t)
			if got.Method != method || got.URL.RequestURI() != path {
				t.Errorf("upstream got %s %s, want %s %s", got.Method, got.URL.RequestURI(), method, path)
			}
			req, _ = http.NewRequest(method, several.url+path, http.NoBody)
			if a := several.do(req); a.status != 404 || method != "HEAD" && !strings.Contains(a.body, "evenkeel_no_model") {
				t.Errorf("%s %s with two endpoints: %d %s", method, path, a.status, a.body)
			}
		}
	}
	single.idle()
	several.idle()
}

// A path that upstream could read otherwise than we do goes nowhere; one with encoded parts goes as it is.
func TestPaths(t *testing.T) {
	rec := &recorder{next: jsonAnswer(200, "{}")}
	w := newWorld(t, options{change: onePlace}, rec.serve)
	ask := func(target string) string {
		return w.raw("GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	}
	for _, target := range []string{"/v1/../admin", "/v1/./files", "/v1//files", "//v1/files", "/v1/files/..", "/v1/files/.", "/v1/%2e%2e/admin", "/v1/files/..%2f..%2fadmin",
		"/v1/models/../../admin", "/v1/models/..", "*", "/v1/files/%2E"} {
		if raw := ask(target); !strings.HasPrefix(raw, "HTTP/1.1 400 ") {
			t.Errorf("GET %s: %q", target, clip(raw))
		}
	}
	for _, target := range []string{"/", "/admin", "/metrics", "/v2/x", "/v1", "/explain/last"} {
		if raw := ask(target); !strings.HasPrefix(raw, "HTTP/1.1 404 ") || !strings.Contains(raw, "evenkeel_unknown_path") {
			t.Errorf("GET %s: %q", target, clip(raw))
		}
	}
	if n := len(rec.seen); n != 0 {
		t.Errorf("upstream was asked %d times", n)
	}
	for _, target := range []string{"/v1/files/a%2Fb", "/v1/files/a%20b?x=%2e%2e/..", "/v1/files/a;b", "/v1/files/a+b/", "/v1/files/%C3%A9", "/v1/files/a..b", "/v1/x?"} {
		if raw := ask(target); !strings.HasPrefix(raw, "HTTP/1.1 200 ") {
			t.Errorf("GET %s: %q", target, clip(raw))
			continue
		}
		if req, _ := rec.last(t); req.RequestURI != strings.TrimSuffix(target, "?") {
			t.Errorf("upstream got %s, want %s", req.RequestURI, target)
		}
	}
	raw := w.raw("GET /v1/files HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n")
	if !strings.HasPrefix(raw, "HTTP/1.1 400 ") || !strings.Contains(raw, "evenkeel_no_upgrade") {
		t.Errorf("upgrade: %q", clip(raw))
	}
	w.idle()
}

// A redirect is upstream's answer to the client: nobody here follows it, least of all with a key.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308} {
		w := newWorld(t, options{apiKeys: []string{"UPKEY"}}, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
			jsonAnswer(status, "{}")(rw, r)
		})
		if a := w.post("/v1/chat/completions", chatBody); a.status != status || a.header.Get("Location") != "http://127.0.0.1:1/elsewhere" {
			t.Errorf("got %d %v", a.status, a.header)
		}
		if r := w.record(1); len(r.Attempts) != 1 || r.Result != exchange.ClientFault {
			t.Errorf("%d: %s after %d attempts", status, r.Result, len(r.Attempts))
		}
	}
}

package discovery

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pages is what a server answers by path; "503 text" answers with that status, a missing path with 404.
type pages map[string]string

// server answers with pages, over a socket (as a handler) or in memory (as a round tripper), and notes what it was asked.
type server struct {
	mu    sync.Mutex
	pages pages
	down  bool // refuses connections
	hangs bool // accepts them and says nothing
	seen  []string
	heads []http.Header
}

func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// asked returns the paths asked since the last call.
func (s *server) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.URL.RequestURI())
	s.heads = append(s.heads, r.Header.Clone())
	body, ok := s.pages[r.URL.RequestURI()]
	s.mu.Unlock()
	if r.Method != http.MethodGet {
		body, ok = "405 only GET", true
	}
	if !ok {
		body = `404 {"detail":"Not Found"}`
	}
	if status, rest, ok := strings.Cut(body, " "); ok && len(status) == 3 {
		if code, err := strconv.Atoi(status); err == nil {
			w.WriteHeader(code)
			body = rest
		}
	}
	fmt.Fprint(w, body)
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	down, hangs := s.down, s.hangs
	s.mu.Unlock()
	if hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if down {
		return nil, fmt.Errorf("dial tcp 10.0.0.1:8000: %w", syscall.ECONNREFUSED)
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// listen serves a handler on loopback until the test ends.
func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// transport is a client's own, without anything left open when the test ends.
func transport(t *testing.T) *http.Transport {
	t.Helper()
	rt := &http.Transport{}
	t.Cleanup(rt.CloseIdleConnections)
	return rt
}

// describe writes a report in one line, without target and error.
func describe(r Report) string {
	models := make([]string, len(r.Models))
	for i, m := range r.Models {
		models[i] = fmt.Sprintf("%s/%d", m.ID, m.ContextWindow)
	}
	list := strings.Join(models, ",")
	if r.Models == nil {
		list = "?"
	}
	return fmt.Sprintf("up=%t kind=%s version=%s models=%s kv=%d", r.Reachable, r.Kind, r.Version, list, r.KVTokens)
}

func wantPaths(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
}

// by is the same way to every target.
func by(rt http.RoundTripper) func(Target) http.RoundTripper {
	return func(Target) http.RoundTripper { return rt }
}

// byHost sends a GET to the server of its host, else to that of "".
type byHost map[string]http.RoundTripper

func (b byHost) RoundTrip(r *http.Request) (*http.Response, error) {
	if s, ok := b[r.URL.Host]; ok {
		return s.RoundTrip(r)
	}
	return b[""].RoundTrip(r)
}

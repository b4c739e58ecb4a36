package mock

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// secure returns a client that trusts the certificate of the engine it is for, and the engine's configuration.
func secure(t *testing.T) (*http.Client, *tls.Config) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	c := client(t)
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	return c, &tls.Config{Certificates: s.TLS.Certificates}
}

// Waiting is reading with a deadline: over TLS too, streams with pauses come whole and connections are kept.
func TestTLS(t *testing.T) {
	c, cfg := secure(t)
	e := start(t, Config{TLS: cfg, InterToken: time.Millisecond, BaseLatency: time.Millisecond})
	if !strings.HasPrefix(e.URL(), "https://") {
		t.Errorf("URL %s", e.URL())
	}
	for range 3 {
		if got := mustPost(t, c, e.URL()+"/v1/chat/completions", chatBody(streaming), 200); !strings.HasSuffix(got, "data: [DONE]\n\n") {
			t.Errorf("a stream that ends in %q", got[max(0, len(got)-40):])
		}
		mustPost(t, c, e.URL()+"/v1/chat/completions", chatBody(""), 200)
	}
	eventually(t, "six answers", func() bool { return e.Stats().Completed == 6 })
	if s := e.Stats(); s.Connections != 1 {
		t.Errorf("%d connections for requests that follow each other, want one", s.Connections)
	}
	if _, _, err := post(t, client(t), strings.Replace(e.URL(), "https", "http", 1)+"/v1/chat/completions", chatBody("")); err == nil {
		t.Error("it speaks HTTP without TLS too")
	}
}

// The faults of the connection are those of TCP: no farewell of TLS hides a reset, and a client that leaves is noticed.
func TestTLSConnectionFaults(t *testing.T) {
	c, cfg := secure(t)
	e := start(t, Config{TLS: cfg})
	setFault(t, e, Fault{Kind: "reset", After: 2})
	if _, _, err := post(t, c, e.URL()+"/v1/chat/completions", chatBody(streaming)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after a reset: %v, want ECONNRESET", err)
	}
	settled(t, e) // so that the request that runs below is the next one
	setFault(t, e, Fault{Kind: "hang"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", e.URL()+"/v1/chat/completions", strings.NewReader(chatBody("")))
		_, err := c.Do(req)
		done <- err
	}()
	eventually(t, "the request is there", func() bool { return e.Stats().Running == 1 })
	cancel()
	if err := <-done; err == nil {
		t.Error("an answer of an engine that hangs")
	}
	eventually(t, "the engine saw that the client left", func() bool { return e.Stats().Aborted == 1 })
}

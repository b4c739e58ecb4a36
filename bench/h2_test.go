package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What HTTP/2 loses is seen as what HTTP/1.1 loses, and events are told as they come.
func TestHTTP2(t *testing.T) {
	next := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set(idHeader, "abc")
		switch string(body) {
		case "whole":
			for _, event := range []string{"1\n\n2\n", "\n3\n\n"} {
				io.WriteString(w, event)
				w.(http.Flusher).Flush()
				<-next
			}
		case "cut":
			io.WriteString(w, "1\n\n")
			panic(http.ErrAbortHandler)
		case "hang":
			<-r.Context().Done()
		default:
			http.Error(w, "none", http.StatusServiceUnavailable)
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	transport := newTransport(s.Client().Transport.(*http.Transport).TLSClientConfig)
	stream := func(body string) *h2stream { return &h2stream{transport: transport, url: s.URL, request: []byte(body)} }
	defer stream("").close()

	whole := stream("whole")
	var at []time.Time
	err := whole.ask(t.Context(), func(n int, when time.Time) {
		if n != len(at) {
			t.Errorf("event %d is called %d", len(at), n)
		}
		at = append(at, when)
		if n == 0 || n == 2 { // the server waits for it: events are not held back
			next <- struct{}{}
		}
	})
	if err != nil || string(whole.answer()) != "1\n\n2\n\n3\n\n" || len(at) != 3 || whole.id() != "abc" {
		t.Errorf("%q with ID %q in %d events, %v", whole.answer(), whole.id(), len(at), err)
	}
	f := func(body, want string) {
		t.Helper()
		err := stream(body).ask(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
	f("cut", "stream error")
	f("other", "status 503: none")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := stream("hang").ask(ctx, nil); err == nil {
		t.Error("an answer from one that hangs")
	}
}

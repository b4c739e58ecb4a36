package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// endpoint is a configuration with one endpoint at a URL; more settings follow.
func endpoint(url, settings string) string {
	return fmt.Sprintf("endpoints: {e: {url: %q}}\n%s", url, settings)
}

func TestDrainLetsStreamsFinish(t *testing.T) {
	e := newGated(t, "m")
	w := start(t, parse(t, endpoint(e.URL, "drain_timeout: 60s")))
	w.serves("m")
	streams := w.streams(5, "m")
	whole := make(chan answer, 1)
	go func() { whole <- w.chat("m") }()
	w.await("all are upstream", func() bool { return e.running.Load() == 6 })

	w.stop()
	w.await("it is not ready", func() bool {
		a := w.get(w.url + "/readyz")
		return a.status == http.StatusServiceUnavailable && strings.Contains(a.body, "draining")
	})
	if a := w.get(w.admin + "/readyz"); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "draining") {
		t.Errorf("the admin listener's readyz: %d %q", a.status, a.body)
	}
	if a := w.get(w.url + "/livez"); a.status != http.StatusOK {
		t.Errorf("livez while draining: %d", a.status)
	}
	late := w.stream("m") // who comes late is still served
	if n := e.left.Load(); n != 0 {
		t.Errorf("%d requests were cut while draining", n)
	}
	e.open()
	w.allWhole(append(streams, late))
	if a := <-whole; a.status != http.StatusOK || a.err != nil {
		t.Errorf("the answer that is not streamed: %d %v %s", a.status, a.err, a.body)
	}
	w.over()
	if a := w.get(w.url + "/livez"); a.err == nil {
		t.Error("the listener is still open after Run has returned")
	}
}

// over waits until Run has returned, without an error.
func (w *world) over() {
	w.t.Helper()
	select {
	case <-w.ended:
	case <-time.After(patience):
		w.t.Fatal("Run did not return")
	}
	if w.err != nil {
		w.t.Error(w.err)
	}
}

func TestDrainTimeoutTellsClients(t *testing.T) {
	e := newGated(t, "m")
	w := start(t, parse(t, endpoint(e.URL, "drain_timeout: 10ms\nmodels: {m: {providers: [{name: e, limits: {in_flight: 6}}]}}")))
	w.serves("m")
	streams := w.streams(5, "m")
	whole := make(chan answer, 1)
	go func() { whole <- w.chat("m") }()
	w.await("it is upstream", func() bool { return e.running.Load() == 6 })
	queued := make(chan answer, 1)
	go func() { queued <- w.chat("m") }()
	w.await("one waits in the queue", func() bool { return w.metric("evenkeel_queue_depth") == 1 })

	w.stop()
	for _, s := range streams {
		w.toldOfShutdown(s)
	}
	for what, answers := range map[string]chan answer{"running": whole, "queued": queued} {
		a := <-answers
		if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, `"code":"evenkeel_shutting_down"`) || a.header.Get("Retry-After") == "" {
			t.Errorf("the %s request: %d %v %s", what, a.status, a.err, a.body)
		}
	}
	w.over()
	w.logged("the drain is over; cutting what still runs", "7")
	for _, l := range w.lines("exchange") {
		if l["code"] != "evenkeel_shutting_down" {
			t.Errorf("an exchange was logged as %v", l)
		}
	}
	// The one in the queue may have been let in for a moment by those cut before it.
	w.await("upstream was cancelled", func() bool { return e.running.Load() == 0 })
	if started, left := e.started.Load(), e.left.Load(); left != started || started > 7 {
		t.Errorf("%d requests reached upstream and %d were cancelled, want all of at most 7", started, left)
	}
}

// toldOfShutdown demands that a stream ends with an error event and not as if it were complete.
func (w *world) toldOfShutdown(s *stream) {
	w.t.Helper()
	text, err := s.rest()
	events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
	last := events[len(events)-1]
	if err != nil || !strings.Contains(last, `"code":"evenkeel_shutting_down"`) || strings.Contains(text, "[DONE]") {
		w.t.Errorf("a stream ended with %v and %q, want an error event and no [DONE]", err, last)
	}
}

// Cut ends a drain that would go on for long.
func TestCutEndsADrain(t *testing.T) {
	e := newGated(t, "m")
	w := start(t, parse(t, endpoint(e.URL, "drain_timeout: 1h")))
	w.serves("m")
	s := w.stream("m")
	w.stop()
	w.await("it drains", func() bool { return w.get(w.url+"/readyz").status == http.StatusServiceUnavailable })
	w.app.Cut()
	w.app.Cut() // once more does nothing
	w.toldOfShutdown(s)
	w.over()
}

func TestDrainOfAnIdleBalancer(t *testing.T) {
	e := newGated(t, "m")
	w := start(t, parse(t, endpoint(e.URL, "drain_timeout: 1h")))
	w.serves("m")
	w.stop()
	w.over()
}

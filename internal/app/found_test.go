package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/discovery"
	"evenkeel/internal/route"
)

// TestWhatDiscoveryCannotSay: an endpoint is not taken out since this process has no file descriptors left, nor since a
// page of it took too long while requests are being answered there.
func TestWhatDiscoveryCannotSay(t *testing.T) {
	late := fmt.Errorf("GET /v1/models: no whole answer in time: %w", context.DeadlineExceeded)
	f := func(name string, err error, busy, out bool) {
		t.Run(name, func(t *testing.T) {
			a, e := New(parse(t, "endpoints: {e: {url: 'http://127.0.0.1:1', models: [m]}}"), Options{Logger: slog.New(slog.DiscardHandler)})
			if e != nil {
				t.Fatal(e)
			}
			target := targets(a.current.Load().Config)[0]
			if busy {
				l, refusal := a.router.Pick(time.Now(), route.Query{Model: "m", Facts: &route.Facts{Model: "m"}})
				if refusal != nil {
					t.Fatal(refusal.Kind)
				}
				l.FirstToken(time.Now())
				defer func() { l.Done(time.Now(), route.Outcome{Verdict: route.Success, Answered: true}) }()
			}
			a.found(discovery.Report{Target: target, Err: err})
			if got := a.router.Out(scope(&a.current.Load().fleet.Endpoints[0])); got != out {
				t.Errorf("out %v, want %v", got, out)
			}
		})
	}
	f("refused", errors.New("connection refused"), false, true)
	f("refused while it answers", errors.New("connection refused"), true, true)
	f("too slow", late, false, true)
	f("too slow while it answers", late, true, false)
	f("no files", fmt.Errorf("dial: %w", syscall.EMFILE), false, false)
	f("no files in the system", fmt.Errorf("dial: %w", syscall.ENFILE), false, false)
}

package app

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/proxy"
)

// finished takes a finished exchange: into the ring, the trace, the metrics and one line of the log.
func (a *App) finished(f proxy.Finished) {
	if !f.Stranger { // nobody who has no key may push others' records out
		a.ring.Add(f.Record)
	}
	if f.Record.Result != exchange.Rejected { // what was turned away on sight is no load
		a.trace.Add(f.Record, f.Prefix, f.Session)
	}
	a.metrics.Observe(f.Record, f.Overhead)
	a.repeats.add(f.Record)
	level := slog.LevelInfo
	switch f.Record.Result {
	case exchange.Rejected:
		if f.Stranger {
			level = slog.LevelDebug // nor fill the log
			a.refused(f.Record)
		}
	case exchange.Failed, exchange.Cut, exchange.UpstreamError, exchange.Refused:
		level = slog.LevelWarn
	case exchange.Complete, exchange.ClientFault, exchange.ClientGone, exchange.Aborted:
	}
	if a.logger.Enabled(context.Background(), level) {
		a.lines.write(level, f)
	}
}

// refused tells about those whose key or request head is not accepted: an operator has to see a client that is set
// up wrong.
func (a *App) refused(r *exchange.Record) {
	more, ok := a.strangers.pass(r.Ended)
	if !ok {
		return
	}
	attrs := []any{"id", r.Facts.ID, "api", r.Facts.API, "status", r.Status}
	if r.Failure != nil {
		attrs = append(attrs, "code", r.Failure.Code)
	}
	a.logger.Info("request refused before its sender was known", append(attrs, "more_since_last", more)...)
}

// throttle lets one line a second through and counts the others. The zero value is ready; safe for concurrent use.
type throttle struct {
	mu   sync.Mutex
	next time.Time // when a line may pass again
	held int       // lines held back since the last one
}

// pass reports whether a line may be written now, and how many were not since the last one.
func (t *throttle) pass(now time.Time) (held int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		t.held++
		return 0, false
	}
	held, t.held, t.next = t.held, 0, now.Add(time.Second)
	return held, true
}

// seconds is a duration as the log shows it, to the microsecond.
func seconds(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e6 }

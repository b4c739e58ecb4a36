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

// finished takes a finished exchange: into the ring, the metrics and one line of the log.
func (a *App) finished(f proxy.Finished) {
	if !f.Stranger { // nobody who has no key may push others' records out
		a.ring.Add(f.Record)
	}
	a.metrics.Observe(f.Record, f.Overhead)
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
		a.logger.LogAttrs(context.Background(), level, "exchange", line(f)...)
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

// line is what the log says about an exchange: never prompt text, never a key.
func line(f proxy.Finished) []slog.Attr {
	r := f.Record
	attrs := make([]slog.Attr, 0, 20)
	attrs = append(attrs,
		slog.String("id", r.Facts.ID), slog.String("api", r.Facts.API), slog.String("model", r.Facts.Model),
		slog.String("result", string(r.Result)), slog.Int("status", r.Status),
		slog.Float64("duration_seconds", seconds(r.Ended.Sub(r.Started))), slog.Int("attempts", len(r.Attempts)),
	)
	if r.Facts.Tenant != "" {
		attrs = append(attrs, slog.String("key", r.Facts.Tenant))
	}
	if r.Queued > 0 {
		attrs = append(attrs, slog.Float64("queued_seconds", seconds(r.Queued)))
	}
	if r.Depth > 0 {
		attrs = append(attrs, slog.String("served_as", r.Model), slog.Int("fallback_depth", r.Depth))
	}
	if last := r.Last(); last != nil {
		o := &last.Outcome
		attrs = append(attrs, slog.String("deployment", last.Deployment), slog.Bool("stream", r.Facts.Stream))
		if o.TTFT > 0 {
			attrs = append(attrs, slog.Float64("ttft_seconds", seconds(o.TTFT)))
		}
		attrs = append(attrs, slog.Int("input_tokens", o.InputTokens), slog.Int("output_tokens", o.OutputTokens), slog.Bool("usage_reported", o.Reported))
		if o.Class != "" {
			attrs = append(attrs, slog.String("class", o.Class), slog.String("detail", o.Detail))
		}
	}
	if r.Failure != nil {
		attrs = append(attrs, slog.String("code", r.Failure.Code))
	}
	return attrs
}

// seconds is a duration as the log shows it, to the microsecond.
func seconds(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e6 }

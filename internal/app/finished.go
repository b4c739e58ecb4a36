package app

import (
	"context"
	"log/slog"

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
		}
	case exchange.Failed, exchange.Cut, exchange.UpstreamError, exchange.Refused:
		level = slog.LevelWarn
	case exchange.Complete, exchange.ClientFault, exchange.ClientGone, exchange.Aborted:
	}
	if a.logger.Enabled(context.Background(), level) {
		a.logger.LogAttrs(context.Background(), level, "exchange", line(f)...)
	}
}

// line is what the log says about an exchange: never prompt text, never a key.
func line(f proxy.Finished) []slog.Attr {
	r := f.Record
	attrs := make([]slog.Attr, 0, 20)
	attrs = append(attrs,
		slog.String("id", r.Facts.ID), slog.String("api", r.Facts.API), slog.String("model", r.Facts.Model),
		slog.String("result", string(r.Result)), slog.Int("status", r.Status),
		slog.Duration("duration", r.Ended.Sub(r.Started)), slog.Int("attempts", len(r.Attempts)),
	)
	if r.Facts.Tenant != "" {
		attrs = append(attrs, slog.String("key", r.Facts.Tenant))
	}
	if r.Queued > 0 {
		attrs = append(attrs, slog.Duration("queued", r.Queued))
	}
	if r.Depth > 0 {
		attrs = append(attrs, slog.String("served_as", r.Model), slog.Int("fallback_depth", r.Depth))
	}
	if last := r.Last(); last != nil {
		o := &last.Outcome
		attrs = append(attrs, slog.String("deployment", last.Deployment), slog.Bool("stream", r.Facts.Stream))
		if o.TTFT > 0 {
			attrs = append(attrs, slog.Duration("ttft", o.TTFT))
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

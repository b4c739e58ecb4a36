package app

import (
	"encoding/json"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"evenkeel/internal/proxy"
)

// Lines is where the log's line for each exchange goes. It reads as if slog had written it, at a fraction of slog's
// cost: there is one for every request.
type Lines struct {
	Out  io.Writer // gets each line in one Write; nil: none is written. Safe for concurrent use
	JSON bool      // as slog.JSONHandler writes, else as slog.TextHandler does
}

var encoders = sync.Pool{New: func() any { return &encoder{b: make([]byte, 0, 512)} }}

// write writes the line for an exchange.
func (l Lines) write(level slog.Level, f proxy.Finished) {
	if l.Out == nil {
		return
	}
	e := encoders.Get().(*encoder)
	e.begin(l.JSON, f.Record.Ended, level)
	exchangeLine(e, f)
	_, _ = l.Out.Write(e.end()) // there is nowhere to tell that the log cannot be written
	encoders.Put(e)
}

// exchangeLine is what the log says about an exchange: never prompt text, never a key.
func exchangeLine(e *encoder, f proxy.Finished) {
	r := f.Record
	e.text("id", r.Facts.ID)
	e.text("api", r.Facts.API)
	e.text("model", r.Facts.Model)
	e.text("result", string(r.Result))
	e.int("status", r.Status)
	e.seconds("duration_seconds", r.Ended.Sub(r.Started))
	e.int("attempts", len(r.Attempts))
	if r.Facts.Tenant != "" {
		e.text("key", r.Facts.Tenant)
	}
	if r.Queued > 0 {
		e.seconds("queued_seconds", r.Queued)
	}
	if r.Depth > 0 {
		e.text("served_as", r.Model)
		e.int("fallback_depth", r.Depth)
	}
	if last := r.Last(); last != nil {
		o := &last.Outcome
		e.text("deployment", last.Deployment)
		e.bool("stream", r.Facts.Stream)
		if o.TTFT > 0 {
			e.seconds("ttft_seconds", o.TTFT)
		}
		e.int("input_tokens", o.InputTokens)
		e.int("output_tokens", o.OutputTokens)
		e.bool("usage_reported", o.Reported)
		if o.Class != "" {
			e.text("class", o.Class)
			e.text("detail", o.Detail)
		}
	}
	if r.Failure != nil {
		e.text("code", r.Failure.Code)
	}
}

// encoder writes one line of a log as slog does.
type encoder struct {
	b    []byte
	json bool

	second   int64 // what clock shows
	location *time.Location
	clock    []byte
}

func (e *encoder) begin(json bool, at time.Time, level slog.Level) {
	e.b, e.json = e.b[:0], json
	if json {
		e.b = append(e.b, `{"time":"`...)
		e.b = at.AppendFormat(e.b, time.RFC3339Nano)
		e.b = append(e.b, `","level":"`...)
		e.b = append(e.b, level.String()...)
		e.b = append(e.b, `","msg":"exchange"`...)
		return
	}
	e.b = append(e.b, "time="...)
	e.time(at)
	e.b = append(e.b, " level="...)
	e.b = append(e.b, level.String()...)
	e.b = append(e.b, " msg=exchange"...)
}

// time writes a time to the millisecond. Its second is mostly that of the line before.
func (e *encoder) time(at time.Time) {
	if second := at.Unix(); second != e.second || at.Location() != e.location || len(e.clock) == 0 {
		e.second, e.location = second, at.Location()
		e.clock = at.AppendFormat(e.clock[:0], "2006-01-02T15:04:05Z07:00")
	}
	const whole = len("2006-01-02T15:04:05")
	ms := at.Nanosecond() / 1e6
	e.b = append(e.b, e.clock[:whole]...)
	e.b = append(e.b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
	e.b = append(e.b, e.clock[whole:]...)
}

func (e *encoder) end() []byte {
	if e.json {
		e.b = append(e.b, '}')
	}
	e.b = append(e.b, '\n')
	return e.b
}

func (e *encoder) key(k string) {
	if e.json {
		e.b = append(e.b, ',', '"')
		e.b = append(e.b, k...)
		e.b = append(e.b, '"', ':')
		return
	}
	e.b = append(e.b, ' ')
	e.b = append(e.b, k...)
	e.b = append(e.b, '=')
}

func (e *encoder) text(k, v string) {
	e.key(k)
	switch {
	case bare(v) && (v != "" || e.json):
		if e.json {
			e.b = append(e.b, '"')
		}
		e.b = append(e.b, v...)
		if e.json {
			e.b = append(e.b, '"')
		}
	case e.json:
		quoted, _ := json.Marshal(v) // a string can always be written
		e.b = append(e.b, quoted...)
	default:
		e.b = strconv.AppendQuote(e.b, v)
	}
}

// bare reports whether a string needs no quoting in either format.
func bare(v string) bool {
	for i := range len(v) {
		switch c := v[i]; {
		case c <= ' ', c >= utf8.RuneSelf, c == 0x7f, c == '"', c == '=', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

func (e *encoder) int(k string, v int) {
	e.key(k)
	e.b = strconv.AppendInt(e.b, int64(v), 10)
}

func (e *encoder) bool(k string, v bool) {
	e.key(k)
	e.b = strconv.AppendBool(e.b, v)
}

// seconds writes a duration in seconds, to the microsecond.
func (e *encoder) seconds(k string, d time.Duration) {
	e.key(k)
	us := d.Round(time.Microsecond).Microseconds()
	if us < 0 {
		e.b = append(e.b, '-')
		us = -us
	}
	e.b = strconv.AppendInt(e.b, us/1e6, 10)
	if us %= 1e6; us == 0 {
		return
	}
	e.b = append(e.b, '.')
	for unit := int64(1e5); us > 0; unit /= 10 {
		e.b = append(e.b, byte('0'+us/unit))
		us %= unit
	}
}

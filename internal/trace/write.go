package trace

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// headerMember is how a header begins, and no entry does.
const headerMember = `{"evenkeel_trace":`

// AppendHeader appends the line of a header, with its line break.
func AppendHeader(b []byte, h *Header) []byte {
	w := writer{append(b, headerMember...)}
	w.b = strconv.AppendInt(w.b, int64(h.Version), 10)
	w.text("program", h.Program)
	w.text("key", h.Key)
	w.int("block_bytes", h.BlockBytes)
	return append(w.b, '}', '\n')
}

// Append appends the line of an exchange, with its line break. What is 0 or empty is left out.
func Append(b []byte, e *Entry) []byte {
	w := writer{append(b, `{"at":`...)}
	w.micros(e.At.UnixMicro())
	w.text("id", e.ID)
	w.text("api", e.API)
	w.text("model", e.Model)
	w.text("served", e.Served)
	w.text("tenant", e.Tenant)
	if e.Session != 0 {
		w.hashes("session", []uint64{e.Session})
	}
	w.flag("stream", e.Stream)
	w.int("bytes", e.Bytes)
	w.int("max_output", e.MaxOutput)
	w.int("retry", e.Retry)
	w.int("expected_input", e.ExpectedInput)
	w.int("expected_output", e.ExpectedOutput)
	w.int("blocks", e.Prefix.Blocks)
	w.int("known", e.Prefix.Known)
	w.hashes("hashes", e.Prefix.Hashes)
	w.text("result", string(e.Result))
	w.int("status", e.Status)
	w.text("code", e.Code)
	w.seconds("queued", e.Queued)
	w.seconds("first", e.First)
	w.seconds("total", e.Total)
	for i := range e.Attempts {
		if i == 0 {
			w.key("attempts")
			w.b = append(w.b, '[')
		} else {
			w.b = append(w.b, ',')
		}
		w.attempt(&e.Attempts[i])
	}
	if len(e.Attempts) > 0 {
		w.b = append(w.b, ']')
	}
	return append(w.b, '}', '\n')
}

func (w *writer) attempt(a *Attempt) {
	w.b = append(w.b, `{"to":`...)
	w.quote(a.Deployment)
	w.text("by", a.Strategy)
	w.int("eligible", a.Eligible)
	w.int("in_flight", a.InFlight)
	w.flag("trial", a.Trial)
	w.flag("hedge", a.Hedge)
	w.flag("waste", a.Waste)
	w.seconds("sent", a.Sent)
	w.seconds("ttft", a.TTFT)
	w.seconds("took", a.Took)
	w.int("input", a.Input)
	w.int("cached", a.Cached)
	w.int("output", a.Output)
	w.flag("estimated", a.Estimated)
	w.text("class", a.Class)
	w.b = append(w.b, '}')
}

// writer appends members to an object that has one.
type writer struct{ b []byte }

func (w *writer) key(name string) {
	w.b = append(w.b, ',', '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

func (w *writer) text(name, v string) {
	if v != "" {
		w.key(name)
		w.quote(v)
	}
}

func (w *writer) quote(v string) {
	for i := range len(v) {
		if c := v[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(v) // a string can always be written
			w.b = append(w.b, quoted...)
			return
		}
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, v...)
	w.b = append(w.b, '"')
}

func (w *writer) int(name string, v int) {
	if v != 0 {
		w.key(name)
		w.b = strconv.AppendInt(w.b, int64(v), 10)
	}
}

func (w *writer) flag(name string, v bool) {
	if v {
		w.key(name)
		w.b = append(w.b, "true"...)
	}
}

// seconds writes a duration that takes a microsecond or more.
func (w *writer) seconds(name string, d time.Duration) {
	if us := d.Round(time.Microsecond).Microseconds(); us > 0 {
		w.key(name)
		w.micros(us)
	}
}

// micros writes a number of microseconds, not negative, as seconds.
func (w *writer) micros(us int64) {
	us = max(us, 0)
	w.b = strconv.AppendInt(w.b, us/1e6, 10)
	if us %= 1e6; us == 0 {
		return
	}
	w.b = append(w.b, '.')
	for unit := int64(1e5); us > 0; unit /= 10 {
		w.b = append(w.b, byte('0'+us/unit))
		us %= unit
	}
}

const hashBytes = HashBits / 8

// hashes writes HashBits of each, in base64 without padding: eight characters.
func (w *writer) hashes(name string, hashes []uint64) {
	if len(hashes) == 0 {
		return
	}
	w.key(name)
	w.b = append(w.b, '"')
	for _, h := range hashes {
		raw := [hashBytes]byte{byte(h >> 40), byte(h >> 32), byte(h >> 24), byte(h >> 16), byte(h >> 8), byte(h)}
		w.b = base64.RawURLEncoding.AppendEncode(w.b, raw[:])
	}
	w.b = append(w.b, '"')
}

package mock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Fault is what an engine does wrong, or unusually, until it is told otherwise. The control endpoints take it as JSON.
// The zero value of every field but Kind is valid.
type Fault struct {
	// Kind is one of FaultKinds.
	Kind string `json:"kind"`
	// Variant chooses between forms of malformed, truncate, crlf and split; see FaultKinds.
	Variant string `json:"variant,omitempty"`
	// Rate is the share of requests that are hit, drawn by the engine's seed. Default 1.
	Rate float64 `json:"rate,omitempty"`
	// Count is how many requests are hit at most. 0 = no limit.
	Count int `json:"count,omitempty"`
	// Path limits the fault to requests whose path starts with it, of any method. Empty: calls of the API (POST under /v1).
	Path string `json:"path,omitempty"`
	// After is how many events of a stream come first (the ones before the first token count too), or, for comments, how
	// many comments are sent (default 3), or, for big_event, which token is big (default the second). An answer that is not
	// streamed is cut in the middle of its body, except by reset with 0, which comes before the head. A stream that has no
	// event number After is not touched.
	After int `json:"after,omitempty"`
	// Status is the status of status (default 500), and of the error that stream_error reports (default 500).
	Status int `json:"status,omitempty"`
	// RetryAfter is the Retry-After header of status, as it is to be sent.
	RetryAfter string `json:"retry_after,omitempty"`
	// Body is the body of status. Default: an error in the dialect of the path.
	Body string `json:"body,omitempty"`
	// Factor is what slow multiplies all times by. Default 10.
	Factor float64 `json:"factor,omitempty"`
	// Size is the size of big_event's token in bytes. Default 1 MiB.
	Size int `json:"size,omitempty"`
	// Delay is the time between the writes of split (default 1 ms), comments and big_event; for all other kinds, a wait
	// before the request is looked at.
	Delay Duration `json:"delay,omitempty"`
}

// FaultKind describes one kind of fault.
type FaultKind struct {
	Name     string
	Does     string   // the other fields are in capitals
	Variants []string // the first is the default
}

var faultKinds = []FaultKind{
	{Name: "status", Does: "answers with STATUS, RETRY_AFTER and BODY"},
	{Name: "refuse", Does: "closes the listener and idle connections: connecting is refused"},
	{Name: "close", Does: "closes the connection (FIN) instead of answering"},
	{Name: "hang", Does: "takes the request and its slot and never answers"},
	{Name: "stall", Does: "stops after AFTER events and keeps the connection open"},
	{Name: "die", Does: "closes the connection (FIN) after AFTER events, without the end of the body"},
	{Name: "reset", Does: "resets the connection (RST) after AFTER events; 0 = before the head"},
	{Name: "slow", Does: "takes FACTOR times as long; with an engine model all of it: no RATE, COUNT or PATH"},
	{Name: "stream_error", Does: "reports an error inside the 200 answer after AFTER events, then ends cleanly"},
	{Name: "malformed", Does: "breaks the framing: of the body (body: a chunk size or content-length that is wrong), of an event (sse), of the JSON (json) or of the head (status_line)",
		Variants: []string{"body", "sse", "json", "status_line"}},
	{Name: "truncate", Does: "ends cleanly as HTTP, but after AFTER events; with 0, after all tokens, without finish events; (empty) with no byte of body",
		Variants: []string{"", "empty"}},
	{Name: "crlf", Does: "ends the lines of events with CRLF, a bare CR, or CRLF and LF in turn", Variants: []string{"crlf", "cr", "mixed"}},
	{Name: "split", Does: "sends every event in several writes that cut line ends and runes, DELAY apart", Variants: []string{"lf", "crlf"}},
	{Name: "comments", Does: "sends the head and AFTER comments, DELAY apart, before the first event"},
	{Name: "no_usage", Does: "leaves usage out, even if it is asked for"},
	{Name: "big_event", Does: "makes one token SIZE bytes long and sends its event in pieces of 16 KiB"},
	{Name: "gzip", Does: "compresses answers, whatever was asked for"},
}

// FaultKinds returns all kinds, for help texts.
func FaultKinds() []FaultKind { return slices.Clone(faultKinds) }

// Duration is a time.Duration that is text like "150ms" in JSON.
type Duration time.Duration

// MarshalText writes the form of time.Duration.String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalJSON reads what time.ParseDuration accepts.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil {
		return fmt.Errorf("the duration %s needs quotes and a unit, like \"150ms\"", b)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration: use a number and a unit, like \"150ms\"", s)
	}
	*d = Duration(v)
	return nil
}

// decodeFault reads a fault from the control endpoint.
func decodeFault(body []byte) (Fault, error) {
	var f Fault
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return f, fmt.Errorf("fault: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return f, errors.New("fault: there is more after the JSON object")
	}
	return f, nil
}

// withDefaults fills in the defaults and reports what cannot be.
func (f Fault) withDefaults() (Fault, error) {
	i := slices.IndexFunc(faultKinds, func(k FaultKind) bool { return k.Name == f.Kind })
	if i < 0 {
		var names []string
		for _, k := range faultKinds {
			names = append(names, k.Name)
		}
		return f, fmt.Errorf("fault: kind %q is unknown: use one of %s", f.Kind, strings.Join(names, ", "))
	}
	variants := faultKinds[i].Variants
	if f.Variant == "" && variants != nil {
		f.Variant = variants[0]
	}
	if f.Variant != "" && !slices.Contains(variants, f.Variant) {
		return f, fmt.Errorf("fault: %s has no variant %q: it has %q", f.Kind, f.Variant, variants)
	}
	if f.Kind == "refuse" && (f.Rate != 0 && f.Rate != 1 || f.Count != 0 || f.Path != "") {
		return f, errors.New("fault: refuse concerns connections, not requests: it takes no rate, count or path")
	}
	if !(f.Rate >= 0 && f.Rate <= 1) {
		return f, fmt.Errorf("fault: rate is %v: it must be above 0 and at most 1", f.Rate)
	}
	if f.Count < 0 || f.After < 0 || f.Size < 0 || f.Delay < 0 || !(f.Factor >= 0) || math.IsInf(f.Factor, 1) {
		return f, fmt.Errorf("fault: count %d, after %d, size %d, delay %v, factor %v: none can be negative or endless",
			f.Count, f.After, f.Size, time.Duration(f.Delay), f.Factor)
	}
	if f.Status != 0 && (f.Status < 200 || f.Status > 599) {
		return f, fmt.Errorf("fault: status is %d: it must be from 200 to 599", f.Status)
	}
	if strings.ContainsAny(f.RetryAfter, "\r\n") {
		return f, fmt.Errorf("fault: retry_after %q holds a line end", f.RetryAfter)
	}
	setDefault(&f.Rate, 1)
	switch f.Kind {
	case "status", "stream_error":
		setDefault(&f.Status, 500)
	case "slow":
		setDefault(&f.Factor, 10)
	case "comments":
		setDefault(&f.After, 3)
	case "split":
		setDefault(&f.Delay, Duration(time.Millisecond))
	case "big_event":
		setDefault(&f.Size, 1<<20)
		setDefault(&f.After, 1)
	}
	return f, nil
}

func setDefault[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

// delaysRequest reports whether Delay is a wait at the door.
func (f *Fault) delaysRequest() bool {
	return f.Kind != "split" && f.Kind != "comments" && f.Kind != "big_event"
}

// scriptedFault is a fault in force.
type scriptedFault struct {
	Fault
	seed       uint64
	seen, hits atomic.Int64 // requests looked at, and hit
}

// factor is how many times as long a timing model takes.
func (f *scriptedFault) factor() float64 {
	if f == nil || f.Kind != "slow" {
		return 1
	}
	return f.Factor
}

// hit decides whether a request is hit: the share Rate of a sequence that only the seed decides, until Count are.
func (f *scriptedFault) hit(path string, api bool) bool {
	if f.Path == "" && !api || !strings.HasPrefix(path, f.Path) {
		return false
	}
	draw := mix(f.seed + uint64(f.seen.Add(1)))
	if f.Rate < 1 && float64(draw>>11)/(1<<53) >= f.Rate {
		return false
	}
	if f.hits.Add(1) > int64(f.Count) && f.Count > 0 {
		f.hits.Add(-1)
		return false
	}
	return true
}

// SetFault puts a fault in force from the next request on, in place of the one before. It fails if the fault makes no
// sense, or if the one before was refuse and the port is taken.
func (e *Engine) SetFault(f Fault) error {
	f, err := f.withDefaults()
	if err != nil {
		return err
	}
	if f.Kind == "slow" && e.cfg.Engine != nil && (f.Rate != 1 || f.Count != 0 || f.Path != "") {
		return errors.New("fault: slow concerns the whole engine where that has a timing model, not requests: it takes no rate, count or path")
	}
	e.fault.Store(&scriptedFault{Fault: f, seed: mix(e.cfg.Seed)})
	return e.adjust()
}

// ClearFault ends the fault. What hangs or stalls stays so until its client leaves. It fails if the fault was refuse and the port is
// taken.
func (e *Engine) ClearFault() error {
	e.fault.Store(nil)
	return e.adjust()
}

// faultFor returns the fault that hits the present request, nil for most.
func (c *conn) faultFor(api bool) *Fault {
	f := c.engine.fault.Load()
	if f == nil || !f.hit(c.req.URL.Path, api) {
		return nil
	}
	c.engine.count.faults.Add(1)
	return &f.Fault
}

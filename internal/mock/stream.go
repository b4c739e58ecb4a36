package mock

import (
	"bytes"
	"compress/gzip"
	"slices"
	"time"
	"unicode/utf8"
)

// bigPiece is the size of the pieces in which big_event sends its event.
const bigPiece = 16 << 10

// stream is one streamed answer on its way.
type stream struct {
	c *conn
	d dialect
	a *answer
	f *Fault // nil for most
	p pace

	sent int          // events
	line int          // lines, for mixed line ends
	gz   *gzip.Writer // for the fault of that name
	zip  bytes.Buffer
}

// play sends the whole stream.
func (s *stream) play() error {
	c := s.c
	s.head()
	if err := s.comments(); err != nil {
		return err
	}
	if err := c.firstToken(s.a, s.p); err != nil {
		return err
	}
	c.event = s.d.open(c.event[:0], s.a)
	if err := s.all(c.event, false); err != nil {
		return err
	}
	for i := range s.a.tokens {
		if i > 0 {
			if err := s.p.wait(i); err != nil {
				return err
			}
			now := time.Now()
			c.engine.gaps.observe(int64(now.Sub(c.latest)), 1)
			c.latest = now
		}
		c.event = s.d.token(c.event[:0], s.a, i)
		if err := s.send(c.event, false); err != nil {
			return err
		}
		c.engine.count.outputTokens.Add(1)
	}
	if s.f != nil && s.f.Kind == "truncate" && s.f.After == 0 {
		return s.endEarly()
	}
	c.event = s.d.shut(c.event[:0], s.a)
	return s.all(c.event, true)
}

// head appends the response head, which goes out with what is written next.
func (s *stream) head() {
	c := s.c
	c.head(200, "text/event-stream; charset=utf-8")
	c.out = append(c.out, "cache-control: no-cache\r\n"...)
	if s.f != nil && s.f.Kind == "gzip" {
		c.out = append(c.out, "content-encoding: gzip\r\n"...)
		s.gz = gzip.NewWriter(&s.zip)
	}
	if c.chunked {
		c.out = append(c.out, "transfer-encoding: chunked\r\n"...)
	}
	c.out = append(c.out, "\r\n"...)
}

// comments is the fault of that name.
func (s *stream) comments() error {
	if s.f == nil || s.f.Kind != "comments" {
		return nil
	}
	for range s.f.After {
		s.c.chunk([]byte(": waiting\n\n"))
		if err := s.c.flush(); err != nil {
			return err
		}
		if err := s.c.sleep(time.Now().Add(time.Duration(s.f.Delay))); err != nil {
			return err
		}
	}
	return nil
}

// all sends events that stand one after another; with last, the last of them ends the stream.
func (s *stream) all(events []byte, last bool) error {
	for len(events) > 0 {
		n := bytes.Index(events, []byte("\n\n")) + 2
		if err := s.send(events[:n], last && n == len(events)); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// send writes one event, in one write unless a fault says otherwise. The end of the body goes with the last one.
func (s *stream) send(event []byte, last bool) error {
	if s.f != nil {
		return s.sendFaulty(event, last)
	}
	s.c.chunk(event)
	if last {
		s.c.lastChunk()
	}
	s.sent++
	return s.c.flush()
}

func (s *stream) sendFaulty(event []byte, last bool) error {
	if s.sent == s.f.After || s.f.Variant == "empty" {
		if err := s.cut(); err != nil {
			return err
		}
	}
	switch s.f.Kind {
	case "crlf":
		event = s.lineEnds(event, s.f.Variant)
	case "split":
		event = s.lineEnds(event, s.f.Variant)
		return s.pieces(event, cuts(event), last)
	case "big_event":
		if len(event) > bigPiece {
			var at []int
			for i := bigPiece; i < len(event); i += bigPiece {
				at = append(at, i)
			}
			return s.pieces(event, at, last)
		}
	case "gzip":
		s.gz.Write(event)
		if last {
			s.gz.Close()
		} else {
			s.gz.Flush()
		}
		event = s.zip.Bytes()
		defer s.zip.Reset()
	}
	return s.pieces(event, nil, last)
}

// cut applies the faults that come at a certain event. An error ends the stream.
func (s *stream) cut() error {
	c := s.c
	switch s.f.Kind {
	case "stall":
		if err := c.flush(); err != nil {
			return err
		}
		return c.hang()
	case "die":
		if err := c.flush(); err != nil {
			return err
		}
		return errCut
	case "reset":
		c.reset()
		return errCut
	case "stream_error":
		p := problem{status: s.f.Status, message: "a fault of the mock engine, inside the stream"}
		c.chunk(s.d.failure(nil, p, s.sent))
		return s.endEarly()
	case "truncate":
		if s.f.After > 0 || s.f.Variant == "empty" {
			return s.endEarly()
		}
	case "malformed":
		return s.malformed()
	}
	return nil
}

// endEarly ends the body cleanly.
func (s *stream) endEarly() error {
	s.c.lastChunk()
	if err := s.c.flush(); err != nil {
		return err
	}
	return errEndedEarly
}

func (s *stream) malformed() error {
	switch s.f.Variant {
	case "body":
		s.c.out = append(s.c.out, "zz, not a chunk size\r\n\r\n"...)
		if err := s.c.flush(); err != nil {
			return err
		}
		return errCut
	case "sse":
		s.c.chunk([]byte("this line has no colon\ndata\ndata: {\"never\": closed\nid\x00: 1\n\n"))
	case "json":
		s.c.chunk([]byte(`data: {"choices":[{"delta":{"content":"` + "\n\n"))
	}
	return nil
}

// pieces writes an event cut at the given places, with Delay between the writes.
func (s *stream) pieces(event []byte, at []int, last bool) error {
	from := 0
	for _, to := range at {
		s.c.chunk(event[from:to])
		if err := s.c.flush(); err != nil {
			return err
		}
		if err := s.c.sleep(time.Now().Add(time.Duration(s.f.Delay))); err != nil {
			return err
		}
		from = to
	}
	s.c.chunk(event[from:])
	if last {
		s.c.lastChunk()
	}
	s.sent++
	return s.c.flush()
}

// lineEnds replaces the line ends of an event.
func (s *stream) lineEnds(event []byte, style string) []byte {
	var out []byte
	for _, b := range event {
		if b != '\n' {
			out = append(out, b)
			continue
		}
		s.line++
		switch {
		case style == "cr":
			out = append(out, '\r')
		case style == "crlf", style == "mixed" && s.line%2 == 0:
			out = append(out, '\r', '\n')
		default:
			out = append(out, '\n')
		}
	}
	return out
}

// cuts are the places where split cuts an event: inside the field name, inside the first rune of several bytes, and
// between the bytes of the line ends at its end.
func cuts(event []byte) []int {
	at := []int{3}
	if i := bytes.IndexFunc(event, func(r rune) bool { return r >= utf8.RuneSelf }); i >= 0 {
		at = append(at, i+1)
	}
	for i := len(event) - 1; i > 0 && (event[i] == '\n' || event[i] == '\r'); i-- {
		at = append(at, i)
	}
	slices.Sort(at)
	at = slices.Compact(at)
	return slices.DeleteFunc(at, func(i int) bool { return i >= len(event) })
}

package llm

import "bytes"

// lines gathers the unfinished line.
type lines struct {
	buf  []byte   // its start
	mode lineMode // what becomes of its further pieces
}

type lineMode uint8

const (
	lineKeep  lineMode = iota
	lineDrop           // buf is full, and the rest does not matter
	lineProbe          // the line is data of a big event: the rest goes to the probe
)

// maxLine is how much of a line is kept: a whole event's data with its field name and a byte order mark.
const maxLine = maxEvent + 16

// event gathers the fields of the current event.
type event struct {
	open       bool // an event: or data: line was seen since the last blank line
	at         int  // where that line begins, in bytes since the start
	name       [maxEventName]byte
	nameLen    int
	data       []byte // joined by LF, as far as seen
	lines      int    // data lines seen
	errorField bool   // data came in a field named error
	inPiece    bool   // data lies in the piece being fed, else in buf
	buf        []byte
	big        bool // data is over maxEvent and goes through the probe
	probe      probe
}

// Feed takes the next bytes exactly as they were read. They may be cut anywhere.
func (s *Stream) Feed(p []byte) {
	lf, cr := -1, -1 // next of each at or after i; len(p) if none
	if s.framing == NDJSON {
		cr = len(p)
	}
	for i := 0; i < len(p); {
		if s.afterCR {
			s.afterCR = false
			if p[i] == '\n' {
				i++
				s.advance(1, s.passedCR)
				continue
			}
		}
		lf, cr = nextByte(p, i, lf, '\n'), nextByte(p, i, cr, '\r')
		end := min(lf, cr)
		if end == len(p) {
			s.total += end - i
			s.tail += end - i
			s.partial(p[i:])
			break
		}
		s.afterCR = end == cr
		s.line(p[i:end], end+1-i)
		i = end + 1
	}
	if s.event.inPiece {
		s.event.own()
	}
	s.settle()
}

// nextByte returns the index of the first c at or after i, given the last answer.
func nextByte(p []byte, i, last int, c byte) int {
	if last >= i {
		return last
	}
	if n := bytes.IndexByte(p[i:], c); n >= 0 {
		return i + n
	}
	return len(p)
}

// End says that the body ended cleanly: a last event without its blank line, even without its line end, still counts.
func (s *Stream) End() {
	open := s.Open()
	if s.tail > 0 {
		s.line(nil, 0)
	}
	s.dispatch()
	s.event.open = open
}

// advance counts the bytes that end a line. The hold may end by size here, before the line is read: so it does not matter
// where the pieces were cut.
func (s *Stream) advance(n int, passable bool) {
	s.total += n
	s.tail = 0
	s.settle()
	if !passable {
		s.holding = true
	}
	if !s.holding {
		s.passable = s.total
	}
}

// partial takes a piece of a line that does not lie whole in the piece fed.
func (s *Stream) partial(piece []byte) {
	switch s.lines.mode {
	case lineKeep:
		room := min(maxLine-len(s.lines.buf), len(piece))
		s.lines.buf = append(s.lines.buf, piece[:room]...)
		piece = piece[room:]
		if len(piece) == 0 {
			return
		}
		kind, value := s.field(s.lines.buf)
		if kind != fieldData {
			s.lines.mode = lineDrop
			return
		}
		s.lines.mode = lineProbe
		s.holding = true
		s.begin(s.total - s.tail)
		s.grow(value)
		s.event.probe.feed(piece)
	case lineProbe:
		s.event.probe.feed(piece)
	}
}

// line takes the last piece of a line; size is that piece with its line end.
func (s *Stream) line(piece []byte, size int) {
	line, carried := piece, len(s.lines.buf) > 0
	if carried {
		s.partial(piece)
		line = s.lines.buf
	}
	kind, value := s.field(line)
	probed, start := s.lines.mode == lineProbe, s.total-s.tail
	s.lines.mode = lineKeep
	s.started = true
	s.passedCR = kind.passable()
	s.advance(size, kind.passable())
	switch kind {
	case fieldBlank:
		s.dispatch()
	case fieldEvent:
		s.begin(start)
		s.event.nameLen = copy(s.event.name[:], value)
	case fieldData, fieldError:
		s.begin(start)
		if kind == fieldError {
			s.event.errorField = true
			s.event.nameLen = copy(s.event.name[:], "error")
		}
		if !probed {
			s.addData(value, carried)
		}
		if s.framing == NDJSON {
			s.dispatch()
		}
	}
	s.lines.buf = s.lines.buf[:0]
}

// begin opens an event, if none is, with the line that begins at that byte.
func (s *Stream) begin(at int) {
	if !s.event.open {
		s.event.open, s.event.at = true, at
	}
}

type fieldKind uint8

const (
	fieldBlank fieldKind = iota
	fieldComment
	fieldID // id: or retry:
	fieldEvent
	fieldData
	fieldError // data, of an event named so
	fieldUnknown
)

// passable reports whether such a line may pass before the commit.
func (k fieldKind) passable() bool { return k <= fieldID }

// field splits a line into its field's kind and value.
func (s *Stream) field(line []byte) (fieldKind, []byte) {
	if !s.started {
		line = line[len(bom(line)):]
	}
	if s.framing == NDJSON {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			return fieldBlank, nil
		}
		return fieldData, line
	}
	if len(line) == 0 {
		return fieldBlank, nil
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		return fieldData, value
	case "event":
		return fieldEvent, value
	case "error":
		return fieldError, value
	case "":
		return fieldComment, nil
	case "id", "retry":
		return fieldID, nil
	}
	return fieldUnknown, nil
}

// addData joins a data line to the event. carried says that value lies in the line buffer, else in the piece fed.
func (s *Stream) addData(value []byte, carried bool) {
	e := &s.event
	size := len(value)
	if e.lines > 0 {
		size += len(e.data) + 1
	}
	switch {
	case e.big || size > maxEvent:
		s.grow(value)
	case e.lines == 0:
		e.data, e.inPiece = value, !carried
		if carried { // swap rather than copy
			e.buf, s.lines.buf = s.lines.buf, e.buf[:0]
		}
		e.lines = 1
	default:
		e.own()
		e.data = append(append(e.data, '\n'), value...)
		e.buf = e.data
		e.lines++
	}
}

// own moves the data to the front of the event's own buffer.
func (e *event) own() {
	e.buf = append(e.buf[:0], e.data...)
	e.data, e.inPiece = e.buf, false
}

// grow adds a data line to an event that is, or with it becomes, too large to keep.
func (s *Stream) grow(value []byte) {
	e := &s.event
	if !e.big {
		e.big = true
		e.probe.reset(true)
		e.probe.found.usage = s.usage
		v := s.kindVerdict(e.name[:e.nameLen])
		s.content = s.content || v.content
		if v.content && !v.terminal {
			s.contentEvents++
		}
		s.settle()
		if e.lines > 0 {
			e.probe.feed(e.data)
		}
		e.data, e.inPiece = nil, false
	}
	if e.lines > 0 {
		e.probe.feed([]byte{'\n'})
	}
	e.probe.feed(value)
	e.lines++
}

// dispatch ends the event.
func (s *Stream) dispatch() {
	e := &s.event
	switch {
	case e.big:
		e.probe.end()
		s.apply(s.readBig(e.name[:e.nameLen], &e.probe.found))
	case len(e.data) > 0: // an event without data is none
		s.apply(s.read(e.name[:e.nameLen], e.data))
	}
	e.open, e.nameLen, e.data, e.lines, e.errorField, e.inPiece, e.big = false, 0, nil, 0, false, false, false
}

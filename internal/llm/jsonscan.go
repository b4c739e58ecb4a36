package llm

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"

	"evenkeel/internal/simd"
)

// maxDepth is the deepest nesting of a JSON document that the scanner follows. Python's json module, which most engines
// use, gives up at about the same depth.
const maxDepth = 1000

// maxCount caps every number read from the wire, so that sums of them cannot overflow.
const maxCount = 1<<31 - 1

// fault says why a scan stopped.
type fault uint8

const (
	faultNone fault = iota
	faultSyntax
	faultTruncated
	faultDeep
)

// scanner walks JSON in place: no tree, no copy, no recursion. It finds structure and leaves the judgement of values to
// whoever the document is for. A fault moves it to the end of the bytes, where every method returns nothing and loops end.
type scanner struct {
	b      []byte
	i      int
	spaces int // white space outside strings in the objects and arrays that were skipped or walked, bytes
	fault  fault
	at     int // where the fault is
}

// class sorts the bytes that may stand outside a string. Whatever else stands there (comments, single quotes, NUL) is a
// fault: a lenient parser behind us could take it for something that hides a key from us.
var class = func() (t [256]byteClass) {
	for _, c := range " \t\r\n" {
		t[c] = classSpace
	}
	for c := '0'; c <= '9'; c++ {
		t[c] = classPlain
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = classPlain, classPlain // true, null, 1E-7, also NaN and Infinity of Python
	}
	for _, c := range "+-." {
		t[c] = classPlain
	}
	t[','], t[':'] = classSeparator, classSeparator
	t['{'], t['['] = classOpen, classOpen
	t['}'], t[']'] = classClose, classClose
	t['"'] = classQuote
	return t
}()

type byteClass uint8

const (
	classBad   byteClass = iota
	classPlain           // from here to classSpace: what may be skipped between strings and brackets
	classSeparator
	classSpace
	classOpen
	classClose
	classQuote
)

func (s *scanner) fail(f fault, at int) {
	if s.fault == faultNone {
		s.fault, s.at = f, at
	}
	s.i = len(s.b)
}

// peek skips white space and returns the next byte without taking it, or 0 after a fault or at the end.
func (s *scanner) peek() byte {
	if s.i < len(s.b) && s.b[s.i] > ' ' {
		return s.b[s.i]
	}
	return s.peekPastSpace()
}

func (s *scanner) peekPastSpace() byte {
	for s.i < len(s.b) {
		c := s.b[s.i]
		if class[c] != classSpace {
			return c
		}
		s.i++
	}
	s.fail(faultTruncated, s.i)
	return 0
}

// enter takes the opening bracket of an object or array if that is what comes next.
func (s *scanner) enter(open byte) bool {
	if s.peek() != open {
		return false
	}
	s.i++
	return true
}

// key takes the next member's name inside an object and stands before its value then; it takes the closing bracket and
// returns false if there is no further member. Escapes in the name are resolved.
func (s *scanner) key() ([]byte, bool) {
	name, ok := s.rawKey()
	if bytes.IndexByte(name, '\\') >= 0 {
		name = unescape(nil, name)
	}
	return name, ok
}

// rawKey is key without resolving escapes.
func (s *scanner) rawKey() ([]byte, bool) {
	b, i := s.b, s.i
	if i < len(b) && b[i] == ',' {
		i++
	}
	if i < len(b) && b[i] == '"' { // no white space, as most clients write
		if end := simd.StringEnd(b, i+1); end > 0 && end+1 < len(b) && b[end+1] == ':' {
			s.i = end + 2
			return b[i+1 : end], true
		}
	}
	return s.spacedKey()
}

func (s *scanner) spacedKey() ([]byte, bool) {
	for {
		switch s.peek() {
		case ',':
			s.i++
		case '}':
			s.i++
			return nil, false
		case '"':
			name := s.text()
			if s.peek() != ':' {
				s.fail(faultSyntax, s.i)
				return nil, false
			}
			s.i++
			return name, true
		default:
			s.fail(faultSyntax, s.i)
			return nil, false
		}
	}
}

// elem stands before the next element of an array, or takes the closing bracket and returns false. The caller must take
// the element before it asks again.
func (s *scanner) elem() bool {
	for {
		switch s.peek() {
		case 0:
			return false
		case ',':
			s.i++
		case ']':
			s.i++
			return false
		default:
			return true
		}
	}
}

// text takes the next value and returns the inside of a string, still escaped; nil if the value is no string.
func (s *scanner) text() []byte {
	if s.peek() != '"' {
		s.skip()
		return nil
	}
	start := s.i + 1
	end := simd.StringEnd(s.b, start)
	if end < 0 {
		s.fail(faultTruncated, s.i)
		return nil
	}
	s.i = end + 1
	return s.b[start:end]
}

// raw takes the next value and returns its bytes.
func (s *scanner) raw() []byte {
	s.peek()
	start := s.i
	s.skip()
	if s.fault != faultNone {
		return nil
	}
	return s.b[start:s.i]
}

// skip takes the next value.
func (s *scanner) skip() { s.walk(nil) }

// walk takes the next value and shows what is inside to v, if v is not nil.
func (s *scanner) walk(v *promptReader) {
	switch c := s.peek(); class[c] {
	case classQuote:
		start := s.i + 1
		end := v.stringEnd(s.b, start)
		if end < 0 {
			s.fail(faultTruncated, s.i)
			return
		}
		if v != nil {
			v.value(s.b, start, end, 0)
		}
		s.i = end + 1
	case classOpen:
		s.container(v)
	case classPlain:
		for s.i < len(s.b) && class[s.b[s.i]] == classPlain {
			s.i++
		}
	default:
		s.fail(faultSyntax, s.i)
	}
}

// container takes an object or array with all that is in it. Brackets must match; separators are not judged.
func (s *scanner) container(v *promptReader) {
	var objects [maxDepth/64 + 1]uint64 // one bit per level: set for an object
	b, i, depth, spaces := s.b, s.i, 0, 0
	for i < len(b) {
		c := b[i]
		i++
		if c == '"' {
			start, end := i, 0
			if i+8 <= len(b) { // names and short values: simd.StringEnd would say the same
				if marks := simd.FirstQuote(binary.LittleEndian.Uint64(b[i:])); marks != 0 {
					end = i + bits.TrailingZeros64(marks)/8
				}
			}
			if end == 0 || b[end-1] == '\\' {
				if end = v.stringEnd(b, i); end < 0 {
					s.fail(faultTruncated, start-1)
					return
				}
			}
			i = end + 1
			next := byte(0)
			if i < len(b) {
				next = b[i]
			}
			if next == ':' || next == ',' {
				i++
			}
			if v == nil {
				continue
			}
			if next == ':' || class[next] == classSpace && colon(b, i) {
				v.member(b, start, end, depth)
			} else {
				v.value(b, start, end, depth)
			}
			continue
		}
		switch class[c] {
		case classOpen:
			if depth++; depth >= maxDepth {
				s.fail(faultDeep, i-1)
				return
			}
			bit := uint64(1) << (depth % 64)
			if c == '{' {
				objects[depth/64] |= bit
			} else {
				objects[depth/64] &^= bit
			}
		case classClose:
			if isObject := objects[depth/64]>>(depth%64)&1 == 1; isObject != (c == '}') {
				s.fail(faultSyntax, i-1)
				return
			}
			if depth--; depth == 0 {
				s.i, s.spaces = i, s.spaces+spaces
				return
			}
			if v == nil {
				continue
			}
			if depth < v.silent {
				v.silent = 0
			}
			if depth == 1 && v.turns {
				v.text.nextMessage()
			}
		case classSpace:
			spaces++
		case classBad:
			s.fail(faultSyntax, i-1)
			return
		default:
			start := i - 1
			for i < len(b) && class[b[i]]-classPlain <= classSeparator-classPlain { // long lists of numbers
				i++
			}
			if v != nil && (class[c] == classPlain || i > start+1) {
				v.scalars(b[start:i])
			}
		}
	}
	s.fail(faultTruncated, len(b))
}

// colon reports whether a colon follows at b[i], perhaps after white space.
func colon(b []byte, i int) bool {
	for i < len(b) && class[b[i]] == classSpace {
		i++
	}
	return i < len(b) && b[i] == ':'
}

// isEmpty reports whether a value's bytes are null, "", [] or {}, or a scalar: nothing that was generated.
func isEmpty(raw []byte) bool {
	if len(raw) == 0 {
		return true
	}
	switch raw[0] {
	case '"':
		return len(raw) <= 2
	case '{', '[':
		return len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0
	}
	return true
}

func isTrue(raw []byte) bool { return string(raw) == "true" }

// count reads a JSON number as a count: cut to whole, negative as 0, capped at maxCount. It returns false for anything
// that is no number.
func count(raw []byte) (int, bool) {
	if len(raw) == 0 || (raw[0] != '-' && (raw[0] < '0' || raw[0] > '9')) {
		return 0, false
	}
	n := 0
	for i, c := range raw {
		if c < '0' || c > '9' {
			if c == '-' && i == 0 || c == '.' || c == 'e' || c == 'E' {
				return countFloat(raw)
			}
			return 0, false
		}
		if n = n*10 + int(c-'0'); n > maxCount {
			return maxCount, true // what follows can only be larger, or a fraction of no interest here
		}
	}
	return n, true
}

func countFloat(raw []byte) (int, bool) {
	if len(raw) > 64 {
		raw = raw[:64]
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case f != f || err != nil && f == 0:
		return 0, false
	case f <= 0:
		return 0, true
	case f >= maxCount:
		return maxCount, true
	}
	return int(f), true
}

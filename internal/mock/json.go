package mock

import (
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"unicode/utf8"
)

// maxDepth is the nesting that encoding/json accepts.
const maxDepth = 10000

// scanner walks over a JSON text once, checking all of it and keeping none of it. It exists because prompts are big: decoding a
// megabyte with encoding/json costs milliseconds, which a benchmark's backend does not have. Every method returns
// false at the first error and leaves the rest unread.
type scanner struct {
	b     []byte
	i     int
	depth int
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
		default:
			return s.b[s.i]
		}
	}
	return 0
}

// next consumes c if it is the next byte after white space.
func (s *scanner) next(c byte) bool {
	if s.peek() != c || s.i >= len(s.b) {
		return false
	}
	s.i++
	return true
}

// end reports whether nothing but white space is left.
func (s *scanner) end() bool {
	s.peek()
	return s.i == len(s.b)
}

// object reads an object. field is called with each key and must read the value.
func (s *scanner) object(field func(key []byte) bool) bool {
	if s.depth++; s.depth > maxDepth || !s.next('{') {
		return false
	}
	if s.next('}') {
		s.depth--
		return true
	}
	for {
		s.peek()
		raw, _, ok := s.text()
		if !ok || !s.next(':') || !field(unescape(raw)) {
			return false
		}
		if s.next('}') {
			s.depth--
			return true
		}
		if !s.next(',') {
			return false
		}
	}
}

// array reads an array. element is called for each element and must read it.
func (s *scanner) array(element func() bool) bool {
	if s.depth++; s.depth > maxDepth || !s.next('[') {
		return false
	}
	if s.next(']') {
		s.depth--
		return true
	}
	for {
		if !element() {
			return false
		}
		if s.next(']') {
			s.depth--
			return true
		}
		if !s.next(',') {
			return false
		}
	}
}

// skip reads any value.
func (s *scanner) skip() bool {
	switch s.peek() {
	case '{':
		return s.object(func([]byte) bool { return s.skip() })
	case '[':
		return s.array(s.skip)
	case '"':
		_, _, ok := s.text()
		return ok
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	_, ok := s.number()
	return ok
}

func (s *scanner) word(w string) bool {
	s.peek()
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return false
	}
	s.i += len(w)
	return true
}

// number reads a number and returns its bytes.
func (s *scanner) number() ([]byte, bool) {
	s.peek()
	start := s.i
	digits := func() bool {
		from := s.i
		for s.i < len(s.b) && s.b[s.i]-'0' < 10 {
			s.i++
		}
		return s.i > from
	}
	at := func(c byte) bool {
		if s.i < len(s.b) && s.b[s.i] == c {
			s.i++
			return true
		}
		return false
	}
	at('-')
	if !at('0') && !digits() {
		return nil, false
	}
	if at('.') && !digits() {
		return nil, false
	}
	if at('e') || at('E') {
		if !at('+') {
			at('-')
		}
		if !digits() {
			return nil, false
		}
	}
	return s.b[start:s.i], true
}

// text reads a string and returns its bytes as they stand between the quotes, and how many bytes they are when decoded.
func (s *scanner) text() (raw []byte, size int, ok bool) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, 0, false
	}
	s.i++
	start, shrunk := s.i, 0
	for {
		s.i += plain(s.b[s.i:])
		if s.i >= len(s.b) || s.b[s.i] < 0x20 {
			return nil, 0, false
		}
		if s.b[s.i] == '"' {
			raw = s.b[start:s.i]
			s.i++
			return raw, len(raw) - shrunk, true
		}
		from := s.i
		decoded, ok := s.escape()
		if !ok {
			return nil, 0, false
		}
		shrunk += s.i - from - decoded
	}
}

// escape reads one escape sequence and returns the bytes it stands for. Each half of a surrogate pair counts 2 of their 4.
func (s *scanner) escape() (decoded int, ok bool) {
	if s.i+1 >= len(s.b) {
		return 0, false
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return 1, true
	case 'u':
	default:
		return 0, false
	}
	if s.i+6 > len(s.b) {
		return 0, false
	}
	var r rune
	for _, c := range s.b[s.i+2 : s.i+6] {
		switch {
		case c-'0' < 10:
			r = r<<4 | rune(c-'0')
		case (c|0x20)-'a' < 6:
			r = r<<4 | rune((c|0x20)-'a'+10)
		default:
			return 0, false
		}
	}
	s.i += 6
	if n := utf8.RuneLen(r); n > 0 {
		return n, true
	}
	return 2, true
}

// plain returns how many bytes at the start of b are neither a quote, nor a backslash, nor a control character.
// It looks at eight bytes at a time: (x - 0x01…) & ^x & 0x80… has its lowest set bit at the first zero byte of x.
func plain(b []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quote := x ^ ones*'"'
		slash := x ^ ones*'\\'
		found := ((quote - ones) &^ quote) | ((slash - ones) &^ slash) | ((x - ones*0x20) &^ x)
		if found &= highs; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for ; n < len(b); n++ {
		if b[n] == '"' || b[n] == '\\' || b[n] < 0x20 {
			break
		}
	}
	return n
}

// unescape decodes the inside of a string. Nearly all have no escapes and are returned as they are.
func unescape(raw []byte) []byte {
	for _, c := range raw {
		if c != '\\' {
			continue
		}
		var s string
		if json.Unmarshal([]byte(`"`+string(raw)+`"`), &s) == nil {
			return []byte(s)
		}
		break
	}
	return raw
}

// quote returns s as a JSON string, quotes included.
func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("BUG: mock: a string that JSON cannot hold: " + err.Error())
	}
	return b
}

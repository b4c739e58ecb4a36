package secret

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

// shortestSpelled is the length in bytes from which on a secret is looked for in other spellings too: a shorter one would
// be found by chance.
const shortestSpelled = 8

// Finder looks for a secret in text of others. The zero value finds nothing. It is immutable and safe for concurrent use.
type Finder struct {
	verbatim []byte
	// spelled are what is looked for with any of their characters escaped: the secret without its backslashes, which cannot
	// be told from those of escapes, and what base64 makes of it wherever it stands in what is encoded.
	spelled [][]byte
}

// NewFinder returns a Finder for a secret; for the empty one it finds nothing.
func NewFinder(s String) Finder {
	f := Finder{verbatim: []byte(s.Reveal())}
	bare := bytes.ReplaceAll(f.verbatim, []byte{'\\'}, nil)
	if len(bare) < shortestSpelled {
		return f
	}
	f.spelled = append(f.spelled, bare)
	for before := range 3 {
		standard := inner64(base64.RawStdEncoding, f.verbatim, before)
		f.spelled = append(f.spelled, standard)
		if other := inner64(base64.RawURLEncoding, f.verbatim, before); !bytes.Equal(other, standard) {
			f.spelled = append(f.spelled, other)
		}
	}
	return f
}

// inner64 returns those characters of a base64 text that depend on the secret alone, where before bytes (0, 1 or 2) of the
// secret's first group of three are of something else.
func inner64(e *base64.Encoding, secret []byte, before int) []byte {
	text := []byte(e.EncodeToString(append(make([]byte, before), secret...)))
	return text[(8*before+5)/6 : 8*(before+len(secret))/6]
}

// In reports whether text holds the secret: as it is or, unless it is short, with any of its characters escaped as in JSON
// (`\/`, `\u0041`, and that within JSON) or in a URL (%41), or in base64 of either alphabet, which may hold more than it.
func (f *Finder) In(text []byte) bool {
	if len(f.verbatim) == 0 {
		return false
	}
	if bytes.Contains(text, f.verbatim) {
		return true
	}
	for _, want := range f.spelled {
		for i, c := range text {
			if (c == want[0] || c == '\\' || c == '%') && spells(text[i:], want) {
				return true
			}
		}
	}
	return false
}

// spells reports whether text begins with a spelling of want, which holds no backslash.
func spells(text, want []byte) bool {
	for len(want) > 0 {
		rest, escaped := skipBackslashes(text)
		taken, spelled := escape(rest, want, escaped)
		plain := len(rest) > 0 && rest[0] == want[0]
		switch {
		case spelled == 0 && !plain:
			return false
		case spelled == 0:
			taken, spelled = 1, 1
		case plain && spells(rest[1:], want[1:]): // the secret itself looks like an escape
			return true
		}
		text, want = rest[taken:], want[spelled:]
	}
	return true
}

// deepest is how often a text can have been encoded again; it bounds what hostile text costs.
const deepest = 4

// skipBackslashes drops the backslashes of an escape at the start of text, however they are spelled, and reports whether
// there were any.
func skipBackslashes(text []byte) (rest []byte, some bool) {
	rest = text
	for range 1 << deepest { // each encoding makes two of one
		if n, _ := escape(rest, []byte{'\\'}, some); n > 0 {
			rest = rest[n:]
		} else if len(rest) > 0 && rest[0] == '\\' {
			rest = rest[1:]
		} else {
			break
		}
		some = true
	}
	return rest, some
}

// escape reads an escape at the start of text that stands for the start of want. It returns how many bytes of both that
// are, 0 if there is none. escaped says that a backslash came before.
func escape(text, want []byte, escaped bool) (taken, spelled int) {
	switch {
	case escaped && len(text) > 0 && text[0] == 'u':
		c, ok := hexAt(text, 1, 4)
		if !ok {
			return 0, 0
		}
		if c < 0x100 && byte(c) == want[0] {
			return 5, 1
		}
		var b [utf8.UTFMax]byte
		n := utf8.EncodeRune(b[:], rune(c))
		if c >= utf8.RuneSelf && bytes.HasPrefix(want, b[:n]) {
			return 5, n
		}
	case len(text) > 0 && text[0] == '%':
		for i := 1; i < 1+2*deepest; i += 2 { // %2541 is a %41 that was encoded again
			c, ok := hexAt(text, i, 2)
			if ok && byte(c) == want[0] {
				return i + 2, 1
			}
			if !ok || c != '%' {
				break
			}
		}
	}
	return 0, 0
}

// hexAt reads n hexadecimal digits.
func hexAt(text []byte, at, n int) (uint64, bool) {
	if len(text) < at+n {
		return 0, false
	}
	c, err := strconv.ParseUint(string(text[at:at+n]), 16, 32)
	return c, err == nil
}

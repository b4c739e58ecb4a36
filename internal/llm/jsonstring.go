package llm

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// nearby is how many bytes are looked at in words, before IndexByte, which is faster but starts slowly: after the start of
// a string, and after an escaped quote, since such come in flocks (code, JSON in strings).
const (
	nearby       = 16
	nearbyEscape = 16
)

// stringEnd returns the index of the quote that ends the string whose first byte is b[i], or -1. It takes time in proportion
// to what it passes, whatever that holds.
func stringEnd(b []byte, i int) int {
	for start, near := i, i+nearby; ; {
		if i+8 > len(b) || i >= near {
			n := bytes.IndexByte(b[i:], '"')
			if n < 0 {
				return -1
			}
			i += n
		} else if marks := firstQuote(binary.LittleEndian.Uint64(b[i:])); marks != 0 {
			i += bits.TrailingZeros64(marks) / 8
		} else {
			i += 8
			continue
		}
		if i == start || b[i-1] != '\\' {
			return i
		}
		back := i - 1
		for back > start && b[back-1] == '\\' {
			back--
		}
		if (i-back)%2 == 0 {
			return i
		}
		end := false
		if i, end = pastEscapes(b, i+1); end {
			return i
		}
		start, near = i, i
	}
}

// pastEscapes reads on in a string from b[i], behind an escaped quote, until the string ends or no further escaped quote is
// near. It returns where that is and whether it is the end.
func pastEscapes(b []byte, i int) (int, bool) {
	var after uint64 // 0x80 if the byte before b[i] is a backslash that escapes b[i]
	for until := i + nearbyEscape; i+8 <= len(b) && i < until; i += 8 {
		word := binary.LittleEndian.Uint64(b[i:])
		quotes, backslashes := bytesLike(word, '"'), bytesLike(word, '\\')
		escaped := backslashes<<8 | after
		if backslashes&escaped != 0 { // one escapes the other
			return byteByByte(b, i+int(after>>7))
		}
		if ends := quotes &^ escaped; ends != 0 {
			return i + bits.TrailingZeros64(ends)/8, true
		}
		if after = backslashes >> 56; quotes != 0 {
			until = i + nearbyEscape
		}
	}
	return min(i+int(after>>7), len(b)), false
}

// byteByByte is pastEscapes for text with escaped backslashes.
func byteByByte(b []byte, i int) (int, bool) {
	for near := i + nearbyEscape; i < near && i < len(b); i++ {
		switch b[i] {
		case '"':
			return i, true
		case '\\':
			i++
		}
	}
	return min(i, len(b)), false
}

// firstQuote sets the highest bit of the lowest byte of a word that is a quote. Those of higher bytes may be set or not.
func firstQuote(word uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	x := word ^ '"'*ones
	return (x - ones) &^ x & high
}

// bytesLike sets the highest bit of each byte of a word that is c.
func bytesLike(word uint64, c byte) uint64 {
	const ones, low = 0x0101010101010101, 0x7f7f7f7f7f7f7f7f
	x := word ^ uint64(c)*ones
	return ^(x&low + low | x | low)
}

// unescape appends the text of a JSON string's inside to dst. As encoding/json does, it turns each invalid byte and each
// lone surrogate into U+FFFD. An escape that JSON does not know stays as it is.
func unescape(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		switch {
		case c == '\\' && i+1 < len(raw):
			if raw[i+1] == 'u' {
				r, n := unicodeEscape(raw[i:])
				dst = utf8.AppendRune(dst, r)
				i += n
				continue
			}
			dst = appendEscape(dst, raw[i+1])
			i += 2
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, n := utf8.DecodeRune(raw[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
		}
	}
	return dst
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case 'b':
		return append(dst, '\b')
	case 'f':
		return append(dst, '\f')
	case 'n':
		return append(dst, '\n')
	case 'r':
		return append(dst, '\r')
	case 't':
		return append(dst, '\t')
	case '"', '\\', '/':
		return append(dst, c)
	}
	return append(dst, '\\', c)
}

// unicodeEscape reads \uXXXX, or two of them if they are a surrogate pair, and returns the bytes taken.
func unicodeEscape(raw []byte) (rune, int) {
	r, ok := hex4(raw)
	if !ok {
		return utf8.RuneError, min(2, len(raw))
	}
	if utf16.IsSurrogate(r) {
		if low, ok := hex4(raw[6:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return utf8.RuneError, 6
	}
	return r, 6
}

func hex4(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range raw[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// appendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\r':
			dst = append(dst, '\\', 'r')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r < 0x20 || r == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xf])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

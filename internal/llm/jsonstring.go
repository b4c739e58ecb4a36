package llm

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// nearby is how many bytes at the start of a string are looked at in words, before IndexByte, which is faster but starts
// slowly.
const nearby = 16

// stringEnd returns the index of the quote that ends the string whose first byte is b[i], or -1. It takes time in proportion
// to what it passes, whatever that holds.
func stringEnd(b []byte, i int) int {
	start, quote := i, -1
	for near := i + nearby; i+8 <= len(b) && i < near; i += 8 {
		if marks := firstQuote(binary.LittleEndian.Uint64(b[i:])); marks != 0 {
			quote = i + bits.TrailingZeros64(marks)/8
			break
		}
	}
	if quote < 0 {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		quote = i + n
	}
	escape := quote
	for escape > start && b[escape-1] == '\\' {
		escape--
	}
	if (quote-escape)%2 == 0 {
		return quote
	}
	return unescapedQuote(b, quote+1)
}

// unescapedQuote is stringEnd for what follows an escaped quote: such come in flocks (code, JSON in strings), so that each
// block of text is looked at in the same way, whatever it holds.
func unescapedQuote(b []byte, i int) int {
	text := b[i:]
	whole := len(text) &^ (blockSize - 1)
	at, after := unescapedInBlocks(text, 0)
	if at == whole {
		var rest [blockSize]byte
		copy(rest[:], text[whole:])
		n, _ := unescapedByWord(rest[:], after)
		at += n
	}
	if at >= len(text) {
		return -1
	}
	return i + at
}

// blockSize is the text, in bytes, whose quotes and backslashes are bits of words.
const blockSize = 64

// unescapedByWord finds the first quote that no backslash escapes in the whole blocks of b, and returns its index, or the
// size of those blocks. after is 1 if a backslash escapes b[0], and afterAll if one escapes the byte behind them.
func unescapedByWord(b []byte, after uint64) (at int, afterAll uint64) {
	for ; at+blockSize <= len(b); at += blockSize {
		var quotes, backslashes uint64
		for i := 0; i < blockSize; i += 8 {
			const gather = 0x0102040810204080 // the lowest bits of 8 bytes into the highest byte
			word := binary.LittleEndian.Uint64(b[at+i:])
			quotes |= bytesLike(word, '"') >> 7 * gather >> 56 << i
			backslashes |= bytesLike(word, '\\') >> 7 * gather >> 56 << i
		}
		// Every other backslash of a row escapes the byte behind it, from the first on: a subtraction carries through the rows,
		// as in simdjson (Langdale and Lemire 2019).
		const odd = 0xaaaaaaaaaaaaaaaa
		first := backslashes &^ after
		codes := (first<<1 | odd) - first ^ odd
		escaped := codes ^ (backslashes | after)
		after = codes & backslashes >> 63
		if ends := quotes &^ escaped; ends != 0 {
			return at + bits.TrailingZeros64(ends), after
		}
	}
	return at, after
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

// Package simd reads what requests bring in bulk: it finds the ends of JSON strings and hashes text. Where the processor has
// wide instructions (AVX2) it uses them; what it returns is the same everywhere, which its tests hold it to.
package simd

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// StringEnd returns the index of the quote that ends the JSON string whose first byte is b[i], or -1. It takes time in
// proportion to what it passes, whatever that holds.
func StringEnd(b []byte, i int) int {
	quote := nextQuote(b, i)
	if quote <= i || b[quote-1] != '\\' || !IsEscaped(b[i:quote]) {
		return quote
	}
	// Such come in flocks: code, JSON in strings.
	return unescapedQuote(b, quote+1)
}

// unescapedByWord is StringEnd for any processor.
func unescapedByWord(b []byte, i int) int {
	for {
		quote := nextQuote(b, i)
		if quote <= i || !IsEscaped(b[i:quote]) {
			return quote
		}
		i = quote + 1
	}
}

// nextQuote returns the index of the first quote from b[i] on, or -1.
func nextQuote(b []byte, i int) int {
	const nearby = 16 // bytes that are looked at in words, before IndexByte, which is faster but starts slowly
	for near := i + nearby; i+8 <= len(b) && i < near; i += 8 {
		if marks := FirstQuote(binary.LittleEndian.Uint64(b[i:])); marks != 0 {
			return i + bits.TrailingZeros64(marks)/8
		}
	}
	if n := bytes.IndexByte(b[i:], '"'); n >= 0 {
		return i + n
	}
	return -1
}

// IsEscaped reports whether what stands before a byte in its string escapes it: an odd number of backslashes.
func IsEscaped(before []byte) bool {
	n := len(before)
	for n > 0 && before[n-1] == '\\' {
		n--
	}
	return (len(before)-n)%2 == 1
}

// FirstQuote sets the highest bit of the lowest byte of a word that is a quote. Those of higher bytes may be set or not.
func FirstQuote(word uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	x := word ^ '"'*ones
	return (x - ones) &^ x & high
}

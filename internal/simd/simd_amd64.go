package simd

import "golang.org/x/sys/cpu"

// hasAVX2 chooses between what is written for all processors and what is written for this one.
var hasAVX2 = cpu.X86.HasAVX2

// unescapedQuote is StringEnd where there are many escapes.
func unescapedQuote(b []byte, i int) int {
	if !hasAVX2 {
		return unescapedByWord(b, i)
	}
	whole := (len(b) - i) &^ 63
	at, after := unescapedAVX2(b[i:])
	if at < whole {
		return i + at
	}
	return unescapedByWord(b, min(i+whole+after, len(b)))
}

func (k *HashKey) sum(out []uint64, text []byte) {
	if hasAVX2 {
		sumAVX2(k, out, &text[0])
		return
	}
	k.sumByWord(out, text)
}

// unescapedAVX2 finds the first quote that no backslash escapes in b's whole blocks of 64 bytes, and returns its index, or
// the blocks' size. after is 1 if the byte behind them is escaped, else 0.
//
//go:noescape
func unescapedAVX2(b []byte) (at, after int)

// sumAVX2 is sumByWord.
//
//go:noescape
func sumAVX2(k *HashKey, out []uint64, text *byte)

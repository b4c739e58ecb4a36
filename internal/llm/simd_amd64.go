package llm

import "golang.org/x/sys/cpu"

// hasAVX2 chooses between what is written for all processors and what is written for this one.
var hasAVX2 = cpu.X86.HasAVX2

// unescapedQuote is stringEnd where there are many escapes.
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

func products(text *[PrefixBlock]byte, key *[PrefixBlock / 8]uint64) (sums [4]uint64) {
	if hasAVX2 {
		productsAVX2(text, key, &sums)
		return sums
	}
	return productsByWord(text, key)
}

// unescapedAVX2 finds the first quote that no backslash escapes in b's whole blocks of 64 bytes, and returns its index, or
// the blocks' size. after is 1 if the byte behind them is escaped, else 0.
//
//go:noescape
func unescapedAVX2(b []byte) (at, after int)

// productsAVX2 is productsByWord, in place of the return value with sums.
//
//go:noescape
func productsAVX2(text *[PrefixBlock]byte, key *[PrefixBlock / 8]uint64, sums *[4]uint64)

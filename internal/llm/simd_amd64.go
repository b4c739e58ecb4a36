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

func (k *PrefixKey) sums(out []uint64, text []byte) {
	if hasAVX2 {
		_ = text[len(out)*PrefixBlock-1]
		sumsAVX2(k, out, &text[0])
		return
	}
	k.sumsByWord(out, text)
}

// unescapedAVX2 finds the first quote that no backslash escapes in b's whole blocks of 64 bytes, and returns its index, or
// the blocks' size. after is 1 if the byte behind them is escaped, else 0.
//
//go:noescape
func unescapedAVX2(b []byte) (at, after int)

// sumsAVX2 is sumsByWord.
//
//go:noescape
func sumsAVX2(k *PrefixKey, out []uint64, text *byte)

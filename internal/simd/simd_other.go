//go:build !amd64

package simd

func unescapedQuote(b []byte, i int) int { return unescapedByWord(b, i) }

func (k *HashKey) sum(out []uint64, text []byte) { k.sumByWord(out, text) }

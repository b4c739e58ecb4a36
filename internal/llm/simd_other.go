//go:build !amd64

package llm

func unescapedQuote(b []byte, i int) int { return unescapedByWord(b, i) }

func (k *PrefixKey) sums(out []uint64, text []byte) { k.sumsByWord(out, text) }

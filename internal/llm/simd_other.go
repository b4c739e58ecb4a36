//go:build !amd64

package llm

func unescapedQuote(b []byte, i int) int { return unescapedByWord(b, i) }

func products(text *[PrefixBlock]byte, key *[PrefixBlock / 8]uint64) [4]uint64 {
	return productsByWord(text, key)
}

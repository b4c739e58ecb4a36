//go:build !amd64

package llm

func unescapedInBlocks(b []byte, after uint64) (at int, afterAll uint64) {
	return unescapedByWord(b, after)
}

package llm

// unescapedInBlocks is unescapedByWord in SSE2, three times as fast.
//
//go:noescape
func unescapedInBlocks(b []byte, after uint64) (at int, afterAll uint64)

package llm

import (
	"math"
	"strconv"
	"strings"
)

// CacheSize adds up what vLLM's metric cache_config_info says of the caches of a server's engines, its data-parallel ranks. The zero value is
// ready.
type CacheSize struct{ sizes, blocks, engines int } // tokens by size, tokens by blocks, how many engines say something

// Add takes the labels of one engine's sample. Newer versions say outright how many tokens its cache holds; the product of blocks and block
// size is too large where layers of several kinds share the blocks, and it is that of all engines together, which each repeats: vLLM adds up
// num_gpu_blocks before it tells it. A setting that is not known reads None.
func (c *CacheSize) Add(labels string) {
	var size, blocks, blockSize int
	for name, value := range Labels(labels) {
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n < 0 {
			continue
		}
		switch name {
		case "kv_cache_size_tokens":
			size = int(n)
		case "num_gpu_blocks":
			blocks = int(n)
		case "block_size":
			blockSize = int(n)
		}
	}
	switch {
	case size > 0:
		c.sizes = bounded(c.sizes + size)
	case blocks > 0 && blockSize > 0:
		c.blocks = max(c.blocks, bounded(blocks*blockSize))
	default:
		return
	}
	c.engines++
}

// Tokens is how many tokens all the caches hold, at most 2³¹−1; 0 if none says.
func (c *CacheSize) Tokens() int { return bounded(c.sizes + c.blocks) }

// Each is how many tokens the cache of one engine holds.
func (c *CacheSize) Each() int { return c.Tokens() / max(c.engines, 1) }

func bounded(n int) int { return min(n, math.MaxInt32) }

// Labels yields the names and values of a Prometheus sample's labels, what is between the braces; it ends where they are malformed. Escapes in
// values stay as they are.
func Labels(text string) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		for {
			name, rest, ok := strings.Cut(text, `="`)
			if !ok {
				return
			}
			value, after, ok := cutQuoted(rest)
			if !ok || !yield(strings.TrimLeft(name, ", "), value) {
				return
			}
			text = after
		}
	}
}

// cutQuoted cuts a label's value at its closing quote.
func cutQuoted(text string) (value, after string, ok bool) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return text[:i], text[i+1:], true
		}
	}
	return "", "", false
}

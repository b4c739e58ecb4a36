package llm

import (
	"math"
	"strconv"
	"strings"
)

// CacheConfigTokens returns how many tokens the cache of one of vLLM's engines holds, from the labels of its metric cache_config_info; 0 if
// they do not say. Newer versions say it outright; the product of blocks and block size is too large where layers of several kinds share the
// blocks. A setting that is not known reads None.
func CacheConfigTokens(labels string) int {
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
		return size
	case blocks > 0 && blockSize > math.MaxInt32/blocks:
		return math.MaxInt32
	}
	return blocks * blockSize
}

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

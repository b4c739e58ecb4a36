package simd

import (
	"bytes"
	"slices"
	"testing"
)

// FuzzStringEnd compares StringEnd with a loop over bytes, from every byte of text that is repeated.
func FuzzStringEnd(f *testing.F) {
	for _, seed := range []string{`abc"`, `\"\\"`, `a\"bcdefgh\"ij\\\"k\\`, `\\\\\\\\\\\\\\\\\"`, `0123456701234567012345670123456\"x`, `\u0022\`, `"`, ``} {
		f.Add([]byte(seed), uint8(5))
	}
	f.Fuzz(func(t *testing.T, text []byte, repeat uint8) {
		text = slices.Concat(bytes.ReplaceAll(bytes.Repeat(text, int(repeat%20)), []byte{'"'}, []byte(`\"`)), text)
		for i := range text[:min(len(text), 100)] {
			want := i
			for want < len(text) && text[want] != '"' {
				if text[want] == '\\' {
					want++
				}
				want++
			}
			if want >= len(text) {
				want = -1
			}
			if got := StringEnd(text, i); got != want {
				t.Fatalf("%q from %d: %d, want %d", text, i, got, want)
			}
			if got := unescapedByWord(text, i); got != want {
				t.Fatalf("%q from %d by word: %d, want %d", text, i, got, want)
			}
			if got := unescapedQuote(text, i); got != want {
				t.Fatalf("%q from %d: %d, want %d with escapes", text, i, got, want)
			}
		}
	})
}

package simd

import (
	"strings"
	"testing"
)

// speech has an escaped quote about every 35 bytes.
var speech = []byte(strings.Repeat(`The harbour pilot said:\n\"Keep her head to the wind,\"\nand the crew of the \"Even Keel\"\nhauled in the sheets.\n`, 300))

func BenchmarkUnescapedQuote(b *testing.B) {
	for name, f := range map[string]func([]byte, int) int{"this processor": unescapedQuote, "any": unescapedByWord} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(speech)))
			for b.Loop() {
				if f(speech, 0) != -1 {
					b.Fatal("found an end where there is none")
				}
			}
		})
	}
}

func BenchmarkSum(b *testing.B) {
	var key HashKey
	out := make([]uint64, len(speech)/Block)
	for name, f := range map[string]func([]uint64, []byte){"this processor": key.sum, "any": key.sumByWord} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(out) * Block))
			for b.Loop() {
				f(out, speech)
			}
		})
	}
}

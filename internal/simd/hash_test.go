package simd

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// What this processor's instructions give is what any processor gives.
func TestSumByWord(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var key HashKey
	for i := range key.Text {
		key.Text[i] = r.Uint64()
	}
	for i := range key.Fold {
		key.Fold[i] = r.Uint64()
	}
	text := make([]byte, 9*Block)
	for from := range 1000 {
		for i := range text {
			text[i] = byte(r.Uint32())
		}
		got, want := make([]uint64, from%9), make([]uint64, from%9)
		key.Sum(got, text[from%Block:])
		if key.sumByWord(want, text[from%Block:]); !slices.Equal(got, want) {
			t.Fatalf("%x, by word %x", got, want)
		}
	}
}

// Each byte of text and each word of the key matters.
func TestSumDependsOnAll(t *testing.T) {
	var key HashKey
	r := rand.New(rand.NewPCG(3, 4))
	for i := range key.Text {
		key.Text[i] = r.Uint64()
	}
	text := make([]byte, Block)
	sum := func() uint64 {
		var out [1]uint64
		key.Sum(out[:], text)
		return out[0]
	}
	want := sum()
	for i := range text {
		text[i]++
		if sum() == want {
			t.Errorf("byte %d does not matter", i)
		}
		text[i]--
	}
	for i := range key.Text {
		key.Text[i]++
		if sum() == want {
			t.Errorf("word %d of the key does not matter", i)
		}
		key.Text[i]--
	}
	if sum() != want {
		t.Error("the same text under the same key comes to something else")
	}
}

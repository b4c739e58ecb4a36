package simd

import (
	"encoding/binary"
	"math/bits"
)

// Block is the text, in bytes, that HashKey.Sum hashes at a time.
const Block = 256

// HashKey is a secret under which blocks are hashed. All of it should be random. It must not change while it is used; use it
// by any number of goroutines.
type HashKey struct {
	Text [Block / 8]uint64
	Fold [4]uint64 // right behind Text: sumAVX2 relies on it
}

// Sum hashes the blocks of text, which has at least len(out) of them, each on its own: NH (RFC 4418) in each of four lanes,
// folded. Whoever lacks the key cannot make two blocks that come to the same with a better chance than 2^-32; blocks that
// nobody chose do with one of about 2^-64.
func (k *HashKey) Sum(out []uint64, text []byte) {
	if len(out) > 0 {
		k.sum(out, text[:len(out)*Block])
	}
}

// sumByWord is sum for any processor.
func (k *HashKey) sumByWord(out []uint64, text []byte) {
	for i := range out {
		p := products((*[Block]byte)(text[i*Block:]), &k.Text)
		out[i] = Fold(p[0]^k.Fold[0], p[1]^k.Fold[1]) ^ Fold(p[2]^k.Fold[2], p[3]^k.Fold[3])
	}
}

// products adds the halves of the key's words to those of the text's, multiplies the two halves of each, and sums the
// products up: in the first lane those of words 0, 4, 8, ..., in the second of 1, 5, ...
func products(text *[Block]byte, key *[Block / 8]uint64) (sums [4]uint64) {
	for i := 0; i < len(key); i += 4 {
		t, k := (*[32]byte)(text[8*i:8*i+32]), (*[4]uint64)(key[i:i+4])
		sums[0] += product(binary.LittleEndian.Uint64(t[:8]), k[0])
		sums[1] += product(binary.LittleEndian.Uint64(t[8:16]), k[1])
		sums[2] += product(binary.LittleEndian.Uint64(t[16:24]), k[2])
		sums[3] += product(binary.LittleEndian.Uint64(t[24:]), k[3])
	}
	return sums
}

func product(text, key uint64) uint64 {
	return uint64(uint32(text)+uint32(key)) * uint64(uint32(text>>32)+uint32(key>>32))
}

// Fold mixes two words, by the halves of their product, as wyhash does.
func Fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

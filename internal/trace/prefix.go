package trace

import (
	"math/bits"
	"slices"
)

const (
	// MaxBlocks is the length of the longest chain (llm.MaxPrefixBlocks).
	MaxBlocks = 4096
	// HashBits is how much of a hash a line has. Two of the 10,000,000 hashes of a large trace are alike with a probability
	// of 0.2.
	HashBits = 48
)

// Prefix is what a line says of a prompt's hash chain, which has a hash for each block that depends on all before it too.
type Prefix struct {
	Blocks int // length of the chain
	// Known is up to which block an earlier line under the same header, in the same file, has the chain; 0 = no part of it.
	Known int
	// Hashes are those of the blocks that points lists, HashBits each.
	Hashes []uint64
}

// points appends the numbers of the blocks whose hashes a line has, from 1: the last one that is known, if there is one, of those
// after it the ones on the grid, and the last of all.
func points(dst []int, known, blocks int) []int {
	if known > 0 {
		dst = append(dst, known)
	}
	for n := known + 1; n <= blocks; n++ {
		if n == blocks || onGrid(n) {
			dst = append(dst, n)
		}
	}
	return dst
}

// onGrid holds for the first 16 blocks, and then for eight in each doubling.
func onGrid(n int) bool {
	step := 1 << max(0, bits.Len(uint(n))-4)
	return n&(step-1) == 0
}

// Thinner leaves out of chains what lines before have told. It remembers the hashes that were written of late, so that its memory
// is bounded. The zero value is not ready; use by one goroutine.
type Thinner struct {
	written *Recent[uint64, struct{}]
	points  []int
}

// NewThinner returns a Thinner that remembers between room and twice as many hashes.
func NewThinner(room int) *Thinner { return &Thinner{written: NewRecent[uint64, struct{}](room, nil)} }

// Reset forgets everything: a new file begins.
func (t *Thinner) Reset() { t.written.Forget() }

// Thin fills p with what is to be written of a chain, with hashes as they are in the chain, and counts it as written.
func (t *Thinner) Thin(chain []uint64, p *Prefix) {
	p.Blocks, p.Known, p.Hashes = len(chain), 0, p.Hashes[:0]
	for n := len(chain); n > 0 && p.Known == 0; n-- {
		if _, told := t.written.Get(chain[n-1]); told {
			p.Known = n
		}
	}
	t.points = points(t.points[:0], p.Known, p.Blocks)
	for _, n := range t.points {
		p.Hashes = append(p.Hashes, chain[n-1])
		t.written.Put(chain[n-1], struct{}{})
	}
}

// Chains makes chains of what lines say of them. Blocks that are the same in two chains, as far as lines tell, have the same
// number in both. It remembers what lines have told of late, so that its memory is bounded, and much more than those who write
// refer to. Use by one goroutine.
type Chains struct {
	known  *Recent[uint64, *Chain] // by the hash of its last block
	points []int
}

// Chain is a chain of blocks. It shares its memory with others, is never changed, and may be used by any number of goroutines.
type Chain struct {
	before *Chain // its first blocks, nil = none
	Segment
}

// Segment is the end of a chain, as far back as lines tell of it as one.
type Segment struct {
	Blocks int    // of the whole chain
	Name   uint64 // of its last block, which stands for all before it too
}

// rememberedChains is how many ends of chains a reader remembers at least: as many as a writer refers back over at most.
const rememberedChains = 1 << 18

// NewChains returns Chains that know none.
func NewChains() *Chains { return newChains(rememberedChains) }

func newChains(room int) *Chains { return &Chains{known: NewRecent[uint64, *Chain](room, nil)} }

// Of returns the chain that p tells of, nil for none. Hashes under different keys have nothing in common.
func (c *Chains) Of(key string, p *Prefix) *Chain {
	c.points = points(c.points[:0], p.Known, p.Blocks)
	salt := nameOf(key)
	var chain *Chain
	from := len(c.points) - 1
	for ; from >= 0; from-- {
		if k, ok := c.known.Get(scramble(p.Hashes[from] ^ salt)); ok && k.Blocks == c.points[from] {
			chain = k
			break
		}
	}
	for i := range max(from, 0) { // told once more, they are remembered for longer
		c.known.Get(scramble(p.Hashes[i] ^ salt))
	}
	for i := from + 1; i < len(c.points); i++ {
		name := scramble(p.Hashes[i] ^ salt)
		chain = &Chain{chain, Segment{c.points[i], name}}
		c.known.Put(name, chain)
	}
	return chain
}

// Before returns the chain that this one goes on from as far as lines tell; nil if it is nil or begins anew.
func (c *Chain) Before() *Chain {
	if c == nil {
		return nil
	}
	return c.before
}

// Segments appends the chain's segments to dst, from its first block on.
func (c *Chain) Segments(dst []Segment) []Segment {
	from := len(dst)
	for ; c != nil; c = c.before {
		dst = append(dst, c.Segment)
	}
	slices.Reverse(dst[from:])
	return dst
}

// Append appends a number for each block of the chain to dst (Blocks).
func (c *Chain) Append(dst []uint64) []uint64 { return Blocks(dst, c.Segments(nil)) }

// Blocks appends a number for each block of a chain of those segments to dst. It stands for all blocks before it too.
func Blocks(dst []uint64, chain []Segment) []uint64 {
	if len(chain) > 0 {
		dst = slices.Grow(dst, chain[len(chain)-1].Blocks)
	}
	n := 0
	for _, s := range chain {
		for ; n < s.Blocks; n++ {
			dst = append(dst, scramble(s.Name+uint64(s.Blocks-n-1)))
		}
	}
	return dst
}

// nameOf is a number for a text (FNV-1a).
func nameOf(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// scramble is the finaliser of SplitMix64, which maps no two numbers to one.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

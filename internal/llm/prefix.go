package llm

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// PrefixBlock is the text, in bytes, that one hash of a prefix chain stands for: about 64 tokens, the block in which
// engines and pickers that know tokens keep their caches (16 to 64).
const PrefixBlock = 256

// MaxPrefixBlocks is the length of the longest chain: 1 MiB of text, about 262,144 tokens. What follows is not hashed.
const MaxPrefixBlocks = 4096

// PrefixKey is the secret under which prefixes are hashed: who has the hashes but not the key learns nothing about the
// text, and cannot make two texts collide. It never changes; use it by any number of goroutines.
type PrefixKey struct {
	block  [PrefixBlock / 8]uint64
	c0, c1 uint64 // for the chain
	k0, k1 uint64 // for what leaves it
}

// NewPrefixKey derives a key from a secret. Chains can be compared exactly if they were made under the same secret, in one
// process or in several.
func NewPrefixKey(secret [32]byte) *PrefixKey {
	r := rand.NewChaCha8(secret)
	k := &PrefixKey{c0: r.Uint64(), c1: r.Uint64(), k0: r.Uint64(), k1: r.Uint64()}
	for i := range k.block {
		k.block[i] = r.Uint64()
	}
	return k
}

// Prompt hashes the prompt of one request after the other while ScanPrompt reads them. It keeps buffers (up to 64 KiB for
// a prompt of 1 MiB) but no text. Use by one goroutine at a time.
type Prompt struct {
	key   *PrefixKey
	sums  []sum // of the blocks of all parts, part by part, in the order of the body
	parts [fieldCount - firstPart]struct{ from, to int }
	from  int               // the current part's first sum
	n     int               // bytes in block
	block [PrefixBlock]byte // the text that is no whole block yet
	model string            // the last one
}

// sum is what a block comes to before it is chained.
type sum struct{ lo, hi uint64 }

// NewPrompt returns a Prompt that hashes under that key.
func NewPrompt(key *PrefixKey) *Prompt { return &Prompt{key: key} }

func (p *Prompt) reset() {
	p.sums = p.sums[:0]
	clear(p.parts[:])
}

// AppendPrefix appends the hash chain of the prompt that was scanned last to dst and returns it: one hash for each whole
// PrefixBlock of text, which depends on all that stands before too, so that two prompts have as many hashes in common as
// they share blocks from the start. Another tenant or model gives other hashes throughout. A body that ScanPrompt refused
// has no hashes.
//
// The text is that of tools, system and messages, in this order wherever they stand. Strings count as they are escaped.
// White space outside strings does not count, and of what holds prose only the prose does: names of members, brackets,
// types of parts and cache_control (which clients move from turn to turn) do not. The order of an object's members does.
func (p *Prompt) AppendPrefix(dst []uint64, tenant, model string) []uint64 {
	state := p.key.name(p.key.name(0, tenant), model)
	limit := len(dst) + MaxPrefixBlocks
	for i := range p.parts {
		sums := p.sums[p.parts[i].from:p.parts[i].to]
		for j, s := range sums {
			state = p.key.chain(state, s)
			// The last block of each part is not whole, and what sets a cache apart is no text.
			if j < len(sums)-1 && firstPart+field(i) >= fieldTools && len(dst) < limit {
				dst = append(dst, p.key.hash(state))
			}
		}
	}
	return dst
}

// begin starts a part. It returns false if there was one of that name before: only the first counts.
func (p *Prompt) begin(f field) bool {
	p.from, p.n = len(p.sums), 0
	return p.parts[f-firstPart].to == 0
}

// end ends a part. What is left makes a block with zeros, so that each part has at least one sum.
func (p *Prompt) end(f field) {
	clear(p.block[p.n:])
	p.sums = append(p.sums, p.key.sum(&p.block))
	clear(p.block[:p.n])
	p.parts[f-firstPart].from, p.parts[f-firstPart].to = p.from, len(p.sums)
}

// write adds text to the current part.
func (p *Prompt) write(text []byte) {
	n := copy(p.block[p.n:], text)
	if p.n += n; p.n < PrefixBlock {
		return
	}
	p.add(&p.block)
	text = text[n:]
	for len(text) >= PrefixBlock {
		p.add((*[PrefixBlock]byte)(text))
		text = text[PrefixBlock:]
	}
	p.n = copy(p.block[:], text)
}

func (p *Prompt) add(block *[PrefixBlock]byte) {
	if len(p.sums)-p.from < MaxPrefixBlocks {
		p.sums = append(p.sums, p.key.sum(block))
	}
}

// scalars adds numbers and literals, separated and perhaps surrounded by commas and colons: each with a comma behind it.
func (p *Prompt) scalars(text []byte) {
	for len(text) > 0 && class[text[0]] == classSeparator {
		text = text[1:]
	}
	if len(text) > 0 {
		p.write(text)
		if text[len(text)-1] != ',' {
			p.write([]byte{','})
		}
	}
}

// json adds a JSON value, valid or not, without the white space outside its strings.
func (p *Prompt) json(b []byte) {
	from := 0
	for i := 0; i < len(b); i++ {
		switch class[b[i]] {
		case classQuote:
			if i = stringEnd(b, i+1); i < 0 {
				return
			}
		case classSpace:
			p.write(b[from:i])
			from = i + 1
		}
	}
	p.write(b[from:])
}

// sum hashes a block by NH (RFC 4418, with words of 64 bits): to whom the key is unknown, two blocks have the same sum with
// a chance of 2^-64, whatever the texts.
func (k *PrefixKey) sum(text *[PrefixBlock]byte) sum {
	var hi, lo, carry uint64
	for i := 0; i < PrefixBlock; i += 64 { // unrolled: a third less time
		t, key := (*[64]byte)(text[i:i+64]), (*[8]uint64)(k.block[i/8:i/8+8])
		h1, l1 := bits.Mul64(word(t, 0)+key[0], word(t, 1)+key[1])
		h2, l2 := bits.Mul64(word(t, 2)+key[2], word(t, 3)+key[3])
		h3, l3 := bits.Mul64(word(t, 4)+key[4], word(t, 5)+key[5])
		h4, l4 := bits.Mul64(word(t, 6)+key[6], word(t, 7)+key[7])
		lo, carry = bits.Add64(lo, l1, 0)
		hi, _ = bits.Add64(hi, h1, carry)
		lo, carry = bits.Add64(lo, l2, 0)
		hi, _ = bits.Add64(hi, h2, carry)
		lo, carry = bits.Add64(lo, l3, 0)
		hi, _ = bits.Add64(hi, h3, carry)
		lo, carry = bits.Add64(lo, l4, 0)
		hi, _ = bits.Add64(hi, h4, carry)
	}
	return sum{lo, hi}
}

// chain folds a block's sum into what all before it came to, by the halves of a product (as wyhash does): texts that
// differ come to the same with a chance of about 2^-63, whoever wrote them, as long as the key is secret.
func (k *PrefixKey) chain(state uint64, s sum) uint64 {
	hi, lo := bits.Mul64(state^s.lo^k.c0, s.hi^k.c1)
	return hi ^ lo
}

// hash makes a state of the chain look random to all who lack the key, by SipHash. It stands outside the chain, so that a
// processor works on several at a time.
func (k *PrefixKey) hash(state uint64) uint64 { return siphash(k.k0, k.k1, state) }

// name chains a name of any length.
func (k *PrefixKey) name(state uint64, name string) uint64 {
	state = k.chain(state, sum{lo: uint64(len(name))})
	var word [16]byte
	for len(name) > 0 {
		clear(word[copy(word[:], name):])
		name = name[min(len(word), len(name)):]
		state = k.chain(state, sum{binary.LittleEndian.Uint64(word[:8]), binary.LittleEndian.Uint64(word[8:])})
	}
	return state
}

func word(text *[64]byte, i int) uint64 { return binary.LittleEndian.Uint64(text[8*i : 8*i+8]) }

// siphash is SipHash-1-3 (Aumasson and Bernstein 2012, with the rounds of Rust and Python) of one little-endian word.
func siphash(k0, k1, a uint64) uint64 {
	const size = 8 << 56 // bytes, in the top byte of the last word
	v0, v1, v2, v3 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d, k0^0x6c7967656e657261, k1^0x7465646279746573
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3^a)
	v0, v1, v2, v3 = sipRound(v0^a, v1, v2, v3^size)
	v0, v1, v2, v3 = sipRound(v0^size, v1, v2^0xff, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	return v0 ^ v1 ^ v2 ^ v3
}

func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}

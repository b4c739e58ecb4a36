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

// Prompt says where in a body the parts are that decide what the model reads. ScanPrompt fills it; it holds no text.
type Prompt struct {
	parts [partCount]span
}

// span is a part of a body. solid means no white space outside its strings.
type span struct {
	start, end int
	solid      bool
}

// part is a member of the body that counts for the prefix. The order is the one in which a model sees them, or that in
// which engines key their caches: what sets a cache apart first, then tools, system, messages.
type part uint8

const (
	partNone part = iota
	partCacheSalt
	partChatTemplate
	partTemplateArgs
	partReasoningEffort
	partReasoning
	partPreviousResponse
	partConversation
	partTools // from here on text that the model sees
	partFunctions
	partSystem // from here on prose: what holds it does not count
	partInstructions
	partDocuments
	partMessages
	partInput
	partPrompt
	partSuffix
	partCount
)

func partOf(name []byte) part {
	switch string(name) {
	case "cache_salt":
		return partCacheSalt
	case "chat_template":
		return partChatTemplate
	case "chat_template_kwargs":
		return partTemplateArgs
	case "reasoning_effort":
		return partReasoningEffort
	case "reasoning":
		return partReasoning
	case "previous_response_id":
		return partPreviousResponse
	case "conversation":
		return partConversation
	case "tools":
		return partTools
	case "functions":
		return partFunctions
	case "system":
		return partSystem
	case "instructions":
		return partInstructions
	case "documents":
		return partDocuments
	case "messages":
		return partMessages
	case "input":
		return partInput
	case "prompt":
		return partPrompt
	case "suffix":
		return partSuffix
	}
	return partNone
}

// PrefixKey is the secret under which prefixes are hashed: who has the hashes but not the key learns nothing about the
// text, and cannot make two texts collide. It never changes; use it by any number of goroutines.
type PrefixKey struct {
	block  [PrefixBlock / 8]uint64
	k0, k1 uint64
}

// NewPrefixKey derives a key from a secret. Chains can be compared exactly if they were made under the same secret, in one
// process or in several.
func NewPrefixKey(secret [32]byte) *PrefixKey {
	r := rand.NewChaCha8(secret)
	k := &PrefixKey{k0: r.Uint64(), k1: r.Uint64()}
	for i := range k.block {
		k.block[i] = r.Uint64()
	}
	return k
}

// Append appends the hash chain of a prompt to dst and returns it: one hash for each whole PrefixBlock of text, which
// depends on all that stands before too, so that two prompts have as many hashes in common as they share blocks from the
// start. p is what ScanPrompt found in that body. Another tenant or model gives other hashes throughout.
//
// Strings count as they are escaped. White space outside strings does not count, and of what holds prose only the prose
// does: names of members, brackets, types of parts and cache_control (which clients move from turn to turn) do not. The
// order of members does.
func (k *PrefixKey) Append(dst []uint64, body []byte, p *Prompt, tenant, model string) []uint64 {
	c := chain{key: k, hashes: dst, limit: len(dst) + MaxPrefixBlocks}
	c.name(tenant)
	c.name(model)
	for _, s := range p.parts[partNone+1 : partTools] {
		c.json(body, s)
	}
	c.pad()
	c.hashes = dst // what was hashed so far is no text
	for _, s := range p.parts[partTools:partSystem] {
		c.json(body, s)
	}
	for _, s := range p.parts[partSystem:] {
		c.prose(body[:s.end], s.start)
	}
	return c.hashes
}

// chain cuts text into blocks and hashes each together with the hash before it.
type chain struct {
	key    *PrefixKey
	hash   uint64
	hashes []uint64
	limit  int // length of hashes at which to stop
	n      int // bytes in buf
	buf    [PrefixBlock]byte
}

func (c *chain) write(text []byte) {
	if c.n > 0 {
		n := copy(c.buf[c.n:], text)
		text = text[n:]
		if c.n += n; c.n < PrefixBlock {
			return
		}
		c.block(&c.buf)
	}
	for len(text) >= PrefixBlock && len(c.hashes) < c.limit {
		c.block((*[PrefixBlock]byte)(text))
		text = text[PrefixBlock:]
	}
	c.n = copy(c.buf[:], text)
}

func (c *chain) block(text *[PrefixBlock]byte) {
	if len(c.hashes) < c.limit {
		c.hash = c.key.sum(c.hash, text)
		c.hashes = append(c.hashes, c.hash)
	}
}

// name writes a name so that no two lists of names look the same.
func (c *chain) name(s string) {
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(s)))
	c.write(size[:])
	c.write([]byte(s))
}

// pad ends the current block.
func (c *chain) pad() {
	clear(c.buf[c.n:])
	c.block(&c.buf)
	c.n = 0
}

// json writes a part without the white space outside its strings.
func (c *chain) json(body []byte, s span) {
	if s.solid {
		c.write(body[s.start:s.end])
		return
	}
	b, from := body[:s.end], s.start
	for i := from; i < len(b) && len(c.hashes) < c.limit; i++ {
		switch class[b[i]] {
		case classQuote:
			if i = stringEnd(b, i+1); i < 0 {
				return
			}
		case classSpace:
			c.write(b[from:i])
			from = i + 1
		}
	}
	c.write(b[from:])
}

// prose writes what a model reads of the value that starts at b[i] and ends with b: strings, each with the quote that ends
// it, and other scalars, each with a comma.
func (c *chain) prose(b []byte, i int) {
	isType := false
	for i < len(b) && len(c.hashes) < c.limit {
		switch class[b[i]] {
		case classQuote:
			start, end := i+1, stringEnd(b, i+1)
			if end < 0 {
				return
			}
			i = end + 1
			if at := colon(b, i); at < 0 {
				if !isType {
					c.write(b[start:i])
				}
				isType = false
				continue
			} else {
				i = at + 1
			}
			name := b[start:end]
			isType = string(name) == "type"
			if string(name) == "cache_control" {
				s := scanner{b: b, i: i}
				s.skip()
				i = s.i
			}
		case classPlain:
			from := i
			for i < len(b) && class[b[i]]-classPlain <= classSeparator-classPlain && b[i] != ':' { // long lists of numbers in one go
				i++
			}
			c.write(b[from:i])
			if b[i-1] != ',' {
				c.write([]byte{','})
			}
			isType = false
		default:
			i++
		}
	}
}

// colon returns the index of the colon that follows at b[i], perhaps after white space, or -1.
func colon(b []byte, i int) int {
	for ; i < len(b); i++ {
		if b[i] == ':' {
			return i
		}
		if class[b[i]] != classSpace {
			break
		}
	}
	return -1
}

// sum hashes a block together with the hash of all before it. NH (RFC 4418, with words of 64 bits) brings the block to 128
// bits; whatever the text, two blocks give the same with a chance of 2^-64. SipHash-1-3 of these and the previous hash
// makes the result look random to all who lack the key.
func (k *PrefixKey) sum(prev uint64, text *[PrefixBlock]byte) uint64 {
	var hi, lo, hi2, lo2, carry uint64
	for i := 0; i < len(k.block); i += 4 { // two sums, which a processor can do side by side
		h, l := bits.Mul64(word(text, i)+k.block[i], word(text, i+1)+k.block[i+1])
		h2, l2 := bits.Mul64(word(text, i+2)+k.block[i+2], word(text, i+3)+k.block[i+3])
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry
		lo2, carry = bits.Add64(lo2, l2, 0)
		hi2 += h2 + carry
	}
	lo, carry = bits.Add64(lo, lo2, 0)
	return siphash(k.k0, k.k1, prev, lo, hi+hi2+carry)
}

func word(text *[PrefixBlock]byte, i int) uint64 {
	return binary.LittleEndian.Uint64(text[8*i : 8*i+8])
}

// siphash is SipHash-1-3 (Aumasson and Bernstein 2012, with the rounds of Rust and Python) of three little-endian words.
func siphash(k0, k1, a, b, c uint64) uint64 {
	v := sip{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	v = v.absorb(a).absorb(b).absorb(c).absorb(24 << 56) // the length in bytes
	v.v2 ^= 0xff
	v = v.round().round().round()
	return v.v0 ^ v.v1 ^ v.v2 ^ v.v3
}

type sip struct{ v0, v1, v2, v3 uint64 }

func (v sip) absorb(m uint64) sip {
	v.v3 ^= m
	v = v.round()
	v.v0 ^= m
	return v
}

func (v sip) round() sip {
	v.v0 += v.v1
	v.v1 = bits.RotateLeft64(v.v1, 13) ^ v.v0
	v.v0 = bits.RotateLeft64(v.v0, 32)
	v.v2 += v.v3
	v.v3 = bits.RotateLeft64(v.v3, 16) ^ v.v2
	v.v0 += v.v3
	v.v3 = bits.RotateLeft64(v.v3, 21) ^ v.v0
	v.v2 += v.v1
	v.v1 = bits.RotateLeft64(v.v1, 17) ^ v.v2
	v.v2 = bits.RotateLeft64(v.v2, 32)
	return v
}

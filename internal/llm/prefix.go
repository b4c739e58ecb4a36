package llm

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"evenkeel/internal/route"
	"evenkeel/internal/simd"
)

// PrefixBlock is the text, in bytes, that one hash of a prefix chain stands for: about 64 tokens, the block in which
// engines and pickers that know tokens keep their caches (16 to 64).
const PrefixBlock = simd.Block

// MaxPrefixBlocks is the length of the longest chain: 1 MiB of text, about 262,144 tokens. What follows is not hashed.
const MaxPrefixBlocks = 4096

// PrefixKey is the secret under which prefixes are hashed: who lacks it cannot make two texts collide but by chance. It is
// not meant to hide texts from those who have many hashes. It never changes; use it by any number of goroutines.
type PrefixKey struct {
	blocks simd.HashKey
	c0, c1 uint64 // for the chain
}

// NewPrefixKey derives a key from a secret. Chains can be compared exactly if they were made under the same secret, in one
// process or in several.
func NewPrefixKey(secret [32]byte) *PrefixKey {
	r := rand.NewChaCha8(secret)
	k := &PrefixKey{c0: r.Uint64(), c1: r.Uint64()}
	for i := range k.blocks.Fold {
		k.blocks.Fold[i] = r.Uint64()
	}
	for i := range k.blocks.Text {
		k.blocks.Text[i] = r.Uint64()
	}
	return k
}

// Prompt hashes the prompt of one request after the other while ScanPrompt reads them. It keeps buffers (up to 32 KiB for
// a prompt of 1 MiB) but no text. Use by one goroutine at a time.
type Prompt struct {
	key   *PrefixKey
	sums  []uint64 // of the blocks of all parts, part by part, in the order of the body
	parts [fieldCount - firstPart]part
	part  field             // the current one
	from  int               // its first sum
	n     int               // bytes in block
	block [PrefixBlock]byte // the text that is no whole block yet
	turns turns
	model string // the last one
}

// part is where the sums of a part are.
type part struct {
	from, to int
	rest     int // bytes that fill no block, which the last sum is of
}

// NewPrompt returns a Prompt that hashes under that key.
func NewPrompt(key *PrefixKey) *Prompt { return &Prompt{key: key} }

func (p *Prompt) reset() {
	p.sums = p.sums[:0]
	clear(p.parts[:])
	p.turns.told, p.turns.n = 0, 0
}

// AppendPrefix appends the hash chain of the prompt that was scanned last to dst and returns it: one hash for each whole
// PrefixBlock of text, which depends on all that stands before too, so that two prompts have as many hashes in common as
// they share blocks from the start. Another tenant or model gives other hashes throughout. A body that ScanPrompt refused
// has no hashes. Where messages say whose they are, the result also tells where the model's stand.
//
// The text is that of tools, system and messages, in this order wherever they stand. Strings count as they are escaped.
// White space outside strings does not count, and of what holds prose only the prose does: names of members, brackets,
// types of parts and cache_control (which clients move from turn to turn) do not. The order of an object's members does.
func (p *Prompt) AppendPrefix(dst []uint64, tenant, model string) ([]uint64, route.Turns) {
	var t route.Turns
	hash := chainName(p.key, chainName(p.key, 0, tenant), model)
	from, rest := len(dst), 0
	limit := from + MaxPrefixBlocks
	for i := range p.parts {
		f, sums := firstPart+field(i), p.sums[p.parts[i].from:p.parts[i].to]
		if len(sums) == 0 {
			continue
		}
		// The last block of each part is not whole, and what sets a cache apart is no text.
		last := len(sums) - 1
		if f < fieldTools {
			for _, s := range sums {
				hash = p.key.chain(hash, s, 0)
			}
			continue
		}
		for j := 0; j < last; {
			to := last
			if f == p.turns.told {
				to = p.turns.tell(&t, p.key, hash, j, last, len(dst)-from, rest)
			}
			dst, hash = p.key.appendChain(dst, hash, sums[j:to], limit)
			j = to
		}
		if f == p.turns.told {
			p.turns.tell(&t, p.key, hash, last, last, len(dst)-from, rest)
		}
		hash = p.key.chain(hash, sums[last], 0)
		rest += p.parts[i].rest
	}
	t.Text = (len(dst)-from)*PrefixBlock + rest
	switch {
	case len(dst) == limit: // what is behind that is not hashed
		t.Past, t.Text = [route.PastTurns]route.Turn{}, 0
	case p.turns.told != 0:
		if t.End = hash; t.Opening == 0 {
			t.Opening = hash
		}
	}
	return dst, t
}

// Text hashes the whole prompt that was scanned last, with what fills no block: that of two requests is the same if they ask
// for the same. 0 if there is no text.
func (p *Prompt) Text() uint64 {
	var hash uint64
	for _, s := range p.sums {
		hash = p.key.chain(hash, s, 0)
	}
	return hash
}

// Session hashes a client's name for its session under the key: another tenant's of the same name is another one. It is never 0.
func Session[T string | []byte](k *PrefixKey, tenant string, name T) uint64 {
	const apart = 1 // from the hashes of prompts
	return max(k.chain(chainName(k, chainName(k, 0, tenant), name), apart, 0), 1)
}

// begin starts a part. It returns false if there was one of that name before: only the first counts.
func (p *Prompt) begin(f field) bool {
	p.part, p.from, p.n = f, len(p.sums), 0
	return p.parts[f-firstPart].to == 0
}

// end ends a part. What is left makes a block with zeros, so that each part has at least one sum.
func (p *Prompt) end(f field) {
	clear(p.block[p.n:])
	p.sums = p.key.appendSums(p.sums, p.block[:])
	clear(p.block[:p.n])
	p.hashTurns()
	p.parts[f-firstPart] = part{p.from, len(p.sums), p.n}
}

// write adds text to the current part.
func (p *Prompt) write(text []byte) {
	n := copy(p.block[p.n:], text)
	if p.n += n; p.n < PrefixBlock {
		return
	}
	if p.turns.open {
		p.turns.fill(p.block[:])
	}
	p.add(p.block[:])
	text = text[n:]
	p.add(text)
	p.n = copy(p.block[:], text[len(text)&^(PrefixBlock-1):])
}

// add hashes the whole blocks of text, as far as a chain is long.
func (p *Prompt) add(text []byte) {
	most := (MaxPrefixBlocks - (len(p.sums) - p.from)) * PrefixBlock
	p.sums = p.key.appendSums(p.sums, text[:min(len(text), most)])
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
			if i = simd.StringEnd(b, i+1); i < 0 {
				return
			}
		case classSpace:
			p.write(b[from:i])
			from = i + 1
		}
	}
	p.write(b[from:])
}

// appendSums hashes the whole blocks of text, each on its own.
func (k *PrefixKey) appendSums(dst []uint64, text []byte) []uint64 {
	n := len(text) / PrefixBlock
	dst = slices.Grow(dst, n)[:len(dst)+n]
	k.blocks.Sum(dst[len(dst)-n:], text)
	return dst
}

// appendChain goes on with a chain by those sums, up to a length.
func (k *PrefixKey) appendChain(dst []uint64, hash uint64, sums []uint64, limit int) ([]uint64, uint64) {
	at := len(dst)
	room := min(len(sums), limit-at)
	dst = slices.Grow(dst, room)[:at+room]
	for i, s := range sums[:room] {
		hash = k.chain(hash, s, 0)
		dst[at+i] = hash
	}
	for _, s := range sums[room:] {
		hash = k.chain(hash, s, 0)
	}
	return dst, hash
}

// chain hashes two words together with the hash of all before them.
func (k *PrefixKey) chain(hash, a, b uint64) uint64 { return simd.Fold(hash^a^k.c0, b^k.c1) }

// chainName chains a name of any length.
func chainName[T string | []byte](k *PrefixKey, hash uint64, name T) uint64 {
	hash = k.chain(hash, uint64(len(name)), 0)
	var word [16]byte
	for len(name) > 0 {
		clear(word[copy(word[:], name):])
		name = name[min(len(word), len(name)):]
		hash = k.chain(hash, binary.LittleEndian.Uint64(word[:8]), binary.LittleEndian.Uint64(word[8:]))
	}
	return hash
}

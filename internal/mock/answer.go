package mock

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math/bits"
	"strconv"
)

// created is every answer's creation time: 2026-01-01 UTC. A constant, so that equal requests get equal bytes.
const created = 1767225600

// words are the vocabulary: three bytes each, so that a token with its space is tokenBytes. They need no escapes in JSON; some are not
// ASCII, so that a cut in the middle of a rune shows.
var words = [64]string{
	"oar", "sea", "fog", "bow", "rig", "jib", "tug", "cog", "bay", "cay", "ebb", "mud", "log", "map", "row", "tow",
	"tar", "net", "cod", "eel", "hub", "ark", "cat", "pod", "ray", "auk", "sun", "sky", "ice", "dew", "wet", "dry",
	"far", "low", "lee", "aft", "fro", "yaw", "tip", "keg", "rum", "tea", "rye", "fig", "the", "and", "for", "was",
	"not", "but", "all", "one", "né", "où", "dû", "ça", "là", "öl", "海", "港", "風", "京", "⚓", "☀",
}

// answer is one answer being written: the call and what follows from it.
type answer struct {
	call
	name    string // of the engine
	model   []byte // as JSON, quoted
	tokens  int    // length of the output
	limited bool   // the request's own limit made it that short
	usage   bool   // usage may be told
	cached  int    // prompt tokens that the cache held
	seed    uint64
	id      []byte // hexadecimal, no prefix

	pad, padAt int // token padAt is pad bytes long, if pad > 0

	before, after []byte // what the dialect puts around a streamed token
}

// prepare fills the answer for a call to engine e. Slices of an earlier answer are used again.
func (a *answer) prepare(e *Engine, c call, model []byte) {
	a.call, a.name, a.model = c, e.cfg.Name, model
	a.tokens, a.limited = c.outputTokens(e.cfg.OutputTokens)
	if a.tool != nil {
		a.tokens, a.limited = max(3, min(a.tokens, 6)), false // the braces are the first and the last token
	}
	a.usage, a.pad, a.cached = true, 0, 0
	a.seed = mix(e.cfg.Seed ^ uint64(c.hash)<<20 ^ uint64(crc32.ChecksumIEEE([]byte(e.cfg.Name))))
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], a.seed)
	a.id = hex.AppendEncode(a.id[:0], raw[:])
}

// mix is a step of splitmix64: neighbouring inputs give unrelated outputs.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// piece appends token i as it stands inside a JSON string.
func (a *answer) piece(b []byte, i int) []byte {
	if a.pad > 0 && i == a.padAt {
		for range a.pad {
			b = append(b, 'x')
		}
		return b
	}
	word := words[bits.RotateLeft64(mix(a.seed+uint64(i)), 7)%uint64(len(words))]
	switch {
	case a.tool != nil && i == 0:
		return append(b, `{\"text\":\"`...)
	case a.tool != nil && i == a.tokens-1:
		return append(b, `\"}`...)
	case a.tool == nil && i == 0:
		b = append(b, '[')
		b = append(b, a.name...)
		return append(b, ']')
	case a.tool == nil || i > 1:
		b = append(b, ' ')
	}
	return append(b, word...)
}

// text appends the whole output as it stands inside a JSON string.
func (a *answer) text(b []byte) []byte {
	for i := range a.tokens {
		b = a.piece(b, i)
	}
	return b
}

// token appends the event of token i, from the parts the dialect prepared.
func (a *answer) token(b []byte, i int) []byte {
	b = append(b, a.before...)
	b = a.piece(b, i)
	return append(b, a.after...)
}

// dialect is one wire format. Its methods append to b and return it; events end with an empty line.
type dialect interface {
	// flaw names a field, beside model, without which or with which the call cannot be answered, and says why; "" if there is none.
	flaw(c *call) (field, why string)
	// open appends the events before the first token and prepares the parts around tokens.
	open(b []byte, a *answer) []byte
	// token appends the event of token i.
	token(b []byte, a *answer, i int) []byte
	// shut appends the events after the last token.
	shut(b []byte, a *answer) []byte
	// whole appends the body of an answer that is not streamed.
	whole(b []byte, a *answer) []byte
	// failure appends the events that tell of an error inside a stream. sent is how many events came before.
	failure(b []byte, p problem, sent int) []byte
	// problem appends the body of an error answer.
	problem(b []byte, p problem) []byte
}

// problem is an error for the client.
type problem struct {
	status  int
	message string
	param   string // the field at fault
	code    string
}

// app is a list of strings and numbers appended to b: the events are long, and this keeps them readable.
func app(b []byte, parts ...any) []byte {
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		case int:
			b = strconv.AppendInt(b, int64(p), 10)
		default:
			panic("BUG: mock: app takes strings, bytes and ints")
		}
	}
	return b
}

package gguf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
)

// Model says how large a model is and which one of its size. Equal values
// give equal bytes.
type Model struct {
	Dim         int    // embedding size; a multiple of 2·Heads
	Layers      int    // blocks
	Heads       int    // attention heads; a multiple of KVHeads
	KVHeads     int    // heads of the key-value cache
	FeedForward int    // inner size of the feed-forward part
	Context     int    // longest context in tokens that the file claims to be trained for
	Seed        uint64 // of the weights
}

// Tiny has about 0.2 million weights: one CPU thread decodes thousands of
// tokens per second and reads a 64 KiB prompt in seconds.
func Tiny(seed uint64) Model {
	return Model{Dim: 64, Layers: 2, Heads: 4, KVHeads: 2, FeedForward: 192, Context: 1 << 17, Seed: seed}
}

// Small has about 24 million weights: one CPU thread decodes some hundred
// tokens per second, so that prefill, decoding and the prefix cache take time
// that can be seen.
func Small(seed uint64) Model {
	return Model{Dim: 512, Layers: 8, Heads: 8, KVHeads: 4, FeedForward: 1408, Context: 1 << 15, Seed: seed}
}

// sharpness is the standard deviation of the logits of the tokens that the
// model may say; all others get logit 0. At 4 an answer goes on until its
// limit and hardly ever says a token that is not a word.
const sharpness = 4

// Write writes the model as a GGUF file.
func (m Model) Write(w io.Writer) error {
	if err := m.check(); err != nil {
		return err
	}
	v := newVocabulary()
	return encode(w, m.metadata(v), m.tensors(v))
}

func (m Model) check() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"Dim", m.Dim}, {"Layers", m.Layers}, {"Heads", m.Heads}, {"KVHeads", m.KVHeads},
		{"FeedForward", m.FeedForward}, {"Context", m.Context},
	} {
		if f.value < 1 {
			return fmt.Errorf("gguf: %s is %d, must be at least 1", f.name, f.value)
		}
	}
	if m.Dim%(2*m.Heads) != 0 {
		return fmt.Errorf("gguf: Dim %d is no multiple of twice the Heads %d", m.Dim, m.Heads)
	}
	if m.Heads%m.KVHeads != 0 {
		return fmt.Errorf("gguf: Heads %d is no multiple of KVHeads %d", m.Heads, m.KVHeads)
	}
	if m.Dim*m.FeedForward > 1<<28 {
		return errors.New("gguf: larger than this test tool is made for")
	}
	return nil
}

func (m Model) metadata(v *vocabulary) *metadata {
	kv := &metadata{}
	kv.text("general.architecture", "llama")
	kv.text("general.name", "random llama")
	kv.number("general.alignment", alignment)
	kv.number("general.file_type", 1) // mostly float16
	kv.number("llama.context_length", m.Context)
	kv.number("llama.block_count", m.Layers)
	kv.number("llama.embedding_length", m.Dim)
	kv.number("llama.feed_forward_length", m.FeedForward)
	kv.number("llama.attention.head_count", m.Heads)
	kv.number("llama.attention.head_count_kv", m.KVHeads)
	kv.number("llama.rope.dimension_count", m.Dim/m.Heads)
	kv.float("llama.attention.layer_norm_rms_epsilon", 1e-5)
	kv.number("llama.vocab_size", len(v.tokens))

	kv.text("tokenizer.ggml.model", "llama") // SentencePiece
	kv.array("tokenizer.ggml.tokens", typeString, len(v.tokens), func(b []byte, i int) []byte {
		return appendString(b, v.tokens[i].text)
	})
	kv.array("tokenizer.ggml.scores", typeFloat32, len(v.tokens), func(b []byte, i int) []byte {
		return appendUint32(b, math.Float32bits(v.tokens[i].score))
	})
	kv.array("tokenizer.ggml.token_type", typeInt32, len(v.tokens), func(b []byte, i int) []byte {
		return appendUint32(b, uint32(v.tokens[i].kind))
	})
	kv.number("tokenizer.ggml.unknown_token_id", v.index[unknownText])
	kv.number("tokenizer.ggml.bos_token_id", v.index[beginText])
	kv.number("tokenizer.ggml.eos_token_id", v.index[turnEnd])
	kv.flag("tokenizer.ggml.add_bos_token", true)
	kv.flag("tokenizer.ggml.add_eos_token", false)
	kv.flag("tokenizer.ggml.add_space_prefix", false)
	kv.text("tokenizer.chat_template", chatTemplate)
	return kv
}

// tensors lists the weights. Projections are scaled by the square root of
// their input size, so that activations keep their size through the layers.
func (m Model) tensors(v *vocabulary) []tensor {
	rng := rand.New(rand.NewPCG(m.Seed, 0))
	normal := func(deviation float64) func(int) float32 {
		return func(int) float32 { return float32(deviation * rng.NormFloat64()) }
	}
	projection := func(name string, from, to int) tensor {
		return tensor{name, float16Tensor, from, to, normal(1 / math.Sqrt(float64(from)))}
	}
	norm := func(name string) tensor {
		return tensor{name, float32Tensor, m.Dim, 1, func(int) float32 { return 1 }}
	}
	kvDim := m.Dim / m.Heads * m.KVHeads

	ts := []tensor{{"token_embd.weight", float16Tensor, m.Dim, len(v.tokens), normal(1)}}
	for i := range m.Layers {
		block := fmt.Sprintf("blk.%d.", i)
		ts = append(ts,
			norm(block+"attn_norm.weight"),
			projection(block+"attn_q.weight", m.Dim, m.Dim),
			projection(block+"attn_k.weight", m.Dim, kvDim),
			projection(block+"attn_v.weight", m.Dim, kvDim),
			projection(block+"attn_output.weight", m.Dim, m.Dim),
			norm(block+"ffn_norm.weight"),
			projection(block+"ffn_gate.weight", m.Dim, m.FeedForward),
			projection(block+"ffn_up.weight", m.Dim, m.FeedForward),
			projection(block+"ffn_down.weight", m.FeedForward, m.Dim),
		)
	}
	logits := normal(sharpness / math.Sqrt(float64(m.Dim)))
	return append(ts, norm("output_norm.weight"), tensor{
		"output.weight", float16Tensor, m.Dim, len(v.tokens), func(row int) float32 {
			if !v.tokens[row].said {
				return 0
			}
			return logits(row)
		},
	})
}

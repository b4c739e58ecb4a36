package sim

import (
	"encoding/json"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/trace"
)

// dialogues are traffic as text: what was asked, and what was answered.
type dialogues struct {
	rng   *rand.Rand
	turns []said
}

type said struct {
	messages []string // system, question, answer, question, ...
	answer   string
}

const textBytes = 4 // of a token

func (k *dialogues) text(bytes int) string {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = "etaoin shrdlu cmfwyp"[k.rng.IntN(20)]
	}
	return string(b)
}

func (k *dialogues) around(mean float64) int { return int(Law{mean, 0.7}.draw(k.rng)) + 1 }

// converse adds conversations of some turns, all with one of some system prompts, which run beside each other.
func (k *dialogues) converse(conversations, systems int, system, question, answer float64) {
	var prompts []string
	for range systems {
		prompts = append(prompts, k.text(k.around(system)))
	}
	open := make([][]string, conversations)
	for range 5 * conversations {
		c := k.rng.IntN(conversations)
		if open[c] == nil {
			open[c] = []string{prompts[k.rng.IntN(systems)]}
		}
		open[c] = append(open[c], k.text(k.around(question)))
		t := said{messages: append([]string(nil), open[c]...), answer: k.text(k.around(answer))}
		k.turns = append(k.turns, t)
		if k.rng.IntN(6) == 0 { // it is asked again, for a better answer
			t.answer = k.text(k.around(answer))
			k.turns = append(k.turns, t)
		}
		open[c] = append(open[c], t.answer)
	}
}

// body is the request of a turn.
func (t *said) body() []byte {
	var messages []map[string]string
	for i, m := range t.messages {
		role := "user"
		switch {
		case i == 0:
			role = "system"
		case i%2 == 0:
			role = "assistant"
		}
		messages = append(messages, map[string]string{"role": role, "content": m})
	}
	b, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	if err != nil {
		panic(err)
	}
	return b
}

// unboundedCache is a cache of all blocks there ever were.
type unboundedCache map[uint64]bool

// take returns how many blocks from the begin of chain were there, and keeps all of chain and what follows it.
func (c unboundedCache) take(chain, after []uint64) (hits int) {
	for hits < len(chain) && c[chain[hits]] {
		hits++
	}
	for _, h := range chain {
		c[h] = true
	}
	for _, h := range after {
		c[h] = true
	}
	return hits
}

// hitShare is what an engine with 16 tokens to a block, and all the memory it wants, finds in its cache.
func (k *dialogues) hitShare() float64 {
	const block = 16 * textBytes
	seed := maphash.MakeSeed()
	chain := func(text string) (chain []uint64) {
		for hash := uint64(0); len(text) >= block; text = text[block:] {
			hash = mix(hash ^ maphash.String(seed, text[:block]))
			chain = append(chain, hash)
		}
		return chain
	}
	cache, hits, all := unboundedCache{}, 0, 0
	for _, t := range k.turns {
		prompt := strings.Join(t.messages, "")
		hits += 16 * cache.take(chain(prompt), chain(prompt+t.answer))
		all += len(prompt) / textBytes
	}
	return float64(hits) / float64(all)
}

// replayed is what such an engine finds when the recorded traffic is played.
func (k *dialogues) replayed(t *testing.T) float64 {
	api := llm.APIOf("POST", "/v1/chat/completions")
	prompt := llm.NewPrompt(llm.NewPrefixKey([32]byte{1}))
	n := newNotebook()
	for i, turn := range k.turns {
		body := turn.body()
		r, err := llm.ScanPrompt(api, "application/json", body, prompt)
		if err != nil {
			t.Fatal(err)
		}
		chain, _ := prompt.AppendPrefix(nil, "tenant", r.Model)
		for i := range chain {
			chain[i] >>= 64 - trace.HashBits
		}
		e := exchanged(time.Duration(i)*2*time.Second, len(strings.Join(turn.messages, ""))/textBytes, len(turn.answer)/textBytes)
		e.Bytes = r.PromptBytes
		n.write(e, chain)
	}
	cache, hits, all := unboundedCache{}, 0, 0
	for _, r := range play(t, n.read(t), ReplayOptions{}) {
		hits += r.BlockTokens * cache.take(r.Prompt, r.Output)
		all += r.PromptTokens
	}
	return float64(hits) / float64(all)
}

// What prompts share survives being hashed by blocks of text, thinned, written, read and cut into blocks of tokens.
func TestRecordedTrafficHitsTheCacheAsItDid(t *testing.T) {
	f := func(what string, bound float64, add func(k *dialogues)) {
		t.Helper()
		for seed := range uint64(2) {
			k := &dialogues{rng: rand.New(rand.NewPCG(seed, 1))}
			add(k)
			want, got := k.hitShare(), k.replayed(t)
			t.Logf("%s: %d requests, hit share %.3f, replayed %.3f", what, len(k.turns), want, got)
			if math.Abs(got-want) > bound*want {
				t.Errorf("%s: the hit share is %.3f, replayed %.3f", what, want, got)
			}
		}
	}
	f("chats", 0.05, func(k *dialogues) { k.converse(40, 4, 4000, 400, 1200) })
	f("long system prompts", 0.03, func(k *dialogues) { k.converse(20, 5, 30_000, 400, 1200) })
	f("agents", 0.03, func(k *dialogues) { k.converse(6, 1, 20_000, 4000, 1500) })
	f("short questions to a common prompt", 0.08, func(k *dialogues) { k.converse(60, 1, 6000, 300, 600) })
	f("documents", 0.03, func(k *dialogues) { k.converse(5, 5, 200_000, 200, 800) })
}

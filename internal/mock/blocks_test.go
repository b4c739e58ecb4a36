package mock

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"evenkeel/internal/engine"
)

// sequenceOf is what the model is given for a body, with an answer of so many tokens.
func sequenceOf(t testing.TB, body string, tokens, blockTokens int) engine.Sequence {
	t.Helper()
	c, err := parseCall([]byte(body), true)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	a := answer{call: c, name: "ab", tokens: tokens}
	s := engine.Sequence{ID: 1, PromptTokens: a.promptTokens(), OutputTokens: max(1, tokens)}
	s.Prompt, s.Output = a.blocks(blockTokens)
	return s
}

func TestBlocks(t *testing.T) {
	// shared says how many blocks the two prompts have in common from the start, and how many they have.
	f := func(a, b, want string) {
		t.Helper()
		p, q := sequenceOf(t, a, 1, 2).Prompt, sequenceOf(t, b, 1, 2).Prompt
		n := 0
		for n < min(len(p), len(q)) && p[n] == q[n] {
			n++
		}
		if got := fmt.Sprintf("%d of %d and %d", n, len(p), len(q)); got != want {
			t.Errorf("%s\n%s\nshare %s, want %s", a, b, got, want)
		}
	}
	text := "01234567abcdefghABCDEFGH"
	f(`{"prompt":"`+text+`"}`, `{"prompt":"`+text+`"}`, "3 of 3 and 3")
	f(`{"prompt":"`+text+`"}`, `{"prompt":"`+text[:20]+`"}`, "2 of 3 and 2")
	f(`{"prompt":"`+text+`"}`, `{"prompt":"x`+text[1:]+`"}`, "0 of 3 and 3")
	f(`{"prompt":"`+text+`"}`, `{"prompt":["01234567","abcdefgh-"]}`, "2 of 3 and 2")
	f(`{"messages":[{"content":"`+text+`"}],"system":"be brief"}`, `{"system":"be brief","messages":[{"content":"`+text+`"}]}`, "4 of 4 and 4")
	f(`{"messages":[{"content":"\u00e9456789\n"}]}`, `{"messages":[{"content":[{"type":"text","text":"é456789\n"}]}]}`, "1 of 1 and 1")
	f(`{"prompt":[1,2,3,4]}`, `{"prompt":[1,2,4,3]}`, "1 of 2 and 2")
	f(`{"prompt":[1,2,3,4],"model":"m"}`, `{"prompt":[1,2,3,4],"model":"n"}`, "2 of 2 and 2") // the model's name comes in when it is known
	f(`{"prompt":"x","mock":{"prompt_tokens":6,"prompt_blocks":[7,8]}}`, `{"prompt":"y","mock":{"prompt_tokens":4,"prompt_blocks":[7,8]}}`, "2 of 2 and 2")
	f(`{"prompt":"x","mock":{"prompt_tokens":6}}`, `{"prompt":"x","mock":{"prompt_tokens":6}}`, "0 of 0 and 0")
	f(`{"prompt":"01234567","mock":{"output_tokens":6}}`, `{"prompt":"01234567","mock":{}}`, "1 of 1 and 1")
}

func TestExact(t *testing.T) {
	f := func(member, want string) {
		t.Helper()
		c, err := parseCall([]byte(`{"mock":`+member+`}`), false)
		n, limited := c.outputTokens(5)
		got := fmt.Sprint(c.promptTokens(), n, limited)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", member, got, want)
		}
	}
	f(`{}`, "1 5 false")
	f(`null`, "1 5 false")
	f(`{"prompt_tokens":7,"output_tokens":9}`, "7 9 false")
	f(`{"prompt_tokens":-1}`, "mock.prompt_tokens is -1: it must be from 1 to 16777216, or left out")
	f(`{"prompt_tokens":null,"output_tokens":null}`, "1 5 false")
	f(`{"prompt_tokens":0}`, "mock.prompt_tokens is 0: it must be from 1 to 16777216, or left out")
	f(`{"output_tokens":0}`, "mock.output_tokens is 0: it must be from 1 to 65536, or left out")
	f(`{"output_tokens":65537}`, "mock.output_tokens is 65537: it must be from 1 to 65536, or left out")
	f(`{"tokens":1}`, `mock: json: unknown field "tokens"`)
	f(`"x"`, "mock: json: cannot unmarshal string into Go value of type mock.exact")
}

// Whatever the text, the model takes it.
func FuzzBlocks(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s), uint8(3), uint8(2))
	}
	f.Add([]byte(`{"system":"abc","messages":[{"content":"0123456"},{"content":[{"text":"x"}]}],"prompt":[1,"abcdefgh",3]}`), uint8(9), uint8(1))
	f.Add([]byte(`{"prompt":"\ud83d\ud83d 012345678901234567890123456789"}`), uint8(7), uint8(2))
	f.Add([]byte(`{"tools":[{"name":"f"}],"tool_choice":"required","prompt":"0123456789"}`), uint8(4), uint8(1))
	f.Add([]byte(`{"prompt":"0123456789","mock":{"output_tokens":3}}`), uint8(4), uint8(1))
	f.Fuzz(func(t *testing.T, body []byte, tokens, blockTokens uint8) {
		c, err := parseCall(body, true)
		if err != nil || c.exact != nil && c.exact.Prompt != nil {
			return
		}
		c2, _ := parseCall(bytes.Clone(body), false)
		if c.promptTokens() != c2.promptTokens() || len(c2.texts[0])+len(c2.texts[1]) > 0 {
			t.Errorf("%q: keeping the text changes the call", body)
		}
		m := small()
		m.BlockTokens, m.Blocks = 1+int(blockTokens%20), 1<<20
		e, err := engine.New(m)
		if err != nil {
			t.Fatal(err)
		}
		err = e.Submit(0, sequenceOf(t, string(body), int(tokens), m.BlockTokens))
		if _, long := errors.AsType[*engine.TooLongError](err); err != nil && !long {
			t.Errorf("%q: %v", body, err)
		}
	})
}

package llm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"evenkeel/internal/route"
)

// turnsOf scans a body.
func turnsOf(t testing.TB, body string) ([]uint64, route.Turns) {
	t.Helper()
	p := NewPrompt(testKey)
	r, err := ScanPrompt(chatAPI, "application/json", []byte(body), p)
	if err != nil {
		t.Fatalf("%.80s: %v", body, err)
	}
	return p.AppendPrefix(nil, "t", r.Model)
}

// said is a message of a role, as a turn of a conversation.
type said struct{ role, text string }

// talk makes a body of messages that are written as form says: %q for the role, then %q for the text.
func talk(head, form string, messages []said) string {
	var parts []string
	for _, m := range messages {
		if strings.Index(form, "content") < strings.Index(form, "role") {
			parts = append(parts, fmt.Sprintf(form, m.text, m.role))
		} else {
			parts = append(parts, fmt.Sprintf(form, m.role, m.text))
		}
	}
	return head + strings.Join(parts, ",") + "]}"
}

// TestTurnsAreThoseBefore is the slow way to know them: where the model speaks, the body that ends there was scanned too. It holds for all
// ways to write messages, wherever text fills blocks.
func TestTurnsAreThoseBefore(t *testing.T) {
	for name, form := range map[string]string{
		"role first":      `{"role":%q,"content":%q}`,
		"role last":       `{"content":%q,"role":%q}`,
		"parts":           ` {"role" : %q, "content":[{"type":"text","text":%q,"cache_control":{"type":"ephemeral"}}] }`,
		"parts, late":     `{"content":[{"type":"text","text":%q}],"role":%q}`,
		"a role in parts": `{"role":%q,"content":[{"role":"assistant","text":%q}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			for range 60 {
				head := []string{`{"model":"m","messages":[`, `{"model":"m","system":"` + prose(9, rng.IntN(600)) + `","tools":[{"name":"f"}],"messages":[`, `{"model":"m","instructions":"short","input":[`}[rng.IntN(3)]
				var all []said
				var ends []int // messages before each answer
				for i := range rng.IntN(12) {
					role := []string{"user", "assistant", "tool", "system"}[rng.IntN(4)]
					if role == "assistant" && (i == 0 || all[i-1].role != role) {
						ends = append(ends, i)
					}
					all = append(all, said{role, prose(uint64(rng.IntN(1000)), rng.IntN(3)*rng.IntN(400))})
				}
				if len(all) == 0 {
					continue
				}
				chain, got := turnsOf(t, talk(head, form, all))
				f := func(what string, got, want any) {
					t.Helper()
					if got != want {
						t.Fatalf("%s: %v, want %v, of %s", what, got, want, talk(head, form, all))
					}
				}
				opening := got.End
				for back := range route.PastTurns {
					var want route.Turn
					if n := len(ends) - 1 - back; n >= 0 {
						var before route.Turns
						at := ends[n]
						if at > 0 {
							var shorter []uint64
							shorter, before = turnsOf(t, talk(head, form, all[:at]))
							f("hashes in common", common(t, shorter, chain), len(shorter))
							want = route.Turn{Hash: before.End, Blocks: int32(len(shorter)), Rest: int32(before.Text - len(shorter)*PrefixBlock)}
							f("the opening", before.Opening, got.Opening)
						} else {
							want = got.Past[back]
						}
						until := at + 1
						for until < len(all) && all[until].role == "assistant" {
							until++
						}
						_, after := turnsOf(t, talk(head, form, all[:until]))
						want.Answer = int32(after.Text) - want.Blocks*PrefixBlock - want.Rest
						opening = got.Opening
					}
					f(fmt.Sprint("turn ", back), got.Past[back], want)
				}
				f("the opening", got.Opening, opening)
				if got.End == 0 || got.Opening == 0 || got.Text/PrefixBlock < len(chain) {
					t.Fatalf("%+v of %d hashes", got, len(chain))
				}
			}
		})
	}
}

// TestTurnsOfResponses: what a model has produced comes back as items without a role, in the responses API.
func TestTurnsOfResponses(t *testing.T) {
	head := `{"model":"m","input":[{"role":"user","content":"What is the weather?"}`
	_, first := turnsOf(t, head+`]}`)
	for _, item := range []string{`{"type":"reasoning","summary":[]}`, `{"type":"function_call","name":"weather","arguments":"{}"}`, `{"arguments":"{}","name":"weather","type":"custom_tool_call"}`,
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Fine."}]}`} {
		_, next := turnsOf(t, head+","+item+`,{"type":"function_call_output","output":"sun"}]}`)
		if next.Past[0].Hash != first.End || next.Opening != first.Opening || next.Past[1].Hash != 0 {
			t.Errorf("%s: %+v does not go on from %+v", item, next, first)
		}
	}
	_, other := turnsOf(t, head+`,{"type":"function_call_output","output":"sun"},{"role":"user","content":"And now?"}]}`)
	if other.Past[0].Hash != 0 || other.Opening != other.End {
		t.Errorf("no answer: %+v", other)
	}
}

// TestNoTurns: what is no list of messages, or too long to be known, has no turns.
func TestNoTurns(t *testing.T) {
	for _, body := range []string{`{}`, `{"prompt":"assistant"}`, `{"input":"x"}`, `{"input":["role","assistant"]}`, `{"messages":{"role":"assistant"}}`, `{"messages":[{"content":"x"},["role","assistant"]]}`,
		`{"messages":[{"a":{"role":"assistant"}}]}`, `{"tools":[{"role":"assistant"}],"system":[{"role":"assistant"}]}`} {
		if _, got := turnsOf(t, body); got.End != 0 || got.Opening != 0 || got.Past[0].Hash != 0 {
			t.Errorf("%s: %+v", body, got)
		}
	}
	long := `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"` + strings.Repeat("x", (MaxPrefixBlocks+1)*PrefixBlock) + `"},{"role":"assistant","content":"x"},{"role":"user","content":"y"},{"role":"assistant","content":"z"}]}`
	_, short := turnsOf(t, `{"messages":[{"role":"user","content":"hi"}]}`)
	if _, got := turnsOf(t, long); got.Opening != short.End || got.End != 0 || got.Past[0].Hash != 0 || got.Text != 0 {
		t.Errorf("a long one: %+v", got)
	}
	// The first who tells whose a message is counts, and one part alone.
	_, got := turnsOf(t, `{"messages":[{"role":"user","role":"assistant","content":"a"}],"input":[{"role":"user"},{"role":"assistant"}]}`)
	if got.Past[0].Hash != 0 || got.End == 0 {
		t.Errorf("twice: %+v", got)
	}
}

// FuzzTurns checks on any body that turns lie within the text, in order, and do not depend on white space, and that what was scanned before
// changes nothing.
func FuzzTurns(f *testing.F) {
	for _, seed := range []string{`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`, `{"messages":[{"content":"a","role":"assistant"}],"input":[{"role":"assistant"}]}`,
		`{"input":[{"type":"function_call"},{"type":"reasoning"},{"role":"user"}],"system":"x"}`, `{"messages":[{"role":{"role":"assistant"}},{"role":"assistant"},1,"x",[2]]}`} {
		f.Add([]byte(seed), uint16(30), uint16(700))
	}
	used := NewPrompt(testKey)
	f.Fuzz(func(t *testing.T, body []byte, at, repeat uint16) {
		if int(at) < len(body) { // to fill blocks
			body = slices.Concat(body[:at], []byte(strings.Repeat(string(body[at:at+1]), int(repeat))), body[at:])
		}
		p := NewPrompt(testKey)
		r, err := ScanPrompt(chatAPI, "", body, p)
		chain, got := p.AppendPrefix(nil, "t", r.Model)
		_, _ = ScanPrompt(chatAPI, "", body, used)
		if _, again := used.AppendPrefix(nil, "t", r.Model); again != got {
			t.Fatalf("%q: %+v, of a Prompt that was used before %+v", body, got, again)
		}
		if p.turns.before != [PrefixBlock]byte{} || p.turns.rest != [keptTurns * PrefixBlock]byte{} {
			t.Fatalf("%q: text is kept", body)
		}
		if err != nil {
			if got != (route.Turns{}) {
				t.Fatalf("%q: %+v of a body that is refused", body, got)
			}
			return
		}
		until := got.Text
		for i, x := range got.Past {
			size := int(x.Blocks)*PrefixBlock + int(x.Rest)
			if x.Hash == 0 && x != (route.Turn{}) || x.Hash != 0 && (size < 0 || x.Answer < 0 || size+int(x.Answer) > until || int(x.Blocks) > len(chain) || got.End == 0) {
				t.Fatalf("%q: turn %d of %+v, %d hashes", body, i, got, len(chain))
			}
			until = size
		}
		var tree any
		if json.Unmarshal(body, &tree) != nil {
			return
		}
		var wide strings.Builder
		e := json.NewEncoder(&wide)
		var compact json.RawMessage = body
		e.SetIndent(" ", "\t")
		e.SetEscapeHTML(false)
		if e.Encode(compact) != nil {
			return
		}
		if _, spaced := turnsOf(t, wide.String()); spaced != got {
			t.Fatalf("%q: %+v, spaced %+v", body, got, spaced)
		}
	})
}

package gguf

import (
	"fmt"
	"strings"
)

// words is what the model can say. The last line is there to put characters
// of two, three and four bytes into the streams.
const words = `
a about above across after again all almost along already also always am among an and another answer any are around as ask at away
back balance be became because been before began behind below best better between big book both bridge bring build but by
call came can car carry change city clear close cloud cold come could country course cut
day deep did different do does done door down draw drive dry each early earth east eat end enough even ever every example eye
face fact fall far farm fast father feel few field find fine fire first fish five follow food for form found four free friend from full
game garden gave get girl give glass go gold good got great green ground group grow had half hand hard has have he head hear heart
help her here high hill him his hold home horse hot hour house how hundred idea if in into is island it its journey just
keep kind king knew know lake land large late laugh lead learn leave left less let letter life light like line list listen little live
long look love low made make man many map mark may me mean measure middle might mile mind minute miss money moon more morning most
mother mountain move much music must my name near need never new next night no north not note nothing now number of off often old on
once one only open or order other our out over own page paper part pass path pattern people perhaps picture piece place plain plan
plant play point port power problem question quick quiet rain ran reach read ready real red remember rest right river road rock room
round rule run said sail salt same sand saw say school sea second see seem sentence set seven shape she ship short should show side
simple since sing sit six sleep slow small snow so some song soon sound south spell spring stand star start state step still stone
stop story street strong study such summer sun sure surface table take talk teach tell ten than that the their them then there these
they thing think this those thought thousand three through time to together too took top toward town travel tree true try turn two
under until up upon us use usual valley very voice wait walk wall want war warm was watch water wave way we week weigh well went were
west what wheel when where which while white who whole why wide will wind winter wish with wonder wood word work world would write
year yellow yes yet you young your
naïve café straße señor œuvre Київ Ελλάδα 東京 서울 🚂`

// space is how SentencePiece vocabularies write the blank before a word.
const space = "\u2581"

// tokenKind numbers the kinds of tokens of a SentencePiece vocabulary.
type tokenKind int32

const (
	normalToken  tokenKind = 1
	unknownToken tokenKind = 2
	controlToken tokenKind = 3
	byteToken    tokenKind = 6
)

type token struct {
	text  string
	score float32 // the tokenizer merges the pair of the highest score first
	kind  tokenKind
	said  bool // the model may produce it
}

// Names of the tokens that the metadata refers to by number.
const (
	unknownText = "<unk>"
	beginText   = "<s>"
	turnStart   = "<|im_start|>"
	turnEnd     = "<|im_end|>"
)

// vocabulary is a list of tokens with an index by text.
type vocabulary struct {
	tokens []token
	index  map[string]int
}

func (v *vocabulary) add(t token) {
	if i, ok := v.index[t.text]; ok {
		v.tokens[i].said = v.tokens[i].said || t.said
		return
	}
	v.index[t.text] = len(v.tokens)
	v.tokens = append(v.tokens, t)
}

// newVocabulary builds a vocabulary in which every byte can be read: known
// words are one token, unknown words fall into characters and other
// characters into bytes. The tokenizer only ever joins two neighbouring
// tokens, so each word needs all its beginnings as tokens; shorter ones score
// higher, which makes the joining go from left to right.
func newVocabulary() *vocabulary {
	v := &vocabulary{index: make(map[string]int)}
	v.add(token{text: unknownText, kind: unknownToken})
	for _, text := range []string{beginText, turnStart, turnEnd} {
		v.add(token{text: text, kind: controlToken})
	}
	for b := range 256 {
		v.add(token{text: fmt.Sprintf("<0x%02X>", b), kind: byteToken})
	}
	const lowest = -1000 // single characters are what remains when nothing joins
	for _, c := range space + "\n" {
		v.add(token{text: string(c), score: lowest, kind: normalToken})
	}
	for c := '!'; c <= '~'; c++ {
		v.add(token{text: string(c), score: lowest, kind: normalToken})
	}
	for _, word := range strings.Fields(words) {
		runes := []rune(space + word)
		for n := 2; n <= len(runes); n++ {
			v.add(token{
				text:  string(runes[:n]),
				score: -float32(n),
				kind:  normalToken,
				said:  n == len(runes),
			})
		}
	}
	return v
}

// chatTemplate is the ChatML layout, in the Jinja dialect of llama.cpp.
// Content given as parts instead of a string is left out.
const chatTemplate = `{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' -}}
{%- if m.content is string -%}{{- m.content -}}{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}`

package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var testKey = NewPrefixKey([32]byte{1, 2, 3})

// prefix is the chain of a body under testKey, for tenant t and the body's model.
func prefix(t testing.TB, body string) []uint64 {
	t.Helper()
	p := NewPrompt(testKey)
	r, err := ScanPrompt(chatAPI, "application/json", []byte(body), p)
	if err != nil {
		t.Fatalf("%.80s: %v", body, err)
	}
	chain, _ := p.AppendPrefix(nil, "t", r.Model)
	return chain
}

// common is the number of hashes that two chains share from the start. It fails the test if they meet again later.
func common(t testing.TB, a, b []uint64) int {
	t.Helper()
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for i, h := range a[n:] {
		if slices.Contains(b[n:], h) {
			t.Fatalf("hash %d of %d is equal although hash %d is not", n+i, len(a), n)
		}
	}
	return n
}

// prose is n bytes of words that do not repeat, from a seed.
func prose(seed uint64, n int) string {
	rng := rand.New(rand.NewPCG(seed, 0))
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "word%d ", rng.IntN(100_000))
	}
	return b.String()[:n]
}

func TestPrefixSharesWhatIsShared(t *testing.T) {
	f := func(a, b string, want int) {
		t.Helper()
		x, y := prefix(t, a), prefix(t, b)
		if n := common(t, x, y); n != want {
			t.Errorf("%.60s (%d hashes) and %.60s (%d) share %d, want %d", a, len(x), b, len(y), n, want)
		}
	}
	head := `{"model":"m","messages":[{"role":"user","content":"`
	text := prose(1, 10*PrefixBlock)
	long := head + text + `"}]}`
	f(long, long, 10)
	f(long, head+text+text+`"}]}`, 10)
	f(long, strings.TrimSuffix(long, `]}`)+`,{"role":"assistant","content":"`+prose(2, 900)+`"}]}`, 10)
	f(long, head+prose(2, 9*PrefixBlock)+`"}]}`, 0)
	f(long, strings.Replace(long, `"m"`, `"n"`, 1), 0)
	f(long, strings.Replace(long, `"user"`, `"system"`, 1), 0)
	f(long, strings.Replace(long, `{`, `{"temperature":0.5,"user":"u","stream":true,`, 1), 10)
	f(long, strings.Replace(long, `{`, `{"cache_salt":"s",`, 1), 0)
	f(long, strings.Replace(long, `{`, `{"reasoning_effort":"high",`, 1), 0)
	f(long, strings.Replace(long, `{`, `{"tools":[{"name":"a"}],`, 1), 0)
	f(strings.Replace(long, `{`, `{"tools":[{"a":1}],`, 1), strings.Replace(long, `{`, `{"tools":[{"a":2}],`, 1), 0)
	f(strings.Replace(long, `{`, `{"tools":[{"a":1}],`, 1), strings.TrimSuffix(long, `}`)+`,"tools":[{"a":1}]}`, 10)
	f(strings.Replace(long, `{`, `{"instructions":"a","system":"b",`, 1), strings.Replace(long, `{`, `{"system":"b","instructions":"a",`, 1), 10)
	f(`{"messages":[{"content":["ab","`+text+`"]}]}`, `{"messages":[{"content":["a","b`+text+`"]}]}`, 0)
	for at := range 10 * PrefixBlock {
		if i := len(head) + at; at%97 == 0 {
			c := long[i] ^ 1
			f(long, long[:i]+string(c)+long[i+1:], (at+len(`user"`))/PrefixBlock)
		}
	}
}

// Text at the end that fills no block has no hash.
func TestPrefixLength(t *testing.T) {
	f := func(body string, want int) {
		t.Helper()
		if n := len(prefix(t, body)); n != want {
			t.Errorf("%.60s: %d hashes, want %d", body, n, want)
		}
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	f(`{}`, 0)
	f(`{"model":"`+x(1000)+`","cache_salt":"`+x(9999)+`","chat_template":"`+x(9999)+`","metadata":"`+x(9999)+`"}`, 0)
	f(`{"prompt":"`+x(PrefixBlock-2)+`"}`, 0)
	f(`{"prompt":"`+x(PrefixBlock-1)+`"}`, 1)
	f(`{"input":["`+x(PrefixBlock-1)+`","`+x(PrefixBlock-1)+`"]}`, 2)
	f(`{"prompt":[`+strings.Repeat("1,", PrefixBlock)+`1]}`, 2)
	f(`{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,`+x(2000)+`"}}]}]}`, 7)
	f(`{"prompt":"`+x((MaxPrefixBlocks+3)*PrefixBlock)+`"}`, MaxPrefixBlocks)
	f(`{"prompt":["`+strings.Repeat(`x","`, MaxPrefixBlocks*PrefixBlock)+`"]}`, MaxPrefixBlocks)
	f(`{"cache_salt":"`+x((MaxPrefixBlocks+3)*PrefixBlock)+`","prompt":"`+x(PrefixBlock)+`"}`, 1)
}

func TestPrefixKeysAndTenants(t *testing.T) {
	body := []byte(`{"prompt":"` + prose(3, 40*PrefixBlock) + `"}`)
	scan := func(key *PrefixKey) *Prompt {
		p := NewPrompt(key)
		if _, err := ScanPrompt(chatAPI, "", body, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	chain := func(p *Prompt, tenant, model string) []uint64 {
		chain, _ := p.AppendPrefix(nil, tenant, model)
		return chain
	}
	p := scan(testKey)
	seen := map[uint64]bool{}
	for _, chain := range [][]uint64{
		chain(p, "", ""), chain(p, "t", ""), chain(p, "", "t"), chain(p, "t", "m"),
		chain(p, "tm", ""), chain(p, "t\x00", "m"), chain(p, strings.Repeat("t", 5000), "m"),
		chain(scan(NewPrefixKey([32]byte{1, 2, 4})), "t", "m"),
	} {
		if len(chain) != 40 {
			t.Fatalf("%d hashes, want 40", len(chain))
		}
		for _, h := range chain {
			if seen[h] {
				t.Fatal("two of tenant, model and key give the same hash")
			}
			seen[h] = true
		}
	}
	again, _ := scan(NewPrefixKey([32]byte{1, 2, 3})).AppendPrefix([]uint64{7}, "t", "m")
	if want := chain(p, "t", "m"); again[0] != 7 || !slices.Equal(again[1:], want) {
		t.Error("the same key, tenant and model give other hashes")
	}
}

// What clients change from turn to turn without changing the prompt.
func TestPrefixSpellings(t *testing.T) {
	f := func(a, b string) {
		t.Helper()
		if x, y := prefix(t, a), prefix(t, b); len(x) == 0 || !slices.Equal(x, y) {
			t.Errorf("differ (%d and %d hashes):\n%.200s\n%.200s", len(x), len(y), a, b)
		}
	}
	text := prose(4, 1000)
	message := func(content string) string { return `{"messages":[{"role":"user","content":` + content + `}]}` }
	f(message(`"`+text+`"`), message(` [ {"type": "text", "text": "`+text+`"}]`))
	f(message(`"`+text+`"`), message(`[{"type":"text","text":"`+text+`","cache_control":{"type":"ephemeral","ttl":"5m"}}]`))
	f(message(`"`+text+`"`), message(`[{"cache_control" : null ,"text":"`+text+`","type":"text"}]`))
	f(`{"system":"`+text+`"}`, `{"system":[{"type":"text","text":"`+text+`"}]}`)
	ids := strings.Repeat("7,", 400)
	f(`{"prompt":[`+ids+`1]}`, `{"prompt": [ `+strings.ReplaceAll(ids, ",", " ,\n ")+` 1 ] }`)
	f(`{"tools":[{"name":"f \" :","parameters":{"type":"object","d":"`+text+`","n":1}}]}`, `{"tools" : [ { "name" :"f \" :", "parameters":{"type":	"object","d":"`+text+`" , "n": 1 } } ] }`)
}

// The text that a block holds is not in the chain, nor does a bit of it show: about half of a hash changes with each.
func TestPrefixMixes(t *testing.T) {
	var block [PrefixBlock]byte
	hash := func() uint64 { return testKey.chain(0, testKey.appendSums(nil, block[:])[0], 0) }
	want := hash()
	total := 0
	for bit := range 8 * PrefixBlock {
		block[bit/8] ^= 1 << (bit % 8)
		for x := want ^ hash(); x != 0; x &= x - 1 {
			total++
		}
		block[bit/8] ^= 1 << (bit % 8)
	}
	if mean := float64(total) / (8 * PrefixBlock); mean < 31 || mean > 33 {
		t.Errorf("%.2f bits of 64 change with a bit of text, want 32", mean)
	}
}

// The same request must come to the same prefix in every version and on every processor that share an index.
func TestPrefixStays(t *testing.T) {
	want := prefix(t, `{"prompt":"`+prose(5, 1000)+`"}`)
	if got := []uint64{0x56fab0845feda886, 0xd2c28cc4d8496271, 0x5f59ff3bb13ad625}; !slices.Equal(got, want) {
		t.Errorf("%#x, want %#x", got, want)
	}
}

// Long strings are hashed piece by piece, wherever their escapes fall.
func TestPrefixOfPieces(t *testing.T) {
	for shift := range 4 {
		for _, text := range []string{`a`, `\\`, `\"`, `abc\"`, `\\\\\"`} {
			text = strings.Repeat("x", shift) + strings.Repeat(text, 3*piece/len(text))
			whole := NewPrompt(testKey)
			whole.begin(fieldPrompt)
			whole.write([]byte(text + `"`))
			whole.end(fieldPrompt)
			want, _ := whole.AppendPrefix(nil, "t", "")
			if got := prefix(t, `{"prompt":"`+text+`"}`); len(got) < 90 || !slices.Equal(got, want) {
				t.Errorf("%.20s: %d hashes, not the %d of the whole text", text, len(got), len(want))
			}
			if _, err := ScanPrompt(chatAPI, "", []byte(`{"prompt":"`+text+`\"`), NewPrompt(testKey)); err == nil {
				t.Errorf("%.20s: no error where the string does not end", text)
			}
		}
	}
}

func TestPrefixAllocs(t *testing.T) {
	body := chatBody(64 << 10)
	dst := make([]uint64, 0, MaxPrefixBlocks)
	p := NewPrompt(testKey)
	if n := testing.AllocsPerRun(100, func() {
		r, err := ScanPrompt(chatAPI, "application/json", body, p)
		if err != nil {
			t.Fatal(err)
		}
		dst, _ = p.AppendPrefix(dst[:0], "tenant", r.Model)
	}); n > 1 || len(dst) < 200 {
		t.Errorf("%.0f allocations for %d hashes, want at most 1 (the model's name)", n, len(dst))
	}
}

// FuzzPrefix checks on any body that a chain is bounded, the same however the body is spaced, and kept when text is added.
func FuzzPrefix(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","messages":[{"role":"user","content":"a\\"},{"content":[{"type":"text","text":"x","cache_control":{"a":["\""]}}]}]}`, `{"prompt":[1,2 , 3],"suffix":"\""}`,
		`{"tools":[{"a" :1}],"system":"s","cache_salt":"x"}`, `{"input":{"type":{"type":1}},"input":"b"}`, `{"messages":"cache_control":}`, `{"messages":["cache_control":]}`, `{"prompt":{"type" : "x"}}`,
	} {
		f.Add([]byte(seed), uint16(0), uint16(300))
	}
	f.Fuzz(func(t *testing.T, body []byte, at, repeat uint16) {
		if int(at) < len(body) { // repeat a byte, to fill blocks
			body = slices.Concat(body[:at], bytes.Repeat(body[at:at+1], int(repeat)), body[at:])
		}
		p := NewPrompt(testKey)
		r, err := ScanPrompt(chatAPI, "application/json", body, p)
		got, _ := p.AppendPrefix(nil, "t", r.Model)
		if err != nil && len(got) > 0 || len(got) > min(len(body), MaxPrefixBlocks*PrefixBlock)/PrefixBlock {
			t.Fatalf("%q: %d hashes of %d bytes, error %v", body, len(got), len(body), err)
		}
		if r2, err2 := ScanRequest(chatAPI, "application/json", body); r2 != r || fmt.Sprint(err2) != fmt.Sprint(err) {
			t.Fatalf("%q: %+v, %v with hashes, %+v, %v without", body, r, err, r2, err2)
		}
		var compact, wide bytes.Buffer
		if err != nil || json.Compact(&compact, body) != nil || json.Indent(&wide, body, " ", "\t") != nil {
			return
		}
		if !slices.Equal(got, prefix(t, compact.String())) || !slices.Equal(got, prefix(t, wide.String())) {
			t.Fatalf("%q: depends on white space", body)
		}
		list, _ := members(body)
		if !slices.ContainsFunc(list, func(m jsonMember) bool { return m.key == "suffix" }) && len(list) > 0 {
			longer := prefix(t, strings.TrimSuffix(compact.String(), "}")+`,"suffix":"`+prose(5, 600)+`"}`)
			if common(t, got, longer) != len(got) || len(longer) != min(len(got)+2, MaxPrefixBlocks) {
				t.Fatalf("%q: %d hashes, not kept in %d", body, len(got), len(longer))
			}
		}
	})
}

// C34: a Prompt keeps hashes under a key and no text, also of a body that breaks off.
func TestC34PromptKeepsNoText(t *testing.T) {
	for _, body := range []string{`{"system":"canary","messages":[{"content":"canary"}],"tools":["canary"]}`, `{"messages":[{"content":"canary"}`, `{"messages":["canary"],"model":7}`} {
		p := NewPrompt(testKey)
		if _, err := ScanPrompt(chatAPI, "", []byte(body), p); (err == nil) != strings.HasSuffix(body, "]}") {
			t.Errorf("%s: error %v", body, err)
		}
		if p.block != [PrefixBlock]byte{} {
			t.Errorf("%s: keeps %q", body, bytes.Trim(p.block[:], "\x00"))
		}
	}
}

// TestTextKnowsThePartialBlock: prompts of the same length that differ in their last letter only, far below one block or after
// whole ones, are different texts; the same prompt with other settings is the same.
func TestTextKnowsThePartialBlock(t *testing.T) {
	text := func(body string) uint64 {
		t.Helper()
		p := NewPrompt(testKey)
		if _, err := ScanPrompt(chatAPI, "", []byte(body), p); err != nil {
			t.Fatal(err)
		}
		return p.Text()
	}
	for _, n := range []int{0, 10, PrefixBlock - 1, PrefixBlock, 3*PrefixBlock + 7} {
		chat := func(tail string) string {
			return `{"model":"m","messages":[{"role":"user","content":"` + prose(5, n) + tail + `"}]`
		}
		one := text(chat("1") + "}")
		if other := text(chat("2") + "}"); one == 0 || one == other {
			t.Errorf("%d bytes: %x and %x", n, one, other)
		}
		if again := text(chat("1") + `,"stream":true}`); one != again {
			t.Errorf("%d bytes: the same prompt gives %x, then %x", n, one, again)
		}
	}
	if sum := text(`{"model":"m"}`); sum != 0 {
		t.Errorf("no text gives %x", sum)
	}
}

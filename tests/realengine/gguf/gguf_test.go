package gguf

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

func TestFloat16(t *testing.T) {
	f := func(in float32, want uint16) {
		t.Helper()
		if got := float16(in); got != want {
			t.Errorf("float16(%v) = %#04x, want %#04x", in, got, want)
		}
	}
	f(0, 0x0000)
	f(1, 0x3c00)
	f(-2, 0xc000)
	f(0.1, 0x2e66)
	f(65504, 0x7bff) // the largest
	f(65536, 0x7c00) // infinity
	f(1e-6, 0x0000)
	f(float32(math.Inf(-1)), 0xfc00)
}

func TestSameSeedSameBytes(t *testing.T) {
	write := func(seed uint64) []byte {
		var b bytes.Buffer
		if err := Tiny(seed).Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	first, again, other := write(1), write(1), write(2)
	if !bytes.Equal(first, again) {
		t.Error("the same seed gave two different files")
	}
	if len(first) != len(other) || bytes.Equal(first, other) {
		t.Error("another seed must give other weights of the same size")
	}
}

// The directory must name every byte of the data section: llama.cpp refuses
// files that are too short and reads garbage from offsets that are off.
func TestFileIsAsLongAsItsDirectorySays(t *testing.T) {
	m := Tiny(1)
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	if got := binary.LittleEndian.Uint32(file); got != magic {
		t.Fatalf("magic is %#x, want %#x", got, magic)
	}
	tensors := m.tensors(newVocabulary())
	if got := binary.LittleEndian.Uint64(file[8:]); got != uint64(len(tensors)) {
		t.Errorf("header counts %d tensors, want %d", got, len(tensors))
	}
	data := uint64(0)
	for _, ts := range tensors {
		data += align(ts.size())
	}
	head := uint64(len(file)) - data
	if head%alignment != 0 {
		t.Errorf("data starts at %d, which is no multiple of %d", head, alignment)
	}
	last := tensors[len(tensors)-1]
	at := bytes.Index(file, appendString(nil, last.name))
	if at < 0 {
		t.Fatalf("no entry for %s", last.name)
	}
	at += 8 + len(last.name) + 4 + 2*8 + 4 // name, rank, two dimensions, type
	if got, want := binary.LittleEndian.Uint64(file[at:]), data-align(last.size()); got != want {
		t.Errorf("%s starts at %d, want %d", last.name, got, want)
	}
}

func TestEveryWordCanBeJoined(t *testing.T) {
	v := newVocabulary()
	for _, word := range strings.Fields(words) {
		runes := []rune(space + word)
		for n := 2; n <= len(runes); n++ {
			i, ok := v.index[string(runes[:n])]
			if !ok {
				t.Fatalf("%q lacks its beginning %q", word, string(runes[:n]))
			}
			if n == len(runes) && !v.tokens[i].said {
				t.Errorf("%q can never be said", word)
			}
		}
	}
}

func TestBadModel(t *testing.T) {
	f := func(change func(*Model), want string) {
		t.Helper()
		m := Tiny(1)
		change(&m)
		err := m.Write(&bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one that says %q", err, want)
		}
	}
	f(func(m *Model) { m.Layers = 0 }, "Layers is 0")
	f(func(m *Model) { m.Dim = 65 }, "Dim 65")
	f(func(m *Model) { m.KVHeads = 3 }, "KVHeads 3")
	f(func(m *Model) { m.FeedForward = 1 << 30 }, "larger")
}

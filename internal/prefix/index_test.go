package prefix

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// chainOf hashes words so that each hash depends on all words before it.
func chainOf(words ...byte) []uint64 {
	var chain []uint64
	hash := uint64(1)
	for _, w := range words {
		hash = (hash + uint64(w) + 1) * 0x9e3779b97f4a7c15
		hash ^= hash >> 29
		chain = append(chain, hash)
	}
	return chain
}

func match(x *Index, chain []uint64) string {
	s := ""
	for i, m := range x.Match(chain, nil, new(Beginnings)) {
		if m.Blocks > 0 || m.Answer > 0 {
			s += fmt.Sprintf("%d:%d+%d ", i, m.Blocks, m.Answer)
		}
	}
	return s
}

// TestMatch says what holders have of prompts that share beginnings.
func TestMatch(t *testing.T) {
	x := New()
	for range 3 {
		x.Join(100)
	}
	x.Insert(0, chainOf(1, 2, 3, 4), 50, 1, 0)
	x.Insert(1, chainOf(1, 2, 9), 0, 0, 0)
	x.Insert(2, chainOf(1, 2), 7, 1, 0)
	x.Insert(0, chainOf(8), 0, 0, 0)
	f := func(want string, words ...byte) {
		t.Helper()
		if got := match(x, chainOf(words...)); got != want {
			t.Errorf("%v: %q, want %q", words, got, want)
		}
	}
	f("")
	f("", 7)
	f("0:1+0 ", 8)
	f("0:1+0 1:1+0 2:1+0 ", 1)
	f("0:2+0 1:2+0 2:2+0 ", 1, 2)
	f("0:2+0 1:2+0 2:2+7 ", 1, 2, 7)
	f("0:4+0 1:2+0 2:2+7 ", 1, 2, 3, 4)
	f("0:4+50 1:2+0 2:2+7 ", 1, 2, 3, 4, 5, 6)
	f("0:2+0 1:3+0 2:2+7 ", 1, 2, 9, 9)
	f("", 2, 3, 4)
	if n := x.Blocks(0); n != 6 { // 4 and the answer's 1, and 1
		t.Errorf("holder 0 has %d blocks", n)
	}
	x.Insert(0, chainOf(1, 2, 3, 4, 5, 6), 10, 1, 0) // what goes on holds the answer
	if n := x.Blocks(0); n != 8 {
		t.Errorf("holder 0 has %d blocks", n)
	}
	x.Insert(0, chainOf(1, 2, 3), 10, 1, 0) // a part of what it has: where the answer would end is not where it ends
	f("0:6+10 1:2+0 2:2+7 ", 1, 2, 3, 4, 5, 6, 7)
	x.Drop(0)
	f("1:2+0 2:2+7 ", 1, 2, 3, 4)
	f("", 8)
	x.Leave(1)
	x.Leave(2)
	if len(x.first) != 0 {
		t.Errorf("%d edges are left of nothing", len(x.first))
	}
	if h := x.Join(5); h != 1 {
		t.Errorf("the next holder is %d", h)
	}
}

// TestOldestEndsFirst: beyond its room a holder forgets the ends of what was used longest ago.
func TestOldestEndsFirst(t *testing.T) {
	x := New()
	h := x.Join(8)
	x.Insert(h, chainOf(1, 2, 3, 4), 0, 0, 0)
	x.Insert(h, chainOf(1, 2, 5, 6), 0, 0, 0) // 6 blocks
	x.Insert(h, chainOf(1, 2, 3, 4), 0, 0, 0) // used again
	x.Insert(h, chainOf(7, 8, 9), 0, 0, 0)    // one too many: 6 goes
	f := func(want string, words ...byte) {
		t.Helper()
		if got := match(x, chainOf(words...)); got != want {
			t.Errorf("%v: %q, want %q", words, got, want)
		}
	}
	f("0:3+0 ", 1, 2, 5, 6)
	f("0:4+0 ", 1, 2, 3, 4)
	f("0:3+0 ", 7, 8, 9)
	x.Resize(h, 5)
	f("0:2+0 ", 1, 2, 5, 6)
	f("0:2+0 ", 1, 2, 3, 4)
	x.Resize(h, 0)
	x.Insert(h, chainOf(1), 0, 0, 0)
	f("", 1)
	x.Resize(h, 2)
	x.Insert(h, chainOf(1, 2, 3, 4), 0, 0, 0) // longer than its room
	f("0:2+0 ", 1, 2, 3, 4)
}

// naive is the same in the simplest way: blocks in order of use.
type naive struct {
	room int
	used []uint64 // oldest first
}

func (n *naive) insert(chain []uint64) {
	for _, h := range slices.Backward(chain) { // ends are older
		if i := slices.Index(n.used, h); i >= 0 {
			n.used = slices.Delete(n.used, i, i+1)
		}
		n.used = append(n.used, h)
	}
	n.used = n.used[max(0, len(n.used)-n.room):]
}

func (n *naive) match(chain []uint64) int32 {
	for i, h := range chain {
		if !slices.Contains(n.used, h) {
			return int32(i)
		}
	}
	return int32(len(chain))
}

// agree plays prompts made of data against the naive way, and checks the tree after each.
func agree(t *testing.T, data []byte) {
	x, rooms := New(), []int{3, 9, 1000}
	var all []*naive
	for _, room := range rooms {
		x.Join(room)
		all = append(all, &naive{room: room})
	}
	for len(data) >= 4 {
		h, n := int(data[0])%len(all), int(data[0]/8)%8+1
		words := data[1:min(len(data), 1+n)]
		data = data[len(words)+1:]
		for i := range words {
			words[i] &= 3
		}
		chain := chainOf(words...)
		x.Insert(h, chain, 0, 0, 0)
		all[h].insert(chain)
		for probe := 1; probe <= len(chain); probe++ {
			for i, m := range x.Match(chain[:probe], nil, new(Beginnings)) {
				if want := all[i].match(chain[:probe]); m.Blocks != want {
					t.Fatalf("holder %d of room %d has %d blocks of %v, want %d", i, rooms[i], m.Blocks, words[:probe], want)
				}
			}
		}
		check(t, x)
		for i, n := range all {
			if x.holders[i].used != len(n.used) {
				t.Fatalf("holder %d has %d blocks, want %d", i, x.holders[i].used, len(n.used))
			}
		}
	}
	for h := range all {
		x.Leave(h)
	}
	if check(t, x); len(x.first) != 0 {
		t.Fatalf("%d edges are left of nothing", len(x.first))
	}
}

// check holds what must be true of every tree.
func check(t *testing.T, x *Index) {
	t.Helper()
	holds := 0
	for first, i := range x.first {
		e := &x.edges[i]
		if e.run[0] != first || e.hold == none {
			t.Fatalf("edge %d of %d hashes is held by %d", i, len(e.run), e.hold)
		}
		for k := e.hold; k != none; k = x.holds[k].sibling {
			holds++
			if h := &x.holds[k]; h.edge != i || h.blocks < 1 || int(h.blocks) > len(e.run) || h.weight < h.blocks {
				t.Fatalf("edge %d of %d hashes: %+v", i, len(e.run), h)
			}
		}
	}
	for i, o := range x.holders {
		used, newer := 0, int32(none)
		for k := o.newest; k != none; k = x.holds[k].older {
			h := &x.holds[k]
			if int(h.holder) != i || h.newer != newer {
				t.Fatalf("holder %d's order: %+v", i, h)
			}
			used += int(h.weight)
			newer = k
			holds--
		}
		if used != o.used || o.oldest != newer || used > max(o.room, 0) {
			t.Fatalf("holder %d has %d blocks, counted %d, room %d", i, o.used, used, o.room)
		}
	}
	if holds != 0 {
		t.Fatalf("%d holds are in no order", holds)
	}
}

// TestAgreesWithTheNaive plays random prompts.
func TestAgreesWithTheNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		data := make([]byte, 300)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		agree(t, data)
	}
}

// FuzzIndex plays any prompts.
func FuzzIndex(f *testing.F) {
	f.Add([]byte("some prompts that share what they begin with, and some that do not"))
	f.Add([]byte{16, 0, 1, 2, 16, 0, 1, 3, 17, 0, 1, 2, 18, 0, 0, 0})
	f.Fuzz(agree)
}

// TestAnswersTakeRoom: an answer is charged, and goes before the blocks before it.
func TestAnswersTakeRoom(t *testing.T) {
	x := New()
	h := x.Join(6)
	x.Insert(h, chainOf(1, 2, 3), 100, 2, 0)
	x.Insert(h, chainOf(4, 5), 0, 0, 0)
	check(t, x)
	if got := match(x, chainOf(1, 2, 3, 9)); got != "0:3+0 " {
		t.Error(got)
	}
	if n := x.Blocks(h); n != 6 {
		t.Errorf("%d blocks", n)
	}
}

// prompts are conversations: some thousand chains that share system prompts and go on from turn to turn.
func prompts(n, blocks int) [][]uint64 {
	r := rand.New(rand.NewPCG(3, 4))
	all := make([][]uint64, n)
	for i := range all {
		keep := 0
		if i > 0 {
			before := all[r.IntN(i)]
			keep = min(r.IntN(len(before)+1), blocks-1)
			all[i] = append(all[i], before[:keep]...)
		}
		for range blocks - keep {
			all[i] = append(all[i], r.Uint64())
		}
	}
	return all
}

// TestBeginnings: what many of the prompts that count began with of late is common, block by block, whoever holds it; what others began with
// since is not.
func TestBeginnings(t *testing.T) {
	x := New()
	h := []int{x.Join(10_000), x.Join(10_000)}
	ordinal := uint32(0)
	give := func(chain []uint64) {
		ordinal++
		x.Insert(h[ordinal%2], chain, 0, 0, ordinal)
	}
	var began Beginnings
	f := func(what string, chain []uint64, share float64, want int32) {
		t.Helper()
		x.Match(chain, nil, &began)
		if got := began.Common(ordinal, share); got != want {
			t.Errorf("%s: %d blocks, want %d", what, got, want)
		}
	}
	for i := range byte(40) {
		if f("a new one", chainOf(1, 2, 3, 200), 0.5, map[bool]int32{true: 3}[i >= fewBegun]); i%4 == 0 {
			give(chainOf(1, 2, 3, 100, 10+i))
		} else {
			give(chainOf(1, 2, 3, 10+i))
		}
	}
	f("what a quarter goes on with", chainOf(1, 2, 3, 100, 200), 0.2, 4)
	f("less than that", chainOf(1, 2, 3, 100, 200), 0.3, 3)
	f("the first two alone", chainOf(1, 2, 200), 1, 2)
	f("another", chainOf(2, 3), 0.1, 0)
	for range 5 { // it begins with all of it, and no more
		give(chainOf(1, 2))
	}
	f("a shorter one", chainOf(1, 2, 3, 200), 1, 2)
	for range 500 {
		x.Insert(h[0], chainOf(9, 8, 7), 0, 0, 0)
	}
	f("what is not counted", chainOf(9, 8, 7), 0.01, 0)
	for i := range byte(200) {
		give(chainOf(5, i))
	}
	f("long ago", chainOf(1, 2, 3, 200), 0.01, 0)
	f("of late", chainOf(5, 250), 1, 1)
	x.Drop(h[0])
	x.Drop(h[1])
	f("what nobody holds", chainOf(5, 250), 0.1, 0)
}

// TestMemoryOfABlock: a block in the index takes at most 64 bytes, and what was forgotten takes none.
func TestMemoryOfABlock(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, blocks := range []int{8, 200} {
		x, n := New(), 0
		before := heap()
		for range 8 {
			x.Join(40_000)
		}
		r := rand.New(rand.NewPCG(5, 6))
		for round := range 3 {
			for _, p := range prompts(400_000/blocks, blocks) {
				for i := range p { // other prompts in each round
					p[i] += uint64(round)
				}
				x.Insert(r.IntN(8), p, 0, 0, 0)
			}
		}
		for h := range 8 {
			n += x.Blocks(h)
		}
		if each := float64(heap()-before) / float64(n); each > 64 {
			t.Errorf("prompts of %d blocks: %.1f bytes per block", blocks, each)
		} else {
			t.Logf("prompts of %d blocks: %.1f bytes per block, %d blocks", blocks, each, n)
		}
		runtime.KeepAlive(x)
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{8, 64, 1000} {
		x := New()
		r := rand.New(rand.NewPCG(5, 6))
		all := prompts(1000, 1600)
		for range n {
			h := x.Join(50_000)
			for range 30 {
				x.Insert(h, all[r.IntN(len(all))], 0, 0, 0)
			}
		}
		var dst []Match
		var began Beginnings
		b.Run(fmt.Sprintf("holders=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				dst = x.Match(all[i%len(all)], dst, &began)
			}
		})
	}
}

func BenchmarkInsert(b *testing.B) {
	x := New()
	all := prompts(1000, 1600)
	for range 64 {
		x.Join(50_000)
	}
	b.ReportAllocs()
	for i := range b.N {
		x.Insert(i%64, all[i%len(all)], 0, 0, 0)
	}
}

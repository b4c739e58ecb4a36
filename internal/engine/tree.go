package engine

import "math/bits"

// segment is consecutive blocks of a sequence that nothing tells apart: whoever holds one of them holds all, and only the last is
// continued by others.
type segment struct {
	first  uint64   // hash of its first block
	hashes []uint64 // of all its blocks, at most longestSegment
	refs   int32    // running sequences that hold it

	// If refs is 0: the list of cached segments. Of a segment the last block is the first to be evicted.
	prev, next int32

	parent int32 // the segment before it in its sequence, 0 for the first of a sequence
	child  int32 // one of those that continue it
	others int32 // how many more do: they are in the table
	chain  int32 // the next segment with the same head in the table
}

// longestSegment bounds what splitting a segment copies.
const longestSegment = 256

// tree finds blocks by what they continue. It holds segments, not blocks: a prompt of a hundred blocks is two or three of them, found,
// held and let go as one, its hashes side by side. (A node for each block would take most of the time of a simulated request:
// hundreds of cache misses.) Segments are named by index; 0 is what all first segments continue.
//
// A segment must leave after those that continue it.
type tree struct {
	segments []segment
	unused   []int32 // indices that are free to use again
	heads    []int32 // of chains of segments in the table: 1 << (64 - shift)
	shift    int
	tabled   int // segments in the table
	blocks   int // in all segments
	spare    spares
}

func newTree() tree {
	return tree{segments: make([]segment, 1), heads: make([]int32, 64), shift: 64 - 6}
}

// find returns the segment that continues parent and begins with this hash, or 0.
func (t *tree) find(parent int32, hash uint64) int32 {
	p := &t.segments[parent]
	if c := p.child; c != 0 && t.segments[c].first == hash {
		return c
	}
	if p.others == 0 {
		return 0
	}
	i := *t.head(parent, hash)
	for i != 0 && (t.segments[i].first != hash || t.segments[i].parent != parent) {
		i = t.segments[i].chain
	}
	return i
}

// common returns how many of hashes are those of segment i after its first in blocks.
func (t *tree) common(i int32, in int, hashes []uint64) int {
	have := t.segments[i].hashes[in:]
	n := min(len(have), len(hashes))
	for at := range n {
		if have[at] != hashes[at] {
			return at
		}
	}
	return n
}

// add enters blocks that continue parent, as many of hashes as fit into one segment, and returns that and their number. The segment may be
// parent itself, if nothing continues it and it may be extended. Else there must be none that begins with the same hash.
func (t *tree) add(parent int32, hashes []uint64, extend bool) (i int32, n int) {
	if s := &t.segments[parent]; extend && parent != 0 && s.child == 0 && s.others == 0 && len(s.hashes) < longestSegment {
		n = min(len(hashes), longestSegment-len(s.hashes))
		if all := len(s.hashes) + n; all > cap(s.hashes) {
			before := s.hashes
			s.hashes = append(t.spare.take(all), before...)
			t.spare.give(before)
		}
		s.hashes = append(s.hashes, hashes[:n]...)
		t.blocks += n
		return parent, n
	}
	n = min(len(hashes), longestSegment)
	i = t.take(hashes[:n])
	s, p := &t.segments[i], &t.segments[parent]
	s.parent = parent
	t.blocks += n
	if p.child == 0 {
		p.child = i
		return i, n
	}
	p.others++
	if t.tabled == len(t.heads) {
		t.grow()
	}
	t.tabled++
	head := t.head(parent, s.first)
	s.chain, *head = *head, i
	return i, n
}

// take returns a segment of these hashes that is not in the tree.
func (t *tree) take(hashes []uint64) int32 {
	i := int32(len(t.segments))
	if n := len(t.unused); n > 0 {
		i, t.unused = t.unused[n-1], t.unused[:n-1]
	} else {
		t.segments = append(t.segments, segment{})
	}
	s := &t.segments[i]
	*s = segment{first: hashes[0], hashes: append(t.spare.take(len(hashes)), hashes...)}
	return i
}

// split makes the first n blocks of segment i a segment of their own, which takes its place, and returns that. Segment i keeps the others, and
// all that it is part of: what holds it, or is at its end, need not know.
func (t *tree) split(i int32, n int) int32 {
	front := t.take(t.segments[i].hashes[:n])
	f, s := &t.segments[front], &t.segments[i]
	f.parent, f.child, f.refs = s.parent, i, s.refs
	if p := &t.segments[s.parent]; p.child == i {
		p.child = front
	} else {
		at := t.slot(i)
		*at, f.chain = front, s.chain
	}
	whole := s.hashes
	s.hashes = append(t.spare.take(len(whole)-n), whole[n:]...)
	t.spare.give(whole)
	s.first, s.parent, s.chain = s.hashes[0], front, 0
	return front
}

// cut takes the last n blocks of segment i, which nothing continues, out of the tree, and says whether none are left and i with them.
func (t *tree) cut(i int32, n int) (gone bool) {
	s := &t.segments[i]
	if s.child != 0 || s.others != 0 {
		panic("BUG: a block leaves the cache before what continues it")
	}
	s.hashes = s.hashes[:len(s.hashes)-n]
	t.blocks -= n
	if len(s.hashes) > 0 {
		return false
	}
	t.unused = append(t.unused, i)
	t.spare.give(s.hashes)
	s.hashes = nil
	if p := &t.segments[s.parent]; p.child == i {
		p.child = 0
	} else {
		p.others--
		t.tabled--
		*t.slot(i) = s.chain
	}
	return true
}

// head returns where the chain of a segment begins.
func (t *tree) head(parent int32, hash uint64) *int32 {
	const golden = 0x9e3779b97f4a7c15 // spreads hashes that are near each other over the upper bits
	return &t.heads[(hash^uint64(parent)<<32)*golden>>t.shift]
}

// slot returns what refers to segment i in the table, where it must be.
func (t *tree) slot(i int32) *int32 {
	at := t.head(t.segments[i].parent, t.segments[i].first)
	for *at != i {
		at = &t.segments[*at].chain
	}
	return at
}

// grow doubles the heads.
func (t *tree) grow() {
	old := t.heads
	t.heads = make([]int32, 2*len(old))
	t.shift--
	for _, i := range old {
		for i != 0 {
			s := &t.segments[i]
			next := s.chain
			head := t.head(s.parent, s.first)
			s.chain, *head = *head, i
			i = next
		}
	}
}

// spares is memory for the hashes of segments, by the power of two that is its size: no segment has more than twice what it needs.
type spares [9][][]uint64 // up to longestSegment

// smallestHashes is the power of two of the least memory that a segment has.
const smallestHashes = 2

// take returns an empty slice for n of them.
func (p *spares) take(n int) []uint64 {
	size := max(bits.Len(uint(n-1)), smallestHashes)
	free := p[size]
	if len(free) == 0 {
		return make([]uint64, 0, 1<<size)
	}
	last := free[len(free)-1]
	p[size] = free[:len(free)-1]
	return last
}

func (p *spares) give(s []uint64) {
	size := bits.Len(uint(cap(s) - 1))
	p[size] = append(p[size], s[:0])
}

// Package prefix remembers which prompts' beginnings each deployment has seen of late, and so is likely to hold in its cache.
//
// A prompt is a chain of hashes, one for each block of text, each of which depends on all before it (llm.Prompt.AppendPrefix): two
// prompts share exactly the blocks whose hashes are equal. Chains are kept as a tree whose edges are whole runs of hashes, so that a
// long prompt that nobody shares is one piece, and so that looking one up needs a few comparisons: in a run, all hashes up to where
// two prompts part are equal and none behind it.
//
// What a deployment holds is bounded: what was used longest ago goes first, and of that its end first, as engines do.
package prefix

import (
	"math"
	"slices"
	"sync"
)

// Index is the memory of all deployments. Holders are small numbers that the caller gives out (see Join). All methods may be called
// concurrently; none keeps a chain that it was given.
type Index struct {
	mu      sync.Mutex
	first   map[uint64]int32 // edge by its first hash, which is unique: it depends on all before it
	edges   []edge
	holds   []hold
	holders []holder
	freeE   int32 // edges not in use, linked by edge.hold
	freeH   int32 // holds not in use, linked by hold.sibling
	path    []int32
}

// edge is a run of hashes that every prompt which shares its first one continued alike, as far as it went.
type edge struct {
	run   []uint64
	hold  int32 // the first of those who hold some of it
	count int32 // how many do
	begun begun // how many prompts began with it
}

// begun counts prompts of late: in a stretch of them, and in the one before.
type begun struct {
	stretch     uint32
	now, before uint16
}

// stretch is a number of prompts.
const stretch = 64

// at is how many they are by the stretch of a prompt.
func (b begun) at(prompt uint32) begun {
	switch s := prompt / stretch; {
	case s <= b.stretch:
		return b
	case s == b.stretch+1:
		return begun{s, 0, b.now}
	default:
		return begun{s, 0, 0}
	}
}

// hold says that a holder has the first blocks of an edge.
type hold struct {
	edge, holder int32
	blocks       int32
	answer       int32 // tokens that were produced behind the last block
	weight       int32 // blocks that this hold is charged with: its own, and those of the answer
	sibling      int32 // next hold of the same edge
	newer, older int32 // the holder's order of use: an edge is never older than what follows it
}

// holder is one deployment's memory.
type holder struct {
	used, room     int // blocks
	newest, oldest int32
	free           bool
}

const none = -1

// Match says what a holder has of a chain.
type Match struct {
	Blocks int32 // from the start
	// Answer is how many tokens the holder produced when it was last given exactly these blocks, if the chain goes on behind them: what
	// comes next in a conversation is that answer, which the holder has too.
	Answer int32
}

// Beginnings is how often prompts began like one that was looked up.
type Beginnings struct {
	n   int
	all [mostBeginnings]struct {
		blocks int32
		begun  begun
	}
}

// mostBeginnings is as many as there may be parts of a beginning that are common in different degrees.
const mostBeginnings = 8

// Common returns with how many of its first blocks at least so large a share of late prompts began, of those before the prompt of that
// ordinal; 0 if too few began at all to say so.
func (b *Beginnings) Common(prompt uint32, share float64) int32 {
	common := int32(0)
	of := float64(prompt % stretch)
	if prompt >= stretch {
		of += stretch
	}
	for _, x := range b.all[:b.n] {
		u := x.begun.at(prompt)
		if n := int(u.now) + int(u.before); n < fewBegun || float64(n) < share*of {
			break
		}
		common = x.blocks
	}
	return common
}

// fewBegun is how many prompts begin alike at least before their beginning is common.
const fewBegun = 3

// New returns an empty Index.
func New() *Index { return &Index{first: map[uint64]int32{}, freeE: none, freeH: none} }

// Join returns the number of a new holder that remembers at most so many blocks.
func (x *Index) Join(room int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := slices.IndexFunc(x.holders, func(h holder) bool { return h.free })
	if h < 0 {
		h = len(x.holders)
		x.holders = append(x.holders, holder{})
	}
	x.holders[h] = holder{room: room, newest: none, oldest: none}
	return h
}

// Leave forgets a holder. Its number may be given to another.
func (x *Index) Leave(h int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.shrink(h, 0)
	x.holders[h].free = true
}

// Drop forgets what a holder has, as when it turned out to be empty.
func (x *Index) Drop(h int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.shrink(h, 0)
}

// Resize sets how many blocks a holder remembers.
func (x *Index) Resize(h, room int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.holders[h].room = room
	x.shrink(h, room)
}

// Blocks returns how many blocks a holder is charged with.
func (x *Index) Blocks(h int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.holders[h].used
}

// Match says what each holder has of a chain, by the holder's number, in dst, whose memory it uses, and in began how common it is.
func (x *Index) Match(chain []uint64, dst []Match, began *Beginnings) []Match {
	x.mu.Lock()
	defer x.mu.Unlock()
	dst = slices.Grow(dst[:0], len(x.holders))[:len(x.holders)]
	clear(dst)
	x.path = x.path[:0]
	began.n = 0
	at, common := 0, 0
	for at < len(chain) {
		i, ok := x.first[chain[at]]
		if !ok {
			break
		}
		x.path = append(x.path, i)
		common = shared(x.edges[i].run, chain[at:])
		at += common
		if n := began.n; n < mostBeginnings {
			began.all[n].blocks, began.all[n].begun = int32(at), x.edges[i].begun
			began.n++
		}
		if common < len(x.edges[i].run) {
			break
		}
	}
	// From the end: who holds an edge holds all above it, so that an edge which no more hold than the one below tells nothing new.
	end, known := at, int32(0)
	for j, i := range slices.Backward(x.path) {
		e := &x.edges[i]
		begin := end - common
		if e.count > known {
			known = e.count
			for k := e.hold; k != none; k = x.holds[k].sibling {
				h := &x.holds[k]
				m := &dst[h.holder]
				if m.Blocks > 0 {
					continue
				}
				m.Blocks = int32(begin + min(int(h.blocks), common))
				if int(h.blocks) <= common && int(m.Blocks) < len(chain) {
					m.Answer = h.answer
				}
			}
		}
		if end = begin; j > 0 {
			common = len(x.edges[x.path[j-1]].run)
		}
	}
	return dst
}

// shared returns how many hashes two runs that begin alike have in common. It gallops: prompts part near the start or not at all.
func shared(a, b []uint64) int {
	n := min(len(a), len(b))
	if a[n-1] == b[n-1] {
		return n
	}
	lo, step := 0, 1 // a[lo] == b[lo]
	for lo+step < n && a[lo+step] == b[lo+step] {
		lo += step
		step *= 2
	}
	hi := min(lo+step, n-1) // a[hi] != b[hi]
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; a[mid] == b[mid] {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// Insert says that a holder was given a prompt, and is to produce so many tokens behind it, which take so many more blocks. prompt is its
// ordinal among those that are to be counted (Beginnings), 0 = it is none of them.
func (x *Index) Insert(h int, chain []uint64, answer, answerBlocks int, prompt uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(chain) == 0 || x.holders[h].room <= 0 {
		return
	}
	x.path = x.path[:0]
	common := 0
	for at := 0; at < len(chain); {
		i, ok := x.first[chain[at]]
		if !ok {
			i = x.edge(slices.Clone(chain[at:]))
		}
		common = shared(x.edges[i].run, chain[at:])
		at += common
		if common < len(x.edges[i].run) && (at < len(chain) || prompt > 0 || x.has(i, h) > common) {
			x.split(i, common) // they part within the run, or what is behind was not used now, or is not counted
		}
		if prompt > 0 {
			b := x.edges[i].begun.at(prompt)
			b.now = min(b.now, math.MaxUint16-1) + 1
			x.edges[i].begun = b
		}
		x.path = append(x.path, x.take(i, h, common))
	}
	// The deepest becomes the newest first, so that none is older than what follows it.
	for i, k := range slices.Backward(x.path) {
		if i < len(x.path)-1 || int(x.holds[k].blocks) > common {
			answer, answerBlocks = 0, 0 // what went on behind it holds it
		}
		x.charge(k, answer, answerBlocks)
		x.unlink(k)
		x.push(k)
	}
	x.shrink(h, x.holders[h].room)
}

// edge makes an edge of a run, which it keeps.
func (x *Index) edge(run []uint64) int32 {
	i := x.freeE
	if i == none {
		i = int32(len(x.edges))
		x.edges = append(x.edges, edge{})
	} else {
		x.freeE = x.edges[i].hold
	}
	x.edges[i] = edge{run: run, hold: none}
	x.first[run[0]] = i
	return i
}

// split cuts an edge in two.
func (x *Index) split(i int32, at int) {
	run := x.edges[i].run
	below := x.edge(run[at:])
	x.edges[below].begun = x.edges[i].begun
	x.edges[i].run = run[:at:at]
	for k := x.edges[i].hold; k != none; k = x.holds[k].sibling {
		if h := &x.holds[k]; int(h.blocks) > at {
			low := x.hold(below, int(h.holder))
			h = &x.holds[k] // memory may have moved
			l := &x.holds[low]
			l.blocks, l.answer, l.weight = h.blocks-int32(at), h.answer, h.weight-int32(at)
			h.blocks, h.answer, h.weight = int32(at), 0, int32(at)
			// It is as old as the part above it, and just older.
			l.newer, l.older = k, h.older
			if h.older == none {
				x.holders[h.holder].oldest = low
			} else {
				x.holds[h.older].newer = low
			}
			h.older = low
		}
	}
	if x.edges[below].hold == none {
		x.remove(below)
	}
}

// remove takes an edge that nobody holds out of the tree.
func (x *Index) remove(i int32) {
	delete(x.first, x.edges[i].run[0])
	x.edges[i] = edge{hold: x.freeE}
	x.freeE = i
}

// hold makes an empty hold of an edge, which is not yet in its holder's order.
func (x *Index) hold(i int32, h int) int32 {
	k := x.freeH
	if k == none {
		k = int32(len(x.holds))
		x.holds = append(x.holds, hold{})
	} else {
		x.freeH = x.holds[k].sibling
	}
	x.holds[k] = hold{edge: i, holder: int32(h), sibling: x.edges[i].hold, newer: none, older: none}
	x.edges[i].hold = k
	x.edges[i].count++
	return k
}

// find returns a holder's hold of an edge, or none.
func (x *Index) find(i int32, h int) int32 {
	k := x.edges[i].hold
	for k != none && int(x.holds[k].holder) != h {
		k = x.holds[k].sibling
	}
	return k
}

// has returns how many blocks of an edge a holder has.
func (x *Index) has(i int32, h int) int {
	if k := x.find(i, h); k != none {
		return int(x.holds[k].blocks)
	}
	return 0
}

// take gives a holder at least the first blocks of an edge and returns its hold.
func (x *Index) take(i int32, h, blocks int) int32 {
	k := x.find(i, h)
	if k == none {
		k = x.hold(i, h)
		x.push(k)
	}
	if d := &x.holds[k]; int(d.blocks) < blocks {
		x.holders[h].used += blocks - int(d.weight)
		d.blocks, d.answer, d.weight = int32(blocks), 0, int32(blocks)
	}
	return k
}

// charge notes the answer behind the last block of a prompt.
func (x *Index) charge(k int32, answer, blocks int) {
	d := &x.holds[k]
	weight := d.blocks + int32(blocks)
	x.holders[d.holder].used += int(weight - d.weight)
	d.answer, d.weight = int32(answer), weight
}

// push makes a hold its holder's newest.
func (x *Index) push(k int32) {
	d := &x.holds[k]
	o := &x.holders[d.holder]
	d.newer, d.older = none, o.newest
	if o.newest == none {
		o.oldest = k
	} else {
		x.holds[o.newest].newer = k
	}
	o.newest = k
}

func (x *Index) unlink(k int32) {
	d := &x.holds[k]
	o := &x.holders[d.holder]
	if d.newer == none {
		o.newest = d.older
	} else {
		x.holds[d.newer].older = d.older
	}
	if d.older == none {
		o.oldest = d.newer
	} else {
		x.holds[d.older].newer = d.newer
	}
}

// shrink takes from a holder what was used longest ago, the ends of prompts first, until it has no more than so many blocks.
func (x *Index) shrink(h, room int) {
	o := &x.holders[h]
	for o.used > room && o.oldest != none {
		k := o.oldest
		d := &x.holds[k]
		over := int32(o.used - room)
		if left := d.weight - over; left > 0 {
			if left < d.blocks {
				d.blocks = left
			}
			d.answer = 0
			d.weight, o.used = left, room
			return
		}
		o.used -= int(d.weight)
		x.unlink(k)
		x.release(k)
	}
}

// release takes a hold off its edge, and with the last one the edge.
func (x *Index) release(k int32) {
	i := x.holds[k].edge
	at := &x.edges[i].hold
	for *at != k {
		at = &x.holds[*at].sibling
	}
	*at = x.holds[k].sibling
	x.holds[k].sibling, x.freeH = x.freeH, k
	x.edges[i].count--
	if x.edges[i].hold == none {
		x.remove(i)
	}
}

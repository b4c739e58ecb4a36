package peers

import (
	"math/bits"
	"slices"
	"time"
)

// index is what a router believes to be in the caches of deployments: the prefixes of what it sent them. Like the workload it
// tells prefixes apart by the hash chain of their blocks. It forgets the least recently used block first, and of one prefix
// the last: a prefix loses its end before its head.
type index struct {
	o           indexOptions
	deployments int

	step int // blocks of the workload in one of the index; 0 = nothing is known of the workload yet
	size int // tokens of one of the index

	// For each hash there is a set of deployments, words long, in holders.
	sets        map[uint64]int32 // by hash, the first word
	holders     []uint64
	unusedSets  []int32
	words       int
	alive, mask []uint64 // scratch
	path        []int32  // likewise

	// For each deployment that holds a hash there is an entry; entries[0] is none.
	where   map[held]int32
	entries []entry
	unused  []int32
	lists   []list // by deployment; only one if the room is pooled
	swept   time.Duration
	clock   uint64
}

// indexOptions describe an index.
type indexOptions struct {
	block  int           // tokens of a router's own block: as many blocks of the workload as fit in it, at least one
	room   int           // tokens that a deployment's part may hold, 0 = no limit
	pooled bool          // room is for all deployments together
	every  time.Duration // from one look at the room to the next; 0 = always
	idle   time.Duration // what was not used for longer is forgotten; 0 = never
}

// held is a block at a deployment.
type held struct {
	hash       uint64
	deployment int32
}

type entry struct {
	held
	next         int32 // the entry that came after it in a prompt last, if it is still about that
	older, newer int32
	used         time.Duration
	stamp        uint64 // orders what was used at one time; 0 = not in use
}

type list struct {
	oldest, newest int32
	len            int
}

func newIndex(deployments int, o indexOptions) *index {
	lists := deployments
	if o.pooled {
		lists = 1
	}
	words := (deployments + 63) / 64
	return &index{
		o: o, deployments: deployments, sets: map[uint64]int32{}, words: words, alive: make([]uint64, words), mask: make([]uint64, words),
		where: map[held]int32{}, entries: make([]entry, 1), lists: make([]list, lists),
	}
}

// learn sets the size of the workload's blocks. It is the same for all requests that have any.
func (x *index) learn(blockTokens int) {
	if x.step == 0 && blockTokens > 0 {
		x.step = max(1, x.o.block/blockTokens)
		x.size = x.step * blockTokens
	}
}

// match sets tokens[d], for each deployment d, to how many tokens at the beginning of the prompt it is believed to have.
func (x *index) match(now time.Duration, chain []uint64, tokens []int) {
	clear(tokens)
	if x.step == 0 {
		return
	}
	x.expire(now)
	for d := range x.deployments {
		x.alive[d/64] |= 1 << (d % 64)
	}
	depth := 0
	for i := x.step - 1; i < len(chain); i += x.step {
		set, ok := x.sets[chain[i]]
		if !ok {
			break
		}
		left := uint64(0)
		for w, have := range x.holders[set : int(set)+x.words] {
			lost := x.alive[w] &^ have
			for ; lost != 0; lost &= lost - 1 {
				tokens[64*w+bits.TrailingZeros64(lost)] = depth
			}
			x.alive[w] &= have
			left |= x.alive[w]
		}
		if left == 0 {
			return
		}
		depth += x.size
	}
	for w, left := range x.alive {
		for ; left != 0; left &= left - 1 {
			tokens[64*w+bits.TrailingZeros64(left)] = depth
		}
		x.alive[w] = 0
	}
}

// latest returns which deployment the longest known prefix of a prompt was last sent to, and how many tokens that prefix has; -1
// if there is none. among says which deployments count.
func (x *index) latest(chain []uint64, among func(deployment int) bool) (deployment, tokens int) {
	deployment = -1
	if x.step == 0 {
		return
	}
	clear(x.mask)
	for d := range x.deployments {
		if among(d) {
			x.mask[d/64] |= 1 << (d % 64)
		}
	}
	end := -1 // of the longest prefix that anyone has
	for i := x.step - 1; i < len(chain); i += x.step {
		set, ok := x.sets[chain[i]]
		if !ok || !x.anyOf(set) {
			break
		}
		end, tokens = i, tokens+x.size
	}
	if end < 0 {
		return
	}
	stamp := uint64(0)
	for d := range x.deployments {
		if x.mask[d/64]>>(d%64)&1 == 0 {
			continue
		}
		if e := x.where[held{chain[end], int32(d)}]; e != 0 && x.entries[e].stamp > stamp {
			deployment, stamp = d, x.entries[e].stamp
		}
	}
	return
}

// anyOf reports whether a set has anyone of mask.
func (x *index) anyOf(set int32) bool {
	for w, have := range x.holders[set : int(set)+x.words] {
		if have&x.mask[w] != 0 {
			return true
		}
	}
	return false
}

// insert notes that a deployment was sent a prompt.
func (x *index) insert(now time.Duration, chain []uint64, deployment int) {
	if x.step == 0 {
		return
	}
	x.path = x.path[:0]
	last := int32(0)
	for i := x.step - 1; i < len(chain); i += x.step {
		last = x.find(last, held{chain[i], int32(deployment)})
		x.path = append(x.path, last)
	}
	for _, i := range slices.Backward(x.path) { // the head is the last to be used, and so the last to go
		x.use(now, i)
	}
	x.expire(now)
	if now-x.swept < x.o.every {
		return
	}
	x.swept = now
	for i := range x.lists {
		for l := &x.lists[i]; x.o.room > 0 && l.len*x.size > x.o.room; {
			x.forget(l, l.oldest)
		}
	}
}

// expire forgets what was not used for too long.
func (x *index) expire(now time.Duration) {
	if x.o.idle == 0 {
		return
	}
	for i := range x.lists {
		for l := &x.lists[i]; l.oldest != 0 && now-x.entries[l.oldest].used > x.o.idle; {
			x.forget(l, l.oldest)
		}
	}
}

func (x *index) list(deployment int32) *list {
	if x.o.pooled {
		return &x.lists[0]
	}
	return &x.lists[deployment]
}

// find returns the entry of a block that follows another one, which may be none, and makes it if need be. What followed before does
// again in most prompts, and is not looked for.
func (x *index) find(before int32, h held) int32 {
	if i := x.entries[before].next; before != 0 && x.entries[i].held == h && x.entries[i].stamp != 0 {
		return i
	}
	i := x.where[h]
	if i == 0 {
		i = x.enter(h)
	}
	if before != 0 {
		x.entries[before].next = i
	}
	return i
}

// use makes an entry the newest of its list.
func (x *index) use(now time.Duration, i int32) {
	e := &x.entries[i]
	l := x.list(e.deployment)
	if e.stamp != 0 {
		x.unlink(l, i)
	}
	x.clock++
	e.used, e.stamp = now, x.clock
	e.older, e.newer = l.newest, 0
	if l.newest != 0 {
		x.entries[l.newest].newer = i
	} else {
		l.oldest = i
	}
	l.newest = i
	l.len++
}

// enter makes a new entry, and puts the deployment into the set of the hash.
func (x *index) enter(h held) int32 {
	i := int32(len(x.entries))
	if n := len(x.unused); n > 0 {
		i, x.unused = x.unused[n-1], x.unused[:n-1]
	} else {
		x.entries = append(x.entries, entry{})
	}
	x.entries[i] = entry{held: h}
	x.where[h] = i
	set, ok := x.sets[h.hash]
	if !ok {
		if n := len(x.unusedSets); n > 0 {
			set, x.unusedSets = x.unusedSets[n-1], x.unusedSets[:n-1]
		} else {
			set = int32(len(x.holders))
			x.holders = append(x.holders, make([]uint64, x.words)...)
		}
		x.sets[h.hash] = set
	}
	x.holders[int(set)+int(h.deployment)/64] |= 1 << (h.deployment % 64)
	return i
}

func (x *index) unlink(l *list, i int32) {
	e := &x.entries[i]
	if e.older != 0 {
		x.entries[e.older].newer = e.newer
	} else {
		l.oldest = e.newer
	}
	if e.newer != 0 {
		x.entries[e.newer].older = e.older
	} else {
		l.newest = e.older
	}
	l.len--
}

func (x *index) forget(l *list, i int32) {
	x.unlink(l, i)
	h := x.entries[i].held
	delete(x.where, h)
	x.entries[i] = entry{}
	x.unused = append(x.unused, i)
	set := x.sets[h.hash]
	x.holders[int(set)+int(h.deployment)/64] &^= 1 << (h.deployment % 64)
	for _, have := range x.holders[set : int(set)+x.words] {
		if have != 0 {
			return
		}
	}
	delete(x.sets, h.hash)
	x.unusedSets = append(x.unusedSets, set)
}
